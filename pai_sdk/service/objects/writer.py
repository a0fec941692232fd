"""The thread that writes to the index in SQLite: all operations that wait go into one transaction."""

from __future__ import annotations

import asyncio
import concurrent.futures
import sqlite3
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar, cast

from sqlalchemy import Connection, Engine

__all__ = ["Operation", "Writer", "sqlite_of"]

T = TypeVar("T")

Operation = Callable[[Connection], T]
"""What is done in a transaction, and nothing else: it is called again when its transaction was lost."""


class Writer:
    """Runs operations in the order in which they came, each wholly or not at all.

    The thread takes all that wait, runs each within a savepoint of one transaction, and commits. Only then are the
    callers answered. With SQLite's `synchronous=FULL`, the commit forces the transaction to the disk, so that the
    callers share the cost of that.

    Args:
        engine: of SQLite; its connections begin no transactions by themselves.

    Example:
        >>> writer = Writer(engine)  # doctest: +SKIP
        >>> writer.run(lambda connection: connection.execute(statement).rowcount)  # doctest: +SKIP
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._connection = engine.connect()
        self._queue: SimpleQueue[Sequence[_Task[Any]] | None] = SimpleQueue()
        self._gathered: dict[asyncio.AbstractEventLoop, list[_Task[Any]]] = {}
        self._closing = threading.Lock()
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="oss-writer", daemon=True)
        self._thread.start()

    def run(self, operation: Operation[T]) -> T:
        """Run an operation and wait until it is on the disk."""
        answer: concurrent.futures.Future[T] = concurrent.futures.Future()
        self._put([_Task(operation, answer)])
        return answer.result()

    def run_soon(self, operation: Operation[T]) -> asyncio.Future[T]:
        """Run an operation for an event loop; the future is done when it is on the disk."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        gathered = self._gathered.setdefault(loop, [])
        if not gathered:
            # Behind all that the loop can do now: the thread then gets one large batch, and the interpreter's lock
            # with it, which a busy loop would give it only every few milliseconds.
            loop.call_soon(self._hand_over, loop)
        gathered.append(_Task(operation, answer, loop))
        return answer

    def close(self) -> None:
        """Run what waits, and end; what comes later is refused."""
        with self._closing:
            self._is_closed = True
            self._queue.put(None)
        self._thread.join()
        self._connection.close()

    def _hand_over(self, loop: asyncio.AbstractEventLoop) -> None:
        self._put(self._gathered.pop(loop))

    def _put(self, tasks: Sequence[_Task[Any]]) -> None:
        with self._closing:
            if not self._is_closed:
                self._queue.put(tasks)
                return
        _answer(tasks, RuntimeError("the object store is closed"))

    def _run(self) -> None:
        while tasks := self._take():
            try:
                if self._connection.closed:
                    self._connection = self._engine.connect()
                self._write(tasks)
            except Exception as error:  # of the disk, while a transaction was undone, for one
                _answer(tasks, error)
                self._drop_connection()

    def _drop_connection(self) -> None:
        """Undo what is left of a transaction: with the connection, it goes."""
        with suppress(Exception):
            self._connection.invalidate()
        with suppress(Exception):
            self._connection.close()

    def _take(self) -> list[_Task[Any]]:
        """All operations that wait, at least one; none when the writer is closed and its queue is empty."""
        tasks: list[_Task[Any]] = []
        with suppress(Empty):
            given = self._queue.get()
            while given is not None:
                tasks += given
                given = self._queue.get_nowait()
            self._queue.put(None)  # closed: what came before is run first, and the next call ends
        return tasks

    def _write(self, tasks: Sequence[_Task[Any]]) -> None:
        database = sqlite_of(self._connection)
        try:
            database.execute("BEGIN IMMEDIATE")
        except Exception as error:  # another process has the database locked, for one
            _answer(tasks, error)
            return
        try:
            for task in tasks:
                self._attempt(task, database)
            self._commit(database)
        except Exception as error:
            if database.in_transaction:
                database.execute("ROLLBACK")
            # The commit failed, or SQLite undid the transaction, on a full disk for one. Each may succeed alone.
            if len(tasks) == 1:
                _answer(tasks, tasks[0].error or error)
            else:
                for task in tasks:
                    self._write([task])
            return
        _answer(tasks)

    def _attempt(self, task: _Task[Any], database: sqlite3.Connection) -> None:
        task.error = None
        database.execute("SAVEPOINT operation")
        try:
            task.result = task.operation(self._connection)
        except Exception as error:
            task.error = error
            if not database.in_transaction:
                raise
            database.execute("ROLLBACK TO operation")
        database.execute("RELEASE operation")

    def _commit(self, database: sqlite3.Connection) -> None:
        database.execute("COMMIT")


class _Task(Generic[T]):
    """An operation, its outcome, and the future that waits for it."""

    __slots__ = ("answer", "error", "is_answered", "loop", "operation", "result")

    def __init__(
        self,
        operation: Operation[T],
        answer: concurrent.futures.Future[T] | asyncio.Future[T],
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self.operation, self.answer, self.loop = operation, answer, loop
        self.result: T | None = None
        self.error: Exception | None = None
        self.is_answered = False

    def settle(self) -> None:
        """Set the future; for an event loop, this must be called in its thread."""
        if self.answer.done():
            return  # cancelled
        if self.error is not None:
            self.answer.set_exception(self.error)
        else:
            self.answer.set_result(self.result)  # type: ignore[arg-type]  # None only where T is


def sqlite_of(connection: Connection) -> sqlite3.Connection:
    """The driver's connection: SQLAlchemy's statements cost several times as much as SQLite itself."""
    return cast(sqlite3.Connection, connection.connection.driver_connection)


def _answer(tasks: Sequence[_Task[Any]], error: Exception | None = None) -> None:
    by_loop: dict[asyncio.AbstractEventLoop, list[_Task[Any]]] = {}
    for task in tasks:
        if task.is_answered:
            continue
        task.is_answered = True
        task.error = error or task.error
        if task.loop is None:
            task.settle()
        else:
            by_loop.setdefault(task.loop, []).append(task)
    for loop, waiting in by_loop.items():
        with suppress(RuntimeError):  # the loop was closed meanwhile: no request waits any more
            loop.call_soon_threadsafe(_settle, waiting)


def _settle(tasks: Iterable[_Task[Any]]) -> None:
    for task in tasks:
        task.settle()
