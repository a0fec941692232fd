"""Reads and writes the rows in requests and responses: Arrow or tunnel records, batch by batch.

No request is completely in memory. A batch of Arrow declares its size before its bytes arrive; this size is
reserved in the budget of all requests until the batch is stored.
"""

from __future__ import annotations

import datetime
import io
import re
import struct
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, BinaryIO

from pai_sdk._data.trace.frames import FrameError, framed_content, unframed_chunks
from pai_sdk._service.odps.block_bodies import compressed, decompressed
from pai_sdk._service.odps.memory_budget import MemoryBudget
from pai_sdk._service.odps.table_errors import TableError

if TYPE_CHECKING:
    import pyarrow as pa

    from pai_sdk._service.odps.table_store import Table

ROWS_BUDGET_BYTES = 288 << 20
"""Memory of all requests for rows together: three copies of the largest batch."""

_COPIES = 3  # of a batch: the buffer it is received in, the Arrow batch, its Parquet encoding
_SMALL_READ_BYTES = 1 << 20  # smaller reads are not counted in the budget
_CHUNK_SIZES = 1 << 10, 1 << 20  # pyodps sends 64 KiB
_RECORDS_BYTES = 96 << 20  # for a batch of 1 MiB: Python objects are many times larger than their bytes
_COUNT_TAG, _MAX_FOOTER_BYTES = 33554430, 64  # tag of the record count, the last but one field
_CHUNK_BYTES = 1 << 20


def read_block(
    body: BinaryIO, table: Table, *, encoding: str, is_arrow: bool, budget: MemoryBudget
) -> Generator[pa.RecordBatch, None, None]:
    """Yields the rows of an uploaded block, in batches whose memory is reserved in `budget`."""
    content = _Content(decompressed(body, encoding, budget.limits.content_bytes))
    if not is_arrow:
        return _records(content, table, budget)
    return _batches(_Content(_unframed(content)), table.schema, budget)


def encoding_for(accepts: str) -> str:
    """Selects the compression of a response by the header Accept-Encoding."""
    return next((encoding for encoding in ("zstd", "deflate") if encoding in accepts), "")


def encoded_rows(
    rows: Iterator[pa.Table], table: Table, columns: list[str] | None, *, encoding: str, is_arrow: bool
) -> Iterator[bytes]:
    """Yields the body of a response with the selected columns (None: all), as Arrow or records of the tunnel."""
    chunks = (
        framed_content(_messages(rows, list(table.columns))) if is_arrow else _as_records(rows, table, columns)
    )
    return _gathered(compressed(map(bytes, chunks), encoding))


def _messages(rows: Iterator[pa.Table], order: list[str]) -> Iterator[memoryview]:
    # The messages have no schema. pyodps reads the columns in the table's order, whatever order it requested:
    # in another order it would decode the bytes of one column as those of another.
    for table in rows:
        in_order = table.select(sorted(table.column_names, key=order.index))
        for batch in in_order.to_batches():
            yield memoryview(batch.serialize())


def _gathered(chunks: Iterable[bytes]) -> Iterator[bytes]:
    out = bytearray()
    for chunk in chunks:
        out += chunk
        if len(out) >= _CHUNK_BYTES:
            yield bytes(out)
            out.clear()
    if out:
        yield bytes(out)


class _Content:
    """A readable file over an iterator of chunks."""

    closed = False

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._buffer = memoryview(b"")
        self.read_bytes = 0

    @property
    def is_at_end(self) -> bool:
        """Returns True if there is nothing more to read; may pull the next chunk."""
        while not self._buffer:
            chunk = next(self._chunks, None)
            if chunk is None:
                return True
            self._buffer = memoryview(chunk)
        return False

    def read(self, size_bytes: int = -1) -> bytes:
        out = io.BytesIO()
        while (size_bytes < 0 or out.tell() < size_bytes) and not self.is_at_end:
            num_bytes = len(self._buffer) if size_bytes < 0 else size_bytes - out.tell()
            out.write(self._buffer[:num_bytes])
            self._buffer = self._buffer[num_bytes:]
        self.read_bytes += out.tell()
        return out.getvalue()

    def close(self) -> None:
        pass


# ---- Arrow


def _unframed(content: _Content) -> Iterator[bytes]:
    try:
        yield from unframed_chunks(content.read, min_chunk_bytes=_CHUNK_SIZES[0], max_chunk_bytes=_CHUNK_SIZES[1])
    except FrameError as error:
        raise _unreadable(error) from error


