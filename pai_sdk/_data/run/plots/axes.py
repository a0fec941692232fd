"""The axes of a plot: positions and labels of the ticks, and positions of values."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone

import numpy as np
import numpy.typing as npt

from pai_sdk._core.names.hints import wrong_value
from pai_sdk._data.run.plots.curve_view import metric_of
from pai_sdk.errors import InvalidInputError

Floats = npt.NDArray[np.float64]

_MAX_TICKS = 7
_MARGIN = 0.04  # of the range, so that no curve touches the frame
_MINUTE, _HOUR, _DAY = 60.0, 3600.0, 86400.0
_ELAPSED_UNITS = ((2 * _DAY, _DAY, "d"), (2 * _HOUR, _HOUR, "h"), (2 * _MINUTE, _MINUTE, "min"), (0.0, 1.0, "s"))
# Distances of ticks in seconds; longer spans use multiples of a day.
_CLOCK_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)
_LARGEST = 1e300  # beyond it, the difference of two values is no longer a finite number
_YEAR_1, _YEAR_9999 = -62135596800.0, 253402300799.0  # the range of a datetime


@dataclass(frozen=True)
class Axis:
    """A range of values, with its ticks."""

    low: float  # the value at the left end, or at the bottom
    high: float  # the value at the right end, or at the top
    ticks: tuple[tuple[float, str], ...]  # values and their labels
    title: str = ""  # the quantity of the axis, with its unit
    is_log: bool = False  # equal distances are equal ratios

    def positions(self, values: npt.ArrayLike) -> Floats:
        """Returns positions of values, from 0 at the low end to 1 at the high end; NaN for non-finite ones."""
        numbers = np.asarray(values, dtype=np.float64)
        numbers = np.where(np.isfinite(numbers), np.clip(numbers, -_LARGEST, _LARGEST), np.nan)
        low, high = self.low, self.high
        if self.is_log:
            with np.errstate(divide="ignore", invalid="ignore"):
                numbers, low, high = np.log10(numbers), math.log10(low), math.log10(high)
        positions: Floats = (numbers - low) / (high - low)
        return positions


def number_text(value: float) -> str:
    """Formats a number in a short form, such as `20k`, `2.5M` or `3e-5`."""
    if math.isnan(value):
        return "NaN"
    size = abs(value)
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    if 1e4 <= size < 1e12:
        unit, letter = next(pair for pair in ((1e9, "G"), (1e6, "M"), (1e3, "k")) if size >= pair[0])
        return f"{value / unit:.6g}{letter}"
    text = f"{value:.6g}"
    mantissa, has_exponent, exponent = text.partition("e")
    return f"{mantissa}e{int(exponent)}" if has_exponent else text


def number_axis(
    low: float,
    high: float,
    *,
    is_log: bool = False,
    title: str = "",
    margin: float = _MARGIN,  # the space beyond both ends, as a fraction of the range
    min_step: float = 0.0,  # between two ticks
) -> Axis:
    """Returns an axis that contains two values, with ticks at 1, 2 or 5 times a power of ten."""
    low, high = (min(max(value, -_LARGEST), _LARGEST) for value in (low, high))
    if is_log:
        bottom, top = _padded(math.log10(low), math.log10(high), margin)
        bottom, top = max(10.0 ** max(bottom, -307.0), 5e-324), 10.0 ** min(top, 300.0)
        ticks = _log_ticks(bottom, top)
        return Axis(bottom, top, tuple((tick, number_text(tick)) for tick in ticks), title, is_log=True)
    bottom, top = _padded(low, high, margin)
    ticks, step = _linear_ticks(bottom, top, min_step)
    return Axis(bottom, top, tuple((tick, _tick_text(tick, step)) for tick in ticks), title)


def elapsed_axis(low_s: float, high_s: float) -> Axis:
    """Returns an axis of time since the start of a run, in seconds, minutes, hours or days."""
    span = max(abs(low_s), abs(high_s))
    unit_s, unit = next((size, name) for min_span, size, name in _ELAPSED_UNITS if span >= min_span)
    axis = number_axis(low_s / unit_s, high_s / unit_s, margin=0.0)
    ticks = tuple((value * unit_s, text) for value, text in axis.ticks)
    return Axis(axis.low * unit_s, axis.high * unit_s, ticks, f"time since the start ({unit})")


def clock_axis(low_s: float, high_s: float) -> Axis:
    """Returns an axis of times in UTC; arguments are in seconds since 1970."""
    low, high = _padded(low_s, high_s, 0.0)
    if low < _YEAR_1 or high > _YEAR_9999:
        return number_axis(low_s, high_s, title="seconds since 1970", margin=0.0)
    step = next((step for step in _CLOCK_STEPS if (high - low) / step <= _MAX_TICKS), 0)
    if not step:
        step = int(_DAY) * math.ceil((high - low) / _DAY / _MAX_TICKS)
    moments = [float(step * number) for number in range(math.ceil(low / step), math.floor(high / step) + 1)]
    ticks = []
    day_before = ""
    for moment in moments:
        when = datetime.fromtimestamp(moment, timezone.utc)
        day = when.strftime("%b %d" if high - low < 300 * _DAY else "%Y-%m-%d")
        hour = when.strftime("%H:%M:%S" if step < _MINUTE else "%H:%M")
        text = day if step >= _DAY else hour if day == day_before else f"{day} {hour}"
        ticks.append((moment, text))
        day_before = day
    return Axis(low, high, tuple(ticks), "time (UTC)")


def _step_axis(title: str) -> Callable[[float, float], Axis]:
    return lambda low, high: number_axis(low, high, title=title, margin=0.0, min_step=1.0)


X_AXES: dict[str, Callable[[float, float], Axis]] = {
    "step": _step_axis("step"),
    "relative_step": _step_axis("steps since the start"),
    "relative_time": elapsed_axis,
    "wall": clock_axis,
}


def x_axis(x: str, low: float, high: float) -> Axis:
    """Returns the x axis of a plot: steps, `relative_time` in seconds, `wall` since 1970, or `metric:TAG`."""
    x_tag = metric_of(x)
    if x_tag is not None:
        return number_axis(low, high, title=x_tag, margin=0.0)
    if x not in X_AXES:
        raise InvalidInputError([wrong_value("x", x, f"one of {', '.join(X_AXES)}, or metric:TAG")])
    return X_AXES[x](low, high)


def _padded(low: float, high: float, margin: float) -> tuple[float, float]:
    """Returns the range with a margin; a single value gets space on both sides."""
    size = max(abs(low), abs(high))
    if high - low <= 1e-12 * size or high == low:
        room = 0.1 * size or 1.0
        return low - room, high + room
    room = margin * (high - low)
    return low - room, high + room


def _linear_ticks(low: float, high: float, min_step: float = 0.0) -> tuple[list[float], float]:
    rough = max((high - low) / _MAX_TICKS, min_step, 1 / _LARGEST)
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(size * times for times in (1, 2, 5, 10) if size * times >= rough * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [number * step for number in range(first, last + 1)], step


def _tick_text(tick: float, step: float) -> str:
    """Formats a tick with enough digits to differ from its neighbours, without rounding noise."""
    if tick == 0 or abs(tick) < step / 2:
        return "0"
    digits = max(math.floor(math.log10(abs(tick))) - math.floor(math.log10(step)) + 1, 1)
    rounded = float(f"{tick:.{digits}g}")
    if digits > 6 and 1e-4 <= abs(tick) < 1e12:
        return f"{rounded:.{max(0, -math.floor(math.log10(step)))}f}"
    return number_text(rounded)


def _log_ticks(low: float, high: float) -> Sequence[float]:
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    stride = max(1, math.ceil((last - first + 1) / _MAX_TICKS))
    for factors in ((1,), (1, 3), (1, 2, 5)):
        ticks = [
            factor * 10.0**power
            for power in range(first // stride * stride, last + 1, stride)
            for factor in factors
            if low <= factor * 10.0**power <= high
        ]
        if len(ticks) >= 3:
            return ticks
    return _linear_ticks(low, high)[0]  # less than a decade: as on a linear axis
