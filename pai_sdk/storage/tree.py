"""A folder's files with one hash of their content: what is uploaded, and the name it is uploaded under."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["FileEntry", "FileTree"]


@dataclass(frozen=True)
class FileEntry:
    """One file. `path` is relative to the tree's root, with `/` between its parts."""

    path: str
    size_bytes: int
    executable: bool
    sha256: str


@dataclass(frozen=True)
class FileTree:
    """Files below a folder, sorted by path; `digest` is the hash over (path, mode, content) of all of them."""

    root: Path
    entries: tuple[FileEntry, ...]
    digest: str

    @property
    def size_bytes(self) -> int:
        """Bytes of all files together."""
        return sum(entry.size_bytes for entry in self.entries)

    def summary(self) -> str:
        """For people: `12 files, 3.4 MB`."""
        return f"{len(self.entries)} files, {self.size_bytes / 1e6:.1f} MB"
