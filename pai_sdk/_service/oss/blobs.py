"""The content of objects in files. Their names are random, so that no key can point outside the folder."""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import threading
import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from pai_sdk._core.files import sync_folder
from pai_sdk._data.storage.crc64 import crc64_of
from pai_sdk._service.oss.error_codes import oss_error
from pai_sdk._service.oss.object_rows import MAX_ROW_BYTES, ContentLimits

_log = logging.getLogger(__name__)

SHARDS = tuple(f"{number:02x}" for number in range(256))
_CHUNK_BYTES = 1 << 20
MAX_MD5_BYTES = 8 << 20
"""The ETag of an object that was put in one request is its MD5 up to this size: clients compare the two."""

_SYNC_BYTES = 4 << 20
_MAX_START = 1 << 40  # file systems limit the size of a file, ext4 to 16 TiB


@dataclass(frozen=True)
class Blob:
    """A written blob: file, offset, size, ETag and CRC-64."""

    name: str
    size_bytes: int
    etag: str
    start: int = 0
    crc64: int | None = None


@dataclass(frozen=True)
class BlobRange:
    """A range of bytes of a blob."""

    name: str
    start: int
    size_bytes: int


class BlobFolder:
    """`blobs/ab/<name>` for complete blobs and for parts of uploads; `incoming/<name>` for unfinished ones."""

    # Prefixes of the names of contents in another store; a folder has none.
    external_shards: Sequence[str] = ()

    def __init__(self, root: Path, limits: ContentLimits) -> None:
        self.limits = limits
        self._blobs, self._incoming = root / "blobs", root / "incoming"
        # Read before the folder is created: a missing folder with rows is a lost or wrong disk.
        self.was_missing = not self._blobs.exists()
        self._lock = threading.Lock()
        self._new_names: set[str] | None = set()
        # Drafts of an earlier process: the caller holds the store's lock, so no other process writes them.
        shutil.rmtree(self._incoming, ignore_errors=True)
        self._incoming.mkdir(parents=True, mode=0o700, exist_ok=True)
        for shard in SHARDS:
            (self._blobs / shard).mkdir(parents=True, mode=0o700, exist_ok=True)
        for folder in (self._blobs, root):
            sync_folder(folder)

    def path(self, name: str) -> Path:
        """Returns the path of a blob."""
        return self._blobs / name[:2] / name

    def open(self, name: str) -> tuple[BinaryIO, int]:
        """Returns a reader of a blob, which stays valid if the blob is removed, and the blob's size in bytes."""
        stream = self.path(name).open("rb")
        return stream, os.fstat(stream.fileno()).st_size

    def append(self, name: str, size_bytes: int, addition: str) -> None:
        """Truncates a blob to `size_bytes`, appends another blob, and forces it to the disk."""
        with self.path(addition).open("rb") as source, self.path(name).open("r+b") as target:
            # An interrupted append may have left bytes behind the recorded size.
            target.truncate(size_bytes)
            target.seek(size_bytes)
            shutil.copyfileobj(source, target, _CHUNK_BYTES)
            target.flush()
            os.fsync(target.fileno())

    def writer(self) -> BlobWriter:
        """Starts a new blob."""
        name = self.new_name()
        return BlobWriter(name, self._incoming / name, self.path(name), self.limits.max_row_bytes)

    def publish(self, writer: BlobWriter) -> Blob:
        """Completes a blob that becomes the content of an object."""
        return writer.finish()

    def share(self, name: str) -> str:
        """Creates a hard link to a blob, which is never changed; returns the link's name."""
        link_name = self.new_name()
        try:
            os.link(self.path(name), self.path(link_name))
        except FileNotFoundError:
            raise
        except OSError:
            # A file system without hard links, or too many of them.
            with self.writer() as writer, self.path(name).open("rb") as stream:
                writer.copy_from(stream)
                return writer.finish().name
        # The link must survive a power failure before a row refers to it.
        sync_folder(self.path(link_name).parent)
        return link_name

    def join(self, ranges: Sequence[BlobRange]) -> str:
        """Concatenates ranges of blobs into a new blob and returns its name; raises `EOFError` if one is short."""
        with self.writer() as writer:
            for each in ranges:
                writer.copy_unhashed(each, self.path(each.name))
            return writer.finish().name

    def fill(self, name: str, size_bytes: int, ranges: Mapping[int, BlobRange]) -> bool:
        """Copies ranges into a blob, sets its length and syncs it; returns False where contents are no files."""
        with self.path(name).open("r+b") as target:
            for start, each in ranges.items():
                target.seek(start)
                _copy_range(each, self.path(each.name), target)
            target.truncate(size_bytes)
            target.flush()
            os.fsync(target.fileno())
        return True

    def remove(self, names: Iterable[str]) -> None:
        """Unlinks blobs; open readers stay valid."""
        for name in names:
            try:
                self.path(name).unlink(missing_ok=True)
            # Only logged, because no object needs the blob any more; the sweep of the next start tries again.
            except OSError as error:
                _log.warning("the blob %s cannot be removed now: %s", name, error.strerror)

    def sizes(self, shard: str) -> dict[str, int]:
        """Returns the blobs of a shard with their sizes in bytes."""
        sizes = {}
        with os.scandir(self._blobs / shard) as entries:
            for entry in entries:
                # Removed by another thread since scandir.
                with suppress(FileNotFoundError):
                    sizes[entry.name] = entry.stat(follow_symlinks=False).st_size
        return sizes

    def size_of(self, name: str) -> int:
        """Returns the size of a blob in bytes; -1 if it is missing."""
        try:
            return self.path(name).stat().st_size
        except FileNotFoundError:
            return -1

    def old_names(self, names: Iterable[str]) -> list[str]:
        """Returns the names that an earlier process created; only valid until `forget_new_names`."""
        # Names are recorded before their files are created, so every listed file of this process is in the set.
        with self._lock:
            new_names = frozenset(self._new_names or ())
        return [name for name in names if name not in new_names]

    def forget_new_names(self) -> None:
        """Frees the record of new names; `old_names` must not be called any more."""
        with self._lock:
            self._new_names = None

    def new_name(self) -> str:
        """Returns an unused name; the sweep ignores a file of that name."""
        name = uuid.uuid4().hex
        with self._lock:
            if self._new_names is not None:
                self._new_names.add(name)
        return name


