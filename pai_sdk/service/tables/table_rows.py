"""The rows in requests and responses: Arrow or records, compressed or not, a batch at a time.

No request is in memory as a whole. A batch of Arrow declares its size before it comes: this much is taken from the
budget of all requests, until the batch is stored.
"""

from __future__ import annotations

import datetime
import io
import re
import struct
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, BinaryIO

from pai_sdk.service.tables.block_bodies import compressed, decompressed
from pai_sdk.service.tables.memory_budget import MemoryBudget
from pai_sdk.service.tables.table_errors import TableError
from pai_sdk.trace.frames import FrameError, framed_pieces, unframed_chunks

if TYPE_CHECKING:
    import pyarrow as pa

    from pai_sdk.service.tables.table_store import Table

__all__ = ["LARGEST_BATCH_BYTES", "ROWS_BUDGET_BYTES", "encoded_rows", "encoding_for", "read_block"]

LARGEST_BATCH_BYTES = 96 << 20
"""The largest record batch of Arrow; the usual block has 64 MiB."""

ROWS_BUDGET_BYTES = 288 << 20
"""The memory that requests for rows may use together: that of the largest batch."""

_MOST_BYTES = 2 << 30  # of the content of one block
_COPIES = 3  # of a batch: as it comes, as it came, and as it is stored
_SMALL_READ = 1 << 20  # below, what is read is not worth counting
_CHUNKS = 1 << 10, 1 << 20  # pyodps sends 64 KiB
_LONGEST_RECORD = 8 << 20  # MaxCompute: the largest cell
_RECORDS_BYTES = 96 << 20  # Python objects are many times larger than the bytes they are read from
_COUNT_TAG, _LONGEST_FOOTER = 33554430, 64  # the number of records is the last but one field
_PIECE = 1 << 20


def read_block(
    body: BinaryIO, table: Table, *, encoding: str, is_arrow: bool, budget: MemoryBudget
) -> Generator[pa.RecordBatch, None, None]:
    """The rows of an uploaded block.

    Args:
        body: as it was sent, in a file.
        table: whose columns they are.
        encoding: the compression: `deflate`, `zstd`, or none.
        is_arrow: whether the rows are Arrow; they are records of the tunnel otherwise.
        budget: gives the memory of the batches.

    Raises:
        TableError: they cannot be read, do not have their checksum, or need more memory than is allowed.
    """
    content = _Content(decompressed(body, encoding, _MOST_BYTES))
    if not is_arrow:
        return _records(content, table, budget)
    return _batches(_Content(_unframed(content)), table.schema, budget)


def encoding_for(accepts: str) -> str:
    """The compression of a response, by the header Accept-Encoding."""
    return next((encoding for encoding in ("zstd", "deflate") if encoding in accepts), "")


def encoded_rows(
    rows: Iterator[pa.Table], table: Table, columns: list[str] | None, *, encoding: str, is_arrow: bool
) -> Iterator[bytes]:
    """The body of a response with rows, in pieces.

    Args:
        rows: tables of the chosen columns.
        table: whose columns they are.
        columns: the chosen ones; None for all.
        encoding: the compression.
        is_arrow: whether the client wants Arrow, or records of the tunnel.
    """
    pieces = framed_pieces(_messages(rows, list(table.columns))) if is_arrow else _as_records(rows, table, columns)
    return _gathered(compressed(map(bytes, pieces), encoding))


def _messages(rows: Iterator[pa.Table], order: list[str]) -> Iterator[memoryview]:
    # The messages have no schema. pyodps expects the columns in the table's order, whatever order it asked for: it
    # takes the bytes of one column for those of another otherwise.
    for table in rows:
        in_order = table.select(sorted(table.column_names, key=order.index))
        for batch in in_order.to_batches():
            yield memoryview(batch.serialize())


def _gathered(pieces: Iterable[bytes]) -> Iterator[bytes]:
    out = bytearray()
    for piece in pieces:
        out += piece
        if len(out) >= _PIECE:
            yield bytes(out)
            out.clear()
    if out:
        yield bytes(out)


