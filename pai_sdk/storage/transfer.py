"""Transfers of files and folders to and from OSS: `upload`, `download`, and `upload_tree` for a tree."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pai_sdk.errors import InvalidInputError, Problem, TransferError
from pai_sdk.storage.download import download
from pai_sdk.storage.file_upload import FileUpload
from pai_sdk.storage.pool import TransferPool
from pai_sdk.storage.progress import ByteBar
from pai_sdk.storage.tree import FileTree
from pai_sdk.storage.upload import manifest_uri, upload_tree
from pai_sdk.storage.uri import OssUri

if TYPE_CHECKING:
    from pai_sdk.storage.oss import OssClient

__all__ = ["download", "manifest_uri", "upload", "upload_tree"]


def upload(
    client: OssClient, path: str | Path, uri: OssUri, *, progress: bool = True, workers: int | None = None
) -> OssUri:
    """Put a file or a folder into OSS. The parts of a large file that arrived earlier are not sent again.

    Args:
        client: writes the objects.
        path: a file, or a folder, of which all files are taken.
        uri: for a folder, the folder its files go into; for a file, its object, or a folder (a `/` at its end) to
            put it in.
        progress: show a bar.
        workers: threads; None for many for small files, and few for large ones.

    Returns:
        The object or the folder.

    Raises:
        InvalidInputError: there is no such file, no file in the folder, or some that cannot be uploaded.
        TransferError: some files could not be uploaded; the others are in place.
    """
    path = Path(path)
    tree = FileTree.scan(path)
    if not tree.entries:
        raise InvalidInputError([Problem(str(path), "is a folder without files", "there is nothing to upload")])
    if path.is_dir():
        upload_tree(client, tree, uri, progress=progress, marker=False, workers=workers)
        return uri.as_dir()
    (entry,) = tree.entries
    uri = uri.join(path.name) if uri.is_dir else uri
    with ByteBar("uploading", shown=progress) as bar, TransferPool(workers) as pool:
        bar.expect(entry.size_bytes)
        FileUpload(client.cancelled_by(pool.stopped, pool.may_retry), path, entry, uri, bar).begin(pool)
    if pool.failures:
        raise TransferError(f"{path} was not uploaded to {uri}", failures=pool.failures)
    return uri
