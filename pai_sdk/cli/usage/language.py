"""The language of the help: Chinese for users whose locale is Chinese, English for all others."""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path

__all__ = ["TABLE", "normalized", "translated"]

TABLE = Path(__file__).with_name("help_zh.json")
"""Each text of the help, with its Chinese."""
_EXAMPLE = "Example:"


def translated(text: str) -> str:
    """Returns the text of a help in the user's language; paragraphs that are not in the table stay English."""
    return "\n\n".join(map(_paragraph, text.split("\n\n"))) if _is_chinese() else text


def normalized(paragraph: str) -> str:
    """Returns a paragraph as the table has it."""
    return " ".join(paragraph.split())


def _is_chinese() -> bool:
    # The order of POSIX: the first of these that is set decides.
    names = ("LC_ALL", "LC_MESSAGES", "LANG")
    return next(filter(None, map(os.environ.get, names)), "").startswith("zh")


def _paragraph(text: str) -> str:
    if text.startswith(f"{_EXAMPLE} "):
        return _table()[_EXAMPLE] + text.removeprefix(f"{_EXAMPLE} ")
    return _table().get(normalized(text), text)


@cache
def _table() -> dict[str, str]:
    table: dict[str, str] = json.loads(TABLE.read_text(encoding="utf-8"))
    return table