class _Content:
    """A file of pieces that are made when they are read.

    Attributes:
        read_bytes: how many were read.
    """

    closed = False

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = memoryview(b"")
        self.read_bytes = 0

    @property
    def is_at_end(self) -> bool:
        """True if there is nothing more to read."""
        while not self._rest:
            piece = next(self._pieces, None)
            if piece is None:
                return True
            self._rest = memoryview(piece)
        return False

    def read(self, size_bytes: int = -1) -> bytes:
        out = io.BytesIO()
        while (size_bytes < 0 or out.tell() < size_bytes) and not self.is_at_end:
            wanted = len(self._rest) if size_bytes < 0 else size_bytes - out.tell()
            out.write(self._rest[:wanted])
            self._rest = self._rest[wanted:]
        self.read_bytes += out.tell()
        return out.getvalue()

    def close(self) -> None:
        pass


# ---- Arrow


def _unframed(content: _Content) -> Iterator[bytes]:
    try:
        yield from unframed_chunks(content.read, least=_CHUNKS[0], most=_CHUNKS[1])
    except FrameError as error:
        raise _unreadable(error) from error


class _Batches:
    """A file that Arrow reads messages from; it knows how much is read next, so that nothing larger is begun."""

    closed = False

    def __init__(self, content: _Content, budget: MemoryBudget) -> None:
        self._content = content
        self._budget = budget
        self._held = ExitStack()
        self._is_held = False

    def read(self, size_bytes: int = -1) -> bytes:
        if size_bytes > LARGEST_BATCH_BYTES:
            text = f"A record batch has {size_bytes:,} bytes; {LARGEST_BATCH_BYTES:,} are allowed."
            raise TableError(413, "RequestTooLarge", f"{text} Send several smaller ones.")
        if size_bytes > _SMALL_READ:
            if self._is_held:
                raise FrameError("the description of a batch is too large")
            self._held.enter_context(self._budget.taken(_COPIES * size_bytes))
            self._is_held = True
        return self._content.read(size_bytes)

    def release(self) -> None:
        self._held.close()
        self._is_held = False

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
            # A batch that is not used any more must be gone before its memory is given back.
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
    if _is_compressed(memoryview(message.metadata)):
        raise FrameError("its buffers are compressed; compress the body instead")
    batch = pa.ipc.read_record_batch(message, schema)
    batch.validate(full=True)
    if batch.nbytes > message.body.size + _SMALL_READ:
        raise FrameError("its buffers overlap")
    return batch


def _is_compressed(metadata: memoryview) -> bool:
    """True if the buffers of a batch are compressed, by the fourth field of the RecordBatch in its flatbuffer.

    Arrow would decompress them to whatever size they declare.
    """

    def number(form: str, position: int) -> int:
        (found,) = struct.unpack_from(form, metadata, position)
        return int(found)

    def field(table: int, index: int) -> int:
        fields = table - number("<i", table)
        offset = 4 + 2 * index
        found = number("<H", fields + offset) if offset < number("<H", fields) else 0
        return table + found if found else 0

    header = field(number("<I", 0), 2)
    return field(header + number("<I", header), 3) != 0


# ---- records of the tunnel: pyodps reads and writes them


_TIME_WORDS = re.compile(r"\b(?:datetime|timestamp)\b(?!:)")  # no field of a struct
_WITHOUT_ZONE = {"datetime": "bigint", "timestamp": "timestamp_ntz"}
_EPOCH, _MILLISECOND = datetime.datetime(1970, 1, 1), datetime.timedelta(milliseconds=1)


def _odps_schema(table: Table, columns: list[str] | None = None) -> Any:
    """Returns the schema with which pyodps reads and writes records.

    pyodps (0.13.2) converts instants to the zone of its machine, or to what `odps.options` say in the whole
    process, which may be a client's too. Here they stay UTC: as milliseconds, or as a time without a zone, which
    have the same bytes.
    """
    from odps.models import TableSchema

    names = columns or list(table.columns)
    types = [_TIME_WORDS.sub(lambda word: _WITHOUT_ZONE[word[0]], table.columns[name]) for name in names]
    return TableSchema.from_lists(names, types)


