"""Sends the blocks of a trace to its sink in threads, and commits them.

A session is a number of blocks that become visible together. The writer ends one for `flush`; the sender also ends
one when it reaches the limits of the sink. The thread that stores the last block of an ended session commits it.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pai_sdk._core.retry import RetryPolicy, single_attempt

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from pai_sdk._data.trace.block import BlockBuilder, SpareBuffers
    from pai_sdk._data.trace.sinks import Sink, SinkSession

_SPARE_BYTES = 1 << 20  # uncounted memory of Python objects, which matters for many small blocks only


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


class SinkSender:
    """Sends blocks to a sink in threads, each block exactly once, and commits sessions of them.

    `changed` guards all state, and is never held during a call of the sink. All methods but `start` and `join` are
    called with it held. A thread waits for blocks, or for a session that is due, until `error` is set.

    Args:
        added: column name to value: the columns that the sink adds to each row.
        spares: the buffers that the threads create for the writer.
        flush: called after each `flush_interval_s`, with the lock held: it adds the rows that wait, and ends the
            session.

    Attributes:
        error: the first error of a thread; no thread and no caller continues after it.
        counts: rows, blocks and bytes that the sink has, and the number of retries.
        waiting_bytes: memory of the blocks that the sink does not have yet.
    """

    def __init__(
        self,
        sink: Sink,
        added: Mapping[str, pa.Scalar[Any]],
        *,
        spares: SpareBuffers,
        retry: RetryPolicy,
        workers: int,
        flush_interval_s: float | None,
        flush: Callable[[], None],
    ) -> None:
        self.changed = threading.Condition()
        self.error: BaseException | None = None
        self.counts = dict.fromkeys(("rows_committed", "blocks_stored", "bytes_stored", "retries"), 0)
        self.waiting_bytes = 0
        self._waiting_extra_bytes = 0  # of the Python objects that hold these blocks
        self._sink = sink
        self._added = added
        self._spares = spares
        self._retry = retry
        self._flush_interval_s = flush_interval_s
        self._flush = flush
        self._flushed_at = time.monotonic()
        self._waiting: deque[_Block] = deque()
        self._session = _Session()
        self._unfinished: list[_Session] = []  # ended, not committed yet
        self._threads = [
            threading.Thread(target=self._work, args=(number == 0,), name=f"trace-{number}", daemon=True)
            for number in range(workers)
        ]

    def start(self) -> None:
        """Starts the threads."""
        for thread in self._threads:
            thread.start()

    def join(self, timeout_s: float) -> None:
        """Waits for the threads, which have no work left after `stop`."""
        # A thread that hangs in a call of the sink is abandoned: threads cannot be stopped, and this one is a
        # daemon.
        deadline = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def add(self, builder: BlockBuilder) -> None:
        """Hands a block to the threads."""
        session = self._session
        self._waiting.append(_Block(session, session.sealed, builder))
        session.started_at = session.started_at if session.sealed else time.monotonic()
        session.sealed += 1
        session.rows += builder.rows
        self.waiting_bytes += builder.size_bytes
        self._waiting_extra_bytes += builder.extra_bytes
        if session.sealed >= self._sink.max_blocks or self._remaining_s(session) <= 0:
            self._start_session()
        self.changed.notify_all()

    def end_session(self) -> None:
        """Lets the blocks so far be committed."""
        if self._session.sealed:
            self._start_session()
        self.changed.notify_all()

    def stop(self, error: BaseException) -> None:
        """Stops the threads at once, without further retries; an earlier error is not replaced."""
        self.fail(error)
        self._waiting.clear()
        self._spares.add([])

    def fail(self, error: BaseException) -> None:
        """Stops threads and callers, unless an earlier error has done so."""
        self.error = self.error or error
        self.changed.notify_all()

    @property
    def has_unfinished(self) -> bool:
        """Returns True if ended sessions are not committed yet."""
        return bool(self._unfinished)

    def num_blocks(self) -> tuple[int, int]:
        """Returns the numbers of blocks that are not sent, and that are sent and not committed."""
        sessions = [*self._unfinished, self._session]
        stored = sum(len(session.stored) for session in sessions)
        return sum(session.sealed for session in sessions) - stored, stored

    def used_bytes(self, builder: BlockBuilder | None = None) -> int:
        """Returns the memory of the sealed blocks, and of a builder."""
        size_bytes, extra_bytes = self.waiting_bytes + self._spares.size_bytes, self._waiting_extra_bytes
        if builder is not None:
            size_bytes, extra_bytes = size_bytes + builder.size_bytes, extra_bytes + builder.extra_bytes
        return size_bytes + max(0, extra_bytes - _SPARE_BYTES)

    def _remaining_s(self, session: _Session) -> float:
        return session.started_at + self._sink.max_age_s - time.monotonic()

    def _start_session(self) -> None:
        self._session.is_ended = True
        self._unfinished.append(self._session)
        self._session = _Session()

    def _work(self, is_first: bool) -> None:
        if is_first:
            self._check_sink()
        while True:
            with self.changed:
                while not self._has_work() and self.error is None:
                    pause_s = self._end_session_when_due()
                    if not self._has_work():
                        self.changed.wait(pause_s)
                if self.error is not None:
                    return

                requested, due, block = self._claim()
            try:
                if requested:
                    self._create_spares(requested)
                if due is not None:
                    self._commit(due)
                elif block is not None:
                    self._store(block)
            except BaseException as error:  # the first error stops all threads and callers
                with self.changed:
                    self.fail(error)
                return

    def _check_sink(self) -> None:
        """Contacts the sink, so that the next call raises an error of the key or the columns."""
        check = getattr(self._sink, "check", None)
        if check is None:
            return
        try:
            self._retried(check)
        except BaseException as error:
            if getattr(error, "retryable", False):
                return  # the first block retries
            with self.changed:
                self.fail(error)

    def _end_session_when_due(self) -> float | None:
        """Ends a session that is due; returns the seconds until the next one, None without one."""
        pauses_s = []
        if self._flush_interval_s is not None:
            now = time.monotonic()
            if now >= self._flushed_at + self._flush_interval_s:
                self._flushed_at = now
                self._flush()
            pauses_s.append(self._flushed_at + self._flush_interval_s - now)
        if self._session.sealed:  # the sink drops a session that is too old, also while no rows arrive
            if self._remaining_s(self._session) <= 0:
                self._start_session()
            else:
                pauses_s.append(self._remaining_s(self._session))
        return min(*pauses_s, threading.TIMEOUT_MAX) if pauses_s else None

    def _has_work(self) -> bool:
        return bool(self._waiting or self._spares.is_requested or self._due())

    def _claim(self) -> tuple[list[tuple[int, np.dtype[Any]]], _Session | None, _Block | None]:
        """Returns the next work, for one thread: buffers to create, and a session to commit or a block to send."""
        requested, due = self._spares.claim(), self._due()
        if due is not None:
            due.is_ended = False
            return requested, due, None
        return requested, None, self._waiting.popleft() if self._waiting else None

    def _create_spares(self, requested: Iterable[tuple[int, np.dtype[Any]]]) -> None:
        buffers = self._spares.create(requested)
        with self.changed:
            self._spares.add([] if self.error else buffers)

    def _due(self) -> _Session | None:
        return next((session for session in self._unfinished if session.is_due), None)

    def _store(self, block: _Block) -> None:
        # Encoding and writing run without the lock, so that the threads and the training run in parallel.
        session = self._opened(block.session)
        payload = session.encode(map(self._with_added, block.builder.drain()))
        # Only the encoded rows are in memory now. They are rarely more, and then within the limit as before.
        encoded_bytes = min(len(payload), block.builder.size_bytes)
        with self.changed:
            self.waiting_bytes += encoded_bytes - block.builder.size_bytes
            self._waiting_extra_bytes -= block.builder.extra_bytes
            self.changed.notify_all()
        self._retried(lambda: session.write(block.block_id, payload))
        with self.changed:
            block.session.stored.append(block.block_id)
            self.waiting_bytes -= encoded_bytes
            self.counts["blocks_stored"] += 1
            self.counts["bytes_stored"] += len(payload)
            self.changed.notify_all()

    def _with_added(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        import pyarrow as pa

        for name, value in self._added.items():
            batch = batch.append_column(name, pa.repeat(value, batch.num_rows))
        return batch

    def _opened(self, session: _Session) -> SinkSession:
        with session.opening:  # one thread opens the session, all others wait
            if session.opened is None:
                session.opened = self._retried(self._sink.open)
            return session.opened

    def _commit(self, session: _Session) -> None:
        opened, block_ids = self._opened(session), sorted(session.stored)
        self._retried(lambda: opened.commit(block_ids))
        with self.changed:
            self._unfinished.remove(session)
            self.counts["rows_committed"] += session.rows
            self.changed.notify_all()

    def _retried(self, call: Callable[[], Any]) -> Any:
        def is_transient(error: BaseException) -> bool:
            return bool(getattr(error, "retryable", False)) and self.error is None

        def once() -> Any:
            with single_attempt():  # a store must not retry within this retry: the attempts would multiply
                return call()

        return self._retry.call(once, is_transient=is_transient, on_retry=self._count_retry)

    def _count_retry(self, attempt: int, error: BaseException, pause_s: float) -> None:
        with self.changed:
            self.counts["retries"] += 1
