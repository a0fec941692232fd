"""Draws curves as SVG: the frame, the lines and their bands, the marks of NaN and infinities, the names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from pai_sdk._data.run.events.series import Floats, Integers
from pai_sdk._data.run.plots.axes import number_axis, number_text, x_axis
from pai_sdk._data.run.plots.pictures import FONT, run_colour, safe_text

WIDTH = 760
MAX_LABELS = 16
_HEIGHT, _EMPTY_HEIGHT = 320, 80
_TOP, _BOTTOM = 30, 44
_LETTER = 6.4  # pixels of a letter of the labels
_LINE_HEIGHT = 14.0
_ENDS_LABELLED = 6  # labels of more curves: those with the largest last values, and as many with the smallest
_MAX_LABEL_CHARS = 30
_DASHES = ("", "6 3", "2 3", "8 3 2 3")  # for curves of one colour in one picture
_MAX_BANDS = 40
_MAX_MARKS = 200  # of one curve and kind

# Inline in a page, the colours are those of the page. `svg:root` matches a file of its own only.
_STYLE = (
    "svg:root{color:#1f2328;background:#fff}"
    "@media(prefers-color-scheme:dark){svg:root{color:#e6edf3;background:#0d1117}}"
    ".pai-curves:hover>g{opacity:.25}.pai-curves>g:hover{opacity:1}.pai-curves>g:hover .pai-line{stroke-width:3}"
)


@dataclass(frozen=True, eq=False)
class Curve:
    """One curve of a comparison: of one series, or of a group. All columns have equal lengths.

    Attributes:
        name: of the series, or of the group.
        members: the indices of the series that the curve displays.
        x: of the raw points; otherwise the middle of each bucket of the comparison.
        value: of the raw points. In buckets: the last value in each; of a group: the mean or median of the means
            of its members. NaN where there is none.
        low: the smallest finite value in each bucket; of a group: the lower end of its band. None for raw points
            and for a group without a band.
        high: the largest finite value in each bucket, or the upper end of the band; None where `low` is.
        count: how many points each entry represents; 1 for a raw point.
        nan_count: how many of these points are NaN.
        inf_count: how many of these points are infinite.
    """

    name: str
    members: tuple[int, ...]
    x: Floats
    value: Floats
    low: Floats | None
    high: Floats | None
    count: Integers
    nan_count: Integers
    inf_count: Integers


@dataclass(frozen=True, eq=False)
class Line:
    """A curve as it is drawn. A value that is not finite interrupts it."""

    name: str  # determines the colour
    label: str
    x: Floats  # ascending
    y: Floats
    low: Floats | None  # the lower end of the band
    high: Floats | None  # the upper end of the band
    nan_x: Floats  # x of NaN values
    inf_x: Floats  # x of infinite values
    not_finite: tuple[int, int]  # the number of NaN values, and of infinite values

    @property
    def last(self) -> float:
        """Returns the last finite value; NaN without any."""
        finite = self.y[np.isfinite(self.y)]
        return float(finite[-1]) if len(finite) else float("nan")


def to_lines(curves: Iterable[Curve], labels: Mapping[str, str]) -> list[Line]:
    """Returns the lines of curves, without empty buckets; labels by curve names, the name itself by default."""
    lines = []
    for curve in curves:
        at = curve.count > 0
        y, low, high = curve.value[at], curve.low, curve.high
        if low is not None and high is not None:
            low, high = low[at], high[at]
            # A bucket whose last value is not finite is drawn in the middle of its band, which can be infinite.
            with np.errstate(over="ignore", invalid="ignore"):
                y = np.where(np.isfinite(y), y, low / 2 + high / 2)
        nan_x, inf_x = (curve.x[counts > 0] for counts in (curve.nan_count, curve.inf_count))
        not_finite = int(curve.nan_count.sum()), int(curve.inf_count.sum())
        label = labels.get(curve.name, curve.name)
        lines.append(Line(curve.name, label, curve.x[at], y, low, high, nan_x, inf_x, not_finite))
    return lines


def draw(
    lines: Sequence[Line], *, title: str, x: str, view: tuple[float, float] | None, log_y: bool, note: str
) -> str:
    """Returns the picture as SVG; without a view, the x axis ends with the lines."""
    return _Drawing(lines, title, x, view, log_y, note).svg()


class _Drawing:
    """Builds one picture; coordinates are pixels of the picture."""

    def __init__(
        self, lines: Sequence[Line], title: str, x: str, view: tuple[float, float] | None, log_y: bool, note: str
    ) -> None:
        self.title, self.note = title, note
        self.lines, self.dropped = _positive_only(lines) if log_y else (lines, 0)
        self.styles = _styles(self.lines)
        self.labelled = _labelled(self.lines)
        self.x_axis = x_axis(x, *(view or _range((line.x for line in self.lines), 0.0, 1.0)))
        all_y = (y for line in self.lines for y in (line.y, line.low, line.high) if y is not None)
        self.y_axis = number_axis(*_range(all_y, 0.1 if log_y else 0.0, 1.0), is_log=log_y)
        ticks = max((len(text) for _, text in self.y_axis.ticks), default=1)
        max_chars = max((len("  ".join(_label(self.lines[number]))) for number in self.labelled), default=0)
        self.left = 14 + _LETTER * ticks
        self.right = WIDTH - (14 + _LETTER * max_chars if max_chars else 14)
        self.bottom = _HEIGHT - _BOTTOM

    def svg(self) -> str:
        is_drawn = any(len(line.x) for line in self.lines)
        height = _HEIGHT if is_drawn else _EMPTY_HEIGHT
        summary = f"{self.title}: {len(self.lines)} curves"
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
            f'style="max-width:100%;height:auto;{FONT}" role="img" aria-label="{safe_text(summary)}">'
            f"<style>{_STYLE}</style>",
            f'<text x="{self.left:.0f}" y="17" fill="currentColor" style="font-size:13px;font-weight:600">'
            f"{safe_text(_ellipsized(self.title, 90))}</text>",
        ]
        if is_drawn:
            parts += [self._frame(), self._curves(), self._labels()]
        else:
            parts.append(_text(WIDTH / 2, height / 2 + 8, "no points yet", "middle", ".65"))
        note = "; ".join(text for text in (self.note, self._counts()) if text)
        parts.append(_text(WIDTH - 14, 17, note, "end", ".65"))
        return "".join([*parts, "</svg>"])

    def _px(self, x: npt.ArrayLike) -> Floats:
        return self.left + self.x_axis.positions(x) * (self.right - self.left)

    def _py(self, y: npt.ArrayLike) -> Floats:
        return self.bottom - self.y_axis.positions(y) * (self.bottom - _TOP)

    def _frame(self) -> str:
        """Returns the ticks, the grid and the titles of the axes."""
        lines, labels = [], []
        for value, text in self.y_axis.ticks:
            y = float(self._py(value))
            lines.append(f"M{self.left:.1f} {y:.1f}H{self.right:.1f}")
            labels.append(_text(self.left - 6, y + 4, text, "end"))
        free_from = 0.0
        for value, text in self.x_axis.ticks:
            x, half = float(self._px(value)), _LETTER * len(text) / 2
            lines.append(f"M{x:.1f} {self.bottom}v4")
            if (center := max(x, half + 2)) - half > free_from:
                labels.append(_text(center, self.bottom + 17, text, "middle"))
                free_from = center + half + 4
        middle = (self.left + self.right) / 2
        labels.append(_text(middle, _HEIGHT - 8, self.x_axis.title, "middle"))
        grid = f'<path d="{"".join(lines)}" stroke="currentColor" stroke-opacity=".15" fill="none"/>'
        base = f"M{self.left:.1f} {self.bottom}H{self.right:.1f}"
        axis = f'<path d="{base}" stroke="currentColor" stroke-opacity=".5"/>'
        return f'{grid}{axis}<g fill-opacity=".75">{"".join(labels)}</g>'

    def _curves(self) -> str:
        count = len(self.lines)
        width = next(
            size for max_count, size in ((8, 1.75), (40, 1.25), (200, 0.9), (10**9, 0.6)) if count <= max_count
        )
        opacity = 1.0 if count <= 40 else 0.8 if count <= 200 else 0.5
        parts = [
            f'<g class="pai-curves" fill="none" stroke-width="{width}" stroke-opacity="{opacity}" '
            'stroke-linejoin="round" stroke-linecap="round">'
        ]
        parts += [
            self._line(line, colour, dash) for line, (colour, dash) in zip(self.lines, self.styles, strict=True)
        ]
        return "".join([*parts, "</g>"])

    def _line(self, line: Line, colour: str, dash: str) -> str:
        px, py = self._px(line.x), self._py(line.y)
        parts = [f'<g stroke="{colour}"><title>{safe_text(_tooltip(line))}</title>']
        if line.low is not None and line.high is not None:
            low, high = self._py(line.low), self._py(line.high)
            if len(self.lines) <= _MAX_BANDS:
                parts += [_band(px, low, high, colour)]
            else:  # many bands would hide the curves, so the line itself runs through both extremes
                px, py = _zigzag(px, low, high, py)
        fine = 10 if len(self.lines) <= 100 else 2
        path, dots = _paths(px, py, fine)
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        scale = f'transform="scale({1 / fine:g})" vector-effect="non-scaling-stroke"'
        if path:
            parts.append(f'<path class="pai-line" d="{path}"{dashes} {scale}/>')
        if dots:
            parts.append(f'<path d="{dots}" stroke-width="5" {scale}/>')
        parts.append(self._marks(line, colour))
        return "".join([*parts, "</g>"])

    def _marks(self, line: Line, colour: str) -> str:
        """Returns triangles on the x axis for NaN, and diamonds for infinite values."""
        shapes = []
        kinds = (("m-4 7l4 -7l4 7z", line.nan_x), ("m0 0l3.5 4l-3.5 4l-3.5 -4z", line.inf_x))
        for shape, xs in kinds:
            positions = np.unique(np.rint(self._px(xs)))
            if len(positions) > _MAX_MARKS:
                positions = positions[np.linspace(0, len(positions) - 1, _MAX_MARKS).astype(int)]
            shapes += [f"M{position:.0f} {self.bottom + 1}{shape}" for position in positions.tolist()]
        if not shapes:
            return ""
        return f'<path class="pai-mark" d="{"".join(shapes)}" fill="{colour}" stroke="none"/>'

    def _labels(self) -> str:
        """Returns the names beside the ends of their curves, moved apart where they would overlap."""
        rows = []
        for number in self.labelled:
            line = self.lines[number]
            finite = np.flatnonzero(np.isfinite(line.y))
            if len(finite):
                rows.append((float(self._py(line.y[finite[-1]])), float(self._px(line.x[finite[-1]])), number))
            else:  # only values that are not finite, which are marked on the x axis
                rows.append((float(self.bottom), self.right, number))
        rows.sort()
        positions = _apart([y for y, _, _ in rows], _TOP, self.bottom)
        parts = []
        for (y, x, number), position in zip(rows, positions, strict=True):
            colour, dash = self.styles[number]
            dashes = f' stroke-dasharray="{dash}"' if dash else ""
            name, value = _label(self.lines[number])
            label = (
                f'<text x="{self.right + 10:.1f}" y="{position + 4:.1f}" fill="{colour}">{safe_text(name)} '
                f'<tspan font-weight="600" fill="currentColor" fill-opacity=".8">{value}</tspan></text>'
            )
            lead = f"M{x:.1f} {y:.1f}L{self.right:.1f} {y:.1f}L{self.right + 7:.1f} {position:.1f}"
            parts.append(f'<path d="{lead}" stroke="{colour}" stroke-opacity=".35" fill="none"{dashes}/>{label}')
        return "".join(parts)

    def _counts(self) -> str:
        nan, inf = (sum(line.not_finite[kind] for line in self.lines) for kind in (0, 1))
        parts = []
        if nan:
            parts.append(f"▲ {nan:,} NaN")
        if inf:
            parts.append(f"◆ {inf:,} infinite")
        if self.dropped:
            parts.append(f"{self.dropped:,} values of 0 or less left out")
        return ", ".join(parts)


def _positive_only(lines: Sequence[Line]) -> tuple[Sequence[Line], int]:
    """Returns the lines without values of 0 or less, and the number of these values."""
    positive, dropped = [], 0
    for line in lines:
        y, low, high = line.y, line.low, line.high
        if low is not None and high is not None:
            y = np.where((y <= 0) & (high > 0), high, y)
            low = np.where(low > 0, low, y)
        at = ~(np.isfinite(y) & (y <= 0))
        dropped += int(np.count_nonzero(~at))
        low, high = (None if ends is None else ends[at] for ends in (low, high))
        positive.append(replace(line, x=line.x[at], y=y[at], low=low, high=high))
    return positive, dropped


def _range(arrays: Iterable[Floats], low: float, high: float) -> tuple[float, float]:
    """Returns the smallest and the largest finite value of all; `low` and `high` when there are none."""
    ends = []
    for array in arrays:
        finite = array[np.isfinite(array)]
        if len(finite):
            ends += [float(finite.min()), float(finite.max())]
    return (min(ends), max(ends)) if ends else (low, high)


def _styles(lines: Sequence[Line]) -> list[tuple[str, str]]:
    """Returns colour and dashes of each curve: of curves with one colour, all but the first are dashed."""
    counts: dict[str, int] = {}
    styles = []
    for line in lines:
        colour = run_colour(line.name)
        number = counts[colour] = counts.get(colour, -1) + 1
        styles.append((colour, _DASHES[number % len(_DASHES)] if len(lines) <= _MAX_BANDS else ""))
    return styles


def _labelled(lines: Sequence[Line]) -> list[int]:
    """Returns the curves with a label: all, or of many those that end at the top and at the bottom."""
    if len(lines) <= MAX_LABELS:
        return [*range(len(lines))]
    ends = [(line.last, number) for number, line in enumerate(lines) if np.isfinite(line.last)]
    if len(ends) > 2 * _ENDS_LABELLED:
        ends.sort()
        ends = [*ends[:_ENDS_LABELLED], *ends[-_ENDS_LABELLED:]]
    return [number for _, number in ends]


def _ellipsized(text: str, max_chars: int) -> str:
    """Shortens a long text in its middle, since ids differ in their ends."""
    if len(text) <= max_chars:
        return text
    return f"{text[: max_chars // 3]}…{text[-(max_chars - max_chars // 3 - 1) :]}"


def _label(line: Line) -> tuple[str, str]:
    """Returns the label at the end of a curve: name and last value."""
    return _ellipsized(line.label, _MAX_LABEL_CHARS), number_text(float(f"{line.last:.4g}"))


def _tooltip(line: Line) -> str:
    nothing = float("nan")
    low, _ = _range([line.y if line.low is None else line.low], nothing, nothing)
    _, high = _range([line.y if line.high is None else line.high], nothing, nothing)
    return f"{line.label}: last {number_text(line.last)}, min {number_text(low)}, max {number_text(high)}"


def _segments(y: Floats) -> Iterable[slice]:
    """Returns the parts of a curve between values that are not finite."""
    finite = np.concatenate([[False], np.isfinite(y), [False]])
    edges = np.flatnonzero(finite[1:] != finite[:-1])
    return (slice(first, last) for first, last in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))


def _paths(px: Floats, py: Floats, fine: int) -> tuple[str, str]:
    """Returns the lines of a curve, and its isolated points, as SVG paths in units of 1 / `fine` pixels."""
    lines, dots = [], []
    for segment in _segments(py):
        pixels = np.rint(np.column_stack([px[segment], py[segment]]) * fine).astype(np.int64)
        x, y = pixels[0].tolist()
        moves = np.diff(pixels, axis=0)
        moves = moves[np.any(moves != 0, axis=1)]
        if len(moves):
            lines.append(f"M{x} {y}l{' '.join(map(str, moves.ravel().tolist())).replace(' -', '-')}")
        else:
            dots.append(f"M{x} {y}h0")
    return "".join(lines), "".join(dots)


def _band(px: Floats, low: Floats, high: Floats, colour: str) -> str:
    parts = []
    for segment in _segments(low + high):
        upper = np.column_stack([px[segment], high[segment]])
        lower = np.column_stack([px[segment], low[segment]])[::-1]
        points = np.rint(np.concatenate([upper, lower]) * 10).astype(np.int64)
        parts.append(f"M{' '.join(map(str, points.ravel().tolist()))}z")
    return f'<path d="{"".join(parts)}" fill="{colour}" fill-opacity=".22" stroke="none" transform="scale(.1)"/>'


def _zigzag(px: Floats, low: Floats, high: Floats, last: Floats) -> tuple[Floats, Floats]:
    """Returns a line through the minimum and maximum of each bucket, side by side within its width."""
    apart = np.diff(px).min() / 4 if len(px) > 1 else 0.0
    ends = np.where(np.isfinite(last)[:, None], np.column_stack([low, high]), np.nan)
    return np.column_stack([px - apart, px + apart]).ravel(), ends.ravel()


def _apart(preferred: Sequence[float], top: float, bottom: float) -> list[float]:
    """Returns positions near the preferred ones, in order, a line apart and within the frame where they fit."""
    positions: list[float] = []
    for position in preferred:
        positions.append(max(position, positions[-1] + _LINE_HEIGHT) if positions else max(position, top))
    limit = bottom
    for number in range(len(positions) - 1, -1, -1):
        positions[number] = min(positions[number], limit)
        limit = positions[number] - _LINE_HEIGHT
    return positions


def _text(x: float, y: float, text: str, anchor: str, opacity: str = "") -> str:
    if not text:
        return ""
    faint = f' fill-opacity="{opacity}"' if opacity else ""
    attributes = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text {attributes} fill="currentColor"{faint}>{safe_text(text)}</text>'