def _for_records(type_: pa.DataType) -> Callable[[Any], Any] | None:
    """Returns what makes milliseconds of all DATETIME in the values of a column; None if it has none."""
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
    """The bytes of records; one record has an end, whatever it declares.

    Attributes:
        tail: the last bytes that were read.
        refused: why no more is read; the reader of pyodps takes it for a lost connection.
    """

    def __init__(self, content: _Content) -> None:
        self._content = content
        self.record_began = 0
        self.tail = b""
        self.refused: TableError | None = None

    @property
    def read_bytes(self) -> int:
        return self._content.read_bytes

    def read(self, size_bytes: int = -1) -> bytes:
        if self.read_bytes - self.record_began > _LONGEST_RECORD:
            text = f"A record has more than {_LONGEST_RECORD:,} bytes; send such rows as Arrow."
            self.refused = TableError(413, "RequestTooLarge", text)
            raise self.refused
        found = self._content.read(min(size_bytes, _LONGEST_RECORD) if size_bytes >= 0 else _SMALL_READ)
        self.tail = (self.tail + found[-_LONGEST_FOOTER:])[-_LONGEST_FOOTER:]
        return found

    def check_end(self, count: int) -> None:
        """Check that the content ends with the number of its records: a reader takes any end for the right one.

        Raises:
            ValueError: it does not.
        """
        if _varint(_COUNT_TAG << 3) + _varint(count << 1) not in self.tail:
            raise ValueError("the records are cut off")


def _records(content: _Content, table: Table, budget: MemoryBudget) -> Generator[pa.RecordBatch, None, None]:
    from odps.tunnel.io.reader import TunnelRecordReader

    source = _RecordContent(content)
    streams = [source]

    def stream(*args: object, **options: object) -> _RecordContent:
        # The reader opens its stream again after an error, would find the end of it, and lose rows in silence.
        if not streams:
            raise ValueError("the records are cut off, or have other columns")
        return streams.pop()

    reader = TunnelRecordReader(_odps_schema(table), stream)
    values: list[Any] = []
    began = count = 0
    with budget.taken(_RECORDS_BYTES):
        try:
            if content.is_at_end:
                return
            for record in reader:
                values.append(record.values)
                count += 1
                source.record_began = source.read_bytes
                if source.read_bytes - began > _SMALL_READ:
                    yield _batch_of_records(values, table.schema)
                    values, began = [], source.read_bytes
            source.check_end(count)
            yield _batch_of_records(values, table.schema)
        except TableError:
            raise
        except Exception as error:  # whatever a reader of hostile bytes raises
            raise (source.refused or _unreadable(error)) from error


def _varint(number: int) -> bytes:
    """A number as the tunnel writes it: seven bits a byte, the lowest first."""
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

    def taken() -> bytes:
        content = out.getvalue()
        out.seek(0)
        out.truncate()
        return content

    writer = BaseRecordWriter(schema, out)
    for some in rows:
        try:
            for values in zip(*map(_values, some.columns), strict=True):
                writer.write(Record(schema=schema, values=list(values)))
        except DatetimeOverflowError as error:
            text = f"The rows have a time that records cannot have ({error}); read them as Arrow."
            raise TableError(400, "InvalidArgument", text) from error
        yield taken()
    writer.close()
    yield taken()


def _values(column: pa.ChunkedArray) -> list[Any]:
    values: list[Any] = column.to_pylist(maps_as_pydicts="strict")
    convert = _for_records(column.type)
    return values if convert is None else [_with(convert, value) for value in values]


def _unreadable(error: Exception | str) -> TableError:
    return TableError(400, "InvalidArgument", f"The block cannot be read: {str(error)[:500]}.")
