"""Lists the event files of runs below a prefix, and detects changes since the last scan.

A run is a folder with event files; they may lie in a folder `tensorboard` of it, and those of further processes of
a job in `rank-1`, `rank-2` and so on, and metrics of its logs in `log-metrics`. `RunFolders` has two kinds:

- `LocalRunFolders` caches the folders of a local disk. Names are only read again in a folder whose modification
  time has changed. Folders that changed in the last two minutes are checked in every scan, other folders in
  batches, so that a scan of a thousand growing runs needs some thousand calls of `stat` and nothing more.
- `RemoteRunFolders` lists the complete prefix of any other store. A slow listing is done less often.
"""

from __future__ import annotations

import os
import stat
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Protocol, TypeAlias

from pai_sdk._data.run.events.files import is_event_file
from pai_sdk._data.run.events.writer import EVENTS_PART
from pai_sdk._data.storage.base import Store
from pai_sdk._data.storage.stored_file import StoredFile
from pai_sdk._data.storage.stores.local import LocalStore, stored_file_of

LIVE_S = 120.0
"""A run is growing when a file of it was changed in the last two minutes."""

_SETTLED_S = 2.0
"""File systems keep times in steps of up to two seconds: a folder that was changed this recently may change again
without another time."""

_INPUTS_OF_JOB = frozenset({"input", "usercode"})
"""Beside `output` in the folder that a job sees as `/ml`, also that of `pai-sdk run --here`: they have no runs."""

_SHARE_OF_LISTING = 5
"""The pause after a listing of a remote prefix, as a multiple of its duration, so that requests stay rare."""


@dataclass(frozen=True)
class Scan:
    """The result of a scan."""

    # All files of each run that is new, or of which a file was added, removed or changed.
    changed: dict[str, tuple[StoredFile, ...]]
    removed: frozenset[str] = frozenset()  # the folders that are no runs any more
    problems: tuple[str, ...] = ()  # the folders and files that could not be read, with the error
    # The symbolic links to folders and event files below the prefix; they are not followed.
    links: tuple[str, ...] = ()


class RunFolders(Protocol):
    """The folders of runs below one prefix. Used by one thread at a time."""

    @property
    def store(self) -> Store:
        """The prefix; paths are relative to it."""
        ...

    def scan(self, *, everything: bool = False) -> Scan:
        """Returns the changes since the previous scan; `everything` checks more than the current batch."""
        # Raises PaiError if the prefix cannot be listed; the next scan has the changes detected before.
        ...


def run_folders(store: Store, is_closed: Callable[[], bool] = lambda: False) -> RunFolders:
    """Returns the folders of runs in a store; a scan ends early when `is_closed` returns True."""
    if isinstance(store, LocalStore):
        return LocalRunFolders(store, is_closed)
    return RemoteRunFolders(store, is_closed)


def run_folder_of(path: str) -> str:
    """Returns the folder of the run that an event file belongs to; `.` for the prefix itself."""
    parts = path.split("/")[:-1]
    if parts and EVENTS_PART.fullmatch(parts[-1]):
        parts.pop()
    if parts and parts[-1] == "tensorboard":
        parts.pop()
    return "/".join(parts) or "."


class _Changes:
    """The files of each run, and the runs that have changed since the last `take`."""

    def __init__(self) -> None:
        self._files: dict[str, dict[str, StoredFile]] = {}
        self._changed: set[str] = set()

    def put(self, run: str, file: StoredFile) -> None:
        files = self._files.setdefault(run, {})
        if files.get(file.path) != file:
            files[file.path] = file
            self._changed.add(run)

    def drop(self, run: str, path: str) -> None:
        if self._files.get(run, {}).pop(path, None) is not None:
            self._changed.add(run)

    def paths(self) -> Iterator[tuple[str, str]]:
        return ((run, path) for run, files in self._files.items() for path in files)

    def take(self, problems: list[str], links: Iterable[str] = ()) -> Scan:
        changed: dict[str, tuple[StoredFile, ...]] = {}
        removed = set()
        for run in self._changed:
            if files := self._files.get(run):
                changed[run] = tuple(files[path] for path in sorted(files))
            else:
                removed.add(run)
                self._files.pop(run, None)
        self._changed.clear()
        return Scan(changed, frozenset(removed), tuple(problems), tuple(links))


