"""The HTML table for jobs, runs and curves in notebooks, and the badge of a status; light and dark pages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape

__all__ = ["BADGE_COLOURS", "NO_MATH", "badge_html", "hparam_text", "html_table", "value_text"]

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

_MAX_WIDTH = 40
_NUMBER = re.compile(r"-?|[-+]?(\d[\d.,]*(e[-+]?\d+)?|nan|inf)")
_CELL = "padding:2px 10px;text-align:{side};white-space:nowrap;vertical-align:top"
_HEAD = f"{_CELL};opacity:.65;font-weight:600"
_BODY = f"{_CELL};border-top:1px solid rgba(128,128,128,.25)"
_TABLE = (
    "border-collapse:collapse;margin:0;font-family:system-ui,sans-serif;font-size:13px;"
    "font-variant-numeric:tabular-nums"
)
_BOX = "display:inline-block;max-width:100%;overflow:auto"


def value_text(value: object) -> str:
    """Returns a value for a cell: a number with six digits, a dash for None."""
    if value is None:
        return "-"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def badge_html(text: str, kind: str) -> str:
    """Returns a status on the colour of its kind; the text is escaped."""
    style = "color:white;border-radius:10px;padding:1px 9px;font-size:12px;white-space:nowrap"
    return f'<span style="background:{BADGE_COLOURS[kind]};{style}">{escape(text)}</span>'


def hparam_text(hparams: Mapping[str, object], name: str, *, missing: str = "-") -> str:
    """Returns a hyperparameter for a cell, shortened; `None` is a value."""
    text = missing if name not in hparams else "None" if hparams[name] is None else value_text(hparams[name])
    return text if len(text) <= _MAX_WIDTH else f"{text[: _MAX_WIDTH - 1]}…"


def html_table(
    titles: Sequence[str], rows: Sequence[Sequence[str]], *, height: str = "none", below: str = ""
) -> str:
    """Returns the table as HTML, in a scrolling box; columns of numbers are right-aligned."""
    # `titles` is text; `rows` and `below` are HTML; `height` is the maximum, in CSS.
    columns = zip(*rows, strict=True) if rows else [()] * len(titles)
    sides = ["right" if all(map(_NUMBER.fullmatch, column)) else "left" for column in columns]

    def line(tag: str, style: str, cells: Iterable[str]) -> str:
        pairs = zip(cells, sides, strict=True)
        cells_html = (f'<{tag} style="{style.format(side=side)}">{cell}</{tag}>' for cell, side in pairs)
        return f"<tr>{''.join(cells_html)}</tr>"

    head = line("th", _HEAD, map(escape, titles))
    body = "".join(line("td", _BODY, row) for row in rows)
    table = f'<table style="{_TABLE}"><thead>{head}</thead><tbody>{body}</tbody></table>'
    under = f'<div style="font-size:12px;opacity:.65;margin-top:4px">{below}</div>' if below else ""
    return f'<div {NO_MATH}><div style="{_BOX};max-height:{height}">{table}</div>{under}</div>'
