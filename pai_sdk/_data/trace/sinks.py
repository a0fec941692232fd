"""The interface of a sink, which stores traces."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import pyarrow as pa


class SinkSession(Protocol):
    """Blocks that become visible together.

    Behaviors and assumptions:

    1. `write` and `commit` can be repeated after any failure, with the same arguments. A repetition has no effect
       where the first call had one, also when its response was lost.
    2. Blocks are written by several threads at once; `commit` is called after all of them are written.
    3. When `commit` has returned, all rows are visible. Before it, a block is visible completely or not at all;
       sinks that can make a session visible at one moment do so.
    4. An error has `retryable` (see `pai_sdk.errors`). Other errors stop the writer.
    """

    def encode(self, batches: Iterable[pa.RecordBatch]) -> bytes:
        """Returns the bytes of a block, which stay in memory until it is stored; a retry sends them again."""
        # Encode each batch before taking the next one: its memory is released then.
        ...

    def write(self, block_id: int, payload: Any) -> None:
        """Stores one block that `encode` has returned."""
        ...

    def commit(self, block_ids: Sequence[int]) -> None:
        """Makes exactly these blocks visible."""
        ...


class Sink(Protocol):
    """A table or folder that accepts rows. Plain data, so that it can be pickled; `open` connects.

    A sink can have a method `check()`. It is called in the background when the writer is created, and raises if
    the key or the columns are wrong; the writer's next call raises this error, too.
    """

    @property
    def max_blocks(self) -> int:
        """The maximum number of blocks in a session; then the writer starts a new session."""
        ...

    @property
    def max_age_s(self) -> float:
        """The maximum age of a session, in seconds."""
        ...

    def prepare(self, schema: pa.Schema, run_id: str) -> pa.Schema:
        """Checks the columns and returns the schema of the blocks; called once, before all other methods."""
        # A sink that does not store the id of the run elsewhere adds a column for it. Raises InvalidInputError for
        # columns that it cannot store.
        ...

    def open(self) -> SinkSession:
        """Starts a session, and creates a missing table or folder. Called by the writer's threads."""
        ...
