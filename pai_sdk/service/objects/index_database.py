"""The tables of the object store, and how they are read and written."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

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

from pai_sdk.service.state.schema import Schema
from pai_sdk.service.state.sql_engine import postgres_engine, postgres_url

__all__ = ["IndexDatabase", "buckets", "objects", "parts", "uploads"]

_READ_ONLY = "oss_read_only"
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


_SCHEMA = Schema("objects", _metadata, [_with_part_sizes])


class IndexDatabase:
    """Reads without a transaction, writes one after the other.

    Args:
        source: a database URL, or an engine that the caller made and closes.
    """

    def __init__(self, source: str | Engine) -> None:
        self._owned = isinstance(source, str)
        self._engine = _engine(source) if isinstance(source, str) else source
        self._readers = self._engine.execution_options(**{_READ_ONLY: True})
        self._writing = threading.Lock()
        with self.write() as connection:
            _SCHEMA.prepare(connection)

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A connection for statements that stand each for itself."""
        with self._readers.connect() as connection:
            yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """A transaction, committed at the end of the block; no other of this process runs meanwhile."""
        with self._writing, self._engine.begin() as connection:
            yield connection

    def close(self) -> None:
        """Close the connections, when they are ours."""
        if self._owned:
            self._engine.dispose()


def _engine(url: str) -> Engine:
    if not url.startswith("sqlite"):
        return postgres_engine(postgres_url(url))
    engine = create_engine(
        url, pool_size=8, max_overflow=56, connect_args={"check_same_thread": False, "timeout": 30}
    )
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_immediate)
    return engine


def _prepare_sqlite(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # the driver begins nothing by itself; _begin_immediate does
    # NORMAL in WAL mode: a killed process loses nothing; only a power cut may lose the last commits.
    for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "busy_timeout=30000"):
        connection.execute(f"PRAGMA {pragma}").close()


def _begin_immediate(connection: Connection) -> None:
    # Takes the write lock at once: a transaction that reads first and writes later could otherwise fail half-way.
    if not connection.get_execution_options().get(_READ_ONLY):
        connection.exec_driver_sql("BEGIN IMMEDIATE")
