"""Topics of an event stream: the list of runs, the points of a metric, the lines of a log.

Each topic knows how far its client is. When it is asked, it gives what is new since then and moves on, so a client
that is slow gets more at once, and nothing is kept for it. Points and lines are numbered: a client that gets some
of them twice, after it has fetched them, puts them at the same place.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from pai_sdk.errors import RunNotFoundError
from pai_sdk.service.runs.cursors import Position, epoch_of_points
from pai_sdk.service.runs.responses import finite
from pai_sdk.service.runs.source import NO_LOG
from pai_sdk.service.wire_errors import WireError, invalid_parameter

if TYPE_CHECKING:
    from pai_sdk.run.events.series import Series
    from pai_sdk.run.watch.manager import RunManager
    from pai_sdk.run.watch.records import Change
    from pai_sdk.service.runs.source import RunSource

__all__ = ["LogTopic", "Message", "PointsTopic", "RunsTopic", "Topic", "count_points", "read_topics"]

_MOST_TOPICS = 100
_MOST_RUN_IDS = 5000  # a client that has missed more fetches the list
_POINTS_A_MESSAGE = 10_000
_LINES_A_MESSAGE = 2000
_MESSAGES_A_LOOK = 8
_LONGEST_PAUSE_S = 1.0  # a progress bar becomes a line by waiting, without a change of the file's size


@dataclass(frozen=True)
class Message:
    """One message on the stream.

    Attributes:
        event: its kind.
        data: its content, JSON.
    """

    event: str
    data: dict[str, Any]


class RunsTopic:
    """Which runs have changed."""

    name = "runs"

    def __init__(self, manager: RunManager, known: Position | None) -> None:
        state = manager.state
        self.position = Position(state.epoch, state.version, 0)
        is_ours = known is not None and known.epoch == state.epoch
        self._since = known.version if known is not None and is_ours else None if known is None else -1

    @property
    def since(self) -> int | None:
        """The version whose successors the client wants; None for what comes from now on."""
        return self._since

    def look(self, change: Change | None) -> Iterator[Message]:
        """The changes since the last call."""
        if change is None:
            return
        self.position = replace(self.position, version=change.version)
        version = f"{self.position.epoch}.{change.version}"
        if change.resync or len(change.run_ids) + len(change.removed) > _MOST_RUN_IDS:
            yield Message("resync", {"topic": self.name, "version": version})
        else:
            removed = [*change.removed]
            yield Message("runs", {"changed": [*change.run_ids], "removed": removed, "version": version})


class PointsTopic:
    """The points of one metric of one run: `scalars:<run>:<tag>`."""

    def __init__(self, name: str, manager: RunManager, run_id: str, tag: str, known: Position | None) -> None:
        self.name = name
        self._manager = manager
        self._run_id, self._tag = run_id, tag
        self._known = known
        self._series: Series | None = None  # what the client has
        self.position = Position("0", 0, 0)
        if known is None:
            self._move_to(self._read())

    def look(self, change: Change | None) -> Iterator[Message]:
        """The changes since the last call."""
        known = self._known
        if known is None and (change is None or not self._is_in(change)):
            return
        if known is not None and self._is_loading():
            return
        self._known = None
        series = self._read()
        if known is not None:
            if known.offset > len(series) or known.epoch != epoch_of_points(series, known.offset):
                self._move_to(series)
                yield Message("reset", {"topic": self.name, "run": self._run_id, "tag": self._tag})
                return
            first = known.offset
        else:
            first = self._first_new(series)
            if first < self.position.offset:
                step = int(series.step[first]) if first < len(series) else None
                data = {"topic": self.name, "run": self._run_id, "tag": self._tag, "step": step, "first": first}
                yield Message("rewrite", data)
        self._move_to(series)
        for begin in range(first, len(series), _POINTS_A_MESSAGE):
            yield self._points(series, begin, min(begin + _POINTS_A_MESSAGE, len(series)))

    def _is_loading(self) -> bool:
        """True if the points that the client has may not have been read yet, after the service was started."""
        if self._manager.state.loaded_at is None:
            return True
        try:
            return self._manager.run(self._run_id).brief.is_loading
        except RunNotFoundError:
            return False

    def _is_in(self, change: Change) -> bool:
        return change.resync or self._run_id in change.run_ids or self._run_id in change.removed

    def _read(self) -> Series:
        from pai_sdk.run.events.series import empty_series

        try:
            return self._manager.run(self._run_id).scalars(self._tag)
        except RunNotFoundError:
            return empty_series(self._tag)

    def _move_to(self, series: Series) -> None:
        count = len(series)
        self._series = series
        self.position = Position(epoch_of_points(series, count), self._manager.state.version, count)

    def _first_new(self, series: Series) -> int:
        """The index of the first point that the client does not have, or has as another one."""
        import numpy as np

        had = self._series
        if had is None:
            return 0
        count = min(len(had), len(series))
        same = (had.step[:count] == series.step[:count]) & (had.wall[:count] == series.wall[:count])
        before, now = had.value[:count], series.value[:count]
        same &= (before == now) | (np.isnan(before) & np.isnan(now))
        others = np.flatnonzero(~same)
        if len(others) == 0:
            return count if count == len(had) else self._begin_of_step(series, count)
        return self._begin_of_step(series, int(others[0]))

    def _begin_of_step(self, series: Series, at: int) -> int:
        """The first point of the step at an index: a client drops points by their step."""
        import numpy as np

        if at >= len(series):
            return len(series)
        return int(np.searchsorted(series.step, series.step[at], side="left"))

    def _points(self, series: Series, begin: int, end: int) -> Message:
        part = series[begin:end]
        values, others = finite(part.value.tolist())
        return Message(
            "scalars",
            {
                "topic": self.name,
                "run": self._run_id,
                "tag": self._tag,
                "first": begin,
                "steps": part.step.tolist(),
                "walls": part.wall.tolist(),
                "values": values,
                **({"nonfinite": others} if others else {}),
            },
        )


class LogTopic:
    """The lines of a run's log, of all instances in one order: `log:<run>`; of one: `log:<run>:<instance>`."""

    def __init__(
        self, name: str, source: RunSource, run_id: str, instance: str | None, known: Position | None
    ) -> None:
        self.name = name
        self._source = source
        self._run_id = run_id
        self._instance = instance
        self._size_bytes = -1
        self._looked_at = 0.0
        self._is_complete = False
        try:
            log = source.log(run_id, instance)
        except WireError as error:
            if instance is not None or error.code != NO_LOG:
                raise
            self.position = known or Position("none", 0, 0)  # as soon as there is a log, it is another one
        else:
            self.position = known or Position(log.epoch, 0, log.total)

    def look(self, change: Change | None) -> Iterator[Message]:
        """The changes since the last call."""
        now = time.monotonic()
        try:
            log = self._source.log(self._run_id, self._instance)
        except WireError:  # the run was deleted, or has no log yet
            return
        size_bytes = log.size_bytes
        if size_bytes == self._size_bytes and (self._is_complete or now - self._looked_at < _LONGEST_PAUSE_S):
            return
        self._size_bytes, self._looked_at = size_bytes, now
        if log.epoch != self.position.epoch or log.total < self.position.offset:
            self.position = Position(log.epoch, 0, log.total)
            yield Message("reset", {"topic": self.name, "run": self._run_id})
            return
        for _ in range(_MESSAGES_A_LOOK):
            page = log.page(self.position.offset, _LINES_A_MESSAGE)
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
        self._size_bytes = -1  # there is more


