"""Errors whose wording is compared with one file: tests state the type, the places of the problems and the code.

`pytest --update-golden`, without `-n`, writes the messages of the tests that it runs into the file.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TypeVar

import pytest

__all__ = ["GOLDEN", "read_golden", "refused", "start_update", "worded", "write_golden"]

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "messages.txt"
E = TypeVar("E", bound=BaseException)

# What differs from run to run: folders of a test, ports, identifiers.
_VARIABLE = (
    (
        re.compile(rf"{re.escape(tempfile.gettempdir())}/pytest-of-[^/]+/pytest-\d+/(popen-gw\d+/)?[^/'\",:\s)]+"),
        "<tmp>",
    ),
    (re.compile(rf"{re.escape(tempfile.gettempdir())}/tmp[a-z0-9_]{{8}}\b"), "<tmp>"),
    # How the command is called here depends on PATH.
    (re.compile(rf"({re.escape(sys.executable)}|\bpython) -m pai_sdk\b"), "pai-sdk"),
    (re.compile(r"(127\.0\.0\.1|localhost):\d+"), r"\1:<port>"),
    (re.compile(r"\b(?:[0-9a-f]{32}|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})\b"), "<id>"),
    (re.compile(r"\b[0-9A-F]{8}(-[0-9A-F]{4}){3}-[0-9A-F]{12}\b"), "<id>"),
    (re.compile(r"memory://[^/\s]+"), "memory://<name>"),
    (re.compile(r"\b\d{8}-\d{6}-[0-9a-f]{7}\b"), "<run>"),
    (re.compile(r"\blocal-[0-9a-f]{12}\b"), "<job>"),
    (re.compile(r"(?<=[a-zA-Z]-)[0-9a-f]{8}\b"), "<id>"),
    (re.compile(r"\.py:\d+"), ".py:<line>"),
    (re.compile(r"\b0x[0-9a-f]+\b"), "<address>"),
)
_FRAME = re.compile("[\u2500-\u257f]+")
_updated: dict[str, list[str]] | None = None


@contextmanager
def refused(expected: type[E], *where: str, code: str = "") -> Iterator[pytest.ExceptionInfo[E]]:
    """Expects an error with the wording of the file.

    Args:
        expected: the type.
        where: the places of its problems, in their order; none to leave them to the file.
        code: its code; empty to leave it to the file.
    """
    with pytest.raises(expected) as caught:
        yield caught
    error = caught.value
    if where:
        assert tuple(problem.where for problem in error.problems) == where
    if code:
        assert error.code == code
    _compare(str(error))


def worded(output: str) -> None:
    """Expects what a command has written with the wording of the file, without its frame and ends of lines."""
    _compare(" ".join(_FRAME.sub(" ", output).split()))


def start_update() -> None:
    """Collects the messages from here on, in place of comparing them."""
    global _updated
    _updated = {}


def write_golden() -> None:
    """Writes the collected messages over those of the same tests; those of missing modules go."""
    if _updated:
        GOLDEN.parent.mkdir(exist_ok=True)
        root = GOLDEN.parents[2]
        moved = [test for test in read_golden() if not (root / test.partition("::")[0]).exists()]
        messages = {test: texts for test, texts in {**read_golden(), **_updated}.items() if test not in moved}
        GOLDEN.write_text("".join(_section(*item) for item in sorted(messages.items())), encoding="utf-8")


def _messages_of(test: str) -> list[str]:
    """Returns the messages of a test; a conformance suite runs tests of other modules under its own name."""
    name, golden = test.partition("::")[2], read_golden()
    return golden.get(test) or [
        each for key, texts in golden.items() if key.partition("::")[2] == name for each in texts
    ]


@cache
def read_golden() -> dict[str, list[str]]:
    """Returns the messages of each test."""
    messages: dict[str, list[str]] = {}
    test = ""
    for line in GOLDEN.read_text(encoding="utf-8").split("\n") if GOLDEN.exists() else ():
        if line.startswith("  - "):
            messages[test].append(line[4:])
        elif line.startswith("    "):
            messages[test][-1] += "\n" + line[4:]
        elif line:
            messages[test := line] = []
    return messages


def _compare(text: str) -> None:
    test, message = os.environ["PYTEST_CURRENT_TEST"].rpartition(" (")[0], _normalized(text)
    if _updated is None:
        rewrite = f"python -m pytest --update-golden {test.partition('::')[0]}"
        assert message in _messages_of(test), f"`{rewrite}` rewrites {GOLDEN.name}:\n{message}"
    elif message not in _updated.setdefault(test, []):
        _updated[test].append(message)


def _section(test: str, messages: list[str]) -> str:
    return "\n".join([test, *("  - " + message.replace("\n", "\n    ") for message in messages)]) + "\n"


def _normalized(message: str) -> str:
    for pattern, name in _VARIABLE:
        message = pattern.sub(name, message)
    return message.encode("utf-8", "backslashreplace").decode()  # half of a pair is no UTF-8
