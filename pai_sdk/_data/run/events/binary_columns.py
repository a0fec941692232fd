"""Writes and reads columns of numbers as bytes, for programs and pages that read curves over HTTP.

    "PAIC"                  four bytes
    length of the header    four bytes
    header                  JSON, padded with spaces up to a multiple of 8 bytes from the start
    columns                 each padded with zeros up to a multiple of 8

All numbers are little-endian. The header is an object; its `columns` is a list of objects with `name`, `dtype`
(`f4`, `f8`, `i4`, `i8`, `u4`), `offset` in bytes from the end of the header, `length` in numbers, and further
properties of the column. A `Float64Array` of a browser can view a column in place, since each column starts at a
multiple of 8.

Needs numpy, from the extras `watch` and `service`.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from pai_sdk.errors import InvalidResponseError

MEDIA_TYPE = "application/vnd.pai.columns"
"""Of the format, for the headers `Accept` and `Content-Type`."""

_MAGIC = b"PAIC"
_ALIGNMENT = 8
_DTYPES = ("f4", "f8", "i4", "i8", "u4")


@dataclass(frozen=True, eq=False)
class BinaryColumn:
    """One column.

    Attributes:
        name: of the column.
        values: the numbers, in any shape; the shape is lost unless `facts` has it.
        facts: further properties of the column in the header.
    """

    name: str
    values: npt.NDArray[Any]
    facts: Mapping[str, Any] = field(default_factory=dict)


def write_columns(columns: Sequence[BinaryColumn], header: Mapping[str, Any] | None = None) -> bytes:
    """Returns columns as bytes.

    Args:
        columns: in their order; float32, float64, int32, int64 or uint32.
        header: further properties in the header; JSON.

    Raises:
        ValueError: a column has another type.

    Example:
        >>> content = write_columns([BinaryColumn("x", np.arange(3.0))], {"run": "train-x7k2"})
        >>> header, (x,) = read_columns(content)
        >>> header["run"], x.name, x.values.tolist()
        ('train-x7k2', 'x', [0.0, 1.0, 2.0])
    """
    described, parts, offset = [], [], 0
    for column in columns:
        kind = column.values.dtype.str[1:]
        if kind not in _DTYPES:
            raise ValueError(f"column {column.name!r} is of {column.values.dtype}; one of {', '.join(_DTYPES)}")
        content = np.ascontiguousarray(column.values, dtype="<" + kind).tobytes()
        length = column.values.size
        described.append({**column.facts, "name": column.name, "dtype": kind, "offset": offset, "length": length})
        padding = -len(content) % _ALIGNMENT
        parts += [content, bytes(padding)]
        offset += len(content) + padding
    text = json.dumps({**(header or {}), "columns": described}, separators=(",", ":"), allow_nan=False).encode()
    text += b" " * (-(len(text) + 8) % _ALIGNMENT)
    return b"".join([_MAGIC, struct.pack("<I", len(text)), text, *parts])


def read_columns(content: bytes) -> tuple[dict[str, Any], list[BinaryColumn]]:
    """Returns the header and the columns; the values are views into `content`.

    Raises:
        InvalidResponseError: the bytes are not in this format, or are incomplete.
    """
    try:
        magic, length = struct.unpack_from("<4sI", content)
        header = json.loads(content[8 : 8 + length])
        if magic != _MAGIC or len(content) < 8 + length:
            raise ValueError("it does not start with the bytes of this format")
        columns = [_column(content, 8 + length, described) for described in header.pop("columns")]
    except (ValueError, KeyError, TypeError, AttributeError, struct.error, RecursionError) as error:
        raise InvalidResponseError(f"the data is not in the format PAIC: {error}", status_code=200) from error
    return header, columns


def _column(content: bytes, start: int, described: Mapping[str, Any]) -> BinaryColumn:
    name, kind, offset, length = (described[key] for key in ("name", "dtype", "offset", "length"))
    if kind not in _DTYPES or offset < 0 or offset % _ALIGNMENT or length < 0:
        raise ValueError(f"column {name!r:.100} is described wrongly")
    values = np.frombuffer(content, np.dtype("<" + kind), count=length, offset=start + offset) if length else None
    extra = {key: value for key, value in described.items() if key not in ("name", "dtype", "offset", "length")}
    return BinaryColumn(name, np.empty(0, "<" + kind) if values is None else values, extra)
