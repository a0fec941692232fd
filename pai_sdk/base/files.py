"""Files that processes share, on Linux, macOS and Windows: atomic replace, publish-once, locks, positioned I/O.

Standard library only; on Windows, portalocker takes the locks. A lock (flock) belongs to the open file, so it ends
when its process does, however that ends. Elsewhere in the package: `storage.objects.replacing` gives a *name* to
download to, which `storage.leftovers` can tell from a file of the user's after a crash.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys
import time
from collections.abc import Iterator
from io import RawIOBase
from pathlib import Path
from typing import BinaryIO

__all__ = [
    "OPEN_FILES_CAN_BE_MOVED",
    "append_to",
    "close_locked",
    "is_locked",
    "locked",
    "locked_folder",
    "open_file",
    "open_plain",
    "publish_once",
    "read_at",
    "replace_file",
    "sync",
    "sync_folder",
    "take_lock",
    "write_at",
]

OPEN_FILES_CAN_BE_MOVED = sys.platform != "win32"
"""True if a file can be renamed and removed while it is open. Windows refuses both."""

_CANNOT_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS, errno.EROFS, errno.EBADF)  # of some file systems


def open_file(path: Path, flags: int, mode: int = 0o666) -> int:
    """Open a file for bytes; a link is not followed, and a pipe not waited for.

    Args:
        path: the file.
        flags: as for `os.open`.
        mode: of a file that is made.

    Example:
        >>> os.close(open_file(Path(os.devnull), os.O_RDONLY))
    """
    for name in ("O_BINARY", "O_NOFOLLOW", "O_NONBLOCK"):  # those that the system has
        flags |= getattr(os, name, 0)
    return os.open(path, flags, mode)


def open_plain(path: Path) -> BinaryIO:
    """Open a file for reading in a folder that others can write to: a link leads nowhere, a pipe blocks no reader.

    Raises:
        OSError: there is none, or it is something else than a file.
    """
    descriptor = open_file(path, os.O_RDONLY)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"{path} is not a file")
    return os.fdopen(descriptor, "rb")


# ---- publication ------------------------------------------------------------------------------------------


def replace_file(
    path: Path, content: str | bytes, *, mode: int = 0o600, durable: bool = False, draft: Path | None = None
) -> None:
    """Replace a file atomically: a reader, and a crash, finds the old content or the new one.

    Args:
        path: the file.
        content: all of it; text is written as UTF-8.
        mode: its permissions, less the umask.
        durable: force the content to the disk before the rename, so that a power cut leaves no empty file.
        draft: where it is written first, for a file with one writer: what a crash left there is removed. By
            default each call has a draft of its own beside the file, so several processes may write at once.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     replace_file(Path(folder, "state"), "new")
        ...     os.listdir(folder)
        ['state']
    """
    if draft is not None:
        draft.unlink(missing_ok=True)
    with _written(draft or _draft_of(path), content, mode, durable=durable) as written:
        written.replace(path)


def publish_once(path: Path, content: str | bytes, *, mode: int = 0o600) -> bool:
    """Make a file that appears with all of its content, unless there is one: the first publisher wins.

    Args:
        path: the file, on a file system with hard links.
        content: all of it; text is written as UTF-8.
        mode: its permissions, less the umask.

    Returns:
        Whether this call made it.
    """
    with _written(_draft_of(path), content, mode) as written:
        try:
            os.link(written, path)
        except FileExistsError:
            return False
        return True


def append_to(path: Path, content: bytes, *, at: int | None = None, durable: bool = False) -> int:
    """Append to a file with one writer: all of the content or, after an error such as a full disk, nothing of it.

    Args:
        path: the file, which is made when missing.
        content: what is appended.
        at: the size that the file should have; what is behind it, as after a crash, is removed first.
        durable: force the content to the disk.

    Returns:
        The new size.

    Raises:
        OSError: the content could not be written. It may be appended again.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     append_to(Path(folder, "journal"), b"first "), append_to(Path(folder, "journal"), b"second")
        (6, 12)
    """
    # Unbuffered: a buffer that a failed flush has kept would be written by `close`, behind the truncation.
    with path.open("ab", buffering=0) as file:
        size = file.tell()
        if at is not None and at != size:
            size = file.truncate(at)
        try:
            _write_all(file, content)
            if durable:
                sync(file.fileno())
        except BaseException:  # also Ctrl-C: a part of a record must not stay in front of the next one
            file.truncate(size)
            raise
        return size + len(content)


def _write_all(file: RawIOBase, content: bytes) -> None:
    remaining = memoryview(content)
    while remaining:  # a disk that is nearly full takes a part
        remaining = remaining[file.write(remaining) :]


def sync(descriptor: int) -> None:
    """Force an open file or folder to the disk, on file systems that can do so."""
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _CANNOT_SYNC:
            raise


def sync_folder(folder: Path) -> None:
    """Force the names in a folder to the disk: after a power cut, its files have the names that they have now."""
    if os.name == "nt":  # Windows opens no folders
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        sync(descriptor)
    finally:
        os.close(descriptor)


def _draft_of(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}.{time.monotonic_ns()}")


@contextlib.contextmanager
def _written(draft: Path, content: str | bytes, mode: int, *, durable: bool = False) -> Iterator[Path]:
    """A new file with the content; its name is gone after the block."""
    file = open_file(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(file, "wb") as stream:
            stream.write(content.encode() if isinstance(content, str) else content)
            if durable:
                stream.flush()
                os.fsync(file)
        yield draft
    finally:
        with contextlib.suppress(OSError):  # renamed, or the disk's error is on its way to the caller
            draft.unlink()


# ---- locks ------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def locked(path: Path, *, shared: bool = False, waits: bool = True) -> Iterator[bool]:
    """Hold the lock of a file, which is made when missing.

    Args:
        path: the file.
        shared: other processes may hold it too, if they share it.
        waits: wait for as long as another process has it; without, the block gets False at once.

    Raises:
        OSError: the file cannot be made, or the file system has no locks.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with locked(Path(folder, "lock")) as ours, locked(Path(folder, "lock"), waits=False) as too:
        ...         ours, too
        (True, False)
    """
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        yield take_lock(file, shared=shared, waits=waits)
    finally:
        close_locked(file)


def is_locked(path: Path) -> bool:
    """Return whether a process holds the lock of a file alone. Several may ask at once; no file is not locked."""
    try:
        file = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        return not take_lock(file, shared=True, waits=False)
    finally:
        close_locked(file)


@contextlib.contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Let no other process into the block that asks the same. Without locks in the file system, all are let in."""
    if sys.platform == "win32":  # where folders cannot be opened
        file = open_file(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
    else:
        file = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):
            take_lock(file)
        yield
    finally:
        close_locked(file)


