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

from pai_sdk.base.files import open_file, open_plain

__all__ = ["PART_BYTES", "Entry", "FileFacts", "files_in", "pack", "place_of", "remove", "unpack"]

Entry: TypeAlias = tuple[Any, ...]

FileFacts: TypeAlias = list[Any]
"""`["file", size_bytes, mtime_ns, mode]`, `["link", target]`, or `["folder"]` for an empty one."""

PART_BYTES = 8 << 20
"""The most bytes of content in one part: object stores and messages take this size everywhere."""


def pack(folder: Path, *, part_bytes: int = PART_BYTES) -> Iterator[list[Entry]]:
    """The content of a folder. Pipes, sockets and devices are left out.

    Args:
        folder: nothing is changed in it meanwhile.
        part_bytes: the most bytes of content in a part.
    """
    part: list[Entry] = []
    room = part_bytes
    for entry in _entries(folder, part_bytes):
        cost = len(entry[6]) if entry[0] == "file" else 0
        if part and cost + len(entry[1]) > room:
            yield part
            part, room = [], part_bytes
        part.append(entry)
        room -= cost + len(entry[1])
    if part:
        yield part


def unpack(part: Iterable[Entry], folder: Path) -> None:
    """Write one part into a folder; never outside of it, whatever links are there."""
    for kind, path, *facts in part:
        place = place_of(folder, path)
        if kind == "folder":
            place.mkdir(exist_ok=True)
            place.chmod(facts[0])
        elif kind == "link":
            remove(place)  # of an earlier call that was cut off
            place.symlink_to(facts[0])
        else:
            mode, mtime_ns, size_bytes, at, content = facts
            made = os.O_CREAT | os.O_TRUNC if at == 0 else 0
            with os.fdopen(open_file(place, os.O_WRONLY | made, 0o600), "wb") as file:
                file.seek(at)
                file.write(content)
            if at + len(content) >= size_bytes:
                place.chmod(mode)
                os.utime(place, ns=(mtime_ns, mtime_ns))


def files_in(folder: Path) -> dict[str, FileFacts]:
    """The files and links below a folder, and the folders with nothing in them; by their path in it."""
    found: dict[str, FileFacts] = {}
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(parent, name)
            with suppress(OSError):  # it went away meanwhile
                facts = path.lstat()
                inside = path.relative_to(folder).as_posix()
                if stat.S_ISLNK(facts.st_mode):
                    found[inside] = ["link", str(path.readlink())]
                elif stat.S_ISREG(facts.st_mode):
                    mode = stat.S_IMODE(facts.st_mode)
                    found[inside] = ["file", facts.st_size, facts.st_mtime_ns, mode]
                elif stat.S_ISDIR(facts.st_mode) and not any(path.iterdir()):
                    found[inside] = ["folder"]
    return found


def place_of(folder: Path, path: str) -> Path:
    """The place of a path within a folder; links on the way to it are replaced by folders.

    Raises:
        ValueError: it leads out of the folder.
    """
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or ".." in parts:
        raise ValueError(f"{path!r} is no path within a folder")
    place = folder
    for name in parts[:-1]:
        place = place / name
        if place.is_symlink() or (place.exists() and not place.is_dir()):
            place.unlink()
        place.mkdir(exist_ok=True)
    return place / parts[-1]


def _entries(folder: Path, part_bytes: int) -> Iterator[Entry]:
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(parent, name)
            facts, inside = path.lstat(), path.relative_to(folder).as_posix()
            mode = stat.S_IMODE(facts.st_mode)
            if stat.S_ISLNK(facts.st_mode):
                yield ("link", inside, str(path.readlink()))
            elif stat.S_ISDIR(facts.st_mode):
                yield ("folder", inside, mode)
            elif stat.S_ISREG(facts.st_mode):
                yield from _pieces(path, inside, mode, facts, part_bytes)


def _pieces(path: Path, inside: str, mode: int, facts: os.stat_result, part_bytes: int) -> Iterator[Entry]:
    with open_plain(path) as file:
        at = 0
        while content := file.read(min(part_bytes, facts.st_size - at)):
            yield ("file", inside, mode, facts.st_mtime_ns, facts.st_size, at, content)
            at += len(content)
        if at < facts.st_size:
            raise OSError(f"{path} became shorter while it was read")
        if at == 0:
            yield ("file", inside, mode, facts.st_mtime_ns, 0, 0, b"")


def remove(place: Path) -> None:
    """Remove what is at a place; nothing there is fine."""
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place)
    else:
        place.unlink(missing_ok=True)
