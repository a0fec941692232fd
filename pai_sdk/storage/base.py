"""What a store does; `storage.store` has the stores of this package, and opens one by its URI."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Protocol, runtime_checkable

from pai_sdk.storage.stored_file import StoredFile, Unlisted

__all__ = ["Store"]


@runtime_checkable
class Store(Protocol):
    """Files below one root. Safe to use from many threads.

    Behaviors and assumptions, which `tests/unit/storage/store_conformance.py` checks for every store:

    1. A path never leads out of the root: `..`, an absolute path and an empty part are `InvalidInputError`.
    2. A file that is not there is `ObjectNotFoundError`; any other failure is another `StorageError`.
    3. `list` is in the order of the paths' UTF-8 bytes. It reads as the caller goes on.
    4. `write` replaces atomically. A reader gets the old content or the new one.
    5. `etag` changes with the content.
    6. Calls over a network have timeouts, and retries as `RetryPolicy` has them. For file systems of fsspec, the
       timeouts are those of their libraries.
    7. `write` may iterate over content again from its beginning, if that can be iterated again. It publishes
       nothing if reading the content fails.
    8. A store may have a method `exists`: whether the root is there, also without files. Without it, `DirSync`
       takes a source without files for one that is not there.
    """

    @property
    def uri(self) -> str:
        """The URI of the root, with a `/` at its end: `oss://bucket/prefix/`, `file:///data/`, `memory://x/`."""
        ...

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
        ...

    def head(self, path: str) -> StoredFile:
        """The facts about a file.

        Raises:
            ObjectNotFoundError: there is no such file.
        """
        ...

    def read(self, path: str, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        """The bytes from `start` to `end` (which is not among them), in pieces; all of one version of the file.

        Raises:
            ObjectNotFoundError: there is no such file; raised when the first piece is asked for.
        """
        ...

    def write(self, path: str, content: bytes | Path | Iterable[bytes], *, executable: bool = False) -> StoredFile:
        """Make or replace a file.

        Args:
            path: the file. With a `/` at its end, an empty folder is made.
            content: its bytes, the local file that has them, or pieces.
            executable: whether it is a program.
        """
        ...

    def copy(self, source: str, target: str) -> StoredFile:
        """Copy a file within the store, without moving its bytes over the network where the store can do that.

        Raises:
            ObjectNotFoundError: there is no such file.
        """
        ...

    def delete(self, paths: Iterable[str]) -> None:
        """Delete files; what is not there is no error. With a `/` at its end, an empty folder."""
        ...
