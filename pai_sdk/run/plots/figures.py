"""Curves of runs as a picture: self-contained SVG, without script, frame and port."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal, TypeAlias

from pai_sdk.base.html_table import NO_MATH, html_table
from pai_sdk.run.events.series import Floats
from pai_sdk.run.plots.axes import number_text
from pai_sdk.run.plots.drawing import MOST_LABELS, WIDTH, Curve, Line, draw, lines_of
from pai_sdk.run.plots.pictures import FONT, run_colour, save_picture, shown_text

__all__ = ["Comparison", "Plot", "XAxis"]

XAxis: TypeAlias = Literal["step", "relative_step", "relative_time", "wall"]
"""The x axis: the step, the steps since the first one, the seconds since the first point, or since 1970."""


@dataclass(frozen=True, eq=False)
class Comparison:
    """Curves that share one x axis.

    Attributes:
        x: what x is.
        edges: of the buckets, ascending, one more than there are buckets; a bucket has its lower edge and not its
            upper one. They are multiples of one width, so a view that moves, or a run that grows, keeps the edges
            that it still needs.
        curves: in the order of the series, or of the first members of the groups.
        points: how many points there are in the view, in all series.
        shown: how many entries the curves have for them.
        is_exact: True when the curves have every point, smoothed where that was asked for.
        tags: of the series, each once.
        labels: by the name of a curve, what pictures call it: the name that a user gave to the run. Without an
            entry here, a curve is called by its name.
    """

    x: XAxis
    edges: Floats
    curves: tuple[Curve, ...]
    points: int
    shown: int
    is_exact: bool
    tags: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)

    def plot(self, title: str = "", *, log_y: bool = False) -> Plot:
        """The curves as a picture, which shows itself in a notebook; `save` writes it to a file.

        Args:
            title: above it; the tags otherwise.
            log_y: the y axis is logarithmic; values that are not above 0 are counted and not drawn.

        Example:
            >>> import numpy as np
            >>> from pai_sdk.run.events.series import Series
            >>> from pai_sdk.run.plots.buckets import compared
            >>> loss = Series("loss", np.arange(3.0), np.arange(3), np.array([1.0, 0.5, 0.25]))
            >>> compared([loss]).plot().title
            'loss'
        """
        return Plot(self, title or ", ".join(self.tags), log_y)


@dataclass(frozen=True, eq=False)
class Plot:
    """A picture of curves. In a notebook it shows itself.

    Attributes:
        comparison: the curves.
        title: above them; a tag.
        log_y: the y axis is logarithmic; values that are not above 0 are counted and not drawn.

    Example:
        >>> import numpy as np
        >>> from pai_sdk.run.plots.buckets import compared
        >>> from pai_sdk.run.events.series import Series
        >>> loss = Series("loss", np.arange(100.0), np.arange(100), 1 / (1 + np.arange(100.0)))
        >>> Plot(compared([loss], names=["first"]), "loss", log_y=True)
        <Plot 'loss': 1 curve, 100 of 100 points; it shows itself in a notebook, save('loss.svg') writes it>
    """

    comparison: Comparison
    title: str
    log_y: bool = False

    @cached_property
    def svg(self) -> str:
        """The picture, as the content of an `.svg` file or inline in a page."""
        shown = self.comparison
        view = None if shown.is_exact else (float(shown.edges[0]), float(shown.edges[-1]))
        return draw(self._lines, title=self.title, x=shown.x, view=view, log_y=self.log_y, note=self._note)

    @cached_property
    def html(self) -> str:
        """The picture; below that of many curves, a list of all of them, folded."""
        folded = _folded_legend(self._lines) if len(self._lines) > MOST_LABELS else ""
        picture = f'<div class="pai-plot" style="max-width:{WIDTH}px">{self.svg}{folded}</div>'
        return f"<div {NO_MATH}>{picture}</div>"

    def save(self, path: str | Path) -> Path:
        """Write the picture to a file.

        Args:
            path: it ends with `.svg` or `.html`.

        Returns:
            The file.

        Raises:
            InvalidInputError: it has another ending.
        """
        return save_picture(path, self.title, svg=lambda: self.svg, html=lambda: self.html)

    @cached_property
    def _lines(self) -> list[Line]:
        return lines_of(self.comparison.curves, self.comparison.labels)

    @property
    def _note(self) -> str:
        points, shown = self.comparison.points, self.comparison.shown
        if self.comparison.is_exact:
            return f"{points:,} point{'' if points == 1 else 's'}"
        is_grouped = any(len(curve.members) > 1 for curve in self.comparison.curves)
        return f"{points:,} points in {shown:,} buckets{'' if is_grouped else ', extremes exact'}"

    def _repr_html_(self) -> str:
        return self.html

    def __repr__(self) -> str:
        count = len(self.comparison.curves)
        points = f"{self.comparison.shown:,} of {self.comparison.points:,} points"
        name = "".join(letter if letter.isalnum() else "-" for letter in self.title) or "plot"
        return (
            f"<Plot {self.title!r}: {count} curve{'' if count == 1 else 's'}, {points}; "
            f"it shows itself in a notebook, save('{name}.svg') writes it>"
        )


def _folded_legend(lines: Sequence[Line]) -> str:
    rows = [
        [f'<span style="color:{run_colour(line.name)}">━</span> {shown_text(line.label)}', number_text(line.last)]
        for line in lines
    ]
    table = html_table(["run", "last"], rows, height="20em")
    return f'<details style="{FONT}"><summary>all {len(lines):,} curves</summary>{table}</details>'
