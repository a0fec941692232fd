"""One process at a time works on a folder of a store: a lock on a local folder, a lease in any other store.

A lock ends with its process. A lease is an object that its holder renews; it runs out when that stops.
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

from pai_sdk.base.files import is_locked, locked, replace_file
from pai_sdk.errors import InUseError, ObjectNotFoundError, PaiError, StorageError
from pai_sdk.storage.store import Store

__all__ = ["LEASE_S", "FolderClaim", "claimed", "is_claimed"]

logger = logging.getLogger(__name__)

LEASE_S = 20.0
"""A lease that was not renewed for this time has run out. It is renewed four times as often."""

_LOCK, _DRIVER = "driver.lock", "driver.json"
_LOOKERS = 5  # how often a lock is tried again: who only looks at a folder has it for a moment
_SETTLE_S = 0.3  # two processes that start at once both write; the later write stays


class FolderClaim:
    """The right to work on a folder. `check` raises when it is lost."""

    def __init__(self) -> None:
        self.holder = _this_process()

    def check(self) -> None:
        """Make sure that no other process has the folder.

        Raises:
            InUseError: another process has taken it.
        """


@contextmanager
def claimed(store: Store) -> Iterator[FolderClaim]:
    """Claim a folder for the time of a block.

    Args:
        store: the folder.

    Raises:
        InUseError: another process has it; the error says which.
    """
    with _locked_folder(store.root, store.uri) if store.root is not None else _leased(store) as claim:
        yield claim


def is_claimed(store: Store) -> bool:
    """Whether a process works on a folder; True where that cannot be seen, as in the folder of another user.

    Args:
        store: the folder.
    """
    try:
        if store.root is not None:
            return is_locked(store.root / _LOCK)
        found = _Lease(store)._read()
    except (OSError, PaiError):
        return True
    return bool(found) and not _has_run_out(found)


@contextmanager
def _locked_folder(folder: Path, uri: str) -> Iterator[FolderClaim]:
    with ExitStack() as stack:
        claim = FolderClaim()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            is_ours = stack.enter_context(locked(folder / _LOCK, waits=False))
            for _ in range(_LOOKERS):
                if is_ours:
                    break
                time.sleep(_SETTLE_S / _LOOKERS)
                is_ours = stack.enter_context(locked(folder / _LOCK, waits=False))
            if is_ours:
                replace_file(folder / _DRIVER, json.dumps(claim.holder))
        except OSError as error:
            raise StorageError(f"nothing can be kept in {folder}: {error.strerror or error}") from error
        if not is_ours:
            holder: dict[str, Any] = {}
            with suppress(OSError, ValueError):
                holder = json.loads((folder / _DRIVER).read_bytes())
            raise _in_use(uri, holder)
        yield claim


class _Lease(FolderClaim):
    """A lease, renewed by a thread.

    Args:
        store: the folder.
    """

    def __init__(self, store: Store) -> None:
        super().__init__()
        self._store = store
        self._over = threading.Event()
        self._lock = threading.Lock()  # guards what follows
        self._renewed_at = time.monotonic()
        self._other: dict[str, Any] | None = None

    def take(self) -> None:
        """Write the lease, unless another process has one that has not run out."""
        found = self._read()
        if found and not _has_run_out(found):
            raise _in_use(self._store.uri, found, left_s=LEASE_S - (time.time() - found.get("renewed_at", 0.0)))
        self._renew()
        self._over.wait(_SETTLE_S)
        self._look()
        self.check()

    def run(self) -> None:
        """Renew the lease until the end; for a thread."""
        while not self._over.wait(LEASE_S / 4):
            try:
                self._look()
                if self._other is None:
                    self._renew()
            except PaiError as error:
                logger.warning("the lease of %s was not renewed: %s", self._store.uri, error)

    def check(self) -> None:
        """Raise if another process has the lease, or it has run out."""
        with self._lock:
            other, age_s = self._other, time.monotonic() - self._renewed_at
        if other is not None:
            raise _in_use(self._store.uri, other)
        if age_s > LEASE_S:
            raise InUseError(
                f"the claim on {self._store.uri} could not be renewed for {age_s:.0f} s, so another process may "
                "have taken it; run this again to go on",
                uri=self._store.uri,
            )

    def end(self) -> None:
        """Remove the lease, if it is still ours."""
        self._over.set()
        with suppress(PaiError):
            self._look()
            if self._other is None:
                self._store.delete([_DRIVER])

    def _look(self) -> None:
        found = self._read()
        if found and found.get("token") != self.holder["token"]:
            with self._lock:
                self._other = found

    def _renew(self) -> None:
        began = time.monotonic()
        self._store.write(_DRIVER, json.dumps({**self.holder, "renewed_at": time.time()}).encode())
        with self._lock:
            self._renewed_at = began

    def _read(self) -> dict[str, Any]:
        try:
            found = json.loads(b"".join(self._store.read(_DRIVER)))
        except (ObjectNotFoundError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}


@contextmanager
def _leased(store: Store) -> Iterator[FolderClaim]:
    with ExitStack() as stack:
        lease = _Lease(store)
        lease.take()
        stack.callback(lease.end)
        thread = threading.Thread(target=lease.run, name="pai-lease", daemon=True)
        thread.start()
        yield lease


def _this_process() -> dict[str, Any]:
    user = ""
    with suppress(OSError, KeyError, ImportError):  # a user without an entry; Windows without variables
        user = getpass.getuser()
    return {
        "token": uuid.uuid4().hex,
        "user": user,
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "since": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def _has_run_out(found: dict[str, Any]) -> bool:
    if time.time() - found.get("renewed_at", 0.0) > LEASE_S:
        return True
    if found.get("host") != socket.gethostname() or sys.platform == "win32":  # where signal 0 ends a process
        return False
    try:
        os.kill(int(found.get("pid", 0)), 0)
    except ProcessLookupError:
        return True
    except (OSError, ValueError, OverflowError):
        return False
    return False


def _in_use(uri: str, holder: dict[str, Any], *, left_s: float | None = None) -> InUseError:
    who = "another process"
    if holder:
        name = f"{holder.get('user') or 'a user'}@{holder.get('host', '?')}"
        who = f"the process {holder.get('pid', '?')} of {name}, since {holder.get('since', '?')}"
    until = "" if left_s is None else f" If that has ended, try again in {max(1, round(left_s))} s."
    return InUseError(
        f"{uri} is in use by {who}; one process at a time can work on it.{until}",
        uri=uri,
        holder={key: value for key, value in holder.items() if key != "token"},
    )
