"""Extracts the error from the output of pip. Standard library only."""

from __future__ import annotations

import re

__all__ = ["pip_problem"]

_ERROR = re.compile(r"^ERROR: (?!Could not find a version)(.+)$", re.MULTILINE)
_NO_RESPONSE = re.compile(r"^WARNING: Retrying .* after connection broken by '(.*)': /", re.MULTILINE)
_BUILD = re.compile(r"^\s*(\S.*)\n\s*\[end of output\]$", re.MULTILINE)
_OBJECT = re.compile(r"^.*(?:object at 0x\w+>|\(host=[^)]*\)): ")
_MAX_CHARS = 300


def pip_problem(output: str) -> str:
    r"""Returns why pip failed, from its output; empty if unknown."""
    problem = "; ".join(filter(None, [_last_match(_ERROR, output), _build_error(output), _index_error(output)]))
    return problem[:_MAX_CHARS]


def _build_error(output: str) -> str:
    last_line = _last_match(_BUILD, output)
    return f"a package could not be built: {last_line}" if last_line else ""


def _index_error(output: str) -> str:
    """Returns the warning that no index responds."""
    # pip then only reports that it finds no version.
    cause = _last_match(_NO_RESPONSE, output)
    return f"the package index does not respond: {_OBJECT.sub('', cause).rstrip(chr(39) + ')')}" if cause else ""


def _last_match(pattern: re.Pattern[str], output: str) -> str:
    matches = pattern.findall(output)
    return matches[-1].strip().rstrip(".:") if matches else ""
