"""Logs that a job has written to keep the service busy: each takes time in proportion to its length."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest

from pai_sdk._data.logs.headline import cause_in
from pai_sdk._data.logs.levels import ERROR, LevelScanner
from pai_sdk._data.logs.tracebacks import find_traceback

_START = "Traceback (most recent call last):"
_CHILD = (_START, "  x", "CalledProcessError: x returned non-zero exit status 1.")
_MAX_S = 2.0  # a second for each 10,000 characters or more, if it were their square


@pytest.mark.parametrize(
    "lines",
    [
        [" " * 40_000],
        [_START, "\t" * 40_000, "ValueError: x"],
        [" " * 40_000 + _START + " x"],
        ["╭─── Traceback (most recent call last) ───╮", "│ " + " " * 40_000],
        [line for rank in range(2000) for line in (f"[r{rank}]: {_START}", f"[r{rank}]: V: x")],
        [*_CHILD * 1000],
    ],
    ids=["blanks", "tabs", "no start", "frame", "ranks", "launchers"],
)
def test_a_traceback_is_searched_in_linear_time(lines: Sequence[str]) -> None:
    before = time.process_time()
    cause_in(find_traceback(lines), lines)
    assert time.process_time() - before < _MAX_S


def test_the_process_of_two_launchers_is_still_found() -> None:
    lines = [_START, "  x", "ValueError: first", *_CHILD, *_CHILD]
    assert cause_in(find_traceback(lines), lines) == "ValueError: first"


def test_blank_lines_of_an_error_are_scanned_once() -> None:
    before = time.process_time()
    numbers = LevelScanner(ERROR).lines(b"ERROR x\n" + b" \n" * 30_000 + b"INFO y\n")
    assert time.process_time() - before < _MAX_S
    assert len(numbers) == 30_001


def test_an_indented_level_ends_the_lines_of_an_error() -> None:
    assert LevelScanner(ERROR).lines(b"ERROR x\n  more\n \n   INFO y\n  z\n") == [0, 1, 2]
