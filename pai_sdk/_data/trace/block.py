"""Collects the rows of many steps into one block, the unit of sending and of retries."""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import groupby
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.types as kinds

from pai_sdk._data.trace.columns import Prepared
from pai_sdk._data.trace.strings import PackedStrings, join_packed, unpack_strings
from pai_sdk._data.trace.types import numpy_type
from pai_sdk.errors import InvalidInputError, Problem

_Array: TypeAlias = "np.ndarray[Any, Any] | pa.Array"

_FIRST_ROWS = 1024
_MAX_PART_BYTES = 8 << 20  # of a block: large enough for Arrow, and a small fraction of a block of the usual size
_JOINED = 256  # small Arrow arrays that are joined into one
_JOINED_BYTES = 1 << 20  # larger ones are joined when the block is built, in a thread: no step waits for the copy

# Memory of Python and Arrow objects, measured: blocks of a few kilobytes need more memory for them than for rows.
_BLOCK_BYTES = 1_500
_COLUMN_BYTES = 500
_LIST_BYTES = 500  # in addition for a column of lists, which has two buffers
_CHUNK_BYTES, _CHILD_BYTES = 900, 500  # a string has one array, a list two
_PACKED_BYTES = 150
_LARGE_BYTES = 1 << 20  # such a buffer is a mapping of its own
# Linux uses its large pages, which are faster, for private memory only. Windows has no such flags.
_MAPPING_FLAGS = (
    {"flags": getattr(mmap, "MAP_PRIVATE", 0) | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_ANONYMOUS") else {}
)
_MAX_INT32 = (1 << 31) - 1
_MIN_SPARE_BYTES = 1 << 16  # smaller buffers need few new pages


class SpareBuffers:
    """Buffers for the next part of a block, created by a thread of the writer. The writer's lock guards all state.

    The operating system assigns memory when it is written first. In a step, that would take several times as long
    as the copy of the rows, so a thread writes to the memory before.
    """

    def __init__(self, max_bytes: int = 0) -> None:
        self._max_bytes = max_bytes
        self._requested: list[tuple[int, np.dtype[Any]]] = []
        self._ready: list[np.ndarray[Any, Any]] = []
        self.size_bytes = 0  # of the last buffers, also after a part has taken them

    @property
    def is_requested(self) -> bool:
        """Returns True if the next part will need buffers soon."""
        return bool(self._requested)

    def request(self, buffers: Iterable[_Buffer]) -> None:
        """Requests buffers like these, unless they would need too much memory."""
        large = [buffer for buffer in buffers if buffer.capacity_bytes >= _MIN_SPARE_BYTES]
        if sum(buffer.capacity_bytes for buffer in large) <= self._max_bytes:
            self._requested = [(buffer.capacity, buffer.dtype) for buffer in large]

    def claim(self) -> list[tuple[int, np.dtype[Any]]]:
        """Returns the request, which is then this thread's."""
        requested, self._requested = self._requested, []
        return requested

    @staticmethod
    def create(requested: Iterable[tuple[int, np.dtype[Any]]]) -> list[np.ndarray[Any, Any]]:
        """Returns the requested buffers, with their memory assigned; called without the lock."""
        buffers = [_new_buffer(length, dtype) for length, dtype in requested]
        for buffer in buffers:
            buffer.fill(0)  # releases the GIL
        return buffers

    def add(self, buffers: list[np.ndarray[Any, Any]]) -> None:
        """Replaces the spare buffers."""
        self._ready = buffers
        self.size_bytes = sum(buffer.nbytes for buffer in buffers)

    def take(self, length: int, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
        """Returns a spare buffer, or else a new one."""
        for number, buffer in enumerate(self._ready):
            if buffer.dtype == dtype and len(buffer) >= length:
                return self._ready.pop(number)
        return _new_buffer(length, dtype)


def _new_buffer(length: int, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    size_bytes = length * dtype.itemsize
    if size_bytes < _LARGE_BYTES or not _MAPPING_FLAGS:
        return np.empty(length, dtype)
    # Not of the allocator, which retains memory that a thread releases.
    mapping = mmap.mmap(-1, size_bytes, **_MAPPING_FLAGS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # a kernel without large pages
            mapping.madvise(mmap.MADV_HUGEPAGE)  # type: ignore[attr-defined, unused-ignore]
    return np.frombuffer(mapping, dtype)


def _release_tail(buffer: np.ndarray[Any, Any], length: int) -> None:
    """Returns the memory after the first values to the system, where the buffer is a mapping."""
    base = buffer.base
    mapping = base.obj if isinstance(base, memoryview) else base
    start = -(-length * buffer.dtype.itemsize // mmap.PAGESIZE) * mmap.PAGESIZE
    if isinstance(mapping, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED") and start < buffer.nbytes:
        with suppress(OSError):
            mapping.madvise(mmap.MADV_DONTNEED, start)


class BlockBuilder:
    """Collects copies of rows until they are enough for a block."""

    def __init__(
        self,
        schema: pa.Schema,
        *,
        block_bytes: int = 0,
        max_part_bytes: int = _MAX_PART_BYTES,
        spares: SpareBuffers | None = None,
    ) -> None:
        self._schema = schema
        self._max_part_bytes = max_part_bytes
        self._spares = SpareBuffers() if spares is None else spares
        # Rows are stored in parts, so that the memory of each part is released as soon as it is encoded. The first
        # rows of a part reserve its buffers for all of it, since a growing buffer would be copied within a step.
        self._part_bytes = min(block_bytes, max_part_bytes)
        self._part = _Part(schema, self._part_bytes, self._spares)
        self._full: list[_Part] = []
        self._full_rows = self._full_bytes = self._full_extra_bytes = 0

    @property
    def rows(self) -> int:
        """Returns the number of rows."""
        return self._full_rows + self._part.rows

    @property
    def size_bytes(self) -> int:
        """Returns the memory of the rows."""
        return self._full_bytes + self._part.size_bytes

    @property
    def extra_bytes(self) -> int:
        """Returns the approximate memory of the objects that hold the rows."""
        return _BLOCK_BYTES + self._full_extra_bytes + self._part.extra_bytes

    def append(self, columns: Mapping[str, Prepared], rows: int) -> None:
        """Adds the columns of one step, which `Columns.prepare` has checked: all of them, or none."""
        if self._part.size_bytes >= self._max_part_bytes:
            self._start_part()
        self._part.append(columns, rows)
        # Not before: blocks that are never full need no second part.
        if not self._part.has_requested and self._part.size_bytes >= self._max_part_bytes // 2:
            self._part.request_next()

    def _start_part(self) -> None:
        full = self._part
        full.trim()
        # Ctrl-C can interrupt the evaluation of the values, but not the assignments: no part counts twice.
        self._full, self._part, self._full_rows, self._full_bytes, self._full_extra_bytes = (
            [*self._full, full],
            _Part(self._schema, self._part_bytes, self._spares),
            self.rows,
            self.size_bytes,
            self._full_extra_bytes + full.extra_bytes,
        )

    def trim(self) -> None:
        """Releases reserved memory, after the last row."""
        self._part.trim()

    def batches(self) -> list[pa.RecordBatch]:
        """Returns all rows, in the builder's memory: the caller drops them before it uses the builder again."""
        return [part.build() for part in (*self._full, self._part)]

    def drain(self) -> Iterator[pa.RecordBatch]:
        """Yields all rows, part by part, and releases each part; `rows` and the sizes stay."""
        for part in (*self._full, self._part):
            batch = part.build()
            part.release()
            yield batch
            del batch  # frees this part before the next one is built


class _Part:
    """Rows of a block, in one buffer for each column of numbers."""

    __slots__ = (
        "_columns",
        "_part_bytes",
        "_schema",
        "_spares",
        "extra_bytes",
        "has_requested",
        "rows",
        "size_bytes",
    )

    def __init__(self, schema: pa.Schema, part_bytes: int, spares: SpareBuffers) -> None:
        self._schema = schema
        self._part_bytes = part_bytes
        self._spares = spares
        self.has_requested = False
        self._columns = {field.name: _column(field.type) for field in schema}
        self.rows = 0
        self.size_bytes = 0
        self.extra_bytes = _COLUMN_BYTES * len(self._columns)

    def append(self, columns: Mapping[str, Prepared], rows: int) -> None:
        """Adds the columns of one step: all of them, or none."""
        if not self.rows:
            self._reserve(columns)
        size_bytes, extra_bytes = self.size_bytes, _COLUMN_BYTES * len(self._columns)
        try:
            for name, column in self._columns.items():
                size_bytes += column.append(columns[name])
                extra_bytes += column.extra_bytes
        except BaseException:  # Ctrl-C: without this, the columns of the block would differ in length
            for column in self._columns.values():
                column.truncate(self.rows)
            raise
        self.size_bytes, self.extra_bytes = size_bytes, extra_bytes
        self.rows += rows

    def _reserve(self, columns: Mapping[str, Prepared]) -> None:
        """Reserves the buffers of a part, assuming that all rows are like the first ones."""
        step_bytes = sum(column.bytes_of(columns[name]) for name, column in self._columns.items())
        if step_bytes and self._part_bytes:
            # One step more, because the last one exceeds the size of the part.
            steps = self._part_bytes / step_bytes + 1
            for name, column in self._columns.items():
                column.reserve(columns[name], steps, self._spares)

    def request_next(self) -> None:
        """Requests buffers for the next part, which is probably like this one."""
        self.has_requested = True
        self._spares.request(buffer for column in self._columns.values() for buffer in column.buffers)

    def trim(self) -> None:
        """Releases reserved memory, after the last row."""
        for column in self._columns.values():
            column.trim()

    def release(self) -> None:
        """Drops the rows; batches that were built keep their memory."""
        self._columns = {}

    def build(self) -> pa.RecordBatch:
        """Returns all rows as one batch, in the memory of the part."""
        arrays = [self._columns[field.name].build() for field in self._schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _column(type_: pa.DataType) -> _Numbers | _Lists | _Arrays:
    """Returns a builder for a column of a type."""
    if (dtype := numpy_type(type_)) is not None:
        return _Numbers(type_, dtype)
    if kinds.is_list(type_) and (dtype := numpy_type(type_.value_type)) is not None:
        return _Lists(type_, dtype)
    return _Arrays(type_)


class _Buffer:
    """A growing buffer of numbers."""

    __slots__ = ("_values", "dtype", "length")

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self._values = np.empty(_FIRST_ROWS, dtype)
        self.dtype = dtype
        self.length = 0

    @property
    def values(self) -> np.ndarray[Any, Any]:
        """Returns the content, in the buffer's own memory."""
        return self._values[: self.length]

    @property
    def capacity(self) -> int:
        """Returns the number of values for which memory is reserved."""
        return len(self._values)

    @property
    def capacity_bytes(self) -> int:
        """Returns the reserved memory."""
        return int(self._values.nbytes)

    def reserve(self, length: int, spares: SpareBuffers | None = None) -> None:
        """Reserves space for this number of values in total."""
        if length > len(self._values):
            grown = _new_buffer(length, self.dtype) if spares is None else spares.take(length, self.dtype)
            grown[: self.length] = self.values
            self._values = grown

    def extend(self, length: int) -> np.ndarray[Any, Any]:
        """Returns space for the next values. The caller fills it, and then increases `length`."""
        end = self.length + length
        if end > len(self._values):
            self.reserve(max(end, 2 * len(self._values)))
        return self._values[self.length : end]

    def trim(self) -> None:
        """Releases reserved memory."""
        if self._values.nbytes > _LARGE_BYTES:
            _release_tail(self._values, self.length)
        elif self.length < len(self._values):
            self._values = self.values.copy()  # shrinking in place would leave a gap too small for reuse


class _Nulls:
    """The rows of a column that are null."""

    __slots__ = ("_parts", "extra_bytes")

    def __init__(self) -> None:
        self._parts: list[tuple[int, np.ndarray[Any, Any]]] = []
        self.extra_bytes = 0

    def append(self, start: int, column: pa.Array) -> None:
        """Records the nulls of more rows."""
        if column.null_count:
            self._parts.append((start, np.asarray(column.is_null().to_numpy(zero_copy_only=False))))
            self.extra_bytes += _CHUNK_BYTES + len(column)

    def truncate(self, rows: int) -> None:
        """Drops all rows after the first `rows`."""
        self._parts = [(start, is_null) for start, is_null in self._parts if start < rows]

    def bitmap(self, rows: int) -> pa.Buffer | None:
        """Returns Arrow's bitmap of the rows that have a value; None when all have one."""
        if not self._parts:
            return None
        is_valid = np.ones(rows, bool)
        for start, is_null in self._parts:
            is_valid[start : start + len(is_null)] = ~is_null
        return pa.py_buffer(np.packbits(is_valid, bitorder="little"))


class _Numbers:
    """A column of numbers. Accepts Arrow arrays, which can have nulls, as well."""

    __slots__ = ("_buffer", "_nulls", "_type")

    def __init__(self, type_: pa.DataType, dtype: np.dtype[Any]) -> None:
        self._type = type_
        self._buffer = _Buffer(dtype)
        self._nulls = _Nulls()

    def __len__(self) -> int:
        return self._buffer.length

    @property
    def extra_bytes(self) -> int:
        """Returns the memory of the objects."""
        return self._nulls.extra_bytes

    @property
    def item_bytes(self) -> int:
        """Returns the memory of one number."""
        return int(self._buffer.dtype.itemsize)

    def bytes_of(self, column: _Array) -> int:
        """Returns the memory that rows will need."""
        return len(column) * self.item_bytes

    @property
    def buffers(self) -> tuple[_Buffer, ...]:
        """Returns the buffers of the rows."""
        return (self._buffer,)

    def reserve(self, column: _Array, steps: float, spares: SpareBuffers) -> None:
        """Reserves space for this number of steps of the size of `column`."""
        self.reserve_rows(int(len(column) * steps), spares)

    def reserve_rows(self, rows: int, spares: SpareBuffers) -> None:
        """Reserves space for this number of rows."""
        self._buffer.reserve(rows, spares)

    def append(self, column: _Array) -> int:
        """Adds rows, or the items of rows: an array of any shape. Returns their memory."""
        if not isinstance(column, np.ndarray):
            self._nulls.append(self._buffer.length, column)
            column = (column.fill_null(0) if column.null_count else column).to_numpy(zero_copy_only=False)
        self._buffer.extend(column.size).reshape(column.shape)[...] = column
        self._buffer.length += column.size
        return int(column.size) * self.item_bytes

    def truncate(self, rows: int) -> None:
        """Drops all rows after the first `rows`."""
        self._buffer.length = rows
        self._nulls.truncate(rows)

    def trim(self) -> None:
        """Releases reserved memory."""
        self._buffer.trim()

    def build(self) -> pa.Array:
        """Returns all rows, in the memory of this object."""
        # Not `pa.array`: it imports pandas, which takes half a second, and fails during the exit of the process.
        buffers = [self._nulls.bitmap(len(self)), pa.py_buffer(self._buffer.values)]
        return pa.Array.from_buffers(self._type, len(self), buffers)


class _Lists:
    """A column of lists of numbers: all items in one buffer, and the end of each row."""

    # With an Arrow array for each step, all of them would be joined at the end of the block: twice the memory.

    __slots__ = ("_ends", "_ends_of_step", "_items", "_nulls", "_type")

    def __init__(self, type_: pa.ListType, dtype: np.dtype[Any]) -> None:
        self._type = type_
        self._items = _Numbers(type_.value_type, dtype)
        self._ends = _Buffer(np.dtype(np.int32))
        self._ends_of_step = np.empty(0, np.int32)  # of the last array of two dimensions, without those before it
        self._nulls = _Nulls()

    @property
    def extra_bytes(self) -> int:
        """Returns the memory of the objects."""
        return _LIST_BYTES + self._items.extra_bytes + self._nulls.extra_bytes

    def bytes_of(self, column: _Array) -> int:
        """Returns the memory that rows will need."""
        return _item_count(column) * self._items.item_bytes + len(column) * self._ends.dtype.itemsize

    @property
    def buffers(self) -> tuple[_Buffer, ...]:
        """Returns the buffers of the items and ends."""
        return (*self._items.buffers, self._ends)

    def reserve(self, column: _Array, steps: float, spares: SpareBuffers) -> None:
        """Reserves space for this number of steps of the size of `column`."""
        self._items.reserve_rows(int(_item_count(column) * steps), spares)
        self._ends.reserve(int(len(column) * steps), spares)

    def append(self, column: _Array) -> int:
        """Adds rows: an array of two dimensions, or lists of Arrow. Returns their memory."""
        first, rows, size_bytes = len(self._items), len(column), self.bytes_of(column)
        if first + _item_count(column) > _MAX_INT32:
            text = f"have more than {_MAX_INT32:,} items in the lists of one column"
            raise InvalidInputError([Problem("the rows of a step", text, "fewer rows in a step")])
        if isinstance(column, np.ndarray):
            step_ends = self._ends_of(rows, column.shape[1])
        else:
            lengths = np.diff(column.offsets.to_numpy())
            if column.null_count:  # a null can have items in Arrow, which `flatten` leaves out
                lengths = np.where(column.is_null().to_numpy(zero_copy_only=False), 0, lengths)
            step_ends = np.cumsum(lengths, dtype=np.int32)
            self._nulls.append(self._ends.length, column)
            column = column.flatten()
        self._items.append(column)
        np.add(step_ends, np.int32(first), out=self._ends.extend(rows))
        self._ends.length += rows
        return size_bytes

    def _ends_of(self, rows: int, width: int) -> np.ndarray[Any, Any]:
        """Returns the ends of the rows of an array, which are usually those of the step before."""
        ends = self._ends_of_step
        if len(ends) != rows or not rows or ends[0] != width:
            ends = self._ends_of_step = np.arange(1, rows + 1, dtype=np.int32) * np.int32(width)
        return ends

    def truncate(self, rows: int) -> None:
        """Drops all rows after the first `rows`."""
        self._ends.length = rows
        self._items.truncate(int(self._ends.values[-1]) if rows else 0)
        self._nulls.truncate(rows)

    def trim(self) -> None:
        """Releases reserved memory."""
        self._items.trim()
        self._ends.trim()

    def build(self) -> pa.Array:
        """Returns all rows; the items are in the memory of this object."""
        rows = self._ends.length
        offsets = np.concatenate([np.zeros(1, self._ends.dtype), self._ends.values])
        buffers = [self._nulls.bitmap(rows), pa.py_buffer(offsets)]
        return pa.Array.from_buffers(self._type, rows, buffers, children=[self._items.build()])


def _item_count(column: _Array) -> int:
    """Returns the number of items of all lists, including those of nulls."""
    if isinstance(column, np.ndarray):
        return int(column.size)
    offsets = column.offsets  # of the slice; its `values` would be those of the complete array
    return offsets[-1].as_py() - offsets[0].as_py() if len(column) else 0


class _Arrays:
    """A column of Arrow arrays and packed strings, which are joined at the end."""

    def __init__(self, type_: pa.DataType) -> None:
        self._type = type_
        self._chunks: list[pa.Array | PackedStrings] = []
        self._small: list[pa.Array | PackedStrings] = []  # of single steps
        self._small_bytes = 0
        self._chunk_bytes = _CHUNK_BYTES + _CHILD_BYTES * _children(type_)
        self.extra_bytes = 0  # of the objects

    def bytes_of(self, column: pa.Array | PackedStrings) -> int:
        """Returns the memory of rows."""
        return int(column.nbytes)

    @property
    def buffers(self) -> tuple[_Buffer, ...]:
        """Returns nothing: the values are stored as they are."""
        return ()

    def reserve(self, column: pa.Array | PackedStrings, steps: float, spares: SpareBuffers) -> None:
        """Does nothing: the values are stored as they are."""

    def append(self, column: pa.Array | PackedStrings) -> int:
        size_bytes = self.bytes_of(column)
        self._small.append(column)
        self._small_bytes += size_bytes
        if len(self._small) == _JOINED:
            small, is_joined = self._small, self._small_bytes <= _JOINED_BYTES
            self._chunks += _joined(small) if is_joined else small
            self._small, self._small_bytes = [], 0
            self.extra_bytes = sum(map(self._overhead_bytes, self._chunks))
        else:
            self.extra_bytes += self._overhead_bytes(column)
        return size_bytes

    def truncate(self, rows: int) -> None:
        """Drops all rows after the first `rows`."""
        self._chunks, self._small, self._small_bytes = [self.build().slice(0, rows)], [], 0
        self.extra_bytes = self._chunk_bytes

    def trim(self) -> None:
        """Does nothing: no memory is reserved."""

    def _overhead_bytes(self, chunk: pa.Array | PackedStrings) -> int:
        return _PACKED_BYTES if isinstance(chunk, PackedStrings) else self._chunk_bytes

    def build(self) -> pa.Array:
        """Returns all rows as one array."""
        chunks = _joined([*self._chunks, *self._small])
        self._chunks, self._small, self._small_bytes = [], [], 0
        arrays = [unpack_strings(chunk) if isinstance(chunk, PackedStrings) else chunk for chunk in chunks]
        joined = pa.concat_arrays(arrays) if arrays else pa.array([], type=self._type)
        self._chunks = [joined]
        return joined


def _joined(chunks: list[pa.Array | PackedStrings]) -> list[pa.Array | PackedStrings]:
    """Joins successive chunks of one kind."""
    groups = [
        (is_packed, list(group))
        for is_packed, group in groupby(chunks, lambda chunk: isinstance(chunk, PackedStrings))
    ]
    return [join_packed(group) if is_packed else pa.concat_arrays(group) for is_packed, group in groups]


def _children(type_: pa.DataType) -> int:
    """Returns the number of Arrow arrays within an array of a nested type."""
    if kinds.is_struct(type_):
        return sum(1 + _children(field.type) for field in type_)
    if kinds.is_map(type_):
        return 3 + _children(type_.key_type) + _children(type_.item_type)
    return 1 + _children(type_.value_type) if kinds.is_list(type_) or kinds.is_large_list(type_) else 0
