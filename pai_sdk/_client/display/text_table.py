"""Renders a table of values as aligned text."""

from __future__ import annotations

from collections.abc import Sequence

from pai_sdk._client.display.base import visible_text
from pai_sdk._core.html_table import value_text

__all__ = ["text_table"]

_MAX_WIDTH = 48


def text_table(
    columns: Sequence[str], rows: Sequence[Sequence[object]], *, last_column: int = _MAX_WIDTH
) -> list[str]:
    """Returns the lines of the table, its head first. Columns of numbers are aligned at the right."""
    limits = [*[_MAX_WIDTH] * (len(columns) - 1), last_column]
    cells = [
        [*columns],
        *([_clipped(value_text(value), limit) for value, limit in zip(row, limits, strict=True)] for row in rows),
    ]
    widths = [max(len(row[at]) for row in cells) for at in range(len(columns))]
    right = [_is_numeric([row[at] for row in rows]) for at in range(len(columns))]
    return [
        "  ".join(
            text.rjust(width) if is_right else text.ljust(width)
            for text, width, is_right in zip(row, widths, right, strict=True)
        ).rstrip()
        for row in cells
    ]


def _is_numeric(values: Sequence[object]) -> bool:
    present = [value for value in values if value is not None]
    return bool(present) and all(isinstance(value, int | float) for value in present)


def _clipped(text: str, limit: int) -> str:
    visible = visible_text(text.replace("\n", " "))
    return visible if len(visible) <= limit else f"{visible[: limit - 1]}…"
