"""A search space: which values each hyperparameter may have.

`Uniform`, `LogUniform`, `IntRange` and `Choice` are plain values; a list is a `Choice`, and distributions of
Optuna are accepted. This module does not import Optuna.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeAlias

from pai_sdk.base.hints import is_of_type, name_hint
from pai_sdk.errors import InvalidInputError, Problem
from pai_sdk.schemas.values import python_value
from pai_sdk.submit.problems import Problems

__all__ = ["Choice", "IntRange", "LogUniform", "Range", "SearchSpace", "Uniform", "checked_space"]

_SCALARS = (str, int, float, bool, type(None))
_MAX_STEPS = 1e15  # of a float range: between them, float64 has no more numbers
_MAX_POINTS = 1_000_000  # of a grid, whose order is drawn at once
_HINT = "give Uniform(low, high), LogUniform(low, high), IntRange(low, high), Choice([…]) or a list of values"


@dataclass(frozen=True)
class Uniform:
    """A number between two others, both included.

    Attributes:
        low: the least value.
        high: the largest one.
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
    """A number between two others above 0, each order of magnitude as probable as any other.

    Attributes:
        low: the least value.
        high: the largest one.

    Example:
        >>> LogUniform(1e-5, 1e-1)
        LogUniform(low=1e-05, high=0.1)
    """

    low: float
    high: float


