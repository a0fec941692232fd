"""The filter of the list of runs for a user: their stars, and jobs that are not archived."""

from __future__ import annotations

import re

from pai_sdk._data.run.watch.filter import RunFilter, parse_filter
from pai_sdk._data.run.watch.records import RunBrief
from pai_sdk._service.wire_errors import WireError, invalid_parameter
from pai_sdk.errors import InvalidInputError

_STARRED_BY = "starred_by"
# Strings in quotes are matched first, so that conditions are not found within them.
_PARTS = re.compile(
    r""""(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|"""
    r"(?<!\S)(?:star\s*(?P<is_not>!?)==?\s*(?P<value>true|false)(?!\S)|(?P<key>archived|id)\s*[=!~])",
    re.DOTALL,
)


class _AnyLabel(dict[str, str]):
    def __contains__(self, key: object) -> bool:
        return True


# Every plain name is a label of this run, and labels have any text. So whatever the list accepts is parsed here.
_LENIENT = (RunBrief("", labels=_AnyLabel()),)


def page_filter(text: str, user: str) -> str:
    """Returns a filter in which `star=true` means a star of the user.

    It leaves out archived jobs unless the filter names `archived`, or selects jobs by their ids. Raises WireError
    for a filter by the stars of other users.
    """
    hides_archived = not any(match["key"] for match in _PARTS.finditer(text))
    resolved = _PARTS.sub(lambda match: _starred(match, user) if match["value"] else match[0], text)
    try:
        parsed = parse_filter(resolved, briefs=_LENIENT)
    except InvalidInputError:
        parsed = RunFilter()  # the list reports it
    if any(
        operator not in ("=", "!=") or values != (user,) for operator, values in parsed.conditions_on(_STARRED_BY)
    ):
        raise _stars_are_private("filter")
    return f"{resolved} archived=false" if hides_archived else resolved


def check_key(parameter: str, key: str) -> None:
    """Raises WireError for a key that shows which users have put a star on a job."""
    if key.removeprefix("-") == _STARRED_BY:
        raise _stars_are_private(parameter)


def _stars_are_private(parameter: str) -> WireError:
    return invalid_parameter(f"{parameter}: stars are shown to their users only; filter by star=true.")


def _starred(match: re.Match[str], user: str) -> str:
    is_not = (match["is_not"] == "!") != (match["value"] == "false")
    return f'starred_by{"!" if is_not else ""}="{user}"'
