"""What a search looks for: a metric, the direction, and which of its values counts."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

from pai_sdk.base.hints import is_of_type, name_hint
from pai_sdk.run.events.sources import preferred_points
from pai_sdk.schemas.record import MetricPoint
from pai_sdk.submit.problems import Problems

__all__ = ["UNNAMED", "Direction", "Objective", "StepValue", "checked_objectives", "step_values"]

UNNAMED = "_metric"
"""The name of a number that a function returns or yields."""

Direction: TypeAlias = Literal["minimize", "maximize"]

# Metrics whose direction is the same everywhere, by a word of their names.
_SMALLER = re.compile(
    r"loss|error|mse|mae|rmse|perplexity|ppl|wer|cer|nll|latency|cost|regret|(?:^|_)time(?:_|$)", re.I
)
_LARGER = re.compile(
    r"acc|auc|f1|precision|recall|reward|score|bleu|rouge|(?:^|[_@])m?ap(?:$|[_@])|iou|dice|(?:^|_)r2(?:$|_)|return",
    re.I,
)


class StepValue(NamedTuple):
    """One value of a metric at a step."""

    step: int
    value: float


def step_values(found: Iterable[MetricPoint]) -> list[StepValue]:
    """The values of one metric, of the instance that its plain name means; without steps, they are counted."""
    mine = preferred_points(point for point in found if point.value is not None)
    return [
        StepValue(number if point.step is None else point.step, float(point.value or 0.0))
        for number, point in enumerate(mine, 1)
    ]


@dataclass(frozen=True)
class Objective:
    """A metric that is to be as small, or as large, as possible.

    Attributes:
        metric: its name, as the job reports it.
        direction: `minimize` or `maximize`; by default that of the name, where it is clear: `loss`, `accuracy`.
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
        """True where larger values are better."""
        return self.direction == "maximize"

    def value_of(self, points: Sequence[StepValue]) -> float | None:
        """The value that counts; None if it is not there. A value that is not a number is never the best one."""
        if not points:
            return None
        if self.at == "last":
            return points[-1].value
        if self.at == "best":
            numbers = [point.value for point in points if not math.isnan(point.value)]
            return (max if self.is_maximized else min)(numbers, default=math.nan)
        return next((point.value for point in points if point.step == self.at), None)

    def to_json(self) -> list[Any]:
        """The objective as JSON, for the study."""
        return [self.metric, self.direction, self.at]


def checked_objectives(objective: object, direction: object, problems: Problems) -> list[Objective]:
    """The objectives that a user has given, each with its direction.

    Args:
        objective: the name of a metric, an `Objective`, or several of them.
        direction: of those that are names; one for all, or one for each.
        problems: notes what is wrong.
    """
    given = list(objective) if isinstance(objective, list | tuple) else [objective]
    directions = list(direction) if isinstance(direction, list | tuple) else [direction] * len(given)
    if not given:
        problems.add("objective", "is empty", "give the name of a metric, such as 'loss'")
    if len(directions) != len(given):
        what = f"has {len(directions)} directions for {len(given)} objectives"
        problems.add("direction", what, "give one for each, or one for all")
        return []
    found = []
    for number, (one, its) in enumerate(zip(given, directions, strict=True)):
        where = "objective" if len(given) == 1 else f"objective[{number}]"
        checked = _checked(one, its, where, problems)
        if checked is not None:
            found.append(checked)
    for metric in _repeated(one.metric for one in found):
        problems.add("objective", f"has the metric {metric!r} twice")
    return found


def _checked(given: object, direction: Any, where: str, problems: Problems) -> Objective | None:
    if isinstance(given, str):
        given = Objective(given)
    if not isinstance(given, Objective):
        problems.add(where, is_of_type(given), "give the name of a metric, such as 'loss', or an Objective")
        return None
    if not isinstance(given.metric, str) or not given.metric:
        problems.add(where, "has no metric", "give the name that the job reports, such as 'loss'")
        return None
    if given.at not in ("last", "best") and (not isinstance(given.at, int) or isinstance(given.at, bool)):
        problems.add(where, f"at={given.at!r} is not known", "it is 'last', 'best' or the number of a step")
    known = get_args(Direction)
    for its in (given.direction, direction):
        if its is not None and its not in known:
            problems.add("direction", f"{its!r} is not known", name_hint(str(its), known))
            return given
    if given.direction and direction and given.direction != direction:
        problems.add(
            "direction", f"is {direction!r}, and the objective says {given.direction!r}", "give one of them"
        )
    its = given.direction or direction or _usual_direction(given.metric)
    if its is None:
        problems.add("direction", f"is missing: is a large {given.metric!r} good?", "'minimize' or 'maximize'")
    return replace(given, direction=its)


def _usual_direction(metric: str) -> Direction | None:
    is_small, is_large = bool(_SMALLER.search(metric)), bool(_LARGER.search(metric))
    if is_small == is_large:
        return None
    return "minimize" if is_small else "maximize"


def _repeated(names: Iterable[str]) -> list[str]:
    seen: set[str] = set()
    return [name for name in names if name in seen or seen.add(name)]  # type: ignore[func-returns-value]
