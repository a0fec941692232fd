"""Transfers of files and folders to and from OSS: `upload`, `download`, `upload_tree` for a tree, and `unpack`.

`DirSync` moves the files. This module adds what is specific to a tree or a single file.
"""

from __future__ import annotations

import os
import shutil
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from pai_sdk._data.storage.objects import ObjectInfo, make_folder, must_be_no_file
from pai_sdk._data.storage.pool import SMALL_BYTES, is_fatal_for_transfer
from pai_sdk._data.storage.progress import ByteBar
from pai_sdk._data.storage.stored_file import StoredFile, Unlisted
from pai_sdk._data.storage.stores.local import LocalStore, stored_file_of
from pai_sdk._data.storage.stores.oss import OssStore, stored_file_of_object
from pai_sdk._data.storage.sync.dir_sync import DirSync, move_file
from pai_sdk._data.storage.sync.memory import SyncMemory
from pai_sdk._data.storage.sync.tree_index import TreeIndex
from pai_sdk._data.storage.tree import FileTree, unreadable
from pai_sdk._data.storage.uri import OssUri
from pai_sdk._data.storage.walk import FolderListing, Links, list_folder
from pai_sdk.errors import (
    FileChangedError,
    InvalidInputError,
    ObjectNotFoundError,
    Problem,
    StorageError,
    TransferError,
)

if TYPE_CHECKING:
    from pai_sdk._data.storage.oss.client import OssClient


def upload(
    client: OssClient,
    path: str | Path,
    uri: OssUri,
    *,
    progress: bool = True,
    workers: int | None = None,
    links: Links = "follow",
) -> OssUri:
    """Put a file or a folder into OSS. The parts of a large file that arrived earlier are not sent again.

    Args:
        client: writes the objects.
        path: a file, or a folder, of which all files are uploaded.
        uri: for a folder, the folder its files go into; for a file, its object, or a folder (a `/` at its end) to
            put it in.
        progress: show a bar.
        workers: threads; None for many for small files, and few for large ones.
        links: the policy for symbolic links: `follow` uploads their targets, wherever they are; with `inside`, a
            link that leads out of the folder is an error, and with `error` each link is.

    Returns:
        The object or the folder.

    Raises:
        InvalidInputError: no such file, no file in the folder, or some that cannot be uploaded.
        TransferError: some files could not be uploaded; the others are in place.
    """
    path = Path(path)
    tree = _small_files_hashed(list_folder(path, links=links))
    if not tree.entries:
        raise InvalidInputError([Problem(str(path), "is a folder without files", "there is nothing to upload")])
    if path.is_dir():
        upload_tree(client, tree, uri, progress=progress, marker=False, workers=workers)
        return uri.as_dir()
    uri = uri.join(path.name) if uri.is_dir else uri
    source, target = _TreeStore(tree), OssStore(client, _folder_of(uri))
    with _as_transfer_error(f"{path} was not uploaded to {uri}", path.name):
        move_file(source, tree.entries[0], target, uri.name, progress=progress, title="uploading", workers=workers)
    return uri


def upload_tree(
    client: OssClient,
    tree: FileTree,
    uri: OssUri,
    *,
    progress: bool = True,
    # The folder must hold this tree and nothing else: list it first, and write the manifest. Without it, all files
    # are sent, and other files in the folder stay.
    marker: bool = True,
    workers: int | None = None,
) -> int:
    """Uploads the files of a tree into a folder; returns the number of sent files, 0 when OSS had all of them."""
    # A file that has changed since the scan is an error.
    # The folder is listed first, and only missing, changed or archived files are sent. When all are in place, a
    # manifest is written beside the folder. If the folder is named by the tree's digest, files of an earlier tree
    # are copied within OSS.
    folder = uri.as_dir()
    _must_have_keys(tree, folder)
    index = TreeIndex(client, tree, folder) if marker else None
    if index is not None:
        index.find()
        if index.is_complete and index.has_manifest:
            return 0
    with ByteBar("uploading", is_visible=progress) as bar:
        bar.expect(tree.size_bytes if index is None else index.missing_bytes)
        if index is not None:
            index.copy_existing(bar, workers)
        report = DirSync(
            _TreeStore(tree),
            OssStore(client, folder),
            remember=index or SyncMemory(None),
            is_checked=True,
            bar=bar,
            workers=workers,
        ).attempt()
    if report.failures or report.gave_up:
        message = f"{len(report.failures)} of {len(tree.entries)} files were not uploaded to {folder}"
        raise TransferError(message + report.why_not_all, failures=report.failures)
    if index is not None:
        index.commit()
    return report.moved