class _Batches:
    """A file that Arrow reads messages from. Arrow passes the size of the next read, which is checked first."""

    closed = False

    def __init__(self, content: _Content, budget: MemoryBudget) -> None:
        self._content = content
        self._budget = budget
        self._reservation = ExitStack()
        self._is_reserved = False

    def read(self, size_bytes: int = -1) -> bytes:
        # Before anything is allocated: the size is what the client declares.
        if size_bytes > (max_bytes := self._budget.limits.batch_bytes):
            text = f"A record batch has {size_bytes:,} bytes; {max_bytes:,} are allowed."
            raise TableError(413, "RequestTooLarge", f"{text} Send several smaller ones.")
        if size_bytes > _SMALL_READ_BYTES:
            # One reservation a message: two could deadlock with another request until both are refused.
            if self._is_reserved:
                raise FrameError("the description of a batch is too large")
            self._reservation.enter_context(self._budget.reserve(_COPIES * size_bytes))
            self._is_reserved = True
        return self._content.read(size_bytes)

    def release(self) -> None:
        self._reservation.close()
        self._is_reserved = False

    def close(self) -> None:
        pass


def _batches(content: _Content, schema: pa.Schema, budget: MemoryBudget) -> Generator[pa.RecordBatch, None, None]:
    import pyarrow as pa

    source = _Batches(content, budget)
    try:
        reader = pa.ipc.MessageReader.open_stream(pa.PythonFile(source, mode="r"))
        while True:
            try:
                message = reader.read_next_message()
            except StopIteration:
                return
            batch = _batch_of(message, schema)
            # The last reference to the batch must be dropped before its memory is released to other requests.
            del message
            yield batch
            del batch
            source.release()
    except (pa.ArrowException, OSError, ValueError, struct.error) as error:
        raise _unreadable(f"the data is not of this table's schema: {error}") from error
    finally:
        source.release()


def _batch_of(message: pa.Message, schema: pa.Schema) -> pa.RecordBatch:
    import pyarrow as pa

    if message.type != "record batch":
        raise FrameError(f"there is a message of the kind {message.type!r}")
    # Arrow would decompress the buffers to whatever size they declare.
    if _is_compressed(memoryview(message.metadata)):
        raise FrameError("its buffers are compressed; compress the body instead")
    batch = pa.ipc.read_record_batch(message, schema)
    batch.validate(full=True)
    if batch.nbytes > message.body.size + _SMALL_READ_BYTES:
        raise FrameError("its buffers overlap")
    return batch


def _is_compressed(metadata: memoryview) -> bool:
    """Returns True if the buffers of a batch are compressed: field 4 of the RecordBatch in its flatbuffer."""

    def number(form: str, position: int) -> int:
        (value,) = struct.unpack_from(form, metadata, position)
        return int(value)

    def field(table: int, index: int) -> int:
        fields = table - number("<i", table)
        offset = 4 + 2 * index
        offset_in_table = number("<H", fields + offset) if offset < number("<H", fields) else 0
        return table + offset_in_table if offset_in_table else 0

    header = field(number("<I", 0), 2)
    return field(header + number("<I", header), 3) != 0


# ---- records of the tunnel: pyodps reads and writes them


_TIME_TYPES = re.compile(r"\b(?:datetime|timestamp)\b(?!:)")  # no field of a struct
_WITHOUT_ZONE = {"datetime": "bigint", "timestamp": "timestamp_ntz"}
_EPOCH, _MILLISECOND = datetime.datetime(1970, 1, 1), datetime.timedelta(milliseconds=1)


def _odps_schema(table: Table, columns: list[str] | None = None) -> Any:
    """Returns the schema with which pyodps reads and writes records."""
    from odps.models import TableSchema

    # pyodps (0.13.2) converts instants to the zone of its machine or of `odps.options`, which is global to the
    # process and may be a client's. The service keeps UTC: milliseconds or a time without a zone have the same
    # bytes.
    names = columns or list(table.columns)
    types = [_TIME_TYPES.sub(lambda word: _WITHOUT_ZONE[word[0]], table.columns[name]) for name in names]
    return TableSchema.from_lists(names, types)


