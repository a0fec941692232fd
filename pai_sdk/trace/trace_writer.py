"""Writes rows into a sink in the background, each exactly once.

    write()          full blocks          N threads                      last thread of a session
    ──copy──> BlockBuilder ──seal──> _waiting ──encode, write (retried)──> stored ──commit (retried)──> visible

A session is a number of blocks that become visible together. `flush` ends one and waits for its commit; the writer
also ends one when the sink says that it is too large or too old. The thread that stores the last block of an ended
session commits it.

Locks: `_changed` guards all state below and is never held during a call of the sink. Waits: a caller waits for
memory (`write`) or for commits (`flush`, `close`), a thread for blocks. All of them end when `_error` is set.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any

from pai_sdk.base.retry import RetryPolicy, single_attempt
from pai_sdk.errors import InvalidInputError, Problem, TraceError
from pai_sdk.trace.block import BlockBuilder
from pai_sdk.trace.columns import Columns
from pai_sdk.trace.parquet import default_sink, run_id_here
from pai_sdk.trace.types import ColumnTypes, trace_schema

if TYPE_CHECKING:
    import pyarrow as pa

    from pai_sdk.trace.sinks import Sink, SinkSession

__all__ = ["CLOSE_S", "TraceStats", "TraceWriter"]

logger = logging.getLogger(__name__)

CLOSE_S = 600.0
"""The longest time that `close` waits for the sink, in seconds."""

_MIB = 1 << 20
_JOIN_S = 5.0
_EXIT_S = 60.0  # how long the end of the process may wait for rows that were never closed
# After an exception, such as Ctrl-C: wait this long in all, and this long while the sink stores nothing.
_STOP_S, _STALLED_S = 30.0, 10.0
_SILENT_S = 5.0  # a longer wait is announced
_LOOK_S = 1.0  # on Windows, Ctrl-C does not end the wait for a lock
_SPARE_BYTES = _MIB  # memory for Python objects that is not counted; it matters for many small blocks only
_open_writers: weakref.WeakSet[TraceWriter] = weakref.WeakSet()


@dataclass(frozen=True)
class TraceStats:
    """The counts of a writer.

    Attributes:
        rows_fed: rows that `write` has taken.
        rows_committed: rows that are visible in the sink.
        blocks_stored: blocks that the sink has, committed or not.
        bytes_stored: their encoded sizes.
        waiting_bytes: memory of rows that the sink does not have yet.
        blocked_s: seconds that `write` has waited for memory: the sink is slower than the training.
        retries: attempts that were made again.
    """

    rows_fed: int = 0
    rows_committed: int = 0
    blocks_stored: int = 0
    bytes_stored: int = 0
    waiting_bytes: int = 0
    blocked_s: float = 0.0
    retries: int = 0


@dataclass
class _Session:
    """Blocks that are committed together. Guarded by the writer's lock, but for `opening`."""

    began: float = 0.0  # when the first block was handed to the threads
    sealed: int = 0  # blocks handed to the threads
    rows: int = 0
    stored: list[int] = field(default_factory=list)
    is_ended: bool = False
    opened: SinkSession | None = None
    opening: threading.Lock = field(default_factory=threading.Lock)

    @property
    def is_due(self) -> bool:
        """True if its commit can be made."""
        return self.is_ended and len(self.stored) == self.sealed


@dataclass(slots=True)
class _Block:
    session: _Session
    block_id: int
    builder: BlockBuilder


