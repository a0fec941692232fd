"""Compares the hyperparameters of runs, and computes how much of a metric each of them explains."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Literal

from pai_sdk._data.run.watch.filter import metric_value
from pai_sdk._data.run.watch.records import HparamDiff, HparamsDiff, RunBrief
from pai_sdk._wire.pai.hyperparameters import compare_hyperparameters, hyperparameter_identity

_MIN_RUNS = 3  # two points are always on a line


def hparams_diff(briefs: Sequence[RunBrief], metric: str | None = None) -> HparamsDiff:
    """Returns the hyperparameters in which runs differ, also those that only some runs have; None is a value."""
    # `metric` ranks the hyperparameters; named as in a filter: `loss`, `eval/acc.max`.
    all_values = {} if metric is None else {brief.id: metric_value(brief, metric) for brief in briefs}
    metric_values = {
        run_id: value for run_id, value in all_values.items() if value is not None and not math.isnan(value)
    }
    compared = compare_hyperparameters([brief.hparams for brief in briefs])
    differing = []
    for name in compared.differing:
        values = {brief.id: row[name] for brief, row in zip(briefs, compared.rows, strict=True) if name in row}
        differing.append(_ranked(name, values, metric_values))
    differing.sort(key=lambda diff: (-1.0 if diff.explained is None else -2.0 - diff.explained, diff.name))
    ids = tuple(brief.id for brief in briefs)
    return HparamsDiff(ids, tuple(differing), compared.constant, metric or "", metric_values)


def _ranked(name: str, values: Mapping[str, Any], metric_values: Mapping[str, float]) -> HparamDiff:
    kind = _kind(values.values())
    run_ids = [
        run_id for run_id in values if run_id in metric_values and (kind != "number" or values[run_id] is not None)
    ]
    metrics = [metric_values[run_id] for run_id in run_ids]
    if len(run_ids) < _MIN_RUNS or len(set(metrics)) < 2:
        return HparamDiff(name, kind, values)
    ranks = _ranks(metrics)
    if kind in ("number", "bool"):
        correlation = _correlation(_ranks([float(values[run_id]) for run_id in run_ids]), ranks)
        explained = None if correlation is None else correlation**2
        return HparamDiff(name, kind, values, correlation, explained)
    return HparamDiff(
        name, kind, values, None, _between([hyperparameter_identity(values[run_id]) for run_id in run_ids], ranks)
    )


def _kind(values: Any) -> Literal["number", "bool", "text", "mixed"]:
    """Returns the kind of the values; None fits each kind."""
    kinds = {_kind_of(value) for value in values if value is not None}
    return kinds.pop() if len(kinds) == 1 else "mixed"


def _kind_of(value: Any) -> Literal["number", "bool", "text", "mixed"]:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, (int, float)):
        return "number"
    if isinstance(value, str):
        try:
            return (
                "mixed" if math.isnan(float(value)) else "number"
            )  # the service stores all hyperparameters as strings
        except ValueError:
            return "text"
    return "mixed"


def _ranks(values: Sequence[float]) -> list[float]:
    """Returns the rank of each value, from 1; equal values share the mean of their ranks."""
    order = sorted(range(len(values)), key=values.__getitem__)
    ranks = [0.0] * len(values)
    start = 0
    while start < len(order):
        end = start
        while end < len(order) and values[order[end]] == values[order[start]]:
            end += 1
        for index in order[start:end]:
            ranks[index] = (start + end + 1) / 2
        start = end
    return ranks


def _correlation(x_ranks: Sequence[float], y_ranks: Sequence[float]) -> float | None:
    """Returns Pearson's correlation of two lists of ranks; None where one is constant."""
    mean = (len(x_ranks) + 1) / 2  # of ranks
    spread = math.sqrt(sum((a - mean) ** 2 for a in x_ranks) * sum((b - mean) ** 2 for b in y_ranks))
    if not spread:
        return None
    return max(
        -1.0, min(1.0, sum((a - mean) * (b - mean) for a, b in zip(x_ranks, y_ranks, strict=True)) / spread)
    )


def _between(groups: Sequence[Hashable], ranks: Sequence[float]) -> float | None:
    """Returns the part of the variance that is between groups; None without evidence."""
    by_group: dict[Hashable, list[float]] = {}
    for group, rank in zip(groups, ranks, strict=True):
        by_group.setdefault(group, []).append(rank)
    # A group for each run would explain all of the variance without any evidence.
    if not 1 < len(by_group) < len(ranks):
        return None
    mean = sum(ranks) / len(ranks)
    between = sum(
        len(group_ranks) * (sum(group_ranks) / len(group_ranks) - mean) ** 2 for group_ranks in by_group.values()
    )
    return between / sum((rank - mean) ** 2 for rank in ranks)
