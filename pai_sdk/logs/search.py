"""Searching a log of any length: all hits are counted, the first ones are shown, and the search can be stopped.

A log is read in pieces of 1 MB that end with a line. Each piece is one step of a generator: a caller that stops
iterating stops the search. A piece is matched in slices of some hundred lines, each with a time limit: regular
expressions come from clients, and between two slices the search can be ended.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import regex

from pai_sdk.logs.reader import InstanceLog

__all__ = ["Hit", "LogQuery", "SearchStep", "search"]

_PIECE_BYTES = 1 << 20  # each search that waits for its next turn holds one
_SLICE_CHARACTERS = 1 << 18
_HITS_A_CHECK = 1 << 14
_SLICE_S = 2.0  # the matching of one slice cannot be ended; most take milliseconds, even on a busy machine
_SHOWN_BYTES = 1000
_BEFORE_HIT = 200
_LONGEST_QUERY = 1000


class Hit(NamedTuple):
    """A match in a log.

    Attributes:
        instance: whose log it is.
        line: the number of the line in that log, from 0.
        offset: the byte at which the line begins.
        start, end: the place of the match in `text`, in characters.
        text: the line; of a long one, the part around the match.
    """

    instance: str
    line: int
    offset: int
    start: int
    end: int
    text: str


@dataclass(frozen=True)
class SearchStep:
    """The result of one piece of a log.

    Attributes:
        hits: those to be shown.
        count: all of them.
        instance: whose log it is.
        first_line, last_line: the lines of the piece; the last one is not in it.
        searched_bytes: from the beginning of all logs to the end of this piece.
        trouble: why the search ends here, before the end of the log; otherwise empty.
    """

    hits: Sequence[Hit]
    count: int
    instance: str
    first_line: int
    last_line: int
    searched_bytes: int
    trouble: str = ""


_Matches: TypeAlias = Iterator[tuple[int, int]]


def _never() -> None:
    """Ends no search."""


def _no_problem(pattern: str) -> str:
    """Allows every pattern."""
    return ""


@dataclass(frozen=True)
class LogQuery:
    """The text or pattern to search for.

    Args:
        text: a text, or a regular expression; at most 1,000 characters.
        is_regex: whether it is a regular expression. It matches within a line; `^` and `$` are those of the line.
        ignores_case: whether upper and lower case are the same.
        problem_of: says why a pattern must not be compiled; called if its size could grow beyond its length.

    Raises:
        ValueError: the text is empty or too long, or the expression is invalid or takes too much to compile.
    """

    text: str
    is_regex: bool = False
    ignores_case: bool = False
    problem_of: Callable[[str], str] = _no_problem
    _pattern: Any = field(init=False, repr=False, default=None)

    def __post_init__(self) -> None:
        if not self.text or len(self.text) > _LONGEST_QUERY:
            raise ValueError(f"has {len(self.text)} characters; 1 to {_LONGEST_QUERY} are allowed.")
        if "\n" in self.text:
            raise ValueError("a hit lies within one line; search for a text without line ends.")
        if self.is_regex or self.ignores_case:
            object.__setattr__(self, "_pattern", self._compiled())

    @property
    def is_plain(self) -> bool:
        """True if the text is searched for as it is, which is quicker."""
        return self._pattern is None

    def _compiled(self) -> Any:
        # Without a counted repeat, a compiled expression grows with its text only.
        if self.is_regex and "{" in self.text and (problem := self.problem_of(self.text)):
            raise ValueError(problem)
        flags = regex.MULTILINE | (regex.IGNORECASE if self.ignores_case else 0)
        try:
            return regex.compile(
                self.text if self.is_regex else regex.escape(self.text), flags, cache_pattern=False
            )
        except (regex.error, RecursionError, OverflowError, ValueError) as error:
            raise ValueError(f"cannot be read as a regular expression: {error}") from error

    def matches(self, piece: str, timeout_s: float, check: Callable[[], None] = _never) -> _Matches:
        """The matches within the lines of a piece: begin and end of each.

        Args:
            piece: whole lines.
            timeout_s: for the piece, in seconds; each slice of it has at most 2 of them.
            check: called between two slices; it ends the search by raising.

        Raises:
            TimeoutError: matching took too long.
        """
        if self.is_plain:
            return _plain(piece, self.text)
        return _within_lines(self._pattern, piece, timeout_s, check)


def search(
    logs: Sequence[InstanceLog],
    query: LogQuery,
    *,
    after: int = 0,
    shown: int = 1000,
    time_limit_s: float = 20.0,
    check: Callable[[], None] = _never,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[SearchStep]:
    """Search logs one after the other, a piece a step.

    Args:
        logs: of one instance or several.
        query: the text or pattern.
        after: hits in lines that begin before this byte are left out; for one log.
        shown: how many hits are given with their line; the rest is counted.
        time_limit_s: seconds after which the search ends; the last step says so.
        check: called between two slices of the work; it ends the search by raising.
        clock: for tests.
    """
    deadline, left, searched = clock() + time_limit_s, shown, 0
    for log in logs:
        first = log.index.line_at(after)
        for begin, content in _pieces(log.path, after):
            check()
            piece = _Piece(log, begin, content, first)
            hits, count, trouble = piece.search(query, left, max(0.05, deadline - clock()), check)
            searched += len(content)
            left -= len(hits)
            if not trouble and clock() > deadline:
                trouble = f"the search takes more than {time_limit_s:g} s"
            yield SearchStep(hits, count, log.name, first, piece.last_line, searched, trouble)
            if trouble:
                return
            first = piece.last_line


def _pieces(path: Path, start: int) -> Iterator[tuple[int, bytes]]:
    """A file as pieces of whole lines, each with the byte it begins at; a line beyond all bounds is divided."""
    try:
        with path.open("rb") as file:
            file.seek(start)
            begin, rest = start, b""
            while piece := file.read(_PIECE_BYTES):
                content = rest + piece
                end = content.rfind(b"\n") + 1
                if not end and len(content) > 2 * _PIECE_BYTES:
                    end = _last_character(content)
                if end:
                    yield begin, content[:end]
                begin, rest = begin + end, content[end:]
            if rest:
                yield begin, rest
    except FileNotFoundError:
        return


def _last_character(content: bytes) -> int:
    """The index of the first byte of the last character in UTF-8, which may be incomplete."""
    begin = len(content) - 1
    while begin > max(0, len(content) - 4) and content[begin] & 0b1100_0000 == 0b1000_0000:
        begin -= 1
    return begin


class _Piece:
    """A piece of a log, with the places in its text as lines.

    Args:
        log: whose piece it is.
        begin: the byte at which it begins.
        content: whole lines.
        first_line: the number of its first line.
    """

    def __init__(self, log: InstanceLog, begin: int, content: bytes, first_line: int) -> None:
        self._log = log
        self._begin = begin
        self._content = content
        self._text = content.decode("utf-8", errors="surrogateescape")
        self._is_ascii = len(self._text) == len(content)
        self._cuts = [cut - begin for cut in log.index.cuts.between(begin, begin + len(content))]
        self._first_line = first_line
        # Hits come in ascending order, so that both are counted on from the last one.
        self._counted = (0, 0)  # a place in the text, in characters and in bytes
        self._lines = (0, 0)  # a place in the content, and the number of line ends before it
        self.last_line = first_line + content.count(b"\n") + len(self._cuts)

    def search(
        self, query: LogQuery, shown: int, timeout_s: float, check: Callable[[], None]
    ) -> tuple[list[Hit], int, str]:
        """The first hits, the number of all of them, and why the search had to end before the end of the piece."""
        if shown <= 0 and query.is_plain:
            return [], self._text.count(query.text), ""
        hits: list[Hit] = []
        count = 0
        try:
            for start, end in query.matches(self._text, timeout_s, check):
                count += 1
                if not count % _HITS_A_CHECK:
                    check()
                if len(hits) < shown:
                    hits.append(self._hit(start, end))
        except TimeoutError:
            return hits, count, "the regular expression takes too long; use a simpler one"
        return hits, count, ""

    def _hit(self, start: int, end: int) -> Hit:
        first, last = self._byte(start), self._byte(end)
        known, ended = self._lines
        self._lines = (first, ended := ended + self._content.count(b"\n", known, first))
        cut = bisect_right(self._cuts, first)
        line_begin = max(self._content.rfind(b"\n", 0, first) + 1, self._cuts[cut - 1] if cut else 0)
        newline = self._content.find(b"\n", first)
        line_end = newline if newline >= 0 else len(self._content)
        if cut < len(self._cuts):
            line_end = min(line_end, max(last, self._cuts[cut]))
        shown_from = max(line_begin, first - _BEFORE_HIT)
        shown = self._content[shown_from : min(line_end, shown_from + _SHOWN_BYTES)].rstrip(b"\r\n")
        return Hit(
            self._log.name,
            self._first_line + ended + cut,
            self._begin + line_begin,
            len(_text_of(shown[: first - shown_from])),
            len(_text_of(shown[: last - shown_from])),
            _text_of(shown),
        )

    def _byte(self, character: int) -> int:
        if self._is_ascii:
            return character
        known, known_bytes = self._counted
        between = self._text[known:character].encode("utf-8", errors="surrogateescape")
        self._counted = (character, known_bytes + len(between))
        return self._counted[1]


def _text_of(content: bytes) -> str:
    return content.decode("utf-8", errors="replace")


def _plain(piece: str, wanted: str) -> _Matches:
    at = piece.find(wanted)
    while at >= 0:
        yield at, at + len(wanted)
        at = piece.find(wanted, at + len(wanted))


def _within_lines(pattern: Any, piece: str, timeout_s: float, check: Callable[[], None]) -> _Matches:
    """The matches of each line on its own, although the lines of a slice are searched at once.

    A match that goes beyond its line is searched for again in that line alone.
    """
    deadline, begin = time.monotonic() + timeout_s, 0
    while begin < len(piece):
        end = piece.find("\n", begin + _SLICE_CHARACTERS) + 1 or len(piece)
        ends_at = min(deadline, time.monotonic() + _SLICE_S)
        at: int | None = begin
        while at is not None and at < end:
            check()
            if (left_s := ends_at - time.monotonic()) <= 0:
                raise TimeoutError
            at = yield from _until_a_line_is_left(pattern, piece, at, end, left_s)
        begin = end


def _until_a_line_is_left(
    pattern: Any, piece: str, at: int, end_of_slice: int, timeout_s: float
) -> Generator[tuple[int, int], None, int | None]:
    """The matches up to the first that leaves its line; returns where the next line begins, or None at the end."""
    # The GIL is let go, and there is a limit: a hostile pattern stops neither the service nor this search.
    for match in pattern.finditer(piece, at, end_of_slice, timeout=timeout_s, concurrent=True):
        start, end = match.span()
        newline = piece.find("\n", start, end)
        if newline < 0:
            if end > start:
                yield start, end
            continue
        for again in pattern.finditer(piece, start, newline, timeout=timeout_s, concurrent=True):
            if again.end() > again.start():
                yield again.span()
        return newline + 1
    return None
