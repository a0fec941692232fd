"""The points of a job's metrics as `job.metrics()` lists them, from the event files in its folder `tensorboard`.

    process ── report() ─────────────────────> events.out…, rank-<n>/events.out…  ┐
    process ── prints ──> log ── definitions ──> log-metrics/events.out…          ┴─> JobPoints ──> job.metrics()

`RunReader` joins these files into the curves of a run. Both use `attempts` to drop the points that a restart has
replaced. Each point keeps its instance.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import logging
import math
import os
import stat
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeAlias

from pai_sdk._data.run.events.attempts import Attempt, oldest_first, replacements, start_order
from pai_sdk._data.run.events.records import read_scalars
from pai_sdk._data.run.events.sources import source_order
from pai_sdk._data.run.events.writer import EVENTS_PART, LOG_METRICS, event_file_source
from pai_sdk._data.storage.base import Store
from pai_sdk._data.storage.stored_file import StoredFile, Unlisted
from pai_sdk._data.storage.stores.local import LocalStore, stored_file_of
from pai_sdk._wire.pai.record import MetricPoint
from pai_sdk._wire.pai.wire import wire_time
from pai_sdk.errors import FileChangedError, ObjectNotFoundError, StorageError

logger = logging.getLogger(__name__)

_MAX_REPLACED = 3  # replacements of one file in one call
_MAX_NAME_CHARS = 500
_MAX_NOT_FINITE = 200  # points of one metric and chunk that are searched for NaN and infinities
END_OF_TIME_S = 1e11  # seconds since 1970: about the year 5138; larger numbers are not times


class Part(NamedTuple):
    """Points of one metric, from a part of one file, in the order of the file."""

    name: str
    instance: str  # that has reported or printed the points
    # Whether the points are from the log. Then a step only counts the lines that have values, and a time of 0 is
    # unknown.
    is_from_log: bool
    path: str  # of the file
    wall: Any  # arrays with numpy, lists without; when, in seconds since 1970
    step: Any  # when, in the count of the training
    value: Any  # the numbers; finite

    def rows(self, start: int = 0) -> Iterator[tuple[float, int, float]]:
        """Yields time, step and value of each point, as Python numbers."""
        columns = (column[start:] for column in (self.wall, self.step, self.value))
        return zip(*(column if isinstance(column, list) else column.tolist() for column in columns), strict=True)

    @property
    def rank(self) -> int:
        """Returns the rank of the process that has reported the points, by the folder of the file."""
        match = EVENTS_PART.fullmatch(self.path.rpartition("/")[0])
        return int(match["rank"] or 0) if match else 0

    @property
    def source(self) -> tuple[str, str, bool, int]:
        """Returns metric, instance, `is_from_log` and rank: files of one source are one curve."""
        return self.name, self.instance, self.is_from_log, self.rank

    @property
    def order(self) -> tuple[Any, ...]:
        """Returns the key by which the sources of one metric are sorted."""
        return source_order(self.instance, self.rank, is_from_log=self.is_from_log)

    def last(self) -> Iterator[MetricPoint]:
        """Yields the last point in the form of the wire, if there is one."""
        for wall, step, value in self.rows(-1):
            yield _metric_point(self, wire_time(valid_time(wall, is_from_log=self.is_from_log)), step, value)


def valid_time(wall: float, *, is_from_log: bool) -> float | None:
    """Returns the time of a point; None where it is unknown, 0 where the job wrote a number that is not a time."""
    if is_from_log and not wall:
        return None
    return wall if 0 <= wall < END_OF_TIME_S else 0.0


class _Reader(Protocol):
    """Reads a file incrementally: `EventFileReader`, or `_PlainReader` without numpy."""

    def read(self, size: int | None = None, should_stop: Callable[[bool], bool] = ...) -> Any: ...


class EventFolder(LocalStore):
    """The folder `tensorboard` of a job on this machine, which the job can change: links and pipes are ignored."""

    def __init__(self, root: Path, *, is_link_allowed: bool = False) -> None:
        super().__init__(root, links="inside")
        # A link that the job has created could point anywhere.
        self._is_link_allowed = is_link_allowed

    def list(
        self, prefix: str = "", *, folders: bool = False, unlisted: Unlisted | None = None
    ) -> Iterator[StoredFile]:
        """Yields the files in the folder, and in the folders that belong to the same run."""
        if self._is_link_allowed or not self.root.is_symlink():
            for entry in _entries(self.root):
                if EVENTS_PART.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False):
                    for inner in _entries(entry.path):
                        yield from _plain_file(f"{entry.name}/{inner.name}", inner)
                else:
                    yield from _plain_file(entry.name, entry)

    def read(self, path: str, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        """Yields the bytes from `start` to `end`, in chunks; links and pipes raise ObjectNotFoundError."""
        try:
            yield from super().read(path, start, end)
        except StorageError as error:
            raise ObjectNotFoundError(str(error)) from error


def _entries(folder: str | Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError:  # it does not exist, or the job has just removed it
        return []


def _plain_file(path: str, entry: os.DirEntry[str]) -> Iterator[StoredFile]:
    with contextlib.suppress(OSError):  # removed after its name was read
        status = entry.stat(follow_symlinks=False)
        if stat.S_ISREG(status.st_mode):
            yield stored_file_of(path, status)


class JobPoints:
    """Reads new points in the event files of a job. Not safe to use from several threads at once."""

    def __init__(self, store: Store, instances: Collection[str] | None = None, since: float = 0.0) -> None:
        self._store = store
        # Files of other instances are ignored; None for all files.
        self._instances = None if instances is None else frozenset(instances)
        self._since = since  # seconds since 1970; files of processes that started earlier are of other jobs
        self._files: dict[str, _File] = {}
        self._has_warned = False
        self.max_files = 1000
        self.max_chunks = 8  # of a file in one step: about 8 MiB, as a chunk has 1 MiB
        # Called with the points that are NaN or infinite, of the last ones in a chunk; no part has them.
        self.on_not_finite: Callable[[Part], object] | None = None
        self.epoch = 0  # grows when earlier points are not valid any more: a file was replaced or removed

    def read_on(self) -> Iterator[Part]:
        """Yields new points in parts that fit into memory and can be empty, without NaN and infinities."""
        stored_files = {file.path: file for file in self._store.list()}
        if self._files.keys() - stored_files.keys():
            self.epoch += 1
            self._files = {path: file for path, file in self._files.items() if path in stored_files}
        for path, stored in sorted(stored_files.items(), key=lambda item: (not _is_from_log(item[0]), item[0])):
            file = self._files.get(path) or self._new_file(path)
            if file is not None and (stored.size_bytes, stored.etag) != file.read_version:
                yield from self._read_file(file, stored)

    def _new_file(self, path: str) -> _File | None:
        source = event_file_source(path)
        if source is None or source[1] < self._since:
            return None
        if self._instances is not None and source[0] not in self._instances:
            return None
        if len(self._files) >= self.max_files:
            if not self._has_warned:
                self._has_warned = True
                logger.warning(
                    "%s has more than %d event files; job.metrics() leaves out the others, the run has them",
                    self._store.uri,
                    self.max_files,
                )
            return None
        file = self._files[path] = _File(path, source[0], _reader_for(self._store, path))
        return file

    def _read_file(self, file: _File, stored: StoredFile) -> Iterator[Part]:
        is_partial, replaced = True, 0
        while is_partial:
            budget = iter(range(self.max_chunks))
            try:
                chunk = file.reader.read(stored.size_bytes, lambda _: next(budget, None) is None)  # noqa: B023
            except ObjectNotFoundError:  # removed after the listing
                return
            except FileChangedError:
                self.epoch += 1
                file.reader, file.read_version = _reader_for(self._store, file.path), (0, "")
                replaced += 1
                if replaced > _MAX_REPLACED:
                    return
                continue
            is_partial = chunk.is_partial
            for series in chunk.scalars.values():
                yield from self._parts(file, series)
            if is_partial and not chunk.scalars:  # a long damaged range: the caller gets a chance to stop
                yield Part("", file.instance, _is_from_log(file.path), file.path, [], [], [])
            if chunk.error is not None:
                raise chunk.error
        file.read_version = (stored.size_bytes, stored.etag)

    def _parts(self, file: _File, series: Any) -> Iterator[Part]:
        if not _is_name(series.tag):
            return
        source, finite = (series.tag, file.instance, _is_from_log(file.path), file.path), series.finite()
        if len(finite.wall) < len(series.wall) and self.on_not_finite is not None:
            self.on_not_finite(Part(*source, *_not_finite(series)))
        if len(finite.wall):
            yield Part(*source, finite.wall, finite.step, finite.value)


def metric_points(parts: Iterable[Part], name: str | None = None) -> Iterator[MetricPoint]:
    """Yields all points of some parts, or those of one metric, the oldest first where the times are known."""
    number = itertools.count()  # a unique number of each point, so that sorting never compares the parts
    rows = [
        (valid_time(wall, is_from_log=False), part.path, step, next(number), value, part)
        for part in parts
        if name in (None, part.name)
        for wall, step, value in part.rows()
    ]
    rows = _without_replaced(rows)
    rows.sort()
    before, timestamp = None, None
    for wall, _, step, _, value, part in rows:
        if wall != before:  # points of one record share the formatted time
            before, timestamp = wall, wire_time(wall)
        yield _metric_point(part, timestamp if wall or not part.is_from_log else None, step, value)


_Row: TypeAlias = "tuple[float | None, str, int, int, float, Part]"  # time, file, step, number, value


def _without_replaced(rows: list[_Row]) -> list[_Row]:
    """Returns the rows that later files of their sources have not replaced."""
    sources: dict[tuple[str, str, bool, int], dict[str, list[int]]] = {}
    last: tuple[Part | None, list[int]] = None, []
    for row in rows:
        if last[0] is not row[5]:  # a part has many rows, so its list is looked up once
            part = row[5]
            last = part, sources.setdefault(part.source, {}).setdefault(part.path, [])
        last[1].append(row[2])
    limits: dict[tuple[tuple[str, str, bool, int], str], tuple[float, frozenset[int]]] = {}
    for source, files in sources.items():
        if len(files) < 2:
            continue
        attempts = [Attempt(start_order(path), None, sorted(steps)) for path, steps in files.items()]
        order = oldest_first(attempts)
        paths = [*files]
        for number, replacement in zip(
            order, replacements([attempts[number].steps for number in order]), strict=True
        ):
            replaced = frozenset(
                step for newer in replacement.replaced_by for step in attempts[order[newer]].steps
            )
            limits[source, paths[number]] = math.inf if replacement.limit is None else replacement.limit, replaced
    if not limits:
        return rows
    counting = []
    for row in rows:
        limit, replaced = limits.get((row[5].source, row[1]), (math.inf, frozenset()))
        if row[2] < limit and row[2] not in replaced:
            counting.append(row)
    return counting


def _metric_point(part: Part, timestamp: str | None, step: int, value: float) -> MetricPoint:
    """Returns a point of the wire."""
    # Not validated: the types are right, and validation would take half of the time.
    return MetricPoint.model_construct(
        name=part.name,
        value=value,
        timestamp=timestamp,
        step=None if part.is_from_log else step,
        instance=part.instance,
        rank=part.rank or None,
    )


def _not_finite(series: Any) -> tuple[list[float], list[int], list[float]]:
    """Returns time, step and value of the last points that are NaN or infinite."""
    columns = [
        column if isinstance(column, list) else column.tolist()
        for column in (
            series.wall[-_MAX_NOT_FINITE:],
            series.step[-_MAX_NOT_FINITE:],
            series.value[-_MAX_NOT_FINITE:],
        )
    ]
    rows = [row for row in zip(*columns, strict=True) if not math.isfinite(row[2])]
    return [row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows]


class _File:
    """One event file."""

    def __init__(self, path: str, instance: str, reader: _Reader) -> None:
        self.path, self.instance, self.reader = path, instance, reader
        self.read_version = (0, "")


def _is_name(tag: str) -> bool:
    return len(tag) <= _MAX_NAME_CHARS and "\0" not in tag


def _is_from_log(path: str) -> bool:
    return path.startswith(f"{LOG_METRICS}/")


# ---- without numpy --------------------------------------------------------------------------------------------


def _reader_for(store: Store, path: str) -> _Reader:
    try:
        from pai_sdk._data.run.events.files import EventFileReader
    except ModuleNotFoundError as error:
        if error.name != "numpy":
            raise
        return _PlainReader(store, path)
    return EventFileReader(store, path)


class _Columns:
    """The points of a metric as lists, with the part of `Series` that `JobPoints` uses."""

    def __init__(self, tag: str, rows: list[tuple[float, int, float]]) -> None:
        self.tag, self.rows = tag, rows
        self.wall, self.step, self.value = ([row[at] for row in rows] for at in range(3))

    def finite(self) -> _Columns:
        """Returns the points without NaN and infinities."""
        return _Columns(self.tag, [row for row in self.rows if math.isfinite(row[2])])


class _Chunk(NamedTuple):
    scalars: dict[str, _Columns]
    error: None = None
    is_partial: bool = False


class _PlainReader:
    """Reads an event file in an install without numpy."""

    def __init__(self, store: Store, path: str) -> None:
        self._store, self._path = store, path
        self._offset = 0

    def read(self, size: int | None = None, should_stop: Callable[[bool], bool] = lambda _: False) -> _Chunk:
        """Reads the content appended since the last call."""
        content = io.BytesIO(b"".join(self._store.read(self._path, self._offset, size)))
        rows: dict[str, list[tuple[float, int, float]]] = {}
        end = 0
        for event in read_scalars(content):
            rows.setdefault(event.tag, []).append((event.wall_time, event.step, event.value))
            end = event.end
        self._offset += end
        return _Chunk({tag: _Columns(tag, some) for tag, some in rows.items()})
