"""One run of several event files: read while they grow, joined after restarts.

Needs numpy, from the extras `watch` and `service`.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import repeat
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from pai_sdk._data.run.events.attempts import Attempt, head_end, oldest_first, replacements, start_order
from pai_sdk._data.run.events.columns import GrowingSeries, GrowingSummary, SeriesStats, series_stats
from pai_sdk._data.run.events.files import DamagedRange, EventChunk, EventFileReader, OtherEvent
from pai_sdk._data.run.events.lanes import HostFiles, lanes
from pai_sdk._data.run.events.series import Integers, Series, TagSummary, is_tensor_kind
from pai_sdk._data.run.events.sources import is_instance, source_order
from pai_sdk._data.run.events.writer import EVENTS_PART, event_file_source
from pai_sdk._data.storage.base import Store
from pai_sdk._data.storage.stored_file import StoredFile
from pai_sdk.errors import FileChangedError, ObjectNotFoundError, StorageError

__all__ = ["Entry", "ImageEntry", "RunEnd", "RunReader"]

_LOGS_RANK = 1 << 30  # after the ranks of all processes, so that a reported metric keeps its plain name
_EMPTY_RANGE = (math.inf, -math.inf)
_INSTANCE = re.compile(r".+-((?:master|chief|worker|ps|evaluator)-[0-9]+(?:\.log)?)")  # after the id of the job
_UNSTORED_KINDS = ("image", "audio", "graph")  # counted only, since their content can be megabytes
_TAG_BYTES = 1000  # memory of a tag without its points, about


class _Key(NamedTuple):
    """The key of a summary: a tag of one kind, of one instance."""

    source: tuple[int, str]  # the rank by the folder; the instance, or one of several machines
    kind: str
    tag: str


class Entry(NamedTuple):
    """One text, histogram or tensor."""

    wall: float  # when, in seconds since 1970
    step: int  # when, in the count of the training
    value: Any  # the text; the histogram as left edge, right edge and count of each bucket; or the tensor


class ImageEntry(NamedTuple):
    """One image."""

    number: int  # among all images of its tag, from 0, in the order in which they were written
    wall: float  # when, in seconds since 1970
    step: int  # when, in the count of the training
    size_bytes: int  # of the file
    content: bytes = b""  # of the file, such as PNG; empty in a list of images


class RunEnd(NamedTuple):
    """The end of a run, as recorded in its files."""

    wall: float  # when, in seconds since 1970
    status: str  # `Succeed`, `Failed` or `Terminated`; other programs write another string or none


class _File:
    """One event file of the run, and its points of each tag."""

    def __init__(self, store: Store, path: str) -> None:
        self.reader = EventFileReader(store, path)
        self.read_version = (0, "")
        self.host, self.order = _file_host(path), start_order(path)
        self.source = (_file_rank(path), self.host if is_instance(self.host) else "")
        self.changed_s: float | None = None
        self.points: dict[_Key, GrowingSeries] = {}
        self.other_events: dict[_Key, list[OtherEvent]] = {}
        self.last_wall = 0.0
        self.end: RunEnd | None = None
        self.wall, self.step = _EMPTY_RANGE, _EMPTY_RANGE  # minimum and maximum of all points

    def take(
        self, chunk: EventChunk, *, keeps_points: bool
    ) -> Iterator[tuple[_Key, Series, SeriesStats, int | None]]:
        """Stores the content of a chunk. Yields, for each tag, the new points and the smallest step before."""
        scalars = [*chunk.scalars.values()]
        all_stats = series_stats(scalars)
        self._update_ranges(scalars, all_stats)
        for series, stats in zip(scalars, all_stats, strict=True):
            self.last_wall = max(self.last_wall, float(series.wall[-1]))
            yield self._add_points(_Key(self.source, "scalar", series.tag), series, stats, keeps_points)
        events_by_key: dict[_Key, list[OtherEvent]] = {}
        for event in chunk.other_events:
            if event.kind == "end":
                self.end = RunEnd(event.wall, event.content.decode(errors="replace"))
                continue
            self.last_wall = max(self.last_wall, event.wall)
            events_by_key.setdefault(_Key(self.source, event.kind, event.tag), []).append(event)
        for key, events in events_by_key.items():
            wall, step = np.array([event.wall for event in events]), np.array([event.step for event in events])
            series = Series(key.tag, wall, step, np.full(len(events), np.nan))
            yield self._add_points(key, series, series_stats([series])[0], keeps_points)
            if keeps_points and key.kind not in _UNSTORED_KINDS:
                self.other_events.setdefault(key, []).extend(events)

    def _update_ranges(self, scalars: list[Series], stats: list[SeriesStats]) -> None:
        if is_instance(self.host):  # only machines are distinguished by times
            return
        for series, stat in zip(scalars, stats, strict=True):
            first, last = float(series.wall.min()), float(series.wall.max())
            if not math.isfinite(last - first):
                walls = series.wall[np.isfinite(series.wall)]
                first, last = float(walls.min(initial=math.inf)), float(walls.max(initial=-math.inf))
            self.wall = min(self.wall[0], first), max(self.wall[1], last)
            self.step = min(self.step[0], stat.first_step), max(self.step[1], stat.last.step)

    def move(self, source: tuple[int, str]) -> None:
        """Assigns the content to another source."""
        self.source = source
        self.points = {key._replace(source=source): points for key, points in self.points.items()}
        self.other_events = {key._replace(source=source): events for key, events in self.other_events.items()}

    def _add_points(
        self, key: _Key, series: Series, stats: SeriesStats, keeps_points: bool
    ) -> tuple[_Key, Series, SeriesStats, int | None]:
        growing = self.points.get(key)
        first_step = None
        if growing is None:
            self.points[key] = growing = GrowingSeries(series, stats)
        else:
            first_step = growing.first_step
            growing.record_steps(stats)
            if keeps_points:
                growing.append(series)
        if not keeps_points:
            growing.forget()
        return key, series, stats, first_step

    def drop_points(self) -> None:
        """Frees everything but the ranges of steps."""
        for points in self.points.values():
            points.forget()
        self.other_events = {}


class RunReader:
    """Reads the event files of one run; a restarted training writes another file, and together they are one curve.

    A newer file that repeats steps of an older one replaces them and all later ones, tag by tag; a file that adds
    a few values replaces those of equal steps (`attempts`). The summary of a tag counts the replaced points. When
    two instances write one tag, that of the second one is named `tag (worker-1)`; `sources` defines their order,
    and `lanes` the names of machines that write at the same time. A tag from the log of an instance that is also
    reported is named `tag (worker-1.log)`. Not safe to use from several threads at once.
    """

    def __init__(self, store: Store, files: Iterable[StoredFile] = ()) -> None:
        self._store = store
        self._files: dict[str, _File] = {}
        self._has_points = True
        self._summaries: dict[_Key, GrowingSummary] = {}
        self._names: dict[tuple[str, str], _Key] = {}  # by kind and displayed tag
        self._hparams: dict[str, bool | float | str | None] = {}
        self._merged: dict[_Key, Series] = {}
        # For a tag in several files: the newest file, and the step after which it only adds points.
        self._tops: dict[_Key, tuple[str, float]] = {}
        self.version = 0  # grows with each change of the content
        # Grows when earlier results are not valid any more: a file was replaced, truncated or removed, or another
        # file replaces points.
        self.epoch = 0
        self.is_behind = False  # the last `refresh` has stopped before it had read everything
        self.refresh(files)

    def refresh(self, files: Iterable[StoredFile], should_stop: Callable[[bool], bool] = lambda _: False) -> bool:
        """Reads new content; returns whether anything has changed.

        `files` are all event files of the run: those missing from the list were removed. `should_stop` is called
        with True if anything was read; after it returns True, the next call continues there. A StorageError is
        raised when all other files are read.
        """
        stored_files = sorted(files, key=lambda file: start_order(file.path))
        version = self.version
        if self._files.keys() - {file.path for file in stored_files}:
            self._start_epoch()
        try:
            self._read(stored_files, should_stop)
        except FileChangedError:
            self._start_epoch()
            self._read(stored_files, should_stop)
        return self.version != version

    # ---- content --------------------------------------------------------------------------------------------

    def tags(self) -> dict[str, TagSummary]:
        """Returns the summaries of tags (no hyperparameters) by displayed name, in the order of first values."""
        summaries: dict[str, TagSummary] = {}
        for (kind, name), key in self._names.items():
            # Of two kinds with one name, scalars win.
            if kind == "scalar" or (name not in summaries and kind != "hparams"):
                summary = self._summaries[key].summary()
                summaries[name] = summary if name == key.tag else replace(summary, tag=name)
        return summaries

    def hparams(self) -> dict[str, bool | float | str | None]:
        """Returns the hyperparameters in the files; the last value wins."""
        return dict(self._hparams)

    @property
    def end(self) -> RunEnd | None:
        """Returns the end that was written last; None if there is none, or if a process has written after it."""
        files = [file for file in self._files.values() if file.source[0] != _LOGS_RANK]
        end = max((file.end for file in files if file.end is not None), default=None)
        return None if end is None or any(file.last_wall > end.wall for file in files) else end

    def series(self, tag: str) -> Series:
        """Returns the points of a tag, by step; reads the files again if the points were dropped."""
        key = self._names["scalar", tag]
        self._ensure_points()
        return replace(self._joined(key), tag=tag)

    def texts(self, tag: str) -> list[Entry]:
        """Returns the texts of a tag, by step; raises KeyError without any."""
        return self._entries("text", tag, OtherEvent.text)

    def histograms(self, tag: str) -> list[Entry]:
        """Returns the histograms of a tag, by step: left edge, right edge and count of each bucket."""
        return self._entries("histogram", tag, OtherEvent.histogram)

    def tensors(self, tag: str) -> list[Entry]:
        """Returns the tensors of a tag, by step: also those of unknown plugins, such as `pr_curves`."""
        kinds = [kind for kind, name in self._names if name == tag and is_tensor_kind(kind)]
        return self._entries(kinds[0] if kinds else "tensor", tag, OtherEvent.tensor)

    def images(self, tag: str, number: int | None = None) -> list[ImageEntry]:
        """Returns the images of a tag, by step; with a number only that image, with its content."""
        # Read from the files with each call: the content of images is not cached.
        key = self._names["image", tag]
        images: list[ImageEntry] = []
        for path, file in sorted(self._files.items(), key=lambda item: item[1].order):
            if key in file.points:
                events = _read_other_events(EventFileReader(self._store, path), file.read_version[0])
                images += _images_in(events, key.tag, len(images), number)
        return sorted(
            (image for image in images if number in (None, image.number)),
            key=lambda image: (image.step, image.number),
        )

    @property
    def damaged(self) -> list[DamagedRange]:
        """Returns the ranges that were skipped, with the paths of their files."""
        files = sorted(self._files.items())
        return [replace(damage, path=path) for path, file in files for damage in file.reader.damaged]

    @property
    def read_bytes(self) -> int:
        """Returns the number of bytes that were read."""
        return sum(file.read_version[0] for file in self._files.values())

    @property
    def nbytes(self) -> int:
        """Returns the approximate memory of the run, in bytes."""
        files = self._files.values()
        points = sum(points.nbytes for file in files for points in file.points.values())
        contents = sum(
            len(event.content) for file in files for some in file.other_events.values() for event in some
        )
        return points + contents + _TAG_BYTES * len(self._summaries)

    def drop_points(self) -> None:
        """Frees the memory of points, texts, histograms and tensors. Summaries and hyperparameters stay."""
        self._has_points = False
        self._merged = {}
        for file in self._files.values():
            file.drop_points()

    # ---- reading --------------------------------------------------------------------------------------------

    def _read(self, stored_files: Iterable[StoredFile], should_stop: Callable[[bool], bool]) -> None:
        """Reads the new content of each file."""
        failure: StorageError | None = None
        self.is_behind = has_read = False
        for stored in stored_files:
            file = self._files.get(stored.path) or _File(self._store, stored.path)
            current = (stored.size_bytes, stored.etag)
            if file.read_version == current:
                continue
            if should_stop(has_read):
                self.is_behind = True
                break
            damage = file.reader.damaged
            try:
                chunk = file.reader.read(stored.size_bytes, should_stop)
            except FileChangedError:
                raise
            except ObjectNotFoundError:  # removed after the listing: the next refresh starts an epoch
                continue
            except StorageError as error:
                failure = failure or error
                continue
            # After an error or a stop, the empty ETag differs from any listing, so the next call reads on.
            has_read = True
            file.read_version = current if chunk.error is None and not chunk.is_partial else (chunk.size, "")
            failure = failure or chunk.error
            self.is_behind |= chunk.is_partial
            self._files[stored.path] = file
            file.changed_s = None if stored.modified_ns is None else stored.modified_ns / 1e9
            self._add_chunk(file, chunk)
            if chunk.scalars or chunk.other_events or damage != file.reader.damaged:
                self.version += 1
        self._separate_hosts()
        if failure is not None:
            raise failure

    def _add_chunk(self, file: _File, chunk: EventChunk) -> None:
        """Adds a chunk of a file to the summaries."""
        rewritten: dict[_Key, int] = {}
        is_new = False
        other_files = [other for other in self._files.values() if other is not file]
        for key, series, stats, _ in file.take(chunk, keeps_points=self._has_points):
            self._merged.pop(key, None)
            if key not in self._summaries:
                self._summaries[key], is_new = GrowingSummary(key.tag, key.kind), True
            same_tag_files = [other for other in other_files if key in other.points]
            if not same_tag_files or self._is_continuation(file, key, stats, same_tag_files):
                self._summaries[key].add(stats)
            else:
                rewritten[key] = len(series)
        for event in chunk.other_events:
            if event.kind == "hparams":
                with contextlib.suppress(ValueError):
                    self._hparams.update(event.hparams())
        if is_new:
            self._name_tags()
        if rewritten:
            expected = {key: self._summaries[key].count + added for key, added in rewritten.items()}
            self._summarize(rewritten)
            if any(self._summaries[key].count != count for key, count in expected.items()):
                self.epoch += 1

    def _is_continuation(self, file: _File, key: _Key, stats: SeriesStats, same_tag_files: list[_File]) -> bool:
        """Returns True when points of a file follow all existing ones, and replace none of them."""
        newest, top = self._tops.get(key, ("", math.inf))
        if newest == file.reader.path:
            return stats.first_step > top
        is_newest = file.order > max(other.order for other in same_tag_files)
        if is_newest and file.points[key].first_step > max(
            other.points[key].last_step for other in same_tag_files
        ):
            self._tops.pop(key, None)
            return True
        return False

    def _summarize(self, keys: Iterable[_Key]) -> None:
        """Recomputes the summaries of tags in several files from all points."""
        had_points = self._has_points
        self._ensure_points()
        for key in keys:
            self._merged.pop(key, None)
            summary = self._summaries[key] = GrowingSummary(key.tag, key.kind)
            joined, files = self._joined(key), self._files_with(key)
            summary.add(series_stats([joined])[0])
            summary.replaced = sum(len(steps) for _, steps in files) - len(joined)
            self._tops[key] = _top_of(files)
        if not had_points:
            self.drop_points()

    def _separate_hosts(self) -> None:
        """Sets the sources of files that name a machine: machines that write at the same time are different."""
        unnamed = [
            file for file in self._files.values() if not is_instance(file.host) and file.wall[0] <= file.wall[1]
        ]
        if len({file.host for file in unnamed}) < 2:
            return
        files = [HostFiles(file.source[0], file.host, file.order, file.wall, file.step) for file in unnamed]
        moved = [
            (file, source) for file, source in zip(unnamed, lanes(files), strict=True) if file.source != source
        ]
        if not moved:
            return
        for file, source in moved:
            file.move(source)
        keys = dict.fromkeys(
            key for file in sorted(self._files.values(), key=lambda file: file.order) for key in file.points
        )
        self._summaries = {key: GrowingSummary(key.tag, key.kind) for key in keys}
        self._merged, self._tops = {}, {}
        self._summarize(keys)
        self._name_tags()
        self.epoch += 1
        self.version += 1

    def _ensure_points(self) -> None:
        """Reads all files again, up to the sizes read before, if their points were dropped."""
        if self._has_points:
            return
        files = {}
        for path, old in self._files.items():
            file = files[path] = _File(self._store, path)
            file.read_version, file.source, file.changed_s = old.read_version, old.source, old.changed_s
            for _ in file.take(file.reader.read(old.read_version[0]), keeps_points=True):
                pass
        self._files, self._has_points = files, True

    def _start_epoch(self) -> None:
        """Drops everything, because a file was removed or replaced: the run is read again."""
        self._files, self._summaries, self._names, self._hparams = {}, {}, {}, {}
        self._merged, self._tops = {}, {}
        self.epoch += 1
        self.version += 1

    # ---- joining --------------------------------------------------------------------------------------------

    def _files_with(self, key: _Key) -> list[tuple[_File, Integers]]:
        """Returns the files that have a tag, oldest first, each with the steps of its points."""
        files = [
            (file, file.points[key].series(key.tag).step) for file in self._files.values() if key in file.points
        ]
        # `bisect` takes an array as it is.
        attempts = [Attempt(file.order, file.changed_s, cast("Sequence[int]", steps)) for file, steps in files]
        return [files[number] for number in oldest_first(attempts)]

    def _valid_points(self, key: _Key) -> list[tuple[_File, npt.NDArray[Any] | None]]:
        """Returns the files that have a tag, oldest first, each with a mask of its valid points; None for all."""
        files = self._files_with(key)
        parts: list[tuple[_File, npt.NDArray[Any] | None]] = []
        steps = [cast("Sequence[int]", file_steps) for _, file_steps in files]
        for (file, file_steps), replacement in zip(files, replacements(steps), strict=True):
            is_valid = np.ones(len(file_steps), bool)
            if replacement.limit is not None:
                is_valid[np.searchsorted(file_steps, replacement.limit) :] = False
            for number in replacement.replaced_by:
                is_valid &= ~np.isin(file_steps, files[number][1])
            parts.append((file, None if is_valid.all() else is_valid))
        return parts

    def _joined(self, key: _Key) -> Series:
        """Returns the points of a tag that count, by step."""
        joined = self._merged.get(key)
        if joined is None:
            parts = []
            for file, is_valid in self._valid_points(key):
                series = file.points[key].series(key.tag)
                parts.append(series if is_valid is None else series[is_valid])
            wall, step, value = (
                columns[0] if len(columns) == 1 else np.concatenate(columns)
                for columns in zip(*((part.wall, part.step, part.value) for part in parts), strict=True)
            )
            joined = Series(key.tag, wall, step, value)
            if len(parts) > 1 and not (step[1:] >= step[:-1]).all():
                joined = joined[np.argsort(step, kind="stable")]
            self._merged[key] = joined
        return joined

    def _entries(self, kind: str, tag: str, decoded: Callable[[OtherEvent], Any]) -> list[Entry]:
        key = self._names[kind, tag]
        self._ensure_points()
        entries = []
        for file, is_valid in self._valid_points(key):
            events = sorted(file.other_events.get(key, ()), key=lambda event: event.step)
            for event, counts in zip(events, repeat(True) if is_valid is None else is_valid, strict=False):
                if counts:
                    with contextlib.suppress(ValueError):  # another program uses the kind for other content
                        entries.append(Entry(event.wall, event.step, decoded(event)))
        return sorted(entries, key=lambda entry: entry.step)

    def _name_tags(self) -> None:
        """Names each tag; the names of tags that several instances write contain the instance."""
        writers: dict[tuple[str, str], list[_Key]] = {}
        for key in self._summaries:
            writers.setdefault((key.kind, key.tag), []).append(key)
        self._names = {}
        for (kind, tag), keys in writers.items():
            if len(keys) == 1:
                self._names[kind, tag] = keys[0]
                continue
            keys.sort(key=_key_order)
            names = [self._key_label(key) for key in keys]
            short = [match[1] if (match := _INSTANCE.fullmatch(name)) else name for name in names]
            for number, key in enumerate(keys):
                label = short[number] if short.count(short[number]) == 1 else names[number]
                label = label if names.count(label) < 2 else f"rank-{key.source[0]}"
                self._names[kind, f"{tag} ({label})" if number else tag] = key

    def _key_label(self, key: _Key) -> str:
        """Returns the instance that has written a tag, or the only machine; empty for several machines."""
        rank, instance = key.source
        if instance:
            return f"{instance}.log" if rank == _LOGS_RANK else instance
        hosts = {file.host for file in self._files.values() if key in file.points}
        return hosts.pop() if len(hosts) == 1 else ""


def _key_order(key: _Key) -> tuple[Any, ...]:
    rank, instance = key.source
    return source_order(instance, rank, is_from_log=rank == _LOGS_RANK)


def _top_of(files: list[tuple[_File, Integers]]) -> tuple[str, float]:
    """Returns the newest file of a tag, and the step after which its points replace none of older files."""
    newest, steps = files[-1]
    end, is_enough = head_end(cast("Sequence[int]", steps))
    if not is_enough:
        return newest.reader.path, math.inf
    replaced = replacements([cast("Sequence[int]", file_steps) for _, file_steps in files])
    # Files whose equal steps are replaced have no points after their last step.
    last = [
        int(file_steps[-1])
        for (_, file_steps), replacement in zip(files, replaced, strict=True)
        if len(files) - 1 in replacement.replaced_by
    ]
    return newest.reader.path, max([int(steps[end - 1]), *last])


def _read_other_events(reader: EventFileReader, size: int) -> Iterator[OtherEvent]:
    """Yields the values of a file that are not numbers; reads in chunks, since images can exceed the memory."""
    while True:
        chunk = reader.read(size, lambda has_read: has_read)
        yield from chunk.other_events
        if chunk.error is not None:
            raise chunk.error
        if not chunk.is_partial:
            return


def _images_in(events: Iterable[OtherEvent], tag: str, first: int, number: int | None) -> Iterator[ImageEntry]:
    next_number = first
    for event in events:
        if event.kind != "image" or event.tag != tag:
            continue
        try:
            images = event.images()
        except ValueError:  # another program uses the kind for other content
            continue
        for content in images:
            yield ImageEntry(
                next_number, event.wall, event.step, len(content), content if next_number == number else b""
            )
            next_number += 1


def _file_rank(path: str) -> int:
    """Returns the rank by the folder of a file; -1 without one."""
    part = EVENTS_PART.fullmatch(path.rpartition("/")[0].rpartition("/")[2])
    if part is None:
        return -1
    return int(part["rank"]) if part["rank"] else _LOGS_RANK


def _file_host(path: str) -> str:
    """Returns the instance or the machine in the name of a file; empty without one."""
    source = event_file_source(path.rpartition("/")[2])
    return source[0] if source else ""
