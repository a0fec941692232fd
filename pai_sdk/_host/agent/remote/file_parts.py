"""Folders sent to a host without a shared file system, in parts of bounded size. Standard library only.

A part is a list of entries, plain values that any message can carry:

    ("folder", path, mode)
    ("link", path, target)
    ("file", path, mode, mtime_ns, size_bytes, at, content)   a large file has several, in order
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any, TypeAlias

from pai_sdk._core.files import open_file, open_plain

Entry: TypeAlias = tuple[Any, ...]

FileInfo: TypeAlias = list[Any]
"""`["file", size_bytes, mtime_ns, mode]`, `["link", target]`, or `["folder"]` for an empty one."""

PART_BYTES = 8 << 20
"""The most bytes of content in one part: object stores and messages take this size everywhere."""


def pack(folder: Path, *, part_bytes: int = PART_BYTES) -> Iterator[list[Entry]]:
    """Yields the content of a folder, which must not change meanwhile, in parts."""
    # Pipes, sockets and devices are skipped.
    part: list[Entry] = []
    room = part_bytes
    for entry in _entries(folder, part_bytes):
        cost = len(entry[6]) if entry[0] == "file" else 0
        # `part_bytes` bounds the content and the paths of a part.
        if part and cost + len(entry[1]) > room:
            yield part
            part, room = [], part_bytes
        part.append(entry)
        room -= cost + len(entry[1])
    if part:
        yield part


def unpack(part: Iterable[Entry], folder: Path) -> None:
    """Writes one part into a folder; never outside of it, whatever links are in it."""
    for kind, path, *values in part:
        target = path_within(folder, path)
        if kind == "folder":
            target.mkdir(exist_ok=True)
            target.chmod(values[0])
        elif kind == "link":
            # An earlier call that was interrupted may have left one.
            remove(target)
            target.symlink_to(values[0])
        else:
            mode, mtime_ns, size_bytes, at, content = values
            create_flags = os.O_CREAT | os.O_TRUNC if at == 0 else 0
            with os.fdopen(open_file(target, os.O_WRONLY | create_flags, 0o600), "wb") as file:
                file.seek(at)
                file.write(content)
            if at + len(content) >= size_bytes:
                target.chmod(mode)
                os.utime(target, ns=(mtime_ns, mtime_ns))


def files_in(folder: Path) -> dict[str, FileInfo]:
    """Returns the files, links and empty folders below a folder, by relative path."""
    infos: dict[str, FileInfo] = {}
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(parent, name)
            with suppress(OSError):  # it was removed meanwhile
                status = path.lstat()
                relative_path = path.relative_to(folder).as_posix()
                if stat.S_ISLNK(status.st_mode):
                    infos[relative_path] = ["link", str(path.readlink())]
                elif stat.S_ISREG(status.st_mode):
                    mode = stat.S_IMODE(status.st_mode)
                    infos[relative_path] = ["file", status.st_size, status.st_mtime_ns, mode]
                elif stat.S_ISDIR(status.st_mode) and not any(path.iterdir()):
                    infos[relative_path] = ["folder"]
    return infos


def path_within(folder: Path, path: str) -> Path:
    """Returns a path within a folder; links on the way to it are replaced by folders."""
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or ".." in parts:
        raise ValueError(f"{path!r} is not a path within a folder")
    target = folder
    for name in parts[:-1]:
        target = target / name
        if target.is_symlink() or (target.exists() and not target.is_dir()):
            target.unlink()
        target.mkdir(exist_ok=True)
    return target / parts[-1]


def _entries(folder: Path, part_bytes: int) -> Iterator[Entry]:
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(parent, name)
            status, relative_path = path.lstat(), path.relative_to(folder).as_posix()
            mode = stat.S_IMODE(status.st_mode)
            if stat.S_ISLNK(status.st_mode):
                yield ("link", relative_path, str(path.readlink()))
            elif stat.S_ISDIR(status.st_mode):
                yield ("folder", relative_path, mode)
            elif stat.S_ISREG(status.st_mode):
                yield from _file_entries(path, relative_path, mode, status, part_bytes)


def _file_entries(
    path: Path, relative_path: str, mode: int, status: os.stat_result, part_bytes: int
) -> Iterator[Entry]:
    with open_plain(path) as file:
        at = 0
        while content := file.read(min(part_bytes, status.st_size - at)):
            yield ("file", relative_path, mode, status.st_mtime_ns, status.st_size, at, content)
            at += len(content)
        if at < status.st_size:
            raise OSError(f"{path} became shorter while it was read")
        if at == 0:
            yield ("file", relative_path, mode, status.st_mtime_ns, 0, 0, b"")


def remove(path: Path) -> None:
    """Removes a file, link or folder, if it exists."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