class BlobWriter:
    """A blob that is being written; unless it is finished, it is removed at the end of the block."""

    def __init__(self, name: str, draft: Path, final: Path, max_row_bytes: int = MAX_ROW_BYTES) -> None:
        self._name, self._draft, self._final = name, draft, final
        self._max_row_bytes = max_row_bytes
        # Of contents that are not larger; an MD5 takes ten times as long as a CRC-64.
        self.max_md5_bytes = MAX_MD5_BYTES
        self._md5: hashlib._Hash | None = hashlib.md5(usedforsecurity=False)
        self._hashed_bytes = 0
        self._unsynced_bytes = 0
        self.crc64 = 0
        self.size_bytes = 0
        self._in_memory = bytearray()
        # Opened only when the content is too large for a row.
        self._stream: BinaryIO | None = None

    def __enter__(self) -> BlobWriter:
        return self

    def __exit__(self, *exc: object) -> None:
        self.discard()

    def write(self, *chunks: bytes | memoryview) -> None:
        """Appends chunks."""
        self.update_checksums(*chunks)
        self.store_chunks(*chunks)

    def store_chunks(self, *chunks: bytes | memoryview) -> None:
        """Stores chunks without hashing them; `update_checksums` can run in another thread at the same time."""
        for chunk in chunks:
            self.size_bytes += len(chunk)
            if self.size_bytes <= self._max_row_bytes and self._stream is None:
                self._in_memory += chunk
            else:
                self._file().write(chunk)
                self._start_sync(len(chunk))

    def _start_sync(self, size_bytes: int) -> None:
        """Lets the disk begin with what was written, so that the sync at the end waits for little."""
        self._unsynced_bytes += size_bytes
        if self._unsynced_bytes >= _SYNC_BYTES and self._stream is not None and hasattr(os, "posix_fadvise"):
            start = max(self._stream.tell() - self._unsynced_bytes, 0)
            # Linux starts to write these pages, and drops only clean ones. It promises nothing; the sync does.
            with suppress(OSError):
                os.posix_fadvise(self._stream.fileno(), start, self._unsynced_bytes, os.POSIX_FADV_DONTNEED)
            self._unsynced_bytes = 0

    def update_checksums(self, *chunks: bytes | memoryview) -> None:
        """Updates the checksums by chunks that `store_chunks` stores."""
        for chunk in chunks:
            self._hashed_bytes += len(chunk)
            if self._hashed_bytes > self.max_md5_bytes:
                self._md5 = None
            if self._md5 is not None:
                self._md5.update(chunk)
            self.crc64 = crc64_of(chunk, self.crc64)

    def copy_from(self, stream: BinaryIO, size_bytes: int | None = None) -> None:
        """Appends the remaining content of a stream, or `size_bytes` of it; raises `EOFError` if it has fewer."""
        remaining = size_bytes
        while remaining is None or remaining > 0:
            chunk = stream.read(_CHUNK_BYTES if remaining is None else min(remaining, _CHUNK_BYTES))
            if not chunk:
                break
            self.write(chunk)
            remaining = None if remaining is None else remaining - len(chunk)
        if remaining:
            raise EOFError(f"{remaining} bytes are missing")

    def copy_unhashed(self, blob_range: BlobRange, path: Path) -> None:
        """Appends a range of a file without updating size and checksums, which the caller knows."""
        _copy_range(blob_range, path, self._file())

    @property
    def md5(self) -> bytes | None:
        """Returns the MD5 of what was written; None if it has more than `max_md5_bytes`."""
        return None if self._md5 is None else self._md5.digest()

    @property
    def etag(self) -> str:
        """Returns the ETag of what was written, as that of an object."""
        return etag_of_crc64(self.crc64, self.size_bytes) if self._md5 is None else self._md5.hexdigest().upper()

    @property
    def small_content(self) -> bytes | None:
        """Returns the content if it is small enough for a row; there is no file then."""
        return bytes(self._in_memory) if self._stream is None else None

    def flushed_path(self) -> Path:
        """Returns the file with the written content, which exists until the end of the block."""
        self._file().flush()
        return self._draft

    def finish(self, *, durable: bool = True) -> Blob:
        """Moves the complete blob to its final path; if `durable`, forces it to the disk."""
        stream = self._file()
        # Not `replace_file`, which needs the content in memory.
        stream.flush()
        # Before the sync: a crash leaves a blob without a row, which the sweep removes.
        self._draft.rename(self._final)
        if durable:
            # So that a committed row never refers to a blob that a power failure has lost.
            try:
                os.fsync(stream.fileno())
                sync_folder(self._final.parent)
            except BaseException:
                self._final.unlink(missing_ok=True)
                raise
        stream.close()
        return Blob(self._name, self.size_bytes, self.etag, crc64=self.crc64)

    def discard(self) -> None:
        """Removes the draft unless it is finished."""
        if self._stream is None:
            return
        # Close flushes the buffer, which fails on a full disk.
        with suppress(OSError):
            self._stream.close()
        self._draft.unlink(missing_ok=True)

    def _file(self) -> BinaryIO:
        """Returns the file with the written content; opens it on first use."""
        if self._stream is None:
            self._stream = self._open_file()
            self._stream.write(self._in_memory)
            self._in_memory.clear()
        return self._stream

    def _open_file(self) -> BinaryIO:
        return os.fdopen(os.open(self._draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb")


class SharedBlob:
    """A blob that several parts of one upload are written to, each at its offset, so that no join is needed.

        writer() --> slot --> finish(): reserved forever
                      |
                      +-----> discard() without it: free again

    Only a part of the same length as the first one has a slot. A written slot is never written again: a part that
    is uploaded again gets a blob of its own, and so do all parts once the object is being completed.
    """

    def __init__(self, folder: BlobFolder) -> None:
        self._folder = folder
        self.name = folder.new_name()
        # Locked while an object is built from the parts.
        self.completing = threading.Lock()
        # Guards the fields below; no other lock or wait is allowed under it.
        self._lock = threading.Lock()
        self._part_bytes: int | None = None
        self._reserved: set[int] = set()
        self._writing = 0
        self._is_closed = self._has_ended = False

    def writer(self, number: int, size_bytes: int | None) -> BlobWriter:
        """Starts a part; `number` begins at 1, and `size_bytes` is None if the length is unknown."""
        with self._lock:
            if not self._can_reserve(number, size_bytes):
                return self._folder.writer()
            self._part_bytes = size_bytes
            self._reserved.add(number)
            self._writing += 1
        return _SlotWriter(self, self._folder.path(self.name), number, size_bytes or 0)

    def _can_reserve(self, number: int, size_bytes: int | None) -> bool:
        if self._is_closed or number in self._reserved or not size_bytes:
            return False
        # The offset follows from the number only if all parts have the same length.
        return size_bytes == (self._part_bytes or size_bytes) and (number - 1) * size_bytes < _MAX_START

    def close(self) -> bool:
        """Reserves no more slots; returns True if none is being written."""
        with self._lock:
            self._is_closed = True
            return not self._writing

    def end(self) -> None:
        """Reserves no more slots and opens no more files: the blob can be removed for good."""
        with self._lock:
            self._is_closed = self._has_ended = True

    def open(self, start: int) -> BinaryIO:
        """Opens the file for a writer at its offset; raises `NoSuchUpload` after the end of the upload."""
        with self._lock:
            if self._has_ended:
                raise oss_error("NoSuchUpload")
            # Under the lock, so that `end` cannot come before the open, which would create the removed file
            # again.
            stream = os.fdopen(os.open(self._folder.path(self.name), os.O_CREAT | os.O_WRONLY, 0o600), "wb")
        stream.seek(start)
        return stream

    def release(self, number: int, *, is_written: bool) -> None:
        """Releases the slot of a writer; an unwritten slot becomes free again."""
        with self._lock:
            self._writing -= 1
            if not is_written:
                self._reserved.discard(number)


class _SlotWriter(BlobWriter):
    """Writes a part into its slot of a shared blob."""

    def __init__(self, shared: SharedBlob, path: Path, number: int, size_bytes: int) -> None:
        super().__init__(shared.name, path, path)
        self._shared, self._number, self._max_bytes = shared, number, size_bytes
        self._is_finished = self._is_released = False

    @property
    def _start(self) -> int:
        return (self._number - 1) * self._max_bytes

    def store_chunks(self, *chunks: bytes | memoryview) -> None:
        """Stores chunks without hashing them; never writes into the slot of the next part."""
        if self.size_bytes + sum(map(len, chunks)) > self._max_bytes:
            raise oss_error("IncompleteBody")
        super().store_chunks(*chunks)

    def finish(self, *, durable: bool = True) -> Blob:
        """Forces the part to the disk."""
        stream = self._file()
        stream.flush()
        os.fsync(stream.fileno())
        sync_folder(self._final.parent)
        self._is_finished = True
        return Blob(self._name, self.size_bytes, self.etag, self._start, self.crc64)

    def discard(self) -> None:
        """Releases the slot, which is free for another writer unless this one has finished."""
        if self._stream is not None:
            # Close flushes the buffer, which fails on a full disk.
            with suppress(OSError):
                self._stream.close()
        if not self._is_released:
            self._is_released = True
            self._shared.release(self._number, is_written=self._is_finished)

    def _open_file(self) -> BinaryIO:
        return self._shared.open(self._start)


def etag_of_crc64(crc64: int, size_bytes: int) -> str:
    """Returns the ETag of an object without an MD5. By the suffix, clients do not take it for one."""
    return f"{crc64:016X}{size_bytes:016X}-1"


def _copy_range(blob_range: BlobRange, path: Path, target: BinaryIO) -> None:
    remaining = blob_range.size_bytes
    with path.open("rb") as source:
        source.seek(blob_range.start)
        while remaining and (chunk := source.read(min(remaining, _CHUNK_BYTES))):
            target.write(chunk)
            remaining -= len(chunk)
    if remaining:
        raise EOFError(f"{remaining} bytes are missing")
