"""Extracts an archive that a job has sent: nothing leaves the target, and files appear when they are complete."""

from __future__ import annotations

import os
import posixpath
import shutil
import tarfile
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path, PurePosixPath

from pai_sdk._host.agent.tunnel.in_job.forward_archive import is_link_safe
from pai_sdk.errors import PathConflictError, StorageError

CopyTo = Callable[[Callable[[memoryview], object], int], int]
"""Writes the next bytes of an archive by a function; returns how many there were."""

_PERMISSIONS = 0o777
_IS_WINDOWS = os.name == "nt"


class Extraction:
    """Writes the members of an archive beside the target, and moves them there at the end.

    A job may send anything, so names are checked, and links are created last: no file is written through one.

    Attributes:
        target: the path of the copy.
        num_files: the number of files so far, without links.
        size_bytes: their size.
        skipped: why members were left out, by their names.
    """

    def __init__(self, target: Path, *, is_folder: bool) -> None:
        self.target = target
        self.num_files = 0
        self.size_bytes = 0
        self.skipped: dict[str, str] = {}
        self._is_folder = is_folder
        self._work = target
        self._links: list[tuple[str, str]] = []
        self._folders: list[tuple[str, int]] = []
        if is_folder and target.exists() and not target.is_dir():
            raise PathConflictError(f"{target} is a file, and a folder is copied", uri=str(target))
        if not is_folder and target.is_dir():
            raise PathConflictError(f"{target} is a folder, and a file is copied", uri=str(target))
        if target.exists() and not (target.is_file() or target.is_dir()):
            raise PathConflictError(f"{target} is neither a file nor a folder", uri=str(target))

    def __enter__(self) -> Extraction:
        try:
            self.target.parent.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError) as error:
            parent = self.target.parent
            raise PathConflictError(f"{self.target}: {parent} is no folder", uri=str(parent)) from error
        # Beside the target, so that a move is a rename.
        self._work = Path(tempfile.mkdtemp(prefix=f".{self.target.name[:50]}.", dir=self.target.parent))
        return self

    def __exit__(self, *exc: object) -> None:
        shutil.rmtree(self._work, ignore_errors=True)

    def add(self, member: tarfile.TarInfo, copy_to: CopyTo) -> None:
        """Extracts a member, whose content `copy_to` writes."""
        name = self._safe_name(member.name)
        if name is None:
            self.skipped[member.name] = "its name leads out of the folder"
        elif member.isdir():
            if self._is_folder:
                (self._work / name).mkdir(parents=True, exist_ok=True)
                self._folders.append((name, member.mode))
        elif member.isreg():
            self._write(member, name, copy_to)
        elif member.issym():
            self._links.append((name, member.linkname))
        elif member.islnk():
            self._copy_earlier(name, member.linkname)
        else:
            self.skipped[member.name] = "neither a file nor a folder"

    def finish(self) -> None:
        """Creates the links, and moves everything to the target."""
        for name, link in self._links:
            self._create_link(name, link)
        if not self._is_folder:
            files = [*self._work.iterdir()]
            if len(files) != 1:
                reason = next(iter(self.skipped.values()), "the job sent no file")
                raise StorageError(f"{self.target}: nothing was copied: {reason}")
            files[0].replace(self.target)
            return
        self._set_modes()
        if self.target.exists():
            _merge(self._work, self.target)
        else:
            # `mkdtemp` has made it for this user only.
            self._work.chmod(_PERMISSIONS & ~_umask())
            self._work.replace(self.target)

    def path_in(self, error: OSError) -> Path:
        """Returns the path that an error is about; that of the copy, not of the temporary folder."""
        path = Path(os.fsdecode(error.filename2 or error.filename or self.target))
        if self._is_folder and path.is_relative_to(self._work):
            return self.target / path.relative_to(self._work)
        is_temporary = path.parent == self.target.parent or path.is_relative_to(self._work)
        return self.target if is_temporary else path

    def _safe_name(self, name: str) -> str | None:
        """Returns the normalized name of a member; None for one outside of the folder."""
        normal = posixpath.normpath(name)
        parts = normal.split("/")
        if normal.startswith("/") or ".." in parts or "\0" in name or _is_foreign(name):
            return None
        if not self._is_folder:
            return parts[-1] if parts[-1] != "." else None
        return normal

    def _write(self, member: tarfile.TarInfo, name: str, copy_to: CopyTo) -> None:
        if name == "." or member.issparse():
            # The data of a sparse file are not its content; instances send none.
            self.skipped[member.name] = "not a file"
            return
        path = self._work / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            written = copy_to(file.write, member.size)
        if written != member.size:
            raise tarfile.ReadError(f"{member.name} is incomplete")
        path.chmod((member.mode & _PERMISSIONS) | 0o600)
        with suppress(OSError, OverflowError, ValueError):
            os.utime(path, (member.mtime, member.mtime))
        self.num_files += 1
        self.size_bytes += member.size

    def _copy_earlier(self, name: str, linkname: str) -> None:
        """Extracts a hard link as a copy of the file, which is earlier in the archive."""
        earlier = self._safe_name(linkname)
        source = self._work / earlier if earlier is not None else None
        if source is None or not source.is_file():
            self.skipped[name] = "a link to a file that is not in the folder"
            return
        path = self._work / name
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, path)
        self.num_files += 1
        self.size_bytes += path.stat().st_size

    def _create_link(self, name: str, link: str) -> None:
        path = self._work / name
        if _is_foreign(link) or not is_link_safe(name.split("/")[:-1], link):
            self.skipped[name] = f"a link out of the folder, to {link}"
            return
        # Behind an earlier link, it would be elsewhere than its name says, and could lead out of the folder.
        if any((self._work / folder).is_symlink() for folder in PurePosixPath(name).parents):
            self.skipped[name] = "it is behind a link"
            return
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.symlink_to(link)
        except FileExistsError:
            self.skipped[name] = "a second entry of this name"
        except (OSError, NotImplementedError) as error:  # not permitted on Windows
            self.skipped[name] = f"the link cannot be created: {error}"

    def _set_modes(self) -> None:
        # The deepest first, and never without the rights of the user, who could not delete such a folder.
        for name, mode in sorted(self._folders, reverse=True):
            if name != ".":
                (self._work / name).chmod((mode & _PERMISSIONS) | 0o700)


def _is_foreign(path: str) -> bool:
    """Returns whether Windows would read a path of Linux as another one: of a drive, or with other folders."""
    return _IS_WINDOWS and (":" in path or "\\" in path)


def _merge(source: Path, target: Path) -> None:
    """Moves files over those of an existing folder; its other files stay."""
    for entry in source.iterdir():
        path = target / entry.name
        if entry.is_dir() and not entry.is_symlink():
            if path.is_symlink() or (path.exists() and not path.is_dir()):
                raise PathConflictError(f"{path} is no folder, and a folder is copied", uri=str(path))
            path.mkdir(exist_ok=True)
            _merge(entry, path)
        elif path.is_dir() and not path.is_symlink():
            raise PathConflictError(f"{path} is a folder, and a file is copied", uri=str(path))
        elif path.exists() and not (path.is_file() or path.is_symlink()):
            raise PathConflictError(f"{path} is neither a file nor a folder", uri=str(path))
        else:
            entry.replace(path)


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
