"""One process at a time works on a folder of a store: a lock on a local folder, a lease in any other store.

A lock ends with its process. A lease is an object that its holder renews; without renewals it expires.
"""

from __future__ import annotations

import getpass
import json
import logging
import os
import socket
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from pai_sdk._core.files import is_locked, locked, replace_file
from pai_sdk._data.storage.store import Store
from pai_sdk.errors import InUseError, ObjectNotFoundError, PaiError, StorageError

logger = logging.getLogger(__name__)

LEASE_S = 20.0
"""A lease that was not renewed for this time has expired. It is renewed four times as often."""

_LOCK, _DRIVER = "driver.lock", "driver.json"
_MAX_RECORD_BYTES = 64 << 10  # any user with access to the bucket can write it
# A reader such as `is_claimed` holds the lock for a moment, so a claim tries again before it fails.
_LOCK_ATTEMPTS = 5
# Two processes that start at once both write their lease; the later write wins and the other one loses.
_SETTLE_S = 0.3


class FolderClaim:
    """The right to work on a folder. `check` raises when it is lost."""

    def __init__(self) -> None:
        self.holder = _this_process()

    def check(self) -> None:
        """Raises InUseError if another process has claimed the folder."""


@contextmanager
def claimed(store: Store) -> Iterator[FolderClaim]:
    """Claims a folder for the time of a block; raises InUseError if another process has it."""
    with _locked_folder(store.root, store.uri) if store.root is not None else _leased(store) as claim:
        yield claim


def is_claimed(store: Store) -> bool:
    """Returns True if a process works on a folder, or if that is unknown, as in the folder of another user."""
    try:
        if store.root is not None:
            return is_locked(store.root / _LOCK)
        record = _Lease(store).read()
    except (OSError, PaiError):
        return True
    return bool(record) and not _is_expired(record)


@contextmanager
def _locked_folder(folder: Path, uri: str) -> Iterator[FolderClaim]:
    with ExitStack() as stack:
        claim = FolderClaim()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            has_lock = stack.enter_context(locked(folder / _LOCK, waits=False))
            for _ in range(_LOCK_ATTEMPTS):
                if has_lock:
                    break
                time.sleep(_SETTLE_S / _LOCK_ATTEMPTS)
                has_lock = stack.enter_context(locked(folder / _LOCK, waits=False))
            if has_lock:
                # Only informs other processes who has the folder: the lock decides, and it ends with its process.
                replace_file(folder / _DRIVER, json.dumps(claim.holder))
        except OSError as error:
            raise StorageError(f"nothing can be stored in {folder}: {error.strerror or error}") from error
        if not has_lock:
            holder: dict[str, Any] = {}
            with suppress(OSError, ValueError):
                holder = json.loads((folder / _DRIVER).read_bytes())
            raise _in_use(uri, holder)
        yield claim


