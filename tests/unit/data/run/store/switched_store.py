"""A store that fails while it is told to, and counts what it is asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from pai_sdk._data.storage.base import Store
from pai_sdk._data.storage.stored_file import StoredFile, Unlisted
from pai_sdk._data.storage.stores.local import LocalStore

__all__ = ["SwitchedStore"]


class SwitchedStore(Store):
    """A folder that is reached like a remote one.

    Attributes:
        list_error: raised by `list`, if any.
        read_errors: raised by `read`, by the path.
        calls: how often each method was called.
        read_bytes: how much was read.
    """

    def __init__(self, root: Path) -> None:
        self._store = LocalStore(root)
        self.uri = f"test://{root.name}/"
        self.list_error: Exception | None = None
        self.read_errors: dict[str, Exception] = {}
        self.calls: Counter[str] = Counter()
        self.read_bytes = 0

    def list(
        self, prefix: str = "", *, folders: bool = False, unlisted: Unlisted | None = None
    ) -> Iterator[StoredFile]:
        self.calls["list"] += 1
        if self.list_error is not None:
            raise self.list_error
        return self._store.list(prefix, folders=folders, unlisted=unlisted)

    def head(self, path: str) -> StoredFile:
        self.calls["head"] += 1
        return self._store.head(path)

    def read(self, path: str, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        self.calls["read"] += 1
        if path in self.read_errors:
            raise self.read_errors[path]
        for piece in self._store.read(path, start, end):
            self.read_bytes += len(piece)
            yield piece

    def write(self, path: str, content: bytes | Path | Iterable[bytes], *, executable: bool = False) -> StoredFile:
        return self._store.write(path, content, executable=executable)

    def copy(self, source: str, target: str) -> StoredFile:
        return self._store.copy(source, target)

    def delete(self, paths: Iterable[str]) -> None:
        self._store.delete(paths)
