"""The thread that writes to the index in SQLite: all operations that wait go into one transaction."""

from __future__ import annotations

import asyncio
import concurrent.futures
import sqlite3
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar

__all__ = ["Operation", "Writer", "connect"]

T = TypeVar("T")

_BUSY_TIMEOUT_S = 30.0

Operation = Callable[[sqlite3.Connection], T]
"""The work of a transaction, and nothing else: it is called again when its transaction was lost."""


def connect(path: Path) -> sqlite3.Connection:
    """A connection that begins no transactions by itself, and forces each commit to the disk."""
    connection = sqlite3.connect(path, timeout=_BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)
    try:
        # FULL in WAL mode: a power cut takes nothing that was acknowledged.
        for pragma in ("journal_mode=WAL", "synchronous=FULL"):
            connection.execute(f"PRAGMA {pragma}").close()
    except BaseException:
        connection.close()
        raise
    return connection


class Writer:
    """Runs operations in the order in which they came, each wholly or not at all.

    The thread takes all that wait, runs each within a savepoint of one transaction, and commits. Only then are the
    callers told. With SQLite's `synchronous=FULL`, the commit forces the transaction to the disk, so that the
    callers share the cost of that.

    Args:
        path: the database.

    Example:
        >>> writer = Writer(Path("objects.db"))  # doctest: +SKIP
        >>> writer.run(lambda connection: connection.execute(statement).rowcount)  # doctest: +SKIP
    """

    # run, run_soon ──> queue ──> thread: BEGIN, each operation in a SAVEPOINT, COMMIT ──> futures
    #
    # The thread alone uses the connection. `_closing` is held to put into the queue and to close it, never while
    # an operation runs: so nothing comes behind the None that ends the thread, and every future is set.

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection: sqlite3.Connection | None = connect(path)
        self._queue: SimpleQueue[Sequence[_Task[Any]] | None] = SimpleQueue()
        self._gathered: dict[asyncio.AbstractEventLoop, list[_Task[Any]]] = {}
        self._closing = threading.Lock()
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="oss-writer", daemon=True)
        self._thread.start()

    def run(self, operation: Operation[T]) -> T:
        """Run an operation and wait until it is on the disk."""
        future: concurrent.futures.Future[T] = concurrent.futures.Future()
        self._put([_Task(operation, future)])
        return future.result()

    def run_soon(self, operation: Operation[T]) -> asyncio.Future[T]:
        """Run an operation for an event loop; the future is done when it is on the disk."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        gathered = self._gathered.setdefault(loop, [])
        if not gathered:
            # Behind all that the loop can do now: the thread then gets one large batch, and the interpreter's lock
            # with it, which a busy loop would give it only every few milliseconds.
            loop.call_soon(self._put_gathered, loop)
        gathered.append(_Task(operation, future, loop))
        return future

    def close(self) -> None:
        """Run what waits, and end; what comes later is refused."""
        with self._closing:
            self._is_closed = True
            self._queue.put(None)
        self._thread.join()
        self._drop_connection()

    def _put_gathered(self, loop: asyncio.AbstractEventLoop) -> None:
        self._put(self._gathered.pop(loop))

    def _put(self, tasks: Sequence[_Task[Any]]) -> None:
        with self._closing:
            if not self._is_closed:
                self._queue.put(tasks)
                return
        _finish(tasks, RuntimeError("the object store is closed"))

    def _run(self) -> None:
        while tasks := self._next_batch():
            try:
                if self._connection is None:
                    self._connection = connect(self._path)
                self._write(tasks, self._connection)
            except Exception as error:  # of the disk, while a transaction was undone, for one
                _finish(tasks, error)
                self._drop_connection()

    def _drop_connection(self) -> None:
        """Close the connection, which undoes what is left of a transaction."""
        connection, self._connection = self._connection, None
        with suppress(sqlite3.Error):
            if connection is not None:
                connection.close()

    def _next_batch(self) -> list[_Task[Any]]:
        """All operations that wait, at least one; none when the writer is closed and its queue is empty."""
        tasks: list[_Task[Any]] = []
        with suppress(Empty):
            batch = self._queue.get()
            while batch is not None:
                tasks += batch
                batch = self._queue.get_nowait()
            self._queue.put(None)  # closed: what came before is run first, and the next call ends
        return tasks

    def _write(self, tasks: Sequence[_Task[Any]], database: sqlite3.Connection) -> None:
        try:
            database.execute("BEGIN IMMEDIATE")
        except Exception as error:  # another process has the database locked, for one
            _finish(tasks, error)
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
                _finish(tasks, tasks[0].error or error)
            else:
                for task in tasks:
                    self._write([task], database)
            return
        _finish(tasks)

    def _attempt(self, task: _Task[Any], database: sqlite3.Connection) -> None:
        task.error = None
        database.execute("SAVEPOINT operation")
        try:
            task.result = task.operation(database)
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

    __slots__ = ("error", "future", "is_finished", "loop", "operation", "result")

    def __init__(
        self,
        operation: Operation[T],
        future: concurrent.futures.Future[T] | asyncio.Future[T],
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self.operation, self.future, self.loop = operation, future, loop
        self.result: T | None = None
        self.error: Exception | None = None
        self.is_finished = False

    def settle(self) -> None:
        """Set the future; for an event loop, this must be called in its thread."""
        if self.future.done():
            return  # cancelled
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)  # type: ignore[arg-type]  # None only where T is


def _finish(tasks: Sequence[_Task[Any]], error: Exception | None = None) -> None:
    by_loop: dict[asyncio.AbstractEventLoop, list[_Task[Any]]] = {}
    for task in tasks:
        if task.is_finished:
            continue
        task.is_finished = True
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
