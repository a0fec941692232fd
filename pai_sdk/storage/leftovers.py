"""Files that a download is making, by their names: never taken for the user's, and removed when nobody makes them.

    .pai-sdk-<machine>-<random>.part       made by one process, and of no use to another
    .pai-sdk-<hash of the name>.part       a large file; another process may go on with it (`partial_file`)
    .pai-sdk-<hash of the name>.part.done  what of it has arrived

A process that is killed cannot remove what it was making. Whoever makes one of the first kind holds a lock on it.
Where a folder is shared, the locks of other machines may not be seen: theirs are removed only when they are old.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import secrets
import stat
import time
from contextlib import suppress
from pathlib import Path

__all__ = ["is_unfinished", "open_part", "resumable_part", "sweep"]

_OURS = re.compile(r"\.pai-sdk-(?:(?P<machine>[0-9a-f]{8})-)?[0-9a-f]{16}\.part(?P<notes>\.done)?")
_MACHINE = hashlib.sha256(os.fsencode(os.uname().nodename)).hexdigest()[:8]
_OLD_S = 24 * 3600.0


def is_unfinished(name: str) -> bool:
    """Whether a file is one that a download is making, or was.

    Example:
        >>> is_unfinished(".pai-sdk-00ff00ff00ff00ff.part"), is_unfinished(".model.part")
        (True, False)
    """
    return _OURS.fullmatch(name) is not None


def resumable_part(path: Path) -> Path:
    """Where a large file comes together, by whichever process."""
    return path.with_name(f".pai-sdk-{hashlib.sha256(os.fsencode(path.name)).hexdigest()[:16]}.part")


def open_part(folder: Path) -> tuple[Path, int]:
    """Make a file of this process in a folder, and open it; rename or remove it before it is closed."""
    while True:
        path = folder / f".pai-sdk-{_MACHINE}-{secrets.token_hex(8)}.part"
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
        with suppress(OSError):  # no locks here: then `sweep` gets none either
            fcntl.flock(file, fcntl.LOCK_EX)
        with suppress(FileNotFoundError):  # before it was locked, `sweep` may have taken it for left
            if os.path.samestat(os.fstat(file), path.lstat()):
                return path, file
        os.close(file)


def sweep(folder: Path) -> None:
    """Remove from a folder what processes that were killed have left there. Nothing here may fail a download."""
    with suppress(OSError), os.scandir(folder) as found:
        for entry in found:
            ours = _OURS.fullmatch(entry.name)
            if ours and ours["machine"] and not ours["notes"]:
                with suppress(OSError):
                    _remove_if_left(Path(entry.path), is_of_here=ours["machine"] == _MACHINE)


def _remove_if_left(path: Path, *, is_of_here: bool) -> None:
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        status = os.fstat(file)
        if stat.S_ISREG(status.st_mode) and (is_of_here or time.time() - status.st_mtime > _OLD_S):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()
    finally:
        os.close(file)
