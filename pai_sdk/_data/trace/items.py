"""Converts single values of Python, numpy and pandas for a column of a trace: exactly, or not at all.

Arrow guesses a type for a list of values. It truncates the nanoseconds of pandas' times, reads the bytes of a UUID
as text, and its errors for NaN and NaT contain neither the value nor a hint.
"""

from __future__ import annotations

import datetime
import decimal
import math
import reprlib
import sys
import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pai_sdk._core.names.hints import type_name, type_problem

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

_PLAIN = (bool, int, float, type(None))
_DAY_NS = 86_400 * 10**9
_UNIT_NS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_NUMPY_UNIT_NS = {**_UNIT_NS, "m": 60 * 10**9, "h": 3600 * 10**9, "D": _DAY_NS, "W": 7 * _DAY_NS}
_SMALLER = {"ps": 10**3, "fs": 10**6, "as": 10**9}  # units in a nanosecond
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
_EPOCH_WITHOUT_ZONE = _EPOCH.replace(tzinfo=None)
_NULL = "give None for a null"


def is_missing(value: Any) -> bool:
    """Returns True when a value represents a null: None, pandas' NA, a masked value of numpy."""
    if value is None:
        return True
    numpy, pandas = sys.modules.get("numpy"), sys.modules.get("pandas")
    return (numpy is not None and value is numpy.ma.masked) or (pandas is not None and value is pandas.NA)


def as_text(value: Any) -> str | None:
    """Returns a string; bytes are decoded from UTF-8. Raises TypeError for other values."""
    if is_missing(value):
        return None
    if isinstance(value, str):
        return str.__str__(value)  # the value of a str Enum, not its name
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, uuid.UUID):
        return str(value)
    raise _wrong(value, "a string column takes strings")


def as_bytes(value: Any) -> bytes | None:
    """Returns bytes; a string is encoded as UTF-8. Raises TypeError for other values."""
    if is_missing(value):
        return None
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if isinstance(value, uuid.UUID):
        return value.bytes
    raise _wrong(value, "a binary column takes bytes")


def as_decimal(value: Any) -> decimal.Decimal | None:
    """Returns a decimal number; of a float the number that Python prints: 0.1, not the binary value next to it."""
    if is_missing(value):
        return None
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.integer) and not isinstance(value, numpy.timedelta64):
        value = int(value)
    elif numpy is not None and isinstance(value, numpy.floating) and not isinstance(value, float):
        value = decimal.Decimal(str(value))  # of a narrower type, which prints fewer digits
    if isinstance(value, bool) or not isinstance(value, int | float | decimal.Decimal):
        raise _wrong(value, "a decimal column takes Decimal, int and float")
    if not math.isfinite(value):
        raise ValueError(f"has the value {value}, and a decimal column takes finite numbers; {_NULL}")
    return decimal.Decimal(repr(float(value)) if isinstance(value, float) else value)


def as_number(value: Any, *, is_integer: bool = False) -> Any:
    """Returns a number for Arrow, which checks its range; `is_integer` for a column of integers."""
    if isinstance(value, float):
        if is_integer and not math.isfinite(value):
            raise ValueError(f"has the value {value}, which is not an integer; {_NULL}")
        return value
    if type(value) in _PLAIN:
        return value
    if is_missing(value):
        return None
    if isinstance(value, int):
        return int(value)
    if isinstance(value, decimal.Decimal):
        if is_integer and value != value.to_integral_value():
            raise ValueError(f"has the value {value}, which is not an integer")
        return int(value) if is_integer else float(value)
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.number | numpy.bool_):
        if isinstance(value, numpy.complexfloating | numpy.timedelta64):
            raise _wrong(value, "the column takes numbers")
        return as_number(value.item(), is_integer=is_integer) if value.dtype.itemsize <= 8 else value
    raise _wrong(value, "the column takes numbers")


def check_plain(values: list[Any], type_: pa.DataType) -> None:
    """Refuses pandas' NaT, which Arrow does not know, in a column that has no times."""
    pandas = sys.modules.get("pandas")
    if pandas is not None and any(value is pandas.NaT for value in values):
        raise _wrong(pandas.NaT, f"the column is {type_}")


def as_numpy(value: Any) -> np.ndarray[Any, Any] | None:
    """Returns the array of a tensor or array, without a copy; None for a list. Raises TypeError for others."""
    import numpy as np

    if isinstance(value, np.ndarray):
        return value
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        value = value.detach().cpu()
        return (value.float() if value.dtype == torch.bfloat16 else value).numpy()  # type: ignore[no-any-return]
    if isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray):
        return None
    raise TypeError(type_problem("a tensor, a numpy array or a list", value))


