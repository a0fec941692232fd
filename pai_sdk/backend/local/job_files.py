"""What a local job reads and leaves: code, inputs from OSS through a cache, outputs that go to OSS."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pai_sdk.base.files import locked
from pai_sdk.errors import CodeError, LocalRunError, Problem, StorageError, TransferError
from pai_sdk.execution.initial_outputs import Version, version_of
from pai_sdk.storage.download import TargetFolder
from pai_sdk.storage.objects import make_folder, must_take_a_file
from pai_sdk.storage.pool import TransferPool
from pai_sdk.storage.progress import ByteBar
from pai_sdk.storage.tree import FileTree
from pai_sdk.storage.uri import OssUri
from pai_sdk.storage.walk import list_folder

if TYPE_CHECKING:
    from pai_sdk.storage.objects import ObjectInfo
    from pai_sdk.storage.oss import OssClient

__all__ = ["InputCache", "copy_output", "copy_tree", "save_output"]

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
        count = 0
        with ByteBar("fetching inputs", shown=progress) as bar, TransferPool() as pool:
            client, folder = client.cancelled_by(pool.stopped, pool.may_retry), TargetFolder(target)
            folder.open()
            listed = client.list(uri.as_dir(), unnamed=pool.failures.__setitem__)
            for info in [single] if single else listed:
                count += 1
                name = uri.name if single else info.uri.key.removeprefix(uri.as_dir().key)
                try:
                    place = folder.place(name, info.size_bytes)
                except (OSError, StorageError) as error:
                    pool.failures[name] = error
                    continue
                if place is not None:
                    bar.expect(info.size_bytes)
                    pool.submit_file(name, partial(self._place, client, info, place, bar))
        if not count:
            raise StorageError(f"{uri}: there is no such file or folder", uri=str(uri), code="NoSuchKey")
        if pool.failures:
            raise TransferError(f"{len(pool.failures)} files were not fetched from {uri}", failures=pool.failures)

    def _place(self, client: OssClient, info: ObjectInfo, place: Path, bar: ByteBar) -> None:
        cached = self._fetched(client, info)
        must_take_a_file(place)
        try:
            os.link(cached, place)
        except OSError:  # another file system, or one without links
            shutil.copy(cached, place)
        bar.advance(info.size_bytes)

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


def _name_of(info: ObjectInfo) -> str:
    return f"{info.etag.lower()}-{info.size_bytes}"


def copy_output(source: Path, target: Path) -> None:
    """Copy what a job left in an output folder. Links within it become what they lead to.

    Raises:
        TransferError: some of it could not be copied, or leads out of the folder; the rest is there.
    """
    listing = list_folder(source)
    failures: dict[str, Exception] = {problem.where: StorageError(problem.what) for problem in listing.problems}
    make_folder(target)
    for file in listing.files:
        place = target / file.path
        try:
            make_folder(place.parent)
            shutil.copy(source / file.path, place)
        except (OSError, StorageError) as error:
            failures[file.path] = error
    if failures:
        raise TransferError(f"{len(failures)} files were not copied from {source}", failures=failures)


def save_output(
    files: Callable[[], OssClient], folder: Path, uri: str, *, found: Mapping[str, Version], progress: bool
) -> None:
    """Put what a job left in an output folder to OSS.

    Args:
        files: gives the client, when there is something to send.
        folder: the output's.
        uri: where it goes.
        found: the files that the job found there when it began. As long as they are as they were, they stay here:
            another job may have replaced those in OSS meanwhile.
        progress: show a bar.

    Raises:
        TransferError: some files could not be put there.
        LocalRunError: not all that lies there can be taken along; the rest was.
    """
    from pai_sdk.storage.transfer import upload_tree

    listing = list_folder(folder)
    changed = [file for file in listing.files if found.get(file.path) != version_of((folder / file.path).stat())]
    tree = FileTree.of(replace(listing, files=tuple(changed)))
    if tree.entries:
        upload_tree(files(), tree, OssUri.parse(uri), progress=progress, marker=False)
    if listing.problems:
        left = "; ".join(f"{problem.where} {problem.what}" for problem in listing.problems)
        raise LocalRunError(f"not all of the output {folder} can be saved: {left}")
