"""The text that remains visible of strings with control sequences."""

from __future__ import annotations

import re
from collections.abc import Sequence

_SEQUENCE = re.compile(
    r"(?P<colour>\x1b\[[0-9;:]*m)"
    r"|\x1b\[[0-?]*[ -/]*[@-~]"  # moves the cursor, clears the screen
    r"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?"  # a title, a link, an image
    r"|\x1b[ -/]*[0-~]?"
    r"|[\x00-\x08\x0b-\x1f\x7f-\x9f]"
)


def visible_text(text: str, *, colours: bool = False) -> str:
    """Returns the text that remains visible of a line in a terminal: of a progress bar, the last state."""
    states: Sequence[str] = [part for part in text.split("\r") if part]
    if not states:
        return ""
    # Of a job's control sequences only colours remain: a log line must not move the cursor or rename the window.
    return _SEQUENCE.sub(lambda match: (match["colour"] or "") if colours else "", states[-1])
