"""A tree of files to a folder in OSS: in parallel, large files in parts, nothing at all if it is there already."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from pai_sdk.errors import StorageError, TransferError
from pai_sdk.storage.objects import META_EXECUTABLE, META_SHA256
from pai_sdk.storage.pool import TransferPool
from pai_sdk.storage.progress import ByteBar
from pai_sdk.storage.tree import FileEntry, FileTree
from pai_sdk.storage.uri import OssUri

if TYPE_CHECKING:
    from pai_sdk.storage.oss import OssClient

__all__ = ["manifest_uri", "upload_tree"]

PART_BYTES = 8 << 20
_MOST_PARTS = 9_000  # OSS allows 10,000
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
            upload = _Upload(client, tree.root / entry.path, entry, folder.join(entry.path), bar)
            if entry.size_bytes > PART_BYTES:
                pool.run_file(entry.path, partial(upload.in_parts, pool))
            else:
                pool.submit_file(entry.path, upload.whole)
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


class _Upload:
    """One file on its way."""

    def __init__(self, client: OssClient, path: Path, entry: FileEntry, uri: OssUri, bar: ByteBar) -> None:
        self._client = client
        self._path = path
        self._entry = entry
        self._uri = uri
        self._bar = bar
        self._meta = {META_SHA256: entry.sha256}
        if entry.executable:
            self._meta[META_EXECUTABLE] = "true"

    def whole(self) -> None:
        """In one request."""
        content = self._path.read_bytes()
        self._must_be_unchanged(hashlib.sha256(content).hexdigest())
        self._client.put_bytes(self._uri, content, meta=self._meta)
        self._bar.advance(len(content))

    def in_parts(self, pool: TransferPool) -> None:
        """In parts that go in parallel; the object comes to be at the end."""
        upload_id = self._client.begin_parts(self._uri, meta=self._meta)
        try:
            etags = self._send_parts(upload_id, pool)
            self._client.end_parts(self._uri, upload_id, etags, size_bytes=self._entry.size_bytes)
        except Exception:
            self._client.drop_parts(self._uri, upload_id)
            raise

    def _send_parts(self, upload_id: str, pool: TransferPool) -> list[str]:
        content_hash = hashlib.sha256()

        def pieces() -> Iterator[Callable[[], str]]:
            with self._path.open("rb") as stream:
                for number, content in enumerate(_parts(stream, self._entry.size_bytes), start=1):
                    content_hash.update(content)
                    yield partial(self._send_part, upload_id, number, content)

        etags = pool.run_all(pieces())
        self._must_be_unchanged(content_hash.hexdigest())
        return etags

    def _send_part(self, upload_id: str, number: int, content: bytes) -> str:
        etag = self._client.put_part(self._uri, upload_id, number, content)
        self._bar.advance(len(content))
        return etag

    def _must_be_unchanged(self, sha256: str) -> None:
        if sha256 != self._entry.sha256:
            raise StorageError(f"{self._path} was changed while it was being submitted; submit again")


def _parts(stream: BinaryIO, size_bytes: int) -> Iterator[bytes]:
    part_bytes = max(PART_BYTES, -(-size_bytes // _MOST_PARTS))
    read: Callable[[], bytes] = partial(stream.read, part_bytes)
    return iter(read, b"")
