"""Base of bodies that are read tolerantly and written exactly: those of DLC, and of what its jobs refer to."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, TypeAlias, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError, model_validator
from pydantic.alias_generators import to_pascal

from pai_sdk._core.names.hints import name_hint
from pai_sdk._wire.pai.numbers import checked_number
from pai_sdk.errors import Problem

__all__ = [
    "AnyMap",
    "Body",
    "Boolean",
    "Integer",
    "Number",
    "Query",
    "String",
    "StringMap",
    "Strings",
    "checked",
    "comma_list",
    "read_body",
    "read_query",
    "received",
    "unknown_fields",
    "unknown_problems",
]

_BodyT = TypeVar("_BodyT", bound="Body")
_ModelT = TypeVar("_ModelT", bound=BaseModel)
_MAX_PASSES = 20  # each removes values of a wrong type, one level of nesting at a time
_PLAIN = (str, int, float, list, dict, type(None))
_Location: TypeAlias = tuple[int | str, ...]


def _text(value: object) -> object:
    """Converts a truth value to text; pydantic converts numbers."""
    return str(value).lower() if isinstance(value, bool) else value


def _json_object(value: object) -> object:
    """Parses an object that is JSON text, as in parameters of a query."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise ValueError("is not a JSON object") from None
    return value


def _string_map(value: object) -> object:
    value = _json_object(value)
    if not isinstance(value, Mapping):
        return value
    return {key: _text(item) for key, item in value.items() if item is not None}


def _strings(value: object) -> object:
    """Splits a list that is text: JSON, or items between commas."""
    if isinstance(value, str):
        if not value.lstrip().startswith("["):
            return comma_list(value)
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise ValueError("is not a JSON list") from None
    return [_text(item) for item in value if item is not None] if isinstance(value, list) else value


String: TypeAlias = Annotated[str | None, BeforeValidator(_text)]
Integer: TypeAlias = Annotated[int | None, BeforeValidator(checked_number)]
Number: TypeAlias = Annotated[float | None, BeforeValidator(checked_number)]
Boolean: TypeAlias = bool | None
Strings: TypeAlias = Annotated[list[str], BeforeValidator(_strings)]
StringMap: TypeAlias = Annotated[dict[str, str], BeforeValidator(_string_map)]
AnyMap: TypeAlias = Annotated[dict[str, Any], BeforeValidator(_json_object)]