class RemoteRunFolders:
    """The folders of runs in any store, from one complete listing."""

    def __init__(self, store: Store, is_closed: Callable[[], bool] = lambda: False) -> None:
        self.store = store
        self._is_closed = is_closed
        self._changes = _Changes()
        self._not_before = 0.0

    def scan(self, *, everything: bool = False) -> Scan:
        """Returns the changes since the previous scan; see `RunFolders`."""
        started = time.monotonic()
        if started < self._not_before and not everything:
            return self._changes.take([])
        problems: list[str] = []
        current: set[tuple[str, str]] = set()
        for file in self.store.list(unlisted=lambda path, error: problems.append(f"{path}: {error}")):
            if self._is_closed():
                return Scan({})
            if is_event_file(file.path.rpartition("/")[2]):
                run = run_folder_of(file.path)
                self._changes.put(run, file)
                current.add((run, file.path))
        if not problems:  # after a partial listing, a missing file is not known to be gone
            for run, path in [pair for pair in self._changes.paths() if pair not in current]:
                self._changes.drop(run, path)
        finished = time.monotonic()
        self._not_before = finished + _SHARE_OF_LISTING * (finished - started)
        return self._changes.take(problems)


_FileState: TypeAlias = "tuple[int, ...]"
_NO_STATE: _FileState = ()


@dataclass
class _Folder:
    """The state of a folder of a local disk at the last check."""

    path: str  # relative to the prefix; empty for the prefix
    full_path: str
    run: str
    modified_ns: int = -1
    is_settled: bool = False
    live_until: float = 0.0
    files: dict[str, _FileState] = field(default_factory=dict)
    folders: set[str] = field(default_factory=set)
    links: set[str] = field(default_factory=set)


