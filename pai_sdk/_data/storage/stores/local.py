"""A folder on a local disk as a store."""

from __future__ import annotations

import errno
import os
import posixpath
import re
import secrets
import shutil
import stat
import unicodedata
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO
from urllib.parse import unquote, urlsplit

from pai_sdk._data.storage.base import Store, checked_path
from pai_sdk._data.storage.leftovers import sweep
from pai_sdk._data.storage.objects import make_executable, make_folder, must_accept_file, replacing, writing
from pai_sdk._data.storage.stored_file import StoredFile, Unlisted
from pai_sdk._data.storage.walk import FolderWalk, Links
from pai_sdk.errors import (
    FileNameError,
    InvalidInputError,
    ObjectNotFoundError,
    PathConflictError,
    Problem,
    StorageError,
)

_CHUNK_BYTES = 1 << 20
_NO_NAME = re.compile("\0" if os.sep == "/" else r"[\0\\:]")
_NOT_IN_FOLDER = "it is no longer a file of this folder"


def path_of_file_uri(uri: str) -> Path:
    """Returns the path of a `file:` URI of this host."""
    parts = urlsplit(uri)
    if parts.netloc not in ("", "localhost"):
        hint = "write file:///path, with three slashes"
        raise InvalidInputError([Problem(repr(uri), f"names the host {parts.netloc!r}", hint)])
    return Path(unquote(parts.path))


def stored_file_of(path: str, status: os.stat_result) -> StoredFile:
    """Returns the metadata of a local file."""
    # The ETag has time and inode, so it also changes when an older file replaces this one.
    if stat.S_ISDIR(status.st_mode):
        return StoredFile(path, 0, status.st_mtime_ns, "")
    is_executable = bool(status.st_mode & stat.S_IXUSR) and stat.S_ISREG(status.st_mode)
    etag = f"{status.st_size:x}-{status.st_mtime_ns:x}-{status.st_ino:x}"
    return StoredFile(path, status.st_size, status.st_mtime_ns, etag, is_executable)


