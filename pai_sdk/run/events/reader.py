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

from pai_sdk.errors import FileChangedError, ObjectNotFoundError, StorageError
from pai_sdk.run.events.attempts import Attempt, arranged, began_of, cuts, head_end
from pai_sdk.run.events.columns import GrowingSeries, GrowingSummary, SeriesFacts, facts_of
from pai_sdk.run.events.files import DamagedRange, EventChunk, EventFileReader, OtherEvent
from pai_sdk.run.events.lanes import HostFiles, lanes
from pai_sdk.run.events.series import Integers, Series, TagSummary, is_tensor_kind
from pai_sdk.run.events.sources import is_instance, source_order
from pai_sdk.run.events.writer import EVENTS_PART, event_file_source
from pai_sdk.storage.base import Store
from pai_sdk.storage.stored_file import StoredFile

__all__ = ["Entry", "ImageEntry", "RunEnd", "RunReader"]

_LOGS_RANK = 1 << 30  # behind those of all processes: of two with one name, the reported metric keeps it
_EMPTY_RANGE = (math.inf, -math.inf)
_INSTANCE = re.compile(r".+-((?:master|chief|worker|ps|evaluator)-[0-9]+(?:\.log)?)")  # behind the id of its job
_NOT_KEPT = ("image", "audio", "graph")  # their content is only counted: one may be megabytes
_TAG_BYTES = 1000  # about what a tag costs beside its points


