"""Values that are unknown when a pipeline is defined: outputs and results of steps, parameters, conditions."""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Iterator, Mapping, ValuesView
from typing import Any, Protocol

from pai_sdk._wire.pai.values import python_value

_SYMBOLS: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}


class StepLike(Protocol):
    """A step."""

    name: str


class ValueSource(Protocol):
    """The current values of a run."""

    @property
    def parameters(self) -> Mapping[str, Any]:
        """Returns the values of the parameters by name."""

    def output(self, step: str, channel: str) -> Any:
        """Returns the URI of an output."""

    def result(self, step: str) -> Any:
        """Returns the value that a function has returned."""

    def status(self) -> dict[str, Any]:
        """Returns the current status of the run."""


class Reference:
    """A value that is known once the run has started, or a step has finished. Comparisons give conditions."""

    def value(self, values: ValueSource) -> Any:
        """Returns the value, once it is known."""
        raise NotImplementedError

    @property
    def step(self) -> Any:
        """Returns the step that provides the value."""
        return None

    def __lt__(self, other: object) -> Condition:
        return Condition("<", self, other)

    def __le__(self, other: object) -> Condition:
        return Condition("<=", self, other)

    def __gt__(self, other: object) -> Condition:
        return Condition(">", self, other)

    def __ge__(self, other: object) -> Condition:
        return Condition(">=", self, other)

    def __eq__(self, other: object) -> Condition:  # type: ignore[override] # a condition, which is looked at later
        return Condition("==", self, other)

    def __ne__(self, other: object) -> Condition:  # type: ignore[override]
        return Condition("!=", self, other)

    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        raise TypeError(f"{self!r} has no value yet; give it to `when=`, and join conditions with & and |")

    def __format__(self, spec: str) -> str:
        raise TypeError(f"{self!r} has no value yet; format it in a function of a step")


class Condition:
    """A comparison that is made when its values are known: for `when=`. `&`, `|` and `~` join conditions."""

    def __init__(self, symbol: str, left: object, right: object = None) -> None:
        self.symbol = symbol  # of the comparison; or `and`, `or`, `not`
        self.left = left
        self.right = right  # None for `not`

    def holds(self, values: ValueSource) -> bool:
        """Evaluates the comparison."""
        left, right = (
            side.holds(values) if isinstance(side, Condition) else resolved(side, values) for side in self.sides
        )
        if self.symbol == "not":
            return not left
        if self.symbol in ("and", "or"):
            return bool(left and right) if self.symbol == "and" else bool(left or right)
        return bool(_SYMBOLS[self.symbol](left, right))

    @property
    def sides(self) -> tuple[object, object]:
        """Returns both operands."""
        return self.left, self.right

    def __and__(self, other: object) -> Condition:
        return Condition("and", self, other)

    def __or__(self, other: object) -> Condition:
        return Condition("or", self, other)

    def __invert__(self) -> Condition:
        return Condition("not", self)

    def __bool__(self) -> bool:
        raise TypeError(f"{self} has no value yet; give it to `when=`, and join conditions with & and |")

    def __str__(self) -> str:
        if self.symbol == "not":
            return f"not ({self.left})"
        left, right = (str(side) if isinstance(side, Reference | Condition) else repr(side) for side in self.sides)
        return (
            f"({left} {self.symbol} {right})" if self.symbol in ("and", "or") else f"{left} {self.symbol} {right}"
        )

    __repr__ = __str__


class PipelineParameter(Reference):
    """A value that is passed to a run, created by `Pipeline.parameter`."""

    def __init__(self, name: str, type: type = str, default: Any = ..., help: str = "") -> None:
        self.name = name
        self.type = type
        self.default = default  # `...`: each run has to pass a value
        self.help = help

    def value(self, values: ValueSource) -> Any:
        """Returns the value of the run."""
        return values.parameters[self.name]

    def __repr__(self) -> str:
        return f"parameter {self.name!r}"


class _StepReference(Reference):
    def __init__(self, step: StepLike) -> None:
        self._step = step

    @property
    def step(self) -> Any:
        return self._step


class OutputReference(_StepReference):
    """The URI of an output of a job: `train.outputs.model`."""

    def __init__(self, step: StepLike, channel: str) -> None:
        super().__init__(step)
        self.channel = channel

    def value(self, values: ValueSource) -> Any:
        """Returns the URI."""
        return values.output(self.step.name, self.channel)

    def __repr__(self) -> str:
        return f"{self.step.name}.outputs.{self.channel}"


class ResultReference(_StepReference):
    """The value that a function returns, or a part of it: `score.result["auc"]`."""

    def __init__(self, step: StepLike, path: tuple[Any, ...] = ()) -> None:
        super().__init__(step)
        self.path = path

    def __getitem__(self, key: Any) -> ResultReference:
        return ResultReference(self.step, (*self.path, key))

    def __iter__(self) -> Iterator[Any]:
        raise TypeError(f"{self!r} has no value yet; use pipeline.each() for a step for each of its values")

    def value(self, values: ValueSource) -> Any:
        """Returns the value; raises LookupError if the result has no such part."""
        result = values.result(self.step.name)
        for key in self.path:
            try:
                result = result[key]
            except (LookupError, TypeError):
                raise LookupError(f"{self!r}: the result has no {key!r}") from None
        return result

    def __repr__(self) -> str:
        return f"{self.step.name}.result" + "".join(f"[{key!r}]" for key in self.path)


class StatusReference(Reference):
    """How a run went: for steps with `on_exit=True`. A dict with `status` and `failed`, the reasons by step."""

    def value(self, values: ValueSource) -> Any:
        """Returns the status."""
        return values.status()

    def __repr__(self) -> str:
        return "pipeline.status"


def references_in(value: object) -> Iterator[Reference]:
    """Yields all references in a value: in lists, in dicts, in conditions."""
    if isinstance(value, Reference):
        yield value
    elif isinstance(value, Condition):
        yield from references_in(value.sides)
    elif isinstance(value, Mapping):
        yield from references_in(value.values())
    elif isinstance(value, list | tuple | ValuesView):
        for item in value:
            yield from references_in(item)


def _value_of(side: object, values: ValueSource) -> Any:
    return side.holds(values) if isinstance(side, Condition) else resolved(side, values)


def resolved(value: Any, values: ValueSource) -> Any:
    """Returns the value with its references replaced by their values."""
    if isinstance(value, Reference):
        return value.value(values)
    if isinstance(value, Mapping):
        return {name: resolved(item, values) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [resolved(item, values) for item in value]
    return value


def as_json(value: Any) -> Any:
    """Converts a value to JSON values, so that a result is the same from a cache as from a call."""
    return json.loads(json.dumps(python_value(value), allow_nan=True))
