"""The metadata of an object, the check of its bytes, and the atomic replacement of its local file."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from pai_sdk._core.files import OPEN_FILES_CAN_BE_MOVED, create_at_once
from pai_sdk._data.storage.crc64 import crc64_of, has_crc64
from pai_sdk._data.storage.leftovers import open_part
from pai_sdk._data.storage.uri import OssUri
from pai_sdk.errors import PathConflictError, StorageError

META_SHA256 = "pai-sha256"
"""User metadata: the SHA-256 of the content, in objects that earlier releases wrote."""

META_EXECUTABLE = "pai-executable"
"""User metadata: `true` for an executable file; OSS keeps no modes."""

META_LINK = "pai-link"
"""User metadata: `true` for a symbolic link; the content is its target."""

WRONG_CONTENT = "the bytes that arrived do not have the object's checksum"
"""The problem of content that was damaged on the way, or is that of another version."""

_BUFFER_BYTES = 1 << 17
_MAX_PARTS = 9_000  # OSS allows 10,000
MD5 = re.compile(r"[0-9A-Fa-f]{32}")  # in hexadecimal, as the ETag of most objects


@dataclass(frozen=True)
class PartSizes:
    """The sizes of parts, ranges, lists and hashed trees.

    Attributes:
        part_bytes: the size of a part of an upload, and of a range of a download. Larger files are sent in parts.
        max_get_bytes: the size of the largest object that is downloaded in one request.
        page_objects: the number of objects in a page of a list, and in a request that deletes.
        quick_hash_bytes: the size of the largest tree that is hashed first, about 2 s of work; a larger one is
            compared with its manifest first, and hashed only for the remaining files.
    """

    part_bytes: int = 8 << 20
    max_get_bytes: int = 16 << 20
    page_objects: int = 1000
    quick_hash_bytes: int = 1_000_000_000

    def for_upload(self, size_bytes: int) -> int:
        """Returns the size of the parts of a file; the last one may be shorter."""
        return max(self.part_bytes, -(-size_bytes // _MAX_PARTS))


@dataclass(frozen=True)
class ObjectInfo:
    """The metadata of an object in OSS."""

    uri: OssUri
    size_bytes: int
    etag: str
    meta: Mapping[str, str]  # `x-oss-meta-*` without that prefix, in lower case; a listing does not have it
    content_md5: str | None = None  # hexadecimal, if OSS knows it
    content_crc64: int | None = None  # OSS has it for nearly all objects, but not in a listing
    storage_class: str = ""  # `Standard`, `IA`, `Archive`, `ColdArchive`, `DeepColdArchive`; empty: unknown
    modified_s: float | None = None  # since 1970

    @property
    def sha256(self) -> str | None:
        """Returns the SHA-256 in hexadecimal, if the writer recorded it."""
        return self.meta.get(META_SHA256)


class ContentCheck:
    """Compares received bytes with the object's length and the best checksum there is.

    The order: the CRC-64 of the store, the SHA-256 that the writer recorded, the MD5.
    """

    # One for each small file: without bound methods of its own, which only the garbage collector would free.
    __slots__ = ("_crc64", "_expected", "_hash", "_info", "_size_bytes")

    def __init__(self, info: ObjectInfo) -> None:
        self._info = info
        self._size_bytes = 0
        self._crc64 = 0
        self._hash: Any = None
        self._expected: int | str | None = None
        if info.content_crc64 is not None and has_crc64():
            self._expected = info.content_crc64
        elif info.sha256:
            self._expected, self._hash = info.sha256.lower(), hashlib.sha256()
        elif info.content_md5:
            self._expected, self._hash = info.content_md5.lower(), hashlib.md5(usedforsecurity=False)

    @property
    def has_checksum(self) -> bool:
        """Returns False if there is nothing to compare but the length."""
        return self._expected is not None

    def update(self, chunk: bytes | memoryview) -> ContentCheck:
        """Adds the next bytes."""
        self._size_bytes += len(chunk)
        if self._hash is not None:
            self._hash.update(chunk)
        elif self._expected is not None:
            self._crc64 = crc64_of(chunk, self._crc64)
        return self

    def error(self) -> str | None:
        """Returns a description of the problem of the received bytes, or None."""
        if self._size_bytes != self._info.size_bytes:
            return f"{self._size_bytes} bytes arrived, not {self._info.size_bytes}"
        checksum = self._crc64 if self._hash is None else self._hash.hexdigest()
        return None if self._expected in (None, checksum) else WRONG_CONTENT


def object_meta(sha256: str = "", *, executable: bool) -> dict[str, str]:
    """Returns the user metadata of an object: hash, if it is known, and mode of its file."""
    return {**({META_SHA256: sha256} if sha256 else {}), **({META_EXECUTABLE: "true"} if executable else {})}


def md5_of(headers: Mapping[str, str], etag: str) -> str | None:
    """Returns the MD5 that a response's headers (names in lower case) give for the content, in hexadecimal."""
    # Without `Content-MD5` it is the ETag, but only of a `Normal` object that is not encrypted with KMS.
    if headers.get("content-md5"):
        return base64.b64decode(headers["content-md5"]).hex()
    normal = headers.get("x-oss-object-type", "Normal") == "Normal"
    if not normal or headers.get("x-oss-server-side-encryption", "").upper() == "KMS":
        return None
    return etag if MD5.fullmatch(etag) else None


