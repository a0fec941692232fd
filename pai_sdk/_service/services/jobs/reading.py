"""Parses request bodies: an unset field may be written in any form, an unknown one is refused.

The models describe the bodies of this package's client. Other clients write unset fields in other forms: Alibaba
Cloud's generated clients send `[]` for lists, alipai sends `{}` for objects, others send null or an empty string.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, TypeVar, get_args, get_origin

from pydantic import BaseModel, ValidationError

from pai_sdk._service.wire_errors import invalid_parameter
from pai_sdk._wire.pai.numbers import LARGEST_INTEGER, checked_number

_Model = TypeVar("_Model", bound=BaseModel)
_Models = tuple[type[BaseModel], ...]

# The size of a body is limited too, but the report of an invalid item takes a hundred times the item's size.
_MAX_ITEMS = 1000
_MAX_VALUES = 20_000
_MAX_PROBLEMS = 20


def read_body(body: bytes) -> dict[str, Any]:
    """Parses a request's body as a JSON object; refuses too many values and strings that cannot be stored."""
    try:
        value = json.loads(body or b"{}")
        # The parser accepts values that cannot be encoded again: lone surrogates, NaN, infinity.
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError) as error:
        raise invalid_parameter(f"The body is not JSON: {type(error).__name__}.") from error
    if not isinstance(value, dict):
        raise invalid_parameter("The body is not a JSON object.")
    _check_values(value)
    return value


def read_model(model: type[_Model], value: Any, *, where: str = "") -> _Model:
    """Validates a JSON value by its names in the REST API, after all unset fields were removed from it.

    `where` is the path of the value in the body, for messages. WireError lists all problems.
    """
    cleaned = _without_unset(value, (model,))
    try:
        instance = model.model_validate(cleaned, by_alias=True, by_name=False)
    except ValidationError as error:
        prefix = f"{where}." if where else ""
        problems = error.errors(include_url=False, include_input=False, include_context=False)
        raise invalid_parameter(
            join_problems(
                f"{prefix}{'.'.join(map(str, problem['loc'])) or 'body'}: {problem['msg']}" for problem in problems
            )
        ) from error
    _check_numbers(cleaned, (model,), where)
    return instance


def _check_numbers(value: Any, models: _Models, where: str) -> None:
    """Checks strings in number fields like numbers of the body: pydantic also accepts `nan` and `1_0`."""
    if isinstance(value, list):
        for item in value:
            _check_numbers(item, models, where)
    elif isinstance(value, dict):
        fields = _fields_of(models) if models else {}
        for key, item in value.items():
            if field := fields.get(key):
                path = f"{where}.{key}" if where else key
                if field.takes_numbers:
                    _check_number(item, path)
                _check_numbers(item, field.models, path)


def _check_number(value: Any, where: str) -> None:
    for item in value if isinstance(value, list) else [value]:
        try:
            checked_number(item)
        except ValueError as error:
            raise invalid_parameter(f"{where}: {error}") from error


def join_problems(problems: Iterable[str]) -> str:
    """Joins the first problems, and the number of further ones."""
    all_problems = list(problems)
    more = len(all_problems) - _MAX_PROBLEMS
    return "; ".join(all_problems[:_MAX_PROBLEMS]) + (f"; and {more} more" if more > 0 else "")


def _check_values(body: dict[str, Any]) -> None:
    """Refuses a body with too many values, or values that cannot be stored."""
    count, pending = 0, [("body", body)]
    while pending:
        where, value = pending.pop()
        count += 1
        if isinstance(value, dict | list):
            if len(value) > _MAX_ITEMS:
                raise invalid_parameter(f"{where[:100]}: has {len(value)} items; {_MAX_ITEMS} are allowed")
            pairs = value.items() if isinstance(value, dict) else ((where, item) for item in value)
            pending += pairs
        if "\0" in where or (isinstance(value, str) and "\0" in value):
            raise invalid_parameter("The body holds a NUL character, which no database and no environment can.")
        if isinstance(value, int) and abs(value) > LARGEST_INTEGER:
            raise invalid_parameter(f"{where[:100]}: the number has more than 64 bits")
        if count + len(pending) > _MAX_VALUES:
            raise invalid_parameter(f"The body holds more than {_MAX_VALUES} values.")


# ---- unset fields -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Field:
    """Properties of a field that decide whether an empty value is unset."""

    models: _Models
    is_required: bool
    takes_a_container: bool
    takes_numbers: bool = False


# An empty value of an unknown field is ignored: some clients send all fields of their model.
_UNKNOWN = _Field((), is_required=False, takes_a_container=True)


def _without_unset(value: Any, models: _Models) -> Any:
    if isinstance(value, list):
        return [_without_unset(item, models) for item in value] if models else value
    if not isinstance(value, dict):
        return value
    if not models:  # a free mapping such as `Environments`: only null is unset
        return {key: item for key, item in value.items() if item is not None}
    fields = _fields_of(models)
    set_fields = {}
    for key, item in value.items():
        field = fields.get(key, _UNKNOWN)
        cleaned = item if field is _UNKNOWN else _without_unset(item, field.models)
        if not _is_unset(cleaned, field):
            set_fields[key] = cleaned
    return set_fields


def _is_unset(value: Any, field: _Field) -> bool:
    if value is None:
        return True
    if isinstance(value, (dict, list)):
        return not value and not field.is_required
    # An empty string is a value if the field accepts any string.
    return value == "" and field.takes_a_container and not field.is_required


@cache
def _fields_of(models: _Models) -> dict[str, _Field]:
    for model in models:
        model.model_rebuild()  # before pydantic 2.12, fields of a deferred model have no alias until then
    return {
        field.alias or name: _Field(
            _models_in(field.annotation),
            field.is_required(),
            _takes_a_container(field.annotation),
            _takes_numbers(field.annotation),
        )
        for model in models
        for name, field in model.model_fields.items()
    }


def _takes_a_container(annotation: Any) -> bool:
    if get_origin(annotation) in (dict, list) or _models_in(annotation):
        return True
    return any(_takes_a_container(part) for part in get_args(annotation))


def _takes_numbers(annotation: Any) -> bool:
    """Returns True for a number or a list of numbers, but not for a union with other types."""
    parts = [part for part in get_args(annotation) if part is not type(None)]
    if get_origin(annotation) is Annotated:
        parts = parts[:1]
    return annotation in (int, float) or (bool(parts) and all(map(_takes_numbers, parts)))


def _models_in(annotation: Any) -> _Models:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return (annotation,)
    return tuple(model for part in get_args(annotation) for model in _models_in(part))
