"""Writes rows into a sink in the background, each exactly once.

    write()          full blocks          N threads                      last thread of a session
    ──copy──> BlockBuilder ──seal──> _waiting ──encode, write (retried)──> stored ──commit (retried)──> visible

The writer is the side of the caller; `sink_sender` has the threads. A session is a number of blocks that become
visible together: `flush` ends one and waits for its commit.

Locks: `_changed`, the lock of the sender, guards all state below and is never held during a call of the sink.
Waits: a caller waits for memory (`write`) or for commits (`flush`, `close`), a thread for blocks. All of them end
when the sender has an error.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
import time
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any

from pai_sdk._core.names.hints import wrong_value
from pai_sdk._core.retry import RetryPolicy
from pai_sdk._data.trace.parquet import current_run_id, default_sink
from pai_sdk._data.trace.sink_sender import SinkSender
from pai_sdk._data.trace.types import ColumnTypes, trace_schema
from pai_sdk.errors import InvalidInputError, TraceError

if TYPE_CHECKING:
    from pai_sdk._data.trace.sinks import Sink

logger = logging.getLogger(__name__)

CLOSE_S = 600.0
"""The maximum time that `close` waits for the sink, in seconds."""

_MIB = 1 << 20
_JOIN_S = 5.0
_EXIT_S = 60.0  # maximum wait at the exit of the process, for writers that were never closed
_POLL_INTERVAL_S = 1.0  # maximum wait for a lock, since Ctrl-C does not interrupt it on Windows
_open_writers: weakref.WeakSet[TraceWriter] = weakref.WeakSet()


@dataclass(frozen=True)
class WaitLimits:
    """How long a writer waits for its sink."""

    stop_s: float = 30.0  # after an exception, such as Ctrl-C: in total
    stalled_s: float = 10.0  # after an exception: while the sink stores nothing
    silent_s: float = 5.0  # a longer wait is announced


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
        # Here, since these modules need pyarrow, and `trace_schema` has raised an error with a hint without it.
        import pyarrow as pa

        from pai_sdk._data.trace.block import BlockBuilder, SpareBuffers
        from pai_sdk._data.trace.columns import Columns

        self._columns = Columns(self.schema, missing=missing)
        self._block_schema = self.sink.prepare(self.schema, self.run_id)
        added = [name for name in self._block_schema.names if name not in self.schema.names]
        _import_early()
        self._block_bytes = min(block_bytes, memory_bytes)
        self._spares = SpareBuffers(memory_bytes // 4)
        self._new_builder = partial(BlockBuilder, self.schema, block_bytes=self._block_bytes, spares=self._spares)
        self._memory_bytes = memory_bytes
        self._process_id = os.getpid()
        self._sender = SinkSender(
            self.sink,
            # The sink adds the run's id to each row.
            {name: pa.scalar(self.run_id, pa.string()) for name in added},
            spares=self._spares,
            retry=retry or RetryPolicy(deadline_s=300.0),
            workers=workers,
            flush_interval_s=flush_interval_s,
            flush=self._end_session,
        )
        self._changed = self._sender.changed
        self._builder = self._new_builder()
        self.waits = WaitLimits()
        self._is_closed = False
        self._rows_fed = 0
        self._blocked_s = 0.0
        self._sender.start()
        _open_writers.add(self)

    def __reduce__(self) -> tuple[Any, ...]:
        # A pickled writer becomes a new writer with equal settings: threads and rows stay in this process.
        return partial(TraceWriter, **self._settings, run_id=self.run_id), (self.schema, self.sink)

    def __repr__(self) -> str:
        return f"<TraceWriter {self.sink!r} {self._rows_fed} rows>"

    def __enter__(self) -> TraceWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
            return
        try:
            self.close(self.waits.stop_s, stalled_s=self.waits.stalled_s)
        except TraceError as failed:  # the exception of the `with` block is raised
            logger.error("%s", failed)

    # ---- the caller's side

    def write(self, values: Mapping[str, Any] | None = None, /, **columns: Any) -> None:
        """Adds the rows of one step. The values are copied, so the caller can change them afterwards.

        Args:
            values: maps columns to tensors, arrays or lists, one item per row; a number or string is repeated for
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
            if self._sender.used_bytes(self._builder) >= self._memory_bytes:
                self._wait_for_memory()
            before = self._builder.rows
            try:
                self._builder.append(prepared, rows)
            finally:  # also when Ctrl-C interrupts after the append
                self._rows_fed += self._builder.rows - before
            if self._builder.size_bytes >= self._block_bytes:
                self._seal()
            elif self._spares.is_requested:
                self._changed.notify_all()

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
            return self._sender.counts["rows_committed"]

    def close(self, deadline_s: float = CLOSE_S, *, stalled_s: float | None = None) -> TraceStats:
        """Flushes, and stops the threads. Closing again does nothing.

        Ctrl-C stops the wait at once, and the log contains the number of rows that are not stored.

        Args:
            deadline_s: the maximum time to wait, in seconds.
            stalled_s: the maximum time without progress; no other limit by default.

        Raises:
            TraceError: some rows are not visible in the sink; the message and attributes say how many, and why.
        """
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
                self._sender.stop(TraceError("the writer is closed"))
        self._sender.join(_JOIN_S)  # without the lock, which the threads need
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
        return not self._is_closed and self._sender.error is None and self._process_id == os.getpid()

    def unsent(self) -> dict[str, list[Any]]:
        """Returns the rows that are not enough for a block yet: column name to values."""
        import pyarrow as pa

        with self._changed:  # copied within the lock, since `write` changes the buffers
            rows: dict[str, list[Any]] = pa.Table.from_batches(self._builder.batches()).to_pydict()
            return rows

    def stats(self) -> TraceStats:
        """Returns the counts so far."""
        with self._changed:
            waiting = self._sender.waiting_bytes + self._builder.size_bytes
            return TraceStats(
                self._rows_fed, **self._sender.counts, waiting_bytes=waiting, blocked_s=self._blocked_s
            )

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
        if self._sender.error is not None:
            raise self._failure()

    def _failure(self, reason: str = "the deadline has passed") -> TraceError:
        """Returns the error for the caller."""
        # A new error each time: raising one object again would extend its traceback.
        fed, committed = self._rows_fed, self._sender.counts["rows_committed"]
        text = str(self._sender.error or reason)
        if fed > committed:
            waiting, stored = self._sender.num_blocks()
            waiting += self._builder.rows > 0
            blocks = f"blocks: {waiting} not sent, {stored} sent and not committed"
            text = f"{self.sink!r}: {fed - committed} of {fed} rows are not stored: {text} ({blocks})"
        failure = TraceError(text, rows_fed=fed, rows_committed=committed)
        failure.__cause__ = self._sender.error
        return failure

    def _wait_for_memory(self) -> None:
        started_at = time.monotonic()
        if self._builder.rows:
            self._seal()
        while self._sender.used_bytes() >= self._memory_bytes and self._sender.error is None:
            self._changed.wait(_POLL_INTERVAL_S)
        self._blocked_s += time.monotonic() - started_at
        self.check_usable()

    def _wait_for_commits(self, deadline_s: float, stalled_s: float | None = None) -> None:
        """Waits until all sessions are committed; `stalled_s` limits the time in which the sink stores nothing."""
        stalled_s = deadline_s if stalled_s is None else stalled_s
        now = time.monotonic()
        deadline, stalled_at, stored = now + deadline_s, now + stalled_s, self._stored()
        reason, announce_at = "the deadline has passed", now + self.waits.silent_s
        while self._sender.has_unfinished and self._sender.error is None:
            now = time.monotonic()
            if self._stored() != stored:
                stored, stalled_at = self._stored(), now + stalled_s
            if now >= min(deadline, stalled_at):
                if now < deadline:
                    reason = f"the sink has stored nothing for {stalled_s:g} s"
                break
            if now >= announce_at:
                announce_at = deadline  # once
                remaining = self._rows_fed - self._sender.counts["rows_committed"]
                text = "%r: waiting for %d rows to be stored, for up to %.0f s; Ctrl-C ends the wait"
                logger.warning(text, self.sink, remaining, deadline - now)
            self._changed.wait(min(deadline - now, stalled_at - now, announce_at - now, _POLL_INTERVAL_S))
        if self._sender.error is not None or self._sender.counts["rows_committed"] != self._rows_fed:
            raise self._failure(reason)

    def _stored(self) -> tuple[int, int]:
        return self._sender.counts["blocks_stored"], self._sender.counts["rows_committed"]

    def _seal(self) -> None:
        """Hands the rows so far to the threads; the caller holds the lock."""
        builder = self._builder
        builder.trim()
        self._builder = self._new_builder()
        self._sender.add(builder)

    def _end_session(self) -> None:
        if self._builder.rows:
            self._seal()
        self._sender.end_session()


def _import_early() -> None:
    """Imports the modules that threads and retries need."""
    # During the exit of the process, when rows can still wait, Python refuses to import
    # `concurrent.futures.thread`, which pandas and asyncio need.
    import concurrent.futures.thread  # noqa: F401

    import tenacity  # noqa: F401


def _check_sizes(**sizes: int) -> None:
    problems = [
        wrong_value(name, size, "an integer (minimum 1)")
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
    is_interrupted = False
    for writer in list(_open_writers):
        waits = writer.waits
        deadline_s, stalled_s = (waits.stop_s, waits.stalled_s) if is_failed else (_EXIT_S, _EXIT_S)
        try:
            writer.close(0.0 if is_interrupted else deadline_s, stalled_s=stalled_s)
        except KeyboardInterrupt:  # logged; all other writers log their unstored rows without a wait
            is_interrupted = True
        except Exception as error:
            logger.error("a trace writer was not closed, and %s", error)
