"""Lists the files below a folder, sorted by path, one folder at a time; ignored folders are not entered."""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Literal, TypeAlias

from pai_sdk._data.storage.leftovers import is_unfinished
from pai_sdk.errors import InvalidInputError, Problem

Links: TypeAlias = Literal["follow", "inside", "store", "error"]
"""The policy for symbolic links.

- `follow`: their targets are used, wherever they are. A link to a folder around it is an error.
- `inside`: like `follow`, but a link that leads out of the folder is an error.
- `store`: links are stored as links.
- `error`: each link is an error.
"""

Accept: TypeAlias = Callable[[str, bool], bool]
"""Called with (path relative to the root with `/` between its parts, whether it is a folder)."""

NO_SUCH_FILE = "no such file or folder"
_log = logging.getLogger(__name__)

_HINT = "remove it"
_FOLLOW_HINT = "remove it, or follow it with links='follow'"


def accept_all(path: str, is_dir: bool) -> bool:
    """Accepts everything."""
    return True


@dataclass(frozen=True)
class FolderListing:
    """The files below a folder, sorted by path, and the problems: what cannot be uploaded."""

    root: Path
    files: tuple[WalkEntry, ...]
    problems: tuple[Problem, ...] = ()


def list_folder(
    root: str | Path, *, accept: Accept = accept_all, links: Links = "inside", hint: str = ""
) -> FolderListing:
    """Finds the files below a folder; a single file is a folder with one file, with its parent as root."""
    # Links to files and folders within the root are followed. Problems are: links that lead outside (unless all
    # are followed), to nothing, or to a folder around them; sockets, pipes and devices; names that are not UTF-8.
    # Temporary files of downloads are skipped.
    # `accept` is called with each folder before it is entered and with each file; refused ones are skipped.
    root = Path(root)
    try:
        status = root.stat()
    except (OSError, ValueError) as error:
        raise InvalidInputError([Problem(str(root), reason_missing(root, error))]) from error
    problems: list[Problem] = []
    is_dir = stat.S_ISDIR(status.st_mode)
    folder = root if is_dir else root.parent
    walk = FolderWalk(folder, accept=accept, links=links, hint=hint, report=problems.append)
    entries = walk.entries() if is_dir else walk.file(root.name, status)
    files = tuple(entries)
    return FolderListing(folder, files, tuple(sorted(problems, key=lambda problem: problem.where)))


def reason_missing(root: Path, error: OSError | ValueError) -> str:
    """Returns why a path cannot be read, from the error of an attempt."""
    if os.path.islink(root):  # noqa: PTH114 - a Path raises an error
        return "is a broken link"
    if isinstance(error, FileNotFoundError | NotADirectoryError | ValueError):
        return NO_SUCH_FILE
    return f"cannot be read: {error.strerror or error}"


@dataclass(frozen=True, slots=True)
class WalkEntry:
    """A file, a link that is stored as a link, or an empty folder."""

    path: str  # relative to the root; that of a folder ends with `/`
    status: os.stat_result  # of the file; of a followed link, that of its target
    target: str = ""  # of a followed link; empty otherwise

    @property
    def size_bytes(self) -> int:
        """Returns the size when the folder was read."""
        return self.status.st_size

    @property
    def executable(self) -> bool:
        """Returns True if its owner may execute it."""
        return bool(self.status.st_mode & stat.S_IXUSR)

    @property
    def is_link(self) -> bool:
        """Returns True for a link that is stored as a link."""
        return stat.S_ISLNK(self.status.st_mode)


@dataclass
class _Folder:
    path: str
    # Real paths of this folder and of all folders around it.
    real_paths: tuple[str, ...]
    entries: Iterator[os.DirEntry[str]]