def _for_records(type_: pa.DataType) -> Callable[[Any], Any] | None:
    """Returns a converter of all DATETIME values of a column to milliseconds; None if it has none."""
    import pyarrow.types as kinds

    if kinds.is_timestamp(type_):
        return (lambda value: (value - _EPOCH) // _MILLISECOND) if type_.unit == "ms" else None
    if kinds.is_list(type_):
        if item := _for_records(type_.value_type):
            return lambda values: [_with(item, value) for value in values]
    elif kinds.is_map(type_):
        key, item = _for_records(type_.key_type), _for_records(type_.item_type)
        if key or item:
            return lambda values: {_with(key, name): _with(item, value) for name, value in values.items()}
    elif kinds.is_struct(type_):
        fields = {field.name: _for_records(field.type) for field in type_}
        if any(fields.values()):
            return lambda values: {name: _with(fields[name], value) for name, value in values.items()}
    return None


def _with(convert: Callable[[Any], Any] | None, value: Any) -> Any:
    return value if convert is None or value is None else convert(value)


class _RecordContent:
    """The bytes of records, with a limit on the size of one record."""

    def __init__(self, content: _Content, max_bytes: int) -> None:
        self._content = content
        self._max_bytes = max_bytes  # of one record
        self.record_start = 0
        self.tail = b""
        # The error that stopped reading: pyodps replaces it by an error of the connection.
        self.refused: TableError | None = None

    @property
    def read_bytes(self) -> int:
        return self._content.read_bytes

    def read(self, size_bytes: int = -1) -> bytes:
        if self.read_bytes - self.record_start > self._max_bytes:
            text = f"A record has more than {self._max_bytes:,} bytes; send such rows as Arrow."
            self.refused = TableError(413, "RequestTooLarge", text)
            raise self.refused
        content = self._content.read(min(size_bytes, self._max_bytes) if size_bytes >= 0 else _SMALL_READ_BYTES)
        self.tail = (self.tail + content[-_MAX_FOOTER_BYTES:])[-_MAX_FOOTER_BYTES:]
        return content

    def check_end(self, count: int) -> None:
        """Raises `ValueError` unless the content ends with the number of its records: pyodps accepts any end."""
        if _varint(_COUNT_TAG << 3) + _varint(count << 1) not in self.tail:
            raise ValueError("the records are truncated")


def _records(content: _Content, table: Table, budget: MemoryBudget) -> Generator[pa.RecordBatch, None, None]:
    from odps.tunnel.io.reader import TunnelRecordReader

    source = _RecordContent(content, budget.limits.record_bytes)
    streams = [source]

    def stream(*args: object, **options: object) -> _RecordContent:
        # After an error pyodps opens its stream again. A second stream would be at its end, and rows be lost
        # silently.
        if not streams:
            raise ValueError("the records are truncated, or have other columns")
        return streams.pop()

    reader = TunnelRecordReader(_odps_schema(table), stream)
    values: list[Any] = []
    batch_start = count = 0
    with budget.reserve(_RECORDS_BYTES):
        try:
            if content.is_at_end:
                return
            for record in reader:
                values.append(record.values)
                count += 1
                source.record_start = source.read_bytes
                if source.read_bytes - batch_start > _SMALL_READ_BYTES:
                    yield _batch_of_records(values, table.schema)
                    values, batch_start = [], source.read_bytes
            source.check_end(count)
            yield _batch_of_records(values, table.schema)
        except TableError:
            raise
        except Exception as error:  # pyodps raises anything for hostile bytes
            raise (source.refused or _unreadable(error)) from error


def _varint(number: int) -> bytes:
    """Encodes a number as the tunnel does: seven bits per byte, the lowest first."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def _batch_of_records(values: list[Any], schema: pa.Schema) -> pa.RecordBatch:
    import pyarrow as pa

    columns = list(zip(*values, strict=True)) if values else [()] * len(schema)
    arrays = [pa.array(list(column), type=field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _as_records(rows: Iterator[pa.Table], table: Table, columns: list[str] | None) -> Iterator[bytes]:
    from odps.errors import DatetimeOverflowError
    from odps.models import Record
    from odps.tunnel.io.writer import BaseRecordWriter

    schema = _odps_schema(table, columns)
    out = io.BytesIO()

    def pop_bytes() -> bytes:
        content = out.getvalue()
        out.seek(0)
        out.truncate()
        return content

    writer = BaseRecordWriter(schema, out)
    for part in rows:
        try:
            for values in zip(*map(_values, part.columns), strict=True):
                writer.write(Record(schema=schema, values=list(values)))
        except DatetimeOverflowError as error:
            text = f"The rows have a time that records cannot have ({error}); read them as Arrow."
            raise TableError(400, "InvalidArgument", text) from error
        yield pop_bytes()
    writer.close()
    yield pop_bytes()


def _values(column: pa.ChunkedArray) -> list[Any]:
    values: list[Any] = column.to_pylist(maps_as_pydicts="strict")
    convert = _for_records(column.type)
    return values if convert is None else [_with(convert, value) for value in values]


def _unreadable(error: Exception | str) -> TableError:
    return TableError(400, "InvalidArgument", f"The block cannot be read: {str(error)[:500]}.")
