"""Finds which files of a tree are in OSS already: in the tree's folder, or in that of an earlier tree.

A folder that is named by the hash of its content is used again only where each object is known to have that
content. A listing costs one request for 1,000 objects, and has path, size, ETag and storage class of each.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from pai_sdk._data.storage.content_hash import SHA256, algorithm_of, hexadecimal, sha256_of_file
from pai_sdk._data.storage.objects import MD5, ObjectInfo, object_meta
from pai_sdk._data.storage.pool import SKIPPED_SUFFIX, TransferPool
from pai_sdk._data.storage.progress import ByteBar
from pai_sdk._data.storage.stored_file import StoredFile
from pai_sdk._data.storage.sync.manifest import manifest_files, manifest_uri, read_manifest, write_manifest
from pai_sdk._data.storage.sync.memory import Moved, SyncMemory
from pai_sdk._data.storage.sync.recent import RecentTree, RecentTrees, is_content_addressed
from pai_sdk._data.storage.tree import FileTree, with_sha256
from pai_sdk._data.storage.uri import OssUri
from pai_sdk.errors import (
    FileChangedError,
    InvalidInputError,
    ObjectNotFoundError,
    Problem,
    StorageError,
    TransferError,
)

if TYPE_CHECKING:
    from pai_sdk._data.storage.objects import PartSizes
    from pai_sdk._data.storage.oss.client import OssClient

_log = logging.getLogger(__name__)

_ByContent: TypeAlias = Mapping[tuple[str, int], tuple[OssUri, str]]  # URI and ETag by hash and size

_MAX_PROBLEMS = 20
# The limit of OSS for copies that change the encryption, as a bucket's default encryption may do.
_MAX_COPY_BYTES = 1_000_000_000
# After this many refusals no more copies are tried: the earlier tree is being deleted, or may not be read.
_MAX_REFUSALS = 8


class TreeIndex(SyncMemory):
    """The rows of the upload of a tree: the files that its folder has, with the ETags of their objects.

    They are found in OSS and not stored on this machine: `find` compares the tree with its folder, `copy_existing`
    copies files of the most similar earlier tree within OSS, and `commit` writes the manifest of the folder.
    """

    def __init__(self, client: OssClient, tree: FileTree, folder: OssUri) -> None:
        super().__init__(None)
        self._client = client
        self._tree = tree
        self._folder = folder
        self._numbers = {entry.path: number for number, entry in enumerate(tree.entries)}
        self._recent: RecentTrees | None = None
        self._replaced: RecentTree | None = None
        self._sha256s: dict[int, str] = {}  # of files that have another hash, as far as it was needed
        self._is_stopped: Callable[[], bool] = lambda: False
        self._new_etags = False  # the store gives copies ETags that look like the MD5 of another content
        self._refused = 0
        # In the order of the tree's entries; empty for a missing file.
        self.etags = [""] * len(tree.entries)
        self.has_manifest = False

    @property
    def is_complete(self) -> bool:
        """Returns True if no file is missing."""
        return all(self.etags)

    @property
    def missing_bytes(self) -> int:
        """Returns the number of bytes that have to be sent."""
        return sum(self._tree.entries[number].size_bytes for number in self._missing())

    def _missing(self) -> list[int]:
        return [number for number, etag in enumerate(self.etags) if not etag]

    def rows(self) -> Iterator[Moved]:
        """Yields the files that the folder has."""
        for entry, etag in zip(self._tree.entries, self.etags, strict=True):
            if etag:
                yield Moved(entry.path, entry.mark, etag)

    def put(self, path: str, source: str, target: str) -> None:
        """Records a sent file; its ETag is empty when it is unknown."""
        self.etags[self._numbers[path]] = target

    def find(self) -> None:
        """Finds which files are in the folder, unchanged and readable; refuses other files in it."""
        # A file is in place when the ETag of the object is the MD5 of the local file. Other ETags, of copies and
        # multipart uploads, are compared with the manifest of the folder. A job cannot read an archived object, so
        # it counts as missing, and so do all files if the key may not list.
        tree = self._tree
        listing = _list_objects(self._client, self._folder, self._numbers)
        if listing is None:
            return
        objects, self.has_manifest = listing
        unchecked = {
            number: info.etag
            for number, entry in enumerate(tree.entries)
            if (info := objects.get(entry.path)) and _can_contain(info, entry.size_bytes)
        }
        checks: list[Callable[[Mapping[int, str]], list[int]]] = [
            partial(_with_same_md5, tree, self._client.part_sizes)
        ]
        if self.has_manifest:
            at = 1 if tree.size_bytes <= self._client.part_sizes.quick_hash_bytes else 0
            checks.insert(at, partial(_in_manifest, self._client, tree, self._folder))
        for check in checks:
            for number in check(unchecked) if unchecked else ():
                self.etags[number] = unchecked.pop(number)

    def copy_existing(self, bar: ByteBar, workers: int | None) -> None:
        """Copies files of the most similar earlier tree, if the folder is named by the hash of its content."""
        # An object is copied only if it has the ETag of its manifest; otherwise the file is uploaded.
        if self.is_complete or not is_content_addressed(self._tree, self._folder):
            return
        self._recent = RecentTrees(self._client, self._folder)
        has_blake3 = any(algorithm_of(entry.digest) != SHA256 for entry in self._tree.entries)
        if len(self._tree.entries) == 1 and not has_blake3:
            return
        this = RecentTree.of(self._tree, self._folder)
        try:
            earlier = self._recent.find_similar(this, self._row_by_sha256 if has_blake3 else None)
        except (FileChangedError, OSError) as error:
            # Sending the file will report the error.
            _log.info("no earlier tree is used: %s", error)
            return
        if earlier is None:
            return
        source = self._recent.folder_of(earlier[0])
        by_content = {
            (file.digest, file.size_bytes): (source.join(file.path), file.etag) for file in earlier[1] if file.etag
        }
        missing = self._missing()
        with TransferPool(workers) as pool:
            client, self._is_stopped = self._client.cancelled_by(pool.stopped, pool.may_retry), pool.stopped.is_set
            for number in self._which_may_be_in(by_content, missing):
                path = self._tree.entries[number].path
                pool.submit_file(path, partial(self._copy, client, by_content, number, bar), size_bytes=0)
        if pool.gave_up:
            raise TransferError(f"nothing was sent to {self._folder}{SKIPPED_SUFFIX}", failures=pool.failures)
        is_mostly_copied = 2 * sum(bool(self.etags[number]) for number in missing) > len(self.etags)
        # Clients without BLAKE3, and of earlier releases, go on with a tree that has a SHA-256 of each file.
        if is_mostly_copied and earlier[0].algorithm == this.algorithm:
            self._replaced = earlier[0]

    def _row_by_sha256(self) -> RecentTree:
        """Returns the entry that an earlier release, or a machine without BLAKE3, has made of the tree."""
        tree = with_sha256(self._tree)
        self._sha256s.update((number, entry.digest) for number, entry in enumerate(tree.entries))
        return RecentTree.of(tree, self._folder)

    def _which_may_be_in(self, by_content: _ByContent, numbers: Sequence[int]) -> Iterator[int]:
        """Yields files that an earlier tree has, and files of which it has the size, but only a SHA-256."""
        sizes = {size_bytes for digest, size_bytes in by_content if algorithm_of(digest) == SHA256}
        for number in numbers:
            entry = self._tree.entries[number]
            is_unknown = algorithm_of(entry.digest) != SHA256 and entry.size_bytes in sizes
            if is_unknown or (entry.digest, entry.size_bytes) in by_content:
                yield number

    def _sha256_of(self, number: int) -> str:
        """Returns the SHA-256 of a file, tagged, for which it may have to be read again."""
        if number not in self._sha256s:
            entry = self._tree.entries[number]
            path = self._tree.root / entry.path
            self._sha256s[number] = sha256_of_file(path, entry.digest, self._is_stopped)
        return self._sha256s[number]

    def _copy(self, client: OssClient, by_content: _ByContent, number: int, bar: ByteBar) -> None:
        entry = self._tree.entries[number]
        try:
            source = by_content.get((entry.digest, entry.size_bytes))
            source = source or by_content.get((self._sha256_of(number), entry.size_bytes))
            if source is None or self._refused >= _MAX_REFUSALS:
                return
            self.etags[number] = self._copy_object(client, *source, number)
        except (FileChangedError, OSError) as error:
            # Sending the file will report the error.
            _log.info("%s is not copied: %s", entry.path, error)
        except StorageError as error:
            if not error.status_code:
                raise
            self._refused += 1
            _log.info("%s is uploaded, as it cannot be copied: %s", entry.path, error)
        else:
            bar.advance(entry.size_bytes)

    def _copy_object(self, client: OssClient, source: OssUri, etag: str, number: int) -> str:
        """Copies an object that must have an ETag; returns the ETag of the copy."""
        entry = self._tree.entries[number]
        target = self._folder.join(entry.path)
        has_sha256 = algorithm_of(entry.digest) == SHA256 or number in self._sha256s
        sha256 = hexadecimal(self._sha256_of(number)) if has_sha256 else ""
        meta = object_meta(sha256, executable=entry.executable)
        if entry.size_bytes > _MAX_COPY_BYTES and entry.crc64 is not None:
            size_bytes, crc64 = entry.size_bytes, entry.crc64
            return client.parts.copy(source, target, etag=etag, size_bytes=size_bytes, crc64=crc64, meta=meta)
        if has_sha256 or not self._new_etags:
            copied = client.copy(source, target, etag=etag, meta=meta)
            if has_sha256 or copied == etag or not MD5.fullmatch(copied):
                return copied
        # OSS gives copies ETags of their own. Clients without CRC-64, and earlier releases, would take them for
        # the MD5 of the content, where no SHA-256 is recorded.
        self._new_etags = True
        meta = object_meta(hexadecimal(self._sha256_of(number)), executable=entry.executable)
        return client.copy(source, target, etag=etag, meta=meta)

    def commit(self) -> None:
        """Records in OSS that all files of the tree are in place, and that later trees may be copied from it."""
        write_manifest(self._client, self._tree, self._folder, self.etags)
        if self._recent is not None:
            self._recent.add(RecentTree.of(self._tree, self._folder), instead_of=self._replaced)


def is_folder_complete(client: OssClient, folder: OssUri) -> bool:
    """Returns True if a folder named by the hash of its content has this content; for callers without a tree."""
    # Where the key may not read it, the result is True, with a warning.
    try:
        expected = read_manifest(client, folder)
    except ValueError:
        return False
    except ObjectNotFoundError:
        return False
    except StorageError as error:
        _warn_unchecked(client, folder, error)
        return True
    listing = _list_objects(client, folder, [file.path for file in expected])
    return listing is None or all(_holds(listing[0].get(file.path), file) for file in expected)


def _holds(info: ObjectInfo | None, file: StoredFile) -> bool:
    return info is not None and _can_contain(info, file.size_bytes) and info.etag == file.etag


def _list_objects(
    client: OssClient, folder: OssUri, expected: Iterable[str]
) -> tuple[Mapping[str, ObjectInfo], bool] | None:
    """Returns the folder's objects by path, and whether it has a manifest; None where the key may not list."""
    manifest = manifest_uri(folder)
    objects: dict[str, ObjectInfo] = {}
    invalid_keys: list[str] = []
    has_manifest = False
    try:
        # Without the slash at the end, the same listing has the manifest beside the folder, too.
        beginning = replace(folder, key=folder.key.rstrip("/"))
        for info in client.list(beginning, unnamed=lambda key, _: invalid_keys.append(key)):
            if info.uri.key.startswith(folder.key):
                objects[info.uri.key.removeprefix(folder.key)] = info
            has_manifest |= info.uri.key == manifest.key
    except StorageError as error:
        _warn_unchecked(client, folder, error)
        return None
    expected_paths = set(expected)
    # The console creates empty objects that represent folders.
    extra = [
        path
        for path, info in objects.items()
        if path not in expected_paths and (info.size_bytes or not info.uri.is_dir)
    ]
    _refuse(folder, [*extra, *invalid_keys])
    return objects, has_manifest