class FolderWalk:
    """Walks through a folder in the order of the paths, with the entries of one branch in memory."""

    def __init__(
        self,
        root: Path,
        *,
        # Called with each folder before it is entered and with each file; refused ones are skipped.
        accept: Accept = accept_all,
        links: Links = "inside",
        # True: empty folders are entries, too.
        folders: bool = False,
        # What to do with a file that cannot be used.
        hint: str = "",
        report: Callable[[Problem], None] = lambda problem: None,
    ) -> None:
        self._root = root
        self._accept = accept
        self._links = links
        self._folders = folders
        self._hint = hint or _HINT
        self._outside_hint = hint or _FOLLOW_HINT
        self._report = report

    def entries(self, prefix: str = "") -> Iterator[WalkEntry]:
        """Yields the files of the folder, in the order of the UTF-8 bytes of the paths."""
        branch = [_Folder("", (os.path.realpath(self._root),), self._entries(""))]
        while branch:
            folder = branch[-1]
            entry = next(folder.entries, None)
            if entry is None:
                branch.pop()
                continue
            path = f"{folder.path}{entry.name}"
            if not (path.startswith(prefix) or prefix.startswith(f"{path}/")):
                continue
            try:
                entry.name.encode("utf-8")
                real_path = self._real_path(entry, path, folder.real_paths)
                if real_path is None:
                    yield from self._file(entry, path, folder.real_paths)
                elif real_path and (inner := self._inner_folder(path, (*folder.real_paths, real_path))):
                    branch.append(inner)
                elif real_path and self._folders and f"{path}/".startswith(prefix):
                    yield WalkEntry(f"{path}/", entry.stat())
            except UnicodeEncodeError:
                escaped = ascii(os.fsencode(path))[2:-1]
                self._report(Problem(escaped, "its name is not UTF-8", "rename it"))
            except FileNotFoundError:
                # The entry was removed since the folder was read.
                continue
            except OSError as error:
                self._report(Problem(path, f"cannot be read: {error.strerror or error}", self._hint))

    def _inner_folder(self, path: str, real_paths: tuple[str, ...]) -> _Folder | None:
        """Returns the folder with its entries; None if it is empty."""
        entries = self._entries(path)
        first = next(entries, None)
        return None if first is None else _Folder(f"{path}/", real_paths, chain((first,), entries))

    def file(self, path: str, status: os.stat_result, target: str = "") -> Iterator[WalkEntry]:
        """Yields one file, or reports that it is not a regular one."""
        if stat.S_ISREG(status.st_mode):
            yield WalkEntry(path, status, target)
        else:
            self._report(Problem(path, "is a socket, pipe or device, not a file", self._hint))

    def _entries(self, folder: str) -> Iterator[os.DirEntry[str]]:
        try:
            with os.scandir(self._root / folder) as scanned:
                # A folder `a` is sorted after `a.txt`: the paths of its files continue with `/`.
                entries = sorted(scanned, key=self._sort_key, reverse=True)
                # Popped, because an entry caches its status, which needs memory.
                while entries:
                    yield entries.pop()
        except OSError as error:
            # The entry was removed since the folder was read.
            if folder and isinstance(error, FileNotFoundError):
                return
            self._report(
                Problem(folder or str(self._root), f"cannot be read: {error.strerror or error}", self._hint)
            )

    def _sort_key(self, entry: os.DirEntry[str]) -> str:
        try:
            is_dir = entry.is_dir(follow_symlinks=self._links != "store")
        except OSError:
            # The link points to itself.
            is_dir = False
        return f"{entry.name}/" if is_dir else entry.name

    def _real_path(self, entry: os.DirEntry[str], path: str, real_paths: tuple[str, ...]) -> str | None:
        """Returns the real path of a folder to enter; empty to skip it; None if the entry is no folder."""
        if entry.is_symlink():
            return self._real_path_of_link(entry, path, real_paths)
        if not entry.is_dir(follow_symlinks=False):
            return None
        return f"{real_paths[-1]}{os.sep}{entry.name}" if self._accept(path, True) else ""

    def _real_path_of_link(self, entry: os.DirEntry[str], path: str, real_paths: tuple[str, ...]) -> str | None:
        if self._links == "store":
            return None
        is_dir = entry.is_dir()
        if not self._accept(path, is_dir):
            return ""
        if self._links == "error":
            self._report(Problem(path, "is a symbolic link", "remove it, or choose another policy for links"))
            return ""
        target = os.path.realpath(entry.path)
        top = real_paths[0].rstrip(os.sep) + os.sep
        if self._links == "inside" and not (target + os.sep).startswith(top):
            self._report(Problem(path, f"is a link to {target}, outside of the folder", self._outside_hint))
        elif is_dir and target in real_paths:
            self._report(Problem(path, "is a link to a folder that it lies in", self._hint))
        elif not os.path.lexists(target) or os.path.islink(target):  # noqa: PTH114 - realpath gives text
            self._report(Problem(path, "is a broken link", self._hint))
        else:
            return target if is_dir else None
        return ""

    def _file(self, entry: os.DirEntry[str], path: str, real_paths: tuple[str, ...]) -> Iterator[WalkEntry]:
        if entry.is_symlink():
            if self._links == "store":
                if self._accept(path, False):
                    yield WalkEntry(path, entry.stat(follow_symlinks=False))
            else:
                yield from self.file(path, entry.stat(), os.path.realpath(entry.path))
        elif is_unfinished(entry.name):
            _log.info("%s is left out: it is a temporary file of an interrupted download", path)
        elif self._accept(path, False):
            yield from self.file(path, entry.stat(follow_symlinks=False))
