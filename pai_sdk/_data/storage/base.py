"""The base class of all stores, and the move of one file between two of them.

`storage.store` has the stores of this package, and opens one by its URI. `storage.sync` moves folders.
"""

from __future__ import annotations

import hashlib
import math
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from pai_sdk._data.storage.content_hash import SMALL_BYTES, hexadecimal
from pai_sdk._data.storage.crc64 import checksum_of
from pai_sdk._data.storage.pool import TransferPool
from pai_sdk._data.storage.progress import FileShare
from pai_sdk._data.storage.stored_file import StoredFile, Unlisted
from pai_sdk.errors import FileChangedError, InvalidInputError, ObjectNotFoundError, Problem, StorageError

# The times of files advance in steps of up to 10 ms on Linux.
_CLOCK_TICK_S = 0.02
# A part that is empty, `.` or `..`.
_OUTSIDE = re.compile(r"(?:\A|/)\.{0,2}(?:/|\Z)|\0")


def checked_path(path: str) -> str:
    """Returns a path within a store unchanged; refuses one that leads out of the store, or names no file."""
    if _OUTSIDE.search(path.removesuffix("/")):
        hint = "give a relative path without '..', '.' and empty parts"
        raise InvalidInputError([Problem(repr(path), "is not a path within the store", hint)])
    return path


