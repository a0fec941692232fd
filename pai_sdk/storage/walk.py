"""Lists the files below a folder: ignored folders are not entered, and all problems are collected."""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from pai_sdk.errors import InvalidInputError, Problem
from pai_sdk.storage.leftovers import is_unfinished

__all__ = ["NOTHING_THERE", "Accept", "FolderListing", "FoundFile", "accept_all", "list_folder", "why_absent"]

Accept: TypeAlias = Callable[[str, bool], bool]
"""Called with (path relative to the root with `/` between its parts, whether it is a folder)."""

NOTHING_THERE = "there is no such file or folder"
_log = logging.getLogger(__name__)

_IGNORE_HINT = "remove it, or name it in .paiignore"


def accept_all(path: str, is_dir: bool) -> bool:
    """Take everything."""
    return True


@dataclass(frozen=True, slots=True)
class FoundFile:
    """One file.

    Attributes:
        path: relative to the root.
        size_bytes: its size when it was found.
        executable: whether its owner may execute it.
        target: for a link, the file that it leads to; empty otherwise.
    """

    path: str
    size_bytes: int
    executable: bool
    target: str = ""


@dataclass(frozen=True)
class FolderListing:
    """The files below a folder, sorted by path, and the problems: what cannot be uploaded."""

    root: Path
    files: tuple[FoundFile, ...]
    problems: tuple[Problem, ...] = ()


def list_folder(root: str | Path, *, accept: Accept = accept_all) -> FolderListing:
    """Find the files below a folder; a single file is a folder with one file, its parent being the root.

    Links to files and folders within the root are followed. Links that lead outside, to nothing, or back to a
    folder they lie in are problems, and so are sockets, pipes and devices, and names that are not UTF-8. Temporary
    files of our downloads are left out.

    Args:
        root: the folder or file.
        accept: called with each folder before it is entered and with each file; what it refuses is left out.

    Raises:
        InvalidInputError: there is no such folder or file.
    """
    root = Path(root)
    try:
        status = root.stat()
    except (OSError, ValueError) as error:
        raise InvalidInputError([Problem(str(root), why_absent(root, error))]) from error
    if stat.S_ISDIR(status.st_mode):
        walk = _Walk(root, accept, waiting=[("", (os.path.realpath(root),))])
        while walk.waiting:
            walk.visit(*walk.waiting.pop())
        files = sorted(walk.files, key=lambda file: file.path)
        return FolderListing(root, tuple(files), tuple(sorted(walk.problems, key=lambda problem: problem.where)))
    walk = _Walk(root.parent, accept)
    walk.add_file(root.name, status)
    return FolderListing(root.parent, tuple(walk.files), tuple(walk.problems))


def why_absent(root: Path, error: OSError | ValueError) -> str:
    """Why a path cannot be read, from the error that reading has raised."""
    if os.path.islink(root):  # noqa: PTH114 - a Path raises what this answers
        return "is a link to nothing"
    if isinstance(error, FileNotFoundError | NotADirectoryError | ValueError):
        return NOTHING_THERE
    return f"cannot be read: {error.strerror or error}"


@dataclass
class _Walk:
    root: Path
    accept: Accept
    # Folders still to be visited, each with the real paths of itself and of all folders around it.
    waiting: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    files: list[FoundFile] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    def visit(self, folder: str, ancestors: tuple[str, ...]) -> None:
        """Take the files of one folder; its sub-folders are queued."""
        for entry in self._entries(folder):
            path = f"{folder}/{entry.name}" if folder else entry.name
            try:
                entry.name.encode("utf-8")
            except UnicodeEncodeError:
                shown = ascii(os.fsencode(path))[2:-1]
                self.problems.append(Problem(shown, "its name is not UTF-8", "rename it"))
                continue
            try:
                self._take(entry, path, ancestors)
            except OSError as error:
                self.problems.append(Problem(path, f"cannot be read: {error.strerror or error}", _IGNORE_HINT))

    def _entries(self, folder: str) -> Iterator[os.DirEntry[str]]:
        try:
            with os.scandir(self.root / folder) as found:
                yield from sorted(found, key=lambda entry: entry.name)
        except OSError as error:
            self.problems.append(
                Problem(folder or str(self.root), f"cannot be read: {error.strerror or error}", _IGNORE_HINT)
            )

    def _take(self, entry: os.DirEntry[str], path: str, ancestors: tuple[str, ...]) -> None:
        if entry.is_symlink():
            self._take_link(entry, path, ancestors)
        elif entry.is_dir(follow_symlinks=False):
            if self.accept(path, True):
                self.waiting.append((path, (*ancestors, f"{ancestors[-1]}{os.sep}{entry.name}")))
        elif is_unfinished(entry.name):
            _log.info("%s is left out: it is a temporary file of an interrupted download", path)
        elif self.accept(path, False):
            self.add_file(path, entry.stat(follow_symlinks=False))

    def _take_link(self, entry: os.DirEntry[str], path: str, ancestors: tuple[str, ...]) -> None:
        is_dir = entry.is_dir()
        if not self.accept(path, is_dir):
            return
        target = os.path.realpath(entry.path)
        top = ancestors[0].rstrip(os.sep) + os.sep
        if not (target + os.sep).startswith(top):
            self.problems.append(Problem(path, f"is a link to {target}, outside of the folder", _IGNORE_HINT))
        elif is_dir and target in ancestors:
            self.problems.append(Problem(path, "is a link to a folder that it lies in", _IGNORE_HINT))
        elif is_dir:
            self.waiting.append((path, (*ancestors, target)))
        elif not os.path.lexists(target) or os.path.islink(target):  # noqa: PTH114 - realpath gives text
            self.problems.append(Problem(path, "is a link to nothing", _IGNORE_HINT))
        else:
            self.add_file(path, entry.stat(), target)

    def add_file(self, path: str, status: os.stat_result, target: str = "") -> None:
        """Add a file, or the problem that it is not a regular one."""
        if stat.S_ISREG(status.st_mode):
            executable = bool(status.st_mode & stat.S_IXUSR)
            self.files.append(FoundFile(path, status.st_size, executable, target))
        else:
            self.problems.append(Problem(path, "is a socket, pipe or device, not a file", _IGNORE_HINT))
