"""A folder of a file system of fsspec as a store: memory, S3, HDFS and others. Needs the extra `[fs]`."""

from __future__ import annotations

import copy
import errno
import os
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from pai_sdk.base.extras import missing_extra
from pai_sdk.base.retry import RetryPolicy
from pai_sdk.errors import (
    FileChangedError,
    InvalidInputError,
    MissingExtraError,
    NameTakenError,
    ObjectNotFoundError,
    PaiError,
    Problem,
    StorageError,
)
from pai_sdk.storage.base import Store, checked_path
from pai_sdk.storage.leftovers import is_unfinished
from pai_sdk.storage.pool import TransferPool
from pai_sdk.storage.stored_file import StoredFile, Unlisted, pieces_of
from pai_sdk.storage.stores.passing_errors import may_pass
from pai_sdk.storage.uri import uri_scheme

__all__ = ["FsspecStore"]

_PIECE_BYTES = 4 << 20
_SMALL_BYTES = 8 << 20
_LEAST_PART_BYTES = 8 << 20
_MOST_PARTS = 9_000  # S3 takes 10,000, and a file may grow while it is read
_OBJECT_STORES = {"s3", "gs", "gcs", "abfs", "az", "oss", "memory"}  # an object appears when it is complete
_DATES = ("mtime", "LastModified", "last_modified", "modified", "created")
_MARKS = ("ETag", "etag", "md5Hash", "checksum")


