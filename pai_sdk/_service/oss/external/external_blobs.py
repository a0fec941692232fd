"""Large contents of objects in an external store, such as a bucket of S3 or OSS; the index stays local.

Content is written to `incoming/` first, as without such a store, and uploaded when complete; then the row of the
index is committed. So a name never refers to partial content. Uploads of a process that died before the commit are
swept a day later. Appendable contents, and the parts of unfinished uploads, stay in the folder.
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

from pai_sdk._data.storage.base import Store
from pai_sdk._service.oss.blobs import SHARDS, Blob, BlobFolder, BlobRange, BlobWriter
from pai_sdk._service.oss.error_codes import oss_error, unavailable
from pai_sdk._service.oss.external.claim import claim
from pai_sdk._service.oss.external.content_reader import ContentReader, FileChunks, StoredChunks
from pai_sdk._service.oss.object_rows import ContentLimits
from pai_sdk.errors import ObjectNotFoundError, PaiError, StorageError

_log = logging.getLogger(__name__)

EXTERNAL = "ext-"
"""The prefix of names of external contents. No name of a file or of an index row has it."""

_BUFFER_BYTES = 1 << 16
_MAX_COPY_BYTES = 1 << 30  # stores do not copy more than this with one request


def is_external(blob: str) -> bool:
    """Returns whether the content of that name is in an external store."""
    return blob.startswith(EXTERNAL)


class ExternalBlobs(BlobFolder):
    """Contents in an external store of this service; those that are written or appended to are in the folder."""

    external_shards = tuple(EXTERNAL + shard for shard in SHARDS)

    def __init__(self, root: Path, store: Store, limits: ContentLimits, *, is_referenced: bool) -> None:
        super().__init__(root, limits)
        self._store = store
        # The states of a removed content: has readers, pending delete (only while it has readers), being deleted.
        # `_guard` protects all three; no request to the store is made under it.
        self._readers: Counter[str] = Counter()
        self._pending_deletes: set[str] = set()
        self._deleting: set[str] = set()
        self._guard = threading.Lock()
        claim(root, store, is_referenced=is_referenced)

    def publish(self, writer: BlobWriter) -> Blob:
        """Uploads what was written."""
        name = self._upload([writer.flushed_path()])
        return Blob(name, writer.size_bytes, writer.etag, crc64=writer.crc64)

    def join(self, ranges: Sequence[BlobRange]) -> str:
        """Uploads the parts in the folder as one content; returns its name."""
        spans = [(each.start, each.size_bytes) for each in ranges]
        return self._upload([self.path(each.name) for each in ranges], spans)

    def fill(self, name: str, size_bytes: int, ranges: Mapping[int, BlobRange]) -> bool:
        """Does nothing: complete contents are in the external store."""
        return False

    def _upload(self, files: Sequence[Path], spans: Sequence[tuple[int, int]] = ()) -> str:
        name, chunks = _new_name(), FileChunks(files, spans)
        try:
            with self._translate_errors():
                self._store.write(_key(name), chunks)
        except Exception:
            if chunks.missing is not None:
                # A local file is missing: not an error of the store.
                raise chunks.missing from None
            raise
        return name

    def open(self, name: str) -> tuple[BinaryIO, int]:
        """Returns a reader of a content and its size in bytes; the content stays until the reader is closed."""
        if not is_external(name):
            return super().open(name)
        # Registered before the first request: from here on, `remove` waits for this reader.
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
        """Releases a reader; deletes a content that waited for its last one."""
        with self._guard:
            self._readers[name] -= 1
            if self._readers[name] > 0:
                return
            del self._readers[name]
            if name not in self._pending_deletes:
                return
            # Under the guard: no reader can open the content between here and its deletion.
            self._pending_deletes.remove(name)
            self._deleting.add(name)
        self._delete([name])

    def share(self, name: str) -> str:
        """Copies a content inside the store; returns the name of the copy."""
        if not is_external(name):
            return super().share(name)
        # A new content instead of a second reference: each one has exactly one object, and is deleted with it.
        copy_name = _new_name()
        with self._translate_errors():
            if self._store.head(_key(name)).size_bytes <= _MAX_COPY_BYTES:
                self._store.copy(_key(name), _key(copy_name))
            else:
                self._store.write(_key(copy_name), StoredChunks(self._store, _key(name)))
        return copy_name

    def remove(self, names: Iterable[str]) -> None:
        """Removes contents; one with readers is deleted when the last one is closed."""
        all_names = list(names)
        super().remove([name for name in all_names if not is_external(name)])
        external = [name for name in all_names if is_external(name)]
        with self._guard:
            # Decided under the guard: a content has either readers or a deletion in progress.
            unread = [name for name in external if name not in self._readers]
            self._pending_deletes.update(name for name in external if name in self._readers)
            self._deleting.update(unread)
        self._delete(unread)

    def _delete(self, names: Sequence[str]) -> None:
        if not names:
            return
        try:
            self._store.delete([_key(name) for name in names])
        # Only logged, because no object needs the contents any more; the sweep tries again.
        except PaiError as error:
            _log.warning("%d contents in %s cannot be deleted now: %s", len(names), self._store.uri, error)
        finally:
            with self._guard:
                self._deleting.difference_update(names)

    def sizes(self, shard: str) -> dict[str, int]:
        """Returns the contents of a shard with their sizes in bytes."""
        if not is_external(shard):
            return super().sizes(shard)
        with self._translate_errors():
            files = [
                (file.path.rpartition("/")[2], file.size_bytes) for file in self._store.list(f"{_folder(shard)}/")
            ]
        return {name: size for name, size in files if name.startswith(shard)}

    def size_of(self, name: str) -> int:
        """Returns the size of a content in bytes; -1 if it is missing."""
        if not is_external(name):
            return super().size_of(name)
        try:
            with self._translate_errors():
                return self._store.head(_key(name)).size_bytes
        except FileNotFoundError:
            return -1

    def old_names(self, names: Iterable[str]) -> list[str]:
        """Returns the names of an earlier process; of external contents, those that are a day old."""
        all_names = list(names)
        local = super().old_names(name for name in all_names if not is_external(name))
        return local + [name for name in all_names if is_external(name) and self._is_old(name)]

    def _is_old(self, name: str) -> bool:
        try:
            with self._translate_errors():
                modified_ns = self._store.head(_key(name)).modified_ns
        except FileNotFoundError:
            return False
        return modified_ns is not None and time.time() - modified_ns / 1e9 > self.limits.min_external_age_s

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Raises errors of the store as those of a folder: a missing content as `FileNotFoundError`."""
        try:
            yield
        except ObjectNotFoundError as error:
            raise FileNotFoundError(str(error)) from error
        except StorageError as error:
            _log.warning("%s cannot be used now: %s", self._store.uri, error)
            raise unavailable() from error


def _new_name() -> str:
    # 32 characters, the size of the column `blob`.
    return EXTERNAL + uuid.uuid4().hex[4:]


def _folder(name: str) -> str:
    return f"blobs/{name.removeprefix(EXTERNAL)[:2]}"


def _key(name: str) -> str:
    return f"{_folder(name)}/{name}"
