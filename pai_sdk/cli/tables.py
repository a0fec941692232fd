"""Prints tables and properties in a terminal. Names and ids are never truncated, so that they can be copied."""

from __future__ import annotations

import json
import math
import os
import select
import shutil
import stat
import sys
import textwrap
import threading
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import typer

from pai_sdk._core.tables.table import Column, Table
from pai_sdk._core.tables.terminal import FittedTable
from pai_sdk._core.terminal_text import visible_text
from pai_sdk.cli import exit_codes

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from pai_sdk._client.backend.base import Plan

_WIDE = 1000
_MIN_VALUE_WIDTH = 24  # terminal cells that are reserved for a value beside its name


def table_console() -> Console:
    """Creates a console for tables: as wide as the window; in a pipe or a file, as wide as the table."""
    from rich.console import Console

    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=_WIDE)


def print_table(table: Table, *, as_json: bool = False) -> list[Column]:
    """Prints a table, or each row as JSON; returns the columns that a narrow window has no room for."""
    if as_json:
        for row in table.objects():
            print_json(row)
        return []
    console = table_console()
    fitted = FittedTable(table, console.width)
    for line in fitted.lines():
        console.print(line, soft_wrap=True)
    return fitted.dropped


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


def exit_with_reader() -> None:
    """Ends this process when the reader of its stdout has ended, as `| head` does before the next line comes."""
    try:
        descriptor = sys.stdout.fileno()
        is_pipe = stat.S_ISFIFO(os.fstat(descriptor).st_mode)
    except (AttributeError, OSError, ValueError):
        return
    if not is_pipe or sys.platform == "win32":
        return
    poll = select.poll()
    poll.register(descriptor, 0)  # POLLERR and POLLHUP are always reported

    def wait() -> None:
        poll.poll()
        os._exit(exit_codes.SUCCEEDED)  # the buffered rest has no reader

    threading.Thread(target=wait, name="pai-stdout", daemon=True).start()


def print_error(text: str) -> None:
    """Prints an error to stderr, in a terminal wrapped at words."""
    # Parts of it come from jobs and services, and could control the terminal.
    text = "\n".join(visible_text(line) for line in text.split("\n"))
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


def print_plan(plan: Plan) -> None:
    """Prints a request as one JSON document on stdout, and what else the plan says on stderr."""
    typer.echo(json.dumps(plan.masked_body(), ensure_ascii=False, indent=2))
    for remark in plan.remarks():
        typer.echo(remark, err=True)


def print_warnings(plan: Plan) -> None:
    """Prints the probable mistakes in a plan on stderr."""
    for warning in plan.warnings:
        typer.echo(f"warning: {warning}", err=True)


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
