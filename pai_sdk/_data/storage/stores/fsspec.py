"""A folder of a file system of fsspec as a store: memory, S3, HDFS and others. Needs the extra `[fs]`."""

from __future__ import annotations

import copy
import errno
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from pai_sdk._core.extras import missing_extra
from pai_sdk._core.retry import RetryPolicy
from pai_sdk._data.storage.base import Store, checked_path
from pai_sdk._data.storage.leftovers import is_unfinished
from pai_sdk._data.storage.pool import TransferPool
from pai_sdk._data.storage.stored_file import StoredFile, Unlisted, chunks_of
from pai_sdk._data.storage.stores.fsspec_requests import FsspecRequests, mark_failures
from pai_sdk._data.storage.uri import uri_scheme
from pai_sdk.errors import (
    InvalidInputError,
    MissingExtraError,
    ObjectNotFoundError,
    PathConflictError,
    Problem,
    StorageError,
)

_CHUNK_BYTES = 4 << 20
_SMALL_BYTES = 8 << 20
_MIN_PART_BYTES = 8 << 20
# S3 allows 10,000; the margin is for a file that grows while it is read.
_MAX_PARTS = 9_000
# In these stores an object appears when it is complete.
_OBJECT_STORES = {"s3", "gs", "gcs", "abfs", "az", "oss", "memory"}
_DATES = ("mtime", "LastModified", "last_modified", "modified", "created")
_MARKS = ("ETag", "etag", "md5Hash", "checksum")


