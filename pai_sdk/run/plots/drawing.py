"""Draws curves as SVG: the frame, the lines and their bands, the marks of what is no number, the names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from pai_sdk.run.events.series import Floats, Integers
from pai_sdk.run.plots.axes import number_axis, number_text, x_axis
from pai_sdk.run.plots.pictures import FONT, run_colour, shown_text

__all__ = ["MOST_LABELS", "WIDTH", "Curve", "Line", "draw", "lines_of"]

WIDTH = 760
MOST_LABELS = 16
_HEIGHT, _EMPTY_HEIGHT = 320, 80
_TOP, _BOTTOM = 30, 44
_LETTER = 6.4  # pixels of a letter of the labels
_LINE_HEIGHT = 14.0
_ENDS_LABELLED = 6  # of more curves: this many with the largest last values, and as many with the smallest
_LONGEST_LABEL = 30
_DASHES = ("", "6 3", "2 3", "8 3 2 3")  # for curves of one colour in one picture
_MOST_BANDS = 40
_MOST_MARKS = 200  # of one curve and kind

# In a page, what is around decides on the colours. `svg:root` is a file of its own.
_STYLE = (
    "svg:root{color:#1f2328;background:#fff}"
    "@media(prefers-color-scheme:dark){svg:root{color:#e6edf3;background:#0d1117}}"
    ".pai-curves:hover>g{opacity:.25}.pai-curves>g:hover{opacity:1}.pai-curves>g:hover .pai-line{stroke-width:3}"
)


@dataclass(frozen=True, eq=False)
class Curve:
    """One curve of a comparison: of one series, or of a group. All columns have one length.

    Attributes:
        name: of the series, or of the group.
        members: which of the given series it shows, by their indices.
        x: of the raw points; otherwise the middle of each bucket that the comparison has.
        value: of the raw points. In buckets: the last value in each; of a group: the mean or median of the means
            of its members. NaN where there is none.
        low: the least finite value in each bucket; of a group: the lower end of its band. None for raw points and
            for a group without a band.
        high: the largest one, or the upper end of the band.
        count: how many points each entry stands for; 1 for a raw point.
        nan_count: how many of them are NaN.
        inf_count: how many of them are infinite.
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
    """A curve as it is drawn. A value that is not finite interrupts it.

    Attributes:
        name: gives the colour.
        label: beside it.
        x: ascending.
        y: the values.
        low: the lower end of its band.
        high: the upper one.
        nan_x: where values are no numbers.
        inf_x: where values are infinite.
        not_finite: how many values are no numbers, and how many are infinite.
    """

    name: str
    label: str
    x: Floats
    y: Floats
    low: Floats | None
    high: Floats | None
    nan_x: Floats
    inf_x: Floats
    not_finite: tuple[int, int]

    @property
    def last(self) -> float:
        """The last finite value; NaN without any."""
        finite = self.y[np.isfinite(self.y)]
        return float(finite[-1]) if len(finite) else float("nan")


def lines_of(curves: Iterable[Curve], labels: Mapping[str, str]) -> list[Line]:
    """Curves without their empty buckets. A bucket whose last value is no number is drawn amid the others.

    Args:
        curves: what is drawn.
        labels: by the name of a curve, what it is called, if that is not its name.
    """
    lines = []
    for curve in curves:
        at = curve.count > 0
        y, low, high = curve.value[at], curve.low, curve.high
        if low is not None and high is not None:
            low, high = low[at], high[at]
            with np.errstate(over="ignore", invalid="ignore"):  # a band may be infinite on both sides
                y = np.where(np.isfinite(y), y, low / 2 + high / 2)
        nan_x, inf_x = (curve.x[counts > 0] for counts in (curve.nan_count, curve.inf_count))
        not_finite = int(curve.nan_count.sum()), int(curve.inf_count.sum())
        label = labels.get(curve.name, curve.name)
        lines.append(Line(curve.name, label, curve.x[at], y, low, high, nan_x, inf_x, not_finite))
    return lines