@dataclass(frozen=True)
class IntRange:
    """A whole number between two others, both included.

    Attributes:
        low: the least value.
        high: the largest one.
        step: only `low`, `low + step`, ….
        log: each order of magnitude is as probable as any other.

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
    """One of several values, of any type that JSON has. Tuples, and numbers as keys of dicts, stay what they are.

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
        """True where Optuna gets the values as they are; others are given to it as JSON.

        Optuna takes `1`, `1.0` and `True` for the same choice, and compares numbers as floats.
        """
        are_small = all(isinstance(value, _SCALARS) and not _is_huge(value) for value in self.values)
        return are_small and len({*self.values}) == len(self.values)

    @property
    def keys(self) -> tuple[Any, ...]:
        """The values as Optuna knows them."""
        if self.are_scalars:
            return tuple(self.values)
        texts = tuple(map(_json, self.values))
        if len({*texts}) == len(texts):
            return texts
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
    """The ranges of all hyperparameters, by name.

    Args:
        ranges: name to range; see `checked_space`.

    Example:
        >>> space = checked_space({"lr": LogUniform(1e-4, 1e-1), "layers": [[64], [64, 32]]})
        >>> space.decoded({"lr": 0.01, "layers": "[64, 32]"})
        {'lr': 0.01, 'layers': [64, 32]}
    """

    def __init__(self, ranges: Mapping[str, Range]) -> None:
        self.ranges = dict(ranges)

    def __len__(self) -> int:
        return len(self.ranges)

    def decoded(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """The values of hyperparameters, from the keys by which Optuna knows them."""
        return {name: self._decoded(name, value) for name, value in params.items()}

    def _decoded(self, name: str, value: Any) -> Any:
        found = self.ranges.get(name)
        if isinstance(found, Choice) and not found.are_scalars:
            return dict(zip(found.keys, found.values, strict=True)).get(value, value)
        return value

    def encoded(self, values: Mapping[str, Any]) -> dict[str, Any] | None:
        """The values as Optuna knows them; None if they are not a point of this space."""
        found: dict[str, Any] = {}
        for name, given in self.ranges.items():
            if name not in values or (value := _within(given, values[name])) is _OUTSIDE:
                return None
            found[name] = value
        return found

    def to_json(self) -> dict[str, Any]:
        """The space as JSON, for the study."""
        names = {kind: name for name, kind in _KINDS.items()}
        return {
            name: [names[type(one)], {f.name: _field_json(getattr(one, f.name)) for f in fields(one)}]
            for name, one in self.ranges.items()
        }

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> SearchSpace:
        """The space that `to_json` has written."""
        return cls(
            {
                name: _KINDS[kind](**{field: _untagged(value) for field, value in values.items()})
                for name, (kind, values) in found.items()
            }
        )

    def continues(self, other: SearchSpace) -> bool:
        """Returns whether this space has the same values, as Optuna knows them. Tuples are lists there."""
        return self.ranges.keys() == other.ranges.keys() and all(
            _json(one.keys) == _json(theirs.keys)
            if isinstance(one, Choice) and isinstance(theirs := other.ranges[name], Choice)
            else one == other.ranges[name]
            for name, one in self.ranges.items()
        )

    def grid(self) -> list[list[Any]]:
        """All values of each hyperparameter, in the order of the ranges.

        Raises:
            InvalidInputError: a range has no such list, as it has no step.
        """
        problems = Problems()
        columns: list[Sequence[Any]] = []
        for name, one in self.ranges.items():
            column = _all_values(one)
            if column is None:
                problems.add(f"search[{name!r}]", "has infinitely many values", "a grid needs a step, or a list")
            columns.append(column or [])
        problems.raise_if_any()
        if math.prod(map(len, columns)) > _MAX_POINTS:
            what = f"has more than {_MAX_POINTS:,} points"
            raise InvalidInputError([Problem("search", what, "a grid needs larger steps; or another sampler")])
        return [[*column] for column in columns]


def checked_space(search: object, problems: Problems | None = None) -> SearchSpace:
    """The search space that a user has given.

    Args:
        search: name to range, to a list of values, to a distribution of Optuna, or to the same as in a file.
        problems: notes what is wrong; without it, that is raised.

    Raises:
        InvalidInputError: with everything that is wrong.
    """
    found = Problems() if problems is None else problems
    ranges: dict[str, Range] = {}
    if not isinstance(search, Mapping):
        found.add("search", is_of_type(search), "give a dict: {'lr': LogUniform(1e-5, 1e-1)}")
    elif not search:
        found.add("search", "is empty", _HINT)
    else:
        for name, given in search.items():
            where = f"search[{name!r}]"
            if not isinstance(name, str) or not name:
                found.add(where, "is not a name")
                continue
            with found.under(where):
                ranges[name] = _checked(_range_of(given))
    if problems is None:
        found.raise_if_any()
    return SearchSpace(ranges)


def _range_of(given: Any) -> Range:
    """The range that is meant by a value of a search space.

    Raises:
        InvalidInputError: none.
    """
    if isinstance(given, Uniform | LogUniform | IntRange | Choice):
        return given
    if isinstance(given, list | tuple | range):
        return Choice(list(given))
    if not isinstance(given, type) and isinstance(values := python_value(given), list):  # an array of numpy
        return Choice(values)
    if type(given).__module__.startswith("optuna."):
        return _from_optuna(given)
    if isinstance(given, Mapping):
        return _from_mapping(given)
    hint = "a fixed value belongs to the hyperparameters of the estimator; " if isinstance(given, _SCALARS) else ""
    raise InvalidInputError([Problem("", is_of_type(given), hint + _HINT)])


def _from_optuna(given: Any) -> Range:
    name = type(given).__name__
    if name == "CategoricalDistribution":
        return Choice(given.choices)
    if name == "IntDistribution":
        return IntRange(given.low, given.high, given.step, given.log)
    if name == "FloatDistribution":
        return LogUniform(given.low, given.high) if given.log else Uniform(given.low, given.high, given.step)
    raise InvalidInputError([Problem("", f"the distribution {name} is not known", _HINT)])


def _from_mapping(given: Mapping[str, Any]) -> Range:
    """A range as in a file: `{log_uniform: [1e-5, 1e-1]}`."""
    rest = dict(given)
    kind = next((name for name in _KINDS if name in rest), None)
    if kind is None:
        hint = name_hint(str(next(iter(rest), "")), _KINDS, intro="a range is one of")
        raise InvalidInputError([Problem("", f"{dict(given)} is no range", hint)])
    values = rest.pop(kind)
    if kind == "choice":
        arguments: list[Any] = [values]
    else:
        arguments = list(values) if isinstance(values, list | tuple) else [values]
    try:
        return _KINDS[kind](*arguments, **rest)
    except TypeError:
        what = f"{dict(given)} is no range"
        hint = "such as {log_uniform: [1e-5, 1e-1]}, {int: [16, 256], step: 16}, {choice: [adam, sgd]}"
        raise InvalidInputError([Problem("", what, hint)]) from None


def _checked(given: Range) -> Range:
    """The range with numbers of Python, if it makes sense.

    Raises:
        InvalidInputError: it does not.
    """
    try:
        values: dict[str, Any] = {one.name: python_value(getattr(given, one.name)) for one in fields(given)}
        given = type(given)(**values)
        problem = _choice_problem(given) if isinstance(given, Choice) else _numbers_problem(given)
    except (ValueError, RecursionError) as error:
        problem = Problem("", f"has a value that cannot be kept: {error}", "values of a Choice are those of JSON")
    if problem is not None:
        raise InvalidInputError([problem])
    return given


def _choice_problem(given: Choice) -> Problem | None:
    if not isinstance(given.values, tuple):
        return Problem("", f"the values of a Choice are a list, and not of type {type(given.values).__name__}")
    if not given.values:
        return Problem("", "is a Choice without values")
    try:
        keys = [(_json(value), _json(_tagged(value)), type(value)) for value in given.values]
    except (TypeError, ValueError) as error:
        return Problem("", f"has a value that cannot be kept: {error}", "values of a Choice are those of JSON")
    if len({*keys}) < len(keys):
        return Problem("", "is a Choice with the same value twice")
    return None


def _numbers_problem(given: Uniform | LogUniform | IntRange) -> Problem | None:
    is_whole = isinstance(given, IntRange)
    step = getattr(given, "step", None)
    for name, value in (("low", given.low), ("high", given.high), ("step", 1 if step is None else step)):
        if isinstance(value, bool) or not isinstance(value, int if is_whole else int | float):
            return Problem("", f"{name} is {value!r}, which is not a {'whole ' if is_whole else ''}number")
        if _is_huge(value) or not math.isfinite(value):
            return Problem("", f"{name} is {value!r:.40}", "a finite number; a whole one has at most 64 bits")
    if given.low > given.high:
        return Problem("", f"low is {given.low!r}, above high, which is {given.high!r}")
    if not math.isfinite(given.high - given.low):
        return Problem("", f"the distance of {given.low!r} and {given.high!r} is beyond the range of numbers")
    if step is not None and step <= 0:
        return Problem("", f"step is {step!r}, and must be above 0")
    if isinstance(step, float) and (given.high - given.low) / step > _MAX_STEPS:
        return Problem("", f"step is {step!r}, too small for a range up to {given.high!r}", "leave it out")
    is_log = isinstance(given, LogUniform) or (isinstance(given, IntRange) and given.log)
    if is_log and given.low <= 0:
        return Problem("", f"low is {given.low!r}, and a logarithmic range begins above 0", "such as 1e-6")
    if isinstance(given, IntRange) and given.log and given.step != 1:
        return Problem("", "log and step cannot be combined")
    return None


_OUTSIDE = object()


def _within(given: Range, value: Any) -> Any:
    """A value as Optuna knows it; `_OUTSIDE` if it is not in the range. Numbers may be given as text."""
    try:
        if isinstance(given, Choice):
            texts = {_text(one): key for one, key in zip(given.values, given.keys, strict=True)}
            return texts.get(_text(python_value(value)), _OUTSIDE)
        number = float(value)
    except (
        TypeError,
        ValueError,
        OverflowError,
        RecursionError,
    ):  # NaN or 400 digits, say
        return _OUTSIDE
    if isinstance(given, IntRange) and not number.is_integer():
        return _OUTSIDE
    if not given.low <= number <= given.high:
        return _OUTSIDE
    return int(number) if isinstance(given, IntRange) else number


def _all_values(given: Range) -> Sequence[Any] | None:
    if isinstance(given, Choice):
        return given.keys
    if isinstance(given, IntRange):
        values = range(given.low, given.high + 1, given.step)
        return values if given.high - given.low < 2**62 else range(2**62)  # a length is a C number
    if isinstance(given, Uniform) and given.step is not None:
        count = math.floor((given.high - given.low) / given.step + 1e-9)
        if count > _MAX_POINTS:
            return range(count)  # refused by its length
        return [given.low + number * given.step for number in range(count + 1)]
    return None


_TUPLE, _DICT = "$tuple", "$dict"  # what JSON has no word for, in the metadata of a study


def _tagged(value: Any) -> Any:
    """A value as JSON from which `_untagged` makes the same value."""
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
    return json.dumps(json.loads(text), sort_keys=True)  # keys of several types can be sorted as strings only


def _is_huge(value: object) -> bool:
    return isinstance(value, int) and not -(2**63) <= value < 2**63


def _text(value: Any) -> str:
    """A value as a job has it: `1`, `1.0` and the text `1` are one value of a hyperparameter."""
    if isinstance(value, int | float) and not isinstance(value, bool) and float(value).is_integer():
        return str(int(value))
    return value if isinstance(value, str) else _json(value)
