"""Prints responses as the command line of DLC does: JSON, a box with ids, plain columns."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import typer

from pai_sdk._core.terminal_text import visible_text
from pai_sdk._wire.dlc.masking import public_body
from pai_sdk.errors import ApiError

_EMPTY = "-"  # keeps the number of columns for scripts that split lines at spaces


def print_body(body: Mapping[str, Any]) -> None:
    """Prints a body as JSON with sorted keys; secrets are masked."""
    typer.echo(json.dumps(public_body(body), ensure_ascii=False, sort_keys=True, indent=3))


def print_box(fields: Mapping[str, str]) -> None:
    """Prints one row in a box with names above the values."""
    widths = [max(len(name), len(value)) for name, value in fields.items()]
    border = "+" + "+".join("-" * (width + 2) for width in widths) + "+"
    names = " | ".join(name.center(width) for name, width in zip(fields, widths, strict=True))
    values = " | ".join(value.ljust(width) for value, width in zip(fields.values(), widths, strict=True))
    for line in (border, f"| {names} |", border, f"| {values} |", border):
        typer.echo(line)


def print_columns(names: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Prints rows below their names; no cell is empty or has a space, so that scripts can split a line."""
    cells = [[*names], *([_cell(value) for value in row] for row in rows)]
    widths = [max(len(row[index]) for row in cells) for index in range(len(names))]
    for row in cells:
        typer.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _cell(value: object) -> str:
    text = visible_text("" if value is None else str(value))
    return re.sub(r"\s+", "_", text.strip()) or _EMPTY


def print_lines(lines: Iterable[str]) -> None:
    """Prints lines of a log or events."""
    for line in lines:
        typer.echo(visible_text(line) if sys.stdout.isatty() else line)


def refusal_text(error: ApiError) -> str:
    """Returns the refusal of a service as the original prints it.

    Example:
        >>> refusal_text(ApiError("StopJob: it is Stopped [BadRequest, HTTP 400]", code="BadRequest",
        ...                       status_code=400, request_id="R1"))
        'code: 400, it is Stopped request id: R1'
    """
    sentence = re.sub(r"^[A-Z]\w+: ", "", str(error))
    sentence = re.sub(r" \[[^\[\]]*HTTP \d+[^\[\]]*\]$", "", sentence)
    return f"code: {error.status_code}, {sentence} request id: {error.request_id or ''}".rstrip()
