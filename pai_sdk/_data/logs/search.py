"""Searches a log of any size: counts all hits, returns the first ones, and can be stopped.

A log is read in chunks of 1 MiB that end with a line. Each chunk is one step of a generator: a caller that stops
iterating stops the search. A chunk is matched in slices of some hundred lines, each with a time limit, because
regular expressions come from clients; the search can be stopped between two slices.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import regex

from pai_sdk._core.files import open_regular
from pai_sdk._data.logs.reader import InstanceLog

_CHUNK_BYTES = 1 << 20  # memory of each search, also of one that waits for a permit
_SLICE_CHARACTERS = 1 << 18
_HITS_A_CHECK = 1 << 14
_SLICE_S = 2.0  # matching one slice cannot be stopped; most take milliseconds, even on a busy machine
_MAX_HIT_BYTES = 1000
_BEFORE_HIT = 200
_MAX_QUERY_CHARS = 1000


class Hit(NamedTuple):
    """A match in a log."""

    instance: str
    line: int  # the number of the line in that log, from 0
    offset: int  # of the line, in bytes
    start: int  # `start` and `end` are the position of the match in `text`, in characters
    end: int
    text: str  # the line; of a long line, the part around the match


@dataclass(frozen=True)
class SearchStep:
    """The result of one chunk of a log."""

    hits: Sequence[Hit]  # the first hits, up to the maximum of the search
    count: int  # the number of all hits
    instance: str
    first_line: int
    last_line: int  # not in the chunk
    searched_bytes: int  # from the start of all logs to the end of this chunk
    trouble: str = ""  # why the search stops before the end of the log; otherwise empty


_Matches: TypeAlias = Iterator[tuple[int, int]]


def _never() -> None:
    """Never stops a search."""


def _no_problem(pattern: str) -> str:
    """Allows every pattern."""
    return ""


@dataclass(frozen=True)
class LogQuery:
    """The text or pattern to search for; a ValueError refuses what is empty, invalid or too expensive."""

    text: str  # at most 1,000 characters
    is_regex: bool = False  # it matches within a line; `^` and `$` are those of the line
    ignores_case: bool = False
    # Returns why a pattern must not be compiled, or an empty string; called if the compiled size could exceed the
    # length of the pattern.
    problem_of: Callable[[str], str] = _no_problem
    _pattern: Any = field(init=False, repr=False, default=None)

    def __post_init__(self) -> None:
        if not self.text or len(self.text) > _MAX_QUERY_CHARS:
            raise ValueError(f"has {len(self.text)} characters; 1 to {_MAX_QUERY_CHARS} are allowed.")
        if "\n" in self.text:
            raise ValueError("a match lies within one line; search for text without newlines.")
        if self.is_regex or self.ignores_case:
            object.__setattr__(self, "_pattern", self._compiled())

    @property
    def is_plain(self) -> bool:
        """Returns True for a plain string, which is searched faster."""
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

    def matches(self, chunk: str, timeout_s: float, check: Callable[[], None] = _never) -> _Matches:
        """Yields start and end of each match within the lines of a chunk; TimeoutError: it took too long."""
        # `check` is called between two slices, and stops the search by raising.
        if self.is_plain:
            return _plain(chunk, self.text)
        return _within_lines(self._pattern, chunk, timeout_s, check)


def search(
    logs: Sequence[InstanceLog],
    query: LogQuery,
    *,
    after: int = 0,
    max_hits: int = 1000,
    time_limit_s: float = 20.0,
    check: Callable[[], None] = _never,
    clock: Callable[[], float] = time.monotonic,
    chunk_bytes: int = _CHUNK_BYTES,
) -> Iterator[SearchStep]:
    """Searches logs one after the other, one chunk a step; the first `max_hits` hits have their lines."""
    # Lines that start before the offset `after` are left out, which is for one log. `check` is called between two
    # slices, and stops the search by raising.
    deadline, remaining, searched = clock() + time_limit_s, max_hits, 0
    for log in logs:
        first = log.index.line_at(after)
        for start, content in _chunks(log.path, after, chunk_bytes):
            check()
            chunk = _Chunk(log, start, content, first)
            hits, count, trouble = chunk.search(query, remaining, max(0.05, deadline - clock()), check)
            searched += len(content)
            remaining -= len(hits)
            if not trouble and clock() > deadline:
                trouble = f"the search takes more than {time_limit_s:g} s"
            yield SearchStep(hits, count, log.name, first, chunk.last_line, searched, trouble)
            if trouble:
                return
            first = chunk.last_line


def _chunks(path: Path, start: int, chunk_bytes: int) -> Iterator[tuple[int, bytes]]:
    """Yields a file as chunks of complete lines with their offsets; splits a line of more than two chunks."""
    try:
        with open_regular(path) as file:
            file.seek(start)
            start_at, leftover = start, b""
            while chunk := file.read(chunk_bytes):
                content = leftover + chunk
                end = content.rfind(b"\n") + 1
                if not end and len(content) > 2 * chunk_bytes:
                    end = _last_character(content)
                if end:
                    yield start_at, content[:end]
                start_at, leftover = start_at + end, content[end:]
            if leftover:
                yield start_at, leftover
    except FileNotFoundError:
        return


def _last_character(content: bytes) -> int:
    """Returns the index of the first byte of the last character in UTF-8, which can be incomplete."""
    start = len(content) - 1
    while start > max(0, len(content) - 4) and content[start] & 0b1100_0000 == 0b1000_0000:
        start -= 1
    return start


class _Chunk:
    """A chunk of complete lines of a log, which converts positions in its text to lines."""

    def __init__(self, log: InstanceLog, start: int, content: bytes, first_line: int) -> None:
        self._log = log
        self._start = start
        self._content = content
        self._text = content.decode("utf-8", errors="surrogateescape")
        self._is_ascii = len(self._text) == len(content)
        self._cuts = [offset - start for offset in log.index.cuts.between(start, start + len(content))]
        self._first_line = first_line
        # Hits arrive in ascending order, so both counts continue from the last hit: linear in all hits together.
        self._counted = (0, 0)  # a position in the text, in characters and in bytes
        self._lines = (0, 0)  # an offset in the content, and the number of line ends before it
        self.last_line = first_line + content.count(b"\n") + len(self._cuts)

    def search(
        self, query: LogQuery, max_hits: int, timeout_s: float, check: Callable[[], None]
    ) -> tuple[list[Hit], int, str]:
        """Returns the first hits, the number of all hits, and why the search stopped early, or an empty string."""
        if max_hits <= 0 and query.is_plain:
            return [], self._text.count(query.text), ""
        hits: list[Hit] = []
        count = 0
        try:
            for start, end in query.matches(self._text, timeout_s, check):
                count += 1
                if not count % _HITS_A_CHECK:
                    check()
                if len(hits) < max_hits:
                    hits.append(self._hit(start, end))
        except TimeoutError:
            return hits, count, "the regular expression takes too long; use a simpler one"
        return hits, count, ""

    def _hit(self, start: int, end: int) -> Hit:
        first, last = self._byte(start), self._byte(end)
        counted_to, num_newlines = self._lines
        self._lines = (first, num_newlines := num_newlines + self._content.count(b"\n", counted_to, first))
        num_cuts = bisect_right(self._cuts, first)
        line_start = max(self._content.rfind(b"\n", 0, first) + 1, self._cuts[num_cuts - 1] if num_cuts else 0)
        newline = self._content.find(b"\n", first)
        line_end = newline if newline >= 0 else len(self._content)
        if num_cuts < len(self._cuts):
            line_end = min(line_end, max(last, self._cuts[num_cuts]))
        excerpt_start = max(line_start, first - _BEFORE_HIT)
        excerpt = self._content[excerpt_start : min(line_end, excerpt_start + _MAX_HIT_BYTES)].rstrip(b"\r\n")
        return Hit(
            self._log.name,
            self._first_line + num_newlines + num_cuts,
            self._start + line_start,
            len(_decoded(excerpt[: first - excerpt_start])),
            len(_decoded(excerpt[: last - excerpt_start])),
            _decoded(excerpt),
        )

    def _byte(self, character: int) -> int:
        if self._is_ascii:
            return character
        counted_chars, counted_bytes = self._counted
        between = self._text[counted_chars:character].encode("utf-8", errors="surrogateescape")
        self._counted = (character, counted_bytes + len(between))
        return self._counted[1]


def _decoded(content: bytes) -> str:
    return content.decode("utf-8", errors="replace")


def _plain(chunk: str, text: str) -> _Matches:
    at = chunk.find(text)
    while at >= 0:
        yield at, at + len(text)
        at = chunk.find(text, at + len(text))


def _within_lines(pattern: Any, chunk: str, timeout_s: float, check: Callable[[], None]) -> _Matches:
    """Yields the matches of each line on its own."""
    # The lines of a slice are searched at once, which is faster. A match that crosses a line end is searched for
    # again in its line alone.
    deadline, slice_start = time.monotonic() + timeout_s, 0
    while slice_start < len(chunk):
        end = chunk.find("\n", slice_start + _SLICE_CHARACTERS) + 1 or len(chunk)
        ends_at = min(deadline, time.monotonic() + _SLICE_S)
        at: int | None = slice_start
        while at is not None and at < end:
            check()
            if (remaining_s := ends_at - time.monotonic()) <= 0:
                raise TimeoutError
            at = yield from _matches_to_newline(pattern, chunk, at, end, remaining_s)
        slice_start = end


def _matches_to_newline(
    pattern: Any, chunk: str, at: int, end_of_slice: int, timeout_s: float
) -> Generator[tuple[int, int], None, int | None]:
    """Yields the matches up to the first that leaves its line; returns the start of the next line, or None."""
    # `concurrent` releases the GIL, and `timeout` limits the time: a hostile pattern blocks neither other threads
    # of the service nor this search.
    for match in pattern.finditer(chunk, at, end_of_slice, timeout=timeout_s, concurrent=True):
        start, end = match.span()
        newline = chunk.find("\n", start, end)
        if newline < 0:
            if end > start:
                yield start, end
            continue
        for again in pattern.finditer(chunk, start, newline, timeout=timeout_s, concurrent=True):
            if again.end() > again.start():
                yield again.span()
        return newline + 1
    return None
