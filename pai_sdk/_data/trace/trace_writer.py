"""Writes rows into a sink in the background, each exactly once.

    write()          full blocks          N threads                      last thread of a session
    ──copy──> BlockBuilder ──seal──> _waiting ──encode, write (retried)──> stored ──commit (retried)──> visible

A session is a number of blocks that become visible together. `flush` ends one and waits for its commit; the writer
also ends one when it reaches the limits of the sink. The thread that stores the last block of an ended session
commits it.

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

from pai_sdk._core.retry import RetryPolicy, single_attempt
from pai_sdk._data.trace.block import BlockBuilder
from pai_sdk._data.trace.columns import Columns
from pai_sdk._data.trace.parquet import current_run_id, default_sink
from pai_sdk._data.trace.types import ColumnTypes, trace_schema
from pai_sdk.errors import InvalidInputError, Problem, TraceError

if TYPE_CHECKING:
    import pyarrow as pa

    from pai_sdk._data.trace.sinks import Sink, SinkSession

__all__ = ["CLOSE_S", "TraceStats", "TraceWriter"]

logger = logging.getLogger(__name__)

CLOSE_S = 600.0
"""The maximum time that `close` waits for the sink, in seconds."""

_MIB = 1 << 20
_JOIN_S = 5.0
_EXIT_S = 60.0  # maximum wait at the exit of the process, for writers that were never closed
# After an exception, such as Ctrl-C: maximum wait in total, and while the sink stores nothing.
_STOP_S, _STALLED_S = 30.0, 10.0
_SILENT_S = 5.0  # a longer wait is announced
_POLL_INTERVAL_S = 1.0  # maximum wait for a lock, since Ctrl-C does not interrupt it on Windows
_SPARE_BYTES = _MIB  # uncounted memory of Python objects, which matters for many small blocks only
_open_writers: weakref.WeakSet[TraceWriter] = weakref.WeakSet()


@dataclass(frozen=True)
class TraceStats:
    """The counts of a writer.

    Attributes:
        rows_fed: rows that `write` has accepted.
        rows_committed: rows that are visible in the sink.
        blocks_stored: blocks that the sink has, committed or not.
        bytes_stored: the encoded size of these blocks.
        waiting_bytes: memory of rows that the sink does not have yet.
        blocked_s: seconds that `write` has waited for memory: the sink is slower than the training.
        retries: the number of retried calls of the sink.
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
    """Blocks that are committed together. Guarded by the writer's lock, except `opening` and `opened`.

    `opening` guards `opened`, and is held during a call of the sink: never acquire it inside the writer's lock.
    """

    started_at: float = 0.0  # when the first block was handed to the threads
    sealed: int = 0  # blocks handed to the threads
    rows: int = 0
    stored: list[int] = field(default_factory=list)
    is_ended: bool = False
    opened: SinkSession | None = None
    opening: threading.Lock = field(default_factory=threading.Lock)

    @property
    def is_due(self) -> bool:
        """Returns True if the session can be committed."""
        return self.is_ended and len(self.stored) == self.sealed


@dataclass(slots=True)
class _Block:
    session: _Session
    block_id: int
    builder: BlockBuilder


