"""One run of several event files: read while they grow, joined after restarts.

Needs numpy, from the extras `watch` and `service`.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from itertools import repeat
from typing import Any, NamedTuple

from pai_sdk._data.run.events.attempts import start_order
from pai_sdk._data.run.events.columns import GrowingSummary, SeriesStats, series_stats
from pai_sdk._data.run.events.decoder import DamagedRange
from pai_sdk._data.run.events.files import EventChunk, EventFileReader
from pai_sdk._data.run.events.other import OtherEvent
from pai_sdk._data.run.events.run_files import (
    LOGS_RANK,
    RunEnd,
    RunFile,
    TagKey,
    files_with,
    joined_points,
    top_of,
    valid_points,
)
from pai_sdk._data.run.events.series import Series, TagSummary, is_tensor_kind
from pai_sdk._data.run.events.sources import HostFiles, is_instance, lanes, source_order
from pai_sdk._data.storage.base import Store
from pai_sdk._data.storage.stored_file import StoredFile
from pai_sdk.errors import FileChangedError, ObjectNotFoundError, StorageError

_INSTANCE = re.compile(r".+-((?:master|chief|worker|ps|evaluator)-[0-9]+(?:\.log)?)")  # after the id of the job
_TAG_BYTES = 1000  # memory of a tag without its points, about


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
        self._files: dict[str, RunFile] = {}
        self._has_points = True
        self._summaries: dict[TagKey, GrowingSummary] = {}
        self._names: dict[tuple[str, str], TagKey] = {}  # by kind and displayed tag
        self._hparams: dict[str, bool | float | str | None] = {}
        self._merged: dict[TagKey, Series] = {}
        # For a tag in several files: the newest file, and the step after which it only adds points.
        self._tops: dict[TagKey, tuple[str, float]] = {}
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
        files = [file for file in self._files.values() if file.source[0] != LOGS_RANK]
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
            file = self._files.get(stored.path) or RunFile(self._store, stored.path)
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

    def _add_chunk(self, file: RunFile, chunk: EventChunk) -> None:
        """Adds a chunk of a file to the summaries."""
        rewritten: dict[TagKey, int] = {}
        is_new = False
        other_files = [other for other in self._files.values() if other is not file]
        for key, series, stats in file.take(chunk, keeps_points=self._has_points):
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
            self._names = _names_of(self._summaries, self._files.values())
        if rewritten:
            expected = {key: self._summaries[key].count + added for key, added in rewritten.items()}
            self._summarize(rewritten)
            if any(self._summaries[key].count != count for key, count in expected.items()):
                self.epoch += 1

    def _is_continuation(
        self, file: RunFile, key: TagKey, stats: SeriesStats, same_tag_files: list[RunFile]
    ) -> bool:
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

    def _summarize(self, keys: Iterable[TagKey]) -> None:
        """Recomputes the summaries of tags in several files from all points."""
        had_points = self._has_points
        self._ensure_points()
        for key in keys:
            self._merged.pop(key, None)
            summary = self._summaries[key] = GrowingSummary(key.tag, key.kind)
            joined, files = self._joined(key), files_with(self._files.values(), key)
            summary.add(series_stats([joined])[0])
            summary.replaced = sum(len(steps) for _, steps in files) - len(joined)
            self._tops[key] = top_of(files)
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
        self._names = _names_of(self._summaries, self._files.values())
        self.epoch += 1
        self.version += 1

    def _ensure_points(self) -> None:
        """Reads all files again, up to the sizes read before, if their points were dropped."""
        if self._has_points:
            return
        files = {}
        for path, old in self._files.items():
            file = files[path] = RunFile(self._store, path)
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

    def _joined(self, key: TagKey) -> Series:
        """Returns the points of a tag that count, by step."""
        joined = self._merged.get(key)
        if joined is None:
            joined = self._merged[key] = joined_points(self._files.values(), key)
        return joined

    def _entries(self, kind: str, tag: str, decoded: Callable[[OtherEvent], Any]) -> list[Entry]:
        key = self._names[kind, tag]
        self._ensure_points()
        entries = []
        for file, is_valid in valid_points(self._files.values(), key):
            events = sorted(file.other_events.get(key, ()), key=lambda event: event.step)
            for event, counts in zip(events, repeat(True) if is_valid is None else is_valid, strict=False):
                if counts:
                    with contextlib.suppress(ValueError):  # another program uses the kind for other content
                        entries.append(Entry(event.wall, event.step, decoded(event)))
        return sorted(entries, key=lambda entry: entry.step)


def _names_of(keys: Iterable[TagKey], files: Collection[RunFile]) -> dict[tuple[str, str], TagKey]:
    """Returns each tag by kind and displayed name; the names of tags of several instances have the instance."""
    writers: dict[tuple[str, str], list[TagKey]] = {}
    for key in keys:
        writers.setdefault((key.kind, key.tag), []).append(key)
    names: dict[tuple[str, str], TagKey] = {}
    for (kind, tag), same_tag in writers.items():
        if len(same_tag) == 1:
            names[kind, tag] = same_tag[0]
            continue
        same_tag.sort(key=lambda key: source_order(*key.source[::-1], is_from_log=key.source[0] == LOGS_RANK))
        labels = [_key_label(key, files) for key in same_tag]
        short = [match[1] if (match := _INSTANCE.fullmatch(label)) else label for label in labels]
        for number, key in enumerate(same_tag):
            label = short[number] if short.count(short[number]) == 1 else labels[number]
            label = label if labels.count(label) < 2 else f"rank-{key.source[0]}"
            names[kind, f"{tag} ({label})" if number else tag] = key
    return names


def _key_label(key: TagKey, files: Iterable[RunFile]) -> str:
    """Returns the instance that has written a tag, or the only machine; empty for several machines."""
    rank, instance = key.source
    if instance:
        return f"{instance}.log" if rank == LOGS_RANK else instance
    hosts = {file.host for file in files if key in file.points}
    return hosts.pop() if len(hosts) == 1 else ""


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
