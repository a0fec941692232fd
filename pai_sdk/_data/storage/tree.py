"""The files of a folder with one hash of their content, which names the folder in OSS."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from pai_sdk._data.storage.content_hash import (
    SHA256,
    SMALL_BYTES,
    algorithm_for,
    algorithm_of,
    has_blake3,
    hash_file,
    sha256_of_file,
)
from pai_sdk._data.storage.pool import TransferPool
from pai_sdk._data.storage.stored_file import StoredFile
from pai_sdk._data.storage.walk import Accept, FolderListing, Links, WalkEntry, accept_all, list_folder
from pai_sdk.errors import InvalidInputError, Problem

_CHUNK_BYTES = 1 << 17
# Hashed in a millisecond: for smaller files, threads would cost more than they save.
_LARGE_BYTES = 1 << 20
_HASHING_THREADS = 4


@dataclass(frozen=True)
class FileTree:
    """Files below a folder, sorted by path, each with the hash of its content."""

    root: Path
    entries: tuple[StoredFile, ...]
    digest: str  # over (path, mode, content) of all files

    @classmethod
    def scan(
        cls,
        root: str | Path,
        *,
        accept: Accept = accept_all,
        links: Links = "inside",
    ) -> FileTree:
        """Finds and hashes the files below a folder; a single file is a tree of one, with its parent as root."""
        listing = list_folder(root, accept=accept, links=links)
        if listing.problems:
            raise InvalidInputError([*listing.problems, *unreadable(listing)])
        return cls.of(listing)

    @classmethod
    def of(cls, listing: FolderListing) -> FileTree:
        """Hashes the files of a listing; reports all files that cannot be read at once."""
        large = _hash_large(listing)
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


def _hash_large(listing: FolderListing) -> dict[str, StoredFile | Problem]:
    """Returns the large files by path."""
    # The hashes release the interpreter's lock, so several files are hashed at a time.
    files = [file for file in listing.files if file.size_bytes > _LARGE_BYTES]
    if not files:
        return {}
    has_blake3()  # asked by one thread, so that it is logged once
    with TransferPool(_HASHING_THREADS) as pool:

        def hash_entry(file: WalkEntry) -> StoredFile | Problem:
            buffer = memoryview(bytearray(_LARGE_BYTES))
            return _entry_or_problem(file, partial(_entry, listing.root, file, buffer, pool.stopped.is_set))

        entries = pool.run_all(partial(hash_entry, file) for file in files)
    return {file.path: entry for file, entry in zip(files, entries, strict=True)}


def _entry_or_problem(file: WalkEntry, entry: Callable[[], StoredFile]) -> StoredFile | Problem:
    try:
        return entry()
    except OSError as error:
        return _cannot_be_read(file, error)


def _entry(
    root: Path, file: WalkEntry, buffer: memoryview, is_stopped: Callable[[], bool] = lambda: False
) -> StoredFile:
    # Small files have no CRC-64: anycrc, whose import takes longer than a hundred of them, is not needed then.
    algorithms, with_crc64 = [algorithm_for(file.size_bytes)], file.size_bytes > SMALL_BYTES
    read = hash_file(f"{root}/{file.path}", algorithms, buffer, is_stopped, with_crc64=with_crc64)
    digest = read.digests[0]
    return StoredFile(file.path, read.size_bytes, None, digest, file.executable, digest=digest, crc64=read.crc64)


def with_sha256(tree: FileTree) -> FileTree:
    """Returns a tree with the SHA-256 of all files, and so with the digest that earlier releases give it.

    The other files are read again. Raises FileChangedError if they have changed.
    """
    rehashed = [entry for entry in tree.entries if algorithm_of(entry.digest) != SHA256]
    if not rehashed:
        return tree
    with TransferPool(_HASHING_THREADS) as pool:
        is_stopped = pool.stopped.is_set
        digests = pool.run_all(
            partial(sha256_of_file, tree.root / entry.path, entry.digest, is_stopped) for entry in rehashed
        )
    by_path = {entry.path: digest for entry, digest in zip(rehashed, digests, strict=True)}
    entries = [replace(entry, digest=by_path.get(entry.path, entry.digest)) for entry in tree.entries]
    return FileTree(tree.root, tuple(entries), digest_of(entries))


def digest_of(entries: Sequence[StoredFile]) -> str:
    """Returns one hash over path, mode and content of files, in the order of their paths."""
    # No path has a NUL, the mode has one character, and only a SHA-256 begins with its digits, as in earlier
    # releases. So no two trees give the same bytes.
    content = hashlib.sha256()
    for entry in entries:
        digest = entry.digest.removeprefix(f"{SHA256}:")
        content.update(f"{entry.path}\0{'x' if entry.executable else '-'}{digest}\n".encode())
    return content.hexdigest()
