"""Curves of runs as a picture: self-contained SVG, without a script, an iframe or a server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from pai_sdk._core.tables.html import NO_MATH, table_html
from pai_sdk._core.tables.table import Cell, Column, Table
from pai_sdk._data.run.events.series import Floats
from pai_sdk._data.run.plots.axes import number_text
from pai_sdk._data.run.plots.curve_view import XAxis
from pai_sdk._data.run.plots.drawing import MAX_LABELS, WIDTH, Curve, Line, draw, to_lines
from pai_sdk._data.run.plots.pictures import FONT, run_colour, safe_text, save_picture


@dataclass(frozen=True, eq=False)
class Comparison:
    """Curves that share one x axis.

    Attributes:
        x: the kind of the x axis, `metric:TAG` for another metric.
        edges: of the buckets, ascending, one more than there are buckets; a bucket includes its lower edge and not
            its upper one. They are multiples of one width, so a view that moves, or a run that grows, has equal
            edges where the views overlap.
        curves: in the order of the series, or of the first members of the groups.
        points: the number of points in the view, in all series.
        shown: the number of entries of the curves that represent these points.
        is_exact: True when the curves have every point, smoothed where that was requested.
        tags: of the series, each once.
        labels: the labels in pictures by the names of the curves, such as the name that a user gave to a run. A
            curve without an entry has its name as its label.
        left_out: the number of points without a finite x: the other metric has no such value at their step.
    """

    x: XAxis | str
    edges: Floats
    curves: tuple[Curve, ...]
    points: int
    shown: int
    is_exact: bool
    tags: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    left_out: int = 0

    def plot(self, title: str = "", *, log_y: bool = False) -> Plot:
        """Returns the curves as a picture, which a notebook displays; `save` writes it to a file.

        Args:
            title: above the picture; the tags by default.
            log_y: the y axis is logarithmic; values of 0 or less are counted and not drawn.

        Example:
            >>> import tempfile
            >>> from pai_sdk import ReportSession, RunManager
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     with ReportSession(f"{folder}/a") as run:
            ...         run.report({"loss": 0.5})
            ...     with RunManager(folder) as manager:
            ...         _ = manager.refresh()
            ...         manager.compare(["a"], "loss").plot().title
            'loss'
        """
        return Plot(self, title or ", ".join(self.tags), log_y)

    def _repr_html_(self) -> str:
        return self.plot().html

    def __repr__(self) -> str:
        return f"<Comparison {', '.join(self.tags)!r}: {_counts_text(self)}; plot() is the picture>"


@dataclass(frozen=True, eq=False)
class Plot:
    """A picture of curves, which a notebook displays."""

    comparison: Comparison
    title: str  # above the curves; a tag
    log_y: bool = False  # values of 0 or less are counted and not drawn

    @cached_property
    def svg(self) -> str:
        """The picture, as the content of an `.svg` file or inline in a page."""
        comparison = self.comparison
        view = None if comparison.is_exact else (float(comparison.edges[0]), float(comparison.edges[-1]))
        return draw(self._lines, title=self.title, x=comparison.x, view=view, log_y=self.log_y, note=self._note)

    @cached_property
    def html(self) -> str:
        """The picture; of many curves with a folded list of all of them below."""
        folded = _folded_legend(self._lines) if len(self._lines) > MAX_LABELS else ""
        picture = f'<div class="pai-plot" style="max-width:{WIDTH}px">{self.svg}{folded}</div>'
        return f"<div {NO_MATH}>{picture}</div>"

    def save(self, path: str | Path) -> Path:
        """Writes the picture to a file with the suffix `.svg` or `.html`, and returns its path."""
        return save_picture(path, self.title, svg=lambda: self.svg, html=lambda: self.html)

    @cached_property
    def _lines(self) -> list[Line]:
        return to_lines(self.comparison.curves, self.comparison.labels)

    @property
    def _note(self) -> str:
        points, entries = self.comparison.points, self.comparison.shown
        without_x = f", {self.comparison.left_out:,} without x" if self.comparison.left_out else ""
        if self.comparison.is_exact:
            return f"{points:,} point{'' if points == 1 else 's'}{without_x}"
        is_grouped = any(len(curve.members) > 1 for curve in self.comparison.curves)
        return f"{points:,} points in {entries:,} buckets{'' if is_grouped else ', extremes exact'}{without_x}"

    def _repr_html_(self) -> str:
        return self.html

    def __repr__(self) -> str:
        name = "".join(letter if letter.isalnum() else "-" for letter in self.title) or "plot"
        return (
            f"<Plot {self.title!r}: {_counts_text(self.comparison)}; "
            f"it displays itself in a notebook, save('{name}.svg') writes it>"
        )


def _counts_text(comparison: Comparison) -> str:
    count = len(comparison.curves)
    return f"{count:,} curve{'' if count == 1 else 's'}, {comparison.shown:,} of {comparison.points:,} points"


def _folded_legend(lines: Sequence[Line]) -> str:
    rows = [
        [
            Cell.of_markup(f'<span style="color:{run_colour(line.name)}">━</span> {safe_text(line.label)}'),
            number_text(line.last),
        ]
        for line in lines
    ]
    table = table_html(Table([Column("run"), Column("last")], rows), height="20em")
    return f'<details style="{FONT}"><summary>all {len(lines):,} curves</summary>{table}</details>'
