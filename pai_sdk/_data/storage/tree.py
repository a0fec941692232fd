"""The files of a folder with one hash of their content, which names the folder in OSS."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeAlias

from pai_sdk._data.storage.file_hash import hash_file
from pai_sdk._data.storage.pool import TransferPool
from pai_sdk._data.storage.stored_file import StoredFile
from pai_sdk._data.storage.walk import Accept, FolderListing, Links, WalkEntry, accept_all, list_folder
from pai_sdk.errors import InvalidInputError, Problem

PartBytes: TypeAlias = Callable[[int], int]

_CHUNK_BYTES = 1 << 17
# Hashed in a millisecond: for smaller files, threads would cost more than they save.
_LARGE_BYTES = 1 << 20
_HASHING_THREADS = 4


@dataclass(frozen=True)
class FileTree:
    """Files below a folder, sorted by path, each with its SHA-256."""

    root: Path
    entries: tuple[StoredFile, ...]
    digest: str  # over (path, mode, content) of all files

    @classmethod
    def scan(
        cls,
        root: str | Path,
        *,
        accept: Accept = accept_all,
        # Returns the size of the parts that a file of a given size is sent in. The hashes of the parts are
        # computed too, for files that are sent in any case.
        part_bytes: PartBytes | None = None,
        links: Links = "inside",
    ) -> FileTree:
        """Finds and hashes the files below a folder; a single file is a tree of one, with its parent as root."""
        listing = list_folder(root, accept=accept, links=links)
        if listing.problems:
            raise InvalidInputError([*listing.problems, *unreadable(listing)])
        return cls.of(listing, part_bytes=part_bytes)

    @classmethod
    def of(cls, listing: FolderListing, *, part_bytes: PartBytes | None = None) -> FileTree:
        """Hashes the files of a listing; reports all files that cannot be read at once."""
        large = _hash_large(listing, part_bytes)
        entries: list[StoredFile] = []
        problems: list[Problem] = []
        # One buffer for all: a new one for each file costs more time than the hashing.
        buffer = memoryview(bytearray(_CHUNK_BYTES))
        for file in listing.files:
            entry = large.get(file.path) or _entry_or_problem(file, partial(_entry, listing.root, file, buffer))
            if isinstance(entry, Problem):
                problems.append(entry)
            else:
                entries.append(entry)
        if problems:
            raise InvalidInputError(problems)
        return cls(listing.root, tuple(entries), digest_of(entries))

    @property
    def size_bytes(self) -> int:
        """Returns the total size."""
        return sum(entry.size_bytes for entry in self.entries)

    def summary(self) -> str:
        """Returns a string such as `12 files, 3.4 MB`."""
        count = len(self.entries)
        return f"{count} file{'' if count == 1 else 's'}, {size_text(self.size_bytes)}"


def unreadable(listing: FolderListing) -> Iterator[Problem]:
    """Yields the files that cannot be read, so that they are reported with other problems before hashing."""
    for file in listing.files:
        try:
            (listing.root / file.path).open("rb").close()
        except OSError as error:
            yield _cannot_be_read(file, error)


def size_text(size_bytes: int) -> str:
    """Returns a size as a string: `0 B`, `6.1 kB`, `53.0 MB`, `1.2 GB`."""
    if size_bytes < 1000:
        return f"{size_bytes} B"
    unit, name = next((pair for pair in ((1e9, "GB"), (1e6, "MB")) if size_bytes >= pair[0]), (1e3, "kB"))
    return f"{size_bytes / unit:.1f} {name}"


def _cannot_be_read(file: WalkEntry, error: OSError) -> Problem:
    return Problem(file.path, f"cannot be read: {error.strerror or error}")


def _hash_large(listing: FolderListing, part_bytes: PartBytes | None) -> dict[str, StoredFile | Problem]:
    """Returns the large files by path."""
    # hashlib releases the interpreter's lock, so several files are hashed at a time.
    files = [file for file in listing.files if file.size_bytes > _LARGE_BYTES]
    with TransferPool(_HASHING_THREADS) as pool:

        def hash_entry(file: WalkEntry) -> StoredFile | Problem:
            is_stopped = pool.stopped.is_set
            if part_bytes is not None and file.size_bytes > (of := part_bytes(file.size_bytes)):
                return _entry_or_problem(file, partial(_entry_with_parts, listing.root, file, of, is_stopped))
            buffer = memoryview(bytearray(_CHUNK_BYTES))
            return _entry_or_problem(file, partial(_entry, listing.root, file, buffer, is_stopped))

        entries = pool.run_all(partial(hash_entry, file) for file in files)
    return {file.path: entry for file, entry in zip(files, entries, strict=True)}


def _entry_or_problem(file: WalkEntry, entry: Callable[[], StoredFile]) -> StoredFile | Problem:
    try:
        return entry()
    except OSError as error:
        return _cannot_be_read(file, error)


def _entry_with_parts(root: Path, file: WalkEntry, part_bytes: int, is_stopped: Callable[[], bool]) -> StoredFile:
    hashed = hash_file(root / file.path, file.size_bytes, part_bytes, is_stopped)
    sha256 = hashed.sha256
    return StoredFile(file.path, hashed.size_bytes, None, sha256, file.executable, sha256=sha256, hashed=hashed)


def _entry(
    root: Path, file: WalkEntry, buffer: memoryview, is_stopped: Callable[[], bool] = lambda: False
) -> StoredFile:
    content = hashlib.sha256()
    size_bytes = 0
    with (root / file.path).open("rb", buffering=0) as stream:
        # When the caller is interrupted, the result is not used: the end of a large file is not waited for.
        while not is_stopped() and (read := stream.readinto(buffer)):
            content.update(buffer[:read])
            size_bytes += read
    sha256 = content.hexdigest()
    return StoredFile(file.path, size_bytes, None, sha256, file.executable, sha256=sha256)


def digest_of(entries: Sequence[StoredFile]) -> str:
    """Returns one hash over path, mode and content of files, in the order of their paths."""
    # No path has a NUL and the other two have a fixed length, so no two trees give the same bytes.
    digest = hashlib.sha256()
    for entry in entries:
        digest.update(f"{entry.path}\0{'x' if entry.executable else '-'}{entry.sha256}\n".encode())
    return digest.hexdigest()
