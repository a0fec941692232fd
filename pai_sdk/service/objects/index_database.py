"""The tables of the object store, and how they are read and written."""

from __future__ import annotations

import sqlite3
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from sqlalchemy import (
    JSON,
    BigInteger,
    Column,
    Connection,
    Double,
    Engine,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    create_engine,
    event,
    text,
)

from pai_sdk.service.objects.writer import Operation, Writer
from pai_sdk.service.state.schema import Schema
from pai_sdk.service.state.sql_engine import postgres_engine, postgres_url

__all__ = ["IndexDatabase", "buckets", "contents", "objects", "parts", "uploads"]

T = TypeVar("T")

_WITHOUT_BEGIN = "oss_without_begin"
_BUSY_S = 30.0
_metadata = MetaData()

buckets = Table(
    "oss_buckets",
    _metadata,
    Column("name", String(63), primary_key=True),
    Column("created_at", Double, nullable=False),
)

# Keys are bytes, not text: their order is then that of OSS in every database, whatever its collation.
objects = Table(
    "oss_objects",
    _metadata,
    Column("bucket", String(63), ForeignKey("oss_buckets.name"), primary_key=True),
    Column("key", LargeBinary, primary_key=True),
    Column("size_bytes", BigInteger, nullable=False),
    Column("etag", String(48), nullable=False),
    Column("content_type", Text, nullable=False),
    Column("modified_at", Double, nullable=False),
    Column("kind", String(16), nullable=False),
    Column("headers", JSON, nullable=False),
    Column("crc64", String(20)),
    Column("blob", String(32), nullable=False),
    Column("part_sizes", JSON),
    Index("oss_objects_blob", "blob"),
    sqlite_with_rowid=False,
)

# The contents of small objects, with SQLite only; any number of objects name one in their column `blob`.
contents = Table(
    "oss_contents",
    _metadata,
    Column("id", Integer, primary_key=True),
    Column("content", LargeBinary, nullable=False),
)

uploads = Table(
    "oss_uploads",
    _metadata,
    Column("id", String(32), primary_key=True),
    Column("bucket", String(63), ForeignKey("oss_buckets.name"), nullable=False),
    Column("key", LargeBinary, nullable=False),
    Column("content_type", Text, nullable=False),
    Column("headers", JSON, nullable=False),
    Column("started_at", Double, nullable=False),
    Index("oss_uploads_key", "bucket", "key", "id"),
)

parts = Table(
    "oss_parts",
    _metadata,
    Column("upload", String(32), ForeignKey("oss_uploads.id"), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("size_bytes", BigInteger, nullable=False),
    Column("etag", String(32), nullable=False),
    Column("modified_at", Double, nullable=False),
    Column("blob", String(32), nullable=False),
    Index("oss_parts_blob", "blob"),
    sqlite_with_rowid=False,
)


def _with_part_sizes(connection: Connection) -> None:
    """To version 2: the sizes of the parts that an object was made of."""
    connection.execute(text("ALTER TABLE oss_objects ADD COLUMN part_sizes JSON"))


def _with_contents(connection: Connection) -> None:
    """To version 3: small objects are rows of `oss_contents`; those that are files stay so.

    `Schema` makes the new table. The version keeps builds away that would take such an object for a lost one.
    """


_SCHEMA = Schema("objects", _metadata, [_with_part_sizes, _with_contents])


class IndexDatabase:
    """Reads without a transaction; writes one after the other, or in SQLite many in one transaction.

    Args:
        source: a database URL, or an engine that the caller made and closes.

    Attributes:
        writer: what writes to SQLite. None for an engine of the caller, and for PostgreSQL: there each operation
            has a transaction of its own, and the contents of small objects are no rows.
    """

    def __init__(self, source: str | Engine) -> None:
        self._owned = isinstance(source, str)
        self._engine = _engine(source) if isinstance(source, str) else source
        self._without_begin = self._engine.execution_options(**{_WITHOUT_BEGIN: True})
        self._writing = threading.Lock()
        try:
            with self._engine.begin() as connection:
                _SCHEMA.prepare(connection)
            has_writer = self._owned and self._engine.dialect.name == "sqlite"
            self.writer = Writer(self._without_begin) if has_writer else None
        except BaseException:
            if self._owned:
                self._engine.dispose()
            raise
        self._idle: deque[sqlite3.Connection] = deque()

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A connection for statements that stand each for itself."""
        with self._without_begin.connect() as connection:
            yield connection

    def query(self, statement: str, parameters: Sequence[Any]) -> list[Any]:
        """The rows of a statement, by the driver alone: quick enough for an event loop; SQLite only."""
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = self._open_reader()
        try:
            return connection.execute(statement, parameters).fetchall()
        finally:
            self._idle.append(connection)

    def write(self, operation: Operation[T]) -> T:
        """Run an operation in a transaction; when this returns, it is on the disk.

        No other operation of this process runs meanwhile. What it raises undoes what it did.
        """
        if self.writer is not None:
            return self.writer.run(operation)
        with self._writing, self._engine.begin() as connection:
            return operation(connection)

    def close(self) -> None:
        """End the writer, and close the connections that are ours."""
        if self.writer is not None:
            self.writer.close()
        while self._idle:
            self._idle.pop().close()
        if self._owned:
            self._engine.dispose()

    def _open_reader(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            str(self._engine.url.database), timeout=_BUSY_S, isolation_level=None, check_same_thread=False
        )
        connection.execute("PRAGMA query_only=ON").close()
        return connection


def _engine(url: str) -> Engine:
    if not url.startswith("sqlite"):
        return postgres_engine(postgres_url(url))
    engine = create_engine(
        url, pool_size=8, max_overflow=56, connect_args={"check_same_thread": False, "timeout": _BUSY_S}
    )
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_immediate)
    return engine


def _prepare_sqlite(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # the driver begins nothing by itself; _begin_immediate does
    # FULL in WAL mode: each commit is forced to the disk, so a power cut takes nothing that was acknowledged.
    for pragma in ("journal_mode=WAL", "synchronous=FULL"):
        connection.execute(f"PRAGMA {pragma}").close()


def _begin_immediate(connection: Connection) -> None:
    # Takes the write lock at once: a transaction that reads first and writes later could otherwise fail half-way.
    if not connection.get_execution_options().get(_WITHOUT_BEGIN):
        connection.exec_driver_sql("BEGIN IMMEDIATE")
