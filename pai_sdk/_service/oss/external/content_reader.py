"""Bytes of contents in files or in a store: seekable readers, and iterables that can be sent again."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from pai_sdk._data.storage.base import Store
from pai_sdk._service.oss.error_codes import unavailable

_CHUNK_BYTES = 1 << 20
_MAX_AHEAD_BYTES = 4 << 20


class FileChunks(Iterable[bytes]):
    """The concatenated bytes of files, or of spans (offset and length) of them; each iteration starts again."""

    def __init__(self, files: Sequence[Path], spans: Sequence[tuple[int, int]] = ()) -> None:
        self._files = files
        self._spans = spans or [(0, sys.maxsize)] * len(files)
        self.missing: FileNotFoundError | None = None

    @property
    def size_bytes(self) -> int:
        """Returns the number of bytes; those of a missing file are not counted."""
        total = 0
        for file, (start, length) in zip(self._files, self._spans, strict=True):
            with suppress(FileNotFoundError):
                total += min(length, file.stat().st_size - start)
        return total

    def __iter__(self) -> Iterator[bytes]:
        for file, (start, remaining) in zip(self._files, self._spans, strict=True):
            try:
                stream = file.open("rb")
            except FileNotFoundError as error:
                self.missing = error
                raise
            with stream:
                stream.seek(start)
                while remaining and (chunk := stream.read(min(remaining, _CHUNK_BYTES))):
                    yield chunk
                    remaining -= len(chunk)


class StoredChunks(Iterable[bytes]):
    """The bytes of a file of a store; each iteration starts again."""

    def __init__(self, store: Store, path: str) -> None:
        self._store, self._path = store, path

    def __iter__(self) -> Iterator[bytes]:
        return self._store.read(self._path)


class ContentReader(io.RawIOBase):
    """A file over external content: requests what is read, and reads ahead while the reads are sequential."""

    def __init__(self, fetch: Callable[[int, int], bytes], size_bytes: int, on_close: Callable[[], None]) -> None:
        super().__init__()
        self._fetch, self._size_bytes, self._on_close = fetch, size_bytes, on_close
        self._position, self._start, self._buffer, self._ahead_bytes = 0, 0, b"", 0

    def readable(self) -> bool:
        """Returns True."""
        return True

    def seekable(self) -> bool:
        """Returns True."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Sets the position without a request to the store."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size_bytes}[whence]
        self._position = max(0, base + offset)
        return self._position

    def tell(self) -> int:
        """Returns the position."""
        return self._position

    def readinto(self, buffer: Any) -> int:
        """Reads some bytes, at most up to the end."""
        view = memoryview(buffer).cast("B")
        end = self._start + len(self._buffer)
        if not self._start <= self._position < end:
            is_sequential = self._position == end
            # Doubled with each sequential read: a header costs little, a complete read needs few requests.
            self._ahead_bytes = min(2 * self._ahead_bytes, _MAX_AHEAD_BYTES) if is_sequential else 0
            self._ahead_bytes = max(self._ahead_bytes, len(view))
            fetch_bytes = min(self._ahead_bytes, self._size_bytes - self._position)
            if fetch_bytes <= 0:
                return 0
            self._buffer = self._fetch(self._position, self._position + fetch_bytes)
            self._start = self._position
            if len(self._buffer) != fetch_bytes:
                raise unavailable("The content ended early; try again.")
        offset = self._position - self._start
        chunk = self._buffer[offset : offset + len(view)]
        view[: len(chunk)] = chunk
        self._position += len(chunk)
        return len(chunk)

    def close(self) -> None:
        """Closes the reader, which allows the deletion of the content."""
        if not self.closed:
            super().close()
            self._buffer = b""
            self._on_close()