def _refuse(folder: OssUri, extra: Sequence[str]) -> None:
    if not extra:
        return
    message = "is in the folder, but not among the files that belong there; a job would read it with them"
    problems = [
        Problem(f"{folder}{path}", message, "delete it, or move it elsewhere") for path in extra[:_MAX_PROBLEMS]
    ]
    if len(extra) > _MAX_PROBLEMS:
        problems.append(
            Problem(str(folder), f"holds {len(extra) - _MAX_PROBLEMS} more files that do not belong there")
        )
    raise InvalidInputError(problems)


def _can_contain(info: ObjectInfo, size_bytes: int) -> bool:
    return info.size_bytes == size_bytes and "archive" not in info.storage_class.lower()


def _with_same_md5(tree: FileTree, sizes: PartSizes, etags: Mapping[int, str]) -> list[int]:
    """Returns the numbers of files whose MD5 is the ETag of their objects, for uploads in one request."""
    return [
        number
        for number, etag in etags.items()
        if tree.entries[number].size_bytes <= sizes.part_bytes
        and MD5.fullmatch(etag)
        and _has_md5(tree, number, etag)
    ]


def _has_md5(tree: FileTree, number: int, md5: str) -> bool:
    try:
        content = (tree.root / tree.entries[number].path).read_bytes()
    except OSError:
        # Sending it will report the error.
        return False
    return hashlib.md5(content, usedforsecurity=False).hexdigest() == md5.lower()


def _in_manifest(client: OssClient, tree: FileTree, folder: OssUri, etags: Mapping[int, str]) -> list[int]:
    """Returns the numbers of files that the manifest lists with the current ETag."""
    try:
        recorded: dict[str, StoredFile] = {file.path: file for file in manifest_files(client, folder)}
    except (StorageError, ValueError) as error:
        _log.info("the manifest of %s is not used: %s", folder, error)
        return []

    def is_recorded(entry: StoredFile, etag: str) -> bool:
        return recorded.get(entry.path) == replace(entry, etag=etag)

    return [number for number, etag in etags.items() if is_recorded(tree.entries[number], etag)]


def _warn_unchecked(client: OssClient, folder: OssUri, error: StorageError) -> None:
    """Logs a warning, once for each bucket of a client; raises errors other than a missing permission."""
    if error.code != "AccessDenied":
        raise error
    if folder.bucket not in client.not_listed:
        client.not_listed.add(folder.bucket)
        _log.warning(
            "the key may not list or read bucket %s, so all files are sent each time, and what is there is not "
            "checked; allow it oss:ListObjects and oss:GetObject to send only what changed",
            folder.bucket,
        )
