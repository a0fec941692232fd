"""Prints tables and properties in a terminal. Names and ids are never truncated, so that they can be copied."""

from __future__ import annotations

import json
import math
import os
import shutil
import sys
import textwrap
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import typer

from pai_sdk._client.display.base import visible_text

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

__all__ = ["Column", "print_error", "print_json", "print_properties", "print_table", "table_console", "wrapped"]

_WIDE = 1000
_GAP = 2
_MIN_VALUE_WIDTH = 24  # terminal cells that are reserved for a value beside its name


@dataclass(frozen=True)
class Column:
    """A column of a table."""

    title: str
    drop: int = 0  # in a narrow window the highest number is dropped first; 0 is never dropped
    justify: str = "left"  # `left` or `right`
    # In a narrow window, it moves to a line of its own below its row before others are dropped.
    wraps: bool = False


def table_console() -> Console:
    """Creates a console for tables: as wide as the window; in a pipe or a file, as wide as the table."""
    from rich.console import Console

    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=_WIDE)


def print_table(columns: Sequence[Column], rows: Sequence[Sequence[str | Text]]) -> list[Column]:
    """Prints rows without control sequences; returns the columns that a narrow window made it drop."""
    from rich.text import Text

    cells = [[Text(visible_text(cell)) if isinstance(cell, str) else cell for cell in row] for row in rows]
    console = table_console()
    widths = [
        max([len(column.title), *(row[index].cell_len for row in cells)]) for index, column in enumerate(columns)
    ]
    visible, below = _fitted(columns, widths, console.width)
    _print_line(console, [Text(columns[index].title, style="bold") for index in visible], columns, visible, widths)
    for row in cells:
        _print_line(console, [row[index] for index in visible], columns, visible, widths)
        for index in below:
            if row[index].plain:
                console.print(Text("  ").append_text(row[index]), soft_wrap=True)
    return [column for index, column in enumerate(columns) if widths[index] and index not in (*visible, *below)]


def _fitted(columns: Sequence[Column], widths: Sequence[int], max_width: int) -> tuple[list[int], list[int]]:
    """Returns the indexes of the columns that fit side by side, and of those on lines of their own."""
    indexes = [index for index in range(len(columns)) if widths[index]]

    def fits(chosen: Sequence[int]) -> bool:
        return sum(widths[index] for index in chosen) + _GAP * (len(chosen) - 1) <= max_width

    # In the order of loss: one droppable column, then lines of their own, then more columns.
    droppable = sorted((index for index in indexes if columns[index].drop), key=lambda at: -columns[at].drop)
    below = [index for index in indexes if columns[index].wraps]
    for moved in ([], below):
        for count in range(len(droppable) + 1):
            if below and not moved and count > 1:
                break
            chosen = [index for index in indexes if index not in moved and index not in droppable[:count]]
            if fits(chosen):
                return chosen, moved
    return [index for index in indexes if index not in below and index not in droppable], below


def _print_line(
    console: Console,
    cells: Sequence[Text],
    columns: Sequence[Column],
    visible: Sequence[int],
    widths: Sequence[int],
) -> None:
    from rich.text import Text

    line = Text()
    for number, (index, cell) in enumerate(zip(visible, cells, strict=True)):
        padding = " " * (widths[index] - cell.cell_len)
        line.append(" " * _GAP if number else "")
        if columns[index].justify == "right":
            line.append(padding).append_text(cell)
        else:
            line.append_text(cell).append(padding if number + 1 < len(cells) else "")
    line.rstrip()
    console.print(line, soft_wrap=True)


def print_properties(
    properties: Iterable[tuple[str, str | Text]], *, indent: str = "", prose: Collection[str] = ()
) -> None:
    """Prints names and values, one pair a line; values in `prose` are wrapped at words."""
    from rich.text import Text

    rows = [(name, Text(visible_text(value)) if isinstance(value, str) else value) for name, value in properties]
    console = table_console()
    max_width = max(8, console.width - _MIN_VALUE_WIDTH) if console.is_terminal else _WIDE
    width = max((len(name) for name, _ in rows if len(name) <= max_width), default=0)
    for name, value in rows:
        head = Text(indent).append(name.ljust(width), style="dim").append("  ")
        if name not in prose:
            console.print(head.append_text(value), soft_wrap=True)
            continue
        start = head.cell_len
        first, *more = wrapped(value.plain, console.width - start - 1)
        console.print(head.append(first), soft_wrap=True)
        for line in more:
            console.print(Text(" " * start + line), soft_wrap=True)


def print_error(text: str) -> None:
    """Prints an error to stderr, in a terminal wrapped at words."""
    width = shutil.get_terminal_size().columns if sys.stderr.isatty() else _WIDE
    message = text if width >= _WIDE else "\n".join(wrapped(text, width - 1))
    typer.secho(message, fg=None if os.environ.get("NO_COLOR") else "red", err=True)


def wrapped(text: str, width: int) -> list[str]:
    """Wraps a text at words; long words such as paths are not broken, and indentation is kept."""
    lines: list[str] = []
    for line in text.splitlines():
        indent = " " * (len(line) - len(line.lstrip()) + 2) if line.startswith(" ") else ""
        lines += textwrap.wrap(
            line, max(20, width), break_long_words=False, break_on_hyphens=False, subsequent_indent=indent
        ) or [""]
    return lines or [""]


def print_json(value: Any) -> None:
    """Prints a JSON object on one line; nan and infinity become strings, because JSON has no such numbers."""
    typer.echo(json.dumps(_finite(value), ensure_ascii=False, default=str, allow_nan=False))


def _finite(value: Any) -> Any:
    """Returns the value with `nan`, `inf` and `-inf` as strings."""
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {name: _finite(item) for name, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list | tuple) else value
