"""Converts the values of an Arrow table to Python objects, also those that Python cannot represent.

A file can have times beyond the year 9999, times of day beyond 24 hours, unknown time zones, or bytes in a string
that are not UTF-8. Such a value becomes a string; all others are those of `to_pylist`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

CELL_ERRORS = (ValueError, OverflowError, KeyError, TypeError, ArithmeticError)
"""Errors of Arrow, datetime and zoneinfo for a value without a Python object; `ArrowInvalid` is a ValueError."""


def rows_of_table(table: pa.Table) -> list[list[Any]]:
    """Returns the rows, each with the values of all columns."""
    columns = [_values(column) for column in table.columns]
    return [list(row) for row in zip(*columns, strict=True)]


def _values(column: pa.ChunkedArray) -> list[Any]:
    import pyarrow as pa

    try:
        values: list[Any] = column.to_pylist()
        if pa.types.is_time(column.type) and not pa.chunked_array([values], column.type).equals(column):
            values = column.cast(pa.string()).to_pylist()  # Python truncates nanoseconds, and reads 25 hours as 1
    except (*CELL_ERRORS, NotImplementedError):
        values = [_value(scalar) for scalar in column]
    return values


def _value(scalar: pa.Scalar[Any]) -> Any:
    import pyarrow as pa
    import pyarrow.types as kinds

    try:
        return scalar.as_py()
    except (*CELL_ERRORS, NotImplementedError):
        type_ = scalar.type
        if kinds.is_struct(type_):
            return {field.name: _value(scalar[number]) for number, field in enumerate(type_)}
        if kinds.is_map(type_):
            return [(_value(pair[0]), _value(pair[1])) for pair in scalar.values]
        if kinds.is_nested(type_):
            return [_value(item) for item in scalar.values]
        if hasattr(scalar, "as_buffer"):
            return scalar.as_buffer().to_pybytes().decode(errors="replace")
        try:
            return scalar.cast(pa.string()).as_py()
        except (*CELL_ERRORS, NotImplementedError):
            return f"{getattr(scalar, 'value', 'a value')} ({type_})"
