"""What many bodies have in common, and their fields by the names of the API."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

from pydantic import BaseModel, BeforeValidator, Field, WithJsonSchema
from pydantic.alias_generators import to_pascal

from pai_sdk._wire.pai.wire import Received, Sent

__all__ = [
    "TOTAL_COUNT",
    "AnyResponse",
    "Empty",
    "Received",
    "Sent",
    "Strings",
    "items_key",
    "response_body",
    "wire_name",
    "wire_names",
]

TOTAL_COUNT = "TotalCount"
"""The field of a page of a list that counts the items of all pages."""


class AnyResponse(Received):
    """The field that every response to an action has."""

    request_id: str


Strings: TypeAlias = Annotated[
    list[Any] | None,
    BeforeValidator(lambda value: value if isinstance(value, list) else None),
    WithJsonSchema({"type": "array", "items": {"type": ["string", "null"]}}),
]
"""A list of strings where a wrong one must not make a client fail: another value than a list is None."""


class Empty(Received):
    """A response with an id of the request and nothing else."""


def wire_name(field: str) -> str:
    """Returns the name of a field in the API, for fields without an alias of their own."""
    return to_pascal(field)


def wire_names(**fields: Any) -> dict[str, Any]:
    """Returns parameters of a query by their names in the API."""
    return {wire_name(name): value for name, value in fields.items()}


def response_body(model: BaseModel) -> dict[str, Any]:
    """Returns the JSON object of a response: fields that were set to None are null, fields not set are absent."""
    return model.model_dump(by_alias=True, exclude_unset=True)


def items_key(model: type[BaseModel]) -> str:
    """Returns the name in the API of the field with the items of a list; it is the first field of the model."""
    name, field = next(iter(model.model_fields.items()))
    return field.alias or wire_name(name)  # before pydantic 2.12, a deferred model has no aliases yet


class ErrorBody(Received):
    """A refusal: codes are for programs, messages for people."""

    request_id: str
    code: str
    message: str
    host_id: str
    command: str | None = Field(default=None, description="What the user can type, if that helps.")