def draw(
    lines: Sequence[Line], *, title: str, x: str, view: tuple[float, float] | None, log_y: bool, note: str
) -> str:
    """The picture, as SVG.

    Args:
        lines: what is drawn.
        title: above it.
        x: what the x axis shows.
        view: its ends; those of the lines otherwise.
        log_y: the y axis is logarithmic; values that are not above 0 are counted, and left out.
        note: beside the title.
    """
    return _Drawing(lines, title, x, view, log_y, note).svg()


class _Drawing:
    """One picture while it is drawn; coordinates are pixels of the picture."""

    def __init__(
        self, lines: Sequence[Line], title: str, x: str, view: tuple[float, float] | None, log_y: bool, note: str
    ) -> None:
        self.title, self.note = title, note
        self.lines, self.dropped = _positive_only(lines) if log_y else (lines, 0)
        self.styles = _styles(self.lines)
        self.labelled = _labelled(self.lines)
        self.x_axis = x_axis(x, *(view or _range((line.x for line in self.lines), 0.0, 1.0)))
        self.y_axis = number_axis(*_range(self._all_y(), 0.1 if log_y else 0.0, 1.0), is_log=log_y)
        ticks = max((len(text) for _, text in self.y_axis.ticks), default=1)
        longest = max((len("  ".join(_label(self.lines[number]))) for number in self.labelled), default=0)
        self.left = 14 + _LETTER * ticks
        self.right = WIDTH - (14 + _LETTER * longest if longest else 14)
        self.bottom = _HEIGHT - _BOTTOM

    def svg(self) -> str:
        is_drawn = any(len(line.x) for line in self.lines)
        height = _HEIGHT if is_drawn else _EMPTY_HEIGHT
        summary = f"{self.title}: {len(self.lines)} curves"
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
            f'style="max-width:100%;height:auto;{FONT}" role="img" aria-label="{shown_text(summary)}">'
            f"<style>{_STYLE}</style>",
            f'<text x="{self.left:.0f}" y="17" fill="currentColor" style="font-size:13px;font-weight:600">'
            f"{shown_text(_cut(self.title, 90))}</text>",
        ]
        if is_drawn:
            parts += [self._frame(), self._curves(), self._labels()]
        else:
            parts.append(_text(WIDTH / 2, height / 2 + 8, "no points yet", "middle", ".65"))
        note = "; ".join(text for text in (self.note, self._counts()) if text)
        parts.append(_text(WIDTH - 14, 17, note, "end", ".65"))
        return "".join([*parts, "</svg>"])

    def _all_y(self) -> Iterable[Floats]:
        for line in self.lines:
            yield from (ys for ys in (line.y, line.low, line.high) if ys is not None)

    def _px(self, x: npt.ArrayLike) -> Floats:
        return self.left + self.x_axis.places(x) * (self.right - self.left)

    def _py(self, y: npt.ArrayLike) -> Floats:
        return self.bottom - self.y_axis.places(y) * (self.bottom - _TOP)

    def _frame(self) -> str:
        """Ticks, their lines and the titles of the axes."""
        lines, texts = [], []
        for value, text in self.y_axis.ticks:
            y = float(self._py(value))
            lines.append(f"M{self.left:.1f} {y:.1f}H{self.right:.1f}")
            texts.append(_text(self.left - 6, y + 4, text, "end"))
        free_from = 0.0
        for value, text in self.x_axis.ticks:
            x, half = float(self._px(value)), _LETTER * len(text) / 2
            lines.append(f"M{x:.1f} {self.bottom}v4")
            if (place := max(x, half + 2)) - half > free_from:
                texts.append(_text(place, self.bottom + 17, text, "middle"))
                free_from = place + half + 4
        middle = (self.left + self.right) / 2
        texts.append(_text(middle, _HEIGHT - 8, self.x_axis.title, "middle"))
        grid = f'<path d="{"".join(lines)}" stroke="currentColor" stroke-opacity=".15" fill="none"/>'
        base = f"M{self.left:.1f} {self.bottom}H{self.right:.1f}"
        axis = f'<path d="{base}" stroke="currentColor" stroke-opacity=".5"/>'
        return f'{grid}{axis}<g fill-opacity=".75">{"".join(texts)}</g>'

    def _curves(self) -> str:
        count = len(self.lines)
        width = next(size for most, size in ((8, 1.75), (40, 1.25), (200, 0.9), (10**9, 0.6)) if count <= most)
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
        parts = [f'<g stroke="{colour}"><title>{shown_text(_tooltip(line))}</title>']
        if line.low is not None and line.high is not None:
            low, high = self._py(line.low), self._py(line.high)
            if len(self.lines) <= _MOST_BANDS:
                parts += [_band(px, low, high, colour)]
            else:  # a band of each of many curves would hide the others: the line itself visits both extremes
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
        """Triangles on the x axis, below which a value is not a number, and diamonds for infinite ones."""
        shapes = []
        kinds = (("m-4 7l4 -7l4 7z", line.nan_x), ("m0 0l3.5 4l-3.5 4l-3.5 -4z", line.inf_x))
        for shape, xs in kinds:
            places = np.unique(np.rint(self._px(xs)))
            if len(places) > _MOST_MARKS:
                places = places[np.linspace(0, len(places) - 1, _MOST_MARKS).astype(int)]
            shapes += [f"M{place:.0f} {self.bottom + 1}{shape}" for place in places.tolist()]
        if not shapes:
            return ""
        return f'<path class="pai-mark" d="{"".join(shapes)}" fill="{colour}" stroke="none"/>'

    def _labels(self) -> str:
        """The names beside the ends of their curves, moved apart where they would overlap."""
        rows = []
        for number in self.labelled:
            line = self.lines[number]
            finite = np.flatnonzero(np.isfinite(line.y))
            if len(finite):
                rows.append((float(self._py(line.y[finite[-1]])), float(self._px(line.x[finite[-1]])), number))
            else:  # nothing but values that are not finite, which are on the x axis
                rows.append((float(self.bottom), self.right, number))
        rows.sort()
        places = _apart([y for y, _, _ in rows], _TOP, self.bottom)
        parts = []
        for (y, x, number), place in zip(rows, places, strict=True):
            colour, dash = self.styles[number]
            dashes = f' stroke-dasharray="{dash}"' if dash else ""
            name, value = _label(self.lines[number])
            label = (
                f'<text x="{self.right + 10:.1f}" y="{place + 4:.1f}" fill="{colour}">{shown_text(name)} '
                f'<tspan font-weight="600" fill="currentColor" fill-opacity=".8">{value}</tspan></text>'
            )
            lead = f"M{x:.1f} {y:.1f}L{self.right:.1f} {y:.1f}L{self.right + 7:.1f} {place:.1f}"
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
    """The lines without what a logarithmic axis cannot show, and how many places that was."""
    kept, dropped = [], 0
    for line in lines:
        y, low, high = line.y, line.low, line.high
        if low is not None and high is not None:
            y = np.where((y <= 0) & (high > 0), high, y)
            low = np.where(low > 0, low, y)
        at = ~(np.isfinite(y) & (y <= 0))
        dropped += int(np.count_nonzero(~at))
        low, high = (None if ends is None else ends[at] for ends in (low, high))
        kept.append(replace(line, x=line.x[at], y=y[at], low=low, high=high))
    return kept, dropped


