"""Collects the rows of many steps into one block: what is sent, and what is sent again after a failure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pai_sdk.trace.columns import Prepared, numpy_type

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

_FIRST_ROWS = 1024
_JOINED = 256  # this number of small Arrow arrays become one
_JOINED_BYTES = 1 << 20  # larger ones are joined when the block is built, in a thread: no step waits for the copy

# Memory of Python objects and of Arrow's, measured: blocks of a few kilobytes take more of it than of rows.
_BLOCK_BYTES = 1_500
_COLUMN_BYTES = 500
_CHUNK_BYTES, _CHILD_BYTES = 900, 500  # a string has one array, a list two
_LARGE_BYTES = 1 << 20  # the allocator shrinks such a buffer without a copy


class BlockBuilder:
    """Rows that are not yet enough for a block. `append` copies them.

    Attributes:
        rows: how many there are.
        size_bytes: memory that they take.
        extra_bytes: memory of the objects around them, about.

    Args:
        schema: of the rows.
        block_bytes: of a complete block. Its buffers are reserved at once: a growing buffer would be copied
            within a step. Reserved memory takes no space before rows are written into it.
    """

    def __init__(self, schema: pa.Schema, *, block_bytes: int = 0) -> None:
        self._schema = schema
        row_bytes = sum(dtype.itemsize for field in schema if (dtype := numpy_type(field.type)) is not None)
        # An eighth more, because the last step of a block goes beyond its size.
        expected_rows = max(1, block_bytes * 9 // 8 // row_bytes) if row_bytes and block_bytes else _FIRST_ROWS
        self._columns: dict[str, _Numbers | _Arrays] = {}
        for field in schema:
            dtype = numpy_type(field.type)
            self._columns[field.name] = (
                _Arrays(field.type) if dtype is None else _Numbers(field.type, dtype, expected_rows)
            )
        self.rows = 0
        self.size_bytes = 0
        self._fixed_bytes = _BLOCK_BYTES + _COLUMN_BYTES * len(self._columns)
        self.extra_bytes = self._fixed_bytes

    def append(self, columns: Mapping[str, Prepared], rows: int) -> None:
        """Add the columns of one step, which `Columns.prepare` has checked: all of them, or none."""
        extra_bytes = self._fixed_bytes
        try:
            for name, column in self._columns.items():
                self.size_bytes += column.append(columns[name])
                extra_bytes += column.extra_bytes
        except BaseException:  # Ctrl-C: without this, the columns of the block would differ in length
            for column in self._columns.values():
                column.cut(self.rows)
            raise
        self.extra_bytes = extra_bytes
        self.rows += rows

    def trim(self) -> None:
        """Give back reserved memory: no more rows come."""
        for column in self._columns.values():
            column.trim()

    def release(self) -> None:
        """Give back all memory: the block is encoded. Its sizes stay known."""
        self._columns = {}

    def build(self) -> pa.RecordBatch:
        """All rows as one batch, in the builder's memory: it must be gone before the builder is used again."""
        import pyarrow as pa

        arrays = [self._columns[field.name].build() for field in self._schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


class _Numbers:
    """A growing buffer of numbers. Arrow arrays, which may have nulls, are taken as well."""

    def __init__(self, type_: pa.DataType, dtype: np.dtype[Any], expected_rows: int) -> None:
        import numpy as np

        self._type = type_
        self._buffer = np.empty(expected_rows, dtype)
        self._rows = 0
        self._nulls: list[tuple[int, np.ndarray[Any, Any]]] = []
        self.extra_bytes = 0

    def append(self, column: Prepared) -> int:
        import numpy as np

        end = self._rows + len(column)
        if end > len(self._buffer):
            grown = np.empty(max(end, 2 * len(self._buffer)), self._buffer.dtype)
            grown[: self._rows] = self._buffer[: self._rows]
            self._buffer = grown
        if isinstance(column, np.ndarray):
            self._buffer[self._rows : end] = column
        else:
            if column.null_count:
                self._nulls.append((self._rows, np.asarray(column.is_null().to_numpy(zero_copy_only=False))))
                self.extra_bytes += _CHUNK_BYTES + len(column)
                column = column.fill_null(0)
            self._buffer[self._rows : end] = column.to_numpy(zero_copy_only=False)
        self._rows = end
        return len(column) * self._buffer.itemsize

    def cut(self, rows: int) -> None:
        self._rows = rows
        self._nulls = [(start, is_null) for start, is_null in self._nulls if start < rows]

    def trim(self) -> None:
        if self._buffer.nbytes > _LARGE_BYTES:
            self._buffer.resize(self._rows, refcheck=False)
        elif self._rows < len(self._buffer):
            self._buffer = self._buffer[: self._rows].copy()  # shrunk, it would leave a gap too small for the next

    def build(self) -> pa.Array:
        import numpy as np
        import pyarrow as pa

        validity = None
        if self._nulls:
            is_valid = np.ones(self._rows, bool)
            for start, is_null in self._nulls:
                is_valid[start : start + len(is_null)] = ~is_null
            validity = pa.py_buffer(np.packbits(is_valid, bitorder="little"))
        # Not `pa.array`: it imports pandas, which takes half a second, and fails at the end of the process.
        return pa.Array.from_buffers(self._type, self._rows, [validity, pa.py_buffer(self._buffer[: self._rows])])


class _Arrays:
    """Arrow arrays, joined at the end."""

    def __init__(self, type_: pa.DataType) -> None:
        self._type = type_
        self._chunks: list[pa.Array] = []
        self._small: list[pa.Array] = []  # of single steps
        self._small_bytes = 0
        self._chunk_bytes = _CHUNK_BYTES + _CHILD_BYTES * _children(type_)

    @property
    def extra_bytes(self) -> int:
        """Memory of the objects."""
        return self._chunk_bytes * (len(self._chunks) + len(self._small))

    def append(self, column: pa.Array) -> int:
        import pyarrow as pa

        size_bytes = int(column.nbytes)
        self._small.append(column)
        self._small_bytes += size_bytes
        if len(self._small) == _JOINED:
            small, is_joined = self._small, self._small_bytes <= _JOINED_BYTES
            self._chunks += [pa.concat_arrays(small)] if is_joined else small
            self._small, self._small_bytes = [], 0
        return size_bytes

    def cut(self, rows: int) -> None:
        """Forget all rows but the first."""
        self._chunks, self._small, self._small_bytes = [self.build().slice(0, rows)], [], 0

    def trim(self) -> None:
        """Nothing is reserved."""

    def build(self) -> pa.Array:
        import pyarrow as pa

        chunks = [*self._chunks, *self._small]
        self._chunks, self._small, self._small_bytes = [], [], 0
        joined = pa.concat_arrays(chunks) if chunks else pa.array([], type=self._type)
        self._chunks = [joined]
        return joined


def _children(type_: pa.DataType) -> int:
    """Arrow arrays within one of a nested type."""
    import pyarrow.types as kinds

    if kinds.is_struct(type_):
        return sum(1 + _children(field.type) for field in type_)
    if kinds.is_map(type_):
        return 3 + _children(type_.key_type) + _children(type_.item_type)
    return 1 + _children(type_.value_type) if kinds.is_list(type_) or kinds.is_large_list(type_) else 0
