"""A file system of fsspec, in memory, whose calls fail when a test says so."""

from __future__ import annotations

from collections import Counter
from typing import Any, ClassVar

from fsspec import register_implementation
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.spec import AbstractFileSystem

__all__ = ["Flaky", "FlakyObjects", "Refused"]


class Refused(Exception):
    """How libraries of object stores report a response: no OSError, with the status."""

    def __init__(self, status: int) -> None:
        super().__init__(f"HTTP {status}")
        self.status = status


class Flaky(MemoryFileSystem):  # type: ignore[misc]  # fsspec has no types
    """Folders and files in memory.

    Attributes:
        errors: what the next calls of a method raise, by the method and the end of the path.
        calls: how often each method was called.
        broken_reads: bytes that the next reads give before they break off without an error.
    """

    protocol: Any = "flaky"
    cachable = False
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]
    errors: ClassVar[dict[tuple[str, str], list[Exception]]] = {}
    calls: ClassVar[Counter[str]] = Counter()
    broken_reads: ClassVar[list[int]] = []

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(MemoryFileSystem._strip_protocol(path.replace(f"{cls.protocol}://", "memory://")))

    @classmethod
    def clear(cls) -> None:
        """Forget all files and errors."""
        cls.store, cls.pseudo_dirs, cls.errors = {}, [""], {}
        cls.calls, cls.broken_reads = Counter(), []

    def _may_fail(self, method: str, path: str) -> None:
        self.calls[method] += 1
        for (name, end), errors in self.errors.items():
            if name == method and path.rstrip("/").endswith(end) and errors:
                raise errors.pop(0)

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> Any:
        self._may_fail("ls", path)
        return super().ls(path, detail=detail, **kwargs)

    def info(self, path: str, **kwargs: Any) -> Any:
        self._may_fail("info", path)
        return super().info(path, **kwargs)

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any) -> bytes:
        self._may_fail("cat_file", path)
        content: bytes = AbstractFileSystem.cat_file(self, path, start, end)
        return content[: self.broken_reads.pop(0)] if self.broken_reads else content

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **kwargs: Any) -> None:
        self._may_fail("pipe_file", path)
        super().pipe_file(path, value, mode=mode, **kwargs)

    def mv(self, path1: str, path2: str, **kwargs: Any) -> None:
        self._may_fail("mv", path2)
        super().mv(path1, path2, **kwargs)

    def rm_file(self, path: str) -> None:
        self._may_fail("rm_file", path)
        if self._strip_protocol(path) not in self.store:
            raise FileNotFoundError(path)
        self._rm(path)


class FlakyObjects(Flaky):
    """The same as an object store; `find` lists it."""

    protocol: Any = ("flaky-objects", "s3")
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(MemoryFileSystem._strip_protocol(path.replace("flaky-objects://", "memory://")))

    def find(self, path: str, **kwargs: Any) -> Any:
        self._may_fail("find", path)
        return super().find(path, **kwargs)


register_implementation("flaky", Flaky, clobber=True)
register_implementation("flaky-objects", FlakyObjects, clobber=True)