class LocalStore(Store):
    """A folder on a local disk. The first write creates it.

    Args:
        root: the folder.
        links: what `list` does with symbolic links. `follow`: it lists their targets. `store`: it does not
            follow them (`DirSync` moves them as links). `error`: each link is an error.

    Example:
        >>> LocalStore("/data/runs").uri
        'file:///data/runs/'
    """

    root: Path

    def __init__(self, root: str | Path, *, links: Links = "follow") -> None:
        self.root = Path(os.path.abspath(Path(root).expanduser()))  # noqa: PTH100 - without resolving links
        self.links: Links = links
        self.uri = self.root.as_uri().rstrip("/") + "/"
        self._prefix = os.path.join(self.root, "")  # noqa: PTH118 - with a separator at its end
        self._target = _TargetFolder(self.root)

    def __repr__(self) -> str:
        return f"LocalStore({str(self.root)!r})"

    def exists(self) -> bool:
        """True if the folder exists, also without files."""
        return self.root.is_dir()

    def folders_in(self, path: str) -> frozenset[str] | None:
        """The names of the folders in a folder, also of links to folders."""
        try:
            with os.scandir(self.root / path) as entries:
                return frozenset(entry.name for entry in entries if entry.is_dir())
        except (FileNotFoundError, NotADirectoryError):
            return frozenset()

    def list(
        self, prefix: str = "", *, folders: bool = False, unlisted: Unlisted | None = None
    ) -> Iterator[StoredFile]:
        """All files whose paths begin with `prefix`, sorted by path."""
        problems: list[Problem] = []

        def report(problem: Problem) -> None:
            error = StorageError(f"{problem.what}; {problem.hint}" if problem.hint else problem.what)
            if unlisted is None:
                problems.append(problem)
            else:
                unlisted(problem.where, error)

        if not os.path.lexists(self.root):
            return
        walk = FolderWalk(self.root, links=self.links, folders=folders, report=report)
        for entry in walk.entries(prefix):
            file = stored_file_of(entry.path, entry.status)
            yield replace(file, link=str((self.root / entry.path).readlink())) if entry.is_link else file
            if problems:
                break
        if problems:
            raise InvalidInputError(problems)

    def head(self, path: str) -> StoredFile:
        """The metadata of a file.

        Raises:
            ObjectNotFoundError: no such file.
        """
        # A string: the methods of Path would take longer than the system call.
        name = self._prefix + checked_path(path)
        try:
            status = os.stat(name)  # noqa: PTH116
        except OSError as error:
            raise self._read_error(Path(name), error) from error
        if self.links == "inside":
            is_file = stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)  # a pipe is none, as in `read`
            if not is_file or not Path(name).resolve().is_relative_to(self.root.resolve()):
                raise self._read_error(Path(name), PermissionError(errno.EACCES, _NOT_IN_FOLDER))
        if stat.S_ISDIR(status.st_mode) != path.endswith("/"):
            raise self._missing_file(Path(name))
        return stored_file_of(path, status)

    def read(self, path: str, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        """The bytes from `start` to `end`, in chunks.

        Raises:
            ObjectNotFoundError: no such file.
        """
        try:
            stream = self.open(path)
        except OSError as error:
            raise self._read_error(self._local_path(path), error) from error
        with stream:
            stream.seek(start)
            remaining = None if end is None else end - start
            while remaining is None or remaining > 0:
                chunk = stream.read(_CHUNK_BYTES if remaining is None else min(remaining, _CHUNK_BYTES))
                if not chunk:
                    return
                remaining = None if remaining is None else remaining - len(chunk)
                yield chunk

    def open(self, path: str) -> BinaryIO:
        """A file, open to be read without a buffer. Raises OSError."""
        file_path = self._local_path(path)
        return self._open_checked(file_path) if self.links == "inside" else file_path.open("rb", buffering=0)

    def _open_checked(self, file_path: Path) -> BinaryIO:
        """Opens a file, then checks the opened one: a job can replace a path by a link or a pipe at any time."""
        # Opening a pipe must not block.
        flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
        descriptor = os.open(file_path, flags)
        try:
            opened, real = os.fstat(descriptor), file_path.resolve()
            is_in_folder = real.is_relative_to(self.root.resolve()) and os.path.samestat(opened, real.lstat())
            if not is_in_folder or not stat.S_ISREG(opened.st_mode):
                raise PermissionError(errno.EACCES, _NOT_IN_FOLDER)
        except BaseException:
            os.close(descriptor)
            raise
        return os.fdopen(descriptor, "rb", buffering=0)

    def write(self, path: str, content: bytes | Path | Iterable[bytes], *, executable: bool = False) -> StoredFile:
        """Make or replace a file atomically; missing folders are created."""
        file_path = self.place(checked_path(path))
        if file_path is None:
            return StoredFile(path, 0, None, "")
        with writing(file_path), replacing(file_path) as draft:
            if isinstance(content, Path):
                shutil.copyfile(content, draft.path)
            else:
                for chunk in (content,) if isinstance(content, bytes) else content:
                    draft.stream.write(chunk)
            if executable:
                make_executable(draft.path)
        return stored_file_of(path, file_path.stat())

    def prepare(self) -> None:
        """Make the folder, and check that it can be written to.

        Raises:
            StorageError: it cannot be created, or is not writable.
        """
        self._target.open()

    def without_links(self) -> LocalStore:
        """A store of this folder that lists links as links."""
        return LocalStore(self.root, links="store")

    def place(self, path: str, size_bytes: int = 0) -> Path | None:
        """The local file of a path that will be written, after creating its parents; None for a folder.

        Raises:
            StorageError: the path leads outside, or cannot be that of a file here.
        """
        self._target.open()
        name = self._target.path_for(path, size_bytes)
        if name is not None and not os.path.isdir(os.path.dirname(name)):  # noqa: PTH112,PTH120 - removed meanwhile
            self._target = _TargetFolder(self.root)
            self._target.open()
            name = self._target.path_for(path, size_bytes)
        return None if name is None else Path(name)

    def write_link(self, path: str, target: str) -> StoredFile:
        """Make or replace a symbolic link.

        Raises:
            StorageError: it would lead out of the folder.
        """
        link_path = self.place(path)
        resolved = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
        leads_out = posixpath.isabs(target) or resolved == ".." or resolved.startswith("../")
        if link_path is None or leads_out:
            raise StorageError(f"{path} is a link to {target!r}, outside of the folder, so it was not created")
        must_accept_file(link_path)
        draft = link_path.with_name(f".pai-sdk-{secrets.token_hex(8)}.part")
        with writing(link_path):
            # A link cannot be created over a file; the rename replaces it atomically.
            draft.symlink_to(target)
            draft.replace(link_path)
        return replace(stored_file_of(path, link_path.lstat()), link=target)

    def copy(self, source: str, target: str) -> StoredFile:
        """Copy a file.

        Raises:
            ObjectNotFoundError: no such file.
        """
        return self.write(target, self._local_path(source), executable=self.head(source).executable)

    def delete(self, paths: Iterable[str]) -> None:
        """Delete files, and the folders that become empty by it."""
        for path in paths:
            file_path = self._local_path(path)
            try:
                if path.endswith("/") and not file_path.is_symlink():
                    file_path.rmdir()
                else:
                    file_path.unlink()
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                if path.endswith("/"):  # not empty
                    continue
                reason = error.strerror or error
                raise StorageError(f"{file_path} cannot be deleted: {reason}", uri=str(file_path)) from error
            self._remove_empty(file_path.parent)

    def _remove_empty(self, folder: Path) -> None:
        with suppress(OSError):
            while folder != self.root:
                folder.rmdir()
                self._target.forget(folder.relative_to(self.root).as_posix())
                folder = folder.parent

    def _local_path(self, path: str) -> Path:
        return self.root / checked_path(path)

    def _missing_file(self, file_path: Path) -> ObjectNotFoundError:
        return ObjectNotFoundError(f"{file_path}: no such file", uri=str(file_path))

    def _read_error(self, file_path: Path, error: OSError) -> StorageError:
        if isinstance(error, FileNotFoundError | NotADirectoryError | IsADirectoryError):
            return self._missing_file(file_path)
        return StorageError(f"{file_path} cannot be read: {error.strerror or error}", uri=str(file_path))


class _TargetFolder:
    """The target folder of writes: resolves paths of a store to local files."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._prefix = os.path.join(root, "")  # noqa: PTH118 - with a separator at its end
        self._is_open = False
        # Relative, each with a slash at its end; the root is empty.
        self._created = {""}
        # On a case-insensitive disk, each name by its folded form, to detect two names of one file.
        self._names: dict[str, str] | None = None

    def open(self) -> None:
        """Creates the folder, unless it exists, and checks that it is writable."""
        if self._is_open:
            return
        make_folder(self._root)
        if not os.access(self._root, os.W_OK | os.X_OK):
            raise StorageError(f"{self._root} cannot be written to; give a folder that you may write to")
        sweep(self._root)
        self._names = {} if _is_case_insensitive(self._root) else None
        self._is_open = True

    def path_for(self, name: str, size_bytes: int) -> str | None:
        """Returns the local file for a name, after creating its parents; None for a folder's marker."""
        is_marker = not name or name.endswith("/")
        if is_marker and size_bytes:
            raise PathConflictError("its key is that of a folder, but it has content; it cannot be a file here")
        # The folder of most files is that of others, so only the last part is new.
        folder, slash, last = name.rpartition("/")
        folder += slash
        parts = [] if folder in self._created else folder[:-1].split("/")
        if any(
            part in ("", ".", "..") or _NO_NAME.search(part) for part in (parts if is_marker else (*parts, last))
        ):
            raise FileNameError("its key has parts that cannot be file names here, so it was not written")
        if self._names is not None and not is_marker:
            other = self._names.setdefault(unicodedata.normalize("NFC", name).casefold(), name)
            if other != name:
                raise FileNameError(f"this disk cannot tell its name from {other!r}, so it was not written")
        if parts:
            self._make(parts)
        return None if is_marker else self._prefix + name

    def forget(self, folder: str) -> None:
        """Records that a folder was removed, so that it is created again for the next file."""
        self._created.discard(f"{folder}/")

    def _make(self, parts: list[str]) -> None:
        folder, name = self._root, ""
        for part in parts:
            folder, name = folder / part, f"{name}{part}/"
            if name in self._created:
                continue
            # An existing link may point outside of the folder.
            if folder.is_symlink() and not folder.resolve().is_relative_to(self._root.resolve()):
                raise StorageError(f"{folder} is a link that leads outside of {self._root}; remove it")
            make_folder(folder)
            sweep(folder)
            self._created.add(name)


def _is_case_insensitive(folder: Path) -> bool:
    """Returns True if the disk of a folder does not distinguish `a` and `A`, as on macOS."""
    # By the name of an existing folder, so that nothing is written.
    folder = folder.resolve()
    cased = next((each for each in (folder, *folder.parents) if each.name != each.name.swapcase()), None)
    try:
        return cased is not None and cased.samefile(cased.with_name(cased.name.swapcase()))
    except OSError:
        return False
