"""A folder of a file system of fsspec as a store: memory, S3, HDFS and others. Needs the extra `[fs]`."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import Any

from pai_sdk.errors import InvalidInputError, MissingExtraError, ObjectNotFoundError, Problem, StorageError
from pai_sdk.storage.leftovers import is_unfinished
from pai_sdk.storage.store_paths import checked_path
from pai_sdk.storage.stored_file import StoredFile, Unlisted, pieces_of
from pai_sdk.storage.uri import uri_scheme

__all__ = ["FsspecStore"]

_PIECE_BYTES = 4 << 20
_SMALL_BYTES = 8 << 20
_OBJECT_STORES = {"s3", "gs", "gcs", "abfs", "az", "oss", "memory"}  # an object appears when it is complete
_DATES = ("mtime", "LastModified", "last_modified", "modified", "created")
_MARKS = ("ETag", "etag", "md5Hash", "checksum")


class FsspecStore:
    """A folder of a file system of fsspec.

    fsspec lists a folder with all that is below it at once, so `list` holds the facts of all files in memory.

    Args:
        uri: the folder.
        storage_options: passed on to the file system.

    Raises:
        MissingExtraError: fsspec, or the library that it needs for the scheme, is not installed.
        InvalidInputError: fsspec does not know the scheme.

    Example:
        >>> store = FsspecStore("memory://docs/")
        >>> store.write("a.txt", b"hello").size_bytes
        5
    """

    def __init__(self, uri: str, storage_options: Mapping[str, Any] | None = None) -> None:
        self._fs, root = _file_system(uri, dict(storage_options or {}))
        protocol = self._fs.protocol
        names = {protocol} if isinstance(protocol, str) else set(protocol)
        self._is_object_store = bool(names & _OBJECT_STORES)
        self._root = root.rstrip("/")
        self.uri = uri.rstrip("/") + "/"
        # Without it, a store would not see what other processes have written.
        self._fs.use_listings_cache = False

    def __repr__(self) -> str:
        return f"FsspecStore({self.uri!r})"

    def list(
        self, prefix: str = "", *, folders: bool = False, unlisted: Unlisted | None = None
    ) -> Iterator[StoredFile]:
        """All files whose paths begin with `prefix`, sorted by path."""
        folder = f"{self._root}/{prefix.rpartition('/')[0]}".rstrip("/")
        self._fs.invalidate_cache(folder)
        refused: list[OSError] = []
        # Where fsspec goes from folder to folder itself, it leaves out those that it cannot list.
        asked = {} if self._is_object_store else {"on_error": refused.append}
        try:
            found = self._fs.find(folder, withdirs=folders, detail=True, **asked)
        except FileNotFoundError:
            return
        except OSError as error:
            raise self._failed(prefix, error) from error
        for refusal in refused:
            if not isinstance(refusal, FileNotFoundError | NotADirectoryError):
                self._note_unlisted(str(refusal.filename or prefix), refusal, unlisted)
        parents = {name.rpartition("/")[0] for name in found}
        rows = []
        for name, facts in found.items():
            is_folder = facts.get("type") == "directory"
            path = self._relative(name) + ("/" if is_folder else "")
            is_shown = path != "/" and not (is_folder and name in parents) and not is_unfinished(path)
            if is_shown and path.startswith(prefix):
                rows.append((path, facts))
        for path, facts in sorted(rows, key=lambda row: row[0]):
            yield _stored_file(path, facts)

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
                piece: bytes = self._fs.cat_file(self._name(path), start=at, end=min(at + _PIECE_BYTES, end))
            except FileNotFoundError as error:
                raise self._not_found(path) from error
            except OSError as error:
                raise self._failed(path, error) from error
            yield piece
        if end - start > _PIECE_BYTES and self.head(path).etag != file.etag:
            raise StorageError(f"{self.uri}{path}: it was changed while it was read", uri=f"{self.uri}{path}")

    def write(self, path: str, content: bytes | Path | Iterable[bytes], *, executable: bool = False) -> StoredFile:
        """Make or replace a file. fsspec keeps no mark of programs, so `executable` has no effect."""
        name = self._name(path)
        try:
            if path.endswith("/"):
                self._fs.makedirs(name, exist_ok=True)
                return StoredFile(path, 0, None, "")
            if self._is_object_store:
                self._put(name, pieces_of(content))
            else:
                self._replace(name, pieces_of(content))
        except OSError as error:
            raise self._failed(path, error) from error
        return self.head(path)

    def _put(self, name: str, pieces: Iterator[bytes]) -> None:
        """Write an object, which appears when it is complete."""
        head = bytearray()
        for piece in pieces:
            head += piece
            if len(head) > _SMALL_BYTES and self._fs.protocol != "memory":  # which shows unfinished files
                break
        else:
            self._fs.pipe_file(name, bytes(head))
            return
        with self._fs.open(name, "wb", autocommit=False) as out:
            try:
                for piece in chain((bytes(head),), pieces):
                    out.write(piece)
            except BaseException:
                out.discard()
                raise
        out.commit()

    def _replace(self, name: str, pieces: Iterator[bytes]) -> None:
        """Write a file beside its name, then rename it."""
        folder = name.rpartition("/")[0]
        self._fs.makedirs(folder, exist_ok=True)
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
        try:
            if not self._is_object_store:
                self._fs.makedirs(self._name(target).rpartition("/")[0], exist_ok=True)
            self._fs.cp_file(self._name(source), self._name(target))
        except OSError as error:
            raise self._failed(source, error) from error
        return self.head(target)

    def delete(self, paths: Iterable[str]) -> None:
        """Delete files."""
        for path in paths:
            name = self._name(path)
            try:
                if path.endswith("/"):
                    self._fs.rmdir(name)
                else:
                    self._fs.rm_file(name)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                if not path.endswith("/"):  # a folder that is not empty stays
                    raise self._failed(path, error) from error
            if not self._is_object_store:
                self._remove_empty(name.rpartition("/")[0])

    def _remove_empty(self, folder: str) -> None:
        with suppress(OSError):
            while folder != self._root:
                self._fs.rmdir(folder)
                folder = folder.rpartition("/")[0]

    def _note_unlisted(self, path: str, error: OSError, unlisted: Unlisted | None) -> None:
        failed = self._failed(path, error)
        if unlisted is None:
            raise failed from error
        unlisted(path, failed)

    def _facts(self, path: str) -> Mapping[str, Any]:
        name = self._name(path)
        try:
            self._fs.invalidate_cache(name.rpartition("/")[0])
            facts: Mapping[str, Any] = self._fs.info(name)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise self._not_found(path) from error
        except OSError as error:
            raise self._failed(path, error) from error
        return facts

    def _name(self, path: str) -> str:
        return f"{self._root}/{checked_path(path)}".rstrip("/")

    def _relative(self, name: str) -> str:
        return name.removeprefix(self._root).strip("/")

    def _not_found(self, path: str) -> ObjectNotFoundError:
        return ObjectNotFoundError(f"{self.uri}{path}: there is no such file", uri=f"{self.uri}{path}")

    def _failed(self, path: str, error: OSError) -> StorageError:
        uri = f"{self.uri}{path}"
        return StorageError(
            f"{uri}: {error.strerror or error}",
            uri=uri,
            retryable=isinstance(error, TimeoutError | ConnectionError),
        )


def _file_system(uri: str, options: dict[str, Any]) -> tuple[Any, str]:
    """The file system of a URI, and the path on it."""
    scheme = uri_scheme(uri)
    try:
        import fsspec
    except ImportError as error:
        raise MissingExtraError(
            f"{uri} needs fsspec, which is not installed; run: pip install 'pai-sdk[fs]'", extra="fs"
        ) from error
    try:
        if scheme in ("hdfs", "webhdfs"):
            from pai_sdk.storage.hdfs import hdfs_files

            return hdfs_files(uri, options)
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