class TraceWriter:
    """Writes rows of training data into a table or a folder, from a training loop that must not wait.

    `write` copies the values and returns; threads send them. A mistake in the values is raised by `write`. A
    failure of the sink is raised by the next `write`, by `flush` and by `close`. After `close`, the sink has each
    row exactly once, or an error says how many rows it does not have. A process that dies leaves whole commits.

    Args:
        schema: column name to type: `{"loss": "double", "ids": "array<bigint>"}`, or an Arrow schema.
        sink: where the rows go; by default Parquet files in the run's own folder.
        missing: what becomes of a column that a step does not have: `"error"`, or `"null"`.
        block_bytes: memory of one block, the unit of sending.
        memory_bytes: limit for all rows that wait, with the Python objects that hold them. `write` blocks beyond
            it; see `stats().blocked_s`.
        workers: threads; each sends one block at a time.
        flush_interval_s: make rows visible at least so often, in seconds, in smaller blocks; only full blocks
            are sent without it.
        run_id: kept with each row; by default that of the job or run around it.
        retry: the policy for each call of the sink.

    Raises:
        InvalidInputError: the schema is wrong, or the sink cannot store it.

    Example:
        >>> import tempfile
        >>> from pai_sdk.trace import ParquetSink, TraceWriter, read_trace
        >>> folder = tempfile.mkdtemp()
        >>> with TraceWriter({"step": "bigint", "loss": "double"}, ParquetSink(folder), run_id="demo") as writer:
        ...     for step in range(3):
        ...         writer.write(step=step, loss=[0.5, 0.25])
        >>> read_trace(folder).query("SELECT count(*), sum(loss) FROM trace").fetchall()
        [(6, 2.25)]
    """

    def __init__(
        self,
        schema: ColumnTypes,
        sink: Sink | None = None,
        *,
        missing: str = "error",
        block_bytes: int = 64 * _MIB,
        memory_bytes: int = 256 * _MIB,
        workers: int = 2,
        flush_interval_s: float | None = None,
        run_id: str | None = None,
        retry: RetryPolicy | None = None,
    ) -> None:
        _check_sizes(block_bytes=block_bytes, memory_bytes=memory_bytes, workers=workers)
        self._settings: dict[str, Any] = {
            "missing": missing,
            "block_bytes": block_bytes,
            "memory_bytes": memory_bytes,
            "workers": workers,
            "flush_interval_s": flush_interval_s,
            "retry": retry,
        }
        self.schema = trace_schema(schema)
        self.run_id = run_id or run_id_here()
        self.sink = sink if sink is not None else default_sink(self.run_id)
        self._columns = Columns(self.schema, missing=missing)
        self._block_schema = self.sink.prepare(self.schema, self.run_id)
        _import_early()
        self._added = _added_columns(self.schema, self._block_schema, self.run_id)
        self._block_bytes = min(block_bytes, memory_bytes)
        self._memory_bytes = memory_bytes
        self._flush_interval_s = flush_interval_s
        self._flushed_at = time.monotonic()
        self._retry = retry or RetryPolicy(deadline_s=300.0)
        self._process_id = os.getpid()
        self._changed = threading.Condition()
        self._waiting: deque[_Block] = deque()
        self._session = _Session()
        self._unfinished: list[_Session] = []  # ended, not committed yet
        self._builder = BlockBuilder(self.schema, block_bytes=self._block_bytes)
        self._error: BaseException | None = None
        self._is_closed = False
        self._counts = dict.fromkeys(("rows_fed", "rows_committed", "blocks_stored", "bytes_stored", "retries"), 0)
        self._sealed_bytes = 0  # sealed, and not stored yet
        self._sealed_extra_bytes = 0  # of the Python objects around them
        self._blocked_s = 0.0
        self._threads = [
            threading.Thread(target=self._work, args=(number == 0,), name=f"trace-{number}", daemon=True)
            for number in range(workers)
        ]
        for thread in self._threads:
            thread.start()
        _open_writers.add(self)

    def __reduce__(self) -> tuple[Any, ...]:
        # In another process it is a new writer with the same settings: threads and rows stay where they are.
        return _rebuilt, (self.schema, self.sink, {**self._settings, "run_id": self.run_id})

    def __repr__(self) -> str:
        return f"<TraceWriter {self.sink!r} {self._counts['rows_fed']} rows>"

    def __enter__(self) -> TraceWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
            return
        try:
            self._close(_STOP_S, _STALLED_S)
        except TraceError as failed:  # the error of the block is the one to see
            logger.error("%s", failed)

    # ---- the caller's side

    def write(self, values: Mapping[str, Any] | None = None, /, **columns: Any) -> None:
        """Take the rows of one step. The values are copied, so the caller may change them at once.

        Args:
            values: column name to a tensor, array or list with one item a row; a number or text is repeated for
                all rows.
            columns: the same as keyword arguments.

        Raises:
            InvalidInputError: a column is unknown or missing, has a wrong type, or another length than the rest.
                Nothing of this step is taken.
            TraceError: an earlier block could not be stored, or the writer is closed.
        """
        prepared, rows = self._columns.prepare({**(values or {}), **columns})
        self.check_process()
        with self._changed:
            self.check_usable()
            if self._used_bytes(self._builder) >= self._memory_bytes:
                self._wait_for_memory()
            before = self._builder.rows
            try:
                self._builder.append(prepared, rows)
            finally:  # also when Ctrl-C comes right after it
                self._counts["rows_fed"] += self._builder.rows - before
            if self._builder.size_bytes >= self._block_bytes:
                self._seal()

    def flush(self, deadline_s: float = 600.0) -> int:
        """Make all rows so far visible, and wait for that.

        Returns:
            How many rows are visible in all.

        Raises:
            TraceError: some rows are not, for a failure or because the time is over.
        """
        self.check_process()
        with self._changed:
            self.check_usable()
            self._end_session()
            self._wait_for_commits(deadline_s)
            return self._counts["rows_committed"]

    def close(self, deadline_s: float = CLOSE_S) -> TraceStats:
        """Flush, and end the threads. Closing again does nothing.

        Ctrl-C ends the wait at once, and the log says what is not stored.

        Args:
            deadline_s: longest time to wait, in seconds.

        Raises:
            TraceError: some rows are not visible in the sink; the message and attributes say how many, and why.
        """
        return self._close(deadline_s)

    def _close(self, deadline_s: float, stalled_s: float | None = None) -> TraceStats:
        if self._process_id != os.getpid():  # the rows are the other process's
            return TraceStats()
        with self._changed:
            if self._is_closed:
                return self.stats()
            self._is_closed = True
            _open_writers.discard(self)
            try:
                self._end_session()
                self._wait_for_commits(deadline_s, stalled_s)
            except TraceError:
                raise
            except BaseException:  # Ctrl-C while it waits
                logger.error("%s", self._failure("the wait was interrupted"))
                raise
            finally:
                self._error = self._error or TraceError("the writer is closed")  # ends the threads, at once
                self._waiting.clear()
                self._changed.notify_all()
        # None of the threads has work left; one that hangs in a call is left behind.
        deadline = time.monotonic() + _JOIN_S
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return self.stats()

    @property
    def missing(self) -> str:
        """The treatment of a column that a step does not have: `"error"`, or `"null"`."""
        return str(self._settings["missing"])

    @property
    def is_closed(self) -> bool:
        """True if `close` was called."""
        return self._is_closed

    @property
    def is_usable(self) -> bool:
        """True if it takes rows: it is open, no block has failed, and this is its process."""
        return not self._is_closed and self._error is None and self._process_id == os.getpid()

    def unsent(self) -> dict[str, list[Any]]:
        """The rows that are not enough for a block yet: column name to values."""
        import pyarrow as pa

        with self._changed:  # the values are copied within it: the buffers go on growing
            found: dict[str, list[Any]] = pa.Table.from_batches(self._builder.batches()).to_pydict()
            return found

    def stats(self) -> TraceStats:
        """The counts so far."""
        with self._changed:
            waiting = self._sealed_bytes + self._builder.size_bytes
            return TraceStats(**self._counts, waiting_bytes=waiting, blocked_s=self._blocked_s)

    def check_process(self) -> None:
        """Raise if this is a forked process.

        Raises:
            TraceError: the writer belongs to another process.
        """
        # Before the lock: in a forked child it stays locked if a thread of the parent held it during the fork.
        if self._process_id != os.getpid():
            raise TraceError("this writer belongs to another process; make one in each process")

    def check_usable(self) -> None:
        """Raise if the writer takes no rows.

        Raises:
            TraceError: it is closed, a block could not be stored, or the sink refused the columns or the key.
        """
        if self._is_closed:
            raise TraceError("the writer is closed")
        if self._error is not None:
            raise self._failure()

    def _failure(self, reason: str = "the time is over") -> TraceError:
        """The error for the caller: a new one each time, so that no traceback grows."""
        fed, committed = self._counts["rows_fed"], self._counts["rows_committed"]
        text = str(self._error or reason)
        if fed > committed:
            sessions = [*self._unfinished, self._session]
            stored = sum(len(session.stored) for session in sessions)
            waiting = sum(session.sealed for session in sessions) - stored + (self._builder.rows > 0)
            blocks = f"blocks: {waiting} not sent, {stored} sent and not committed"
            text = f"{self.sink!r}: {fed - committed} of {fed} rows are not stored: {text} ({blocks})"
        failure = TraceError(text, rows_fed=fed, rows_committed=committed)
        failure.__cause__ = self._error
        return failure

    def _used_bytes(self, builder: BlockBuilder | None = None) -> int:
        """Memory of the sealed blocks, and of a builder."""
        size_bytes, extra_bytes = self._sealed_bytes, self._sealed_extra_bytes
        if builder is not None:
            size_bytes, extra_bytes = size_bytes + builder.size_bytes, extra_bytes + builder.extra_bytes
        return size_bytes + max(0, extra_bytes - _SPARE_BYTES)

    def _wait_for_memory(self) -> None:
        began = time.monotonic()
        if self._builder.rows:
            self._seal()
        while self._used_bytes() >= self._memory_bytes and self._error is None:
            self._changed.wait(_LOOK_S)
        self._blocked_s += time.monotonic() - began
        self.check_usable()

    def _wait_for_commits(self, deadline_s: float, stalled_s: float | None = None) -> None:
        """Wait until all sessions are committed.

        Args:
            deadline_s: longest time, in seconds.
            stalled_s: longest time in which the sink stores nothing.
        """
        stalled_s = deadline_s if stalled_s is None else stalled_s
        now = time.monotonic()
        deadline, stalled_at, stored = now + deadline_s, now + stalled_s, self._stored()
        reason, told_at = "the time is over", now + _SILENT_S
        while self._unfinished and self._error is None:
            now = time.monotonic()
            if self._stored() != stored:
                stored, stalled_at = self._stored(), now + stalled_s
            if now >= min(deadline, stalled_at):
                if now < deadline:
                    reason = f"the sink has stored nothing for {stalled_s:g} s"
                break
            if now >= told_at:
                told_at = deadline
                left = self._counts["rows_fed"] - self._counts["rows_committed"]
                text = "%r: waiting for %d rows to be stored, for up to %.0f s; Ctrl-C ends the wait"
                logger.warning(text, self.sink, left, deadline - now)
            self._changed.wait(min(deadline - now, stalled_at - now, told_at - now, _LOOK_S))
        if self._error is not None or self._counts["rows_committed"] != self._counts["rows_fed"]:
            raise self._failure(reason)

    def _stored(self) -> tuple[int, int]:
        return self._counts["blocks_stored"], self._counts["rows_committed"]

    def _seal(self) -> None:
        """Hand the rows so far to the threads."""
        builder, session = self._builder, self._session
        builder.trim()
        self._builder = BlockBuilder(self.schema, block_bytes=self._block_bytes)
        self._waiting.append(_Block(session, session.sealed, builder))
        session.began = session.began if session.sealed else time.monotonic()
        session.sealed += 1
        session.rows += builder.rows
        self._sealed_bytes += builder.size_bytes
        self._sealed_extra_bytes += builder.extra_bytes
        if session.sealed >= self.sink.max_blocks or self._left_s(session) <= 0:
            self._begin_session()
        self._changed.notify_all()

    def _end_session(self) -> None:
        if self._builder.rows:
            self._seal()
        if self._session.sealed:
            self._begin_session()
        self._changed.notify_all()

    def _left_s(self, session: _Session) -> float:
        return session.began + self.sink.max_age_s - time.monotonic()

    def _begin_session(self) -> None:
        self._session.is_ended = True
        self._unfinished.append(self._session)
        self._session = _Session()

    # ---- the threads' side

    def _work(self, is_first: bool) -> None:
        if is_first:
            self._check_sink()
        while True:
            with self._changed:
                while not self._waiting and self._error is None and not self._due():
                    pause_s = self._end_session_when_due()
                    if not self._waiting and not self._due():
                        self._changed.wait(pause_s)
                if self._error is not None:
                    return
                due = self._due()
                if due is not None:
                    due.is_ended = False  # this thread has taken it
                block = self._waiting.popleft() if due is None else None
            try:
                if due is not None:
                    self._commit(due)
                elif block is not None:
                    self._store(block)
            except BaseException as error:
                with self._changed:
                    self._error = self._error or error
                    self._changed.notify_all()
                return

    def _check_sink(self) -> None:
        """Contact the sink, so that the next call raises what is wrong with the key or the columns."""
        check = getattr(self.sink, "check", None)
        if check is None:
            return
        try:
            self._retried(check)
        except BaseException as error:
            if getattr(error, "retryable", False):
                return  # the first block tries again
            with self._changed:
                self._error = self._error or error
                self._changed.notify_all()

    def _end_session_when_due(self) -> float | None:
        """End a session whose time has come; seconds until the next one's, None for no such time."""
        pauses_s = []
        if self._flush_interval_s is not None:
            now = time.monotonic()
            if now >= self._flushed_at + self._flush_interval_s:
                self._flushed_at = now
                self._end_session()
            pauses_s.append(self._flushed_at + self._flush_interval_s - now)
        if self._session.sealed:  # the sink may forget a session that is too old, also while no rows come
            if self._left_s(self._session) <= 0:
                self._begin_session()
            else:
                pauses_s.append(self._left_s(self._session))
        return min(*pauses_s, threading.TIMEOUT_MAX) if pauses_s else None

    def _due(self) -> _Session | None:
        return next((session for session in self._unfinished if session.is_due), None)

    def _store(self, block: _Block) -> None:
        session = self._opened(block.session)
        payload = session.encode(map(self._with_added, block.builder.drain()))
        self._retried(lambda: session.write(block.block_id, payload))
        with self._changed:
            block.session.stored.append(block.block_id)
            self._sealed_bytes -= block.builder.size_bytes
            self._sealed_extra_bytes -= block.builder.extra_bytes
            self._counts["blocks_stored"] += 1
            self._counts["bytes_stored"] += len(payload)
            self._changed.notify_all()

    def _with_added(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        import pyarrow as pa

        for name, value in self._added.items():
            batch = batch.append_column(name, pa.repeat(value, batch.num_rows))
        return batch

    def _opened(self, session: _Session) -> SinkSession:
        with session.opening:  # one thread opens it, the others wait
            if session.opened is None:
                session.opened = self._retried(self.sink.open)
            return session.opened

    def _commit(self, session: _Session) -> None:
        opened, block_ids = self._opened(session), sorted(session.stored)
        self._retried(lambda: opened.commit(block_ids))
        with self._changed:
            self._unfinished.remove(session)
            self._counts["rows_committed"] += session.rows
            self._changed.notify_all()

    def _retried(self, call: Callable[[], Any]) -> Any:
        def is_transient(error: BaseException) -> bool:
            return bool(getattr(error, "retryable", False)) and self._error is None

        def once() -> Any:
            with single_attempt():  # a store must not retry within this retry
                return call()

        return self._retry.call(once, is_transient=is_transient, on_retry=self._count_retry)

    def _count_retry(self, attempt: int, error: BaseException, pause_s: float) -> None:
        with self._changed:
            self._counts["retries"] += 1


def _rebuilt(schema: Any, sink: Any, settings: dict[str, Any]) -> TraceWriter:
    return TraceWriter(schema, sink, **settings)


def _import_early() -> None:
    """Import what threads and retries need: at the end of the process, when rows may still wait, it is too late.

    Python refuses to import `concurrent.futures.thread` then, which pandas and asyncio need.
    """
    import concurrent.futures.thread  # noqa: F401

    import tenacity  # noqa: F401


def _added_columns(schema: pa.Schema, block_schema: pa.Schema, run_id: str) -> dict[str, pa.Scalar[Any]]:
    """The value of each column that the sink wants in each row in addition: the run's id."""
    import pyarrow as pa

    added = [name for name in block_schema.names if name not in schema.names]
    return {name: pa.scalar(run_id, pa.string()) for name in added}


def _check_sizes(**sizes: int) -> None:
    problems = [
        Problem(name, f"{size!r} is not a size", "a whole number, 1 or more")
        for name, size in sizes.items()
        if not isinstance(size, int) or isinstance(size, bool) or size < 1
    ]
    if problems:
        raise InvalidInputError(problems)


@atexit.register
def _close_open_writers() -> None:
    """Rows of a writer that was never closed are stored at the end of the process."""
    # Python keeps the exception that has ended the program here; then the user waits for it to end, too.
    is_failed = hasattr(sys, "last_value")
    deadline_s, stalled_s = (_STOP_S, _STALLED_S) if is_failed else (_EXIT_S, _EXIT_S)
    for writer in list(_open_writers):
        try:
            writer._close(deadline_s, stalled_s)
        except KeyboardInterrupt:  # it was logged; the other writers say what they have
            deadline_s = 0.0
        except Exception as error:
            logger.error("a trace writer was not closed, and %s", error)
