"""Archives that arrive as a stream of bytes. Standard library only, on every platform."""

from __future__ import annotations

import os
import tarfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence

_MAX_HEADER_BYTES = 1 << 20  # of a name and other properties of one entry; the longest path has 4 KiB


class ForwardArchive(ABC):
    """The bytes of an archive as a file that is read forwards: `tarfile.open(fileobj=…, mode="r:")`.

    Mode "r|" would copy all data several times. `copy_to` has the contents of files, `tarfile` reads the headers.
    """

    def __init__(self) -> None:
        self._buffer = memoryview(b"")
        self._position = 0

    @abstractmethod
    def _next(self) -> memoryview:
        """Returns the next bytes, nothing at the end; they are valid until the next call."""

    def tell(self) -> int:
        """Returns how many bytes were read."""
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Skips bytes."""
        if whence != os.SEEK_SET or offset < self._position:
            raise tarfile.ReadError("an entry of the archive refers to an earlier one")
        for _ in self._chunks(offset - self._position):
            pass
        return self._position

    def read(self, size: int = -1) -> bytes:
        """Returns `size` bytes, and less at the end."""
        if size < 0:
            raise tarfile.ReadError("an entry of the archive has a negative size")
        if size > _MAX_HEADER_BYTES:  # contents are not read by this
            raise tarfile.ReadError("an entry of the archive has a header that is too large")
        return b"".join(bytes(chunk) for chunk in self._chunks(size))

    def copy_to(self, write: Callable[[memoryview], object], size: int) -> int:
        """Writes the next bytes, and less at the end; returns how many there were."""
        start = self._position
        for chunk in self._chunks(size):
            write(chunk)
        return self._position - start

    def _chunks(self, size: int) -> Iterator[memoryview]:
        while size > 0:
            if not self._buffer:
                self._buffer = self._next()
            if not self._buffer:
                return
            chunk, self._buffer = self._buffer[:size], self._buffer[size:]
            size -= len(chunk)
            self._position += len(chunk)
            yield chunk


def is_link_safe(folder: Sequence[str], target: str) -> bool:
    """Returns whether the target of a link in a folder of an archive stays below its root."""
    parts = [part for part in target.split("/") if part not in ("", ".")]
    num_up = next((index for index, part in enumerate(parts) if part != ".."), len(parts))
    # Behind a name, ".." would be the parent of whatever that name is a link to.
    return bool(target) and not target.startswith("/") and num_up <= len(folder) and ".." not in parts[num_up:]
