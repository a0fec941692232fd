"""The interface of a sink, which stores traces."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Sink", "SinkSession"]


class SinkSession(Protocol):
    """Blocks that become visible together.

    Behaviors and assumptions:

    1. `write` and `commit` may be repeated after any failure, with the same arguments. A repetition has no effect
       where the first call had one, also when its response was lost.
    2. Blocks are written by several threads at once; `commit` is called once all of them are written.
    3. When `commit` has returned, all rows are visible. Before it, a block is visible as a whole or not at all;
       sinks that can make a session visible at one moment do so.
    4. An error has `retryable` (see `pai_sdk.errors`). Other errors end the writer.
    """

    def encode(self, batches: Iterable[pa.RecordBatch]) -> bytes:
        """The bytes of a block. They are kept until the block is stored, and a retry sends the same bytes.

        Args:
            batches: the rows, in one batch or more. A batch that is encoded before the next one is taken is in
                memory only so long.
        """
        ...

    def write(self, block_id: int, payload: Any) -> None:
        """Store one block, which `encode` made."""
        ...

    def commit(self, block_ids: Sequence[int]) -> None:
        """Make the blocks visible: exactly these."""
        ...


class Sink(Protocol):
    """A table or folder that takes rows. Plain data, so that it can be pickled; connections are made by `open`.

    A sink may have a method `check()`. It is called in the background when the writer is made, and raises what is
    wrong with the key or the columns; the writer's next call raises it too.
    """

    @property
    def max_blocks(self) -> int:
        """The largest number of blocks in a session; the writer begins a new session then."""
        ...

    @property
    def max_age_s(self) -> float:
        """The longest life of a session, in seconds."""
        ...

    def prepare(self, schema: pa.Schema, run_id: str) -> pa.Schema:
        """Called once before anything else: check the columns, and give the schema that blocks have.

        Args:
            schema: of the columns that the caller gives.
            run_id: the run that is traced. A sink whose rows do not carry it otherwise adds a column.

        Raises:
            InvalidInputError: the sink cannot take such columns.
        """
        ...

    def open(self) -> SinkSession:
        """Begin a session. The table or folder is made when it is missing. Called by the writer's threads."""
        ...
