"""Local cache of OSS objects by content, for the inputs of jobs on this machine."""

from __future__ import annotations

import math
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from pai_sdk._core.files import locked
from pai_sdk._data.storage.base import FileMove
from pai_sdk._data.storage.objects import ObjectInfo, must_accept_file
from pai_sdk._data.storage.pool import TransferPool
from pai_sdk._data.storage.stored_file import StoredFile
from pai_sdk._data.storage.stores.local import LocalStore
from pai_sdk._data.storage.stores.oss import OssStore
from pai_sdk._data.storage.sync.dir_sync import DirSync
from pai_sdk._data.storage.uri import OssUri

if TYPE_CHECKING:
    from pai_sdk._data.storage.oss.client import OssClient

_DEFAULT_LIMIT_BYTES = 20 << 30


class InputCache:
    """Local cache of OSS objects by content: unchanged objects are downloaded once.

    Several processes may copy inputs from it concurrently; each object is downloaded by one of them.

        objects/<etag>-<size>    the objects
        objects/.<name>.part     a download in progress
        locks/<etag>-<size>      locked (flock) by the process that downloads this object
        locks/.filling           locked (shared) by processes that copy inputs; excludes `shrink`
    """

    def __init__(self, folder: Path, *, limit_bytes: int = _DEFAULT_LIMIT_BYTES) -> None:
        self._objects = folder / "objects"
        self._locks = folder / "locks"
        self._limit_bytes = limit_bytes

    def fill(self, client: OssClient, uri: OssUri, target: Path, *, progress: bool) -> None:
        """Fills a local folder with a file or a folder of OSS, as hard links to cached objects."""
        for folder in (self._objects, self._locks):
            folder.mkdir(parents=True, exist_ok=True)
        with locked(self._locks / ".filling", shared=True):
            self._fill(client, uri, target, progress=progress)
        # After the shared lock is released: the last process can acquire it exclusively.
        self.shrink()

    def _fill(self, client: OssClient, uri: OssUri, target: Path, *, progress: bool) -> None:
        single = None if uri.is_dir else client.head(uri)
        if single is not None:
            destination = LocalStore(target).place(uri.name)
            assert destination is not None  # noqa: S101 - the name has no slash at its end
            return self.put(client, single, destination)
        source = _CachedObjects(client, uri, self)
        DirSync(source, LocalStore(target), remember=False, progress=progress, title="fetching inputs").run()
        return None

    def put(self, client: OssClient, info: ObjectInfo, destination: Path) -> None:
        """Creates a local file as a hard link to the cached object, which is downloaded if it is missing."""
        cached = self._fetched(client, info)
        must_accept_file(destination)
        try:
            os.link(cached, destination)
        except OSError:  # another file system, or one without hard links
            shutil.copy(cached, destination)

    def _fetched(self, client: OssClient, info: ObjectInfo) -> Path:
        """Returns the cached object; downloads it if it is missing."""
        name = _name_of(info)
        # Other processes that need this object wait for the download instead of repeating it.
        with locked(self._locks / name):
            cached = self._objects / name
            if not cached.exists():
                # A rename publishes a complete object; `shrink` deletes the parts of crashed downloads.
                part = self._objects / f".{name}.part"
                # The object may have changed since it was listed; then the job gets the new content.
                cached = self._objects / _name_of(client.get_file(info.uri, part))
                part.replace(cached)
            # The modification time is the time of the last use, by which `shrink` sorts.
            os.utime(cached)
        return cached

    def shrink(self) -> None:
        """Deletes the least recently used objects above the limit; jobs keep their hard links."""
        with locked(self._locks / ".filling", waits=False) as is_exclusive:
            # Inputs are being copied; the last process that copies inputs shrinks the cache.
            if not is_exclusive:
                return
            # Safe only with the exclusive lock: no process downloads or waits for a lock file now.
            for leftover in (*self._objects.glob(".*.part"), *self._locks.glob("[!.]*")):
                leftover.unlink()
            objects = [(entry.stat().st_mtime, entry.stat().st_size, entry) for entry in self._objects.iterdir()]
            total = sum(size for _, size, _ in objects)
            for _, size, entry in sorted(objects, key=lambda item: item[0]):
                if total <= self._limit_bytes:
                    return
                entry.unlink()
                total -= size


class _CachedObjects(OssStore):
    """A folder of OSS whose objects are read through the cache."""

    def __init__(self, client: OssClient, uri: OssUri, cache: InputCache) -> None:
        super().__init__(client, uri)
        self._cache = cache

    def cancelled_by(self, pool: TransferPool) -> _CachedObjects:
        """Returns a store that is cancelled with a transfer."""
        return _CachedObjects(self.client.cancelled_by(pool.stopped, pool.may_retry), self.folder, self._cache)

    @property
    def largest_get_bytes(self) -> float:
        """Returns infinity: an object is downloaded in one request."""
        return math.inf

    def get_file(self, move: FileMove) -> StoredFile:
        """Creates the local file as a hard link to the cached object."""
        file = move.file
        info = ObjectInfo(self.folder.join(file.path), file.size_bytes, file.etag, {})
        self._cache.put(self.client, info, move.target_path())
        move.share.advance(file.size_bytes)
        move.is_exact = True
        return move.target.head(move.path)


def _name_of(info: ObjectInfo) -> str:
    return f"{info.etag.lower()}-{info.size_bytes}"
