"""The rows in requests and responses: Arrow or records, compressed or not."""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pai_sdk.service.tables.table_errors import TableFault
from pai_sdk.trace.frames import FrameError, batches_of, framed, unframed

if TYPE_CHECKING:
    import pyarrow as pa

    from pai_sdk.service.tables.table_store import Table

__all__ = ["encoded_rows", "read_block"]

_MOST_BYTES = 4 << 30


def read_block(body: bytes, table: Table, *, encoding: str, is_arrow: bool) -> pa.Table:
    """The rows of an uploaded block.

    Args:
        body: as it was sent.
        table: whose columns they are.
        encoding: the compression: `deflate`, `zstd`, or none.
        is_arrow: whether the rows are Arrow; they are records of the tunnel otherwise.

    Raises:
        TableFault: they cannot be read, or do not have their checksum.
    """
    content = _decompressed(body, encoding)
    if not is_arrow:
        return _records(content, table)
    try:
        return batches_of(unframed(content), table.schema)
    except FrameError as error:
        raise TableFault(400, "InvalidArgument", f"The block cannot be read: {error}.") from error


def encoded_rows(
    rows: Iterator[pa.Table], table: Table, columns: list[str] | None, *, accepts: str, is_arrow: bool
) -> tuple[bytes, str]:
    """The body of a response with rows, and its compression.

    Args:
        rows: tables of the chosen columns.
        table: whose columns they are.
        columns: the chosen ones; None for all.
        accepts: the compressions that the client takes.
        is_arrow: whether it wants Arrow, or records of the tunnel.
    """
    content = _framed_rows(rows, list(table.columns)) if is_arrow else _as_records(rows, table, columns)
    if "zstd" in accepts:
        import pyarrow as pa

        return pa.compress(content, codec="zstd", asbytes=True), "zstd"
    if "deflate" in accepts:
        return zlib.compress(content, 1), "deflate"
    return content, ""


def _framed_rows(rows: Iterator[pa.Table], order: list[str]) -> bytes:
    # The messages have no schema. pyodps expects the columns in the table's order, whatever order it asked for: it
    # takes the bytes of one column for those of another otherwise.
    in_order = (table.select(sorted(table.column_names, key=order.index)) for table in rows)
    return framed(b"".join(batch.serialize().to_pybytes() for table in in_order for batch in table.to_batches()))


def _decompressed(body: bytes, encoding: str) -> bytes:
    try:
        if not encoding:
            return body
        if encoding == "deflate":
            inflater = zlib.decompressobj()
            content = inflater.decompress(body, _MOST_BYTES)
            if inflater.unconsumed_tail:
                raise _too_large()
            if not inflater.eof:
                raise zlib.error("it is cut off")
            return content
        if encoding == "zstd":
            import pyarrow as pa

            with pa.CompressedInputStream(pa.BufferReader(body), "zstd") as stream:
                content = bytes(stream.read(_MOST_BYTES))
                if stream.read(1):
                    raise _too_large()
                return content
    except (zlib.error, OSError, ValueError) as error:
        raise TableFault(400, "InvalidArgument", f"The body is not {encoding}: {error}.") from error
    raise TableFault(400, "InvalidArgument", f"The encoding {encoding!r} is not offered; use deflate or zstd.")


def _too_large() -> TableFault:
    return TableFault(413, "RequestTooLarge", f"The block has more than {_MOST_BYTES} bytes when decompressed.")


# ---- records of the tunnel: pyodps reads and writes them


def _odps_schema(table: Table, columns: list[str] | None = None) -> Any:
    from odps.models import TableSchema

    names = columns or list(table.columns)
    return TableSchema.from_lists(names, [table.columns[name] for name in names])


def _records(content: bytes, table: Table) -> pa.Table:
    import pyarrow as pa
    from odps.tunnel.io.reader import TunnelRecordReader

    if not content:
        return table.schema.empty_table()
    schema = _odps_schema(table)
    try:
        reader = TunnelRecordReader(schema, lambda *args, **options: io.BytesIO(content))
        values = [record.values for record in reader]
    except Exception as error:  # whatever a reader of hostile bytes raises
        raise TableFault(400, "InvalidArgument", f"The block cannot be read: {error}.") from error
    columns = list(zip(*values, strict=True)) if values else [()] * len(table.columns)
    arrays = [pa.array(list(column), type=field.type) for column, field in zip(columns, table.schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=table.schema)


def _as_records(rows: Iterator[pa.Table], table: Table, columns: list[str] | None) -> bytes:
    from odps.models import Record
    from odps.tunnel.io.writer import BaseRecordWriter

    schema = _odps_schema(table, columns)
    out = io.BytesIO()
    writer = BaseRecordWriter(schema, out)
    for some in rows:
        for values in zip(*(column.to_pylist(maps_as_pydicts="strict") for column in some.columns), strict=True):
            writer.write(Record(schema=schema, values=list(values)))
    writer.close()
    return out.getvalue()
