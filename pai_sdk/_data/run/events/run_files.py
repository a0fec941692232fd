"""The event files of one run with their points, and the points of a tag that count after restarts.

Needs numpy, from the extras `watch` and `service`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from pai_sdk._data.run.events.attempts import Attempt, head_end, oldest_first, replacements, start_order
from pai_sdk._data.run.events.columns import GrowingSeries, SeriesStats, series_stats
from pai_sdk._data.run.events.files import EventChunk, EventFileReader
from pai_sdk._data.run.events.other import OtherEvent
from pai_sdk._data.run.events.series import Integers, Series
from pai_sdk._data.run.events.sources import is_instance
from pai_sdk._data.run.events.writer import EVENTS_PART, event_file_source
from pai_sdk._data.storage.base import Store

LOGS_RANK = 1 << 30  # after the ranks of all processes, so that a reported metric keeps its plain name
_EMPTY_RANGE = (math.inf, -math.inf)
_UNSTORED_KINDS = ("image", "audio", "graph")  # counted only, since their content can be megabytes


class TagKey(NamedTuple):
    """The key of a summary: a tag of one kind, of one instance."""

    source: tuple[int, str]  # the rank by the folder; the instance, or one of several machines
    kind: str
    tag: str


class RunEnd(NamedTuple):
    """The end of a run, as recorded in its files."""

    wall: float  # when, in seconds since 1970
    status: str  # `Succeed`, `Failed` or `Terminated`; other programs write another string or none


class RunFile:
    """One event file of the run, and its points of each tag."""

    def __init__(self, store: Store, path: str) -> None:
        self.reader = EventFileReader(store, path)
        self.read_version = (0, "")
        folder, _, name = path.rpartition("/")
        source, part = event_file_source(name), EVENTS_PART.fullmatch(folder.rpartition("/")[2])
        rank = -1 if part is None else int(part["rank"] or LOGS_RANK)
        self.host, self.order = source[0] if source else "", start_order(path)
        self.source = (rank, self.host if is_instance(self.host) else "")
        self.changed_s: float | None = None
        self.points: dict[TagKey, GrowingSeries] = {}
        self.other_events: dict[TagKey, list[OtherEvent]] = {}
        self.last_wall = 0.0
        self.end: RunEnd | None = None
        self.wall, self.step = _EMPTY_RANGE, _EMPTY_RANGE  # minimum and maximum of all points

    def take(self, chunk: EventChunk, *, keeps_points: bool) -> Iterator[tuple[TagKey, Series, SeriesStats]]:
        """Stores the content of a chunk. Yields the new points of each tag."""
        scalars = [*chunk.scalars.values()]
        all_stats = series_stats(scalars)
        self._update_ranges(scalars, all_stats)
        for series, stats in zip(scalars, all_stats, strict=True):
            self.last_wall = max(self.last_wall, float(series.wall[-1]))
            yield self._add_points(TagKey(self.source, "scalar", series.tag), series, stats, keeps_points)
        events_by_key: dict[TagKey, list[OtherEvent]] = {}
        for event in chunk.other_events:
            if event.kind == "end":
                self.end = RunEnd(event.wall, event.content.decode(errors="replace"))
                continue
            self.last_wall = max(self.last_wall, event.wall)
            events_by_key.setdefault(TagKey(self.source, event.kind, event.tag), []).append(event)
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
        self, key: TagKey, series: Series, stats: SeriesStats, keeps_points: bool
    ) -> tuple[TagKey, Series, SeriesStats]:
        growing = self.points.get(key)
        if growing is None:
            self.points[key] = growing = GrowingSeries(series, stats)
        else:
            growing.record_steps(stats)
            if keeps_points:
                growing.append(series)
        if not keeps_points:
            growing.forget()
        return key, series, stats

    def drop_points(self) -> None:
        """Frees everything but the ranges of steps."""
        for points in self.points.values():
            points.forget()
        self.other_events = {}


def files_with(files: Iterable[RunFile], key: TagKey) -> list[tuple[RunFile, Integers]]:
    """Returns the files that have a tag, oldest first, each with the steps of its points."""
    parts = [(file, file.points[key].series(key.tag).step) for file in files if key in file.points]
    # `bisect` takes an array as it is.
    attempts = [Attempt(file.order, file.changed_s, cast("Sequence[int]", steps)) for file, steps in parts]
    return [parts[number] for number in oldest_first(attempts)]


def valid_points(files: Iterable[RunFile], key: TagKey) -> list[tuple[RunFile, npt.NDArray[Any] | None]]:
    """Returns the files that have a tag, oldest first, each with a mask of its valid points; None for all."""
    attempts = files_with(files, key)
    parts: list[tuple[RunFile, npt.NDArray[Any] | None]] = []
    steps = [cast("Sequence[int]", file_steps) for _, file_steps in attempts]
    for (file, file_steps), replacement in zip(attempts, replacements(steps), strict=True):
        is_valid = np.ones(len(file_steps), bool)
        if replacement.limit is not None:
            is_valid[np.searchsorted(file_steps, replacement.limit) :] = False
        for number in replacement.replaced_by:
            is_valid &= ~np.isin(file_steps, attempts[number][1])
        parts.append((file, None if is_valid.all() else is_valid))
    return parts


def joined_points(files: Iterable[RunFile], key: TagKey) -> Series:
    """Returns the points of a tag that count, by step."""
    parts = []
    for file, is_valid in valid_points(files, key):
        series = file.points[key].series(key.tag)
        parts.append(series if is_valid is None else series[is_valid])
    wall, step, value = (
        columns[0] if len(columns) == 1 else np.concatenate(columns)
        for columns in zip(*((part.wall, part.step, part.value) for part in parts), strict=True)
    )
    joined = Series(key.tag, wall, step, value)
    if len(parts) > 1 and not (step[1:] >= step[:-1]).all():
        joined = joined[np.argsort(step, kind="stable")]
    return joined


def top_of(files: list[tuple[RunFile, Integers]]) -> tuple[str, float]:
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
