"""The large contents of objects in a store elsewhere, such as a bucket of S3 or OSS; the index stays here.

A content is written to `incoming/` first, as without such a store, and uploaded when it is whole; then the row of
the index is committed. So a name never stands for half a content; what was uploaded by a process that died before
the commit is swept away a day later. Contents that are appended to, and the parts of unfinished uploads, stay in
the folder.
"""

from __future__ import annotations

import io
import logging
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from pai_sdk.errors import ObjectNotFoundError, PaiError, StorageError
from pai_sdk.service.objects.blobs import SHARDS, Blob, BlobFolder, BlobRange, BlobWriter
from pai_sdk.service.objects.elsewhere.claim import claim
from pai_sdk.service.objects.elsewhere.content_reader import ContentReader, FileChunks, StoredChunks
from pai_sdk.service.objects.error_codes import oss_error, unavailable
from pai_sdk.storage.base import Store

__all__ = ["EXTERNAL", "ExternalBlobs", "is_external"]

_log = logging.getLogger(__name__)

EXTERNAL = "ext-"
"""What the names of contents elsewhere begin with. No name of a file or of a row of the index does."""

_MIN_AGE_S = 24 * 3600.0
_BUFFER_BYTES = 1 << 16
_MAX_COPY_BYTES = 1 << 30  # more than this, stores do not copy with one request


def is_external(blob: str) -> bool:
    """True if a content of that name is in a store elsewhere."""
    return blob.startswith(EXTERNAL)


