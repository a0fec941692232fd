"""The metadata of a file that every store provides."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

_CHUNK_BYTES = 1 << 20

Unlisted: TypeAlias = Callable[[str, Exception], None]
"""Called with a path and the reason why the listing cannot have it."""


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file in a store.

    Attributes:
        path: relative to the root of the store, with `/` between its parts. With a `/` at its end it is an empty
            folder, which a store lists only when it is asked for folders.
        size_bytes: its length.
        modified_ns: when it was changed last, in nanoseconds since 1970; None when the store does not say.
        etag: changes with the content. On a local disk it consists of size, time and inode.
        link: the target of a symbolic link that is stored as a link; empty for a file.
        executable: whether it is a program. The listing of an object storage does not say; `head` does.
        digest: the hash that its content must have when it is moved, `sha256:…` or `blake3:…` with hexadecimal
            digits; empty if it may have any.
        crc64: the checksum (`checksum_of`) of this content, from the same reading.
    """

    path: str
    size_bytes: int
    modified_ns: int | None
    etag: str
    executable: bool = False
    link: str = ""
    digest: str = ""
    crc64: int | None = field(default=None, compare=False)

    @property
    def is_folder(self) -> bool:
        """Returns True for an empty folder."""
        return self.path.endswith("/")

    @property
    def mark(self) -> str:
        """Returns a string that changes with the file, including its mode."""
        return "folder" if self.is_folder else f"{self.etag}{'x' if self.executable else ''}"


def chunks_of(content: bytes | Path | Iterable[bytes]) -> Iterator[bytes]:
    """Yields the content that was passed to `Store.write`."""
    if isinstance(content, Path):
        with content.open("rb") as stream:
            while chunk := stream.read(_CHUNK_BYTES):
                yield chunk
    elif isinstance(content, bytes):
        yield content
    else:
        yield from content
