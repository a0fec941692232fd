"""The filter of the list of runs for a user: their stars, and jobs that are not archived."""

from __future__ import annotations

import re

# Strings in quotes are matched first, so that conditions are not found within them.
_PARTS = re.compile(
    r""""(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|"""
    r"(?<!\S)(?:star\s*(?P<is_not>!?)==?\s*(?P<value>true|false)(?!\S)|(?P<key>archived|id)\s*[=!~])",
    re.DOTALL,
)


def page_filter(text: str, user: str) -> str:
    """Returns a filter in which `star=true` means a star of the user.

    It leaves out archived jobs unless the filter names `archived`, or selects jobs by their ids.
    """
    hides_archived = not any(match["key"] for match in _PARTS.finditer(text))
    resolved = _PARTS.sub(lambda match: _starred(match, user) if match["value"] else match[0], text)
    return f"{resolved} archived=false" if hides_archived else resolved


def _starred(match: re.Match[str], user: str) -> str:
    is_not = (match["is_not"] == "!") != (match["value"] == "false")
    return f'starred_by{"!" if is_not else ""}="{user}"'