class ExternalBlobs(BlobFolder):
    """Contents in a store elsewhere, and in the folder those that are still written or appended to.

    Args:
        root: the folder of the objects.
        store: where whole contents go. One service uses it: a marker in it has the id of that service.
        is_referenced: whether the index names contents there.

    Raises:
        ServiceStartError: the store cannot be used, or another service uses it.
    """

    external_shards = tuple(EXTERNAL + shard for shard in SHARDS)

    def __init__(self, root: Path, store: Store, *, is_referenced: bool) -> None:
        super().__init__(root)
        self._store = store
        # A content is read, then doomed (unless no one reads it), then being deleted. `_guard` protects all three;
        # no request to the store is made under it.
        self._readers: Counter[str] = Counter()
        self._pending_deletes: set[str] = set()
        self._deleting: set[str] = set()
        self._guard = threading.Lock()
        claim(root, store, is_referenced=is_referenced)

    def publish(self, writer: BlobWriter) -> Blob:
        """Upload what was written."""
        name = self._upload([writer.flushed_path()])
        return Blob(name, writer.size_bytes, writer.md5.hex().upper(), crc64=writer.crc64)

    def join(self, ranges: Sequence[BlobRange]) -> str:
        """Upload the parts in the folder as one content; returns its name."""
        spans = [(each.start, each.size_bytes) for each in ranges]
        return self._upload([self.path(each.name) for each in ranges], spans)

    def fill(self, name: str, size_bytes: int, ranges: Mapping[int, BlobRange]) -> bool:
        """Do nothing: whole contents are elsewhere."""
        return False

    def _upload(self, files: Sequence[Path], spans: Sequence[tuple[int, int]] = ()) -> str:
        name, chunks = _new_name(), FileChunks(files, spans)
        try:
            with self._translate_errors():
                self._store.write(_key(name), chunks)
        except Exception:
            if chunks.missing is not None:
                raise chunks.missing from None
            raise
        return name

    def open(self, name: str) -> tuple[BinaryIO, int]:
        """A reader of a content, which is not deleted before the reader is closed, and its size in bytes.

        Raises:
            FileNotFoundError: there is no such content, or it is just being deleted.
            StorageError: the store does not respond.
        """
        if not is_external(name):
            return super().open(name)
        with self._guard:
            if name in self._deleting:
                raise FileNotFoundError(f"{name} is being deleted")
            self._readers[name] += 1
        try:
            with self._translate_errors():
                size_bytes = self._store.head(_key(name)).size_bytes
        except BaseException:
            self._release(name)
            raise

        def fetch(start: int, end: int) -> bytes:
            try:
                with self._translate_errors():
                    return b"".join(self._store.read(_key(name), start, end))
            except FileNotFoundError as error:
                raise oss_error("InternalError", "The content was deleted from its store.") from error

        reader = ContentReader(fetch, size_bytes, lambda: self._release(name))
        return cast(BinaryIO, io.BufferedReader(reader, _BUFFER_BYTES)), size_bytes

    def _release(self, name: str) -> None:
        """A reader is closed; delete a content that waited for it."""
        with self._guard:
            self._readers[name] -= 1
            if self._readers[name] > 0:
                return
            del self._readers[name]
            if name not in self._pending_deletes:
                return
            self._pending_deletes.remove(name)
            self._deleting.add(name)
        self._delete([name])

    def share(self, name: str) -> str:
        """A copy of a content, made by the store; returns its name.

        Raises:
            FileNotFoundError: there is no such content.
        """
        if not is_external(name):
            return super().share(name)
        twin = _new_name()
        with self._translate_errors():
            if self._store.head(_key(name)).size_bytes <= _MAX_COPY_BYTES:
                self._store.copy(_key(name), _key(twin))
            else:
                self._store.write(_key(twin), StoredChunks(self._store, _key(name)))
        return twin

    def remove(self, names: Iterable[str]) -> None:
        """Remove contents; one that is read is deleted when its last reader is closed.

        No object needs them any more, so a failure is only logged: the sweep tries again.
        """
        all_names = list(names)
        super().remove([name for name in all_names if not is_external(name)])
        external = [name for name in all_names if is_external(name)]
        with self._guard:
            unread = [name for name in external if name not in self._readers]
            self._pending_deletes.update(name for name in external if name in self._readers)
            self._deleting.update(unread)
        self._delete(unread)

    def _delete(self, names: Sequence[str]) -> None:
        if not names:
            return
        try:
            self._store.delete([_key(name) for name in names])
        except PaiError as error:
            _log.warning("%d contents in %s cannot be deleted now: %s", len(names), self._store.uri, error)
        finally:
            with self._guard:
                self._deleting.difference_update(names)

    def sizes(self, shard: str) -> dict[str, int]:
        """The contents whose names begin so, with their sizes in bytes."""
        if not is_external(shard):
            return super().sizes(shard)
        with self._translate_errors():
            files = [
                (file.path.rpartition("/")[2], file.size_bytes) for file in self._store.list(f"{_folder(shard)}/")
            ]
        return {name: size for name, size in files if name.startswith(shard)}

    def size_of(self, name: str) -> int:
        """The size of a content in bytes; -1 when it is not there."""
        if not is_external(name):
            return super().size_of(name)
        try:
            with self._translate_errors():
                return self._store.head(_key(name)).size_bytes
        except FileNotFoundError:
            return -1

    def old_names(self, names: Iterable[str]) -> list[str]:
        """Those that were there before this process; of contents elsewhere, those that are a day old."""
        all_names = list(names)
        local = super().old_names(name for name in all_names if not is_external(name))
        return local + [name for name in all_names if is_external(name) and self._is_old(name)]

    def _is_old(self, name: str) -> bool:
        try:
            with self._translate_errors():
                modified_ns = self._store.head(_key(name)).modified_ns
        except FileNotFoundError:
            return False
        return modified_ns is not None and time.time() - modified_ns / 1e9 > _MIN_AGE_S

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Raise errors of the store as those of a folder: a missing content as `FileNotFoundError`."""
        try:
            yield
        except ObjectNotFoundError as error:
            raise FileNotFoundError(str(error)) from error
        except StorageError as error:
            _log.warning("%s cannot be used now: %s", self._store.uri, error)
            raise unavailable() from error


def _new_name() -> str:
    return EXTERNAL + uuid.uuid4().hex[4:]  # as long as the names of files


def _folder(name: str) -> str:
    return f"blobs/{name.removeprefix(EXTERNAL)[:2]}"


def _key(name: str) -> str:
    return f"{_folder(name)}/{name}"