class _Key(NamedTuple):
    """The key of a summary: a tag of one kind, of one instance."""

    source: tuple[int, str]  # the rank by the folder; the instance, or a machine that writes beside another one
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
        self.host, self.order = _host_of(path), began_of(path)
        self.source = (_rank_of(path), self.host if is_instance(self.host) else "")
        self.changed_s: float | None = None
        self.points: dict[_Key, GrowingSeries] = {}
        self.others: dict[_Key, list[OtherEvent]] = {}
        self.last_wall = 0.0
        self.end: RunEnd | None = None
        self.wall, self.step = _EMPTY_RANGE, _EMPTY_RANGE  # of all points, from the least to the largest

    def take(
        self, chunk: EventChunk, *, keeps_points: bool
    ) -> Iterator[tuple[_Key, Series, SeriesFacts, int | None]]:
        """Keep what was read of it. Gives, for each tag, the new points and the least step until then."""
        scalars = [*chunk.scalars.values()]
        all_facts = facts_of(scalars)
        self._see_ranges(scalars, all_facts)
        for series, facts in zip(scalars, all_facts, strict=True):
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

    def _see_ranges(self, scalars: list[Series], facts: list[SeriesFacts]) -> None:
        if is_instance(self.host):  # only machines are told apart by times
            return
        for series, its in zip(scalars, facts, strict=True):
            first, last = float(series.wall.min()), float(series.wall.max())
            if not math.isfinite(last - first):
                walls = series.wall[np.isfinite(series.wall)]
                first, last = float(walls.min(initial=math.inf)), float(walls.max(initial=-math.inf))
            self.wall = min(self.wall[0], first), max(self.wall[1], last)
            self.step = min(self.step[0], its.first_step), max(self.step[1], its.last.step)

    def move(self, source: tuple[int, str]) -> None:
        """Take what was read of it as that of another source."""
        self.source = source
        self.points = {key._replace(source=source): points for key, points in self.points.items()}
        self.others = {key._replace(source=source): events for key, events in self.others.items()}

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

    A training that was started again writes another file, on this machine or another one: together they are one
    curve. A newer file that repeats steps of an older one replaces them and all later ones, tag by tag; one
    that adds a few values replaces those of equal steps (`attempts`). The summary of a tag counts what was
    replaced. Within a file all points are kept, by step. When two instances write one tag, that of the second one
    is named `tag (worker-1)`; `sources` has their order. Machines are told apart by name if they write at the same
    time. A tag that was found in the log of an instance, and is also reported, is named `tag (worker-1.log)`.

    Not safe to use from several threads at once.

    Args:
        store: where the files are.
        files: to read at once.

    Attributes:
        version: grows with each change of what can be read here.
        epoch: grows when what was read before is not valid any more: a file was replaced, cut off or removed, or
            another file replaces points.
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
        # Of a tag in several files: the newest one, and the step behind which it only goes on.
        self._tops: dict[_Key, tuple[str, float]] = {}
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
        listed = sorted(files, key=lambda file: began_of(file.path))
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
            if key in known.points:
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
            file.changed_s = None if stored.modified_ns is None else stored.modified_ns / 1e9
            self._take(file, chunk)
            if chunk.scalars or chunk.others or damage != file.reader.damaged:
                self.version += 1
        self._tell_hosts_apart()
        if failure is not None:
            raise failure

    def _take(self, file: _File, chunk: EventChunk) -> None:
        """Add what was read of a file to the summaries."""
        rewritten: dict[_Key, int] = {}
        is_new = False
        other_files = [one for one in self._files.values() if one is not file]
        for key, series, facts, _ in file.take(chunk, keeps_points=self._has_points):
            self._merged.pop(key, None)
            if key not in self._summaries:
                self._summaries[key], is_new = GrowingSummary(key.tag, key.kind), True
            others = [one for one in other_files if key in one.points]
            if not others or self._goes_on(file, key, facts, others):
                self._summaries[key].add(facts)
            else:
                rewritten[key] = len(series)
        for event in chunk.others:
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

    def _goes_on(self, file: _File, key: _Key, facts: SeriesFacts, others: list[_File]) -> bool:
        """Returns True when points of a file come behind all that is there, and change nothing of it."""
        newest, top = self._tops.get(key, ("", math.inf))
        if newest == file.reader.path:
            return facts.first_step > top
        is_newest = file.order > max(one.order for one in others)
        if is_newest and file.points[key].first_step > max(one.points[key].last_step for one in others):
            self._tops.pop(key, None)
            return True
        return False

    def _summarize(self, keys: Iterable[_Key]) -> None:
        """Make summaries again from all points, of tags that several files have."""
        had_points = self._has_points
        self._need_points()
        for key in keys:
            self._merged.pop(key, None)
            summary = self._summaries[key] = GrowingSummary(key.tag, key.kind)
            joined, files = self._joined(key), self._arranged(key)
            summary.add(facts_of([joined])[0])
            summary.replaced = sum(len(steps) for _, steps in files) - len(joined)
            self._tops[key] = _top_of(files)
        if not had_points:
            self.drop_points()

    def _tell_hosts_apart(self) -> None:
        """Set the sources of files that name a machine: those that write at the same time have different ones."""
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
            key for file in sorted(self._files.values(), key=lambda one: one.order) for key in file.points
        )
        self._summaries = {key: GrowingSummary(key.tag, key.kind) for key in keys}
        self._merged, self._tops = {}, {}
        self._summarize(keys)
        self._name_tags()
        self.epoch += 1
        self.version += 1

    def _need_points(self) -> None:
        """Read all files again, up to where they were read, if their points were dropped."""
        if self._has_points:
            return
        files = {}
        for path, known in self._files.items():
            file = files[path] = _File(self._store, path)
            file.seen, file.source, file.changed_s = known.seen, known.source, known.changed_s
            for _ in file.take(file.reader.read(known.seen[0]), keeps_points=True):
                pass
        self._files, self._has_points = files, True

    def _begin_epoch(self) -> None:
        """Forget everything: a file was removed or replaced, so the run is read again."""
        self._files, self._summaries, self._names, self._hparams = {}, {}, {}, {}
        self._merged, self._tops = {}, {}
        self.epoch += 1
        self.version += 1

    # ---- joining --------------------------------------------------------------------------------------------

    def _arranged(self, key: _Key) -> list[tuple[_File, Integers]]:
        """The files that have a tag, oldest first, each with the steps of its points."""
        files = [
            (file, file.points[key].series(key.tag).step) for file in self._files.values() if key in file.points
        ]
        # `bisect` takes an array as it is.
        attempts = [Attempt(file.order, file.changed_s, cast("Sequence[int]", steps)) for file, steps in files]
        return [files[number] for number in arranged(attempts)]

    def _counting(self, key: _Key) -> list[tuple[_File, npt.NDArray[Any] | None]]:
        """The files that have a tag, oldest first, each with which of its points count; None for all of them."""
        files = self._arranged(key)
        found: list[tuple[_File, npt.NDArray[Any] | None]] = []
        steps = [cast("Sequence[int]", one) for _, one in files]
        for (file, its), cut in zip(files, cuts(steps), strict=True):
            is_counting = np.ones(len(its), bool)
            if cut.limit is not None:
                is_counting[np.searchsorted(its, cut.limit) :] = False
            for number in cut.replaced_by:
                is_counting &= ~np.isin(its, files[number][1])
            found.append((file, None if is_counting.all() else is_counting))
        return found

    def _joined(self, key: _Key) -> Series:
        """The points of a tag that count, by step."""
        found = self._merged.get(key)
        if found is None:
            parts = []
            for file, is_counting in self._counting(key):
                series = file.points[key].series(key.tag)
                parts.append(series if is_counting is None else series[is_counting])
            wall, step, value = (
                columns[0] if len(columns) == 1 else np.concatenate(columns)
                for columns in zip(*((part.wall, part.step, part.value) for part in parts), strict=True)
            )
            found = Series(key.tag, wall, step, value)
            if len(parts) > 1 and not (step[1:] >= step[:-1]).all():
                found = found[np.argsort(step, kind="stable")]
            self._merged[key] = found
        return found

    def _entries(self, kind: str, tag: str, decoded: Callable[[OtherEvent], Any]) -> list[Entry]:
        key = self._names[kind, tag]
        self._need_points()
        found = []
        for file, is_counting in self._counting(key):
            events = sorted(file.others.get(key, ()), key=lambda event: event.step)
            for event, counts in zip(events, repeat(True) if is_counting is None else is_counting, strict=False):
                if counts:
                    with contextlib.suppress(
                        ValueError
                    ):  # written by a program that has other ideas of its content
                        found.append(Entry(event.wall, event.step, decoded(event)))
        return sorted(found, key=lambda entry: entry.step)

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
            keys.sort(key=_order_of_key)
            names = [self._label_of(key) for key in keys]
            short = [found[1] if (found := _INSTANCE.fullmatch(name)) else name for name in names]
            for number, key in enumerate(keys):
                label = short[number] if short.count(short[number]) == 1 else names[number]
                label = label if names.count(label) < 2 else f"rank-{key.source[0]}"
                self._names[kind, f"{tag} ({label})" if number else tag] = key

    def _label_of(self, key: _Key) -> str:
        """The instance that has written a tag, or the only machine that has; empty if there were several."""
        rank, instance = key.source
        if instance:
            return f"{instance}.log" if rank == _LOGS_RANK else instance
        hosts = {file.host for file in self._files.values() if key in file.points}
        return hosts.pop() if len(hosts) == 1 else ""


