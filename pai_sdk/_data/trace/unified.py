"""Unifies the schemas of files whose columns differ: by name, with the wider type."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pai_sdk.errors import InvalidInputError, Problem

if TYPE_CHECKING:
    import pyarrow as pa

_DIGITS = {8: 3, 16: 5, 32: 10, 64: 19}  # decimal digits of integers, by their bits
_MAX_DIGITS = 38


def unified(schemas: Iterable[tuple[str, pa.Schema]]) -> pa.Schema:
    """Returns the schema with the columns of all files, given with their paths, in types that store all values."""
    import pyarrow as pa

    columns: dict[str, tuple[pa.DataType, str]] = {}
    problems: dict[str, Problem] = {}
    for path, schema in schemas:
        for field in schema:
            before, first_path = columns.setdefault(field.name, (field.type, path))
            if before.equals(field.type):
                continue
            type_ = wider(before, field.type)
            if type_ is None:
                message = f"is {before} in {first_path}, and {field.type} in {path}"
                hint = "read the runs one by one, or move one of the files"
                problems.setdefault(field.name, Problem(f"column {field.name!r}", message, hint))
            elif not type_.equals(before):
                columns[field.name] = type_, path
    if problems:
        raise InvalidInputError(list(problems.values()))
    return pa.schema([pa.field(name, type_) for name, (type_, _) in columns.items()])


def wider(first: pa.DataType, second: pa.DataType) -> pa.DataType | None:
    """Returns the type for the values of both types; None where there is no such type.

    Integers become wider integers, decimal numbers, or double; float becomes double. This also applies inside
    lists, maps and structs, and structs get the fields of both. Strings and numbers are incompatible.
    """
    import pyarrow as pa
    import pyarrow.types as kinds

    def is_list(type_: pa.DataType) -> bool:
        return any(kind(type_) for kind in (kinds.is_list, kinds.is_large_list, kinds.is_fixed_size_list))

    first, second = (type_.value_type if kinds.is_dictionary(type_) else type_ for type_ in (first, second))
    if first.equals(second) or kinds.is_null(second):
        return first
    if kinds.is_null(first):
        return second
    if is_list(first) and is_list(second):
        inner = wider(first.value_type, second.value_type)
        return None if inner is None else pa.list_(first.value_field.with_type(inner).with_nullable(True))
    if kinds.is_map(first) and kinds.is_map(second):
        key, item = wider(first.key_type, second.key_type), wider(first.item_type, second.item_type)
        return None if key is None or item is None else pa.map_(key, item)
    if kinds.is_struct(first) and kinds.is_struct(second):
        return _wider_struct(first, second)
    return None if kinds.is_nested(first) or kinds.is_nested(second) else _wider_value(first, second)


def _wider_struct(first: pa.StructType, second: pa.StructType) -> pa.DataType | None:
    import pyarrow as pa

    types = {field.name: field.type for field in first}
    for field in second:
        type_ = wider(types.get(field.name, field.type), field.type)
        if type_ is None:
            return None
        types[field.name] = type_
    return pa.struct([pa.field(name, type_) for name, type_ in types.items()])


def _wider_value(first: pa.DataType, second: pa.DataType) -> pa.DataType | None:
    import pyarrow as pa
    import pyarrow.types as kinds

    for decimal, number in ((first, second), (second, first)):
        if kinds.is_decimal(decimal) and kinds.is_floating(number):
            return None  # a double cannot store decimal numbers exactly
        if kinds.is_decimal(decimal) and kinds.is_integer(number):
            digits = max(decimal.precision - decimal.scale, _DIGITS[number.bit_width]) + decimal.scale
            return pa.decimal128(digits, decimal.scale) if digits <= _MAX_DIGITS else None
    if len({kinds.is_string(type_) or kinds.is_large_string(type_) for type_ in (first, second)}) > 1:
        return None  # Arrow would convert strings to bytes
    fields = [pa.schema([pa.field("", type_)]) for type_ in (first, second)]
    try:
        merged = pa.unify_schemas(fields, promote_options="permissive").field(0).type
    except (pa.ArrowTypeError, pa.ArrowInvalid):  # the latter for too many digits
        return None
    return None if kinds.is_decimal(merged) and merged.precision > _MAX_DIGITS else merged
