"""Parts that pictures and tables of runs share: safe text, colours, a small curve, and files.

Text and axes have the colour of the page's text, and curves have colours that can be read on a light and on a dark
page, so one picture fits both. Standard library only.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path

from pai_sdk._core.paths import parse_path
from pai_sdk.errors import InvalidInputError, Problem

FONT = "font-family:system-ui,sans-serif;font-size:11px"

# Each has a contrast of 3 or more against white and against a dark page.
COLOURS = (
    "#3b82e6", "#e0632a", "#2a9d5c", "#d6409f", "#8e6ce8", "#b0801a",
    "#1798a6", "#e5484d", "#6b8e23", "#a3629d", "#64748b", "#c2703d",
)  # fmt: skip

_PAGE = (
    '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><meta name="color-scheme" content="light dark">'
    '<meta name="viewport" content="width=device-width"><title>{title}</title></head>'
    '<body style="margin:12px;font-family:system-ui,sans-serif">{body}</body></html>\n'
)
_NOT_IN_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
_SMALL_WIDTH, _SMALL_HEIGHT = 180, 36
_SCALE_WIDTH = 46  # of the numbers to the left of a small curve


def safe_text(text: str) -> str:
    """Returns text of a run in a form that is safe in HTML and SVG: escaped, and without control characters."""
    return escape(_NOT_IN_XML.sub("", text))


def run_colour(run_id: str) -> str:
    """Returns the colour of a run, which is equal in every picture and process."""
    return COLOURS[hashlib.sha256(run_id.encode(errors="replace")).digest()[0] % len(COLOURS)]


def small_curve(
    values: Sequence[float],
    first_step: int | None = None,
    last_step: int | None = None,
    *,
    colour: str = COLOURS[0],
) -> str:
    """Returns finite values as a curve in small inline SVG, with its scale; empty for fewer than two values."""
    if len(values) < 2:
        return ""
    width, height = _SMALL_WIDTH, _SMALL_HEIGHT
    values = _extremes(values, width - _SCALE_WIDTH)
    low, high = min(values), max(values)
    spread = (high - low) or 1.0
    start_x, step_x = _SCALE_WIDTH, (width - _SCALE_WIDTH - 2) / (len(values) - 1)
    points = " ".join(
        f"{start_x + number * step_x:.1f},{height - 13 - (value - low) / spread * (height - 19):.1f}"
        for number, value in enumerate(values)
    )
    captions = [(start_x - 4, 9, "end", f"{high:.4g}"), (start_x - 4, height - 11, "end", f"{low:.4g}")]
    if last_step is not None and first_step is not None:
        captions.append((start_x, height - 3, "start", f"step {first_step}"))
        captions.append((width - 2, height - 3, "end", str(last_step)))
    labels = "".join(
        f'<text x="{x}" y="{y}" text-anchor="{anchor}">{escape(text)}</text>' for x, y, anchor, text in captions
    )
    return (
        f'<svg width="{width}" height="{height}" style="vertical-align:middle" role="img" '
        f'aria-label="from {values[0]:.5g} to {values[-1]:.5g}">'
        f'<g font-size="8" fill="currentColor" opacity=".65">{labels}</g>'
        f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/></svg>'
    )


def _extremes(values: Sequence[float], columns: int) -> Sequence[float]:
    """Returns the minimum and maximum of each column of pixels, and the first and the last value."""
    if len(values) <= 2 * columns:
        return values
    points = [values[0]]
    for column in range(columns):
        start, end = (len(values) * edge // columns for edge in (column, column + 1))
        part = values[start:end]
        low, high = min(part), max(part)
        points += [low, high] if part.index(low) < part.index(high) else [high, low]
    return [*points, values[-1]]


def save_picture(
    path: str | Path, title: str, *, html: Callable[[], str], svg: Callable[[], str] | None = None
) -> Path:
    """Writes a picture or a table to a file, as `.html`, or as `.svg` if there is a picture."""
    target = parse_path(path, "path")
    if target.suffix == ".html":
        content = _PAGE.format(title=safe_text(title), body=html())
    elif target.suffix == ".svg" and svg is not None:
        content = svg() + "\n"
    else:
        endings = ".svg or .html" if svg is not None else ".html"
        hint = f"use a name that ends with {endings}; a browser converts it to PNG or PDF"
        raise InvalidInputError([Problem("path", f"{target.name!r} is not a supported file type", hint)])
    target.write_text(content, encoding="utf-8")
    return target
