"""The move of one file between a store and the local disk, by a store that does this itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from pai_sdk.storage.pool import TransferPool
from pai_sdk.storage.progress import FileShare
from pai_sdk.storage.stored_file import StoredFile

__all__ = ["FetchesFiles", "FileMove", "SendsFiles"]


@dataclass
class FileMove:
    """The move of one file, for a store that moves whole files by itself.

    Attributes:
        file: the file, as it was listed.
        local: the local file that is read or replaced.
        pool: runs the parts of a large file.
        share: the progress of this file.
        skip_same: leave the other side as it is, if it has the same content already.
        check: called with the SHA-256 of what was read of the local file, before that is published; it raises
            `FileChangedError` if the file was rewritten meanwhile. Only the listed size of a file is read.
    """

    file: StoredFile
    local: Path
    pool: TransferPool
    share: FileShare
    skip_same: bool = False
    check: Callable[[str], None] = lambda sha256: None


@runtime_checkable
class SendsFiles(Protocol):
    """A store that takes local files by itself: in parts, resumed after a kill, with a checksum."""

    def sends_in_parts(self, size_bytes: int) -> bool:
        """Whether a file of this size is sent in parts, on the threads of the pool."""
        ...

    def send_file(self, move: FileMove) -> StoredFile:
        """Make or replace the file `move.file.path` by the local file; what the store then has."""
        ...


@runtime_checkable
class FetchesFiles(Protocol):
    """A store that writes local files by itself: in parts, resumed after a kill, with a checksum."""

    def fetches_in_parts(self, size_bytes: int) -> bool:
        """Whether a file of this size is fetched in ranges, on the threads of the pool."""
        ...

    def fetch_file(self, move: FileMove) -> StoredFile:
        """Replace the local file by the stored one; the facts about the version that was read."""
        ...
