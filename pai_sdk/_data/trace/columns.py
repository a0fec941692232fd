"""Converts the values of one step to columns of fixed types. All errors are raised here, in the caller.

A numeric array needs no Arrow object per step, and neither does one of two dimensions for lists of numbers: it is
copied into a numpy buffer that becomes an Arrow array when the block is complete, without another copy. A list of
strings is copied into one bytes object, see `strings`. All other values become Arrow arrays at once.

A value is stored exactly, or refused. Only floating point numbers are rounded, to the precision of their column.
"""

from __future__ import annotations

import datetime
import decimal
import math
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate, chain
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from pai_sdk._core.names.hints import name_hint, type_problem
from pai_sdk._data.trace.items import (
    as_bytes,
    as_decimal,
    as_number,
    as_numpy,
    as_text,
    check_plain,
    is_missing,
    time_array,
)
from pai_sdk._data.trace.strings import PackedStrings, pack_strings
from pai_sdk._data.trace.types import numpy_type
from pai_sdk.errors import InvalidInputError, Problem

Prepared: TypeAlias = "np.ndarray | pa.Array | PackedStrings"
"""A checked column: a numpy array in the caller's memory, or a copy of the values of the column's type."""

_SCALARS = (
    *(bool, int, float, str, bytes, bytearray, uuid.UUID),
    *(decimal.Decimal, datetime.date, datetime.time, datetime.timedelta),
)
_STRING_TYPES = frozenset({str, type(None)})
_BOOL_TYPES = frozenset({bool, type(None)})
_INTEGER_TYPES = frozenset({int, type(None)})
_NUMBER_TYPES = frozenset({int, float, type(None)})  # items of these types need no check of each item
_UNITS = ("D", "s", "ms", "us", "ns")  # units of numpy's times that Arrow has, too


class Columns:
    """Checks the columns of each step against a schema; `missing` is `"error"` or `"null"`, for absent columns."""

    def __init__(self, schema: pa.Schema, *, missing: str = "error") -> None:
        if missing not in ("error", "null"):
            raise InvalidInputError([Problem("missing", f"{missing!r} is not supported", "'error' or 'null'")])
        self._types = {field.name: (field.type, numpy_type(field.type)) for field in schema}
        self._arrays = {field.name: _exact_array(field.type) for field in schema}
        self._strings = {field.name for field in schema if kinds.is_string(field.type)}
        self._missing_is_null = missing == "null"

    def prepare(self, values: Mapping[str, Any]) -> tuple[dict[str, Prepared], int]:
        """Returns the columns of one step, and the number of rows; an InvalidInputError has all problems.

        A value is a tensor, a numpy array, an Arrow array, or a list, with one item per row. A number or string is
        repeated for all rows of the step.
        """
        problems = self._unknown(values)
        prepared: dict[str, Prepared] = {}
        scalars: dict[str, Any] = {}
        for name, (type_, dtype) in self._types.items():
            value = values.get(name)
            column = self._usual(name, value)
            if column is not None:
                prepared[name] = column
            elif value is None:
                if not self._missing_is_null and name not in values:
                    problems.append(
                        Problem(f"column {name!r}", "is missing in this step", "or use missing='null'")
                    )
                scalars[name] = None
            elif isinstance(value, _SCALARS) or getattr(value, "shape", None) == ():
                scalars[name] = value
            else:
                try:
                    prepared[name] = _column(value, type_, dtype)
                except _refusals() as error:
                    problems.append(_refused(name, type_, error))
        problems += _different_lengths(prepared)
        rows = len(next(iter(prepared.values()))) if prepared else 1
        for name, value in scalars.items():
            try:
                prepared[name] = _repeated(value, rows, *self._types[name])
            except _refusals() as error:
                problems.append(_refused(name, self._types[name][0], error))
        if problems:
            raise InvalidInputError(problems)
        return prepared, rows

    def _unknown(self, names: Iterable[str]) -> list[Problem]:
        return [
            Problem(f"column {name!r}", "is not in the schema", name_hint(name, self._types))
            for name in names
            if name not in self._types
        ]

    def _usual(self, name: str, value: Any) -> Prepared | None:
        """Returns the column of an array that needs no check, or of strings; None for other values."""
        # Processors have little of this package in their caches after a step of a training, so fewer lines of code
        # count more than usual.
        if type(value) is np.ndarray and self._arrays[name] == (value.ndim, value.dtype):
            return value
        return pack_strings(value) if name in self._strings else None


def _different_lengths(columns: Mapping[str, Prepared]) -> list[Problem]:
    lengths = {name: len(column) for name, column in columns.items()}
    if len({*lengths.values()}) <= 1:
        return []
    summary = ", ".join(f"{name}: {length}" for name, length in lengths.items())
    return [Problem("columns", f"differ in their numbers of rows ({summary})")]


