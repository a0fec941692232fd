"""The definition of an algorithm, and the check of a job against it; used by client and service."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

from pydantic import Field

from pai_sdk._core.names.hints import name_hint
from pai_sdk._wire.pai.secret_values import masked_arguments
from pai_sdk._wire.pai.spec import (
    AlgorithmSpec,
    Channel,
    ChannelFields,
    HyperParameter,
    ParameterFields,
    RangeFields,
)
from pai_sdk._wire.pai.wire import NullableList, Received
from pai_sdk.errors import Problem


class ParameterRange(Received, RangeFields):
    """The values that a hyperparameter may take."""


class ParameterDefinition(Received, ParameterFields):
    """A hyperparameter, as a registered algorithm defines it."""

    range: ParameterRange | None = None


class ChannelDefinition(Received, ChannelFields):
    """An input or output channel, as a registered algorithm defines it."""

    def as_channel(self) -> Channel:
        """Returns the fields by which the channels of a job are checked."""
        return Channel(name=self.name, description=self.description, required=self.required)


class AlgorithmDefinition(Received):
    """An algorithm's spec as it is read: what is missing is None or empty, what is unknown is kept."""

    image: str | None = None
    command: NullableList[str] = Field(default_factory=list)
    job_type: str | None = None
    code_dir: dict[str, Any] | None = None
    input_channels: NullableList[ChannelDefinition] = Field(default_factory=list)
    output_channels: NullableList[ChannelDefinition] = Field(default_factory=list)
    hyperparameter_definitions: NullableList[ParameterDefinition] = Field(
        default_factory=list, alias="HyperParameters"
    )
    supported_instance_types: NullableList[str] = Field(default_factory=list)
    supports_distributed_training: bool | None = None
    customization: dict[str, Any] | None = None

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        for name, value in super().__repr_args__():
            yield name, masked_arguments(self.command) if name == "command" else value

    @classmethod
    def of(cls, spec: AlgorithmSpec) -> AlgorithmDefinition:
        """Returns a spec in the tolerant form."""
        return cls.model_validate(spec.to_wire())

    @property
    def takes_code(self) -> bool:
        """True if a job can have code of its own."""
        return bool((self.customization or {}).get("CodeDir"))


def with_defaults(
    definitions: Sequence[ParameterDefinition], explicit: Sequence[HyperParameter]
) -> list[HyperParameter]:
    """Returns the hyperparameters of a job: the explicit ones, and the defaults of the others."""
    names = {value.name for value in explicit}
    defaults = [
        HyperParameter(name=definition.name, value=definition.default_value)
        for definition in definitions
        if definition.name not in names and definition.default_value is not None
    ]
    return [*explicit, *defaults]


def hyperparameter_problems(
    definitions: Sequence[ParameterDefinition],
    values: Sequence[HyperParameter],
    where: str,
    *,
    fits_pattern: Callable[[str, str], bool] | None = None,
) -> Iterator[Problem]:
    """Yields the problems of hyperparameters, by the definitions of the algorithm; none without definitions."""
    # `values` include defaults. `fits_pattern` replaces `re.search` where the expression is not trusted, as in a
    # service.
    by_name = {definition.name: definition for definition in definitions}
    hints = 0
    for value in values if by_name else ():
        definition = by_name.get(value.name)
        at = f"{where}[{value.name!r}]"
        if definition is None:
            # A hint compares the name with all defined ones: quadratic for a request of many names.
            hints += 1
            hint = name_hint(value.name, by_name) if hints <= _MAX_HINTS else ""
            yield Problem(at, "the algorithm has no such hyperparameter", hint)
            continue
        wrong = _type_problem(definition.type, value.value)
        if wrong:
            yield Problem(at, wrong)
            continue
        for wrong in _range_problems(definition.range, value.value, fits_pattern or _fits):
            yield Problem(at, wrong)
    present = {value.name for value in values}
    for definition in definitions:
        if definition.required and definition.name not in present:
            yield Problem(f"{where}[{definition.name!r}]", "is required", definition.description or "")


def instance_problems(
    definition: AlgorithmDefinition, instance_type: str | None, instance_count: int, names: tuple[str, str]
) -> Iterator[Problem]:
    """Yields the problems of the hardware of a job, by the definition of the algorithm."""
    # `instance_type` is None for instances of a quota. `names` are those of the two parameters.
    supported = definition.supported_instance_types
    if instance_type is not None and supported and instance_type not in supported:
        yield Problem(
            names[0], f"the algorithm does not run on {instance_type!r}", name_hint(instance_type, supported)
        )
    if definition.supports_distributed_training is False and instance_count > 1:
        yield Problem(names[1], f"the algorithm runs on one instance, not on {instance_count}")


_MAX_HINTS = 20
_INTEGER = re.compile(r"[-+]?[0-9]+")
_KINDS: dict[str, tuple[str, Callable[[str], bool]]] = {
    **dict.fromkeys(
        ("int", "integer", "long", "int32", "int64"),
        ("an integer", lambda text: _INTEGER.fullmatch(text.strip()) is not None),
    ),
    **dict.fromkeys(("float", "double", "number"), ("a number", lambda text: _number(text) is not None)),
    **dict.fromkeys(
        ("bool", "boolean"), ("true or false", lambda text: text.strip().lower() in ("true", "false", "0", "1"))
    ),
}


def _type_problem(kind: str | None, text: str) -> str:
    """Returns the problem of a value; empty for types that only the algorithm itself can check."""
    description, fits = _KINDS.get((kind or "").lower(), ("", lambda _: True))
    return "" if fits(text) else f"expected {description}, got {text[:80]!r}"


def _range_problems(allowed: ParameterRange | None, text: str, fits: Callable[[str, str], bool]) -> Iterator[str]:
    if allowed is None:
        return
    if allowed.enum and text not in allowed.enum:
        yield f"expected one of {', '.join(allowed.enum)}, got {text[:80]!r}"
    yield from _bound_problems(allowed, text)
    if allowed.min_length is not None and len(text) < allowed.min_length:
        yield f"has {len(text)} characters; the minimum is {allowed.min_length}"
    if allowed.max_length is not None and len(text) > allowed.max_length:
        yield f"has {len(text)} characters; the maximum is {allowed.max_length}"
    if allowed.pattern and not fits(allowed.pattern, text):
        yield f"{text[:80]!r} does not match {allowed.pattern}"


def _bound_problems(allowed: ParameterRange, text: str) -> Iterator[str]:
    value, minimum, maximum = (None if t is None else _number(t) for t in (text, allowed.minimum, allowed.maximum))
    if value is None:
        if minimum is not None or maximum is not None:
            yield f"expected a number, got {text[:80]!r}"
        return
    if minimum is not None and (value < minimum or (allowed.exclusive_minimum and value == minimum)):
        bound = "exclusive minimum" if allowed.exclusive_minimum else "minimum"
        yield f"{text[:80]} is too small; the {bound} is {allowed.minimum}"
    if maximum is not None and (value > maximum or (allowed.exclusive_maximum and value == maximum)):
        bound = "exclusive maximum" if allowed.exclusive_maximum else "maximum"
        yield f"{text[:80]} is too large; the {bound} is {allowed.maximum}"


def _number(text: str) -> Decimal | None:
    try:
        value = Decimal(text.strip())
    except InvalidOperation:
        return None
    return value if value.is_finite() and "_" not in text else None


def _fits(pattern: str, text: str) -> bool:
    try:
        return re.search(pattern, text) is not None
    except re.error:
        return True  # in another dialect than Python's: the service checks it
