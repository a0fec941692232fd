"""Files that processes share, on Linux, macOS and Windows: atomic replace, publish-once, locks, positioned I/O.

Standard library only; on Windows, portalocker provides the locks. A lock (flock) belongs to the open file, so it
ends with its process, however that exits. Elsewhere in the package: `storage.objects.replacing` yields a *name* to
download to, which `storage.leftovers` can distinguish from files of the user after a crash.
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

OPEN_FILES_CAN_BE_MOVED = sys.platform != "win32"
"""True if a file can be renamed and removed while it is open. Windows refuses both."""

_O_TMPFILE: int = getattr(os, "O_TMPFILE", 0)
# Some file systems support no fsync, or none of folders.
_CANNOT_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS, errno.EROFS, errno.EBADF)


def open_file(path: Path, flags: int, mode: int = 0o666) -> int:
    """Opens a file for bytes, without following a link or waiting for a pipe."""
    for name in ("O_BINARY", "O_NOFOLLOW", "O_NONBLOCK"):  # those that the system has
        flags |= getattr(os, name, 0)
    return os.open(path, flags, mode)


def open_plain(path: Path) -> BinaryIO:
    """Opens a file for reading in a folder that others can write to; refuses links, pipes and devices."""
    descriptor = open_file(path, os.O_RDONLY)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"{path} is not a file")
    return os.fdopen(descriptor, "rb")


def open_regular(path: Path) -> BinaryIO:
    """Opens a file for reading, also through a link. A pipe, device or folder is no file: FileNotFoundError."""
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    try:
        descriptor = os.open(path, flags)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENOTDIR):
            raise
        raise FileNotFoundError(errno.ENOENT, "no such file", str(path)) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise FileNotFoundError(errno.ENOENT, "no such file", str(path))
    return os.fdopen(descriptor, "rb")


# ---- publication ------------------------------------------------------------------------------------------


def replace_file(
    path: Path, content: str | bytes, *, mode: int = 0o600, durable: bool = False, draft: Path | None = None
) -> None:
    """Replace a file atomically: readers see the old or the new content, also after a crash.

    Args:
        path: the file.
        content: all of it; text is written as UTF-8.
        mode: its permissions, less the umask.
        durable: force the content to the disk before the rename, so that a power failure leaves no empty file.
        draft: the temporary file, for a file with one writer: a draft of a crashed process is removed. By
            default each call has its own draft beside the file, so several processes can write at once.

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
    """Create a file that appears with its full content, unless it exists: the first publisher wins.

    Args:
        path: the file, on a file system with hard links.
        content: all of it; text is written as UTF-8.
        mode: its permissions, less the umask.

    Returns:
        Whether this call created it.
    """
    with _written(_draft_of(path), content, mode) as written:
        try:
            # A link instead of a rename: it fails if the file exists, and so decides which process was first.
            os.link(written, path)
        except FileExistsError:
            return False
        return True


def create_at_once(path: str, content: bytes, *, executable: bool = False) -> bool:
    """Creates a small file that appears with its content, without a draft that a killed process would leave.

    Returns:
        False if something is at the path, or the system cannot do this; nothing has been done then.
    """
    # A file without a name, and a link to it. A draft needs a lock, checks of it and of the target, and a rename.
    if not _O_TMPFILE:
        return False
    try:
        file = os.open(os.path.dirname(path) or ".", os.O_WRONLY | _O_TMPFILE, 0o666)  # noqa: PTH120 - it is fast
        try:
            if os.write(file, content) != len(content):
                return False
            if executable:
                mode = os.fstat(file).st_mode
                os.fchmod(file, mode | (mode & 0o444) >> 2)  # type: ignore[attr-defined, unused-ignore]
            # Fails if the path is taken, even by a link to nothing. Python follows the link of /proc only if it is
            # given the descriptor of a folder, which an absolute path does not use.
            os.link(f"/proc/self/fd/{file}", path, src_dir_fd=file, follow_symlinks=True)
        finally:
            os.close(file)
    except OSError:
        # No such file system, no /proc, or a full disk: the caller writes it in another way, and reports errors.
        return False
    return True