if sys.platform == "win32":
    import threading

    _position_lock = threading.Lock()  # the position in a file belongs to all threads that have it open

    def take_lock(file: int, *, shared: bool = False, waits: bool = True) -> bool:
        """Lock an open file, as below."""
        import portalocker

        flags = portalocker.LockFlags.SHARED if shared else portalocker.LockFlags.EXCLUSIVE
        try:
            portalocker.lock(file, flags if waits else flags | portalocker.LockFlags.NON_BLOCKING)
        except portalocker.AlreadyLocked:
            return False
        except portalocker.LockException as error:
            raise OSError(f"the file cannot be locked: {error}") from error
        return True

    def close_locked(file: int) -> None:
        """Close an open file, and with it end its lock."""
        os.close(file)

    def read_at(file: int, size_bytes: int, at: int) -> bytes:
        """Read some bytes of an open file; fewer, or none, at its end."""
        with _position_lock:
            os.lseek(file, at, os.SEEK_SET)
            return os.read(file, size_bytes)

    def write_at(file: int, content: bytes | memoryview, at: int) -> int:
        """Write into an open file, from any thread; returns how much was written."""
        with _position_lock:
            os.lseek(file, at, os.SEEK_SET)
            return os.write(file, content)

else:
    import fcntl

    def take_lock(file: int, *, shared: bool = False, waits: bool = True) -> bool:
        """Lock an open file; a lock that is held already is changed into this one.

        Args:
            file: the descriptor. Children that inherit it hold the lock too, until the last one has closed it.
            shared: other processes may hold it too, if they share it.
            waits: wait for as long as another process has the lock.

        Returns:
            False when another process has it.

        Raises:
            OSError: the file system has no locks.
        """
        kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        try:
            fcntl.flock(file, kind if waits else kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def close_locked(file: int) -> None:
        """Unlock an open file, then close it.

        Closed alone, it would stay locked while a process that another thread just forks has a copy of it.
        """
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(file, fcntl.LOCK_UN)
        os.close(file)

    def read_at(file: int, size_bytes: int, at: int) -> bytes:
        """Read some bytes of an open file; fewer, or none, at its end."""
        return os.pread(file, size_bytes, at)

    def write_at(file: int, content: bytes | memoryview, at: int) -> int:
        """Write into an open file, from any thread; returns how much was written."""
        return os.pwrite(file, content, at)
