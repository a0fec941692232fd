"""The SQLite tables of the object store, and access to them."""

from __future__ import annotations

import sqlite3
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
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
    NullPool,
    String,
    Table,
    Text,
    create_engine,
    delete,
    event,
    func,
    insert,
    inspect,
    select,
    text,
)

from pai_sdk._service.oss.error_codes import oss_error
from pai_sdk._service.oss.writer import Operation, Writer, connect
from pai_sdk._service.state.schema import Schema
from pai_sdk.errors import ServiceStartError

T = TypeVar("T")

_COPIED_ROWS = 1000
_SAMPLE_ROWS = 100
_metadata = MetaData()

buckets = Table(
    "oss_buckets",
    _metadata,
    Column("name", String(63), primary_key=True),
    Column("created_at", Double, nullable=False),
)

# Keys are bytes and not text, so that they sort as in OSS.
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

# The contents of small objects; several objects can refer to one in their column `blob`.
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
    Column("start", BigInteger, nullable=False, server_default="0"),
    Column("crc64", String(20)),
    Index("oss_parts_blob", "blob"),
    sqlite_with_rowid=False,
)


def _with_part_sizes(connection: Connection) -> None:
    """Migrates to version 2: adds the sizes of the parts of an object."""
    connection.execute(text("ALTER TABLE oss_objects ADD COLUMN part_sizes JSON"))


def _with_contents(connection: Connection) -> None:
    """Migrates to version 3: small objects are rows of `oss_contents`, a table `Schema` creates; files stay."""


def _with_part_starts(connection: Connection) -> None:
    """Migrates to version 4: several parts of an upload share one blob, each at its offset."""
    connection.execute(text("ALTER TABLE oss_parts ADD COLUMN start BIGINT NOT NULL DEFAULT 0"))


def _with_crc64_of_parts(connection: Connection) -> None:
    """Migrates to version 5: adds the CRC-64 of parts, which older builds would not update on appends."""
    connection.execute(text("ALTER TABLE oss_parts ADD COLUMN crc64 VARCHAR(20)"))


# The number of migrations is the version. It locks out older builds, also where `_with_contents` does nothing:
# they would treat an object without a file as lost.
_SCHEMA = Schema("objects", _metadata, [_with_part_sizes, _with_contents, _with_part_starts, _with_crc64_of_parts])


class IndexDatabase:
    """Reads without a transaction, from any thread; writes many operations in one transaction, by `writer`."""

    def __init__(self, root: Path, earlier: Engine | None = None) -> None:
        self._path = root / "objects.db"
        engine = create_engine("sqlite://", creator=lambda: connect(self._path), poolclass=NullPool)
        # IMMEDIATE locks before the first read, which another process could otherwise outdate before the
        # first write.
        event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"))
        # Builds before SQLite had the index in the PostgreSQL database of the service; it is migrated once.
        source = earlier if earlier is not None and inspect(earlier).has_table(objects.name) else None
        with engine.begin() as connection:
            _SCHEMA.prepare(connection)
            if source is not None:
                _migrate(source, connection, root)
        # After the commit: a process that is killed in between migrates again at its next start.
        if source is not None:
            with source.begin() as connection:
                _metadata.drop_all(connection)
        self.writer = Writer(self._path)
        self._idle: deque[sqlite3.Connection] = deque()

    def query(self, statement: str, parameters: Sequence[Any] | Mapping[str, Any]) -> list[Any]:
        """Returns the rows of a statement; fast enough for an event loop."""
        try:
            # A pool without a lock: pop and append of a deque are atomic. Each connection has one user at a
            # time.
            connection = self._idle.pop()
        except IndexError:
            connection = connect(self._path)
            connection.execute("PRAGMA query_only=ON").close()
        try:
            return connection.execute(statement, parameters).fetchall()
        finally:
            self._idle.append(connection)

    def require_bucket(self, name: str) -> None:
        """Raises `NoSuchBucket` unless the bucket exists."""
        if not self.query("SELECT 1 FROM oss_buckets WHERE name = ?", (name,)):
            raise oss_error("NoSuchBucket", bucket=name)

    def write(self, operation: Operation[T]) -> T:
        """Runs an operation; when this returns, it is on the disk. An exception undoes its changes."""
        return self.writer.run(operation)

    def close(self) -> None:
        """Stops the writer and closes the connections."""
        self.writer.close()
        while self._idle:
            self._idle.pop().close()


def _migrate(source: Engine, target: Connection, root: Path) -> None:
    """Replaces the index by the one in another database, which older builds cannot use afterwards."""
    with source.begin() as connection:
        _SCHEMA.retire(connection)
    with source.connect() as connection:
        blobs = list(connection.scalars(select(objects.c.blob).limit(_SAMPLE_ROWS)))
        if blobs and not any((root / "blobs" / blob[:2] / blob).exists() for blob in blobs):
            count = connection.scalar(select(func.count()).select_from(objects))
            raise ServiceStartError(
                f"the database has the index of {count} objects whose contents are not in {root}; start the "
                "service with the data folder that it was used with"
            )
        for table in reversed(_metadata.sorted_tables):
            target.execute(delete(table))
        for table in (buckets, objects, uploads, parts):
            for rows in connection.execution_options(yield_per=_COPIED_ROWS).execute(select(table)).partitions():
                target.execute(insert(table), [dict(row._mapping) for row in rows])
