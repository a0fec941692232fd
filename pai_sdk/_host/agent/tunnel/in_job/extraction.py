"""Extracts an archive below one folder, and never outside of it. Standard library only.

Each folder on the way to a member is opened by its name in the folder above it and without following links, so
neither "..", links of the archive nor links that are in the folder already lead out of it.
"""

from __future__ import annotations

import errno
import os
import stat
import tarfile
from contextlib import suppress
from functools import partial
from pathlib import Path

from pai_sdk._host.agent.tunnel.children import report
from pai_sdk._host.agent.tunnel.in_job.forward_archive import ForwardArchive, is_link_safe

_READ_BYTES = 256 * 1024
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# What says that all further members will fail too.
_FATAL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)


class ArchiveError(ValueError):
    """The archive is damaged, or its members would leave the folder."""


class _LinkOnTheWayError(OSError):
    """A folder on the way to a member is a link, or a file."""


class Extraction:
    """The extraction of one archive.

    Attributes:
        files: the number of files that were written.
        bytes: the size of their contents.
    """

    def __init__(self, folder: Path) -> None:
        self.files = 0
        self.bytes = 0
        # The user has named this folder, so that links on the way to it are followed.
        self._root = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._parent: tuple[tuple[str, ...], int] | None = None  # of the last member, open

    def __enter__(self) -> Extraction:
        return self

    def __exit__(self, *_: object) -> None:
        self._close_parent()
        os.close(self._root)

    def extract(self, descriptor: int, *, file_name: str = "") -> None:
        """Extracts all members; with a name, only the first one, which must be a file, under this name.

        Raises:
            ArchiveError: the archive is damaged or unsafe.
            OSError: nothing can be written here.
        """
        source = _Source(descriptor)
        try:
            with tarfile.open(fileobj=source, mode="r:", errorlevel=2) as archive:  # type: ignore[call-overload]
                while (member := archive.next()) is not None:
                    if file_name:
                        if not member.isreg():
                            raise ArchiveError("the archive does not start with a file")
                        self._add_file(source, member, self._root, file_name)
                        return
                    self._add(source, member)
                    # The archive remembers its members.
                    archive.members.clear()
        except ArchiveError:
            raise
        # Headers of headers exhaust the stack of the parser.
        except (tarfile.TarError, EOFError, ValueError, OverflowError, RecursionError) as error:
            raise ArchiveError(f"the archive is damaged: {error}") from error
        if file_name:
            raise ArchiveError("the archive is empty")

    def _add(self, source: _Source, member: tarfile.TarInfo) -> None:
        parts = _parts(member.name)
        if not parts:
            # The folder itself.
            return
        try:
            parent = self._open_parent(parts[:-1])
            if member.isdir():
                self._add_folder(parent, parts[-1], member)
            elif member.isreg() and not member.issparse():
                self._add_file(source, member, parent, parts[-1])
            elif member.issym():
                self._add_link(parent, parts, member.linkname)
            elif member.islnk():
                self._add_hard_link(parent, parts, _parts(member.linkname))
            else:
                _skip(member.name, "is neither a file nor a folder nor a link")
        except OSError as error:
            if error.errno in _FATAL:
                raise
            _skip(member.name, error.strerror or str(error))

    def _add_folder(self, parent: int, name: str, member: tarfile.TarInfo) -> None:
        with suppress(FileExistsError):
            os.mkdir(name, 0o777, dir_fd=parent)
        folder = _open_folder(name, parent)
        try:
            # Its own user must be able to fill it.
            os.fchmod(folder, (member.mode & 0o777) | 0o700)
        finally:
            os.close(folder)

    def _add_file(self, source: _Source, member: tarfile.TarInfo, parent: int, name: str) -> None:
        _check_replaceable(name, parent)
        temporary = _temporary_name()
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(temporary, flags, 0o600, dir_fd=parent)
        try:
            try:
                size = source.copy_to(partial(_write, descriptor), member.size)
                if size != member.size:
                    raise ArchiveError(f"the archive ends within {member.name}")
                os.fchmod(descriptor, member.mode & 0o777)
                with suppress(OverflowError, ValueError):
                    os.utime(descriptor, (member.mtime, member.mtime))
            finally:
                os.close(descriptor)
            os.replace(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=parent)
            raise
        self.files += 1
        self.bytes += size

    def _add_link(self, parent: int, parts: tuple[str, ...], target: str) -> None:
        if not is_link_safe(parts[:-1], target):
            _skip("/".join(parts), f"is a link to {target[:1000]}, outside of the folder")
            return
        temporary = _temporary_name()
        os.symlink(target, temporary, dir_fd=parent)
        self._move(temporary, parts[-1], parent)

    def _add_hard_link(self, parent: int, parts: tuple[str, ...], source: tuple[str, ...]) -> None:
        # The parent is the one that stays open.
        target = os.dup(parent)
        try:
            folder = self._open_parent(source[:-1]) if source else -1
            status = os.stat(source[-1], dir_fd=folder, follow_symlinks=False) if source else None
            if status is None or not stat.S_ISREG(status.st_mode):
                _skip("/".join(parts), "is a link to what is no file of the archive")
                return
            temporary = _temporary_name()
            os.link(source[-1], temporary, src_dir_fd=folder, dst_dir_fd=target, follow_symlinks=False)
            self._move(temporary, parts[-1], target)
            self.files += 1
            self.bytes += status.st_size
        finally:
            os.close(target)

    @staticmethod
    def _move(temporary: str, name: str, parent: int) -> None:
        try:
            _check_replaceable(name, parent)
            os.replace(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
        finally:
            # Two names of one file are left as they are by `replace`.
            with suppress(OSError):
                os.unlink(temporary, dir_fd=parent)

    def _open_parent(self, parts: tuple[str, ...]) -> int:
        """Returns the folder of a member, which is created; it is open until the next call."""
        if self._parent is not None and self._parent[0] == parts:
            return self._parent[1]
        self._close_parent()
        folder = os.dup(self._root)
        try:
            for part in parts:
                with suppress(FileExistsError):
                    os.mkdir(part, 0o777, dir_fd=folder)
                following = _open_folder(part, folder)
                os.close(folder)
                folder = following
        except BaseException:
            os.close(folder)
            raise
        self._parent = (parts, folder)
        return folder

    def _close_parent(self) -> None:
        if self._parent is not None:
            os.close(self._parent[1])
        self._parent = None


class _Source(ForwardArchive):
    """An archive that is read from a descriptor."""

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._descriptor = descriptor
        # One for all, since the pages of a new one cost more time than the copy of the data.
        self._chunk = memoryview(bytearray(_READ_BYTES))

    def _next(self) -> memoryview:
        return self._chunk[: os.readv(self._descriptor, [self._chunk])]


def _write(descriptor: int, data: memoryview) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def _open_folder(name: str, parent: int) -> int:
    try:
        return os.open(name, _FOLDER_FLAGS, dir_fd=parent)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise _LinkOnTheWayError(error.errno, f"{name} is a link or a file, and no folder") from error
        raise


def _check_replaceable(name: str, parent: int) -> None:
    """Raises OSError if a file would replace a device, a pipe or a socket, which other programs use."""
    with suppress(FileNotFoundError):
        mode = os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode) or stat.S_ISDIR(mode)):
            raise FileExistsError(errno.EEXIST, "it exists, and is neither a file nor a folder", name)


def _parts(name: str) -> tuple[str, ...]:
    """Returns the names on the way to a member."""
    parts = tuple(part for part in name.split("/") if part not in ("", "."))
    if name.startswith("/") or ".." in parts or "\0" in name:
        raise ArchiveError(f"the member {name[:1000]!r} would leave the folder")
    return parts


def _temporary_name() -> str:
    return f".pai-sdk-{os.urandom(8).hex()}"


def _skip(member: str, cause: str) -> None:
    report({"skipped": member[:4000], "reason": cause})
