"""A range of a local file, read in chunks that stay in the processor's cache for all that is done with them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pai_sdk._core.files import read_into
from pai_sdk.errors import FileChangedError, StorageError

_CHUNK_BYTES = 1 << 18


class _Thread(threading.local):
    def __init__(self) -> None:
        self.buffer = memoryview(bytearray(_CHUNK_BYTES))


# A new buffer for each range costs more time than its checksum: the kernel clears its pages.
_thread = _Thread()


@dataclass(frozen=True, slots=True)
class FileRange:
    """A range of an open file. Each iteration reads it again; one at a time in each thread."""

    file: int
    start: int
    size_bytes: int
    path: Path

    def __len__(self) -> int:
        return self.size_bytes

    def __iter__(self) -> Iterator[memoryview]:
        """Yields chunks, each valid until the next one; raises FileChangedError if the file is shorter."""
        at, end = self.start, self.start + self.size_bytes
        while at < end:
            try:
                count = read_into(self.file, _thread.buffer[: end - at], at)
            except OSError as error:
                # An OSError while a request is sent would count as one of the network.
                raise StorageError(f"{self.path} cannot be read: {error.strerror or error}") from error
            if not count:
                raise FileChangedError(f"{self.path} was changed while it was being uploaded; run this again")
            at += count
            yield _thread.buffer[:count]
