"""The files by which processes that wait in a debugger are found. Shipped with jobs: syntax of Python 3.8.

    /ml/.pai-sdk-debug/<pid>.json   who waits, where, until when; locked by the process, removed when it goes on
    /ml/.pai-sdk-debug/<pid>.sock   the socket of its terminal

The folder is beside the working directory of the job. A marker whose lock is free belongs to a process that was
killed. Standard library only.
"""

from __future__ import annotations

import json
import os
import stat
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

FOLDER = ".pai-sdk-debug"
_MAX_BYTES = 16 * 1024
_MAX_MARKERS = 1024
_MAX_ENTRIES = 16 * _MAX_MARKERS
_MAX_TEXT = 400
_LOCK_ATTEMPTS, _LOCK_PAUSE_S = 20, 0.01


def debug_folder(variables: Mapping[str, str]) -> Path:
    """Returns the folder of markers and sockets of this job; creates it for this user only."""
    working_dir = variables.get("PAI_WORKING_DIR")
    if working_dir:
        folder = Path(working_dir).parent / FOLDER
        try:
            return _private(folder)
        except OSError:  # an image with a read-only root
            pass
    return _private(_temporary_folder())


def _temporary_folder() -> Path:
    return Path(tempfile.gettempdir()) / f"{FOLDER}-{os.getuid()}"


def _private(folder: Path) -> Path:
    # Who can open the socket runs code as this user.
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    status = os.lstat(str(folder))
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        raise PermissionError(13, "belongs to another user", str(folder))
    folder.chmod(0o700)
    return folder


class Marker:
    """The marker of this process: written while it waits, empty while it runs."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None
        # Threads at breakpoints share the marker; a closed descriptor may be that of another file.
        self._lock = threading.Lock()

    def write(self, content: Mapping[str, Any]) -> None:
        """Writes the marker; a full disk or a folder without locks is no reason to fail."""
        with self._lock, suppress(OSError):
            if self._descriptor is None:
                flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0)
                self._descriptor = os.open(str(self.path), flags, 0o600)
                _lock(self._descriptor)
            data = json.dumps(content).encode()
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, data, 0)

    def remove(self) -> None:
        """Removes the marker."""
        with self._lock:
            if self._descriptor is not None:
                with suppress(OSError):
                    self.path.unlink()
                with suppress(OSError):
                    os.close(self._descriptor)
                self._descriptor = None


def read_markers(folder: Path) -> list[dict[str, Any]]:
    """Returns the markers of processes that wait, by rank; `folder` is `FOLDER` in the `/ml` of a job.

    The content is the job's: other fields and types than expected are possible, and were left out.
    """
    markers = []
    for path in _paths(folder):
        marker = _read(path)
        if marker is not None:
            markers.append({**marker, "socket": path.stem + ".sock"})
    return sorted(markers, key=lambda marker: (marker["rank"], marker["pid"]))


def _paths(folder: Path) -> list[Path]:
    """Returns the paths of markers; of a folder with any number of files, of the first ones."""
    paths: list[Path] = []
    # The job may have replaced the folder by a link out of it.
    with suppress(OSError):
        if not folder.is_symlink():
            with os.scandir(str(folder)) as entries:
                names = [entry.name for entry in islice(entries, _MAX_ENTRIES)]
            paths = [folder / name for name in sorted(names) if name.endswith(".json")]
    return paths[:_MAX_MARKERS]


def instance_markers(variables: Mapping[str, str]) -> list[dict[str, Any]]:
    """Returns the markers of the instance with these variables, with the paths of their sockets."""
    folders = [_temporary_folder()]
    if working_dir := variables.get("PAI_WORKING_DIR"):
        folders.insert(0, Path(working_dir).parent / FOLDER)
    return [
        {**marker, "socket": str(folder / marker["socket"])}
        for folder in folders
        for marker in read_markers(folder)
        # The instances of a job may share these folders.
        if marker["instance"] == variables.get("PAI_INSTANCE_NAME", "")
    ]


def _read(path: Path) -> dict[str, Any] | None:
    try:
        descriptor = os.open(str(path), os.O_RDONLY | os.O_NONBLOCK | getattr(os, "O_NOFOLLOW", 0))
    except OSError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode) or _is_unlocked(descriptor):
            return None
        content = json.loads(os.pread(descriptor, _MAX_BYTES, 0).decode("utf-8", "replace"))
        return _checked(content) if isinstance(content, dict) else None
    except (OSError, ValueError, RecursionError):  # half written: read again later
        return None
    finally:
        os.close(descriptor)


def _lock(descriptor: int) -> None:
    """Locks a file, if its file system has locks."""
    if fcntl is None:
        return
    # A reader has the lock for a moment, to see whether it is free.
    for _ in range(_LOCK_ATTEMPTS):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_LOCK_PAUSE_S)
        except OSError:
            return
        else:
            return


def _is_unlocked(descriptor: int) -> bool:
    if fcntl is None:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # no locks in this file system
        return False
    return True


def _checked(content: Mapping[str, Any]) -> dict[str, Any] | None:
    numbers = {name: content.get(name) for name in ("rank", "pid", "line", "port", "since", "deadline")}
    texts = {name: content.get(name) for name in ("kind", "state", "instance", "file", "function", "working_dir")}
    are_numbers = all(isinstance(value, (int, float)) or value is None for value in numbers.values())
    are_strings = all(isinstance(value, str) for value in texts.values())
    if not (are_numbers and are_strings and isinstance(numbers["rank"], int) and isinstance(numbers["pid"], int)):
        return None
    return {**numbers, **{name: value[-_MAX_TEXT:] for name, value in texts.items() if isinstance(value, str)}}
