"""One schema for files whose columns differ: by name, with the wider type."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pai_sdk.errors import InvalidInputError, Problem

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["unified", "wider"]

_DIGITS = {8: 3, 16: 5, 32: 10, 64: 19}  # of the whole numbers of so many bits
_MOST_DIGITS = 38


def unified(schemas: Iterable[tuple[str, pa.Schema]]) -> pa.Schema:
    """The schema that has the columns of all files; each has the type that holds the values of all.

    Args:
        schemas: the path of a file, and its schema.

    Raises:
        InvalidInputError: a column has types that do not go together; it names the column and two files.
    """
    import pyarrow as pa

    found: dict[str, tuple[pa.DataType, str]] = {}
    problems: dict[str, Problem] = {}
    for path, schema in schemas:
        for field in schema:
            before, place = found.setdefault(field.name, (field.type, path))
            if before.equals(field.type):
                continue
            type_ = wider(before, field.type)
            if type_ is None:
                what = f"is {before} in {place}, and {field.type} in {path}"
                hint = "read the runs one by one, or move one of the files"
                problems.setdefault(field.name, Problem(f"column {field.name!r}", what, hint))
            elif not type_.equals(before):
                found[field.name] = type_, path
    if problems:
        raise InvalidInputError(list(problems.values()))
    return pa.schema([pa.field(name, type_) for name, (type_, _) in found.items()])


def wider(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """The type for the values of both; None where there is no such type.

    Whole numbers become wider ones, decimal numbers, or double; float becomes double. The same holds inside lists,
    maps and structs, and structs get the fields of both. Text is no number.

    Example:
        >>> import pyarrow as pa
        >>> wider(pa.list_(pa.int16()), pa.list_(pa.float64()))
        ListType(list<item: double>)
        >>> wider(pa.string(), pa.int64()) is None
        True
    """
    import pyarrow as pa
    import pyarrow.types as kinds

    def is_list(type_: pa.DataType) -> bool:
        return any(kind(type_) for kind in (kinds.is_list, kinds.is_large_list, kinds.is_fixed_size_list))

    one, other = (type_.value_type if kinds.is_dictionary(type_) else type_ for type_ in (one, other))
    if one.equals(other) or kinds.is_null(other):
        return one
    if kinds.is_null(one):
        return other
    if is_list(one) and is_list(other):
        inner = wider(one.value_type, other.value_type)
        return None if inner is None else pa.list_(one.value_field.with_type(inner).with_nullable(True))
    if kinds.is_map(one) and kinds.is_map(other):
        key, item = wider(one.key_type, other.key_type), wider(one.item_type, other.item_type)
        return None if key is None or item is None else pa.map_(key, item)
    if kinds.is_struct(one) and kinds.is_struct(other):
        return _wider_struct(one, other)
    return None if kinds.is_nested(one) or kinds.is_nested(other) else _wider_value(one, other)


def _wider_struct(one: pa.StructType, other: pa.StructType) -> pa.DataType | None:
    import pyarrow as pa

    types = {field.name: field.type for field in one}
    for field in other:
        type_ = wider(types.get(field.name, field.type), field.type)
        if type_ is None:
            return None
        types[field.name] = type_
    return pa.struct([pa.field(name, type_) for name, type_ in types.items()])


def _wider_value(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    import pyarrow as pa
    import pyarrow.types as kinds

    for decimal, number in ((one, other), (other, one)):
        if kinds.is_decimal(decimal) and kinds.is_floating(number):
            return None  # decimal numbers have no exact value as double
        if kinds.is_decimal(decimal) and kinds.is_integer(number):
            digits = max(decimal.precision - decimal.scale, _DIGITS[number.bit_width]) + decimal.scale
            return pa.decimal128(digits, decimal.scale) if digits <= _MOST_DIGITS else None
    if len({kinds.is_string(type_) or kinds.is_large_string(type_) for type_ in (one, other)}) > 1:
        return None  # Arrow would make bytes of text
    fields = [pa.schema([pa.field("", type_)]) for type_ in (one, other)]
    try:
        found = pa.unify_schemas(fields, promote_options="permissive").field(0).type
    except (pa.ArrowTypeError, pa.ArrowInvalid):  # the latter for too many digits
        return None
    return None if kinds.is_decimal(found) and found.precision > _MOST_DIGITS else found
