"""Uploads a tree of files to a folder: in parallel, large files in parts, and only what OSS does not have yet."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from pai_sdk.errors import InvalidInputError, Problem, TransferError
from pai_sdk.storage.file_upload import FileUpload
from pai_sdk.storage.manifest import manifest_uri, write_manifest
from pai_sdk.storage.placed import PlacedTree, find_placed
from pai_sdk.storage.pool import TransferPool
from pai_sdk.storage.progress import ByteBar
from pai_sdk.storage.recent import is_named_by_content
from pai_sdk.storage.reuse import Reuse
from pai_sdk.storage.tree import FileTree
from pai_sdk.storage.uri import OssUri

if TYPE_CHECKING:
    from pai_sdk.storage.oss import OssClient

__all__ = ["manifest_uri", "upload_tree"]


def upload_tree(
    client: OssClient,
    tree: FileTree,
    uri: OssUri,
    *,
    progress: bool = True,
    marker: bool = True,
    workers: int | None = None,
) -> int:
    """Put the files of a tree into a folder.

    The folder is listed first, and only files that are missing, changed or archived are sent. When all are in
    place, a manifest is written beside the folder. If the folder is named by the tree's digest, files that an
    earlier tree beside it has are copied from there, within OSS.

    Args:
        client: writes the objects.
        tree: the files. A file that has changed since the scan is an error.
        uri: the folder.
        progress: show a bar.
        marker: the folder must hold this tree and nothing else: list it first, and write the manifest.
            Without it, all files are sent, and other files in the folder stay.
        workers: threads; None for many for small files, and few for large ones.

    Returns:
        How many files were sent; 0 when OSS had all of them.

    Raises:
        InvalidInputError: there are files whose keys would be longer than OSS allows, or the folder holds files
            that are not in the tree; all of them are listed.
        TransferError: some files could not be uploaded; the others are in place.
    """
    folder = uri.as_dir()
    _must_have_keys(tree, folder)
    placed = find_placed(client, tree, folder) if marker else PlacedTree([""] * len(tree.entries))
    if placed.is_complete and placed.has_manifest:
        return 0
    etags = placed.etags
    is_new = not placed.is_complete and is_named_by_content(tree, folder)
    reuse = Reuse(client, tree, folder) if marker and is_new else None
    with ByteBar("uploading", shown=progress) as bar:
        bar.expect(sum(entry.size_bytes for entry, etag in zip(tree.entries, etags, strict=True) if not etag))
        if reuse is not None:
            reuse.copy(etags, bar, workers)
        sent = _send(client, tree, folder, etags, bar, workers)
    if marker:
        write_manifest(client, tree, folder, etags)
    if reuse is not None:
        reuse.note()
    return sent


def _must_have_keys(tree: FileTree, folder: OssUri) -> None:
    """Check that every file can have a key there, before anything is sent."""
    problems: list[Problem] = []
    for entry in tree.entries:
        try:
            folder.join(entry.path)
        except InvalidInputError as error:
            hint = "give it another name, or another folder"
            problems += [Problem(entry.path, f"{key.what}; {key.hint}", hint) for key in error.problems]
    if problems:
        raise InvalidInputError(problems)


def _send(
    client: OssClient, tree: FileTree, folder: OssUri, etags: list[str], bar: ByteBar, workers: int | None
) -> int:
    """Send the files that have no ETag yet; returns how many that were."""
    missing = [number for number, etag in enumerate(etags) if not etag]
    with TransferPool(workers) as pool:
        client = client.cancelled_by(pool.stopped, pool.may_retry)
        for number in missing:
            entry = tree.entries[number]
            arrived = partial(etags.__setitem__, number)
            FileUpload(client, tree.root / entry.path, entry, folder.join(entry.path), bar, arrived).begin(pool)
    if pool.failures or pool.gave_up:
        raise TransferError(
            f"{len(pool.failures)} of {len(tree.entries)} files were not uploaded to {folder}{pool.why_not_all}",
            failures=pool.failures,
        )
    return len(missing)
