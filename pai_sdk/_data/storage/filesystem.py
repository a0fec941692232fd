"""`oss://` for pandas, pyarrow and all that open files through fsspec, over pai_sdk's own OSS client.

Importing this module needs fsspec. Nothing is registered before `register()` is called.
"""

from __future__ import annotations

import errno
import os
import tempfile
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from fsspec import register_implementation
from fsspec.spec import AbstractBufferedFile, AbstractFileSystem

from pai_sdk._data.storage.store import Store, open_store
from pai_sdk._data.storage.stored_file import StoredFile
from pai_sdk.errors import ObjectNotFoundError


def register() -> None:
    """Have fsspec open `oss://` with `OssFileSystem`, in this process.

    Example:
        >>> register()
        >>> import fsspec
        >>> fsspec.get_filesystem_class("oss").__name__
        'OssFileSystem'
    """
    register_implementation("oss", OssFileSystem, clobber=True)


class OssFileSystem(AbstractFileSystem):  # type: ignore[misc]  # fsspec has no types
    """The objects of all buckets that the keys of a session reach; paths are `bucket/key`.

    There are no empty folders: a folder exists while an object is in it. `ls` lists all that is below a folder,
    so for a complete large tree `find` costs no more than `ls`.

    Args:
        session: whose keys are used; the default session without it.
        client: an OSS client to use instead of the session's.
        kwargs: as for any file system of fsspec.

    Example:
        >>> OssFileSystem._strip_protocol("oss://models/runs/")
        'models/runs'
    """

    protocol = "oss"
    cachable = False

    def __init__(self, session: Any = None, *, client: Any = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._session, self._client = session, client

    def store_and_key(self, path: str) -> tuple[Store, str]:
        """Returns the store of a path's bucket, and the object's key."""
        bucket, _, key = self._strip_protocol(path).partition("/")
        if not bucket:
            raise _no_such_file(path)
        return open_store(f"oss://{bucket}", self._session, client=self._client), key

    def info(self, path: str, **kwargs: Any) -> dict[str, Any]:
        """The metadata of an object or a folder."""
        store, key = self.store_and_key(path)
        name = self._strip_protocol(path)
        if key:
            try:
                return _entry(name, store.head(key))
            except ObjectNotFoundError:
                pass
        if any(True for _ in store.list(f"{key}/" if key else "")):
            return _folder(name)
        raise _no_such_file(path)

    def find(
        self, path: str, maxdepth: int | None = None, withdirs: bool = False, detail: bool = False, **kwargs: Any
    ) -> Any:
        """All objects below a path, from one listing."""
        if maxdepth is not None or withdirs:
            return super().find(path, maxdepth=maxdepth, withdirs=withdirs, detail=detail, **kwargs)
        entries = {name: _entry(name, file) for name, file in self._files_below(path)}
        if not entries:
            try:
                entry = self.info(path)
                entries = {entry["name"]: entry} if entry["type"] == "file" else {}
            except FileNotFoundError:
                entries = {}
        return entries if detail else list(entries)

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> Any:
        """The entries of a folder, or the object of that name."""
        base = self._strip_protocol(path)
        entries: dict[str, dict[str, Any]] = {}
        for name, file in self._files_below(path):
            child, slash, _ = name[len(base) + 1 :].partition("/")
            child_path = f"{base}/{child}"
            entries[child_path] = (
                _folder(child_path) if slash else entries.get(child_path, _entry(child_path, file))
            )
        if not entries:
            entry = self.info(path)
            entries = {entry["name"]: entry}
        return list(entries.values()) if detail else list(entries)

    def _files_below(self, path: str) -> Any:
        store, key = self.store_and_key(path)
        bucket = self._strip_protocol(path).partition("/")[0]
        for file in store.list(f"{key}/" if key else ""):
            yield f"{bucket}/{file.path}", file

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any) -> bytes:
        """The bytes of an object, or of a part of it; negative positions count from its end."""
        store, key = self.store_and_key(path)
        try:
            if (start or 0) < 0 or (end or 0) < 0:
                size_bytes = store.head(key).size_bytes
                start, end = (at + size_bytes if at is not None and at < 0 else at for at in (start, end))
            return b"".join(store.read(key, max(start or 0, 0), end))
        except ObjectNotFoundError as error:
            raise _no_such_file(path) from error

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **kwargs: Any) -> None:
        """Make or replace an object."""
        self._must_be_new(path, mode)
        store, key = self.store_and_key(path)
        store.write(key, bytes(value))

    def put_file(
        self, lpath: str, rpath: str, callback: Any = None, mode: str = "overwrite", **kwargs: Any
    ) -> None:
        """Upload a local file; an interrupted upload of a large one is resumed."""
        if Path(lpath).is_dir():
            return
        self._must_be_new(rpath, mode)
        store, key = self.store_and_key(rpath)
        store.write(key, Path(lpath))

    def cp_file(self, path1: str, path2: str, **kwargs: Any) -> None:
        """Copy an object; within a bucket, OSS itself copies it."""
        (source, key), (target, new) = self.store_and_key(path1), self.store_and_key(path2)
        try:
            if source.uri == target.uri:
                source.copy(key, new)
            else:
                target.write(new, source.read(key))
        except ObjectNotFoundError as error:
            # Copying a folder does nothing: it exists only through its objects.
            if not self.isdir(path1):
                raise _no_such_file(path1) from error

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        """Delete objects; a folder only with `recursive`."""
        for name in self.expand_path(path, recursive=recursive, maxdepth=maxdepth):
            self.rm_file(name)

    def rm_file(self, path: str) -> None:
        """Delete an object."""
        store, key = self.store_and_key(path)
        if key:
            store.delete([key])

    def mkdir(self, path: str, create_parents: bool = True, **kwargs: Any) -> None:
        """Do nothing: a folder exists as soon as an object is in it."""

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Do nothing, as `mkdir`."""

    def rmdir(self, path: str) -> None:
        """Do nothing: a folder disappears with its last object."""

    def modified(self, path: str) -> datetime:
        """The time when the object was written."""
        seconds = self.info(path)["mtime"]
        if seconds is None:
            raise _no_such_file(path)
        return datetime.fromtimestamp(seconds, tz=timezone.utc)

    def _open(self, path: str, mode: str = "rb", block_size: Any = None, **kwargs: Any) -> _OssFile:
        self._must_be_new(path, "create" if "x" in mode else "overwrite")
        return _OssFile(self, path, mode.replace("x", "w"), block_size or "default", **kwargs)

    def _must_be_new(self, path: str, mode: str) -> None:
        if mode == "create" and self.exists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)


class _OssFile(AbstractBufferedFile):  # type: ignore[misc]  # fsspec has no types
    """An open object. Written bytes are stored in a temporary file, which becomes the object on close."""

    fs: OssFileSystem

    def _fetch_range(self, start: int, end: int) -> bytes:
        return self.fs.cat_file(self.path, start, end)

    def _initiate_upload(self) -> None:
        if "a" in self.mode:
            raise NotImplementedError(f"{self.path}: an object cannot be appended to; write it as a whole")
        self._draft = tempfile.TemporaryFile()  # noqa: SIM115 - closed by commit and discard

    def _upload_chunk(self, final: bool = False) -> bool:
        self._draft.write(self.buffer.getvalue())
        if final and self.autocommit:
            self.commit()
        return True

    def commit(self) -> None:
        """Uploads the temporary file as the object."""
        with self._draft as draft:
            draft.seek(0)
            store, key = self.fs.store_and_key(self.path)
            store.write(key, iter(lambda: draft.read(1 << 20), b""))

    def discard(self) -> None:
        """Deletes the written bytes."""
        self._draft.close()


def _entry(name: str, file: StoredFile) -> dict[str, Any]:
    mtime = None if file.modified_ns is None else file.modified_ns / 1e9
    return {"name": name, "size": file.size_bytes, "type": "file", "mtime": mtime, "ETag": file.etag}


def _folder(name: str) -> dict[str, Any]:
    return {"name": name, "size": 0, "type": "directory", "mtime": None}


def _no_such_file(path: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
