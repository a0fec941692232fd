"""Base classes of the models of the wire: PascalCase outside, strict when written, tolerant when read."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from typing import Annotated, Any, TypeAlias, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    ModelWrapValidatorHandler,
    ValidationError,
    model_validator,
)
from pydantic.alias_generators import to_pascal
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError

from pai_sdk._core.names.hints import name_hint, type_problem
from pai_sdk.errors import InvalidInputError, Problem

_Model = TypeVar("_Model", bound="Sent")
_T = TypeVar("_T")

NullableList: TypeAlias = Annotated[list[_T], BeforeValidator(lambda value: [] if value is None else value)]
"""A list of a `Received` model; some services send null in place of an empty one."""

_UNKNOWN_FIELD = "unknown_field"
# Types of pydantic's errors for a value of a wrong type, and the expected type.
_EXPECTED = {
    "string_type": "a string",
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "an integer"),
    **dict.fromkeys(("float_type", "float_parsing"), "a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "a boolean"),
    **dict.fromkeys(("list_type", "tuple_type"), "a list"),
    **dict.fromkeys(("dict_type", "mapping_type", "model_type"), "a mapping"),
}


class Sent(BaseModel):
    """A model that we write: immutable, and a field it does not know is an error, not a loss.

    Raises:
        InvalidInputError: with all fields that are unknown, missing or wrong.
    """

    model_config = ConfigDict(
        alias_generator=to_pascal,
        populate_by_name=True,
        extra="forbid",
        frozen=True,
        protected_namespaces=(),
        defer_build=True,  # importing this library must cost almost nothing
    )

    def __init__(self, /, *values: Any, **fields: Any) -> None:
        name = type(self).__name__
        if values:
            names = ", ".join(f"{field}=…" for field in [*type(self).model_fields][:3])
            raise InvalidInputError([Problem(f"{name}()", "takes no values by position", f"name them: {names}")])
        try:
            super().__init__(**fields)
        except ValidationError as error:
            raise InvalidInputError(problems_of(error, name)) from None

    # Without this, pydantic would call __init__ for a model inside another, and lose the path of the error.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    @model_validator(mode="wrap")
    @classmethod
    def _suggest_near_fields(cls: type[_Model], value: Any, validate: ModelWrapValidatorHandler[_Model]) -> _Model:
        try:
            return validate(value)
        except ValidationError as error:
            details = [_with_suggestion(cls, detail) for detail in error.errors(include_url=False)]
        raise ValidationError.from_exception_data(cls.__name__, details)

    def to_wire(self) -> dict[str, Any]:
        """Returns the JSON object that is sent: wire names, without unset fields."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)

    def to_dict(self) -> dict[str, Any]:
        """Returns `to_wire()`; the name is that of alipai."""
        return self.to_wire()

    def to_json(self, *, indent: int | None = None) -> str:
        """Returns the JSON as a string; compact unless an indent is given."""
        separators = (",", ":") if indent is None else None
        return json.dumps(self.to_wire(), ensure_ascii=False, indent=indent, separators=separators)


def problems_of(error: ValidationError, where: str) -> list[Problem]:
    """Returns the problems of a failed validation by pydantic; `where` names the validated value."""
    problems = []
    for detail in error.errors(include_url=False):
        path = "".join(f".{part}" if isinstance(part, str) else f"[{part}]" for part in detail["loc"])
        problems.append(Problem(where + path, _message(detail)))
    return problems


def _message(detail: ErrorDetails) -> str:
    """Returns what is wrong, without the value and without names of pydantic's schemas."""
    if detail["type"] == "missing":
        return "is required"
    if (expected := _EXPECTED.get(detail["type"])) is not None:
        return type_problem(expected, detail["input"])
    return detail["msg"].removeprefix("Value error, ")


def _with_suggestion(model: type[BaseModel], detail: ErrorDetails) -> InitErrorDetails:
    """Returns the error; for an unknown field, with the nearest field in the message."""
    kind: str | PydanticCustomError = detail["type"]
    if kind == "extra_forbidden" and len(detail["loc"]) == 1:
        kind = PydanticCustomError(_UNKNOWN_FIELD, _unknown(model, str(detail["loc"][0])))
    elif kind == _UNKNOWN_FIELD:  # of a model inside this one
        kind = PydanticCustomError(_UNKNOWN_FIELD, detail["msg"])
    suggested: InitErrorDetails = {"type": kind, "loc": detail["loc"], "input": detail["input"]}
    if "ctx" in detail:
        suggested["ctx"] = detail["ctx"]
    return suggested


def _unknown(model: type[BaseModel], name: str) -> str:
    fields = model.model_fields
    # Its own name in Python is unknown in a body, where only the alias is.
    by_name = name == name.lower() and name not in fields
    names = [*fields] if by_name else [field.alias or key for key, field in fields.items()]
    return f"is unknown; {name_hint(name, names, max_names=len(names))}"


class Received(BaseModel):
    """A model that we read: what is missing is None, what is unknown is kept."""

    model_config = ConfigDict(
        alias_generator=to_pascal,
        populate_by_name=True,
        extra="allow",
        coerce_numbers_to_str=True,  # ids come as numbers from some services, as text from others
        frozen=True,
        protected_namespaces=(),
        defer_build=True,
    )

    def to_dict(self) -> dict[str, Any]:
        """Returns the JSON object that was received: names of the wire, without unset fields."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


def wire_time(seconds: float | None) -> str | None:
    """Converts seconds since 1970 to a time of the wire; None for no time, and outside of the years 1 to 9999."""
    if seconds is None:
        return None
    try:
        moment = datetime.fromtimestamp(seconds, tz=timezone.utc)
    except (ValueError, OverflowError, OSError):
        return None
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def seconds_of(moment: str | None) -> float | None:
    """Converts a time of the wire to seconds since 1970; None for no time, or a malformed one."""
    try:
        parsed = datetime.fromisoformat((moment or "").replace("Z", "+00:00"))
        return (parsed if parsed.tzinfo else parsed.replace(tzinfo=timezone.utc)).timestamp()
    except (ValueError, OverflowError):
        return None