def _exact_array(type_: pa.DataType) -> tuple[int, np.dtype[Any]] | None:
    """Returns the dimensions and the type of the arrays that a column stores as they are."""
    if kinds.is_list(type_):
        dtype = numpy_type(type_.value_type)
        return None if dtype is None else (2, dtype)
    dtype = numpy_type(type_)
    return None if dtype is None else (1, dtype)


def _refusals() -> tuple[type[BaseException], ...]:
    return (TypeError, ValueError, OverflowError, ArithmeticError, pa.ArrowException)


def _refused(name: str, type_: pa.DataType, error: BaseException) -> Problem:
    if isinstance(error, pa.ArrowException) or (type(error) is OverflowError and "Python int" in str(error)):
        return Problem(f"column {name!r}", f"has values that {type_} cannot store: {error}")
    return Problem(f"column {name!r}", str(error))


def _column(value: Any, type_: pa.DataType, dtype: np.dtype[Any] | None) -> np.ndarray[Any, Any] | pa.Array:
    if isinstance(value, pa.ChunkedArray):
        value = value.combine_chunks()
    if isinstance(value, pa.Array):
        return _cast(value, type_)
    array = as_numpy(value)
    if array is None:
        return _from_list(list(value), type_)
    if isinstance(array, np.ma.MaskedArray):
        return _masked(array, type_, dtype)
    if dtype is not None and array.dtype.kind != "O":
        _check_fits(array, dtype)
        return array
    if array.ndim > 1:
        return _nested(array, type_)
    if array.dtype.kind in "OUST":  # T is numpy 2's StringDType
        return _from_list(array.tolist(), type_)
    if pa.types.is_decimal(type_) or (array.dtype.kind in "mM" and np.datetime_data(array.dtype)[0] not in _UNITS):
        return _from_list(list(array), type_)
    if array.dtype.kind not in "bmM" or (array.dtype.kind == "b" and not pa.types.is_boolean(type_)):
        raise TypeError(f"has {array.dtype} values, but its type is {type_}")
    return _cast(pa.array(np.array(array)), type_)  # a copy: Arrow would keep the caller's memory


def _masked(array: np.ma.MaskedArray[Any, Any], type_: pa.DataType, dtype: np.dtype[Any] | None) -> pa.Array:
    """Returns a column of a masked array, with nulls for masked values."""
    is_hidden = np.ma.getmaskarray(array)
    if array.ndim == 1 and array.dtype.kind in "mM":
        return _from_list(
            [None if hidden else item for item, hidden in zip(array.data, is_hidden, strict=True)], type_
        )
    if array.ndim > 1 or array.dtype.kind not in "iufb":
        return _from_list(array.tolist(), type_)
    data = np.where(is_hidden, np.zeros(1, array.dtype), array.data)
    if dtype is not None:
        _check_fits(data, dtype)
        data = data.astype(dtype)
    return _cast(pa.array(data, mask=is_hidden), type_)


def _from_list(values: list[Any], type_: pa.DataType) -> pa.Array:
    """Returns a column of a list."""
    # Converted level by level, since Arrow truncates 0.5 to 0, and drops unknown fields of structs.
    if kinds.is_list(type_) or kinds.is_large_list(type_):
        offsets, items = _flattened(values, type_, _items)
        return type(pa.array([], type_)).from_arrays(offsets, _as_arrow(items, type_.value_type), type=type_)
    if kinds.is_fixed_size_list(type_):
        return _from_list(values, pa.list_(type_.value_field)).cast(type_)
    if kinds.is_map(type_):
        offsets, pairs = _flattened(values, type_, _pairs)
        keys, stored = [key for key, _ in pairs], [value for _, value in pairs]
        if any(is_missing(key) for key in keys):
            raise ValueError("has a map with a key that is null")
        return pa.MapArray.from_arrays(
            offsets, _from_list(keys, type_.key_type), _from_list(stored, type_.item_type), type=type_
        )
    if kinds.is_struct(type_):
        return _structs(values, type_)
    if kinds.is_dictionary(type_):
        return _from_list(values, type_.value_type).dictionary_encode().cast(type_)
    return _leaves(values, type_)


def _leaves(values: list[Any], type_: pa.DataType) -> pa.Array:
    """Returns a column of plain items; checks values that Arrow would change, guess or refuse unclearly."""
    if kinds.is_temporal(type_) and not kinds.is_interval(type_):
        return time_array(values, type_)
    if kinds.is_decimal(type_):
        return pa.array([as_decimal(value) for value in values], type=type_)
    item_types = {*map(type, values)}
    if kinds.is_string(type_) or kinds.is_large_string(type_):
        return pa.array(
            values if item_types <= _STRING_TYPES else [as_text(value) for value in values], type=type_
        )
    if _is_text(type_):
        return pa.array([as_bytes(value) for value in values], type=type_)
    if numpy_type(type_) is not None:
        is_integer = kinds.is_integer(type_)
        if not item_types <= (_INTEGER_TYPES if is_integer else _NUMBER_TYPES):
            values = [as_number(value, is_integer=is_integer) for value in values]
        return _cast(pa.array(values), type_)
    if kinds.is_boolean(type_):
        return _cast(
            pa.array(values if item_types <= _BOOL_TYPES else [as_number(value) for value in values]), type_
        )
    check_plain(values, type_)
    return _cast(pa.array([None if is_missing(value) else value for value in values]), type_)


