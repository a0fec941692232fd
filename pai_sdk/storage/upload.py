"""A tree of files to a folder in OSS: in parallel, large files in parts, nothing at all if it is there already."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from pai_sdk.errors import TransferError
from pai_sdk.storage.file_upload import FileUpload
from pai_sdk.storage.pool import TransferPool
from pai_sdk.storage.progress import ByteBar
from pai_sdk.storage.tree import FileTree
from pai_sdk.storage.uri import OssUri

if TYPE_CHECKING:
    from pai_sdk.storage.oss import OssClient

__all__ = ["manifest_uri", "upload_tree"]

_META_TREE = "pai-tree"


def upload_tree(
    client: OssClient,
    tree: FileTree,
    uri: OssUri,
    *,
    progress: bool = True,
    marker: bool = True,
    workers: int = 16,
) -> int:
    """Put the files of a tree into a folder. Files that are there under other names stay.

    When all of them are in place, a manifest is written beside the folder. If it is there at the beginning, and of
    this very tree, one request was all.

    Args:
        client: writes the objects.
        tree: the files. One that has changed since the tree was scanned is an error, not a surprise.
        uri: the folder.
        progress: show a bar.
        marker: look for and write the manifest.
        workers: threads.

    Returns:
        How many files were sent; 0 when all was in place.

    Raises:
        TransferError: some files could not be put there; the others are.
    """
    folder = uri.as_dir()
    if marker and _is_in_place(client, tree, folder):
        return 0
    with ByteBar("uploading", shown=progress) as bar, TransferPool(workers) as pool:
        bar.expect(tree.size_bytes)
        for entry in tree.entries:
            FileUpload(client, tree.root / entry.path, entry, folder.join(entry.path), bar).begin(pool)
    if pool.failures or pool.gave_up:
        gave_up = "; no answer came any more, so the rest was not tried" if pool.gave_up else ""
        raise TransferError(
            f"{len(pool.failures)} of {len(tree.entries)} files were not uploaded to {folder}{gave_up}",
            failures=pool.failures,
        )
    if marker:
        client.put_bytes(manifest_uri(folder), _manifest(tree), meta={_META_TREE: tree.digest})
    return len(tree.entries)


def manifest_uri(folder: OssUri) -> OssUri:
    """The object beside a folder that lists its files: path, size, SHA-256, and whether it may be executed."""
    return replace(folder, key=f"{folder.key.rstrip('/')}.manifest.json")


def _is_in_place(client: OssClient, tree: FileTree, folder: OssUri) -> bool:
    manifest = client.head(manifest_uri(folder))
    if manifest is None:
        return False
    if manifest.meta.get(_META_TREE) == tree.digest:
        return True
    # It would go on vouching for files that are now being replaced.
    client.delete(manifest.uri)
    return False


def _manifest(tree: FileTree) -> bytes:
    files = [
        {"path": e.path, "size": e.size_bytes, "sha256": e.sha256, "executable": e.executable}
        for e in tree.entries
    ]
    return json.dumps({"digest": tree.digest, "files": files}, ensure_ascii=False).encode("utf-8")