class TraceWriter:
    """Writes rows of training data into a table or a folder, from a training loop that must not wait.

    `write` copies the values and returns; threads send them. `write` raises errors of the values. The next
    `write`, `flush` and `close` raise errors of the sink. After `close`, the sink has each row exactly once, or an
    error says how many rows it does not have. A process that dies leaves complete commits.

    Args:
        schema: column name to type: `{"loss": "double", "ids": "array<bigint>"}`, or an Arrow schema.
        sink: the target of the rows; by default Parquet files in the run's own folder.
        missing: the treatment of a column that a step does not have: `"error"`, or `"null"`.
        block_bytes: memory of one block, the unit of sending.
        memory_bytes: limit for all rows that wait, with the Python objects that hold them. `write` blocks beyond
            it; see `stats().blocked_s`.
        workers: the number of threads; each sends one block at a time.
        flush_interval_s: the maximum time until rows are visible, in seconds, which sends smaller blocks; only
            full blocks are sent without it.
        run_id: stored with each row; by default that of the current job or run.
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
        self.run_id = run_id or current_run_id()
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
        self._sealed_extra_bytes = 0  # of the Python objects that hold these blocks
        self._blocked_s = 0.0
        self._threads = [
            threading.Thread(target=self._work, args=(number == 0,), name=f"trace-{number}", daemon=True)
            for number in range(workers)
        ]
        for thread in self._threads:
            thread.start()
        _open_writers.add(self)

    def __reduce__(self) -> tuple[Any, ...]:
        # A pickled writer becomes a new writer with equal settings: threads and rows stay in this process.
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
        except TraceError as failed:  # the exception of the `with` block is raised
            logger.error("%s", failed)

    # ---- the caller's side

    def write(self, values: Mapping[str, Any] | None = None, /, **columns: Any) -> None:
        """Adds the rows of one step. The values are copied, so the caller can change them afterwards.

        Args:
            values: column name to a tensor, array or list with one item a row; a number or string is repeated for
                all rows.
            columns: columns as keyword arguments.

        Raises:
            InvalidInputError: a column is unknown or missing, has a wrong type, or another length than other
                columns. Nothing of this step is added.
            TraceError: an earlier block could not be stored, or the writer is closed.
        """
        # Outside of the lock: the checks do not block the threads.
        prepared, rows = self._columns.prepare({**(values or {}), **columns})
        self.check_process()
        with self._changed:
            self.check_usable()
            if self._used_bytes(self._builder) >= self._memory_bytes:
                self._wait_for_memory()
            before = self._builder.rows
            try:
                self._builder.append(prepared, rows)
            finally:  # also when Ctrl-C interrupts after the append
                self._counts["rows_fed"] += self._builder.rows - before
            if self._builder.size_bytes >= self._block_bytes:
                self._seal()

    def flush(self, deadline_s: float = 600.0) -> int:
        """Waits until all rows so far are visible.

        Returns:
            The total number of visible rows.

        Raises:
            TraceError: some rows are not visible, because of an error or the deadline.
        """
        self.check_process()
        with self._changed:
            self.check_usable()
            self._end_session()
            self._wait_for_commits(deadline_s)
            return self._counts["rows_committed"]

    def close(self, deadline_s: float = CLOSE_S) -> TraceStats:
        """Flushes, and stops the threads. Closing again does nothing.

        Ctrl-C stops the wait at once, and the log contains the number of rows that are not stored.

        Args:
            deadline_s: the maximum time to wait, in seconds.

        Raises:
            TraceError: some rows are not visible in the sink; the message and attributes say how many, and why.
        """
        return self._close(deadline_s)

    def _close(self, deadline_s: float, stalled_s: float | None = None) -> TraceStats:
        if self._process_id != os.getpid():  # forked: the rows belong to the parent, which closes its own writer
            return TraceStats()
        with self._changed:
            if self._is_closed:
                return self.stats()  # the condition has a reentrant lock
            self._is_closed = True
            _open_writers.discard(self)
            try:
                self._end_session()
                self._wait_for_commits(deadline_s, stalled_s)
            except TraceError:
                raise
            except BaseException:  # Ctrl-C during the wait
                logger.error("%s", self._failure("the wait was interrupted"))
                raise
            finally:
                # An error stops the threads at once, also those that would retry; an earlier error is not
                # replaced.
                self._error = self._error or TraceError("the writer is closed")
                self._waiting.clear()
                self._changed.notify_all()
        # Joined without the lock, which the threads need. They have no work left; a thread that hangs in a call of
        # the sink is abandoned: threads cannot be stopped, and this one is a daemon.
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
        """Returns True if `close` was called."""
        return self._is_closed

    @property
    def is_usable(self) -> bool:
        """Returns True if the writer accepts rows: it is open, no block has failed, and this is its process."""
        return not self._is_closed and self._error is None and self._process_id == os.getpid()

    def unsent(self) -> dict[str, list[Any]]:
        """Returns the rows that are not enough for a block yet: column name to values."""
        import pyarrow as pa

        with self._changed:  # copied within the lock, since `write` changes the buffers
            rows: dict[str, list[Any]] = pa.Table.from_batches(self._builder.batches()).to_pydict()
            return rows

    def stats(self) -> TraceStats:
        """Returns the counts so far."""
        with self._changed:
            waiting = self._sealed_bytes + self._builder.size_bytes
            return TraceStats(**self._counts, waiting_bytes=waiting, blocked_s=self._blocked_s)

    def check_process(self) -> None:
        """Raises in a forked process.

        Raises:
            TraceError: the writer belongs to another process.
        """
        # Before the lock: in a forked child it stays locked if a thread of the parent held it during the fork.
        if self._process_id != os.getpid():
            raise TraceError("this writer belongs to another process; create one in each process")

    def check_usable(self) -> None:
        """Raises if the writer does not accept rows.

        Raises:
            TraceError: the writer is closed, a block could not be stored, or the sink refused the columns or the
                key.
        """
        if self._is_closed:
            raise TraceError("the writer is closed")
        if self._error is not None:
            raise self._failure()

    def _failure(self, reason: str = "the time is over") -> TraceError:
        """Returns the error for the caller."""
        # A new error each time: raising one object again would extend its traceback.
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
        """Returns the memory of the sealed blocks, and of a builder."""
        size_bytes, extra_bytes = self._sealed_bytes, self._sealed_extra_bytes
        if builder is not None:
            size_bytes, extra_bytes = size_bytes + builder.size_bytes, extra_bytes + builder.extra_bytes
        return size_bytes + max(0, extra_bytes - _SPARE_BYTES)

    def _wait_for_memory(self) -> None:
        started_at = time.monotonic()
        if self._builder.rows:
            self._seal()
        while self._used_bytes() >= self._memory_bytes and self._error is None:
            self._changed.wait(_POLL_INTERVAL_S)
        self._blocked_s += time.monotonic() - started_at
        self.check_usable()

    def _wait_for_commits(self, deadline_s: float, stalled_s: float | None = None) -> None:
        """Waits until all sessions are committed; `stalled_s` limits the time in which the sink stores nothing."""
        stalled_s = deadline_s if stalled_s is None else stalled_s
        now = time.monotonic()
        deadline, stalled_at, stored = now + deadline_s, now + stalled_s, self._stored()
        reason, announce_at = "the time is over", now + _SILENT_S
        while self._unfinished and self._error is None:
            now = time.monotonic()
            if self._stored() != stored:
                stored, stalled_at = self._stored(), now + stalled_s
            if now >= min(deadline, stalled_at):
                if now < deadline:
                    reason = f"the sink has stored nothing for {stalled_s:g} s"
                break
            if now >= announce_at:
                announce_at = deadline  # once
                remaining = self._counts["rows_fed"] - self._counts["rows_committed"]
                text = "%r: waiting for %d rows to be stored, for up to %.0f s; Ctrl-C ends the wait"
                logger.warning(text, self.sink, remaining, deadline - now)
            self._changed.wait(min(deadline - now, stalled_at - now, announce_at - now, _POLL_INTERVAL_S))
        if self._error is not None or self._counts["rows_committed"] != self._counts["rows_fed"]:
            raise self._failure(reason)

    def _stored(self) -> tuple[int, int]:
        return self._counts["blocks_stored"], self._counts["rows_committed"]

    def _seal(self) -> None:
        """Hands the rows so far to the threads; the caller holds the lock."""
        builder, session = self._builder, self._session
        builder.trim()
        self._builder = BlockBuilder(self.schema, block_bytes=self._block_bytes)
        self._waiting.append(_Block(session, session.sealed, builder))
        session.started_at = session.started_at if session.sealed else time.monotonic()
        session.sealed += 1
        session.rows += builder.rows
        self._sealed_bytes += builder.size_bytes
        self._sealed_extra_bytes += builder.extra_bytes
        if session.sealed >= self.sink.max_blocks or self._remaining_s(session) <= 0:
            self._start_session()
        self._changed.notify_all()

    def _end_session(self) -> None:
        if self._builder.rows:
            self._seal()
        if self._session.sealed:
            self._start_session()
        self._changed.notify_all()

    def _remaining_s(self, session: _Session) -> float:
        return session.started_at + self.sink.max_age_s - time.monotonic()

    def _start_session(self) -> None:
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
                    due.is_ended = False  # claimed: no other thread commits this session
                block = self._waiting.popleft() if due is None else None
            try:
                if due is not None:
                    self._commit(due)
                elif block is not None:
                    self._store(block)
            except BaseException as error:  # the first error stops all threads and callers
                with self._changed:
                    self._error = self._error or error
                    self._changed.notify_all()
                return

    def _check_sink(self) -> None:
        """Contacts the sink, so that the next call raises an error of the key or the columns."""
        check = getattr(self.sink, "check", None)
        if check is None:
            return
        try:
            self._retried(check)
        except BaseException as error:
            if getattr(error, "retryable", False):
                return  # the first block retries
            with self._changed:
                self._error = self._error or error
                self._changed.notify_all()

    def _end_session_when_due(self) -> float | None:
        """Ends a session that is due; returns the seconds until the next one, None without one."""
        pauses_s = []
        if self._flush_interval_s is not None:
            now = time.monotonic()
            if now >= self._flushed_at + self._flush_interval_s:
                self._flushed_at = now
                self._end_session()
            pauses_s.append(self._flushed_at + self._flush_interval_s - now)
        if self._session.sealed:  # the sink drops a session that is too old, also while no rows arrive
            if self._remaining_s(self._session) <= 0:
                self._start_session()
            else:
                pauses_s.append(self._remaining_s(self._session))
        return min(*pauses_s, threading.TIMEOUT_MAX) if pauses_s else None

    def _due(self) -> _Session | None:
        return next((session for session in self._unfinished if session.is_due), None)

    def _store(self, block: _Block) -> None:
        # Encoding and writing run without the lock, so that the threads and the training run in parallel.
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
        with session.opening:  # one thread opens the session, all others wait
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
            with single_attempt():  # a store must not retry within this retry: the attempts would multiply
                return call()

        return self._retry.call(once, is_transient=is_transient, on_retry=self._count_retry)

    def _count_retry(self, attempt: int, error: BaseException, pause_s: float) -> None:
        with self._changed:
            self._counts["retries"] += 1


def _rebuilt(schema: Any, sink: Any, settings: dict[str, Any]) -> TraceWriter:
    return TraceWriter(schema, sink, **settings)


def _import_early() -> None:
    """Imports the modules that threads and retries need."""
    # During the exit of the process, when rows can still wait, Python refuses to import
    # `concurrent.futures.thread`, which pandas and asyncio need.
    import concurrent.futures.thread  # noqa: F401

    import tenacity  # noqa: F401


def _added_columns(schema: pa.Schema, block_schema: pa.Schema, run_id: str) -> dict[str, pa.Scalar[Any]]:
    """Returns the value of each column that the sink adds to each row: the run's id."""
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
    """Stores the rows of writers that were never closed, at the exit of the process."""
    # Python stores the exception that has terminated the program here. Then a user waits for the exit.
    is_failed = hasattr(sys, "last_value")
    deadline_s, stalled_s = (_STOP_S, _STALLED_S) if is_failed else (_EXIT_S, _EXIT_S)
    for writer in list(_open_writers):
        try:
            writer._close(deadline_s, stalled_s)
        except KeyboardInterrupt:  # logged; all other writers log their unstored rows without a wait
            deadline_s = 0.0
        except Exception as error:
            logger.error("a trace writer was not closed, and %s", error)