Topic = RunsTopic | PointsTopic | LogTopic


def count_points(manager: RunManager, run_id: str, tag: str) -> int:
    """The number of points that a topic of points has to remember; 0 where there is no such run yet."""
    try:
        summary = manager.run(run_id).brief.tags.get(tag)
    except RunNotFoundError:
        return 0
    return summary.count if summary is not None else 0


def read_topics(text: str) -> list[tuple[str, list[str]]]:
    """The topics of a query: their names and their parts.

    Raises:
        WireError: one of them is none, or there are too many.

    Example:
        >>> read_topics("runs,scalars:train-x7k2:eval%2Floss")
        [('runs', ['runs']), ('scalars:train-x7k2:eval%2Floss', ['scalars', 'train-x7k2', 'eval/loss'])]
    """
    names = list(dict.fromkeys(name for name in text.split(",") if name))
    if len(names) > _MOST_TOPICS:
        raise invalid_parameter(f"topics: {len(names)} are named; {_MOST_TOPICS} are allowed.")
    found = []
    for name in names:
        parts = [unquote(part) for part in name.split(":")]
        if (parts[0], len(parts)) not in (("runs", 1), ("scalars", 3), ("log", 2), ("log", 3)):
            raise invalid_parameter(
                f"topics: {name[:100]!r} is not a topic; the topics are runs, scalars:RUN:TAG, log:RUN and "
                "log:RUN:INSTANCE, with ':' and ',' in a name written as %3A and %2C."
            )
        found.append((name, parts))
    return found
