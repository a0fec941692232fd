"""The files of a run store for pyarrow. Importing this module needs pyarrow."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from pyarrow.fs import FileInfo, FileSelector, FileType, FSSpecHandler, PyFileSystem

from pai_sdk._data.storage.base import Store
from pai_sdk.errors import ObjectNotFoundError


def arrow_files(files: Any, locate: Callable[[str], tuple[Store, str]]) -> PyFileSystem:
    """Returns a file system for pyarrow: content by fsspec, names and listings by the stores of `locate`."""
    return PyFileSystem(_Handler(files, locate))


class _Handler(FSSpecHandler):  # type: ignore[misc]  # pyarrow has no types
    """Reads properties of files and folders from the stores."""

    # fsspec leaves out folders that it cannot list, and reports a refused key as a missing folder. pyarrow refuses
    # file systems that report `/bucket/key` for `bucket/key`.

    def __init__(self, files: Any, locate: Callable[[str], tuple[Store, str]]) -> None:
        super().__init__(files)
        self._locate = locate

    def get_file_info(self, paths: Sequence[str]) -> list[FileInfo]:
        """Returns type and size for each path."""
        return [self._info(path) for path in paths]

    def _info(self, path: str) -> FileInfo:
        store, name = self._locate(path)
        try:
            if name:
                return FileInfo(path, FileType.File, size=store.head(name).size_bytes)
        except ObjectNotFoundError:
            pass
        # Object storages have no folders: a name is one if files lie below it.
        has_files = any(True for _ in store.list(f"{name}/" if name else ""))
        return FileInfo(path, FileType.Directory if has_files else FileType.NotFound)

    def get_file_info_selector(self, selector: FileSelector) -> list[FileInfo]:
        """Returns the files below a folder."""
        return list(self._below(selector))

    def _below(self, selector: FileSelector) -> Iterator[FileInfo]:
        store, name = self._locate(selector.base_dir)
        prefix, exists = f"{name}/" if name else "", False
        for file in store.list(prefix):
            exists = True
            inner = file.path[len(prefix) :]
            if selector.recursive or "/" not in inner:
                yield FileInfo(f"{selector.base_dir.rstrip('/')}/{inner}", FileType.File, size=file.size_bytes)
        if not exists and not selector.allow_not_found:
            raise FileNotFoundError(selector.base_dir)
