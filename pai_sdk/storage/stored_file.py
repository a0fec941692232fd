"""The facts that every store gives about a file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from pai_sdk.storage.file_hash import FileHash

__all__ = ["StoredFile", "Unlisted", "pieces_of"]

_PIECE_BYTES = 1 << 20

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
        etag: changes with the content. On a local disk it is made of size, time and inode.
        link: of a symbolic link that is kept as such, what it leads to; empty for a file.
        executable: whether it is a program. The listing of an object storage does not say; `head` does.
        sha256: the hash that its content must have when it is moved; empty if it may have any.
        hashed: the same hash with those of its parts, if these were made too.
    """

    path: str
    size_bytes: int
    modified_ns: int | None
    etag: str
    executable: bool = False
    link: str = ""
    sha256: str = ""
    hashed: FileHash | None = field(default=None, compare=False, repr=False)

    @property
    def is_folder(self) -> bool:
        """True for an empty folder."""
        return self.path.endswith("/")

    @property
    def mark(self) -> str:
        """A text that changes with the file, its mode included."""
        return "folder" if self.is_folder else f"{self.etag}{'x' if self.executable else ''}"


def pieces_of(content: bytes | Path | Iterable[bytes]) -> Iterator[bytes]:
    """The content that `Store.write` is given, in pieces.

    Example:
        >>> list(pieces_of(b"hello"))
        [b'hello']
    """
    if isinstance(content, Path):
        with content.open("rb") as stream:
            while piece := stream.read(_PIECE_BYTES):
                yield piece
    elif isinstance(content, bytes):
        yield content
    else:
        yield from content
