"""Renders tables and the badge of a status as HTML, for notebooks with light and dark pages."""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape

from pai_sdk._core.tables.table import Cell, Column, Table
from pai_sdk._core.terminal_text import visible_text

NO_MATH = 'class="mathjax_ignore tex2jax_ignore"'
"""The attribute of an element whose text MathJax leaves as it is: between two `$` would be a formula."""

# With white letters on them, each has a contrast of 4.5 or more.
BADGE_COLOURS = {
    "success": "#1a7f37",
    "failure": "#cf222e",
    "stopped": "#9a6700",
    "running": "#0969da",
    "unknown": "#656d76",
}

_NUMBER = re.compile(r"-?|[-+]?(\d[\d.,]*(e[-+]?\d+)?|nan|inf)")
_CELL = "padding:2px 10px;text-align:{side};white-space:nowrap;vertical-align:top"
_HEAD = f"{_CELL};opacity:.65;font-weight:600"
_BODY = f"{_CELL};border-top:1px solid rgba(128,128,128,.25)"
_TABLE = (
    "border-collapse:collapse;margin:0;font-family:system-ui,sans-serif;font-size:13px;"
    "font-variant-numeric:tabular-nums"
)
_BOX = "display:inline-block;max-width:100%;overflow:auto"


def badge_html(text: str, kind: str) -> str:
    """Returns a status on the colour of its kind; the text is escaped."""
    style = "color:white;border-radius:10px;padding:1px 9px;font-size:12px;white-space:nowrap"
    return f'<span style="background:{BADGE_COLOURS[kind]};{style}">{escape(text)}</span>'


def table_html(table: Table, *, height: str = "none") -> str:
    """Renders a table in a scrolling box of this maximal height; columns of numbers are right-aligned."""
    rows = [[*map(_content, table.columns, row)] for row in table.rows]
    columns = zip(*rows, strict=True) if rows else [()] * len(table.columns)
    sides = [
        column.align or ("right" if all(_NUMBER.fullmatch(text) for text, _ in cells) else "left")
        for column, cells in zip(table.columns, columns, strict=True)
    ]

    def line(tag: str, style: str, cells: Iterable[str]) -> str:
        pairs = zip(cells, sides, strict=True)
        cells_html = (f'<{tag} style="{style.format(side=side)}">{cell}</{tag}>' for cell, side in pairs)
        return f"<tr>{''.join(cells_html)}</tr>"

    head = line("th", _HEAD, [escape(column.title) for column in table.columns])
    body = "".join(line("td", _BODY, [html for _, html in row]) for row in rows)
    html = f'<table style="{_TABLE}"><thead>{head}</thead><tbody>{body}</tbody></table>'
    _, below = _content(Column(""), table.caption)
    under = f'<div style="font-size:12px;opacity:.65;margin-top:4px">{below}</div>' if below else ""
    return f'<div {NO_MATH}><div style="{_BOX};max-height:{height}">{html}</div>{under}</div>'


def _content(column: Column, cell: object) -> tuple[str, str]:
    """Returns the text and the markup of a cell."""
    if isinstance(cell, Cell) and cell.html is not None:
        return cell.text, cell.html
    text = visible_text(cell.text if isinstance(cell, Cell) else column.format(cell))
    is_bold = isinstance(cell, Cell) and cell.style == "bold"
    return text, f"<b>{escape(text)}</b>" if is_bold else escape(text)