class Store(ABC):
    """Files below one root. Safe to use from many threads.

    A new store implements `list`, `head`, `read`, `write`, `copy` and `delete`. The other methods have an
    implementation here; a store overrides those that it can do better.

    Behaviors and assumptions, which `tests/unit/data/storage/stores/store_conformance.py` checks for every store:

    1. A path never leads out of the root: `..`, an absolute path and an empty part are `InvalidInputError`.
    2. A file that does not exist is `ObjectNotFoundError`; any other failure is another `StorageError`.
    3. `list` is in the order of the paths' UTF-8 bytes. It reads as the caller iterates.
    4. `write` replaces atomically. A reader gets the old content or the new one.
    5. `etag` changes with the content.
    6. Calls over a network have timeouts, and retries as `RetryPolicy` has them. For file systems of fsspec, the
       timeouts are those of their libraries.
    7. `write` may iterate over content again from its beginning, if that can be iterated again. It publishes
       nothing if reading the content fails.
    8. `put_file` and `get_file` move one file. They replace atomically, too.

    Attributes:
        uri: the URI of the root, with a `/` at its end: `oss://bucket/prefix/`, `file:///data/`, `memory://x/`.
        root: the folder, of a store on the local disk; None for any other.
        compares_content: True if `get_file` leaves a local file that has the content already.
    """

    uri: str
    root: Path | None = None
    compares_content: ClassVar[bool] = False

    @property
    def identity(self) -> str:
        """A string that identifies the store: two services may have a bucket of the same name."""
        return self.uri

    @property
    def largest_put_bytes(self) -> float:
        """The size of the largest local file that `put_file` sends at once; a larger one is sent in parts."""
        return math.inf

    @property
    def largest_get_bytes(self) -> float:
        """The size of the largest file that `get_file` fetches at once; a larger one is fetched in ranges."""
        return math.inf

    @abstractmethod
    def list(
        self, prefix: str = "", *, folders: bool = False, unlisted: Unlisted | None = None
    ) -> Iterator[StoredFile]:
        """All files whose paths begin with `prefix`, at any depth, sorted by path.

        Args:
            prefix: the beginning of the paths, not necessarily a folder: `runs/7` also finds `runs/71/x`.
            folders: list empty folders as well, each with a `/` at the end of its path.
            unlisted: called with each path that cannot be listed, such as a folder that may not be read. Without
                it, the first one is raised.
        """

    @abstractmethod
    def head(self, path: str) -> StoredFile:
        """The metadata of a file.

        Raises:
            ObjectNotFoundError: no such file.
        """

    @abstractmethod
    def read(self, path: str, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        """The bytes from `start` to `end` (which is not among them), in chunks; all of one version of the file.

        Raises:
            ObjectNotFoundError: no such file; raised when the first chunk is requested.
        """

    @abstractmethod
    def write(self, path: str, content: bytes | Path | Iterable[bytes], *, executable: bool = False) -> StoredFile:
        """Make or replace a file.

        Args:
            path: the file. With a `/` at its end, an empty folder is created.
            content: its bytes, the local file that has them, or chunks. Chunks with an attribute `size_bytes` are
                sent in parts that fit this size.
            executable: whether it is a program.
        """

    def create(self, path: str, content: bytes) -> bool:
        """Make a small file, unless there is one; returns whether this call made it.

        OSS, S3 and the other object stores decide that themselves, so that of several processes one wins.
        Other stores do not detect a process that writes at the same moment.
        """
        try:
            self.head(path)
        except ObjectNotFoundError:
            self.write(path, content)
            return True
        return False

    @abstractmethod
    def copy(self, source: str, target: str) -> StoredFile:
        """Copy a file within the store, without moving its bytes over the network where the store can do that.

        Raises:
            ObjectNotFoundError: no such file.
        """

    @abstractmethod
    def delete(self, paths: Iterable[str]) -> None:
        """Delete files; a missing file is no error. With a `/` at its end, an empty folder."""

    def copy_from(self, source: Store, path: str, target: str) -> bool:
        """Copy a file of another store without moving its bytes over the network.

        Returns:
            False if that is impossible; nothing has been done then.
        """
        if source is self:
            self.copy(path, target)
        return source is self

    def exists(self) -> bool:
        """True if the root exists, also without files; by default, if a file is in it."""
        return next(self.list(unlisted=lambda path, error: None), None) is not None

    def put_file(self, move: FileMove) -> StoredFile:
        """Make or replace the file `move.path` of this store by `move.file` of the source."""
        return self.write(move.path, move, executable=move.is_executable())

    def get_file(self, move: FileMove) -> StoredFile:
        """Make or replace the local file `move.path` of the target by `move.file` of this store."""
        return move.target.write(move.path, move, executable=move.is_executable())

    def write_link(self, path: str, target: str) -> StoredFile:
        """Make or replace a symbolic link.

        Raises:
            StorageError: the store keeps no links.
        """
        raise StorageError(f"{path} is a link, which {self.uri} cannot hold; choose links='follow'")

    def folders_in(self, path: str) -> frozenset[str] | None:
        """The names of the folders in a folder, empty without it; None in a store that has no folders."""
        return None

    def prepare(self) -> None:  # noqa: B027 - most stores need nothing
        """Make the root, and check that it can be written to: one error, not one for each file."""

    def place(self, path: str, size_bytes: int = 0) -> Path | None:
        """The local file of a path that is going to be written; None for a folder, and where there is no file."""
        return None

    def without_links(self) -> Store:
        """A store of the same files, whose `list` follows no links."""
        return self

    def cancelled_by(self, pool: TransferPool) -> Store:
        """A store for one transfer: its calls end when the transfer is stopped."""
        return self


@dataclass
class FileMove:
    """The move of one file to another store.

    Iterating over it reads the content, from the beginning each time. At the end of a reading of a local file,
    `check` makes sure that its bytes are of one moment; a copy that is half old and half new is not published.
    """

    file: StoredFile  # as it was before it is read; `get_file` replaces it by the version that it has read
    source: Store
    target: Store
    path: str  # in the target
    pool: TransferPool  # runs the parts of a large file
    share: FileShare  # the progress of this file
    skip_same: bool = False  # leave the target as it is, if it has the same content already
    is_exact: bool = False  # the content that was read is known to be that of `file`
    has_grown: bool = False  # the file became longer while it was read, and starts with the content that was read
    _checksum: int | str | None = field(default=None, init=False)

    @property
    def size_bytes(self) -> int:
        """Returns the number of bytes to move."""
        return self.file.size_bytes

    @property
    def local(self) -> Path | None:
        """Returns the local file that is read; None if the source is no folder on the local disk."""
        return None if self.source.root is None else self.source.root / self.file.path

    def target_path(self) -> Path:
        """Returns the local target file; its folder is created. For targets on the local disk."""
        path = self.target.place(self.path, self.file.size_bytes)
        assert path is not None  # noqa: S101 - only the path of a folder has none
        return path

    def is_executable(self) -> bool:
        """Returns True for a program."""
        # A listing of an object store does not include the mode, so this may send a HEAD request.
        return (
            self.file.executable if self.source.root is not None else self.source.head(self.file.path).executable
        )

    def __iter__(self) -> Iterator[bytes]:
        self.share.restart()
        content = self._new_sum()
        for chunk in self._chunks():
            if self.pool.stopped.is_set():
                raise StorageError("the transfer was stopped")
            content.update(chunk)
            yield chunk
            self.share.advance(len(chunk))
        self.check(content.value())

    def _chunks(self) -> Iterator[bytes]:
        if self.source.root is None:
            return self.source.read(self.file.path)  # of one version
        # A file that still grows would have no end.
        return self.source.read(self.file.path, 0, self.file.size_bytes)

    def check_bytes(self, content: bytes) -> None:
        """Checks the content that was read of a local file, before it is published."""
        total = self._new_sum()
        total.update(content)
        self.check(total.value())

    def check(self, checksum: int | str) -> None:
        """Checks the checksum of the content that was read of a local file, before it is published."""
        self._checksum = checksum
        if self.file.digest:
            if not self._is_as_hashed(checksum):
                raise FileChangedError(f"{self.local} was changed while it was being uploaded; run this again")
        elif self.source.root is not None:
            current = self.source.head(self.file.path)
            self.has_grown = current.etag != self.file.etag
            if (self.has_grown or not clock_passed(current)) and not self.is_prefix_of(current):
                raise FileChangedError(f"{self.file.path} was rewritten while it was read")

    def is_prefix_of(self, current: StoredFile) -> bool:
        """Returns True if the file still starts with the content that was read."""
        if self._checksum is None or current.size_bytes < self.file.size_bytes:
            return False
        if isinstance(self._checksum, str):
            return self.read_hashes()[0] == self._checksum
        return self.read_checksum() == self._checksum

    def read_checksum(self) -> int:
        """Reads the content again; returns `checksum_of` it."""
        checksum = 0
        for chunk in self._read_again():
            checksum = checksum_of(chunk, checksum)
        return checksum

    def read_hashes(self) -> tuple[str, int]:
        """Reads the content again; returns its SHA-256 and `checksum_of` it."""
        sha256, checksum = hashlib.sha256(), 0
        for chunk in self._read_again():
            sha256.update(chunk)
            checksum = checksum_of(chunk, checksum)
        return sha256.hexdigest(), checksum

    def _read_again(self) -> Iterator[bytes]:
        for chunk in self.source.read(self.file.path, 0, self.file.size_bytes):
            if self.pool.stopped.is_set():
                raise StorageError("the transfer was stopped")
            yield chunk

    def _is_as_hashed(self, checksum: int | str) -> bool:
        if self.file.crc64 is not None:
            return checksum == self.file.crc64
        sha256 = hexadecimal(self.file.digest)
        if isinstance(checksum, str):
            return checksum == sha256
        return self.read_hashes() == (sha256, checksum)

    def _new_sum(self) -> _Sum:
        is_small = self.file.crc64 is None and (bool(self.file.digest) or self.file.size_bytes <= SMALL_BYTES)
        return _Sum(is_small=is_small)


class _Sum:
    """The checksum of content in the order of its bytes: SHA-256 of small files, `checksum_of` others."""

    def __init__(self, *, is_small: bool) -> None:
        # Small files are the most, and need no import of anycrc, which takes as long as ten of them.
        self._sha256 = hashlib.sha256() if is_small else None
        self._checksum = 0

    def update(self, chunk: bytes) -> None:
        """Adds the next bytes."""
        if self._sha256 is None:
            self._checksum = checksum_of(chunk, self._checksum)
        else:
            self._sha256.update(chunk)

    def value(self) -> int | str:
        """Returns the checksum of all bytes."""
        return self._checksum if self._sha256 is None else self._sha256.hexdigest()


def clock_passed(file: StoredFile, *, wait: bool = False) -> bool:
    """Returns True if any later change of a local file gives it another modification time."""
    passed = not 0 <= time.time_ns() - (file.modified_ns or 0) < _CLOCK_TICK_S * 1e9
    if wait and not passed:
        time.sleep(_CLOCK_TICK_S)
    return passed
