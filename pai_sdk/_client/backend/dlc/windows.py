"""The log of one pod, read by windows of time: GetPodLogs has neither line numbers nor times of lines.

A window begins at a fixed second (`_base_s`), so two reads of it begin with the same lines, and new ones follow.
So lines are counted, not compared: a log may repeat a line at will. The base moves only by counts that
three reads confirm. It does not matter whether the service includes the bounds of a window, nor which end it keeps
of one with more than `MaxLines` lines: such a window is divided.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from difflib import SequenceMatcher
from typing import Protocol

from pai_sdk._wire.dlc.limits import DEFAULT_MAX_LINES
from pai_sdk.errors import InvalidRequestError

_log = logging.getLogger(__name__)

_MOVE_AFTER_S = 300  # a window that is read for long may lose its first lines: services keep logs for a time only
_SETTLED_S = 60  # a line may be listed so long after it was written; the base stays older than that where it can
_CLOCKS_DIFFER_S = 3600
_GROWTHS = (8, 50)  # times the usual maximum of lines, for a second with more lines than that
_MAX_BISECTIONS = 64
_MAX_FAILED_MOVES = 5


class Fetch(Protocol):
    """Reads the lines of a window in whole seconds; without an end, until now."""

    def __call__(self, start_s: int, end_s: int | None, max_lines: int, /) -> list[str]: ...


class PodWindows:
    """The position in the log of one pod. Lines before the window are counted, those in it are kept."""

    def __init__(
        self, fetch: Fetch, start_s: int, clock: Callable[[], float], *, max_lines: int = DEFAULT_MAX_LINES
    ) -> None:
        self._fetch = fetch
        self._clock = clock
        self._max_lines = max_lines
        self._base_s = start_s
        self._tried_move_s = clock()  # a log that is read once or twice costs no requests for a move
        self._window: list[str] = []  # the lines since the base that were returned; the last read had them
        self._span_s = 0  # of the last window that was not full
        self._move_at = max_lines // 2  # lines in the window at which the base moves
        self._due_move: tuple[int, int, int] | None = None  # the arguments of `_move`
        self._failed_moves = 0

    @property
    def has_lines(self) -> bool:
        """Returns True if the window has lines."""
        return bool(self._window)

    def read(self) -> list[str]:
        """Returns the lines that are new since the last call; empty if there are none at the moment."""
        for _ in range(_MAX_BISECTIONS):
            # Before the lines are read: after an error of a move, lines that were accepted would be lost.
            self._move_if_due()
            lines = self._fetch(self._base_s, None, self._max_lines)
            if len(lines) < self._max_lines:
                return self._accept(lines)
            base_s, count = self._base_s, len(self._window)
            if new := self._read_part():
                return new
            self._move_if_due()
            if (base_s, count) == (self._base_s, len(self._window)):
                break  # it changes while it is read: the next call tries again
        return []

    # ---- more lines than one request returns

    def _read_part(self) -> list[str]:
        """Returns the lines of the longest window from the base that the service does not truncate."""
        end_s, lines, max_lines = self._widest_window()
        new = self._accept(lines)
        settled_s = int(self._clock()) - _SETTLED_S
        # Before the end: a service that excludes both bounds has the lines of the end in neither window.
        base_s = min(end_s - 1, settled_s) if settled_s > self._base_s else end_s - 1
        self._due_move = (base_s, end_s, max_lines)
        return new

    def _widest_window(self) -> tuple[int, list[str], int]:
        """Returns the end and the lines of the window, and the number of lines to ask for in it."""
        low, high = self._base_s, int(self._clock()) + _CLOCKS_DIFFER_S
        best: tuple[int, list[str], int] | None = None
        end_s = low + self._span_s if self._span_s else (low + high) // 2
        for _ in range(_MAX_BISECTIONS):
            end_s = min(max(end_s, low), high)
            lines = self._fetch(self._base_s, end_s, self._max_lines)
            if len(lines) < self._max_lines:
                best, low = (end_s, lines, self._max_lines), end_s
                self._span_s = max(1, end_s - self._base_s)
                if len(lines) > len(self._window) and len(lines) > self._max_lines // 4:
                    return best
            else:
                high = end_s
            if high - low <= 1:
                break
            end_s = (low + high) // 2
        if best is not None and (len(best[1]) > len(self._window) or best[0] > self._base_s + 1):
            return best
        return self._dense_window(max(high, self._base_s + 2))

    def _dense_window(self, end_s: int) -> tuple[int, list[str], int]:
        """Returns a window of a second with more lines than the service returns by default."""
        max_lines, lines = self._max_lines, list[str]()
        for growth in _GROWTHS:
            try:
                lines = self._fetch(self._base_s, end_s, self._max_lines * growth)
            except InvalidRequestError:
                # More than the service accepts, which is not documented.
                lines = lines or self._fetch(self._base_s, end_s, max_lines)
                break
            max_lines = self._max_lines * growth
            if len(lines) < max_lines:
                break
        if len(lines) in (self._max_lines, max_lines):
            _log.warning("a log has more lines in a second than the service returns; some of them are missing")
        return end_s, lines, max_lines

    # ---- the base

    def _move_if_due(self) -> None:
        if self._due_move is not None:
            self._move(*self._due_move)
            self._due_move = None
        settled_s = int(self._clock()) - _SETTLED_S
        is_old = self._clock() - self._tried_move_s >= _MOVE_AFTER_S
        if is_old or (len(self._window) >= self._move_at and settled_s > self._base_s):
            self._tried_move_s = self._clock()
            self._move(settled_s, settled_s + 1, self._max_lines)
            self._move_at = max(self._max_lines // 2, len(self._window) + self._max_lines // 8)

    def _move(self, base_s: int, end_s: int, max_lines: int) -> None:
        """Moves the base forward, if the number of lines between both bases is certain."""
        if base_s <= self._base_s:
            return
        before = self._fetch(self._base_s, end_s, max_lines)
        later = self._fetch(base_s, end_s, max_lines)
        # The same lines before and after: so those of the shorter window are of the same state of the log.
        count = len(before) - len(later)
        is_certain = (
            before == self._fetch(self._base_s, end_s, max_lines)
            and before == self._window[: len(before)]
            and count >= 0
            and before[count:] == later
        )
        if not is_certain:
            self._failed_moves += 1
            if self._failed_moves < _MAX_FAILED_MOVES or len(before) < self._max_lines // 2:
                return
            _log.info("a log changes while it is read; its lines are no longer counted from the same time")
            count = max(0, len(self._window) - len(later))
        self._failed_moves = 0
        self._base_s, self._window = base_s, self._window[count:]

    # ---- the lines of the window

    def _accept(self, lines: list[str]) -> list[str]:
        """Records a read of the window; returns its new lines."""
        previous = self._window
        if lines[: len(previous)] == previous:
            self._window = lines
            return lines[len(previous) :]
        if previous[: len(lines)] == lines or _contains(previous, lines):
            return []  # an older state of the log, or its last lines cannot be read at the moment
        for first in range(1, len(previous)):
            # The service no longer has the first lines.
            if previous[first:] == lines[: len(previous) - first]:
                self._window = lines
                return lines[len(previous) - first :]
        self._window = lines
        return _inserted(previous, lines)


def _contains(lines: list[str], part: list[str]) -> bool:
    size = len(part)
    return any(lines[at] == part[0] and lines[at : at + size] == part for at in range(len(lines) - size + 1))


def _inserted(previous: list[str], lines: list[str]) -> list[str]:
    """Returns lines that were listed late: between or after those that the window already had."""
    matcher = SequenceMatcher(None, previous, lines, autojunk=False)
    return [line for tag, _, _, start, end in matcher.get_opcodes() if tag != "equal" for line in lines[start:end]]