class Draft(NamedTuple):
    """A temporary file: its path, and the open file, to which its content is written."""

    path: Path
    stream: BinaryIO


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Draft]:
    """Yields a temporary file beside `path` that replaces `path` at the end, or is removed on an error."""
    part, file = open_part(path.parent)
    stream = os.fdopen(file, "wb", buffering=_BUFFER_BYTES)
    try:
        yield Draft(part, stream)
        stream.flush()
        if not OPEN_FILES_CAN_BE_MOVED:
            stream.close()
        publish_file(part, path)
    except BaseException:
        # close() flushes the buffer first, which fails on a full disk.
        with contextlib.suppress(OSError):
            stream.close()
        part.unlink(missing_ok=True)
        raise
    stream.close()


def write_file(path: str | Path, content: bytes, info: ObjectInfo) -> None:
    """Writes the content of a small object to a file, which appears complete."""
    executable = info.meta.get(META_EXECUTABLE) == "true"
    if not create_at_once(str(path), content, executable=executable):
        with replacing(Path(path)) as draft:
            draft.stream.write(content)
            mark_executable(draft.path, info)


def publish_file(part: Path, path: Path) -> None:
    """Renames a finished file to its final name, and replaces an existing file."""
    must_accept_file(path)
    try:
        part.replace(path)
    except IsADirectoryError:
        must_accept_file(path)
        raise


def must_accept_file(path: Path) -> None:
    """Checks that a file can be written at a path; an existing file or link is replaced."""
    try:
        status = path.lstat()
        if stat.S_ISLNK(status.st_mode):
            status = path.stat()
            if stat.S_ISDIR(status.st_mode):
                return
    except OSError:
        # The path does not exist, or writing will report the error.
        return
    if stat.S_ISDIR(status.st_mode):
        raise PathConflictError(f"{path} is a folder, but a file is needed there; move the folder away")
    if not stat.S_ISREG(status.st_mode):
        raise StorageError(f"{path} is a device, pipe or socket; give the name of a file")


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Reports errors of the block with the name of the file, not with its temporary name."""
    try:
        yield
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {error.strerror or error}") from error


def must_be_no_file(path: Path) -> None:
    """Checks that a folder can be created at a path: neither it nor a folder around it is something else."""
    for folder in (path, *path.parents):
        if os.path.lexists(folder) and not os.path.isdir(folder):  # noqa: PTH112 - a Path raises an error
            raise PathConflictError(f"{folder} is a file, but a folder is needed there; move the file away")


def make_folder(path: Path) -> None:
    """Creates a folder and its parents, unless they exist."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        must_be_no_file(path)
        raise StorageError(f"{path} cannot be created: {error.strerror or error}") from error


def mark_executable(path: Path, info: ObjectInfo) -> None:
    """Makes a downloaded file executable for all who may read it, if it was executable before its upload."""
    if info.meta.get(META_EXECUTABLE) == "true":
        make_executable(path)


def make_executable(path: Path) -> None:
    """Makes a file executable for all who may read it."""
    mode = path.stat().st_mode
    path.chmod(mode | (mode & 0o444) >> 2)
