"""A folder of the service's own object store as a store, for the files of jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import BinaryIO, TypeVar

from pai_sdk._core.retry import RetryPolicy
from pai_sdk._data.storage.base import Store, checked_path
from pai_sdk._data.storage.objects import META_EXECUTABLE
from pai_sdk._data.storage.stored_file import StoredFile, Unlisted, chunks_of
from pai_sdk._data.storage.uri import OssUri
from pai_sdk._service.oss.error_codes import oss_error
from pai_sdk._service.oss.integrity import DAMAGED, IntegrityCheck
from pai_sdk._service.oss.object_rows import StoredObject
from pai_sdk._service.oss.store import ObjectStore
from pai_sdk.errors import ObjectNotFoundError, StorageError

T = TypeVar("T")

HEADER_EXECUTABLE = f"x-oss-meta-{META_EXECUTABLE}"
"""The header that marks an object as an executable file."""

_CHUNK_BYTES = 1 << 20
_PATIENCE = RetryPolicy(deadline_s=600)


class BucketStore(Store):
    """The objects below a folder's key, accessed without a network."""

    def __init__(
        self, store: ObjectStore, folder: OssUri, *, check_cancelled: Callable[[], None] = lambda: None
    ) -> None:
        self._store = store
        self._folder = folder.as_dir()
        # Called for each chunk that is read or written; raises to cancel the transfer.
        self._check_cancelled = check_cancelled
        self.uri = str(self._folder)

    def exists(self) -> bool:
        """Returns whether the folder has an object, or an empty object marks it."""
        return any(True for _ in self._store.list(self._folder.bucket, self._folder.key, limit=1))

    def list(
        self, prefix: str = "", *, folders: bool = False, unlisted: Unlisted | None = None
    ) -> Iterator[StoredFile]:
        """Yields all files whose paths begin with `prefix`, sorted by path."""
        prefix_length = len(self._folder.key)
        for info in self._store.list(self._folder.bucket, self._folder.key + prefix):
            path = info.key[prefix_length:]
            if path and (folders or info.size_bytes or not path.endswith("/")):
                yield _stored_file(info, path)

    def head(self, path: str) -> StoredFile:
        """Returns the metadata of a file."""
        with self._with_uri(path):
            return _stored_file(self._store.head(self._folder.bucket, self._key(path)), path)

    def read(self, path: str, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        """Yields the bytes from `start` to `end` in chunks; a complete read is verified against the checksum."""
        with self._with_uri(path):
            info, stream = self._retry(partial(self._store.open_with_info, self._folder.bucket, self._key(path)))
        check = IntegrityCheck(info) if start == 0 and end is None else None
        with stream:
            stream.seek(start)
            remaining = (info.size_bytes if end is None else end) - start
            while remaining > 0 and (chunk := self._read(stream, min(remaining, _CHUNK_BYTES))):
                self._check_cancelled()
                remaining -= len(chunk)
                if check is not None:
                    check.update(chunk)
                yield chunk
        if check is not None and (problem := check.problem()):
            raise oss_error(DAMAGED, problem, bucket=info.bucket, key=info.key)

    def write(self, path: str, content: bytes | Path | Iterable[bytes], *, executable: bool = False) -> StoredFile:
        """Creates or replaces an object; when this returns, it survives a power failure."""
        key = self._key(path)
        with self._store.writer() as writer:
            for chunk in chunks_of(content):
                writer.write(chunk)
                self._check_cancelled()
            self._check_cancelled()
            headers = {HEADER_EXECUTABLE: "true"} if executable else {}
            finish = partial(self._store.finish, writer, self._folder.bucket, key, headers=headers)
            return _stored_file(self._retry(finish), path)

    def copy(self, source: str, target: str) -> StoredFile:
        """Copies an object without reading it."""
        bucket = self._folder.bucket
        with self._with_uri(source):
            copy = partial(self._store.copy, bucket, self._key(source), bucket, self._key(target))
            return _stored_file(self._retry(copy), target)

    def delete(self, paths: Iterable[str]) -> None:
        """Deletes objects, all or none."""
        self._store.delete_many(self._folder.bucket, [self._key(path) for path in paths])

    def _read(self, stream: BinaryIO, size_bytes: int) -> bytes:
        at = stream.tell()

        def read() -> bytes:
            stream.seek(at)
            return stream.read(size_bytes)

        return self._retry(read)

    def _retry(self, function: Callable[[], T]) -> T:
        """Retries while an external store of contents does not respond: a job has no client that would."""

        def is_transient(error: BaseException) -> bool:
            self._check_cancelled()
            return isinstance(error, StorageError) and error.code == "ServiceUnavailable"

        return _PATIENCE.call(function, is_transient=is_transient)

    @contextmanager
    def _with_uri(self, path: str) -> Iterator[None]:
        try:
            yield
        except ObjectNotFoundError as error:
            raise ObjectNotFoundError(f"{self.uri}{path}: no such object", uri=error.uri) from error

    def _key(self, path: str) -> str:
        return self._folder.key + checked_path(path)


def _stored_file(info: StoredObject, path: str) -> StoredFile:
    executable = info.headers.get(HEADER_EXECUTABLE) == "true"
    return StoredFile(path, info.size_bytes, int(info.modified_at * 1e9), info.etag, executable)
