"""Files of an instance as tar archives, by functions that run in the job's view (`children`).

`read_archive` writes an archive to stdout, `write_archive` reads one from stdin. Both report on the descriptor of
events what they skip; `write_archive` ends with `written` or `error`. Standard library only.
"""

from __future__ import annotations

import errno
import os
import stat
import tarfile
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pai_sdk._host.agent.tunnel.children import reason, refuse, report
from pai_sdk._host.agent.tunnel.in_job.extraction import ArchiveError, Extraction

_BLOCK_BYTES = tarfile.BLOCKSIZE
_SMALL_BYTES = 64 * 1024
_SENDFILE_BYTES = 1 << 20
_MAX_UNSIZED_BYTES = 16 << 20
_MAX_ESTIMATE_S = 2.0
_STDIN, _STDOUT = 0, 1


def read_archive(parameters: Mapping[str, Any]) -> int:
    """Writes a file or folder as an archive.

    A folder's members are named relative to it, a file's only member has its name. `follow` replaces links by what
    they refer to. Files may change meanwhile: the archive stays valid.
    """
    path, follow = _path(parameters), parameters.get("follow") is True
    if path is None:
        return refuse("InvalidRequest", "the path is missing")
    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            os.close(os.open(path, os.O_RDONLY | os.O_DIRECTORY))
            kind, size = "folder", _estimate(path, follow=follow)
        elif stat.S_ISREG(status.st_mode):
            os.close(os.open(path, os.O_RDONLY))
            kind, size = "file", status.st_size
        else:
            return refuse("InvalidRequest", f"{path} is neither a file nor a folder")
    except FileNotFoundError:
        return refuse("NotFound", f"there is no {path} in the instance")
    except OSError as error:
        return refuse("NotReadable", reason(error))
    name = path.name if path.name not in ("", "..") else path.resolve().name
    report({"opened": {"kind": kind, "name": name, "size_bytes": size}})
    writer = _Writer(follow=follow)
    if kind == "file":
        try:
            writer.add_file(str(path), name, follow=True)
        except BrokenPipeError:
            raise
        except OSError as error:
            report({"error": {"code": "NotReadable", "message": f"{path}: {reason(error)}"}})
            return 1
    else:
        for entry, member in _entries(str(path), follow=follow):
            writer.add(entry, member)
    writer.close()
    return 0


def write_archive(parameters: Mapping[str, Any]) -> int:
    """Writes the members of an archive below a path, or its only file to a path.

    A path that ends with a slash or is a folder gets the member `name` within it, as by `cp`.
    """
    path, mode, name = _path(parameters), parameters.get("mode"), parameters.get("name") or ""
    if path is None or mode not in ("file", "folder") or not isinstance(name, str) or "/" in name or "\0" in name:
        return refuse("InvalidRequest", "path, mode or name is malformed")
    if name in (".", ".."):
        return refuse("InvalidRequest", "the name of the source is not that of a file")
    try:
        if str(parameters["path"]).endswith("/"):
            path.mkdir(parents=True, exist_ok=True)
        target = path / name if path.is_dir() else path
        if mode == "folder":
            target.mkdir(exist_ok=True)
        else:
            target = _behind_link(target)
        extraction = Extraction(target if mode == "folder" else target.parent)
    except FileNotFoundError:
        return refuse("NotFound", f"there is no folder {path.parent} in the instance")
    except OSError as error:
        return refuse("NotWritable", reason(error))
    report({"opened": {"path": str(target)}})
    try:
        with extraction:
            extraction.extract(_STDIN, file_name=target.name if mode == "file" else "")
    except ArchiveError as error:
        report({"error": {"code": "InvalidArchive", "message": str(error)}})
        return 1
    except OSError as error:
        # A full disk is reported without a name, and other errors name the temporary file.
        report({"error": {"code": "NotWritable", "message": f"{target}: {error.strerror or error}"}})
        return 1
    report({"written": {"path": str(target), "files": extraction.files, "bytes": extraction.bytes}})
    return 0


def _behind_link(target: Path) -> Path:
    """Returns the file that a target refers to: as by `cp`, it is replaced, and not a link to it."""
    if not target.is_symlink() or not target.exists() or target.is_dir():
        return target
    if not target.is_file():  # such as /dev/stdout
        raise FileExistsError(errno.EEXIST, "it exists, and is neither a file nor a folder", str(target))
    return target.resolve()


