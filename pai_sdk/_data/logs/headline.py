"""Finds the sentence that says why a job failed: the exception in its log, or the reason of the service."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pai_sdk._core.reasons import REASON_NON_ZERO_EXIT, exit_reason
from pai_sdk._data.logs.tracebacks import root_cause

# The last line of a program that ends without a traceback: argparse and other programs, Python, the shell.
_FINAL_ERROR = re.compile(r"(?:[\w./+-]+: (?:fatal )?error: |\S*python[\d.]*: |(?:/bin/)?(?:ba|da)?sh: )\S")


def cause_in(traceback: str, lines: Sequence[str]) -> str:
    """Returns the root cause of a traceback, else the last line of a log if a program says there why it ended."""
    if traceback:
        return root_cause(traceback)
    line = next((line for line in reversed(lines) if line.strip()), "")
    return line.strip() if _FINAL_ERROR.match(line) else ""


def headline(
    cause: str, reason_code: str | None, message: str, instance: str | None, exit_code: int | None
) -> tuple[str, str]:
    """Returns the headline and a second message of the service; a cause is preferred to an exit code."""
    if not cause or reason_code not in (None, REASON_NON_ZERO_EXIT):
        return message or reason_code or "the service gives no reason", ""
    if instance is not None and exit_code is not None:
        message = message.removeprefix(exit_reason(instance, exit_code)[1]).lstrip()
    return cause, message
