"""The files that a sync has moved, stored on this machine: a row for each file, sorted by path.

A row has the marks (ETags) that the file had on both sides when it was moved. The rows are in SQLite, because a
sync reads them in order without loading them all, and because a killed process leaves a usable file. Rows that a
killed process had not written yet are files that are moved once more.
"""

from __future__ import annotations

import hashlib
import logging
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pai_sdk._core.files import locked
from pai_sdk._data.storage.base import Store
from pai_sdk._data.storage.stored_file import StoredFile
from pai_sdk._data.storage.unfinished import cache_folder
from pai_sdk.errors import ObjectNotFoundError, StorageError

_log = logging.getLogger(__name__)

_FORBIDDEN = 403
_MAX_WAITING = 1000
_PAGE = 1000
_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS moved (path TEXT PRIMARY KEY, source TEXT, target TEXT) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS sent (path TEXT PRIMARY KEY, target TEXT) WITHOUT ROWID",
)
# Writes are batched: at most this many rows, or this long, are lost with a killed process.
_PUT = "INSERT OR REPLACE INTO moved VALUES (?, ?, ?)"


@dataclass(frozen=True, slots=True)
class Moved:
    """A file that was moved, and its marks on both sides."""

    path: str
    source: str
    target: str


def memory_path(source: Store, target: Store) -> Path:
    """Returns the default file for the rows of a sync between two folders."""
    name = hashlib.sha256(f"{source.identity}\0{target.identity}".encode()).hexdigest()[:40]
    return cache_folder("syncs") / f"{name}.db"


class SyncMemory:
    """The rows of one sync. One process at a time has them; others wait for the lock.

    Threads add to `_waiting` and `_forgotten` under `_lock`, and never access the database. The thread that
    created the object swaps these lists under the lock, and writes them in one transaction after it has released
    the lock: a slow disk does not block the transfers. With `path` None, rows are not stored.
    """

    def __init__(self, path: Path | None, *, max_wait_s: float = 1.0) -> None:
        self._max_wait_s = max_wait_s
        self._lock = threading.Lock()
        self._waiting: list[tuple[str, str, str]] = []
        self._forgotten: list[str] = []
        self._written_at = time.monotonic()
        self._ends = ExitStack()
        self._database: sqlite3.Connection | None = None
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            # The lock comes before the database: a second sync of the folders would read rows that are about to
            # change.
            self._ends.enter_context(locked(path.with_suffix(".lock")))
            try:
                self._database = _open(path)
            except BaseException:
                self._ends.close()
                raise
            self._ends.callback(self._database.close)

    def __enter__(self) -> SyncMemory:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def rows(self) -> Iterator[Moved]:
        """Yields the rows as of the start of the sync or later, sorted by path."""
        after = ""
        while self._database is not None:
            query = "SELECT path, source, target FROM moved WHERE path > ? ORDER BY path LIMIT ?"
            page = self._database.execute(query, (after, _PAGE)).fetchall()
            yield from (Moved(*row) for row in page)
            if len(page) < _PAGE:
                return
            # A page at a time, by key: `write` may change rows between two pages.
            after = page[-1][0]

    def put(self, path: str, source: str, target: str) -> None:
        """Records a moved file; from any thread. It is on disk after the next `write`."""
        with self._lock:
            self._waiting.append((path, source, target))

    def forget(self, path: str) -> None:
        """Removes the row of a file; from any thread."""
        with self._lock:
            self._forgotten.append(path)

    def is_present_in(self, target: Store) -> bool:
        """Returns True if the target still has the last recorded file; False for a target that was emptied."""
        if self._database is None:
            return True
        query = "SELECT path FROM moved WHERE path NOT LIKE '%/' ORDER BY path DESC LIMIT 1"
        for (path,) in self._database.execute(query).fetchall():
            try:
                target.head(path)
            except ObjectNotFoundError:
                return False
            except StorageError as error:
                if error.status_code != _FORBIDDEN:  # a key that may only write
                    raise
        return True

    def check(self, target: Mapping[str, StoredFile]) -> int:
        """Forgets the rows of files that the target does not have in this version; returns the number of rows."""
        num_rows = 0
        for row in self.rows():
            file = target.get(row.path)
            if file is not None and (file.is_folder or file.etag == row.target):
                num_rows += 1
            else:
                self.forget(row.path)
        self.write(now=True)
        return num_rows

    def sent(self) -> dict[str, str]:
        """Returns path and target mark of the files recorded by `change_sent`."""
        # A sync does not forget them when the source has deleted them.
        if self._database is None:
            return {}
        return dict(self._database.execute("SELECT path, target FROM sent").fetchall())

    def change_sent(self, *, add: Mapping[str, str] | None = None, remove: Iterable[str] = ()) -> None:
        """Adds to the files of `sent`, or removes from them; durable on return."""
        if self._database is not None:
            with self._database:
                self._database.executemany("DELETE FROM sent WHERE path = ?", [(path,) for path in remove])
                self._database.executemany("INSERT OR REPLACE INTO sent VALUES (?, ?)", (add or {}).items())

    def write(self, *, now: bool = False) -> None:
        """Writes recorded rows if there are many or a second has passed; only on the thread of `__init__`."""
        count = len(self._waiting) + len(self._forgotten)
        is_due = count >= _MAX_WAITING or time.monotonic() - self._written_at > self._max_wait_s
        if not count or not (now or is_due):
            return
        # Swapped under the lock and written after it: a slow disk does not block the threads that add rows.
        with self._lock:
            waiting, self._waiting = self._waiting, []
            forgotten, self._forgotten = self._forgotten, []
        self._written_at = time.monotonic()
        if self._database is None:
            return
        try:
            with self._database:
                self._database.executemany("DELETE FROM moved WHERE path = ?", [(path,) for path in forgotten])
                self._database.executemany(_PUT, waiting)
        except sqlite3.Error as error:
            # The disk is full. The files themselves are in place.
            _log.warning("copied files cannot be recorded (%s), so the next sync copies them again", error)

    def close(self) -> None:
        """Writes all rows, and releases the lock of the file."""
        try:
            self.write(now=True)
        finally:
            self._ends.close()


def _open(path: Path) -> sqlite3.Connection:
    try:
        return _connect(path)
    except sqlite3.DatabaseError as error:
        _log.warning("%s cannot be read (%s), so all files are copied again", path, error)
        for name in (path.name, f"{path.name}-wal", f"{path.name}-shm"):
            with suppress(FileNotFoundError):
                path.with_name(name).unlink()
    try:
        return _connect(path)
    except sqlite3.OperationalError as error:
        # A full disk must not prevent the files from being moved.
        _log.warning("%s cannot be created (%s), so all files are copied again by the next sync", path, error)
        return _connect(":memory:")


def _connect(path: Path | Literal[":memory:"]) -> sqlite3.Connection:
    # autocommit is off only within `with database:`
    database = sqlite3.connect(path, timeout=30, check_same_thread=False)
    try:
        # A power cut may lose the last rows, whose files are then moved again; a killed process loses none.
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("PRAGMA synchronous=NORMAL")
        for statement in _SCHEMA:
            database.execute(statement)
        database.execute("SELECT source, target FROM moved LIMIT 1").fetchall()
        database.execute("SELECT path, target FROM sent LIMIT 1").fetchall()
    except BaseException:
        database.close()
        raise
    return database