class _Lease(FolderClaim):
    """A lease, renewed by a thread.

    The store has no lock, so a claim is a write, a pause, and a read: of two processes that write at once, the
    later write wins, and the other process sees its token after the pause. `_lock` guards `_renewed_at` and
    `_other_holder`, which the renewing thread sets and the thread of the caller reads.
    """

    def __init__(self, store: Store) -> None:
        super().__init__()
        self._store = store
        self._stopped = threading.Event()
        self._lock = threading.Lock()  # guards the next two attributes
        self._renewed_at = time.monotonic()
        self._other_holder: dict[str, Any] | None = None

    def acquire(self) -> None:
        """Writes the lease, unless another process has one that has not expired."""
        record = self.read()
        if record and not _is_expired(record):
            raise _in_use(
                self._store.uri, record, remaining_s=LEASE_S - (time.time() - record.get("renewed_at", 0.0))
            )
        self._renew()
        # Another process that also saw no lease writes its own within this time; the check must follow that write.
        self._stopped.wait(_SETTLE_S)
        self._check_holder()
        self.check()

    def run(self) -> None:
        """Renews the lease until `release`; for a thread."""
        while not self._stopped.wait(LEASE_S / 4):
            try:
                self._check_holder()
                # After another process has claimed the folder, a renewal would take the lease from it.
                if self._other_holder is None:
                    self._renew()
            except PaiError as error:
                logger.warning("the lease of %s was not renewed: %s", self._store.uri, error)

    def check(self) -> None:
        """Raises if another process has the lease, or it has expired."""
        with self._lock:
            other, age_s = self._other_holder, time.monotonic() - self._renewed_at
        if other is not None:
            raise _in_use(self._store.uri, other)
        # The renewing thread may be behind a broken network; by the clock of this process the lease has expired.
        if age_s > LEASE_S:
            raise InUseError(
                f"the claim on {self._store.uri} could not be renewed for {age_s:.0f} s, so another process may "
                "have claimed it; run this again to continue",
                uri=self._store.uri,
            )

    def release(self) -> None:
        """Removes the lease, if this process still has it."""
        # A delete after another process has claimed the folder would remove its lease, so the holder is checked.
        self._stopped.set()
        with suppress(PaiError):
            self._check_holder()
            if self._other_holder is None:
                self._store.delete([_DRIVER])

    def _check_holder(self) -> None:
        record = self.read()
        if record and record.get("token") != self.holder["token"]:
            with self._lock:
                self._other_holder = record

    def _renew(self) -> None:
        # The age counts from before the write, so that a slow write cannot extend a lease.
        started_at = time.monotonic()
        self._store.write(_DRIVER, json.dumps({**self.holder, "renewed_at": time.time()}).encode())
        with self._lock:
            self._renewed_at = started_at

    def read(self) -> dict[str, Any]:
        """Returns the record of the holder; empty without one."""
        content = b""
        try:
            for chunk in self._store.read(_DRIVER):
                content += chunk
                if len(content) > _MAX_RECORD_BYTES:
                    return {}
            record = json.loads(content)
        except (ObjectNotFoundError, ValueError, RecursionError):
            return {}
        return record if isinstance(record, dict) else {}


@contextmanager
def _leased(store: Store) -> Iterator[FolderClaim]:
    with ExitStack() as stack:
        lease = _Lease(store)
        lease.acquire()
        # Registered before the thread starts, so that an interrupted start does not leave the lease behind.
        stack.callback(lease.release)
        thread = threading.Thread(target=lease.run, name="pai-lease", daemon=True)
        thread.start()
        yield lease


def _this_process() -> dict[str, Any]:
    user = ""
    # The user may have no entry in the password database; Windows may lack the variables.
    with suppress(OSError, KeyError, ImportError):
        user = getpass.getuser()
    return {
        "token": uuid.uuid4().hex,
        "user": user,
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "since": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def _is_expired(record: dict[str, Any]) -> bool:
    """Returns True also for a record of another program, whose fields have other types."""
    try:
        if not time.time() - record.get("renewed_at", 0.0) <= LEASE_S:  # NaN is no time
            return True
        # A process id has a meaning on its own host only. On Windows, signal 0 ends a process.
        if record.get("host") != socket.gethostname() or sys.platform == "win32":
            return False
        os.kill(int(record.get("pid", 0)), 0)
    except (ProcessLookupError, TypeError, OverflowError):
        return True
    except (OSError, ValueError):
        return False
    return False


def _in_use(uri: str, holder: dict[str, Any], *, remaining_s: float | None = None) -> InUseError:
    holder_text = "another process"
    if holder:
        name = f"{holder.get('user') or 'a user'}@{holder.get('host', '?')}"
        holder_text = f"the process {holder.get('pid', '?')} of {name}, since {holder.get('since', '?')}"
    until = "" if remaining_s is None else f" If that has ended, try again in {max(1, round(remaining_s))} s."
    return InUseError(
        f"{uri} is in use by {holder_text}; one process at a time can work on it.{until}",
        uri=uri,
        holder={key: value for key, value in holder.items() if key != "token"},
    )
