"""Finds the reason of a failure in the last lines of a log."""

from __future__ import annotations

import re
from collections.abc import Iterable

# Not in a line of metrics, such as "val_error: 0.25".
_REASON = re.compile(
    r"^\s*(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt)(?::\s|\s*$)"
    r"|^.{0,80}\b(?i:fatal|panic|error)\b\s*[:\]](?!\s*[-+.\d])"
    r"|(?i:\bsegmentation fault|\bcore dumped|\bbus error|\billegal instruction|\bout of memory"
    r"|\bcommand not found|: not found$|\bno such file or directory|\bpermission denied|^\s*killed\s*$)"
)
_LINE_START = 500  # characters of a line that are searched


def shows_reason(lines: Iterable[str]) -> bool:
    """Returns whether the last lines of a log show why a program failed: an exception, an error, a crash."""
    # A traceback without its last line shows no reason yet: that line is still to come.
    return any(_REASON.search(line[:_LINE_START]) for line in lines)
