"""Tables and facts in a terminal: names and ids are never cut, because what is cut cannot be copied."""

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

from pai_sdk.display.base import visible_text

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

__all__ = ["Column", "print_error", "print_facts", "print_json", "print_table", "table_console", "wrapped"]

_WIDE = 1000
_GAP = 2
_LEAST_VALUE = 24  # cells that a value needs beside its name


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        title: its head.
        drop: in a narrow window, columns with the highest number are left out first; 0 is never left out.
        justify: `left` or `right`.
        own_line: in a narrow window, it goes on a line of its own below its row, before others are left out.
    """

    title: str
    drop: int = 0
    justify: str = "left"
    own_line: bool = False


def table_console() -> Console:
    """The console for tables: as wide as the window; in a pipe or a file, as wide as the table."""
    from rich.console import Console

    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=_WIDE)


def print_table(columns: Sequence[Column], rows: Sequence[Sequence[str | Text]]) -> list[Column]:
    """Print rows; where the window is too narrow, columns are dropped or get a line of their own.

    Args:
        columns: the columns.
        rows: a cell for each column. Control sequences are taken out of texts.

    Returns:
        The columns that were dropped.
    """
    from rich.text import Text

    cells = [[Text(visible_text(cell)) if isinstance(cell, str) else cell for cell in row] for row in rows]
    console = table_console()
    widths = [
        max([len(column.title), *(row[place].cell_len for row in cells)]) for place, column in enumerate(columns)
    ]
    shown, below = _fitted(columns, widths, console.width)
    _print_line(console, [Text(columns[place].title, style="bold") for place in shown], columns, shown, widths)
    for row in cells:
        _print_line(console, [row[place] for place in shown], columns, shown, widths)
        for place in below:
            if row[place].plain:
                console.print(Text("  ").append_text(row[place]), soft_wrap=True)
    return [column for place, column in enumerate(columns) if widths[place] and place not in (*shown, *below)]


def _fitted(columns: Sequence[Column], widths: Sequence[int], most: int) -> tuple[list[int], list[int]]:
    """The columns that fit side by side, and those below them."""
    places = [place for place in range(len(columns)) if widths[place]]

    def fits(chosen: Sequence[int]) -> bool:
        return sum(widths[place] for place in chosen) + _GAP * (len(chosen) - 1) <= most

    # The least that is lost first: one droppable column, then lines of their own, then more columns.
    droppable = sorted((place for place in places if columns[place].drop), key=lambda at: -columns[at].drop)
    below = [place for place in places if columns[place].own_line]
    for moved in ([], below):
        for count in range(len(droppable) + 1):
            if below and not moved and count > 1:
                break
            chosen = [place for place in places if place not in moved and place not in droppable[:count]]
            if fits(chosen):
                return chosen, moved
    return [place for place in places if place not in below and place not in droppable], below


def _print_line(
    console: Console, cells: Sequence[Text], columns: Sequence[Column], shown: Sequence[int], widths: Sequence[int]
) -> None:
    from rich.text import Text

    line = Text()
    for number, (place, cell) in enumerate(zip(shown, cells, strict=True)):
        padding = " " * (widths[place] - cell.cell_len)
        line.append(" " * _GAP if number else "")
        if columns[place].justify == "right":
            line.append(padding).append_text(cell)
        else:
            line.append_text(cell).append(padding if number + 1 < len(cells) else "")
    line.rstrip()
    console.print(line, soft_wrap=True)


def print_facts(facts: Iterable[tuple[str, str | Text]], *, indent: str = "", prose: Collection[str] = ()) -> None:
    """Print names and values, one pair a line. The terminal wraps long values, so that they can be copied whole.

    Args:
        facts: the pairs.
        indent: in front of each.
        prose: the names of values that are wrapped at words instead.
    """
    from rich.text import Text

    rows = [(name, Text(visible_text(value)) if isinstance(value, str) else value) for name, value in facts]
    console = table_console()
    most = max(8, console.width - _LEAST_VALUE) if console.is_terminal else _WIDE
    width = max((len(name) for name, _ in rows if len(name) <= most), default=0)
    for name, value in rows:
        head = Text(indent).append(name.ljust(width), style="dim").append("  ")
        if name not in prose:
            console.print(head.append_text(value), soft_wrap=True)
            continue
        begin = head.cell_len
        first, *more = wrapped(value.plain, console.width - begin - 1)
        console.print(head.append(first), soft_wrap=True)
        for line in more:
            console.print(Text(" " * begin + line), soft_wrap=True)


def print_error(text: str) -> None:
    """Print what went wrong to stderr, in a terminal wrapped at words."""
    width = shutil.get_terminal_size().columns if sys.stderr.isatty() else _WIDE
    shown = text if width >= _WIDE else "\n".join(wrapped(text, width - 1))
    typer.secho(shown, fg=None if os.environ.get("NO_COLOR") else "red", err=True)


def wrapped(text: str, width: int) -> list[str]:
    """The lines of a text, wrapped at words; long words such as paths stay whole, and indentation is kept.

    Example:
        >>> wrapped("one two three four five", 20)
        ['one two three four', 'five']
    """
    lines: list[str] = []
    for line in text.splitlines():
        indent = " " * (len(line) - len(line.lstrip()) + 2) if line.startswith(" ") else ""
        lines += textwrap.wrap(
            line, max(20, width), break_long_words=False, break_on_hyphens=False, subsequent_indent=indent
        ) or [""]
    return lines or [""]


def print_json(value: Any) -> None:
    """Print one JSON object on one line, for scripts; nan and infinity are text, as JSON has no such numbers."""
    typer.echo(json.dumps(_finite(value), ensure_ascii=False, default=str, allow_nan=False))


def _finite(value: Any) -> Any:
    """The value with `nan`, `inf` and `-inf` as text.

    Example:
        >>> _finite({"loss": float("nan"), "scores": [1.0, float("-inf")]})
        {'loss': 'nan', 'scores': [1.0, '-inf']}
    """
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {name: _finite(inside) for name, inside in value.items()}
    return [_finite(inside) for inside in value] if isinstance(value, list | tuple) else value