def _range(arrays: Iterable[Floats], low: float, high: float) -> tuple[float, float]:
    """The smallest and the largest finite value of all; the range given when there are none."""
    ends = []
    for array in arrays:
        finite = array[np.isfinite(array)]
        if len(finite):
            ends += [float(finite.min()), float(finite.max())]
    return (min(ends), max(ends)) if ends else (low, high)


def _styles(lines: Sequence[Line]) -> list[tuple[str, str]]:
    """Colour and dashes of each curve: of those with one colour, all but the first are dashed."""
    counts: dict[str, int] = {}
    styles = []
    for line in lines:
        colour = run_colour(line.name)
        number = counts[colour] = counts.get(colour, -1) + 1
        styles.append((colour, _DASHES[number % len(_DASHES)] if len(lines) <= _MOST_BANDS else ""))
    return styles


def _labelled(lines: Sequence[Line]) -> list[int]:
    """Which curves have their name beside them: all, or of many those that end at the top and at the bottom."""
    if len(lines) <= MOST_LABELS:
        return [*range(len(lines))]
    ends = [(line.last, number) for number, line in enumerate(lines) if np.isfinite(line.last)]
    if len(ends) > 2 * _ENDS_LABELLED:
        ends.sort()
        ends = [*ends[:_ENDS_LABELLED], *ends[-_ENDS_LABELLED:]]
    return [number for _, number in ends]


