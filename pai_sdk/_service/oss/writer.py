"""The thread that writes to the SQLite index: all waiting operations share one transaction."""

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

T = TypeVar("T")

_BUSY_TIMEOUT_S = 30.0

Operation = Callable[[sqlite3.Connection], T]
"""Changes rows and has no other effect: it is called again if its transaction was rolled back."""


def connect(path: Path) -> sqlite3.Connection:
    """Opens a connection without implicit transactions, which forces each commit to the disk."""
    connection = sqlite3.connect(path, timeout=_BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)
    try:
        # FULL: a power failure loses no acknowledged transaction. With NORMAL, WAL mode syncs only at checkpoints.
        for pragma in ("journal_mode=WAL", "synchronous=FULL"):
            connection.execute(f"PRAGMA {pragma}").close()
    except BaseException:
        connection.close()
        raise
    return connection


class Writer:
    """Runs operations in the order of their arrival, each completely or not at all."""

    # run, run_soon ──> queue ──> thread: BEGIN, each operation in a SAVEPOINT, COMMIT ──> futures
    #
    # The callers share the cost of the commit, which forces the transaction to the disk (SQLite's
    # `synchronous=FULL`); they are notified after it.
    #
    # Only the thread uses the connection. `_closing` is locked to put into the queue and to close it, never while
    # an operation runs. So nothing follows the None that ends the thread, and every future is set.

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
        """Runs an operation and waits until it is on the disk."""
        future: concurrent.futures.Future[T] = concurrent.futures.Future()
        self._put([_Task(operation, future)])
        return future.result()

    def run_soon(self, operation: Operation[T]) -> asyncio.Future[T]:
        """Runs an operation for an event loop; the future is done when it is on the disk."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        gathered = self._gathered.setdefault(loop, [])
        if not gathered:
            # Scheduled behind all ready callbacks of the loop: the thread then gets one large batch, and the GIL
            # with it, which a busy loop releases only every few milliseconds.
            loop.call_soon(self._put_gathered, loop)
        gathered.append(_Task(operation, future, loop))
        return future

    def close(self) -> None:
        """Runs the waiting operations and stops; later ones are refused."""
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
            except Exception as error:
                # For example a disk error during a rollback.
                _finish(tasks, error)
                self._drop_connection()

    def _drop_connection(self) -> None:
        """Closes the connection, which rolls back an open transaction."""
        connection, self._connection = self._connection, None
        with suppress(sqlite3.Error):
            if connection is not None:
                connection.close()

    def _next_batch(self) -> list[_Task[Any]]:
        """Returns all waiting operations, at least one; none if the writer is closed and its queue is empty."""
        tasks: list[_Task[Any]] = []
        with suppress(Empty):
            batch = self._queue.get()
            while batch is not None:
                tasks += batch
                batch = self._queue.get_nowait()
            # Put back: earlier operations run first, and the next call then ends the thread.
            self._queue.put(None)
        return tasks

    def _write(self, tasks: Sequence[_Task[Any]], database: sqlite3.Connection) -> None:
        try:
            database.execute("BEGIN IMMEDIATE")
        except Exception as error:
            # For example a lock of another process.
            _finish(tasks, error)
            return
        try:
            for task in tasks:
                self._attempt(task, database)
            self._commit(database)
        except Exception as error:
            if database.in_transaction:
                database.execute("ROLLBACK")
            # The commit failed, or SQLite rolled back, for example on a full disk: retry each operation alone, so
            # that one that is too large fails without the others.
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
        """Sets the future; for an event loop, this must be called in its thread."""
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
        # The loop was closed meanwhile, and with it all waiting requests.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(_settle, waiting)


def _settle(tasks: Iterable[_Task[Any]]) -> None:
    for task in tasks:
        task.settle()