class FsspecStore(Store):
    """A folder of a file system of fsspec.

    Requests are tried again after a broken connection, a timeout, 429 or 5xx. An object store lists a folder with
    all that is below it at once, so `list` then holds the facts of all files in memory.

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
        self._retry: RetryPolicy = options.get("retry") or RetryPolicy()
        if uri_scheme(uri) != "webhdfs":  # our client of it takes one, too
            options.pop("retry", None)
        self._may_retry: Callable[[], bool] = _always  # no lambda: a store can be pickled
        self._fs, root = _file_system(uri, options)
        protocol = self._fs.protocol
        names = {protocol} if isinstance(protocol, str) else set(protocol)
        self._is_object_store = bool(names & _OBJECT_STORES)
        self._root = root.rstrip("/")
        self.uri = uri.rstrip("/") + "/"
        # Without it, a store would not see what other processes have written.
        self._fs.use_listings_cache = False

    def __repr__(self) -> str:
        return f"FsspecStore({self.uri!r})"

    def cancelled_by(self, pool: TransferPool) -> FsspecStore:
        """The same store for one transfer."""

        def pause(seconds: float) -> None:
            pool.stopped.wait(seconds)

        made = copy.copy(self)
        made._may_retry = lambda: pool.may_retry() and not pool.stopped.is_set()
        if self._retry.sleep is time.sleep:
            made._retry = replace(self._retry, sleep=pause)
        return made

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
            entries = self._ask(path, partial(self._fs.ls, folder, detail=True))
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
            found = self._found(folder, prefix, folders=folders)
        else:
            found = self._below(folder, None, folders=folders, unlisted=unlisted)
        for path, facts in found:
            if path.startswith(prefix) and not is_unfinished(path):
                yield _stored_file(path, facts)

    def _found(self, folder: str, prefix: str, *, folders: bool) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """The files that an object store has below a folder, from one listing."""
        self._fs.invalidate_cache(folder)
        try:
            found = self._ask(prefix, partial(self._fs.find, folder, withdirs=folders, detail=True))
        except FileNotFoundError:
            return
        parents = {name.rpartition("/")[0] for name in found}
        rows = []
        for name, facts in found.items():
            is_folder = facts.get("type") == "directory"
            path = self._relative(name) + ("/" if is_folder else "")
            if path != "/" and not (is_folder and name in parents):
                rows.append((path, facts))
        yield from sorted(rows, key=lambda row: row[0])

    def _below(
        self, folder: str, own: Mapping[str, Any] | None, *, folders: bool, unlisted: Unlisted | None
    ) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """The files below a folder, one folder after the other.

        `find` and `walk` of fsspec leave out, in silence, folders that they cannot list; a sync would then delete
        what the target has of them.
        """
        here = self._relative(folder)
        self._fs.invalidate_cache(folder)
        try:
            entries = self._ask(here, partial(self._fs.ls, folder, detail=True))
        except (FileNotFoundError, NotADirectoryError):  # for a folder below: removed since its entry was read
            return
        except StorageError as error:
            if unlisted is None:
                raise
            unlisted(here, error)
            return
        rows = []
        for facts in entries:
            path = self._relative(facts["name"])
            if path != here:  # of a file, `ls` gives the file itself
                # A folder `a` comes behind `a.txt`: its files have paths that continue with `/`.
                rows.append((f"{path}/" if facts.get("type") == "directory" else path, facts))
        if not rows and own is not None and folders:
            yield f"{here}/", own
        for path, facts in sorted(rows, key=lambda row: row[0]):
            if path.endswith("/"):
                yield from self._below(facts["name"], facts, folders=folders, unlisted=unlisted)
            else:
                yield path, facts

    def head(self, path: str) -> StoredFile:
        """The facts about a file.

        Raises:
            ObjectNotFoundError: there is no such file.
        """
        facts = self._facts(path)
        if (facts.get("type") == "directory") != path.endswith("/"):
            raise self._not_found(path)
        return _stored_file(path, facts)

    def read(self, path: str, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        """The bytes from `start` to `end`, in pieces.

        Raises:
            ObjectNotFoundError: there is no such file.
        """
        file = self.head(path)
        end = file.size_bytes if end is None else min(end, file.size_bytes)
        for at in range(start, end, _PIECE_BYTES):
            try:
                yield self._ask(path, partial(self._range, path, file, at, min(at + _PIECE_BYTES, end)))
            except (FileNotFoundError, NotADirectoryError) as error:
                raise self._not_found(path) from error
        if end - start > _PIECE_BYTES and self.head(path).etag != file.etag:
            raise self._changed(path)

    def _range(self, path: str, file: StoredFile, start: int, end: int) -> bytes:
        piece: bytes = self._fs.cat_file(self._name(path), start=start, end=end)
        if len(piece) != end - start:
            if self.head(path).etag != file.etag:
                raise self._changed(path)
            raise ConnectionResetError(f"{len(piece)} bytes arrived, not {end - start}")
        return piece

    def write(self, path: str, content: bytes | Path | Iterable[bytes], *, executable: bool = False) -> StoredFile:
        """Make or replace a file. fsspec keeps no mark of programs, so `executable` has no effect.

        A large iterator, which can be read only once, is sent without retries.
        """
        name = self._name(path)
        if path.endswith("/"):
            self._change(path, partial(self._fs.makedirs, name, exist_ok=True))
            return StoredFile(path, 0, None, "")
        again = True
        if isinstance(content, Iterator):
            head, is_all = _head_of(content)  # read once, and sent as often as needed
            content, again = (head, True) if is_all else (chain((head,), content), False)
        put = partial(self._put, part_bytes=_part_bytes(content)) if self._is_object_store else self._replace
        try:
            self._change(path, lambda: put(name, _marked(pieces_of(content))), again=again)
            return self.head(path)
        except StorageError as error:
            if self._is_object_store or error.retryable or not self._is_taken(name):
                raise
            uri = f"{self.uri}{path}"
            what = f"{uri}: a file is where a folder is needed, or a folder where the file would be; remove it"
            raise NameTakenError(what, uri=uri) from error

    def create(self, path: str, content: bytes) -> bool:
        """Make a small file, unless there is one; returns whether this call made it.

        S3 and what speaks like it get `If-None-Match`. For one that refuses the header, `head` decides.
        """
        if not self._is_object_store:
            return super().create(path, content)
        put = partial(self._fs.pipe_file, self._name(path), content, mode="create")
        try:
            self._change(path, put)
        except StorageError as error:
            if isinstance(error.__cause__, FileExistsError):
                return False
            if not (isinstance(error.__cause__, NotImplementedError) or "NotImplemented" in str(error)):
                raise
            return super().create(path, content)
        return True

    def _is_taken(self, name: str) -> bool:
        """Returns True if a file cannot have a name, because of a folder of that name, or a file above it."""
        with suppress(Exception):  # only looks for the reason of an error
            if self._fs.isdir(name):
                return True
            above = name.rpartition("/")[0]
            while len(above) > len(self._root):
                if self._fs.isfile(above):
                    return True
                above = above.rpartition("/")[0]
        return False

    def _put(self, name: str, pieces: Iterator[bytes], part_bytes: int | None) -> None:
        """Write an object, which appears when it is complete.

        Args:
            name: of the object.
            pieces: its content.
            part_bytes: what is sent at once, and is in memory until then; by default what fsspec chooses.
        """
        # Memory shows unfinished files, so it gets them as a whole.
        head, is_all = (b"".join(pieces), True) if self._fs.protocol == "memory" else _head_of(pieces)
        if is_all:
            self._fs.pipe_file(name, head)
            return
        with self._fs.open(name, "wb", block_size=part_bytes, autocommit=False) as out:
            try:
                for piece in chain((head,), pieces):
                    out.write(piece)
            except BaseException:
                out.discard()
                raise
        out.commit()

    def _replace(self, name: str, pieces: Iterator[bytes]) -> None:
        """Write a file beside its name, then rename it."""
        folder = name.rpartition("/")[0]
        self._fs.makedirs(folder, exist_ok=True)
        if self._fs.isdir(name):  # `mv` would move the draft into it
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
        draft = f"{folder}/.pai-sdk-{secrets.token_hex(8)}.part"
        try:
            with self._fs.open(draft, "wb") as out:
                for piece in pieces:
                    out.write(piece)
            try:
                self._fs.mv(draft, name)
            except FileExistsError:  # of a file system whose rename replaces nothing
                self._fs.rm_file(name)
                self._fs.mv(draft, name)
        except BaseException:
            with suppress(OSError):
                self._fs.rm_file(draft)
            raise

    def copy(self, source: str, target: str) -> StoredFile:
        """Copy a file.

        Raises:
            ObjectNotFoundError: there is no such file.
        """
        self.head(source)
        if not self._is_object_store:
            self._change(target, partial(self._fs.makedirs, self._name(target).rpartition("/")[0], exist_ok=True))
        self._change(source, partial(self._fs.cp_file, self._name(source), self._name(target)))
        return self.head(target)

    def delete(self, paths: Iterable[str]) -> None:
        """Delete files."""
        for path in paths:
            name = self._name(path)
            try:
                self._ask(path, partial(self._fs.rmdir if path.endswith("/") else self._fs.rm_file, name))
            except (FileNotFoundError, NotADirectoryError):
                continue
            except StorageError:
                if not path.endswith("/"):  # a folder that is not empty stays
                    raise
            if not self._is_object_store:
                self._remove_empty(name.rpartition("/")[0])

    def _remove_empty(self, folder: str) -> None:
        with suppress(OSError):
            while folder != self._root:
                self._fs.rmdir(folder)
                folder = folder.rpartition("/")[0]

    def _ask(self, path: str, request: Callable[[], Any], *, again: bool = True) -> Any:
        """Make a request, again after an error that may pass.

        Raises:
            FileNotFoundError, NotADirectoryError: as the file system raises them.
            StorageError: any other failure.
        """
        try:
            return self._retry.call(
                request, is_transient=lambda error: again and may_pass(error) and self._may_retry()
            )
        except _ContentFailed as error:
            if not isinstance(error.cause, OSError):
                raise error.cause from error.cause.__cause__
            raise self._failed(path, error.cause) from error.cause
        except (PaiError, FileNotFoundError, NotADirectoryError):
            raise
        except Exception as error:  # libraries behind fsspec have errors that are no OSError
            raise self._failed(path, error) from error

    def _change(self, path: str, request: Callable[[], Any], *, again: bool = True) -> None:
        try:
            self._ask(path, request, again=again)
        except OSError as error:  # it does not mean that the file is missing
            raise self._failed(path, error) from error

    def _facts(self, path: str) -> Mapping[str, Any]:
        return self._info(path, self._name(path))

    def _info(self, path: str, name: str) -> Mapping[str, Any]:
        try:
            self._fs.invalidate_cache(name.rpartition("/")[0])
            facts: Mapping[str, Any] = self._ask(path, partial(self._fs.info, name))
        except (FileNotFoundError, NotADirectoryError) as error:
            raise self._not_found(path) from error
        return facts

    def _name(self, path: str) -> str:
        return f"{self._root}/{checked_path(path)}".rstrip("/")

    def _relative(self, name: str) -> str:
        # Some file systems give `/bucket/key` for `bucket/key`.
        return name.strip("/").removeprefix(self._root.strip("/")).strip("/")

    def _not_found(self, path: str) -> ObjectNotFoundError:
        return ObjectNotFoundError(f"{self.uri}{path}: there is no such file", uri=f"{self.uri}{path}")

    def _changed(self, path: str) -> FileChangedError:
        return FileChangedError(f"{self.uri}{path}: it was changed while it was read", uri=f"{self.uri}{path}")

    def _failed(self, path: str, error: Exception) -> StorageError:
        uri = f"{self.uri}{path}"
        why = error.strerror or error if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
        return StorageError(f"{uri}: {why}", uri=uri, retryable=may_pass(error))


class _ContentFailed(Exception):
    """The content to be written could not be read, so this is no error of the file system."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