def _cut(text: str, most: int) -> str:
    """The text, with its middle left out where it is too long: the ends of ids tell them apart."""
    if len(text) <= most:
        return text
    return f"{text[: most // 3]}…{text[-(most - most // 3 - 1) :]}"


def _label(line: Line) -> tuple[str, str]:
    """The label at the end of a curve: its name and its last value."""
    return _cut(line.label, _LONGEST_LABEL), number_text(float(f"{line.last:.4g}"))


def _tooltip(line: Line) -> str:
    nothing = float("nan")
    low, _ = _range([line.y if line.low is None else line.low], nothing, nothing)
    _, high = _range([line.y if line.high is None else line.high], nothing, nothing)
    return f"{line.label}: last {number_text(line.last)}, min {number_text(low)}, max {number_text(high)}"


def _pieces(y: Floats) -> Iterable[slice]:
    """The parts of a curve between values that are not finite."""
    finite = np.concatenate([[False], np.isfinite(y), [False]])
    edges = np.flatnonzero(finite[1:] != finite[:-1])
    return (slice(first, last) for first, last in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))


def _paths(px: Floats, py: Floats, fine: int) -> tuple[str, str]:
    """The lines of a curve, and its lonely points, as SVG paths in parts of a pixel."""
    lines, dots = [], []
    for piece in _pieces(py):
        places = np.rint(np.column_stack([px[piece], py[piece]]) * fine).astype(np.int64)
        x, y = places[0].tolist()
        moves = np.diff(places, axis=0)
        moves = moves[np.any(moves != 0, axis=1)]
        if len(moves):
            lines.append(f"M{x} {y}l{' '.join(map(str, moves.ravel().tolist())).replace(' -', '-')}")
        else:
            dots.append(f"M{x} {y}h0")
    return "".join(lines), "".join(dots)


def _band(px: Floats, low: Floats, high: Floats, colour: str) -> str:
    parts = []
    for piece in _pieces(low + high):
        there = np.column_stack([px[piece], high[piece]])
        back = np.column_stack([px[piece], low[piece]])[::-1]
        points = np.rint(np.concatenate([there, back]) * 10).astype(np.int64)
        parts.append(f"M{' '.join(map(str, points.ravel().tolist()))}z")
    return f'<path d="{"".join(parts)}" fill="{colour}" fill-opacity=".22" stroke="none" transform="scale(.1)"/>'


def _zigzag(px: Floats, low: Floats, high: Floats, last: Floats) -> tuple[Floats, Floats]:
    """The line from the smallest to the largest value of each bucket, side by side within its width."""
    apart = np.diff(px).min() / 4 if len(px) > 1 else 0.0
    ends = np.where(np.isfinite(last)[:, None], np.column_stack([low, high]), np.nan)
    return np.column_stack([px - apart, px + apart]).ravel(), ends.ravel()


def _apart(wanted: Sequence[float], top: float, bottom: float) -> list[float]:
    """Places near the wanted ones, in their order, at least a line apart and within the frame where they fit."""
    places: list[float] = []
    for place in wanted:
        places.append(max(place, places[-1] + _LINE_HEIGHT) if places else max(place, top))
    limit = bottom
    for number in range(len(places) - 1, -1, -1):
        places[number] = min(places[number], limit)
        limit = places[number] - _LINE_HEIGHT
    return places


def _text(x: float, y: float, text: str, anchor: str, opacity: str = "") -> str:
    if not text:
        return ""
    faint = f' fill-opacity="{opacity}"' if opacity else ""
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text {place} fill="currentColor"{faint}>{shown_text(text)}</text>'
