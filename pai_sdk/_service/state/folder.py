"""The data folder of a service: its lock, its keys, and the settings of its last start."""

from __future__ import annotations

import json
import os
import secrets
import string
import time
from dataclasses import dataclass, fields
from pathlib import Path
from types import TracebackType
from urllib.parse import urlsplit

from pai_sdk._core import files
from pai_sdk._core.files import close_locked, open_file, replace_file, take_lock
from pai_sdk._service.settings import ServiceInfo, ServiceSettings
from pai_sdk.errors import ServiceStartError

_ALPHABET = string.ascii_letters + string.digits
_POLL_INTERVAL_S = 0.03

# Files of a service and of the client that starts it. An interrupted start leaves some of them.
_SERVICE_FILES = frozenset(
    {
        *("lock", "start.lock", "service.log", "service.json", ".service.json.partial", "jobs", "objects"),
        *("service.db", "service.db-wal", "service.db-shm", "service.db-journal", "database", "nonces", "reserve"),
        *("executor.json", "cache", "ray", "lost+found"),  # each new ext4 file system has lost+found
    }
)
_MARKS = ("service.json", "service.db", "database")


@dataclass(frozen=True)
class Keys:
    """The access key of a service."""

    access_key_id: str
    access_key_secret: str

    def __repr__(self) -> str:
        return f"Keys(access_key_id={self.access_key_id!r})"


class DataFolder:
    """A folder that belongs to one running service at a time.

    A new folder is created with mode 0700. An existing folder keeps its mode, and its new subfolders get 0700.

    A service with the lease of a database does not wait for the lock: an unreachable machine may hold it. The lock
    file contains the mark of that database, and the next holder of the lease replaces this file and the lock of
    the object store. The previous holder then finds that its folder is gone (`is_gone`).
    """

    def __init__(
        self,
        root: Path,
        *,
        mark: str | None = None,
        handover_s: float = 0.3,  # a service that is stopping may hold the lock this long
        client_check_s: float = 10.0,  # a client may hold it this long while it checks it, on a busy machine
    ) -> None:
        self._lock_waits_s = {False: handover_s, True: client_check_s}  # by whether the lock is shared
        self.root = root.expanduser().absolute()
        self.database_file = self.root / "service.db"  # SQLite
        self.nonces_file = self.root / "nonces"  # of accepted requests
        self.jobs_dir = self.root / "jobs"  # has a folder for each job
        self.objects_dir = self.root / "objects"
        self.tables_dir = self.root / "tables"
        self._mark = mark  # of the database whose lease this process holds; None without one
        self._lock: int | None = None

    def job_dir(self, job_id: str) -> Path:
        """Returns the folder of a job; the service creates ids that are valid names of folders."""
        return self.jobs_dir / job_id

    def __enter__(self) -> DataFolder:
        """Creates and locks the folder; raises ServiceStartError if it is in use or cannot be written."""
        try:
            self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
            refuse_foreign(self.root)
            for folder in (self.jobs_dir, self.objects_dir):
                folder.mkdir(exist_ok=True, mode=0o700)
            has_lock = self._acquire_lock()
        except OSError as error:
            self.close()
            raise ServiceStartError(
                f"the data folder {self.root} cannot be used: {error.strerror or error}; choose another one"
            ) from error
        if not has_lock:
            self.close()
            raise ServiceStartError(
                f"another service already runs on {self.root}; stop it, or choose another data folder"
            )
        return self

    def _acquire_lock(self) -> bool:
        path = self.root / "lock"
        self._lock = open_file(path, os.O_RDWR | os.O_CREAT, 0o600)
        has_lock = self._try_lock(self._lock, path)
        if self._mark is None:
            return has_lock
        if not has_lock:
            if path.read_text(encoding="ascii") != self._mark:
                return False
            # Unlinked, not released: the previous holder may be alive on an unreachable machine. It keeps a lock
            # on a file without a name, and detects this by `is_gone`.
            self.close()
            for stale in (path, self.objects_dir / "lock"):  # locked by the previous holder of the lease
                stale.unlink(missing_ok=True)
            self._lock = open_file(path, os.O_RDWR | os.O_CREAT, 0o600)
            has_lock = self._try_lock(self._lock, path)
        # The mark identifies this file to the next holder of the lease, which then replaces it.
        os.ftruncate(self._lock, os.pwrite(self._lock, self._mark.encode("ascii"), 0))
        return has_lock

    def _try_lock(self, descriptor: int, path: Path) -> bool:
        """Acquires the lock; waits for clients that share it to check whether a service runs (`is_locked`)."""
        started_at = time.monotonic()
        # Polled: a blocking flock() has no timeout.
        while not take_lock(descriptor, waits=False):
            if time.monotonic() - started_at > self._lock_waits_s[not files.is_locked(path)]:
                return False
            time.sleep(_POLL_INTERVAL_S)
        return True

    @property
    def is_gone(self) -> bool:
        """Returns True if the folder was deleted, moved away or taken over while it was locked."""
        if self._lock is None:
            return False
        try:
            current = (self.root / "lock").stat()
        except (FileNotFoundError, NotADirectoryError):
            return True
        except OSError:
            return False  # a network file system may respond again
        return not os.path.samestat(current, os.fstat(self._lock))

    def close(self) -> None:
        """Releases the lock."""
        if self._lock is not None:
            close_locked(self._lock)
            self._lock = None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def saved(self) -> ServiceInfo | None:
        """Returns the settings that the last start has saved, or None."""
        return read_info(self.root)

    def keys(self, settings: ServiceSettings) -> Keys:
        """Returns the keys of the settings, else those of the last start, else new ones."""
        saved = self.saved()
        return Keys(
            settings.access_key_id or (saved.access_key_id if saved else _random("LTAI", 20)),
            settings.access_key_secret or (saved.access_key_secret if saved else _random("", 30)),
        )

    def last_port(self) -> int | None:
        """Returns the port of the last start."""
        saved = self.saved()
        return urlsplit(saved.endpoint).port if saved else None

    def save(self, info: ServiceInfo) -> None:
        """Saves how the service is reached, for its clients and for the next start."""
        draft = self.root / ".service.json.partial"
        replace_file(self.root / "service.json", info.to_json() + "\n", durable=True, draft=draft)


def refuse_foreign(root: Path) -> None:
    """Raises ServiceStartError unless a folder is empty or belongs to a service."""
    names = {path.name for path in root.iterdir()}
    foreign = sorted(names - _SERVICE_FILES)
    if foreign and names.isdisjoint(_MARKS):
        raise ServiceStartError(
            f"the folder {root} is not empty and not a service's: it holds {foreign[0]!r}; "
            "choose an empty folder, or one that does not exist yet"
        )


def is_locked(root: Path) -> bool:
    """Returns True if a service runs on the folder."""
    try:
        return files.is_locked(root / "lock")
    except OSError:
        return False


def read_info(root: Path) -> ServiceInfo | None:
    """Reads `service.json` of a data folder; None if there is none that can be read."""
    try:
        saved = json.loads((root / "service.json").read_text(encoding="utf-8"))
        field_names = {field.name for field in fields(ServiceInfo)}  # a newer service may have written more fields
        return ServiceInfo(**{name: value for name, value in saved.items() if name in field_names}, data_dir=root)
    except (OSError, ValueError, TypeError, AttributeError):
        return None


def _random(prefix: str, length: int) -> str:
    return prefix + "".join(secrets.choice(_ALPHABET) for _ in range(length - len(prefix)))
