"""Topics of an event stream: the list of runs, the points of a metric, the lines of a log.

Each topic has the position of its client. A poll yields what is new since then and advances the position. So a
slow client receives more at once, and nothing is queued for it. Points and lines are numbered: a client that
receives some of them twice stores them at the same index.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from pai_sdk._service.services.runs.cursors import Position, epoch_of_points
from pai_sdk._service.services.runs.responses import finite
from pai_sdk._service.services.runs.source import NO_LOG
from pai_sdk._service.wire_errors import WireError, invalid_parameter
from pai_sdk.errors import RunNotFoundError

if TYPE_CHECKING:
    from pai_sdk._data.run.events.series import Series
    from pai_sdk._data.run.watch.manager import RunManager
    from pai_sdk._data.run.watch.records import Change
    from pai_sdk._service.services.runs.source import RunSource

_MAX_TOPICS = 100
_MAX_RUN_IDS = 5000  # a client that has missed more changes fetches the list
_POINTS_PER_MESSAGE = 10_000
_LINES_PER_MESSAGE = 2000
_MESSAGES_PER_POLL = 8
# The last state of a progress bar becomes a line after a timeout, while the size of the file is unchanged.
_MAX_PAUSE_S = 1.0


@dataclass(frozen=True)
class Message:
    """One message on the stream."""

    event: str
    data: dict[str, Any]


class RunsTopic:
    """Topic `runs`: ids of changed runs."""

    name = "runs"

    def __init__(self, manager: RunManager, resume_from: Position | None) -> None:
        state = manager.state
        self.position = Position(state.epoch, state.version, 0)
        self._since: int | None = None
        if resume_from is not None:
            self._since = resume_from.version if resume_from.epoch == state.epoch else -1  # -1: all changes

    @property
    def since(self) -> int | None:
        """Returns the version after which the client needs changes; None for changes from now on."""
        return self._since

    def poll(self, change: Change | None) -> Iterator[Message]:
        """Yields the changes since the last call."""
        if change is None:
            return
        self.position = replace(self.position, version=change.version)
        version = f"{self.position.epoch}.{change.version}"
        if change.resync or len(change.run_ids) + len(change.removed) > _MAX_RUN_IDS:
            yield Message("resync", {"topic": self.name, "version": version})
        else:
            removed = [*change.removed]
            yield Message("runs", {"changed": [*change.run_ids], "removed": removed, "version": version})


class PointsTopic:
    """Topic `scalars:<run>:<tag>`: the points of one metric of one run."""

    def __init__(
        self, name: str, manager: RunManager, run_id: str, tag: str, resume_from: Position | None
    ) -> None:
        self.name = name
        self._manager = manager
        self._run_id, self._tag = run_id, tag
        self._resume_from = resume_from
        self._series: Series | None = None  # the points that the client has
        self.position = Position("0", 0, 0)
        if resume_from is None:
            self._move_to(self._read())

    def poll(self, change: Change | None) -> Iterator[Message]:
        """Yields the changes since the last call."""
        resume_from = self._resume_from
        if resume_from is None and (change is None or not self._is_in(change)):
            return
        # After a restart the manager reads files again. Fewer points than the client has would look like a
        # replaced series.
        if resume_from is not None and self._is_loading():
            return
        self._resume_from = None
        series = self._read()
        if resume_from is not None:
            if resume_from.offset > len(series) or resume_from.epoch != epoch_of_points(
                series, resume_from.offset
            ):
                self._move_to(series)
                yield Message("reset", {"topic": self.name, "run": self._run_id, "tag": self._tag})
                return
            first = resume_from.offset
        else:
            first = self._first_new(series)
            if first < self.position.offset:
                step = int(series.step[first]) if first < len(series) else None
                data = {"topic": self.name, "run": self._run_id, "tag": self._tag, "step": step, "first": first}
                yield Message("rewrite", data)
        self._move_to(series)
        for start in range(first, len(series), _POINTS_PER_MESSAGE):
            yield self._points(series, start, min(start + _POINTS_PER_MESSAGE, len(series)))

    def _is_loading(self) -> bool:
        """Returns True if the points that the client has may not be loaded yet after a restart of the service."""
        if self._manager.state.loaded_at is None:
            return True
        try:
            return self._manager.run(self._run_id).brief.is_loading
        except RunNotFoundError:
            return False

    def _is_in(self, change: Change) -> bool:
        return change.resync or self._run_id in change.run_ids or self._run_id in change.removed

    def _read(self) -> Series:
        from pai_sdk._data.run.events.series import empty_series

        try:
            return self._manager.run(self._run_id).scalars(self._tag)
        except RunNotFoundError:
            return empty_series(self._tag)

    def _move_to(self, series: Series) -> None:
        count = len(series)
        self._series = series
        self.position = Position(epoch_of_points(series, count), self._manager.state.version, count)

    def _first_new(self, series: Series) -> int:
        """Returns the index of the first point that the client does not have, or has with other values."""
        import numpy as np

        previous = self._series
        if previous is None:
            return 0
        count = min(len(previous), len(series))
        same = (previous.step[:count] == series.step[:count]) & (previous.wall[:count] == series.wall[:count])
        before, now = previous.value[:count], series.value[:count]
        # NaN differs from itself, and would be sent again in each poll.
        same &= (before == now) | (np.isnan(before) & np.isnan(now))
        differences = np.flatnonzero(~same)
        if len(differences) == 0:
            return count if count == len(previous) else self._start_of_step(series, count)
        return self._start_of_step(series, int(differences[0]))

    def _start_of_step(self, series: Series, at: int) -> int:
        """Returns the index of the first point with the same step: clients drop points by step."""
        import numpy as np

        if at >= len(series):
            return len(series)
        return int(np.searchsorted(series.step, series.step[at], side="left"))

    def _points(self, series: Series, start: int, end: int) -> Message:
        part = series[start:end]
        values, nonfinite = finite(part.value.tolist())
        return Message(
            "scalars",
            {
                "topic": self.name,
                "run": self._run_id,
                "tag": self._tag,
                "first": start,
                "steps": part.step.tolist(),
                "walls": part.wall.tolist(),
                "values": values,
                **({"nonfinite": nonfinite} if nonfinite else {}),
            },
        )


class LogTopic:
    """Topic `log:<run>`: the merged lines of a run's log; `log:<run>:<instance>`: those of one instance."""

    def __init__(
        self, name: str, source: RunSource, run_id: str, instance: str | None, resume_from: Position | None
    ) -> None:
        self.name = name
        self._source = source
        self._run_id = run_id
        self._instance = instance
        self._size_bytes = -1
        self._polled_at = 0.0
        self._is_complete = False
        try:
            log = source.log(run_id, instance)
        except WireError as error:
            if instance is not None or error.code != NO_LOG:
                raise
            # The epoch of the first log will differ, which resets the client.
            self.position = resume_from or Position("none", 0, 0)
        else:
            self.position = resume_from or Position(log.epoch, 0, log.total)

    def poll(self, change: Change | None) -> Iterator[Message]:
        """Yields the changes since the last call."""
        now = time.monotonic()
        try:
            log = self._source.log(self._run_id, self._instance)
        except WireError:  # the run was deleted, or has no log yet
            return
        size_bytes = log.size_bytes
        # An unchanged size costs one stat() per file instead of an index of new lines.
        if size_bytes == self._size_bytes and (self._is_complete or now - self._polled_at < _MAX_PAUSE_S):
            return
        self._size_bytes, self._polled_at = size_bytes, now
        # The log was replaced, or truncated: line numbers of the client are invalid.
        if log.epoch != self.position.epoch or log.total < self.position.offset:
            self.position = Position(log.epoch, 0, log.total)
            yield Message("reset", {"topic": self.name, "run": self._run_id})
            return
        # Bounded: one long log must not delay the other topics of the stream.
        for _ in range(_MESSAGES_PER_POLL):
            page = log.page(self.position.offset, _LINES_PER_MESSAGE)
            end, is_complete = self.position.offset + page.count, page.is_complete
            if page.count or (is_complete and not self._is_complete):
                lines = list(page.lines())
                data = {
                    "topic": self.name,
                    "run": self._run_id,
                    "first": self.position.offset,
                    "lines": [line.text for line in lines],
                    "instances": [line.instance for line in lines],
                    "times": [line.time for line in lines],
                    "complete": is_complete,
                }
                self.position = replace(self.position, offset=end)
                self._is_complete = is_complete
                yield Message("log", data)
            if end >= page.total:
                return
        self._size_bytes = -1  # more lines are available: the next poll must not be skipped


Topic = RunsTopic | PointsTopic | LogTopic


def count_points(manager: RunManager, run_id: str, tag: str) -> int:
    """Returns the number of points that a topic of points holds in memory; 0 if there is no such run yet."""
    try:
        summary = manager.run(run_id).brief.tags.get(tag)
    except RunNotFoundError:
        return 0
    return summary.count if summary is not None else 0


def read_topics(text: str) -> list[tuple[str, list[str]]]:
    """Parses the topics of a query: their names and their parts."""
    names = list(dict.fromkeys(name for name in text.split(",") if name))
    if len(names) > _MAX_TOPICS:
        raise invalid_parameter(f"topics: {len(names)} are named; {_MAX_TOPICS} are allowed.")
    topics = []
    for name in names:
        parts = [unquote(part) for part in name.split(":")]
        if (parts[0], len(parts)) not in (("runs", 1), ("scalars", 3), ("log", 2), ("log", 3)):
            raise invalid_parameter(
                f"topics: {name[:100]!r} is not a topic; the topics are runs, scalars:RUN:TAG, log:RUN and "
                "log:RUN:INSTANCE, with ':' and ',' in a name written as %3A and %2C."
            )
        topics.append((name, parts))
    return topics