def _marked(pieces: Iterator[bytes]) -> Iterator[bytes]:
    try:
        yield from pieces
    except Exception as error:
        raise _ContentFailed(error) from None


def _always() -> bool:
    return True


def _part_bytes(content: bytes | Path | Iterable[bytes]) -> int | None:
    """The size of the parts in which a content is sent; None if it is not known how long that is."""
    size_bytes = content.stat().st_size if isinstance(content, Path) else getattr(content, "size_bytes", None)
    if size_bytes is None:
        return None
    mib = 1 << 20
    return max(_LEAST_PART_BYTES, -(-int(size_bytes) // (_MOST_PARTS * mib)) * mib)


def _head_of(pieces: Iterator[bytes]) -> tuple[bytes, bool]:
    """The beginning of some content, and whether it is all of it."""
    head = bytearray()
    for piece in pieces:
        head += piece
        if len(head) > _SMALL_BYTES:
            return bytes(head), False
    return bytes(head), True


def _file_system(uri: str, options: dict[str, Any]) -> tuple[Any, str]:
    """The file system of a URI, and the path on it."""
    scheme = uri_scheme(uri)
    try:
        import fsspec
    except ImportError as error:
        raise missing_extra(f"{uri} needs fsspec", "fs") from error
    try:
        if scheme in ("hdfs", "webhdfs"):
            from pai_sdk.storage.stores.hdfs import hdfs_files

            return hdfs_files(uri, options)
        if scheme in ("s3", "s3a"):
            options = _for_any_s3(options)
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


def _for_any_s3(options: dict[str, Any]) -> dict[str, Any]:
    """Returns the options of s3fs with which stores other than that of AWS take what is sent over https.

    By default botocore (since 1.36) sends bodies over https without their length, with a checksum behind them,
    which many stores that speak like S3 refuse. A value of the caller, or in the environment, is not changed.
    """
    client = options.get("client_kwargs") or {}
    named = options.get("endpoint_url") or client.get("endpoint_url")
    if not (named or os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")):
        return options
    config = dict(options.get("config_kwargs") or {})
    for name in ("request_checksum_calculation", "response_checksum_validation"):
        if f"AWS_{name.upper()}" not in os.environ:
            config.setdefault(name, "when_required")
    return {**options, "config_kwargs": config}


def _stored_file(path: str, facts: Mapping[str, Any]) -> StoredFile:
    date = next((facts[name] for name in _DATES if facts.get(name) is not None), None)
    size_bytes = int(facts.get("size") or 0)
    mark = next((str(facts[name]) for name in _MARKS if facts.get(name)), "")
    modified_ns = _nanoseconds(date)
    etag = mark.strip('"') or f"{size_bytes:x}-{modified_ns or 0:x}-{facts.get('ino') or 0:x}"
    return StoredFile(path, size_bytes, modified_ns, etag)


def _nanoseconds(date: object) -> int | None:
    if isinstance(date, datetime):
        return int(date.timestamp() * 1e9)
    return int(date * 1e9) if isinstance(date, int | float) else None
