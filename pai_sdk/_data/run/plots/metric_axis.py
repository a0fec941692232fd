"""An x axis that is another metric: `metric:epoch` has the value of `epoch` at the step of each point.

Needs numpy, from the extras `watch` and `service`.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pai_sdk._data.run.events.series import Series
from pai_sdk._data.run.plots.smoothing import smoothed


def join_by_step(series: Series, x: Series, smooth: float = 0.0) -> Series:
    """Returns the points of `series` for whose step `x` has a finite value, with that value in place of the time.

    Values are smoothed first, in the order of the steps, so the value of a step is the same on each axis. If `x`
    has several finite values of one step, the last one counts.
    """
    if smooth:
        series = replace(series, value=smoothed(series.value, smooth))
    x = x.finite()
    if not len(x):
        return series[:0]
    at = np.searchsorted(x.step, series.step, side="right") - 1
    has_x = (at >= 0) & (x.step[at] == series.step)
    return replace(series[has_x], wall=x.value[at[has_x]].astype(np.float64))
