"""Collects the rows of many steps into one block: what is sent, and what is sent again after a failure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pai_sdk.trace.columns import Prepared, numpy_type

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

_FIRST_ROWS = 1024


class BlockBuilder:
    """Rows that are not yet enough for a block. `append` copies them.

    Attributes:
        rows: how many there are.
        size_bytes: memory that they take.

    Args:
        schema: of the rows.
        block_bytes: of a complete block. Its buffers are reserved at once: a growing buffer would be copied
            within a step. Reserved memory takes no space before rows are written into it.
    """

    def __init__(self, schema: pa.Schema, *, block_bytes: int = 0) -> None:
        self._schema = schema
        row_bytes = sum(dtype.itemsize for field in schema if (dtype := numpy_type(field.type)) is not None)
        # An eighth more, because the last step of a block goes beyond its size.
        expected_rows = block_bytes * 9 // 8 // row_bytes if row_bytes else 0
        self._columns: dict[str, _Numbers | _Arrays] = {}
        for field in schema:
            dtype = numpy_type(field.type)
            self._columns[field.name] = _Arrays(field.type) if dtype is None else _Numbers(dtype, expected_rows)
        self.rows = 0
        self.size_bytes = 0

    def append(self, columns: Mapping[str, Prepared], rows: int) -> None:
        """Add the columns of one step, which `Columns.prepare` has checked."""
        for name, column in self._columns.items():
            self.size_bytes += column.append(columns[name])
        self.rows += rows

    def build(self) -> pa.RecordBatch:
        """All rows as one batch. The builder is not used afterwards."""
        import pyarrow as pa

        arrays = [self._columns[field.name].build() for field in self._schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


class _Numbers:
    """A growing buffer of numbers. Arrow arrays, which may have nulls, are taken as well."""

    def __init__(self, dtype: np.dtype[Any], expected_rows: int) -> None:
        import numpy as np

        self._buffer = np.empty(max(expected_rows, _FIRST_ROWS), dtype)
        self._rows = 0
        self._nulls: list[tuple[int, np.ndarray[Any, Any]]] = []

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
                column = column.fill_null(0)
            self._buffer[self._rows : end] = column.to_numpy(zero_copy_only=False)
        self._rows = end
        return len(column) * self._buffer.itemsize

    def build(self) -> pa.Array:
        import numpy as np
        import pyarrow as pa

        numbers = self._buffer[: self._rows]
        if not self._nulls:
            return pa.array(numbers)
        mask = np.zeros(self._rows, bool)
        for start, is_null in self._nulls:
            mask[start : start + len(is_null)] = is_null
        return pa.array(numbers, mask=mask)


class _Arrays:
    """Arrow arrays, joined at the end."""

    def __init__(self, type_: pa.DataType) -> None:
        self._type = type_
        self._chunks: list[pa.Array] = []

    def append(self, column: pa.Array) -> int:
        self._chunks.append(column)
        return int(column.nbytes)

    def build(self) -> pa.Array:
        import pyarrow as pa

        return pa.concat_arrays(self._chunks) if self._chunks else pa.array([], type=self._type)
