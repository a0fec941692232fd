"""What the new lines of a log say: whether they are progress, and values that are not finite."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from pai_sdk._data.rules.signals import PRINTED, Point

# A job that cannot continue often says so again and again, with other numbers.
_RETRY = re.compile(
    r"\b(?:re-?try(?:ing)?|retries|re-?connect\w*|trying again|try again|back(?:ing)? ?off|timed out|unreachable"
    r"|connection (?:refused|reset|error|timed out|closed)|temporarily unavailable|no space left|disk quota"
    r"|broken pipe|\w*(?:Error|Exception):)",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"0x[0-9a-f]+|\d+(?:[.:,/-]\d+)*", re.IGNORECASE)
_VALUE = re.compile(
    r"(?<![\w.])[\"']?([A-Za-z_][\w/.-]{0,80}?)[\"']?\s{0,3}[=:]\s{0,3}[\"']?"
    r"(nan|[-+]?inf(?:inity)?|[-+]?\d+(?:\.\d*)?(?:e[-+]?\d+)?)(?![\w.])",
    re.IGNORECASE,
)
_LIKELY_NAMES = ("loss", "nll", "entropy", "objective", "reward")
_LIKELY_METRIC = re.compile("|".join(_LIKELY_NAMES), re.IGNORECASE)
MAX_LINE = 2000
"""Characters of a line that are searched."""

_MAX_TEMPLATES = 64
_MAX_METRIC_LINES = 100


class LogProgress:
    """Decides which lines are progress. A repeated message about a retry or an error is none."""

    def __init__(self, templates: Iterable[str] = ()) -> None:
        self._templates: dict[str, None] = dict.fromkeys(templates)

    def has_progress(self, lines: Iterable[str]) -> bool:
        """Returns whether any of the new lines is progress."""
        is_progress = False
        for line in lines:
            text = line[:MAX_LINE].strip()
            if not text:
                continue
            if not _RETRY.search(text):
                is_progress = True
                continue
            template = _NUMBER.sub("#", text)[:200]
            if template not in self._templates:
                # The first of its kind: something happened.
                is_progress = True
                self._templates[template] = None
                if len(self._templates) > _MAX_TEMPLATES:
                    del self._templates[next(iter(self._templates))]
        return is_progress

    @property
    def templates(self) -> list[str]:
        """Returns the messages seen, for `__init__`."""
        return [*self._templates]


def values_of_lines(lines: Iterable[str], instance: str) -> Iterator[Point]:
    """Yields the values of losses and their like in log lines, such as `loss=0.31`; NaN and infinities too."""
    for line in lines:
        text = line[:MAX_LINE]
        # First: it is much faster than the other pattern, and most lines have no such name.
        if _LIKELY_METRIC.search(text):
            for name, value in _VALUE.findall(text):
                if _LIKELY_METRIC.search(name):
                    yield Point(name, float(value), instance, PRINTED)


def metric_lines(chunk: bytes) -> list[str]:
    """Returns the lines of a large part of a log that might have values of metrics, or a sample of these."""
    # Literals in lower case: several times faster than a pattern that ignores case.
    lower, starts = chunk.lower(), set[int]()
    for name in _LIKELY_NAMES:
        literal, at = name.encode(), 0
        while (at := lower.find(literal, at)) >= 0:
            start = max(lower.rfind(end, max(0, at - MAX_LINE), at) for end in (b"\n", b"\r")) + 1
            starts.add(start or max(0, at - MAX_LINE))
            ends = (lower.find(end, at, at + MAX_LINE) for end in (b"\n", b"\r"))
            at = min((end for end in ends if end >= 0), default=at + MAX_LINE)
    ordered = sorted(starts)
    # Every n-th, and not the ones that are NaN: of these, one in many can be normal.
    ordered = ordered[:: len(ordered) // _MAX_METRIC_LINES + 1]
    return [line for start in ordered for line in split_lines(chunk[start : start + MAX_LINE])[:1]]


def split_lines(chunk: bytes) -> list[str]:
    """Splits a part of a log into lines; the states of a progress bar count as lines."""
    return chunk.decode("utf-8", errors="replace").replace("\r", "\n").split("\n")
