"""Copies files within OSS from a tree uploaded earlier, instead of sending them again."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from pai_sdk.errors import StorageError, TransferError
from pai_sdk.storage.file_upload import object_meta
from pai_sdk.storage.pool import TransferPool
from pai_sdk.storage.progress import ByteBar
from pai_sdk.storage.recent import RecentTree, RecentTrees
from pai_sdk.storage.tree import FileTree
from pai_sdk.storage.uri import OssUri

if TYPE_CHECKING:
    from pai_sdk.storage.oss import OssClient

__all__ = ["Reuse"]

_log = logging.getLogger(__name__)

# The limit of OSS for copies that change the encryption, as a bucket's default encryption may do.
_LARGEST_COPY_BYTES = 1_000_000_000
# After this many refusals no more copies are tried: the earlier tree is being deleted, or may not be read.
_REFUSALS = 8


class Reuse:
    """The files of one new tree that OSS has already.

    An object is copied only if it has the ETag of its manifest; a file whose object is deleted or changed is
    uploaded.

    Args:
        client: copies.
        tree: the new tree.
        folder: the folder of the new tree; its name is the tree's digest.
    """

    def __init__(self, client: OssClient, tree: FileTree, folder: OssUri) -> None:
        self._client = client
        self._tree = tree
        self._folder = folder
        self._recent = RecentTrees(client, folder)
        self._this = RecentTree.of(tree, folder)
        self._replaced: RecentTree | None = None
        self._refused = 0

    def copy(self, etags: list[str], bar: ByteBar, workers: int | None) -> None:
        """Copy what the most similar tree has.

        Args:
            etags: one for each entry of the tree, empty for what is missing; those of copies are written into it.
            bar: the progress bar.
            workers: threads; None for many for small files, and few for large ones.

        Raises:
            TransferError: all recent copies failed.
        """
        earlier = self._recent.most_like(self._this) if len(self._tree.entries) > 1 else None
        if earlier is None:
            return
        source = self._recent.folder_of(earlier[0])
        by_content = {
            (file.entry.sha256, file.entry.size_bytes): (source.join(file.entry.path), file.etag)
            for file in earlier[1]
            if file.etag and file.entry.size_bytes <= _LARGEST_COPY_BYTES
        }
        missing = [number for number, etag in enumerate(etags) if not etag]
        with TransferPool(workers) as pool:
            client = self._client.cancelled_by(pool.stopped, pool.may_retry)
            for number in missing:
                entry = self._tree.entries[number]
                found = by_content.get((entry.sha256, entry.size_bytes))
                if found is not None:
                    pool.submit_file(
                        entry.path, partial(self._copy, client, *found, number, etags, bar), size_bytes=0
                    )
        if pool.gave_up:
            raise TransferError(f"nothing was sent to {self._folder}{pool.why_not_all}", failures=pool.failures)
        if 2 * sum(bool(etags[number]) for number in missing) > len(etags):
            self._replaced = earlier[0]

    def note(self) -> None:
        """Add the tree, which is in place now, to the list for later uploads."""
        self._recent.add(self._this, instead_of=self._replaced)

    def _copy(
        self, client: OssClient, source: OssUri, etag: str, number: int, etags: list[str], bar: ByteBar
    ) -> None:
        if self._refused >= _REFUSALS:
            return
        entry = self._tree.entries[number]
        try:
            etags[number] = client.copy(source, self._folder.join(entry.path), etag=etag, meta=object_meta(entry))
        except StorageError as error:
            if not error.status_code:
                raise
            self._refused += 1
            _log.info("%s is uploaded, as it cannot be copied: %s", entry.path, error)
        else:
            bar.advance(entry.size_bytes)