@dataclass
class _Writer:
    """Writes members to stdout."""

    follow: bool

    def add(self, path: str, member: str) -> None:
        """Writes one member; what cannot be read is reported."""
        try:
            # Follows links only where that is requested.
            status = os.stat(path, follow_symlinks=self.follow)  # noqa: PTH116 - of any path
            if stat.S_ISREG(status.st_mode):
                self.add_file(path, member, follow=self.follow)
            elif stat.S_ISDIR(status.st_mode) or stat.S_ISLNK(status.st_mode):
                _write(memoryview(_header(path, member, status)))
            else:
                _skip(member, "is neither a file nor a folder nor a link")
        except FileNotFoundError:
            _skip(member, "was removed meanwhile, or is a link to nothing")
        except OSError as error:
            _skip(member, error.strerror or str(error))

    def add_file(self, path: str, member: str, *, follow: bool) -> None:
        """Writes a file with the size that it has now."""
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
        descriptor = os.open(path, flags)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                _skip(member, "was replaced meanwhile")
                return
            size = status.st_size
            if size <= _SMALL_BYTES:
                # Files of /proc have the size 0, and those of /sys the size of a page.
                content = _read(descriptor, size or _MAX_UNSIZED_BYTES + 1)
                copied = size = len(content)
                if size > _MAX_UNSIZED_BYTES:
                    raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
                _write(memoryview(_header(path, member, status, size) + content + bytes(_padded(size) - size)))
            else:
                _write(memoryview(_header(path, member, status, size)))
                copied = _copy(descriptor, size)
                _write_zeros(_padded(size) - copied)
        finally:
            os.close(descriptor)
        if copied < size:
            _skip(member, f"was truncated meanwhile: its last {size - copied} bytes are zeros")

    def close(self) -> None:
        """Writes the end of the archive."""
        _write_zeros(2 * _BLOCK_BYTES)


def _entries(folder: str, *, follow: bool) -> Iterator[tuple[str, str]]:
    """Yields path and member name of all that is below a folder, folders before their contents."""
    # With the identities of the folders above, since links may lead back to them.
    stack: list[tuple[str, str, frozenset[tuple[int, int]]]] = [(folder, "", frozenset())]
    while stack:
        path, prefix, above = stack.pop()
        try:
            status = os.stat(path)  # noqa: PTH116 - of any path
            if (status.st_dev, status.st_ino) in above:
                _skip(prefix, "is a link to a folder above it")
                continue
            with os.scandir(path) as scanned:
                entries = sorted(scanned, key=lambda entry: entry.name)
        except OSError as error:
            _skip(prefix or ".", error.strerror or str(error))
            continue
        below = above | {(status.st_dev, status.st_ino)}
        for entry in entries:
            member = f"{prefix}/{entry.name}" if prefix else entry.name
            yield entry.path, member
            with suppress(OSError):
                if entry.is_dir(follow_symlinks=follow):
                    stack.append((entry.path, member, below))


def _estimate(folder: Path, *, follow: bool) -> int | None:
    """Returns the size of all files below a folder; None if that takes long."""
    deadline = time.monotonic() + _MAX_ESTIMATE_S
    size = 0
    stack = [str(folder)]
    num_folders = 0
    while stack:
        num_folders += 1
        if time.monotonic() > deadline or (follow and num_folders > 10_000):
            return None
        with suppress(OSError), os.scandir(stack.pop()) as entries:
            for entry in entries:
                with suppress(OSError):
                    if entry.is_dir(follow_symlinks=follow):
                        stack.append(entry.path)
                    elif entry.is_file(follow_symlinks=follow):
                        size += entry.stat(follow_symlinks=follow).st_size
    return size


def _header(path: str, member: str, status: os.stat_result, size: int = 0) -> bytes:
    info = tarfile.TarInfo(member)
    info.mode = stat.S_IMODE(status.st_mode)
    info.mtime = int(status.st_mtime)
    if stat.S_ISDIR(status.st_mode):
        info.type = tarfile.DIRTYPE
    elif stat.S_ISLNK(status.st_mode):
        info.type = tarfile.SYMTYPE
        info.linkname = str(Path(path).readlink())
    else:
        info.size = size
    return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")


def _copy(descriptor: int, size: int) -> int:
    """Copies a file to stdout within the kernel; returns how many bytes it had."""
    copied = 0
    while copied < size:
        count = min(size - copied, _SENDFILE_BYTES)
        try:
            sent = os.sendfile(_STDOUT, descriptor, copied, count)
        except OSError as error:
            if isinstance(error, BrokenPipeError):
                raise
            # File systems without it, and files that cannot be read to their end.
            content = os.pread(descriptor, count, copied)
            _write(memoryview(content))
            sent = len(content)
        if not sent:
            break
        copied += sent
    return copied


def _read(descriptor: int, size: int) -> bytes:
    content = bytearray()
    while len(content) < size and (data := os.read(descriptor, min(size - len(content), _SENDFILE_BYTES))):
        content += data
    return bytes(content)


def _write(data: memoryview) -> None:
    while data:
        data = data[os.write(_STDOUT, data) :]


def _write_zeros(size: int) -> None:
    zeros = memoryview(bytes(min(size, _SENDFILE_BYTES)))
    while size > 0:
        _write(zeros[:size])
        size -= len(zeros[:size])


def _padded(size: int) -> int:
    return -(-size // _BLOCK_BYTES) * _BLOCK_BYTES


def _skip(member: str, cause: str) -> None:
    report({"skipped": member[:4000], "reason": cause})


def _path(parameters: Mapping[str, Any]) -> Path | None:
    """Returns the path of a request, which may be relative to the working directory or the home."""
    path = parameters.get("path")
    if not isinstance(path, str) or not path or "\0" in path:
        return None
    if path == "~" or path.startswith("~/"):
        return Path(os.environ.get("HOME", "/")) / path[2:]
    return Path(path)
