"""Curves of runs as a picture: self-contained SVG, without script, frame and port."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pai_sdk.run.axes import number_text
from pai_sdk.run.buckets import Comparison
from pai_sdk.run.pictures import FONT, run_colour, save_picture, shown_text
from pai_sdk.run.plot_drawing import MOST_LABELS, WIDTH, Line, draw, lines_of

__all__ = ["Plot"]


@dataclass(frozen=True, eq=False)
class Plot:
    """A picture of curves. In a notebook it shows itself.

    Attributes:
        comparison: the curves.
        title: above them; a tag.
        log_y: the y axis is logarithmic; values that are not above 0 are counted and not drawn.

    Example:
        >>> import numpy as np
        >>> from pai_sdk.run.buckets import compared
        >>> from pai_sdk.run.series import Series
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
        return f'<div class="pai-plot" style="max-width:{WIDTH}px">{self.svg}{folded}</div>'

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
        return lines_of(self.comparison.curves)

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
    rows = "".join(
        f'<tr><td><span style="color:{run_colour(line.name)}">━</span> {shown_text(line.name)}</td>'
        f'<td style="text-align:right">{number_text(line.last)}</td></tr>'
        for line in lines
    )
    return (
        f'<details style="{FONT}"><summary>all {len(lines):,} curves</summary>'
        '<div style="max-height:20em;overflow:auto"><table><tr><th style="text-align:left">run</th>'
        f"<th>last</th></tr>{rows}</table></div></details>"
    )
