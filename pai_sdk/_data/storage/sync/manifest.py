"""The list of a folder's files, written beside the folder when all of them are in place."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pai_sdk._data.storage.content_hash import BLAKE3, SHA256
from pai_sdk._data.storage.stored_file import StoredFile
from pai_sdk._data.storage.tree import FileTree, digest_of
from pai_sdk._data.storage.uri import OssUri

if TYPE_CHECKING:
    from pai_sdk._data.storage.oss.client import OssClient

_META_TREE = "pai-tree"
_DIGEST = re.compile(r"[0-9a-f]{64}")
_ETAG = re.compile(r"[0-9A-Za-z-]+")


def manifest_uri(folder: OssUri) -> OssUri:
    """Returns the URI of the manifest beside a folder: path, size, hash, executable and ETag of each file."""
    return replace(folder, key=f"{folder.key.rstrip('/')}.manifest.json")


def write_manifest(client: OssClient, tree: FileTree, folder: OssUri, etags: Sequence[str]) -> None:
    """Records that all files of a tree are in place."""
    files = [
        {"path": e.path, "size": e.size_bytes, **_digest_field(e), "executable": e.executable, "etag": etag}
        for e, etag in zip(tree.entries, etags, strict=True)
    ]
    content = json.dumps({"digest": tree.digest, "files": files}, ensure_ascii=False).encode("utf-8")
    client.put_bytes(manifest_uri(folder), content, meta={_META_TREE: tree.digest})


def _digest_field(file: StoredFile) -> dict[str, str]:
    """Returns the hash of a file under the name of its algorithm, of which earlier releases know `sha256`."""
    algorithm, _, digest = file.digest.partition(":")
    return {algorithm: digest}


def manifest_files(client: OssClient, folder: OssUri) -> list[StoredFile]:
    """Returns the files in a folder's manifest, each with its hash; the ETag is empty when it is unknown.

    An ObjectNotFoundError means that there is no manifest, a ValueError that the file is not one.
    """
    return list(_files_of(client.get_bytes(manifest_uri(folder))))


def read_manifest(client: OssClient, folder: OssUri) -> list[StoredFile]:
    """Returns the files of a folder named by the hash of its content; raises ValueError for another manifest."""
    files = manifest_files(client, folder)
    if not digest_of(files).startswith(folder.name):
        raise ValueError("its files do not match the hash in the folder's name")
    return files


def _files_of(content: bytes) -> Iterator[StoredFile]:
    try:
        for file in json.loads(content)["files"]:
            path, etag = file["path"], file.get("etag", "")
            algorithm = BLAKE3 if BLAKE3 in file else SHA256
            digest = file[algorithm]
            if not (isinstance(path, str) and isinstance(file["size"], int) and _DIGEST.fullmatch(digest)):
                raise TypeError(file)
            etag = etag if _ETAG.fullmatch(etag) else ""
            yield StoredFile(path, file["size"], None, etag, file["executable"], digest=f"{algorithm}:{digest}")
    except (LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"it is not a manifest: {error!r}") from error
