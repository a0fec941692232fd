"""Plots of a study: Optuna's with plotly; without it, SVG plots of the history and of the curves."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import optuna

from pai_sdk._client.tune.study import Study
from pai_sdk._core.names.hints import name_hint
from pai_sdk._data.run.events.series import Series
from pai_sdk._data.run.plots.buckets import compared
from pai_sdk._data.run.plots.figures import Plot
from pai_sdk.errors import InvalidInputError, MissingExtraError, Problem

KINDS: Mapping[str, str] = {
    "history": "plot_optimization_history",
    "curves": "plot_intermediate_values",
    "importance": "plot_param_importances",
    "slice": "plot_slice",
    "contour": "plot_contour",
    "parallel": "plot_parallel_coordinate",
    "pareto": "plot_pareto_front",
    "timeline": "plot_timeline",
}
"""The kinds of plots, each with the function of Optuna that draws it."""


def plot_study(study: Study, kind: str, *, interactive: bool | None = None) -> Any:
    """Returns a plot of a study: a figure of plotly, or a `Plot` as SVG; see `Tuner.plot`."""
    if kind not in KINDS:
        raise InvalidInputError([Problem("kind", f"unknown value {kind!r}", name_hint(kind, KINDS))])
    has_plotly = importlib.util.find_spec("plotly") is not None
    if interactive is None:
        interactive = has_plotly
    if not interactive and kind in _SVG_PLOTS:
        return _SVG_PLOTS[kind](study)
    if not has_plotly:
        message = f"the picture {kind!r} needs plotly, which is not installed; run: pip install plotly"
        raise MissingExtraError(message, extra="plotly")
    options: dict[str, Any] = {}
    metrics = [objective.metric for objective in study.objectives]
    if kind == "pareto":
        options["target_names"] = metrics
    elif kind in ("history", "importance", "slice", "contour", "parallel"):
        options["target_name"] = metrics[0]
        if len(metrics) > 1:
            options["target"] = lambda trial: trial.values[0]
    try:
        return getattr(optuna.visualization, KINDS[kind])(study.optuna, **options)
    except ImportError as error:  # scikit-learn, for the importance
        message = f"the picture {kind!r} needs more packages: {error}"
        raise MissingExtraError(message, extra=error.name or "plotly") from error
    except (ValueError, RuntimeError, ZeroDivisionError) as error:  # for example, too few trials
        raise InvalidInputError([Problem("kind", f"{kind!r} cannot be drawn: {error}")]) from error


def _history(study: Study) -> Plot:
    first = study.objectives[0]
    done = [trial for trial in study.trials() if trial.state == "complete" and trial.value is not None]
    _need(bool(done), "no trial is complete yet")
    numbers = [trial.number for trial in done]
    values = np.array([trial.value for trial in done], dtype=float)
    feasible = np.where([trial.is_feasible for trial in done], values, np.nan)
    best = (np.fmax if first.is_maximized else np.fmin).accumulate(feasible)
    series = [_series(first.metric, numbers, values), _series(first.metric, numbers, best)]
    return compared(series, names=["each trial", "best so far"]).plot(f"{first.metric} by trial")


def _curves(study: Study) -> Plot:
    first = study.objectives[0]
    trials = [trial for trial in study.optuna.get_trials(deepcopy=False) if trial.intermediate_values]
    _need(bool(trials), "no trial has values of its steps; they are kept with a pruner")
    series = [
        _series(first.metric, sorted(trial.intermediate_values), _by_step(trial.intermediate_values))
        for trial in trials
    ]
    return compared(series, names=[f"trial {trial.number}" for trial in trials]).plot(f"{first.metric} by step")


_SVG_PLOTS: Mapping[str, Callable[[Study], Plot]] = {"history": _history, "curves": _curves}


def _by_step(values: Mapping[int, float]) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.array([values[step] for step in sorted(values)], dtype=float)


def _series(metric: str, steps: list[int], values: np.ndarray[Any, np.dtype[np.float64]]) -> Series:
    return Series(metric, np.arange(float(len(steps))), np.array(steps), values)


def _need(is_met: bool, message: str) -> None:
    if not is_met:
        raise InvalidInputError([Problem("kind", message)])
