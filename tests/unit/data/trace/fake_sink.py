"""A sink in memory whose calls fail as told; rows are visible after their commit only."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable

import pyarrow as pa

from pai_sdk.errors import PaiError


class Transient(PaiError):
    retryable = True


class FakeSink:
    """Faults are functions of (operation, number of the call); what they raise, the call raises.

    A fault before the call has no effect in the sink; a fault after it is a lost answer.
    """

    def __init__(
        self,
        *,
        before: Callable[[str, int], None] = lambda operation, number: None,
        after: Callable[[str, int], None] = lambda operation, number: None,
        max_blocks: int = 1000,
        max_age_s: float = 1e9,
        run_column: str | None = None,
    ) -> None:
        self.max_blocks = max_blocks
        self.max_age_s = max_age_s
        self.sessions: list[FakeSession] = []
        self.calls: Counter[str] = Counter()
        self._before, self._after = before, after
        self._run_column = run_column
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return "FakeSink()"

    def prepare(self, schema: pa.Schema, run_id: str) -> pa.Schema:
        return schema if self._run_column is None else schema.append(pa.field(self._run_column, pa.string()))

    def called(self, operation: str, effect: Callable[[], None]) -> None:
        with self._lock:
            self.calls[operation] += 1
            number = self.calls[operation]
        self._before(operation, number)
        with self._lock:
            effect()
        self._after(operation, number)

    def open(self) -> FakeSession:
        session = FakeSession(self)
        self.called("open", lambda: self.sessions.append(session))
        return session

    def visible(self, schema: pa.Schema) -> pa.Table:
        batches = [
            pa.ipc.read_record_batch(session.blocks[block_id], schema)
            for session in self.sessions
            for block_id in session.committed
        ]
        return pa.Table.from_batches(batches, schema)


class PicklableSink(FakeSink):
    """Makes its own state anew in the other process."""

    def __reduce__(self) -> tuple[type, tuple[()]]:
        return PicklableSink, ()


class FakeSession:
    def __init__(self, sink: FakeSink) -> None:
        self._sink = sink
        self.blocks: dict[int, bytes] = {}
        self.committed: list[int] = []

    def encode(self, batches: Iterable[pa.RecordBatch]) -> bytes:
        table = pa.Table.from_batches(batches).combine_chunks()
        return table.to_batches()[0].serialize().to_pybytes() if table.num_rows else b""

    def write(self, block_id: int, payload: bytes) -> None:
        def store() -> None:
            assert not self.committed, "a block after the commit"
            assert self.blocks.get(block_id, payload) == payload, "a repetition with other bytes"
            self.blocks[block_id] = payload

        self._sink.called("write", store)

    def commit(self, block_ids: list[int]) -> None:
        def make_visible() -> None:
            assert sorted(self.blocks) == list(block_ids), "the blocks do not match"
            assert not self.committed or self.committed == list(block_ids)
            self.committed = list(block_ids)

        self._sink.called("commit", make_visible)
