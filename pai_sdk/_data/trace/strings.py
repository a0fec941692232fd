"""The strings of a step, in one bytes object until a thread of the writer makes an Arrow array of many steps.

The step only joins and encodes them, which checks each of them and copies it. Kept as Python strings, they would
need six times the memory, and a thread that converts them would hold the GIL.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

_SEPARATOR = "\0"
_SEPARATOR_BYTE = b"\0"  # UTF-8 has this byte for this character only
_MAX_BYTES = 1 << 20  # of a step: more are encoded by Arrow, which copies them once


class PackedStrings:
    """Strings in UTF-8 with a separator between two of them; none of them is null or contains the separator."""

    __slots__ = ("_rows", "content")

    def __init__(self, content: bytes, rows: int) -> None:
        self.content = content
        self._rows = rows

    def __len__(self) -> int:
        return self._rows

    @property
    def nbytes(self) -> int:
        """Returns the memory of the Arrow array, which needs more than the content."""
        return len(self.content) + 4 * self._rows


def pack_strings(values: Any) -> PackedStrings | None:
    """Returns the strings of a list or array; None for values that need another conversion, such as nulls."""
    if type(values) is np.ndarray and values.ndim == 1 and values.dtype.kind in "OUT":
        values = values.tolist()
    if not isinstance(values, list | tuple) or not values:
        return None
    try:
        content = _SEPARATOR.join(values).encode()
    except (TypeError, UnicodeEncodeError):  # the other conversion accepts the value, or names it in its error
        return None
    if content.count(_SEPARATOR_BYTE) != len(values) - 1 or len(content) > _MAX_BYTES:
        return None
    return PackedStrings(content, len(values))


def join_packed(parts: Sequence[PackedStrings]) -> PackedStrings:
    """Returns the strings of all parts."""
    return PackedStrings(_SEPARATOR_BYTE.join([part.content for part in parts]), sum(map(len, parts)))


def unpack_strings(packed: PackedStrings) -> pa.Array:
    """Returns the strings as an Arrow array. Most of the time, the GIL is released."""
    content = np.frombuffer(packed.content, np.uint8)
    rows = len(packed)
    is_separator = content == ord(_SEPARATOR)
    offsets = np.empty(rows + 1, np.int32)
    offsets[0] = 0
    offsets[1:-1] = np.flatnonzero(is_separator) - np.arange(rows - 1)
    offsets[-1] = len(content) - (rows - 1)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(content[~is_separator])]
    return pa.Array.from_buffers(pa.string(), rows, buffers)