def _as_arrow(values: Any, type_: pa.DataType) -> pa.Array:
    column = _column(values, type_, numpy_type(type_))
    if not isinstance(column, np.ndarray):
        return column
    if column.ndim > 1:
        return _lists(column, _as_arrow(column.reshape(-1), type_.value_type), type_)
    return pa.array(np.array(column), type=type_)


def _flattened(values: list[Any], type_: pa.DataType, of_row: Callable[..., Any]) -> tuple[pa.Array, Any]:
    """Returns the offsets of rows that are lists, None for a row that is None, and all items."""
    rows = [() if row is None else of_row(row, type_) for row in values]
    ends = [0, *accumulate(map(len, rows))]
    is_null = [row is None for row in values]
    starts = pa.array(
        np.array(ends, np.int64 if pa.types.is_large_list(type_) else np.int32), mask=np.array([*is_null, False])
    )
    arrays = [row for row in rows if isinstance(row, np.ndarray) and row.ndim == 1]
    # numpy would convert arrays of several types to one type, and round some numbers.
    if len(arrays) == len(rows) and any(map(len, rows)) and len({array.dtype for array in arrays}) == 1:
        return starts, np.concatenate(arrays)
    return starts, list(chain.from_iterable(rows))


def _items(row: Any, type_: pa.DataType) -> Any:
    try:
        array = as_numpy(row)
    except TypeError:
        raise TypeError(type_problem(f"a list for each row of {type_}", row)) from None
    return row if array is None else array


def _pairs(row: Any, type_: pa.DataType) -> list[tuple[Any, Any]]:
    pairs = list(row.items()) if isinstance(row, Mapping) else row
    if not isinstance(pairs, Sequence) or not all(
        isinstance(pair, tuple | list) and len(pair) == 2 for pair in pairs
    ):
        raise TypeError(type_problem(f"a mapping or pairs for each row of {type_}", row))
    return [(key, value) for key, value in pairs]


def _structs(values: list[Any], type_: pa.StructType) -> pa.Array:
    fields = list(type_)
    names = [field.name for field in fields]
    for row in values:
        if row is not None and not isinstance(row, Mapping):
            raise TypeError(type_problem(f"a mapping for each row of {type_}", row))
        if row is not None and (unknown := [key for key in row if key not in names]):
            hint = name_hint(str(unknown[0]), names)
            raise ValueError(f"has a struct with the unknown field {unknown[0]!r}; {hint}")
    children = [
        _from_list([None if row is None else row.get(field.name) for row in values], field.type)
        for field in fields
    ]
    mask = pa.array(np.array([row is None for row in values], bool))
    return pa.StructArray.from_arrays(children, fields=fields, mask=mask)