class Body(BaseModel):
    """A body of a request or a response. Every field may be absent; unknown ones are kept.

    Null, `""`, `[]` and `{}` are read as absent: clients send them for fields that were not set. Absent lists and
    objects of text are empty for readers, and are not written.
    """

    model_config = ConfigDict(
        alias_generator=to_pascal,
        populate_by_name=True,
        extra="allow",
        coerce_numbers_to_str=True,
        frozen=True,
        protected_namespaces=(),
        defer_build=True,  # importing this library must cost almost nothing
    )

    # Fields in which an empty value is one, by their names on the wire and in Python.
    keeps_empty: ClassVar[frozenset[str]] = frozenset()

    @model_validator(mode="before")
    @classmethod
    def _drop_unset(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        return {
            key: item
            for key, item in value.items()
            if item is not None and (item not in ("", [], {}) or key in cls.keeps_empty)
        }

    @model_validator(mode="after")
    def _drop_empty_objects(self: _BodyT) -> _BodyT:
        for name in tuple(self.model_fields_set):
            value = self.__dict__.get(name)
            # Most values are plain, and a test for a model is slow: its class is an abstract one.
            if isinstance(value, _PLAIN) or not isinstance(value, Body):
                continue
            if not value.model_fields_set:
                # The model is frozen for its readers, but still under construction in this validator.
                self.__dict__[name] = None
                self.model_fields_set.discard(name)
        return self

    def to_wire(self, *excluded: str) -> dict[str, Any]:
        """Returns the JSON object: names of the wire, without unset fields and the named ones of this class."""
        return self.model_dump(
            mode="json", by_alias=True, exclude_unset=True, exclude_none=True, exclude=set(excluded)
        )

    def to_json(self) -> str:
        """Returns the compact JSON text that is sent."""
        return json.dumps(self.to_wire(), ensure_ascii=False, separators=(",", ":"))


class Query(Body):
    """The parameters of a query. Objects are JSON text; fields of objects can also have names with a dot."""

    @classmethod
    def from_query(cls: type[_BodyT], parameters: Mapping[str, str]) -> _BodyT:
        """Returns the parameters of a query.

        Raises:
            ValidationError: of pydantic; a value has a wrong type.
        """
        return cls.model_validate(_nested(parameters))

    def to_query(self) -> dict[str, str]:
        """Returns the parameters that are sent, as text."""
        parameters: dict[str, str] = {}
        for name, value in self.to_wire().items():
            field = getattr(self, _python_name(type(self), name), None)
            if isinstance(field, Body):
                parameters |= {f"{name}.{key}": _query_text(item) for key, item in value.items()}
            else:
                parameters[name] = _query_text(value)
        return parameters


def read_query(model: type[_BodyT], parameters: Mapping[str, str]) -> tuple[_BodyT, list[Problem]]:
    """Reads what can be read of the parameters of a query; returns also the problems of the ones left out."""
    return read_body(model, _nested(parameters))


def comma_list(text: str | None) -> list[str]:
    """Returns the items of a field that is a list between commas, such as `JobIds`; empty for None."""
    return [item.strip() for item in (text or "").split(",") if item.strip()]


def _nested(parameters: Mapping[str, str]) -> dict[str, Any]:
    """Collects the fields of objects, whose names have a dot."""
    fields: dict[str, Any] = {}
    for name, value in parameters.items():
        above, _, below = name.partition(".")
        if below:
            inner = fields.setdefault(above, {})
            if isinstance(inner, dict):
                inner[below] = value
        else:
            fields[name] = value
    return fields


def _python_name(model: type[Body], name: str) -> str:
    return next((key for key, field in model.model_fields.items() if field.alias == name), name)


def _query_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def checked(model: type[_BodyT], fields: Mapping[str, Any], extra: Mapping[str, Any] = {}) -> _BodyT:
    """Returns a body of values that are of its types already, by their names in Python, and of unknown fields.

    A list of thousands of bodies would spend most of its time on checking them again.
    """
    known = model.model_fields
    present = {name: item for name, item in fields.items() if name in known and item not in (None, "", [], {})}
    body = model.model_validate(extra)
    # As in `Body`: it is frozen for its readers, and under construction here.
    body.__dict__.update(present)
    body.model_fields_set.update(present)
    return body


def received(model: type[_ModelT], body: object) -> _ModelT:
    """Reads a body of somebody else's: a value of a wrong type is absent, not an error."""
    return read_body(model, body)[0]


def read_body(model: type[_ModelT], body: object) -> tuple[_ModelT, list[Problem]]:
    """Reads what can be read of a body; returns also the problems of the values that are left out."""
    if not isinstance(body, Mapping):
        return model(), [Problem("body", "is not a JSON object")]
    problems: list[Problem] = []
    remaining: Any = body
    for _ in range(_MAX_PASSES):
        try:
            return model.model_validate(remaining), problems
        except ValidationError as error:
            details = error.errors(include_url=False, include_input=False)
        problems += (
            Problem(path_text(each["loc"]), each["msg"].removeprefix("Value error, ")) for each in details
        )
        # The last item of a list first: the indices of the ones before it do not change.
        for location in sorted((detail["loc"] for detail in details), key=_order, reverse=True):
            remaining = _without(remaining, location)
    return model(), problems


def path_text(location: _Location) -> str:
    """Returns the path of a value as text, such as `JobSpecs[0].Image`."""
    return "".join(f".{part}" if isinstance(part, str) else f"[{part}]" for part in location).removeprefix(".")


def _order(location: _Location) -> list[tuple[int, int, str]]:
    return [(0, part, "") if isinstance(part, int) else (1, 0, part) for part in location]


def _without(value: Any, location: _Location) -> Any:
    """Returns a copy without the value at a path; paths that do not exist are ignored."""
    part, *below = location
    if isinstance(value, Mapping) and part in value:
        remaining = {key: item for key, item in value.items() if key != part}
        return {**remaining, part: _without(value[part], tuple(below))} if below else remaining
    if isinstance(value, list) and isinstance(part, int) and part < len(value):
        middle = [_without(value[part], tuple(below))] if below else []
        return [*value[:part], *middle, *value[part + 1 :]]
    return value


def unknown_fields(body: Body) -> list[str]:
    """Returns the paths of fields that no model has, such as `JobSpecs[0].Foo`."""
    return [path_text((*above, name)) for above, name, _ in _unknown(body, ())]


def unknown_problems(body: Body) -> list[Problem]:
    """Returns a problem for each unknown field, with the nearest known one."""
    return [
        Problem(path_text((*above, name)), "is unknown", name_hint(name, names))
        for above, name, names in _unknown(body, ())
    ]


def _unknown(value: Any, path: _Location) -> Iterator[tuple[_Location, str, list[str]]]:
    if isinstance(value, Body):
        fields = type(value).model_fields
        names = [field.alias or to_pascal(key) for key, field in fields.items()]
        yield from ((path, name, names) for name in value.model_extra or {})
        for name, key in zip(names, fields, strict=True):
            yield from _unknown(getattr(value, key), (*path, name))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _unknown(item, (*path, index))
