"""The language of help and usage errors: Chinese for users whose locale is Chinese, English for all others."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path

from pai_sdk.cli.usage.mistakes import UsageError

__all__ = ["TABLE", "normalized", "translated", "translated_errors", "translated_usage"]

TABLE = Path(__file__).with_name("help_zh.json")
"""Each text of the help, with its Chinese."""
_OF_TYPER = Path(__file__).with_name("typer_zh.json")
"""The words of Typer: in the line of the usage, its constants, and patterns of its messages."""
_EXAMPLE = "Example:"


def translated(text: str) -> str:
    """Returns the text of a help in the user's language; paragraphs that are not in the table stay English."""
    return "\n\n".join(map(_paragraph, text.split("\n\n"))) if _is_chinese() else text


def translated_usage(usage: str) -> str:
    """Returns the line `Usage: …` in the user's language."""
    if _is_chinese():
        _name_panels()
        for english, chinese in _typer_table()["usage"].items():
            usage = usage.replace(english, chinese, 1)
    return usage


def _name_panels() -> None:
    """Gives the panels of Typer Chinese titles, for which it has no other way than its constants."""
    # Typer loads the module to print, and then requests the usage or the message before it reads a title.
    if (printing := sys.modules.get("typer.rich_utils")) is not None:
        titles = _typer_table()["constants"]
        for name in titles.keys() & vars(printing).keys():
            setattr(printing, name, titles[name])


@contextmanager
def translated_errors() -> Iterator[None]:
    """Raises the errors of Typer in the block with messages in the user's language."""
    try:
        yield
    except UsageError as error:
        if _is_chinese():
            error.format_message = partial(_translated_message, error.format_message())
        raise


def _translated_message(message: str) -> str:
    _name_panels()
    for pattern, chinese in _typer_table()["messages"].items():
        if match := re.fullmatch(pattern, message, re.DOTALL):
            return str(chinese).format(*match.groups())
    return message


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
def _typer_table() -> dict[str, dict[str, str]]:
    table: dict[str, dict[str, str]] = json.loads(_OF_TYPER.read_text(encoding="utf-8"))
    return table


@cache
def _table() -> dict[str, str]:
    table: dict[str, str] = json.loads(TABLE.read_text(encoding="utf-8"))
    return table
