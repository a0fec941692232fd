"""A table as aligned text, and as HTML that fits a light and a dark page."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from pai_sdk.display.base import visible_text

__all__ = ["html_table", "text_table", "value_text"]

_WIDEST = 48
_CELL = "padding:2px 10px;text-align:{side};white-space:nowrap"
_TABLE = (
    "border-collapse:collapse;font-family:system-ui,sans-serif;font-size:13px;font-variant-numeric:tabular-nums"
)
_BOX = "display:inline-block;max-width:100%;max-height:{height};overflow:auto"


def value_text(value: object) -> str:
    """A value in a cell: a number with five digits, a dash for nothing.

    Example:
        >>> [value_text(value) for value in (0.123456, 3, None, "adam")]
        ['0.12346', '3', '-', 'adam']
    """
    if value is None:
        return "-"
    return f"{value:.5g}" if isinstance(value, float) else str(value)


def text_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    r"""The lines of the table, its head first. Columns of numbers are aligned at the right.

    Example:
        >>> print(*text_table(["job", "loss"], [["a", 0.5], ["bcd", 12.25]]), sep="\n")
        job   loss
        a      0.5
        bcd  12.25
    """
    cells = [[*columns], *([_clipped(value_text(value)) for value in row] for row in rows)]
    widths = [max(len(row[at]) for row in cells) for at in range(len(columns))]
    right = [_is_numeric([row[at] for row in rows]) for at in range(len(columns))]
    return [
        "  ".join(
            text.rjust(width) if is_right else text.ljust(width)
            for text, width, is_right in zip(row, widths, right, strict=True)
        ).rstrip()
        for row in cells
    ]


def html_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    caption: str = "",
    height: str = "30em",
) -> str:
    """The table as HTML, in a box of its own that scrolls.

    Args:
        columns: the head.
        rows: the cells.
        caption: a line below it.
        height: the most height, as CSS.

    Example:
        >>> html_table(["job"], [["<b>"]]).count("&lt;b&gt;")
        1
    """
    sides = ["right" if _is_numeric([row[at] for row in rows]) else "left" for at in range(len(columns))]
    head = "".join(
        f'<th style="{_CELL.format(side=side)};opacity:.65;font-weight:600">{escape(name)}</th>'
        for name, side in zip(columns, sides, strict=True)
    )
    body = []
    for row in rows:
        cells = "".join(
            f'<td style="{_CELL.format(side=side)}">{escape(visible_text(value_text(value)))}</td>'
            for value, side in zip(row, sides, strict=True)
        )
        body.append(f'<tr style="border-top:1px solid rgba(128,128,128,.25);background:none">{cells}</tr>')
    below = f'<div style="font-size:12px;opacity:.65;margin-top:4px">{escape(caption)}</div>' if caption else ""
    table = f'<table style="{_TABLE}"><thead><tr>{head}</tr></thead><tbody>{"".join(body)}</tbody></table>'
    return f'<div style="{_BOX.format(height=height)}">{table}</div>{below}'


def _is_numeric(values: Sequence[object]) -> bool:
    there = [value for value in values if value is not None]
    return bool(there) and all(isinstance(value, int | float) for value in there)


def _clipped(text: str) -> str:
    shown = visible_text(text.replace("\n", " "))
    return shown if len(shown) <= _WIDEST else f"{shown[: _WIDEST - 1]}…"