def _order_of_key(key: _Key) -> tuple[Any, ...]:
    rank, instance = key.source
    return source_order(instance, rank, is_from_log=rank == _LOGS_RANK)


def _top_of(files: list[tuple[_File, Integers]]) -> tuple[str, float]:
    """The newest file of a tag, and the step behind which its points change nothing of the others."""
    newest, steps = files[-1]
    end, is_enough = head_end(cast("Sequence[int]", steps))
    if not is_enough:
        return newest.reader.path, math.inf
    found = cuts([cast("Sequence[int]", its) for _, its in files])
    # What is replaced step by step is behind its last step.
    last = [int(its[-1]) for (_, its), cut in zip(files, found, strict=True) if len(files) - 1 in cut.replaced_by]
    return newest.reader.path, max([int(steps[end - 1]), *last])


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


def _rank_of(path: str) -> int:
    """The rank by the folder of a file; -1 without one."""
    part = EVENTS_PART.fullmatch(path.rpartition("/")[0].rpartition("/")[2])
    if part is None:
        return -1
    return int(part["rank"]) if part["rank"] else _LOGS_RANK


def _host_of(path: str) -> str:
    """The instance or the machine that has written a file, by its name; empty where that says none."""
    found = event_file_source(path.rpartition("/")[2])
    return found[0] if found else ""
