"""Finds which files of a tree are already in its folder in OSS: lists the folder and compares each file.

A folder that is named by the hash of its content is used again only where each object is known to have that
content. A listing costs one request for 1,000 objects, and has path, size, ETag and storage class of each.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from pai_sdk.errors import InvalidInputError, ObjectNotFoundError, Problem, StorageError
from pai_sdk.storage.file_upload import PART_BYTES
from pai_sdk.storage.manifest import PlacedFile, manifest_files, manifest_uri, read_manifest
from pai_sdk.storage.objects import ObjectInfo
from pai_sdk.storage.tree import FileEntry, FileTree
from pai_sdk.storage.uri import OssUri

if TYPE_CHECKING:
    from pai_sdk.storage.oss import OssClient

__all__ = ["PlacedTree", "find_placed", "is_whole"]

_log = logging.getLogger(__name__)

_MD5 = re.compile(r"[0-9A-Fa-f]{32}")
# About 2 s of hashing. A larger tree is compared with its manifest first, and hashed only for the files left.
_QUICKLY_HASHED_BYTES = 1_000_000_000
_MOST_NAMED = 20


@dataclass
class PlacedTree:
    """Which files of a tree are in place.

    Attributes:
        etags: the ETag of each file's object, in the order of the tree's entries; empty for what has to be sent.
        has_manifest: whether the folder's manifest is there.
    """

    etags: list[str]
    has_manifest: bool = False

    @property
    def is_complete(self) -> bool:
        """Whether nothing has to be sent."""
        return all(self.etags)


def find_placed(client: OssClient, tree: FileTree, folder: OssUri) -> PlacedTree:
    """Find which files of a tree are in its folder, unchanged and readable.

    A file is in place when the object's ETag is the MD5 of the local file. Other ETags, those of copies and of
    objects that came in parts, are compared with the folder's manifest. An archived object is not in place,
    because a job cannot read it. Where the key may not list, all files count as missing.

    Raises:
        InvalidInputError: the folder holds files that are not in the tree.
    """
    placed = PlacedTree([""] * len(tree.entries))
    listed = _listed(client, folder, [entry.path for entry in tree.entries])
    if listed is None:
        return placed
    objects, placed.has_manifest = listed
    maybe = {
        number: info.etag
        for number, entry in enumerate(tree.entries)
        if (info := objects.get(entry.path)) and _may_hold(info, entry.size_bytes)
    }
    checks: list[Callable[[Mapping[int, str]], list[int]]] = [partial(_with_same_md5, tree)]
    if placed.has_manifest:
        at = 1 if tree.size_bytes <= _QUICKLY_HASHED_BYTES else 0
        checks.insert(at, partial(_in_manifest, client, tree, folder))
    for check in checks:
        for number in check(maybe) if maybe else ():
            placed.etags[number] = maybe.pop(number)
    return placed


def is_whole(client: OssClient, folder: OssUri) -> bool:
    """Whether a folder named by the hash of its content holds it, for callers that have no tree to compare with.

    Where the key may not read it, the result is True, with a warning.

    Raises:
        InvalidInputError: the folder holds other files as well.
    """
    try:
        expected = read_manifest(client, folder)
    except ValueError:
        return False
    except ObjectNotFoundError:
        return False
    except StorageError as error:
        _warn_unchecked(client, folder, error)
        return True
    listed = _listed(client, folder, [file.entry.path for file in expected])
    return listed is None or all(_holds(listed[0].get(file.entry.path), file) for file in expected)


def _holds(info: ObjectInfo | None, file: PlacedFile) -> bool:
    return info is not None and _may_hold(info, file.entry.size_bytes) and info.etag == file.etag


def _listed(
    client: OssClient, folder: OssUri, expected: Iterable[str]
) -> tuple[Mapping[str, ObjectInfo], bool] | None:
    """The folder's objects by path, and whether it has a manifest; None where the key may not list.

    Raises:
        InvalidInputError: there are others than those expected.
    """
    manifest = manifest_uri(folder)
    objects: dict[str, ObjectInfo] = {}
    strange: list[str] = []
    has_manifest = False
    try:
        # Without the slash at the end, the same listing has the manifest beside the folder, too.
        beginning = replace(folder, key=folder.key.rstrip("/"))
        for info in client.list(beginning, unnamed=lambda key, _: strange.append(key)):
            if info.uri.key.startswith(folder.key):
                objects[info.uri.key.removeprefix(folder.key)] = info
            has_manifest |= info.uri.key == manifest.key
    except StorageError as error:
        _warn_unchecked(client, folder, error)
        return None
    known = set(expected)
    # The console makes empty objects that stand for folders.
    extra = [
        path for path, info in objects.items() if path not in known and (info.size_bytes or not info.uri.is_dir)
    ]
    _refuse(folder, [*extra, *strange])
    return objects, has_manifest


def _refuse(folder: OssUri, extra: Sequence[str]) -> None:
    if not extra:
        return
    what = "is in the folder, but not among the files that belong there; a job would read it with them"
    problems = [
        Problem(f"{folder}{path}", what, "delete it, or move it elsewhere") for path in extra[:_MOST_NAMED]
    ]
    if len(extra) > _MOST_NAMED:
        problems.append(
            Problem(str(folder), f"holds {len(extra) - _MOST_NAMED} more files that do not belong there")
        )
    raise InvalidInputError(problems)


def _may_hold(info: ObjectInfo, size_bytes: int) -> bool:
    return info.size_bytes == size_bytes and "archive" not in info.storage_class.lower()


def _with_same_md5(tree: FileTree, etags: Mapping[int, str]) -> list[int]:
    """Which files have the MD5 that is the ETag of their objects; it is for objects uploaded in one request."""
    return [number for number, etag in etags.items() if _MD5.fullmatch(etag) and _has_md5(tree, number, etag)]


def _has_md5(tree: FileTree, number: int, md5: str) -> bool:
    entry = tree.entries[number]
    if entry.size_bytes > PART_BYTES:
        return False
    try:
        content = (tree.root / entry.path).read_bytes()
    except OSError:  # sending it will report the error
        return False
    return hashlib.md5(content, usedforsecurity=False).hexdigest() == md5.lower()


def _in_manifest(client: OssClient, tree: FileTree, folder: OssUri, etags: Mapping[int, str]) -> list[int]:
    """Which files have their entry, with the ETag of the object that is there, in the folder's manifest."""
    try:
        noted: dict[str, PlacedFile] = {file.entry.path: file for file in manifest_files(client, folder)}
    except (StorageError, ValueError) as error:
        _log.info("the manifest of %s is not used: %s", folder, error)
        return []

    def is_noted(entry: FileEntry, etag: str) -> bool:
        return noted.get(entry.path) == PlacedFile(entry, etag)

    return [number for number, etag in etags.items() if is_noted(tree.entries[number], etag)]


def _warn_unchecked(client: OssClient, folder: OssUri, error: StorageError) -> None:
    """Warn, once for each bucket of a client.

    Raises:
        StorageError: the error is another than a missing permission.
    """
    if error.code != "AccessDenied":
        raise error
    if folder.bucket not in client.not_listed:
        client.not_listed.add(folder.bucket)
        _log.warning(
            "the key may not list or read bucket %s, so all files are sent each time, and what is there is not "
            "checked; allow it oss:ListObjects and oss:GetObject to send only what changed",
            folder.bucket,
        )
