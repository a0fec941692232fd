"""A search space: the possible values of each hyperparameter.

`Uniform`, `LogUniform`, `IntRange` and `Choice` are plain values; a list is a `Choice`, and distributions of
Optuna are accepted. This module does not import Optuna.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeAlias

from pai_sdk._client.submit.problems import Problems
from pai_sdk._core.names.hints import name_hint, type_problem, wrong_type
from pai_sdk._wire.pai.values import python_value
from pai_sdk.errors import InvalidInputError, Problem

_SCALARS = (str, int, float, bool, type(None))
_MAX_STEPS = 1e15  # of a float range: float64 cannot represent more steps
_MAX_POINTS = 1_000_000  # of a grid, whose order is drawn at once
_HINT = "give Uniform(low, high), LogUniform(low, high), IntRange(low, high), Choice([…]) or a list of values"


@dataclass(frozen=True)
class Uniform:
    """A number in a range, with both limits.

    Attributes:
        low: the minimum.
        high: the maximum.
        step: only `low`, `low + step`, …; any number by default.

    Example:
        >>> Uniform(0.0, 0.5, step=0.1)
        Uniform(low=0.0, high=0.5, step=0.1)
    """

    low: float
    high: float
    step: float | None = None


@dataclass(frozen=True)
class LogUniform:
    """A number in a range above 0; all orders of magnitude have equal probability.

    Attributes:
        low: the minimum.
        high: the maximum.

    Example:
        >>> LogUniform(1e-5, 1e-1)
        LogUniform(low=1e-05, high=0.1)
    """

    low: float
    high: float


@dataclass(frozen=True)
class IntRange:
    """A whole number in a range, with both limits.

    Attributes:
        low: the minimum.
        high: the maximum.
        step: only `low`, `low + step`, ….
        log: all orders of magnitude have equal probability.

    Example:
        >>> IntRange(16, 256, step=16)
        IntRange(low=16, high=256, step=16, log=False)
    """

    low: int
    high: int
    step: int = 1
    log: bool = False


@dataclass(frozen=True)
class Choice:
    """One of several values, of any JSON type. Tuples, and numbers as keys of dicts, keep their types.

    Attributes:
        values: the values.

    Example:
        >>> Choice(["adam", "sgd"])
        Choice(values=('adam', 'sgd'))
    """

    values: Sequence[Any]

    def __post_init__(self) -> None:
        values = self.values if isinstance(self.values, Sequence) else python_value(self.values)  # of numpy
        if isinstance(values, Sequence) and not isinstance(values, str):
            object.__setattr__(self, "values", tuple(values))

    @property
    def are_scalars(self) -> bool:
        """True if Optuna receives the values themselves; otherwise it receives them as JSON.

        Optuna treats `1`, `1.0` and `True` as one choice, and compares numbers as floats.
        """
        are_small = all(isinstance(value, _SCALARS) and not _is_huge(value) for value in self.values)
        return are_small and len({*self.values}) == len(self.values)

    @property
    def keys(self) -> tuple[Any, ...]:
        """The values, encoded for Optuna."""
        if self.are_scalars:
            return tuple(self.values)
        encoded = tuple(map(_json, self.values))
        if len({*encoded}) == len(encoded):
            return encoded
        return tuple(_json(_tagged(value)) for value in self.values)  # `(1, 2)` and `[1, 2]`


Range: TypeAlias = "Uniform | LogUniform | IntRange | Choice"

_KINDS: Mapping[str, type[Uniform | LogUniform | IntRange | Choice]] = {
    "uniform": Uniform,
    "log_uniform": LogUniform,
    "int": IntRange,
    "choice": Choice,
}
"""The ranges by their names in a file; `{int: [16, 256], step: 16}` is `IntRange(16, 256, step=16)`."""


class SearchSpace:
    """The ranges of all hyperparameters, by name; see `checked_space`."""

    def __init__(self, ranges: Mapping[str, Range]) -> None:
        self.ranges = dict(ranges)

    def __len__(self) -> int:
        return len(self.ranges)

    def decoded(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the values of hyperparameters from Optuna's encoding."""
        return {name: self._decoded(name, value) for name, value in params.items()}

    def _decoded(self, name: str, value: Any) -> Any:
        value_range = self.ranges.get(name)
        if isinstance(value_range, Choice) and not value_range.are_scalars:
            return dict(zip(value_range.keys, value_range.values, strict=True)).get(value, value)
        return value

    def encoded(self, values: Mapping[str, Any]) -> dict[str, Any] | None:
        """Returns the values, encoded for Optuna; None if they are not a point of this space."""
        point: dict[str, Any] = {}
        for name, value_range in self.ranges.items():
            if name not in values or (value := _within(value_range, values[name])) is _OUTSIDE:
                return None
            point[name] = value
        return point

    def to_json(self) -> dict[str, Any]:
        """Returns the space as JSON, for the study."""
        names = {kind: name for name, kind in _KINDS.items()}
        return {
            name: [
                names[type(value_range)],
                {f.name: _field_json(getattr(value_range, f.name)) for f in fields(value_range)},
            ]
            for name, value_range in self.ranges.items()
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> SearchSpace:
        """Returns the space from the JSON of `to_json`."""
        return cls(
            {
                name: _KINDS[kind](**{field: _untagged(value) for field, value in values.items()})
                for name, (kind, values) in data.items()
            }
        )

    def continues(self, other: SearchSpace) -> bool:
        """Returns True if the spaces have equal values in Optuna's encoding, in which tuples are lists."""
        return self.ranges.keys() == other.ranges.keys() and all(
            _json(value_range.keys) == _json(other_range.keys)
            if isinstance(value_range, Choice) and isinstance(other_range := other.ranges[name], Choice)
            else value_range == other.ranges[name]
            for name, value_range in self.ranges.items()
        )

    def grid(self) -> list[list[Any]]:
        """Returns all values of each hyperparameter, in the order of the ranges."""
        problems = Problems()
        columns: list[Sequence[Any]] = []
        for name, value_range in self.ranges.items():
            column = _all_values(value_range)
            if column is None:
                problems.add(f"search[{name!r}]", "has infinitely many values", "a grid needs a step, or a list")
            columns.append(column or [])
        problems.raise_if_any()
        if math.prod(map(len, columns)) > _MAX_POINTS:
            message = f"has more than {_MAX_POINTS:,} points"
            raise InvalidInputError([Problem("search", message, "a grid needs larger steps; or another sampler")])
        return [[*column] for column in columns]


def checked_space(search: object, problems: Problems | None = None) -> SearchSpace:
    """Returns the search space of the `search` argument; `problems` collects the errors, or they are raised."""
    collected = Problems() if problems is None else problems
    ranges: dict[str, Range] = {}
    if not isinstance(search, Mapping):
        collected.add("search", type_problem("a mapping", search), "such as {'lr': LogUniform(1e-5, 1e-1)}")
    elif not search:
        collected.add("search", "is empty", _HINT)
    else:
        for name, value in search.items():
            where = f"search[{name!r}]"
            if not isinstance(name, str) or not name:
                collected.add(where, "is not a name")
                continue
            with collected.under(where):
                ranges[name] = _checked(_range_of(value))
    if problems is None:
        collected.raise_if_any()
    return SearchSpace(ranges)


def _range_of(value: Any) -> Range:
    """Parses a value of a search space as a range."""
    if isinstance(value, Uniform | LogUniform | IntRange | Choice):
        return value
    if isinstance(value, list | tuple | range):
        return Choice(list(value))
    if not isinstance(value, type) and isinstance(values := python_value(value), list):  # an array of numpy
        return Choice(values)
    if type(value).__module__.startswith("optuna."):
        return _from_optuna(value)
    if isinstance(value, Mapping):
        return _from_mapping(value)
    hint = "a fixed value belongs to the hyperparameters of the estimator; " if isinstance(value, _SCALARS) else ""
    raise InvalidInputError([wrong_type("", value, "a range of values", hint + _HINT)])


def _from_optuna(distribution: Any) -> Range:
    name = type(distribution).__name__
    if name == "CategoricalDistribution":
        return Choice(distribution.choices)
    if name == "IntDistribution":
        return IntRange(distribution.low, distribution.high, distribution.step, distribution.log)
    if name == "FloatDistribution":
        return (
            LogUniform(distribution.low, distribution.high)
            if distribution.log
            else Uniform(distribution.low, distribution.high, distribution.step)
        )
    raise InvalidInputError([Problem("", f"unknown distribution {name}", _HINT)])


def _from_mapping(mapping: Mapping[str, Any]) -> Range:
    """Parses a range of a file, such as `{log_uniform: [1e-5, 1e-1]}`."""
    options = dict(mapping)
    kind = next((name for name in _KINDS if name in options), None)
    if kind is None:
        hint = name_hint(str(next(iter(options), "")), _KINDS, intro="a range is one of")
        raise InvalidInputError([Problem("", f"{dict(mapping)} is not a range", hint)])
    values = options.pop(kind)
    if kind == "choice":
        arguments: list[Any] = [values]
    else:
        arguments = list(values) if isinstance(values, list | tuple) else [values]
    try:
        return _KINDS[kind](*arguments, **options)
    except TypeError:
        message = f"{dict(mapping)} is not a range"
        hint = "such as {log_uniform: [1e-5, 1e-1]}, {int: [16, 256], step: 16}, {choice: [adam, sgd]}"
        raise InvalidInputError([Problem("", message, hint)]) from None


def _checked(value_range: Range) -> Range:
    """Checks a range, and returns it with numbers of Python."""
    try:
        values: dict[str, Any] = {
            item.name: python_value(getattr(value_range, item.name)) for item in fields(value_range)
        }
        value_range = type(value_range)(**values)
        problem = (
            _choice_problem(value_range) if isinstance(value_range, Choice) else _numbers_problem(value_range)
        )
    except (ValueError, RecursionError) as error:
        problem = Problem(
            "", f"has a value that cannot be stored: {error}", "values of a Choice are those of JSON"
        )
    if problem is not None:
        raise InvalidInputError([problem])
    return value_range


def _choice_problem(choice: Choice) -> Problem | None:
    if not isinstance(choice.values, tuple):
        return wrong_type("", choice.values, "a list as the values of a Choice")
    if not choice.values:
        return Problem("", "is a Choice without values")
    try:
        keys = [(_json(value), _json(_tagged(value)), type(value)) for value in choice.values]
    except (TypeError, ValueError) as error:
        return Problem("", f"has a value that cannot be stored: {error}", "values of a Choice are those of JSON")
    if len({*keys}) < len(keys):
        return Problem("", "is a Choice with the same value twice")
    return None


def _numbers_problem(value_range: Uniform | LogUniform | IntRange) -> Problem | None:
    is_int = isinstance(value_range, IntRange)
    step = getattr(value_range, "step", None)
    for name, value in (
        ("low", value_range.low),
        ("high", value_range.high),
        ("step", 1 if step is None else step),
    ):
        if isinstance(value, bool) or not isinstance(value, int if is_int else int | float):
            return Problem("", f"{name}: expected {'an integer' if is_int else 'a number'}, got {value!r}")
        if _is_huge(value) or not math.isfinite(value):
            return Problem("", f"{name} is {value!r:.40}", "a finite number; integers have a maximum of 64 bits")
    if value_range.low > value_range.high:
        return Problem("", f"low ({value_range.low!r}) is greater than high ({value_range.high!r})")
    if not math.isfinite(value_range.high - value_range.low):
        return Problem(
            "", f"the difference of {value_range.low!r} and {value_range.high!r} is not a finite number"
        )
    if step is not None and step <= 0:
        return Problem("", f"step must be greater than 0, got {step!r}")
    if isinstance(step, float) and (value_range.high - value_range.low) / step > _MAX_STEPS:
        return Problem("", f"step {step!r} is too small for a range up to {value_range.high!r}", "leave it out")
    is_log = isinstance(value_range, LogUniform) or (isinstance(value_range, IntRange) and value_range.log)
    if is_log and value_range.low <= 0:
        return Problem(
            "", f"low of a logarithmic range must be greater than 0, got {value_range.low!r}", "such as 1e-6"
        )
    if isinstance(value_range, IntRange) and value_range.log and value_range.step != 1:
        return Problem("", "log and step cannot be combined")
    return None


_OUTSIDE = object()


def _within(value_range: Range, value: Any) -> Any:
    """Returns a value, encoded for Optuna; `_OUTSIDE` if it is not in the range. Numbers can be strings."""
    try:
        if isinstance(value_range, Choice):
            keys_by_string = {
                _job_string(choice_value): key
                for choice_value, key in zip(value_range.values, value_range.keys, strict=True)
            }
            return keys_by_string.get(_job_string(python_value(value)), _OUTSIDE)
        number = float(value)
    except (TypeError, ValueError, OverflowError, RecursionError):  # for example 400 digits
        return _OUTSIDE
    if isinstance(value_range, IntRange) and not number.is_integer():
        return _OUTSIDE
    if not value_range.low <= number <= value_range.high:
        return _OUTSIDE
    return int(number) if isinstance(value_range, IntRange) else number


def _all_values(value_range: Range) -> Sequence[Any] | None:
    if isinstance(value_range, Choice):
        return value_range.keys
    if isinstance(value_range, IntRange):
        values = range(value_range.low, value_range.high + 1, value_range.step)
        return values if value_range.high - value_range.low < 2**62 else range(2**62)  # a length is a C number
    if isinstance(value_range, Uniform) and value_range.step is not None:
        count = math.floor((value_range.high - value_range.low) / value_range.step + 1e-9)
        if count > _MAX_POINTS:
            return range(count)  # refused by its length
        return [value_range.low + number * value_range.step for number in range(count + 1)]
    return None


_TUPLE, _DICT = "$tuple", "$dict"  # types that JSON lacks, in the metadata of a study


def _tagged(value: Any) -> Any:
    """Returns a value as JSON that `_untagged` converts back."""
    if isinstance(value, tuple):
        return {_TUPLE: [_tagged(item) for item in value]}
    if isinstance(value, list):
        return [_tagged(item) for item in value]
    if not isinstance(value, Mapping):
        return value
    if all(isinstance(key, str) and not key.startswith("$") for key in value):
        return {key: _tagged(item) for key, item in value.items()}
    return {_DICT: [[key, _tagged(item)] for key, item in value.items()]}


def _field_json(value: Any) -> Any:
    return [_tagged(item) for item in value] if isinstance(value, tuple) else value  # the values of a choice


def _untagged(value: Any) -> Any:
    if isinstance(value, list):
        return [_untagged(item) for item in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {_TUPLE}:
        return tuple(_untagged(item) for item in value[_TUPLE])
    if value.keys() == {_DICT}:
        return {key: _untagged(item) for key, item in value[_DICT]}
    return {key: _untagged(item) for key, item in value.items()}


def _json(value: Any) -> str:
    text = json.dumps(value, allow_nan=False)
    return json.dumps(json.loads(text), sort_keys=True)  # keys of several types can only be sorted as strings


def _is_huge(value: object) -> bool:
    return isinstance(value, int) and not -(2**63) <= value < 2**63


def _job_string(value: Any) -> str:
    """Returns a value as a job receives it: `1`, `1.0` and `"1"` are one value of a hyperparameter."""
    if isinstance(value, int | float) and not isinstance(value, bool) and float(value).is_integer():
        return str(int(value))
    return value if isinstance(value, str) else _json(value)
