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

from pai_sdk.service.state.migrations import JOBS
from pai_sdk.service.state.sql_engine import told_in_one_sentence

__all__ = ["Database"]

_BUSY_TIMEOUT_S = 30


class Database:
    """Sessions for reading and for writing.

    SQLite has one writer at a time. Writers take turns here, in the process, and begin with the write lock: a
    transaction that reads first and asks for that lock later can be refused. With PostgreSQL they take turns, too:
    the order of what they write is then the order of its numbers.

    Args:
        engine: its connections; closed with the database.
        shown_as: the database, as it may be shown.
        before_change: called within each transaction that writes, first; an error of it undoes the transaction.

    Raises:
        ServiceStartError: it cannot be reached or read, or is of a newer build.

    Example:
        >>> database = Database.in_file(Path("/srv/pai/service.db"))  # doctest: +SKIP
        >>> with database.write() as session:  # doctest: +SKIP
        ...     session.add(job)
    """

    def __init__(
        self, engine: Engine, *, shown_as: str, before_change: Callable[[Session], None] = lambda session: None
    ) -> None:
        self.engine = engine
        self._before_change = before_change
        reads: dict[str, Any] = {}
        if engine.dialect.name == "sqlite":
            _use_sqlite_well(engine)
        else:
            reads = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
        self._turn = threading.Lock()
        self._read = sessionmaker(engine.execution_options(**reads), expire_on_commit=False)
        self._write = sessionmaker(engine.execution_options(writes=True), expire_on_commit=False)
        try:
            with told_in_one_sentence(shown_as), self.write() as session:
                JOBS.prepare(session.connection())
        except BaseException:
            engine.dispose()
            raise

    @classmethod
    def in_file(cls, path: Path) -> Database:
        """SQLite in that file, which is created when it is not there."""
        # Requests are in it, and in them what is secret; SQLite's other files take the mode of this one.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        path.chmod(0o600)
        return cls(create_engine(f"sqlite:///{path}", pool_size=40, max_overflow=20), shown_as=str(path))

    @contextmanager
    def read(self) -> Iterator[Session]:
        """A session that sees one state of the database. What it loaded stays readable after it."""
        with self._read() as session:
            yield session

    @contextmanager
    def write(self) -> Iterator[Session]:
        """A session whose changes are committed at the end, or all of them undone by an error."""
        with self._turn, self._write() as session, session.begin():
            self._before_change(session)
            yield session

    def responds(self) -> bool:
        """True if it responds; otherwise the error is raised."""
        with self.read() as session:
            session.execute(text("SELECT 1"))
        return True

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()


def _use_sqlite_well(engine: Engine) -> None:
    @event.listens_for(engine, "connect")
    def connected(connection: Any, record: Any) -> None:  # both are untyped in SQLAlchemy
        connection.isolation_level = None  # or the driver begins transactions of its own
        cursor = connection.cursor()
        for pragma in (
            "journal_mode = WAL",
            "synchronous = NORMAL",
            f"busy_timeout = {_BUSY_TIMEOUT_S * 1000}",
            "foreign_keys = ON",
        ):
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    @event.listens_for(engine, "begin")
    def begun(connection: Connection) -> None:
        writes = connection.get_execution_options().get("writes")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
