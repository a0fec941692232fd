"""One run of several event files: read while they grow, joined after restarts.

Needs numpy, from the extras `watch` and `service`.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from pai_sdk.errors import FileChangedError, ObjectNotFoundError, StorageError
from pai_sdk.run.events.columns import GrowingSeries, GrowingSummary, SeriesFacts, facts_of
from pai_sdk.run.events.files import DamagedRange, EventChunk, EventFileReader, OtherEvent
from pai_sdk.run.events.series import Series, TagSummary, is_tensor_kind
from pai_sdk.run.events.writer import EVENTS_PART, event_file_source
from pai_sdk.storage.base import Store
from pai_sdk.storage.stored_file import StoredFile

__all__ = ["Entry", "ImageEntry", "RunEnd", "RunReader"]

_LOGS_RANK = 1 << 30  # behind those of all processes: of two with one name, the reported metric keeps it
_BEGAN = re.compile(r"(?:tfevents|summary)\.([0-9]+)")
_NUMBERS = re.compile(r"[0-9]+")
_INSTANCE = re.compile(r".+-((?:master|chief|worker|ps|evaluator)-[0-9]+(?:\.log)?)")  # behind the id of its job
_NOT_KEPT = ("image", "audio", "graph")  # their content is only counted: one may be megabytes
_TAG_BYTES = 1000  # about what a tag costs beside its points


class _Key(NamedTuple):
    """The key of a summary: a tag of one kind, of one instance."""

    source: tuple[int, str]  # the rank by the folder, and the instance by the name of the file
    kind: str
    tag: str


class Entry(NamedTuple):
    """One text, histogram or tensor.

    Attributes:
        wall: when, in seconds since 1970.
        step: when, in the count of the training.
        value: the text; the histogram as left edge, right edge and count of each bucket; or the tensor.
    """

    wall: float
    step: int
    value: Any


class ImageEntry(NamedTuple):
    """One image.

    Attributes:
        number: among all images of its tag, from 0, in the order in which they were written.
        wall: when, in seconds since 1970.
        step: when, in the count of the training.
        size_bytes: of the file.
        content: of the file, such as PNG; empty in a list of images.
    """

    number: int
    wall: float
    step: int
    size_bytes: int
    content: bytes = b""


class RunEnd(NamedTuple):
    """The end of a run, as its files say it.

    Attributes:
        wall: when, in seconds since 1970.
        status: `Succeed`, `Failed` or `Terminated`; other programs write other texts or none.
    """

    wall: float
    status: str


class _File:
    """One event file of the run, and what it has of each tag."""

    def __init__(self, store: Store, path: str) -> None:
        self.reader = EventFileReader(store, path)
        self.seen = (0, "")
        self.source, self.order = _source_of(path), _order_of(path)
        self.points: dict[_Key, GrowingSeries] = {}
        self.others: dict[_Key, list[OtherEvent]] = {}
        self.last_wall = 0.0
        self.end: RunEnd | None = None

    def take(
        self, chunk: EventChunk, *, keeps_points: bool
    ) -> Iterator[tuple[_Key, Series, SeriesFacts, int | None]]:
        """Keep what was read of it. Gives, for each tag, the new points and the least step until then."""
        scalars = [*chunk.scalars.values()]
        for series, facts in zip(scalars, facts_of(scalars), strict=True):
            self.last_wall = max(self.last_wall, float(series.wall[-1]))
            yield self._taken(_Key(self.source, "scalar", series.tag), series, facts, keeps_points)
        others: dict[_Key, list[OtherEvent]] = {}
        for event in chunk.others:
            if event.kind == "end":
                self.end = RunEnd(event.wall, event.content.decode(errors="replace"))
                continue
            self.last_wall = max(self.last_wall, event.wall)
            others.setdefault(_Key(self.source, event.kind, event.tag), []).append(event)
        for key, events in others.items():
            wall, step = np.array([event.wall for event in events]), np.array([event.step for event in events])
            series = Series(key.tag, wall, step, np.full(len(events), np.nan))
            yield self._taken(key, series, facts_of([series])[0], keeps_points)
            if keeps_points and key.kind not in _NOT_KEPT:
                self.others.setdefault(key, []).extend(events)

    def _taken(
        self, key: _Key, series: Series, facts: SeriesFacts, keeps_points: bool
    ) -> tuple[_Key, Series, SeriesFacts, int | None]:
        known = self.points.get(key)
        first_step = None
        if known is None:
            self.points[key] = known = GrowingSeries(series, facts)
        else:
            first_step = known.first_step
            known.see(facts)
            if keeps_points:
                known.append(series)
        if not keeps_points:
            known.forget()
        return key, series, facts, first_step

    def drop_points(self) -> None:
        """Free everything but the steps."""
        for points in self.points.values():
            points.forget()
        self.others = {}


class RunReader:
    """Reads the event files of one run.

    A training that was started again writes another file. Of two files of one instance, the newer one counts:
    points of the older one, of the same tag and with the same or a later step than its first one, are dropped.
    Within a file all points are kept, by step. When two instances write one tag, that of the second one is named
    `tag (worker-1)`. A tag that was found in the log of an instance, and is also reported, is named
    `tag (worker-1.log)`.

    Not safe to use from several threads at once.

    Args:
        store: where the files are.
        files: to read at once.

    Attributes:
        version: grows with each change of what can be read here.
        epoch: grows when what was read before is not valid any more: a file was replaced, cut off or removed, or a
            restart went back in steps.
        is_behind: the last `refresh` was ended before it had read everything.

    Example:
        >>> import tempfile
        >>> from pai_sdk.run.events.writer import EventWriter
        >>> from pai_sdk.storage.store import open_store
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with EventWriter(folder) as writer:
        ...         writer.scalars({"loss": 0.5}, step=1)
        ...     store = open_store(folder)
        ...     run = RunReader(store, store.list())
        >>> run.series("loss").value.tolist(), run.tags()["loss"].count
        ([0.5], 1)
    """

    def __init__(self, store: Store, files: Iterable[StoredFile] = ()) -> None:
        self._store = store
        self._files: dict[str, _File] = {}
        self._has_points = True
        self._summaries: dict[_Key, GrowingSummary] = {}
        self._names: dict[tuple[str, str], _Key] = {}  # kind and shown tag
        self._hparams: dict[str, bool | float | str | None] = {}
        self._merged: dict[_Key, Series] = {}
        self.version = self.epoch = 0
        self.is_behind = False
        self.refresh(files)

    def refresh(self, files: Iterable[StoredFile], is_over: Callable[[bool], bool] = lambda _: False) -> bool:
        """Read what is new.

        Args:
            files: the event files of the run, as they are listed now. Those that are not among them were removed.
            is_over: asked again and again whether to end the call, with whether it has come any further. The next
                call goes on there.

        Returns:
            Whether anything has changed.

        Raises:
            StorageError: a file cannot be read; the others are read. The next call tries again.
        """
        listed = sorted(files, key=lambda file: _order_of(file.path))
        version = self.version
        if self._files.keys() - {file.path for file in listed}:
            self._begin_epoch()
        try:
            self._read(listed, is_over)
        except FileChangedError:
            self._begin_epoch()
            self._read(listed, is_over)
        return self.version != version

    # ---- what is there --------------------------------------------------------------------------------------

    def tags(self) -> dict[str, TagSummary]:
        """Returns the summary of each tag, by its name here, in the order in which they were first written.

        Of two kinds with one name, the number counts. Those with hyperparameters are left out: `hparams` has them.
        """
        found: dict[str, TagSummary] = {}
        for (kind, name), key in self._names.items():
            if kind == "scalar" or (name not in found and kind != "hparams"):
                summary = self._summaries[key].summary()
                found[name] = summary if name == key.tag else replace(summary, tag=name)
        return found

    def hparams(self) -> dict[str, bool | float | str | None]:
        """The hyperparameters in the files; what was written last counts."""
        return dict(self._hparams)

    @property
    def end(self) -> RunEnd | None:
        """The end that was written last; None if a process has written something after it, or none has ended."""
        files = [file for file in self._files.values() if file.source[0] != _LOGS_RANK]
        end = max((file.end for file in files if file.end is not None), default=None)
        return None if end is None or any(file.last_wall > end.wall for file in files) else end

    def series(self, tag: str) -> Series:
        """The points of a tag, by step. They are read again when they were dropped.

        Raises:
            KeyError: no number has this tag.
            StorageError: the files cannot be read again.
        """
        key = self._names["scalar", tag]
        self._need_points()
        return replace(self._joined(key), tag=tag)

    def texts(self, tag: str) -> list[Entry]:
        """The texts of a tag, by step.

        Raises:
            KeyError: no text has this tag.
            StorageError: the files cannot be read again.
        """
        return self._entries("text", tag, OtherEvent.text)

    def histograms(self, tag: str) -> list[Entry]:
        """The histograms of a tag, by step: left edge, right edge and count of each bucket.

        Raises:
            KeyError: no histogram has this tag.
            StorageError: the files cannot be read again.
        """
        return self._entries("histogram", tag, OtherEvent.histogram)

    def tensors(self, tag: str) -> list[Entry]:
        """The tensors of a tag, by step: also those of plugins that are not known here, such as `pr_curves`.

        Raises:
            KeyError: no tensor has this tag.
            StorageError: the files cannot be read again.
        """
        kinds = [kind for kind, name in self._names if name == tag and is_tensor_kind(kind)]
        return self._entries(kinds[0] if kinds else "tensor", tag, OtherEvent.tensor)

    def images(self, tag: str, wanted: int | None = None) -> list[ImageEntry]:
        """The images of a tag, by step. They are read from the files with each call: none is kept.

        Args:
            tag: of the images.
            wanted: the number of the only one whose content is wanted; the others are left out then.

        Raises:
            KeyError: no image has this tag.
            StorageError: the files cannot be read again.
        """
        key = self._names["image", tag]
        found: list[ImageEntry] = []
        for path, known in sorted(self._files.items(), key=lambda item: item[1].order):
            if known.source == key.source:
                events = _events_of(EventFileReader(self._store, path), known.seen[0])
                found += _images_in(events, key.tag, len(found), wanted)
        return sorted(
            (one for one in found if wanted in (None, one.number)), key=lambda one: (one.step, one.number)
        )

    @property
    def damaged(self) -> list[DamagedRange]:
        """The ranges that were passed over, with the paths of their files."""
        files = sorted(self._files.items())
        return [replace(damage, path=path) for path, file in files for damage in file.reader.damaged]

    @property
    def read_bytes(self) -> int:
        """The bytes of its files that were read."""
        return sum(file.seen[0] for file in self._files.values())

    @property
    def nbytes(self) -> int:
        """About how much memory the run takes, in bytes."""
        files = self._files.values()
        points = sum(points.nbytes for file in files for points in file.points.values())
        others = sum(len(event.content) for file in files for some in file.others.values() for event in some)
        return points + others + _TAG_BYTES * len(self._summaries)

    def drop_points(self) -> None:
        """Free the memory of points, texts, histograms and tensors. Summaries and hyperparameters stay."""
        self._has_points = False
        self._merged = {}
        for file in self._files.values():
            file.drop_points()

    # ---- reading --------------------------------------------------------------------------------------------

    def _read(self, listed: Iterable[StoredFile], is_over: Callable[[bool], bool]) -> None:
        """Read what is new in each file."""
        failure: StorageError | None = None
        self.is_behind = has_read = False
        for stored in listed:
            file = self._files.get(stored.path) or _File(self._store, stored.path)
            seen = (stored.size_bytes, stored.etag)
            if file.seen == seen:
                continue
            if is_over(has_read):
                self.is_behind = True
                break
            damage = file.reader.damaged
            try:
                chunk = file.reader.read(stored.size_bytes, is_over)
            except FileChangedError:
                raise
            except ObjectNotFoundError:  # removed since it was listed; the next listing will say so
                continue
            except StorageError as error:
                failure = failure or error
                continue
            # What fails is tried again.
            has_read = True
            file.seen = seen if chunk.error is None and not chunk.is_cut else (chunk.size, "")
            failure = failure or chunk.error
            self.is_behind |= chunk.is_cut
            self._files[stored.path] = file
            self._take(file, chunk)
            if chunk.scalars or chunk.others or damage != file.reader.damaged:
                self.version += 1
        if failure is not None:
            raise failure

    def _take(self, file: _File, chunk: EventChunk) -> None:
        """Add what was read of a file to the summaries."""
        rewritten, is_new = [], False
        other_files = [one for one in self._files.values() if one is not file]
        for key, series, facts, first_step in file.take(chunk, keeps_points=self._has_points):
            self._merged.pop(key, None)
            if key not in self._summaries:
                self._summaries[key], is_new = GrowingSummary(key.tag, key.kind), True
            first = facts.first_step
            others = [(one.order, points) for one in other_files if (points := one.points.get(key))]
            is_earlier = first_step is None or first < first_step
            if is_earlier and any(order < file.order and points.last_step >= first for order, points in others):
                rewritten.append(key)
                continue
            newer = [points.first_step for order, points in others if order > file.order]
            if not newer:
                self._summaries[key].add(facts)
            elif len(kept := series[series.step < min(newer)]):
                self._summaries[key].add(facts_of([kept])[0])
        for event in chunk.others:
            if event.kind == "hparams":
                with contextlib.suppress(ValueError):
                    self._hparams.update(event.hparams())
        if is_new:
            self._name_tags()
        if rewritten:
            self.epoch += 1
            self._summarize(rewritten)

    def _summarize(self, keys: Iterable[_Key]) -> None:
        """Make summaries again from all points, after a restart went back in steps."""
        had_points = self._has_points
        self._need_points()
        for key in keys:
            self._summaries[key] = GrowingSummary(key.tag, key.kind)
            self._summaries[key].add(facts_of([self._joined(key)])[0])
        if not had_points:
            self.drop_points()

    def _need_points(self) -> None:
        """Read all files again, up to where they were read, if their points were dropped."""
        if self._has_points:
            return
        files = {}
        for path, known in self._files.items():
            file = files[path] = _File(self._store, path)
            file.seen = known.seen
            for _ in file.take(file.reader.read(known.seen[0]), keeps_points=True):
                pass
        self._files, self._has_points = files, True

    def _begin_epoch(self) -> None:
        """Forget everything: a file was removed or replaced, so the run is read again."""
        self._files, self._summaries, self._names, self._hparams, self._merged = {}, {}, {}, {}, {}
        self.epoch += 1
        self.version += 1

    # ---- joining --------------------------------------------------------------------------------------------

    def _parts(self, key: _Key) -> list[tuple[_File, int | None]]:
        """The files that have a tag, oldest first, each with the step from which on newer files count."""
        files = sorted((file for file in self._files.values() if key in file.points), key=lambda file: file.order)
        found: list[tuple[_File, int | None]] = []
        limit: int | None = None
        for file in reversed(files):
            found.append((file, limit))
            first_step = file.points[key].first_step
            limit = first_step if limit is None else min(limit, first_step)
        return found[::-1]

    def _joined(self, key: _Key) -> Series:
        """The points of a tag, after restarts."""
        found = self._merged.get(key)
        if found is None:
            parts = []
            for file, limit in self._parts(key):
                series = file.points[key].series(key.tag)
                # By step, so what newer files replace is at the end.
                parts.append(series if limit is None else series[: int(np.searchsorted(series.step, limit))])
            wall, step, value = (
                columns[0] if len(columns) == 1 else np.concatenate(columns)
                for columns in zip(*((part.wall, part.step, part.value) for part in parts), strict=True)
            )
            found = self._merged[key] = Series(key.tag, wall, step, value)
        return found

    def _entries(self, kind: str, tag: str, decoded: Callable[[OtherEvent], Any]) -> list[Entry]:
        key = self._names[kind, tag]
        self._need_points()
        found = []
        for file, limit in self._parts(key):
            events = file.others.get(key, ())
            for event in sorted(events, key=lambda event: event.step):
                if limit is None or event.step < limit:
                    with contextlib.suppress(
                        ValueError
                    ):  # written by a program that has other ideas of its content
                        found.append(Entry(event.wall, event.step, decoded(event)))
        return found

    def _name_tags(self) -> None:
        """Give each tag a name; those that several instances write have the instance in it."""
        writers: dict[tuple[str, str], list[_Key]] = {}
        for key in self._summaries:
            writers.setdefault((key.kind, key.tag), []).append(key)
        self._names = {}
        for (kind, tag), keys in writers.items():
            if len(keys) == 1:
                self._names[kind, tag] = keys[0]
                continue
            keys.sort()
            names = [key.source[1] for key in keys]
            short = [found[1] if (found := _INSTANCE.fullmatch(name)) else name for name in names]
            for number, key in enumerate(keys):
                label = short[number] if short.count(short[number]) == 1 else names[number]
                label = label if names.count(label) < 2 else f"rank-{key.source[0]}"
                self._names[kind, f"{tag} ({label})" if number else tag] = key


def _events_of(reader: EventFileReader, size: int) -> Iterator[OtherEvent]:
    """What a file has besides numbers, read in pieces: its images may be larger than the memory."""
    while True:
        chunk = reader.read(size, lambda has_come_further: has_come_further)
        yield from chunk.others
        if chunk.error is not None:
            raise chunk.error
        if not chunk.is_cut:
            return


def _images_in(events: Iterable[OtherEvent], tag: str, first: int, wanted: int | None) -> Iterator[ImageEntry]:
    number = first
    for event in events:
        if event.kind != "image" or event.tag != tag:
            continue
        try:
            images = event.images()
        except ValueError:  # written by a program that has other ideas of its content
            continue
        for content in images:
            yield ImageEntry(number, event.wall, event.step, len(content), content if number == wanted else b"")
            number += 1


def _source_of(path: str) -> tuple[int, str]:
    """The rank by the folder of a file, -1 without one, and the instance that has written it, or its log."""
    folder, _, name = path.rpartition("/")
    part = EVENTS_PART.fullmatch(folder.rpartition("/")[2])
    found = event_file_source(name)
    instance = found[0] if found else ""
    if part is None:
        return -1, instance
    return (int(part["rank"]), instance) if part["rank"] else (_LOGS_RANK, f"{instance}.log")


def _order_of(path: str) -> tuple[int, list[int], str]:
    """By when the file was begun: the time in its name, then the other numbers there."""
    name = path.rpartition("/")[2]
    began = _BEGAN.search(name)
    return int(began[1]) if began else 0, [int(number) for number in _NUMBERS.findall(name)], path