class FsspecStore(Store):
    """A folder of a file system of fsspec.

    Requests are tried again after a broken connection, a timeout, 429 or 5xx. An object store lists a folder with
    all that is below it at once, so `list` then holds the metadata of all files in memory.

    Args:
        uri: the folder.
        storage_options: passed on to the file system, but for `retry`: a `RetryPolicy` in place of the usual one.

    Raises:
        MissingExtraError: fsspec, or the library that it needs for the scheme, is not installed.
        InvalidInputError: fsspec does not know the scheme.

    Example:
        >>> store = FsspecStore("memory://docs/")
        >>> store.write("a.txt", b"hello").size_bytes
        5
    """

    def __init__(self, uri: str, storage_options: Mapping[str, Any] | None = None) -> None:
        options = dict(storage_options or {})
        self.uri = uri.rstrip("/") + "/"
        self._requests = FsspecRequests(self.uri, options.get("retry") or RetryPolicy())
        # WebHdfsFiles retries by itself, with this policy.
        if uri_scheme(uri) != "webhdfs":
            options.pop("retry", None)
        self._fs, root = _file_system(uri, options)
        protocol = self._fs.protocol
        names = {protocol} if isinstance(protocol, str) else set(protocol)
        self._is_object_store = bool(names & _OBJECT_STORES)
        self._root = root.rstrip("/")
        # With the cache, a store would not see files of other processes.
        self._fs.use_listings_cache = False

    def __repr__(self) -> str:
        return f"FsspecStore({self.uri!r})"

    def cancelled_by(self, pool: TransferPool) -> FsspecStore:
        """A store for one transfer: its calls end when the transfer is stopped."""
        store = copy.copy(self)
        store._requests = self._requests.cancelled_by(pool)
        return store

    def exists(self) -> bool:
        """True if the folder exists, also without files."""
        try:
            return bool(self._info("", self._root)["type"] == "directory")
        except ObjectNotFoundError:
            return False

    def folders_in(self, path: str) -> frozenset[str] | None:
        """The names of the folders in a folder; None for object stores, which have none."""
        if self._is_object_store:
            return None
        folder = f"{self._root}/{path}".rstrip("/")
        self._fs.invalidate_cache(folder)
        try:
            entries = self._requests.send(path, partial(self._fs.ls, folder, detail=True))
        except (FileNotFoundError, NotADirectoryError):
            return frozenset()
        below = (self._relative(entry["name"]) for entry in entries if entry.get("type") == "directory")
        return frozenset(name.rpartition("/")[2] for name in below)

    def list(
        self, prefix: str = "", *, folders: bool = False, unlisted: Unlisted | None = None
    ) -> Iterator[StoredFile]:
        """All files whose paths begin with `prefix`, sorted by path."""
        folder = f"{self._root}/{prefix.rpartition('/')[0]}".rstrip("/")
        if self._is_object_store:
            rows = self._list_at_once(folder, prefix, folders=folders)
        else:
            rows = self._below(folder, None, folders=folders, unlisted=unlisted)
        for path, info in rows:
            if path.startswith(prefix) and not is_unfinished(path):
                yield _stored_file(path, info)

    def _list_at_once(self, folder: str, prefix: str, *, folders: bool) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Yields the files that an object store has below a folder, from one listing."""
        self._fs.invalidate_cache(folder)
        try:
            entries = self._requests.send(prefix, partial(self._fs.find, folder, withdirs=folders, detail=True))
        except FileNotFoundError:
            return
        parents = {name.rpartition("/")[0] for name in entries}
        rows = []
        for name, info in entries.items():
            is_folder = info.get("type") == "directory"
            path = self._relative(name) + ("/" if is_folder else "")
            if path != "/" and not (is_folder and name in parents):
                rows.append((path, info))
        yield from sorted(rows, key=lambda row: row[0])

    def _below(
        self, folder: str, info: Mapping[str, Any] | None, *, folders: bool, unlisted: Unlisted | None
    ) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Yields the files below a folder, one folder after the other."""
        # `find` and `walk` of fsspec skip folders that they cannot list without an error; a sync would then delete
        # the files of these folders in the target.
        parent = self._relative(folder)
        self._fs.invalidate_cache(folder)
        try:
            entries = self._requests.send(parent, partial(self._fs.ls, folder, detail=True))
        except (FileNotFoundError, NotADirectoryError):
            # The folder was removed since its entry was read.
            return
        except StorageError as error:
            if unlisted is None:
                raise
            unlisted(parent, error)
            return
        rows = []
        for entry in entries:
            path = self._relative(entry["name"])
            # For a file, `ls` returns the file itself.
            if path != parent:
                # A folder `a` is sorted after `a.txt`: the paths of its files continue with `/`.
                rows.append((f"{path}/" if entry.get("type") == "directory" else path, entry))
        if not rows and info is not None and folders:
            yield f"{parent}/", info
        for path, entry in sorted(rows, key=lambda row: row[0]):
            if path.endswith("/"):
                yield from self._below(entry["name"], entry, folders=folders, unlisted=unlisted)
            else:
                yield path, entry

    def head(self, path: str) -> StoredFile:
        """The metadata of a file.

        Raises:
            ObjectNotFoundError: no such file.
        """
        info = self._info(path, self._name(path))
        if (info.get("type") == "directory") != path.endswith("/"):
            raise self._requests.missing_file(path)
        return _stored_file(path, info)

    def read(self, path: str, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        """The bytes from `start` to `end`, in chunks.

        Raises:
            ObjectNotFoundError: no such file.
        """
        file = self.head(path)
        end = file.size_bytes if end is None else min(end, file.size_bytes)
        for at in range(start, end, _CHUNK_BYTES):
            try:
                yield self._requests.send(path, partial(self._range, path, file, at, min(at + _CHUNK_BYTES, end)))
            except (FileNotFoundError, NotADirectoryError) as error:
                raise self._requests.missing_file(path) from error
        if end - start > _CHUNK_BYTES and self.head(path).etag != file.etag:
            raise self._requests.changed_error(path)

    def _range(self, path: str, file: StoredFile, start: int, end: int) -> bytes:
        chunk: bytes = self._fs.cat_file(self._name(path), start=start, end=end)
        if len(chunk) != end - start:
            if self.head(path).etag != file.etag:
                raise self._requests.changed_error(path)
            raise ConnectionResetError(f"{len(chunk)} bytes arrived, not {end - start}")
        return chunk

    def write(self, path: str, content: bytes | Path | Iterable[bytes], *, executable: bool = False) -> StoredFile:
        """Make or replace a file. fsspec keeps no mark of programs, so `executable` has no effect.

        A large iterator, which can be read only once, is sent without retries.
        """
        name = self._name(path)
        if path.endswith("/"):
            self._requests.change(path, partial(self._fs.makedirs, name, exist_ok=True))
            return StoredFile(path, 0, None, "")
        can_repeat = True
        if isinstance(content, Iterator):
            # An iterator can be read only once; a small one is buffered, so that it can be sent again.
            head, is_all = _head_of(content)
            content, can_repeat = (head, True) if is_all else (chain((head,), content), False)
        put = partial(self._put, part_bytes=_part_bytes(content)) if self._is_object_store else self._replace
        try:
            self._requests.change(
                path, lambda: put(name, mark_failures(chunks_of(content))), can_repeat=can_repeat
            )
            return self.head(path)
        except StorageError as error:
            if self._is_object_store or error.retryable or not self._is_name_blocked(name):
                raise
            uri = f"{self.uri}{path}"
            message = f"{uri}: a file is where a folder is needed, or a folder where the file would be; remove it"
            raise PathConflictError(message, uri=uri) from error

    def create(self, path: str, content: bytes) -> bool:
        """Make a small file, unless there is one; returns whether this call made it.

        S3-compatible stores get `If-None-Match`. For a store that refuses the header, `head` decides.
        """
        if not self._is_object_store:
            return super().create(path, content)
        put = partial(self._fs.pipe_file, self._name(path), content, mode="create")
        try:
            self._requests.change(path, put)
        except StorageError as error:
            if isinstance(error.__cause__, FileExistsError):
                return False
            if not (isinstance(error.__cause__, NotImplementedError) or "NotImplemented" in str(error)):
                raise
            return super().create(path, content)
        return True

    def _is_name_blocked(self, name: str) -> bool:
        """Returns True if a file cannot have a name, because of a folder of that name, or a file above it."""
        # Only determines the reason of an error.
        with suppress(Exception):
            if self._fs.isdir(name):
                return True
            above = name.rpartition("/")[0]
            while len(above) > len(self._root):
                if self._fs.isfile(above):
                    return True
                above = above.rpartition("/")[0]
        return False

    def _put(self, name: str, chunks: Iterator[bytes], part_bytes: int | None) -> None:
        """Writes an object, which appears when it is complete."""
        # The memory file system shows unfinished files, so it gets complete ones.
        head, is_all = (b"".join(chunks), True) if self._fs.protocol == "memory" else _head_of(chunks)
        if is_all:
            self._fs.pipe_file(name, head)
            return
        # `part_bytes` are sent at once, and in memory until then; None for the default of fsspec.
        with self._fs.open(name, "wb", block_size=part_bytes, autocommit=False) as out:
            try:
                for chunk in chain((head,), chunks):
                    out.write(chunk)
            except BaseException:
                out.discard()
                raise
        out.commit()

    def _replace(self, name: str, chunks: Iterator[bytes]) -> None:
        """Writes a file beside its name, then renames it."""
        folder = name.rpartition("/")[0]
        self._fs.makedirs(folder, exist_ok=True)
        # `mv` would move the draft into it.
        if self._fs.isdir(name):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
        draft = f"{folder}/.pai-sdk-{secrets.token_hex(8)}.part"
        try:
            with self._fs.open(draft, "wb") as out:
                for chunk in chunks:
                    out.write(chunk)
            try:
                self._fs.mv(draft, name)
            except FileExistsError:
                # The rename of this file system does not replace files.
                self._fs.rm_file(name)
                self._fs.mv(draft, name)
        except BaseException:
            with suppress(OSError):
                self._fs.rm_file(draft)
            raise

    def copy(self, source: str, target: str) -> StoredFile:
        """Copy a file.

        Raises:
            ObjectNotFoundError: no such file.
        """
        self.head(source)
        if not self._is_object_store:
            self._requests.change(
                target, partial(self._fs.makedirs, self._name(target).rpartition("/")[0], exist_ok=True)
            )
        self._requests.change(source, partial(self._fs.cp_file, self._name(source), self._name(target)))
        return self.head(target)

    def delete(self, paths: Iterable[str]) -> None:
        """Delete files."""
        for path in paths:
            name = self._name(path)
            try:
                self._requests.send(
                    path, partial(self._fs.rmdir if path.endswith("/") else self._fs.rm_file, name)
                )
            except (FileNotFoundError, NotADirectoryError):
                continue
            except StorageError:
                # A folder that is not empty is not deleted.
                if not path.endswith("/"):
                    raise
            if not self._is_object_store:
                self._remove_empty(name.rpartition("/")[0])

    def _remove_empty(self, folder: str) -> None:
        with suppress(OSError):
            while folder != self._root:
                self._fs.rmdir(folder)
                folder = folder.rpartition("/")[0]

    def _info(self, path: str, name: str) -> Mapping[str, Any]:
        try:
            self._fs.invalidate_cache(name.rpartition("/")[0])
            info: Mapping[str, Any] = self._requests.send(path, partial(self._fs.info, name))
        except (FileNotFoundError, NotADirectoryError) as error:
            raise self._requests.missing_file(path) from error
        return info

    def _name(self, path: str) -> str:
        return f"{self._root}/{checked_path(path)}".rstrip("/")

    def _relative(self, name: str) -> str:
        # Some file systems give `/bucket/key` for `bucket/key`.
        return name.strip("/").removeprefix(self._root.strip("/")).strip("/")


def _part_bytes(content: bytes | Path | Iterable[bytes]) -> int | None:
    """Returns the size of the parts of an upload; None if the length of the content is unknown."""
    size_bytes = content.stat().st_size if isinstance(content, Path) else getattr(content, "size_bytes", None)
    if size_bytes is None:
        return None
    mib = 1 << 20
    return max(_MIN_PART_BYTES, -(-int(size_bytes) // (_MAX_PARTS * mib)) * mib)


def _head_of(chunks: Iterator[bytes]) -> tuple[bytes, bool]:
    """Returns the start of some content, and whether it is complete."""
    head = bytearray()
    for chunk in chunks:
        head += chunk
        if len(head) > _SMALL_BYTES:
            return bytes(head), False
    return bytes(head), True


def _file_system(uri: str, options: dict[str, Any]) -> tuple[Any, str]:
    """Returns the file system of a URI, and the path on it."""
    scheme = uri_scheme(uri)
    try:
        import fsspec
    except ImportError as error:
        raise missing_extra(f"{uri} needs fsspec", "fs") from error
    try:
        if scheme in ("hdfs", "webhdfs"):
            from pai_sdk._data.storage.stores.hdfs import hdfs_files

            return hdfs_files(uri, options)
        if scheme in ("s3", "s3a"):
            options = _s3_compatible_options(options)
        files, root = fsspec.url_to_fs(uri, **options)
    except ImportError as error:
        raise MissingExtraError(
            f"{uri}: fsspec needs another library for {scheme}:// ({error}); install it", extra="fs"
        ) from error
    except OSError as error:
        raise StorageError(f"{uri} cannot be opened: {error}", uri=uri) from error
    except ValueError as error:
        hint = "give a path, file://, oss://, or a scheme of fsspec"
        raise InvalidInputError([Problem("uri", f"{uri!r} cannot be opened: {error}", hint)]) from error
    return files, root


def _s3_compatible_options(options: dict[str, Any]) -> dict[str, Any]:
    """Returns options of s3fs with which S3-compatible stores accept uploads over https."""
    # botocore 1.36 and later sends bodies over https without a length, with a checksum at the end, which many
    # S3-compatible stores refuse. A value of the caller or of the environment is not changed.
    client = options.get("client_kwargs") or {}
    endpoint = options.get("endpoint_url") or client.get("endpoint_url")
    if not (endpoint or os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")):
        return options
    config = dict(options.get("config_kwargs") or {})
    for name in ("request_checksum_calculation", "response_checksum_validation"):
        if f"AWS_{name.upper()}" not in os.environ:
            config.setdefault(name, "when_required")
    return {**options, "config_kwargs": config}


def _stored_file(path: str, info: Mapping[str, Any]) -> StoredFile:
    date = next((info[name] for name in _DATES if info.get(name) is not None), None)
    size_bytes = int(info.get("size") or 0)
    mark = next((str(info[name]) for name in _MARKS if info.get(name)), "")
    modified_ns = _nanoseconds(date)
    etag = mark.strip('"') or f"{size_bytes:x}-{modified_ns or 0:x}-{info.get('ino') or 0:x}"
    return StoredFile(path, size_bytes, modified_ns, etag)


def _nanoseconds(date: object) -> int | None:
    if isinstance(date, datetime):
        return int(date.timestamp() * 1e9)
    return int(date * 1e9) if isinstance(date, int | float) else None