def append_to(path: Path, content: bytes, *, at: int | None = None, durable: bool = False) -> int:
    """Appends to a file with one writer: all of the content or, after an error such as a full disk, none of it.

    Args:
        path: the file, which is created if missing.
        content: the new bytes.
        at: the size that the file should have; a longer tail, as after a crash, is removed first.
        durable: force the content to the disk.
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
        except BaseException:
            # Also after Ctrl-C: a partial record must not stay in front of the next one.
            file.truncate(size)
            raise
        return size + len(content)


def _write_all(file: RawIOBase, content: bytes) -> None:
    remaining = memoryview(content)
    # On a nearly full disk, write() may write less than requested, without an error.
    while remaining:
        remaining = remaining[file.write(remaining) :]


def sync(descriptor: int) -> None:
    """Forces an open file or folder to the disk, if the file system supports it."""
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _CANNOT_SYNC:
            raise


def sync_folder(folder: Path) -> None:
    """Forces the names in a folder to the disk, so that renames survive a power failure."""
    # Windows cannot open folders.
    if os.name == "nt":
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
    """Yields a new file with the content; the draft is removed after the block."""
    file = open_file(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(file, "wb") as stream:
            stream.write(content.encode() if isinstance(content, str) else content)
            if durable:
                stream.flush()
                os.fsync(file)
        yield draft
    finally:
        # The draft was renamed, or an error of the disk is already on its way to the caller.
        with contextlib.suppress(OSError):
            draft.unlink()


# ---- locks ------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def locked(path: Path, *, shared: bool = False, waits: bool = True) -> Iterator[bool]:
    """Hold the lock of a file, which is created if missing.

    Args:
        path: the file.
        shared: other processes can hold it too, if they share it.
        waits: wait while another process has it; otherwise the block gets False at once.

    Raises:
        OSError: the file cannot be created, or the file system has no locks.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with locked(Path(folder, "lock")) as first, locked(Path(folder, "lock"), waits=False) as second:
        ...         first, second
        (True, False)
    """
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        yield take_lock(file, shared=shared, waits=waits)
    finally:
        close_locked(file)


def is_locked(path: Path) -> bool:
    """Return whether a process holds the exclusive lock of a file; False without a file."""
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
    """Excludes other processes that lock the same folder; has no effect if the file system has no locks."""
    # Windows cannot open folders, so a file in it is locked.
    if sys.platform == "win32":
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

    # Windows has no pread: the position of a file is shared by all threads, so a lock protects each seek with its
    # read or write.
    _position_lock = threading.Lock()

    def take_lock(file: int, *, shared: bool = False, waits: bool = True) -> bool:
        """Locks an open file; returns False if another process has it and `waits` is False."""
        # A lock that is already held changes its kind. Children that inherit the descriptor hold it too, until the
        # last one has closed it.
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
        """Unlocks an open file, then closes it."""
        # A close alone would leave it locked while a process that another thread just forks has a copy.
        os.close(file)

    def read_at(file: int, size_bytes: int, at: int) -> bytes:
        """Reads bytes at a position of an open file; fewer, or none, at its end."""
        with _position_lock:
            os.lseek(file, at, os.SEEK_SET)
            return os.read(file, size_bytes)

    def write_at(file: int, content: bytes | memoryview, at: int) -> int:
        """Writes at a position of an open file, from any thread; returns the number of written bytes."""
        with _position_lock:
            os.lseek(file, at, os.SEEK_SET)
            return os.write(file, content)

else:
    import fcntl

    def take_lock(file: int, *, shared: bool = False, waits: bool = True) -> bool:
        """Locks an open file; returns False if another process has it and `waits` is False."""
        # A lock that is already held changes its kind. Children that inherit the descriptor hold it too, until the
        # last one has closed it. An OSError means that the file system has no locks.
        kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        try:
            # flock, not lockf: a lock of lockf belongs to the process, and is lost when any descriptor of the file
            # is closed.
            fcntl.flock(file, kind if waits else kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def close_locked(file: int) -> None:
        """Unlocks an open file, then closes it."""
        # A close alone would leave it locked while a process that another thread just forks has a copy.
        # The file system has no locks.
        with contextlib.suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_UN)
        os.close(file)

    def read_at(file: int, size_bytes: int, at: int) -> bytes:
        """Reads bytes at a position of an open file; fewer, or none, at its end."""
        return os.pread(file, size_bytes, at)

    def write_at(file: int, content: bytes | memoryview, at: int) -> int:
        """Writes at a position of an open file, from any thread; returns the number of written bytes."""
        return os.pwrite(file, content, at)


def read_into(file: int, buffer: memoryview, at: int) -> int:
    """Reads into a buffer, from a position of an open file; returns the number of bytes, 0 at its end."""
    if hasattr(os, "preadv"):
        size: int = os.preadv(file, [buffer], at)
        return size
    content = read_at(file, len(buffer), at)
    buffer[: len(content)] = content
    return len(content)