# ---- times


def time_array(values: list[Any], type_: pa.DataType) -> pa.Array:
    """Returns times, dates, times of day or durations as a column. Times without a zone are UTC, NaT is null."""
    import pyarrow as pa
    import pyarrow.types as kinds

    if kinds.is_date(type_):
        unit_ns = _DAY_NS
        read = _instant
    else:
        unit_ns = _UNIT_NS[type_.unit]
        read = _instant if kinds.is_timestamp(type_) else _duration if kinds.is_duration(type_) else _time_of_day
    days_ms = 86_400_000 if kinds.is_date64(type_) else 1
    counts: list[int | None] = []
    for value in values:
        ns = read(value)
        if ns is None:
            counts.append(None)
            continue
        count, remainder = divmod(ns, unit_ns)
        if remainder:
            raise ValueError(f"has {reprlib.repr(value)}, which {type_} cannot store exactly")
        counts.append(count * days_ms)
    try:
        plain = pa.array(counts, pa.int32() if type_.bit_width == 32 else pa.int64())
    except (pa.ArrowInvalid, OverflowError) as error:
        raise OverflowError(f"has times beyond the range of {type_}") from error
    return plain.view(type_) if plain.null_count < len(plain) else pa.nulls(len(plain), type_)


def _instant(value: Any) -> int | None:
    """Returns nanoseconds since 1970 in UTC."""
    if type(value) is not datetime.datetime:  # pandas' Timestamp is a subclass, with nanoseconds
        if is_missing(value):
            return None
        value = _from_pandas(value)
    if isinstance(value, datetime.datetime):
        return _timedelta_ns(value - (_EPOCH_WITHOUT_ZONE if value.tzinfo is None else _EPOCH))
    if isinstance(value, datetime.date):
        return (value.toordinal() - _EPOCH.toordinal()) * _DAY_NS
    return _numpy_ns(value, "datetime64", "datetime, date, or datetime64")


def _duration(value: Any) -> int | None:
    if is_missing(value):
        return None
    value = _from_pandas(value)
    if isinstance(value, datetime.timedelta):
        return _timedelta_ns(value)
    return _numpy_ns(value, "timedelta64", "timedelta, or timedelta64")


def _time_of_day(value: Any) -> int | None:
    """Returns nanoseconds since midnight."""
    if is_missing(value):
        return None
    if not isinstance(value, datetime.time) or value.tzinfo is not None:
        raise _wrong(value, "the column takes times of day without a zone")
    seconds = (value.hour * 60 + value.minute) * 60 + value.second
    return seconds * 10**9 + value.microsecond * 1000


def _timedelta_ns(value: datetime.timedelta) -> int:
    return (value.days * 86_400 + value.seconds) * 10**9 + value.microseconds * 1000


def _from_pandas(value: Any) -> Any:
    """Converts a time of pandas, which has nanoseconds, to numpy; returns other values as they are."""
    pandas = sys.modules.get("pandas")
    if pandas is None:
        return value
    if isinstance(value, pandas.Timestamp) or value is pandas.NaT:
        return value.to_datetime64()
    return value.to_timedelta64() if isinstance(value, pandas.Timedelta) else value


def _numpy_ns(value: Any, kind: str, takes: str) -> int | None:
    """Returns the nanoseconds of a time of numpy; None for NaT."""
    import numpy as np

    if not isinstance(value, np.datetime64 | np.timedelta64):
        raise _wrong(value, f"the column takes {takes}")
    if np.isnat(value):
        return None
    if value.dtype.name.partition("[")[0] != kind:
        raise _wrong(value, f"the column takes {takes}")
    unit, step = np.datetime_data(value.dtype)
    if unit in ("Y", "M") and kind == "datetime64":
        value, unit, step = value.astype("datetime64[D]"), "D", 1
    count = int(value.astype(np.int64)) * step
    if unit in _NUMPY_UNIT_NS:
        return count * _NUMPY_UNIT_NS[unit]
    if unit not in _SMALLER or count % _SMALLER[unit]:
        raise ValueError(f"has {reprlib.repr(value)}, which is not an integer number of nanoseconds")
    return count // _SMALLER[unit]


def _wrong(value: Any, takes: str) -> TypeError:
    return TypeError(f"has the item {reprlib.repr(value)} ({type_name(value)}); {takes}, and None for a null")