def download(
    client: OssClient,
    uri: OssUri,
    target: str | Path,
    *,
    progress: bool = True,
    workers: int | None = None,
    skip_unchanged: bool = True,
    skip: Callable[[StoredFile], bool] = lambda file: False,
) -> Path:
    """Fetch a file or a folder.

    Args:
        client: reads the objects.
        uri: a file, or a folder; a name without a slash at its end is a folder if there is no such file.
        target: for a folder, the local folder its content goes into; for a file, the local file, or an existing
            folder to put it in.
        progress: show a bar.
        workers: threads; None for many for small files, and few for large ones.
        skip_unchanged: do not fetch a file that is there already, with the same size and the same hash.
        skip: called with each file of a folder; accepted files are not fetched.

    Returns:
        The local file or folder.

    Raises:
        StorageError: nothing is there, or a file is where a folder is to be, or the other way round.
        TransferError: some files could not be fetched; the others are complete.
    """
    target = Path(target)
    info = None if uri.is_dir else client.head(uri)
    if info is not None:
        target = target / uri.name if os.path.isdir(target) else target  # noqa: PTH112 - it raises nothing
        _download_file(client, info, target, skip_same=skip_unchanged, progress=progress)
        return target
    # Checked first: one error, not one for each object.
    must_be_no_file(target)
    report = DirSync(
        OssStore(client, uri),
        LocalStore(target),
        checksum=skip_unchanged,
        remember=False,
        progress=progress,
        title="downloading",
        workers=workers,
        skip=skip,
    ).attempt()
    failures = {**report.unlisted, **report.failures}
    count = report.files + len(report.unlisted)
    if failures or report.gave_up:
        raise TransferError(
            f"{len(failures)} of {count} files were not downloaded from {uri}{report.why_not_all}",
            failures=failures,
        )
    if not count:
        # Only an object that represents the folder itself exists.
        make_folder(target)
    return target


def _small_files_hashed(listing: FolderListing) -> FileTree:
    """Returns the files of a listing without a common digest; refuses what cannot be uploaded or read."""
    # Hashing a small file costs less than asking three times for its state, as for others. A larger one is read
    # once, while it is sent.
    small = tuple(file for file in listing.files if file.size_bytes <= SMALL_BYTES)
    large = replace(listing, files=tuple(file for file in listing.files if file.size_bytes > SMALL_BYTES))
    if problems := [*listing.problems, *unreadable(listing if listing.problems else large)]:
        raise InvalidInputError(problems)
    hashed = {entry.path: entry for entry in FileTree.of(replace(listing, files=small)).entries}
    entries = (hashed.get(file.path) or stored_file_of(file.path, file.status) for file in listing.files)
    return FileTree(listing.root, tuple(entries), "")


class _TreeStore(LocalStore):
    """The files of a tree; the hashed ones with the content that they had when it was scanned."""

    def __init__(self, tree: FileTree) -> None:
        super().__init__(tree.root)
        self._tree = tree

    def list(
        self, prefix: str = "", *, folders: bool = False, unlisted: Unlisted | None = None
    ) -> Iterator[StoredFile]:
        """Returns the files of the tree. Their marks are hashes of content, not times."""
        return (file for file in self._tree.entries if file.path.startswith(prefix))

    def head(self, path: str) -> StoredFile:
        """Returns the metadata of a file; FileChangedError: it was deleted."""
        try:
            return super().head(path)
        except ObjectNotFoundError as error:
            # Unlike a sync, an upload does not leave out a file that was there when it began.
            raise FileChangedError(f"{self.root / path} was deleted while it was being uploaded") from error


def _download_file(client: OssClient, info: ObjectInfo, target: Path, *, skip_same: bool, progress: bool) -> None:
    folder, name = LocalStore(target.parent), info.uri.name
    # Outside of the transfer, so that an error is not reported as that of a file.
    folder.prepare()
    source, file = OssStore(client, _folder_of(info.uri)), stored_file_of_object(info, name)
    with _as_transfer_error(f"1 of 1 files were not downloaded from {info.uri}", name):
        move_file(source, file, folder, target.name, skip_same=skip_same, progress=progress, title="downloading")


def _folder_of(uri: OssUri) -> OssUri:
    return replace(uri, key=uri.key.removesuffix(uri.name))


@contextmanager
def _as_transfer_error(message: str, name: str) -> Iterator[None]:
    """Reports the error of a single file as a transfer of one file, as for a folder."""
    try:
        yield
    except (StorageError, OSError) as error:
        if is_fatal_for_transfer(error):
            raise
        raise TransferError(message, failures={name: error}) from error


def _must_have_keys(tree: FileTree, folder: OssUri) -> None:
    """Checks that every file can have a key in the folder, before anything is sent."""
    problems: list[Problem] = []
    for entry in tree.entries:
        try:
            folder.join(entry.path)
        except InvalidInputError as error:
            hint = "give it another name, or another folder"
            problems += [Problem(entry.path, f"{key.what}; {key.hint}", hint) for key in error.problems]
    if problems:
        raise InvalidInputError(problems)


def unpack(archive: Path, folder: Path) -> None:
    """Unpacks an archive into a folder; unpacks nothing if a member lies outside, or is no file or folder."""
    with tarfile.open(archive) as packed:
        for member in packed.getmembers():
            parts = PurePosixPath(member.name).parts
            if member.name.startswith("/") or ".." in parts or not (member.isfile() or member.isdir()):
                message = f"{member.name!r} in the archive is not a plain file or folder within it"
                raise InvalidInputError([Problem("archive", message, "unpack it by hand, if you trust it")])
        for member in packed.getmembers():
            target = folder.joinpath(*PurePosixPath(member.name).parts)
            content = packed.extractfile(member)
            if content is None:
                target.mkdir(parents=True, exist_ok=True)
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            with content, target.open("wb") as written:
                shutil.copyfileobj(content, written)
            target.chmod(0o755 if member.mode & 0o100 else 0o644)
