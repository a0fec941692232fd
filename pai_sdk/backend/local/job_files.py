"""Copies of code and outputs of local jobs, and a cache for their inputs from OSS."""

from __future__ import annotations

import math
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from pai_sdk.base.files import locked
from pai_sdk.errors import CodeError, Problem, TransferError
from pai_sdk.storage.base import FileMove
from pai_sdk.storage.objects import ObjectInfo, make_folder, must_accept_file
from pai_sdk.storage.pool import TransferPool
from pai_sdk.storage.stored_file import StoredFile
from pai_sdk.storage.stores.local import LocalStore
from pai_sdk.storage.stores.oss import OssStore
from pai_sdk.storage.sync.dir_sync import DirSync
from pai_sdk.storage.tree import FileTree
from pai_sdk.storage.uri import OssUri

if TYPE_CHECKING:
    from pai_sdk.storage.oss.client import OssClient

_DEFAULT_LIMIT_BYTES = 20 << 30


def copy_tree(tree: FileTree, target: Path) -> None:
    """Put the files of a tree into a folder, as they are now.

    Raises:
        CodeError: some have gone since they were looked at; all of them are named.
    """
    problems = []
    for entry in tree.entries:
        place = target / entry.path
        place.parent.mkdir(parents=True, exist_ok=True)
        try:
            shutil.copyfile(tree.root / entry.path, place)
        except OSError as error:
            problems.append(Problem(entry.path, f"cannot be copied: {error.strerror or error}"))
            continue
        if entry.executable:
            place.chmod(place.stat().st_mode | 0o111)
    if problems:
        raise CodeError(problems)


class InputCache:
    """Objects of OSS on this machine, named by their content: what did not change is not fetched again.

    Several processes may fill jobs from it at once; each object is fetched by one of them.

        objects/<etag>-<size>    the objects
        objects/.<name>.part     one that is being fetched
        locks/<etag>-<size>      locked (flock) by the process that fetches that object
        locks/.filling           locked by all who fill a job; shared, so that nothing goes away meanwhile

    Args:
        folder: where they are kept.
        limit_bytes: what is over it goes, the longest unused first.
    """

    def __init__(self, folder: Path, *, limit_bytes: int = _DEFAULT_LIMIT_BYTES) -> None:
        self._objects = folder / "objects"
        self._locks = folder / "locks"
        self._limit_bytes = limit_bytes

    def fill(self, client: OssClient, uri: OssUri, target: Path, *, progress: bool) -> None:
        """Have a file or a folder of OSS in a local folder, which gets links to the cached objects.

        Raises:
            StorageError: nothing is there.
            TransferError: some objects could not be fetched; they are named.
        """
        for folder in (self._objects, self._locks):
            folder.mkdir(parents=True, exist_ok=True)
        with locked(self._locks / ".filling", shared=True):
            self._fill(client, uri, target, progress=progress)
        self.shrink()

    def _fill(self, client: OssClient, uri: OssUri, target: Path, *, progress: bool) -> None:
        single = None if uri.is_dir else client.head(uri)
        if single is not None:
            place = LocalStore(target).place(uri.name)
            assert place is not None  # noqa: S101 - the name has no slash at its end
            return self.put(client, single, place)
        source = _CachedObjects(client, uri, self)
        DirSync(source, LocalStore(target), remember=False, progress=progress, title="fetching inputs").run()
        return None

    def put(self, client: OssClient, info: ObjectInfo, place: Path) -> None:
        """Make a local file a link to the cached object, which is fetched if it is missing."""
        cached = self._fetched(client, info)
        must_accept_file(place)
        try:
            os.link(cached, place)
        except OSError:  # another file system, or one without links
            shutil.copy(cached, place)

    def _fetched(self, client: OssClient, info: ObjectInfo) -> Path:
        """The cached object; fetched if it is not there yet."""
        name = _name_of(info)
        with locked(self._locks / name):
            cached = self._objects / name
            if not cached.exists():
                # Fetched, so its name is known only at the end; `shrink` removes what a crash leaves.
                part = self._objects / f".{name}.part"
                # The object may have changed since it was listed; then that is what the job gets.
                cached = self._objects / _name_of(client.get_file(info.uri, part))
                part.replace(cached)
            os.utime(cached)
        return cached

    def shrink(self) -> None:
        """Remove the longest unused until the limit is kept; jobs that use them keep their links.

        While a job is filled, nothing is removed; the process that fills the last one does it.
        """
        with locked(self._locks / ".filling", waits=False) as is_alone:
            if not is_alone:
                return
            for leftover in (*self._objects.glob(".*.part"), *self._locks.glob("[!.]*")):
                leftover.unlink()
            kept = [(entry.stat().st_mtime, entry.stat().st_size, entry) for entry in self._objects.iterdir()]
            total = sum(size for _, size, _ in kept)
            for _, size, entry in sorted(kept, key=lambda one: one[0]):
                if total <= self._limit_bytes:
                    return
                entry.unlink()
                total -= size


class _CachedObjects(OssStore):
    """A folder of OSS whose objects are fetched through the cache."""

    def __init__(self, client: OssClient, uri: OssUri, cache: InputCache) -> None:
        super().__init__(client, uri)
        self._cache = cache

    def cancelled_by(self, pool: TransferPool) -> _CachedObjects:
        """The same store for one transfer."""
        return _CachedObjects(self.client.cancelled_by(pool.stopped, pool.may_retry), self.folder, self._cache)

    @property
    def largest_get_bytes(self) -> float:
        """Objects come to the cache in one request."""
        return math.inf

    def get_file(self, move: FileMove) -> StoredFile:
        """Make the local file a link to the cached object."""
        file = move.file
        info = ObjectInfo(self.folder.join(file.path), file.size_bytes, file.etag, {})
        self._cache.put(self.client, info, move.target_path())
        move.share.advance(file.size_bytes)
        move.is_exact = True
        return move.target.head(move.path)


def _name_of(info: ObjectInfo) -> str:
    return f"{info.etag.lower()}-{info.size_bytes}"


def copy_output(source: Path, target: Path) -> None:
    """Copy what a job left in an output folder. Links within it become what they lead to.

    Raises:
        TransferError: some of it could not be copied, or leads out of the folder; the rest is there.
    """
    make_folder(target)
    report = DirSync(LocalStore(source, links="inside"), LocalStore(target), remember=False).attempt()
    failures = {**report.unlisted, **report.failures}
    if failures:
        raise TransferError(f"{len(failures)} files were not copied from {source}", failures=failures)
