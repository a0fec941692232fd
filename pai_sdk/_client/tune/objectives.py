"""The objectives of a search: a metric, its direction, and the value that counts."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

from pai_sdk._client.submit.problems import Problems
from pai_sdk._core.names.hints import name_hint, type_problem
from pai_sdk._data.run.events.sources import preferred_points
from pai_sdk._wire.pai.record import MetricPoint

UNNAMED = "_metric"
"""The metric of a plain number that a function returns or yields."""

Direction: TypeAlias = Literal["minimize", "maximize"]

# Metrics whose direction is clear from a part of their names.
_MINIMIZED = re.compile(
    r"loss|error|mse|mae|rmse|perplexity|ppl|wer|cer|nll|latency|cost|regret|(?:^|_)time(?:_|$)", re.I
)
_MAXIMIZED = re.compile(
    r"acc|auc|f1|precision|recall|reward|score|bleu|rouge|(?:^|[_@])m?ap(?:$|[_@])|iou|dice|(?:^|_)r2(?:$|_)|return",
    re.I,
)


class StepValue(NamedTuple):
    """One value of a metric at a step."""

    step: int
    value: float


def step_values(points: Iterable[MetricPoint]) -> list[StepValue]:
    """Returns the values of one metric, of the instance that has the plain name; missing steps are counted."""
    preferred = preferred_points(point for point in points if point.value is not None)
    return [
        StepValue(number if point.step is None else point.step, float(point.value or 0.0))
        for number, point in enumerate(preferred, 1)
    ]


@dataclass(frozen=True)
class Objective:
    """A metric to minimize or maximize.

    Attributes:
        metric: the name, as the job reports it.
        direction: `minimize` or `maximize`; by default derived from names such as `loss` and `accuracy`.
        at: the value that counts: the `last` one, the `best` one, or the one at a step.

    Example:
        >>> points = [StepValue(1, 0.5), StepValue(2, 0.9), StepValue(3, 0.8)]
        >>> Objective("val_accuracy", "maximize", at="best").value_of(points)
        0.9
    """

    metric: str
    direction: Direction | None = None
    at: Literal["last", "best"] | int = "last"

    @property
    def is_maximized(self) -> bool:
        """True if larger values are better."""
        return self.direction == "maximize"

    def value_of(self, points: Sequence[StepValue]) -> float | None:
        """Returns the value that counts; None if it is missing. NaN is never the best value."""
        if not points:
            return None
        if self.at == "last":
            return points[-1].value
        if self.at == "best":
            numbers = [point.value for point in points if not math.isnan(point.value)]
            return (max if self.is_maximized else min)(numbers, default=math.nan)
        return next((point.value for point in points if point.step == self.at), None)

    def to_json(self) -> list[Any]:
        """Returns the objective as JSON, for the study."""
        return [self.metric, self.direction, self.at]


def checked_objectives(objective: object, direction: object, problems: Problems) -> list[Objective]:
    """Returns the objectives of a user's arguments, each with a direction; `problems` collects the errors."""
    values = list(objective) if isinstance(objective, list | tuple) else [objective]
    directions = list(direction) if isinstance(direction, list | tuple) else [direction] * len(values)
    if not values:
        problems.add("objective", "is empty", "give the name of a metric, such as 'loss'")
    if len(directions) != len(values):
        message = f"has {len(directions)} directions for {len(values)} objectives"
        problems.add("direction", message, "give one for each, or one for all")
        return []
    objectives = []
    for number, (item, item_direction) in enumerate(zip(values, directions, strict=True)):
        where = "objective" if len(values) == 1 else f"objective[{number}]"
        checked = _checked(item, item_direction, where, problems)
        if checked is not None:
            objectives.append(checked)
    for metric in _repeated(item.metric for item in objectives):
        problems.add("objective", f"has the metric {metric!r} twice")
    return objectives


def _checked(objective: object, direction: Any, where: str, problems: Problems) -> Objective | None:
    if isinstance(objective, str):
        objective = Objective(objective)
    if not isinstance(objective, Objective):
        problems.add(where, type_problem("the name of a metric, or an Objective", objective), "such as 'loss'")
        return None
    if not isinstance(objective.metric, str) or not objective.metric:
        problems.add(where, "has no metric", "give the name that the job reports, such as 'loss'")
        return None
    if objective.at not in ("last", "best") and (
        not isinstance(objective.at, int) or isinstance(objective.at, bool)
    ):
        problems.add(where, f"unknown value at={objective.at!r}", "'last', 'best' or the number of a step")
    directions = get_args(Direction)
    for resolved in (objective.direction, direction):
        if resolved is not None and resolved not in directions:
            problems.add("direction", f"unknown value {resolved!r}", name_hint(str(resolved), directions))
            return objective
    if objective.direction and direction and objective.direction != direction:
        problems.add(
            "direction",
            f"is {direction!r}, but the objective has {objective.direction!r}",
            "give only one of them",
        )
    resolved = objective.direction or direction or _usual_direction(objective.metric)
    if resolved is None:
        problems.add("direction", f"is required for {objective.metric!r}", "'minimize' or 'maximize'")
    return replace(objective, direction=resolved)


def _usual_direction(metric: str) -> Direction | None:
    is_small, is_large = bool(_MINIMIZED.search(metric)), bool(_MAXIMIZED.search(metric))
    if is_small == is_large:
        return None
    return "minimize" if is_small else "maximize"


def _repeated(names: Iterable[str]) -> list[str]:
    previous: set[str] = set()
    return [name for name in names if name in previous or previous.add(name)]  # type: ignore[func-returns-value]
