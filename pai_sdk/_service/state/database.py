"""The service's database: SQLite in a file, or PostgreSQL by URL."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.orm import Session, sessionmaker

from pai_sdk._service.state.migrations import JOBS
from pai_sdk._service.state.sql_engine import readable_start_errors

_BUSY_TIMEOUT_S = 30


class Database:
    """Sessions for reading and for writing. Owns the engine.

    SQLite has one writer at a time. Writers wait for a lock of the process, then begin with the write lock of
    SQLite: a transaction that reads first and requests that lock later can be refused (SQLITE_BUSY_SNAPSHOT). The
    lock of the process is also used with PostgreSQL, so that rows are numbered in the order of their commits.
    """

    def __init__(
        self, engine: Engine, *, display_name: str, before_change: Callable[[Session], None] = lambda session: None
    ) -> None:
        self.engine = engine
        self._before_change = before_change
        reads: dict[str, Any] = {}
        if engine.dialect.name == "sqlite":
            _configure_sqlite(engine)
        else:
            reads = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
        self._write_lock = threading.Lock()
        self._read = sessionmaker(engine.execution_options(**reads), expire_on_commit=False)
        self._write = sessionmaker(engine.execution_options(writes=True), expire_on_commit=False)
        try:
            with readable_start_errors(display_name), self.write() as session:
                JOBS.prepare(session.connection())
        except BaseException:
            engine.dispose()
            raise

    @classmethod
    def in_file(cls, path: Path) -> Database:
        """Opens SQLite in a file, which is created if it does not exist."""
        # Requests hold secrets. SQLite gives its -wal and -shm files the mode of the database file.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        path.chmod(0o600)
        return cls(create_engine(f"sqlite:///{path}", pool_size=40, max_overflow=20), display_name=str(path))

    @contextmanager
    def read(self) -> Iterator[Session]:
        """Opens a session on one snapshot of the database; what it loaded stays readable after it."""
        with self._read() as session:
            yield session

    @contextmanager
    def write(self) -> Iterator[Session]:
        """Opens a session that is committed at the end, or rolled back by an error."""
        # The lock is acquired first: a thread that waits inside of SQLite polls with sleeps, and may time out.
        with self._write_lock, self._write() as session, session.begin():
            # Checks the lease, for example: an error rolls the transaction back.
            self._before_change(session)
            yield session

    def responds(self) -> bool:
        """Returns True if the database responds; raises its error otherwise."""
        with self.read() as session:
            session.execute(text("SELECT 1"))
        return True

    def close(self) -> None:
        """Closes all connections."""
        self.engine.dispose()


def _configure_sqlite(engine: Engine) -> None:
    @event.listens_for(engine, "connect")
    def configure(connection: Any, record: Any) -> None:  # both are untyped in SQLAlchemy
        # sqlite3 (Python 3.11) would begin transactions of its own, and never with BEGIN IMMEDIATE.
        connection.isolation_level = None
        cursor = connection.cursor()
        for pragma in (
            "journal_mode = WAL",
            # With WAL, NORMAL syncs at checkpoints only. After a power failure the last commits may be lost, but
            # the database is intact.
            "synchronous = NORMAL",
            f"busy_timeout = {_BUSY_TIMEOUT_S * 1000}",
            "foreign_keys = ON",
        ):
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    @event.listens_for(engine, "begin")
    def begin_transaction(connection: Connection) -> None:
        writes = connection.get_execution_options().get("writes")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
