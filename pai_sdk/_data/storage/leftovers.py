"""Temporary files of downloads: recognised by their names, and removed when their process has ended.

    .pai-sdk-<machine>-<random>.part       of one process; no other one can use it
    .pai-sdk-<hash of the name>.part       a large file; another process may continue it (`partial_file`)
    .pai-sdk-<hash of the name>.part.done  its ranges that have arrived

A killed process leaves its files. A process holds a lock on its files of the first kind, so those without a lock
are removed. In a shared folder the locks of other machines may be invisible: their files are removed only when
they are old. The same holds for all files on Windows, where a locked file cannot be opened by its name.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import socket
import stat
import sys
import time
from contextlib import suppress
from pathlib import Path

from pai_sdk._core.files import open_file, take_lock

_PART_NAME = re.compile(r"\.pai-sdk-(?:(?P<machine>[0-9a-f]{8})-)?[0-9a-f]{16}\.part(?P<notes>\.done)?")
_MACHINE = hashlib.sha256(os.fsencode(socket.gethostname())).hexdigest()[:8]
_MAX_AGE_S = 24 * 3600.0


def is_unfinished(name: str) -> bool:
    """Returns True if a name, or a path, is that of a temporary file of a download."""
    return _PART_NAME.fullmatch(name.rpartition("/")[2]) is not None


def resumable_part(path: Path) -> Path:
    """Returns the temporary file of a large download, which any process may continue."""
    return path.with_name(f".pai-sdk-{hashlib.sha256(os.fsencode(path.name)).hexdigest()[:16]}.part")


def open_part(folder: Path) -> tuple[Path, int]:
    """Creates and opens a temporary file of this process; once closed, `sweep` may remove it."""
    while True:
        path = folder / f".pai-sdk-{_MACHINE}-{secrets.token_hex(8)}.part"
        file = open_file(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        # On Windows a lock would prevent opening the file by name; `sweep` uses its age.
        if sys.platform == "win32":
            return path, file
        # Where locks are not supported, `sweep` gets none either, and uses the age.
        with suppress(OSError):
            take_lock(file, waits=True)
        # Between open and lock, `sweep` of another process may have removed the file; then try another name.
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file), path.lstat()):
                return path, file
        os.close(file)


def sweep(folder: Path) -> None:
    """Removes the temporary files of killed processes from a folder; errors are ignored."""
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            match = _PART_NAME.fullmatch(entry.name)
            if match and match["machine"] and not match["notes"]:
                with suppress(OSError):
                    _remove_if_abandoned(Path(entry.path), is_local=match["machine"] == _MACHINE)


def _remove_if_abandoned(path: Path, *, is_local: bool) -> None:
    if sys.platform == "win32":
        if _is_old(path.lstat()):
            path.unlink()
        return
    file = open_file(path, os.O_RDONLY)
    try:
        status = os.fstat(file)
        is_removable = stat.S_ISREG(status.st_mode) and (is_local or _is_old(status))
        # The lock of a running process is refused here, so its file stays.
        if is_removable and take_lock(file, waits=False):
            path.unlink()
    finally:
        os.close(file)


def _is_old(status: os.stat_result) -> bool:
    return time.time() - status.st_mtime > _MAX_AGE_S