def _cast(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """Converts an array to another type; raises ValueError if a value would change."""
    if array.type == type_:
        return array
    stored = array.cast(type_)
    # Arrow itself changes some values without an error.
    _check_same(array, stored)
    return stored


def _check_same(original: pa.Array, stored: pa.Array) -> None:
    kinds, before, after = pa.types, original.type, stored.type
    if before == after or kinds.is_null(before):
        return
    if not kinds.is_nested(before) and not kinds.is_nested(after):
        of_before, of_after = ((_is_text(type_), kinds.is_temporal(type_)) for type_ in (before, after))
        if of_before != of_after:  # Arrow parses numbers in strings, and converts numbers to times
            raise TypeError(f"has {before} values, but its type is {after}")
    if kinds.is_nested(before) and kinds.is_nested(after):
        _check_same_nested(original, stored)
    elif kinds.is_floating(before) and kinds.is_floating(after):
        if after.bit_width < before.bit_width and _infinities(original) != _infinities(stored):
            raise OverflowError(f"has values beyond the range of {after}")
    elif not _is_text(before) and not _is_text(after) and not stored.cast(before).equals(original):
        raise ValueError(f"has {before} values that {after} cannot store exactly")


def _check_same_nested(original: pa.Array, stored: pa.Array) -> None:
    if pa.types.is_struct(original.type) and pa.types.is_struct(stored.type):
        names = [field.name for field in stored.type]
        for field, before in zip(original.type, original.flatten(), strict=True):
            if field.name not in names:
                raise ValueError(f"has a struct with the unknown field {field.name!r}")
            _check_same(before, stored.flatten()[names.index(field.name)])
    elif pa.types.is_map(original.type) and pa.types.is_map(stored.type):
        _check_same(original.keys, stored.keys)
        _check_same(original.items, stored.items)
    else:
        _check_same(original.flatten(), stored.flatten())


def _infinities(numbers: pa.Array) -> int:
    return int(pc.sum(pc.is_inf(numbers)).as_py() or 0)


def _is_text(type_: pa.DataType) -> bool:
    names = ("string", "large_string", "string_view", "binary", "large_binary", "fixed_size_binary", "binary_view")
    # Old versions of pyarrow have no views.
    return any(getattr(kinds, f"is_{name}", lambda type_: False)(type_) for name in names)


def _check_fits(array: np.ndarray[Any, Any], dtype: np.dtype[Any]) -> None:
    """Checks that numbers can be stored as another type without loss of fractions, range or integers."""
    if array.ndim != 1:
        raise TypeError(f"has {array.ndim} dimensions; a column of numbers has one")
    if array.dtype == dtype or not array.size:
        return
    if array.dtype.kind not in "iufb" or (array.dtype.kind == "f" and dtype.kind in "iu"):
        raise TypeError(f"has {array.dtype} values, which do not become {dtype}; convert them")
    if array.dtype.kind == "f":
        if dtype.itemsize < array.dtype.itemsize:
            # The quick check fails for NaN and infinity, which are stored as they are.
            maximum = float(np.finfo(dtype).max)
            fits = array.min() >= -maximum and array.max() <= maximum
            if not fits and (np.isfinite(array) & (np.abs(array) > maximum)).any():
                raise OverflowError(f"has values beyond the range of {dtype}")
    elif array.dtype.kind in "iu" and not np.can_cast(array.dtype, dtype, "safe" if dtype.kind in "iu" else "no"):
        minimum, maximum = int(array.min()), int(array.max())
        if dtype.kind == "f":
            _check_integers(array, dtype, minimum, maximum)
        elif minimum < np.iinfo(dtype).min or maximum > np.iinfo(dtype).max:
            raise OverflowError(f"has values from {minimum} to {maximum}, beyond the range of {dtype}")


def _check_integers(array: np.ndarray[Any, Any], dtype: np.dtype[Any], minimum: int, maximum: int) -> None:
    """Checks that integers are exact as floating point numbers."""
    exact = 1 << np.finfo(dtype).nmant + 1
    if -exact <= minimum and maximum <= exact:
        return
    for value in array[(array < -exact) | (array > exact)].tolist():
        if int(dtype.type(value)) != value:
            raise OverflowError(f"has the integer {value}, which {dtype} cannot store exactly")


def _nested(array: np.ndarray[Any, Any], type_: pa.DataType) -> np.ndarray[Any, Any] | pa.Array:
    """Converts an array of two or more dimensions to lists; returns an array of numbers as it is."""
    if not pa.types.is_list(type_):
        raise TypeError(f"has {array.ndim} dimensions, but its type is {type_}")
    if array.ndim > 2:
        return _lists(array, _as_arrow(array.reshape(-1, *array.shape[2:]), type_.value_type), type_)
    dtype = numpy_type(type_.value_type)
    if dtype is None or array.dtype.kind == "O":
        return _lists(array, _as_arrow(array.reshape(-1), type_.value_type), type_)
    _check_fits(array.reshape(-1), dtype)
    return array


def _lists(array: np.ndarray[Any, Any], items: pa.Array, type_: pa.DataType) -> pa.Array:
    """Returns the rows of an array as lists of `items`."""
    offsets = np.arange(len(array) + 1, dtype=np.int32) * array.shape[1]
    return pa.ListArray.from_arrays(pa.array(offsets), items, type=type_)


def _repeated(value: Any, rows: int, type_: pa.DataType, dtype: np.dtype[Any] | None) -> Prepared:
    if value is None or value is np.ma.masked:
        return pa.nulls(rows, type_)
    if dtype is not None and isinstance(value, int | float) and not isinstance(value, bool):
        if dtype.kind in "iu" and not math.isfinite(value):
            as_number(value, is_integer=True)
        array = np.array([value])
        if array.dtype.kind == "f" and dtype.kind in "iu" and value == int(value):
            array = np.array([int(value)])
        if array.dtype.kind != "O":
            _check_fits(array, dtype)
            return np.full(rows, value, dtype)
    if isinstance(value, _SCALARS):
        column = _from_list([value], type_)
    else:
        single = np.asarray(value) if isinstance(value, np.generic) else as_numpy(value)
        column = _column([value] if single is None else single.reshape(1), type_, dtype)
    if not isinstance(column, np.ndarray):
        return pa.repeat(column[0], rows)
    return np.full(rows, column[0], dtype)