class LocalRunFolders:
    """The folders of runs on a local disk. Links and hidden folders are left out; a scan names the links."""

    def __init__(
        self,
        store: LocalStore,
        is_closed: Callable[[], bool] = lambda: False,
        *,
        max_quiet_folders: int = 2_000,  # checked in one scan without growth; each costs about 5 µs
    ) -> None:
        self.store = store
        self._max_quiet_folders = max_quiet_folders
        self._is_closed = is_closed
        self._changes = _Changes()
        self._folders: dict[str, _Folder] = {}
        self._next_index = 0
        self._problems: list[str] = []

    def scan(self, *, everything: bool = False) -> Scan:
        """Returns the changes since the previous scan; see `RunFolders`."""
        self._problems = []
        if "" not in self._folders:
            self._folders[""] = _Folder("", str(self.store.root), ".")
        now = time.time()
        waiting = deque(self._due(now, everything))
        while waiting and not self._is_closed():
            folder = self._folders.get(waiting.popleft())
            if folder is not None:  # otherwise its parent folder is gone
                waiting.extend(self._check_folder(folder, now))
        links = (
            os.path.join(folder.full_path, name)  # noqa: PTH118
            for folder in self._folders.values()
            if folder.links
            for name in sorted(folder.links)
        )
        return self._changes.take(self._problems, links)

    def _due(self, now: float, everything: bool) -> list[str]:
        """Returns the folders to check: those that grow, and a batch of the other ones."""
        if everything or len(self._folders) <= self._max_quiet_folders:
            return list(self._folders)
        # A scan that was ended early has left new folders without a modification time.
        live = [
            path for path, folder in self._folders.items() if folder.live_until > now or folder.modified_ns < 0
        ]
        start = self._next_index
        end = start + self._max_quiet_folders
        self._next_index = end % len(self._folders)
        batch = islice(self._folders, start, end)
        return list(dict.fromkeys(["", *live, *batch]))

    def _check_folder(self, folder: _Folder, now: float) -> list[str]:
        """Checks a folder and its files; returns the new folders in it."""
        new: list[str] = []
        try:
            status = os.stat(folder.full_path)  # noqa: PTH116 - a Path takes three times as long
            if status.st_mtime_ns != folder.modified_ns or not folder.is_settled:
                new = self._read_names(folder, status, now)
        except (FileNotFoundError, NotADirectoryError):
            self._forget(folder)
        except OSError as error:
            self._problems.append(f"{folder.full_path} cannot be read: {error.strerror or error}")
        for name in list(folder.files):
            self._check_file(folder, name, now)
        return new

    def _read_names(self, folder: _Folder, status: os.stat_result, now: float) -> list[str]:
        folders, files, folder.links = self._names_in(folder.full_path)
        for name in [name for name in folder.files if name not in files]:
            self._forget_file(folder, name)
        for name in sorted(files - folder.files.keys()):
            folder.files[name] = _NO_STATE
        for name in folder.folders - folders:
            if (gone := self._folders.get(_joined(folder.path, name))) is not None:
                self._forget(gone)
        new = [_joined(folder.path, name) for name in sorted(folders - folder.folders)]
        for path in new:
            full_path = os.path.join(folder.full_path, path.rpartition("/")[2])  # noqa: PTH118
            self._folders[path] = _Folder(path, full_path, run_folder_of(f"{path}/"))
        folder.folders = folders
        folder.modified_ns = status.st_mtime_ns
        # A second change within one time step of the file system keeps the modification time: read the names
        # again.
        folder.is_settled = status.st_mtime_ns / 1e9 < now - _SETTLED_S
        folder.live_until = max(folder.live_until, status.st_mtime_ns / 1e9 + LIVE_S)
        return new

    def _names_in(self, directory: str) -> tuple[set[str], set[str], set[str]]:
        folders, files, links = set[str](), set[str](), set[str]()
        with os.scandir(directory) as entries:
            for entry in entries:
                if not _is_utf8(entry.name):
                    self._problems.append(f"{entry.path!a} is left out: its name is not UTF-8")
                elif entry.is_dir(follow_symlinks=False):
                    if not entry.name.startswith("."):
                        folders.add(entry.name)
                elif is_event_file(entry.name) and entry.is_file(follow_symlinks=False):
                    files.add(entry.name)
                elif entry.is_symlink() and (is_event_file(entry.name) or _is_folder(entry)):
                    links.add(entry.name)
        if "output" in folders and folders | links >= _INPUTS_OF_JOB:
            folders, links = folders - _INPUTS_OF_JOB, links - _INPUTS_OF_JOB
        return folders, files, links

    def _check_file(self, folder: _Folder, name: str, now: float) -> None:
        before = folder.files[name]
        try:
            status = os.stat(f"{folder.full_path}{os.sep}{name}", follow_symlinks=False)  # noqa: PTH116
        except FileNotFoundError:
            self._forget_file(folder, name)
            return
        except OSError as error:
            self._problems.append(f"{folder.full_path}{os.sep}{name} cannot be read: {error.strerror or error}")
            return
        state = (status.st_mtime_ns, status.st_size, status.st_ino)
        if state == before:
            return
        if not stat.S_ISREG(status.st_mode):
            self._forget_file(folder, name)
            return
        folder.files[name] = state
        # A file with an old modification time that changes now, such as one that is being copied, grows too.
        changed_at = status.st_mtime_ns / 1e9 if before is _NO_STATE else now
        folder.live_until = max(folder.live_until, changed_at + LIVE_S)
        self._changes.put(folder.run, stored_file_of(_joined(folder.path, name), status))

    def _forget_file(self, folder: _Folder, name: str) -> None:
        del folder.files[name]
        self._changes.drop(folder.run, _joined(folder.path, name))

    def _forget(self, folder: _Folder) -> None:
        """Removes a folder that is gone, with its content."""
        parent, _, last = folder.path.rpartition("/")
        if folder.path and (parent_folder := self._folders.get(parent)) is not None:
            parent_folder.folders.discard(last)
            parent_folder.is_settled = False
        waiting = [folder]
        while waiting:
            gone = waiting.pop()
            for name in list(gone.files):
                self._forget_file(gone, name)
            paths = (_joined(gone.path, name) for name in gone.folders)
            waiting += [self._folders[path] for path in paths if path in self._folders]
            self._folders.pop(gone.path, None)


def _is_folder(link: os.DirEntry[str]) -> bool:
    try:
        return not link.name.startswith(".") and link.is_dir()
    except OSError:  # a link to itself
        return False


def _joined(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


def _is_utf8(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
