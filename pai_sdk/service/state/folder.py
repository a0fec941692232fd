"""The data folder of a service: its lock, its keys, and what is kept from one start to the next."""

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

from pai_sdk.base import files
from pai_sdk.base.files import close_locked, open_file, replace_file, take_lock
from pai_sdk.errors import ServiceStartError
from pai_sdk.service.settings import ServiceInfo, ServiceSettings

__all__ = ["DataFolder", "Keys", "is_locked", "read_info", "refuse_foreign"]

_ALPHABET = string.ascii_letters + string.digits
_HANDOVER_S = 0.3  # a service that is just ending may hold the lock for so long
_LONGEST_LOOK_S = 10.0  # likewise for a client that checks the lock, on a busy machine
_LOOK_S = 0.03

# What a service, or the client that starts it, puts into its folder. A start that was cut off leaves some of it.
_OWN_NAMES = frozenset(
    {
        *("lock", "start.lock", "service.log", "service.json", ".service.json.partial", "jobs", "objects"),
        *("service.db", "service.db-wal", "service.db-shm", "service.db-journal", "database", "nonces", "reserve"),
        *("executor.json", "cache", "ray", "lost+found"),  # the last one is in each new file system
    }
)
_MARKS = ("service.json", "service.db", "database")


@dataclass(frozen=True)
class Keys:
    """The one key pair of a service."""

    access_key_id: str
    access_key_secret: str

    def __repr__(self) -> str:
        return f"Keys(access_key_id={self.access_key_id!r})"


class DataFolder:
    """A folder that belongs to one running service at a time.

    A folder that this makes is closed to other users. One that was there keeps its mode, and what is put into it
    is closed.

    A service with the lease of a database does not wait for the lock: a machine that was cut off may have it. So
    the file bears the mark of that database, and the next holder of the lease puts new files in place of it and of
    that of the object store. The last one then sees that its folder is gone.

    Args:
        root: the folder.
        mark: of the database whose lease we hold; None without one.

    Example:
        >>> with DataFolder(Path("/srv/pai")) as folder:  # doctest: +SKIP
        ...     folder.database_file
    """

    def __init__(self, root: Path, *, mark: str | None = None) -> None:
        self.root = root.expanduser().absolute()
        self._mark = mark
        self._lock: int | None = None

    @property
    def database_file(self) -> Path:
        """The database."""
        return self.root / "service.db"

    @property
    def nonces_file(self) -> Path:
        """The nonces of requests that were let in."""
        return self.root / "nonces"

    @property
    def jobs_dir(self) -> Path:
        """One folder for each job."""
        return self.root / "jobs"

    @property
    def objects_dir(self) -> Path:
        """The object store."""
        return self.root / "objects"

    @property
    def tables_dir(self) -> Path:
        """The tables."""
        return self.root / "tables"

    def job_dir(self, job_id: str) -> Path:
        """The folder of one job. Ids are made by the service, so they are names of one folder."""
        return self.jobs_dir / job_id

    def __enter__(self) -> DataFolder:
        """Create and lock the folder.

        Raises:
            ServiceStartError: another service uses it, it cannot be written, or it holds something else.
        """
        try:
            self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
            refuse_foreign(self.root)
            for folder in (self.jobs_dir, self.objects_dir):
                folder.mkdir(exist_ok=True, mode=0o700)
            is_ours = self._take_lock()
        except OSError as error:
            self.close()
            raise ServiceStartError(
                f"the data folder {self.root} cannot be used: {error.strerror or error}; choose another one"
            ) from error
        if not is_ours:
            self.close()
            raise ServiceStartError(
                f"another service already runs on {self.root}; stop it, or choose another data folder"
            )
        return self

    def _take_lock(self) -> bool:
        path = self.root / "lock"
        self._lock = open_file(path, os.O_RDWR | os.O_CREAT, 0o600)
        is_ours = _lock_for_us(self._lock, path)
        if self._mark is None:
            return is_ours
        if not is_ours:
            if path.read_text(encoding="ascii") != self._mark:
                return False
            self.close()
            for left in (path, self.objects_dir / "lock"):  # the last holder of the lease has both
                left.unlink(missing_ok=True)
            self._lock = open_file(path, os.O_RDWR | os.O_CREAT, 0o600)
            is_ours = _lock_for_us(self._lock, path)
        os.ftruncate(self._lock, os.pwrite(self._lock, self._mark.encode("ascii"), 0))
        return is_ours

    @property
    def is_gone(self) -> bool:
        """True if the folder was deleted or moved away, while we hold its lock."""
        if self._lock is None:
            return False
        try:
            found = (self.root / "lock").stat()
        except (FileNotFoundError, NotADirectoryError):
            return True
        except OSError:
            return False  # a file system that does not answer may do so again
        return not os.path.samestat(found, os.fstat(self._lock))

    def close(self) -> None:
        """Let the next service have the folder."""
        if self._lock is not None:
            close_locked(self._lock)
            self._lock = None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def saved(self) -> ServiceInfo | None:
        """The facts that the last start wrote down, or None."""
        return read_info(self.root)

    def keys(self, settings: ServiceSettings) -> Keys:
        """The keys that were asked for, else those of the last start, else new ones."""
        saved = self.saved()
        return Keys(
            settings.access_key_id or (saved.access_key_id if saved else _random("LTAI", 20)),
            settings.access_key_secret or (saved.access_key_secret if saved else _random("", 30)),
        )

    def last_port(self) -> int | None:
        """The port of the last start."""
        saved = self.saved()
        return urlsplit(saved.endpoint).port if saved else None

    def save(self, info: ServiceInfo) -> None:
        """Write down how the service is reached, for its clients and for the next start."""
        draft = self.root / ".service.json.partial"
        replace_file(self.root / "service.json", info.to_json() + "\n", durable=True, draft=draft)


def refuse_foreign(root: Path) -> None:
    """See that a folder is empty, or a service's.

    Raises:
        ServiceStartError: it holds something else.
    """
    found = {path.name for path in root.iterdir()}
    foreign = sorted(found - _OWN_NAMES)
    if foreign and found.isdisjoint(_MARKS):
        raise ServiceStartError(
            f"the folder {root} is not empty and not a service's: it holds {foreign[0]!r}; "
            "choose an empty folder, or one that does not exist yet"
        )


def _lock_for_us(descriptor: int, path: Path) -> bool:
    """Take the lock, which clients that are just looking (`is_locked`) hold for an instant, and share."""
    begun = time.monotonic()
    while not take_lock(descriptor, waits=False):
        is_shared = not files.is_locked(path)
        if time.monotonic() - begun > (_LONGEST_LOOK_S if is_shared else _HANDOVER_S):
            return False
        time.sleep(_LOOK_S)
    return True


def is_locked(root: Path) -> bool:
    """True if a service runs on the folder now."""
    try:
        return files.is_locked(root / "lock")
    except OSError:
        return False


def read_info(root: Path) -> ServiceInfo | None:
    """`service.json` of a data folder, or None when there is none that can be read."""
    try:
        facts = json.loads((root / "service.json").read_text(encoding="utf-8"))
        known = {field.name for field in fields(ServiceInfo)}  # a newer service may have written more
        return ServiceInfo(**{name: value for name, value in facts.items() if name in known}, data_dir=root)
    except (OSError, ValueError, TypeError, AttributeError):
        return None


def _random(prefix: str, length: int) -> str:
    return prefix + "".join(secrets.choice(_ALPHABET) for _ in range(length - len(prefix)))
