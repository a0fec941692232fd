"""A lease allows one service at a time on a PostgreSQL database. Its holder renews it until it stops.

The lease is one row: its holder, a number that each new holder increments, and the time of expiry by the clock of
the database. The holder does not read that clock. It counts from the moment before it sent the last successful
renewal, so by its own clock the lease always expires earlier than by that of the database.

    seconds since then    action
    2                     the holder renews the lease
    6                     the holder starts no more work, and begins to shut down
    7.5                   the holder exits at once, whatever it does
    8                     another service can acquire the lease

A suspended process cannot watch a clock. So each writing transaction begins with a check of the number, and locks
the row (FOR KEY SHARE) against a new holder until the transaction is finished. A process that was suspended, or
got no processor time, starts no work when it resumes, and has one second to renew the lease: this succeeds if no
other service has acquired it meanwhile.
"""

from __future__ import annotations

import logging
import os
import secrets
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from sqlalchemy import Engine, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from pai_sdk._service.state.process_names import ProcessName
from pai_sdk._service.wire_errors import WireError

logger = logging.getLogger(__name__)

LASTS_S = 8.0
"""How long a lease lasts after each renewal."""

# The distances between these times are in the table above. The lease must last longer than _EXIT_AFTER_S, so that
# the old holder has exited before a new one can start.
_RENEW_S, _RENEW_AGAIN_S = 2.0, 0.5
_STOP_AFTER_S, _EXIT_AFTER_S = 6.0, 7.5
_WATCH_S = 0.1
_SUSPENDED_S = 4.0  # since the last look at the clock: the process was suspended
_RESUME_S = 1.0
_MAX_PAUSE = "5s"  # idle in a transaction: then the server rolls it back, which releases the row

_UNREACHABLE = "its database could not be reached for 6 seconds"
_SUPERSEDED = "another service has taken over its database"

# Advisory lock against two concurrent takeovers. Releases before 0.1 hold it while they run.
_TAKEOVER_LOCK = text("SELECT pg_try_advisory_xact_lock(1885432180, hashtext(current_schema()))")
_CREATE = text(
    "CREATE TABLE IF NOT EXISTS service_lease (id INTEGER PRIMARY KEY CHECK (id = 1), mark TEXT NOT NULL,"
    " holder TEXT NOT NULL, number BIGINT NOT NULL, expires_at TIMESTAMPTZ NOT NULL)"
)
_FILL = text("INSERT INTO service_lease VALUES (1, :mark, '', 0, clock_timestamp()) ON CONFLICT DO NOTHING")
_SELECT = text("SELECT mark, holder, number, expires_at FROM service_lease")
# SKIP LOCKED: no takeover while a transaction of the last holder is open, which has locked the row FOR KEY SHARE.
_FREE = text(
    "SELECT mark, holder, number, expires_at FROM service_lease"
    " WHERE expires_at <= clock_timestamp() OR number = :ended FOR UPDATE SKIP LOCKED"
)
_ACQUIRE = text(
    "UPDATE service_lease SET holder = :holder, number = number + 1,"
    " expires_at = clock_timestamp() + make_interval(secs => :lasts) RETURNING number"
)
_RENEW = text(
    "UPDATE service_lease SET expires_at = clock_timestamp() + make_interval(secs => :lasts)"
    " WHERE number = :number RETURNING number"
)
_RELEASE = text(
    "UPDATE service_lease SET holder = '', number = number + 1, expires_at = clock_timestamp()"
    " WHERE number = :number"
)
_CHECK = text(
    "SELECT set_config('idle_in_transaction_session_timeout', :pause, true)"
    " FROM service_lease WHERE number = :number FOR KEY SHARE"
)

_Verdict: TypeAlias = Literal["continue", "stop", "exit"]


def now_s() -> float:
    """Returns seconds of CLOCK_BOOTTIME: monotonic, and includes suspend."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)


@dataclass(frozen=True)
class AcquiredLease:
    """Result of acquiring the lease."""

    number: int  # grows with each holder
    mark: str  # id of this database, equal for all its leases
    before: ProcessName | None  # the holder whose lease expired; None if the last holder released it


@dataclass(frozen=True)
class LeaseState:
    """A lease as other processes see it."""

    holder: ProcessName | None  # None if the last holder has released it
    number: int
    expires_at: float  # seconds since 1970, by the clock of the database


def lease_in(session: Session) -> LeaseState:
    """Returns the state of the lease of a PostgreSQL database."""
    row = session.execute(_SELECT).one()
    return LeaseState(ProcessName.parse(row.holder), int(row.number), row.expires_at.timestamp())


class _Renewable(Protocol):
    """Methods of `LeaseTable` that a holder calls."""

    def renew(self, number: int) -> bool:
        """Extends the lease."""

    def release(self, number: int) -> None:
        """Releases the lease."""


class LeaseTable:
    """The row of the lease. Methods raise SQLAlchemy's `DBAPIError` when the database cannot be reached."""

    def __init__(self, engine: Engine) -> None:
        # With REPEATABLE READ, all statements would use the snapshot of the first one, before the advisory lock.
        self._engine = engine.execution_options(isolation_level="READ COMMITTED")
        self._table_exists = False

    def acquire(self) -> AcquiredLease | None:
        """Acquires the lease if it has expired or its local holder has exited; None if another has it."""
        # Outside of the transaction: the check reads /proc. The number in _FREE ensures that this holder is still
        # the last one.
        exited = self._number_of_exited()
        with self._engine.begin() as connection:
            if not connection.scalar(_TAKEOVER_LOCK):
                return None
            # CREATE TABLE IF NOT EXISTS can fail if two processes run it concurrently, hence under the advisory
            # lock.
            if not self._table_exists:
                connection.execute(_CREATE)
                connection.execute(_FILL, {"mark": secrets.token_hex(16)})
            free = connection.execute(_FREE, {"ended": exited}).first()
            acquired = None
            if free is not None:
                number = connection.scalar(_ACQUIRE, {"holder": ProcessName.current().to_json(), "lasts": LASTS_S})
                acquired = AcquiredLease(int(number or 0), free.mark, ProcessName.parse(free.holder))
        self._table_exists = True
        return acquired

    def renewed_at(self) -> str:
        """Returns a string that changes with each renewal."""
        if not self._table_exists:
            return ""
        with self._engine.connect() as connection:
            row = connection.execute(_SELECT).one()
        return f"{row.number} {row.expires_at.isoformat()}"

    def renew(self, number: int) -> bool:
        """Extends the lease; returns False if another service has acquired it."""
        with self._engine.begin() as connection:
            return connection.scalar(_RENEW, {"number": number, "lasts": LASTS_S}) is not None

    def release(self, number: int) -> None:
        """Releases the lease: another service can acquire it at once."""
        with self._engine.begin() as connection:
            connection.execute(_RELEASE, {"number": number})

    def _number_of_exited(self) -> int:
        """Returns the number of a holder that was killed on this machine; -1 if the holder may still run."""
        if not self._table_exists:
            return -1
        with self._engine.connect() as connection:
            row = connection.execute(_SELECT).one()
        holder = ProcessName.parse(row.holder)
        return int(row.number) if holder is not None and holder.has_exited() else -1


class Lease:
    """A lease that this process holds. One thread renews it until it is closed, another one watches its age."""

    def __init__(
        self,
        table: _Renewable,
        number: int,
        *,
        sent_at: float,
        clock: Callable[[], float] = now_s,
        exit_now: Callable[[int], object] = os._exit,
    ) -> None:
        self.number = number
        self.loss: str | None = None  # the reason; None while the lease is valid
        self._table = table
        self._sent_at = sent_at  # before the acquiring statement was sent, as in `renew`
        self._clock = clock
        self._exit_now = exit_now
        self._renew_at = sent_at + _RENEW_S
        self._watched_at = sent_at
        self._resume_until = sent_at
        self._resumed_with = -1.0  # `_sent_at` when the process resumed: the second is granted once
        self._closing, self._closed = threading.Event(), threading.Event()
        self._renewing = threading.Thread(target=self._renew_until_closed, name="lease", daemon=True)
        self._watching = threading.Thread(target=self._watch_until_closed, name="lease-watch", daemon=True)

    def start(self) -> None:
        """Starts the threads that renew and watch it."""
        self._renewing.start()
        self._watching.start()

    def close(self) -> None:
        """Stops the threads and releases the lease."""
        self._closing.set()
        # A renewal after the release would fail and report a loss.
        self._renewing.join()
        if self.loss is None:
            with suppress(DBAPIError):  # it expires then
                self._table.release(self.number)
        # After the release: if the server does not respond, the watcher exits the process in time.
        self._closed.set()
        self._watching.join()

    @property
    def is_valid(self) -> bool:
        """Returns True while new work may be started."""
        return self.verdict() == "continue"

    def verdict(self) -> _Verdict:
        """Returns what the process should do at this age of the lease."""
        # `_sent_at` and `loss` are written by the renewing thread and read by others; single assignments need no
        # lock.
        age_s = self._clock() - self._sent_at
        if self.loss == _SUPERSEDED or age_s >= _EXIT_AFTER_S:
            return "exit"
        return "stop" if self.loss is not None or age_s >= _STOP_AFTER_S else "continue"

    def renew(self) -> bool:
        """Renews it once; returns False if the database cannot be reached."""
        sent_at = self._clock()
        self._renew_at = sent_at + _RENEW_S
        try:
            # From before the statement was sent: a slow response must not make the lease look younger than it is.
            if self._table.renew(self.number):
                self._sent_at = sent_at
            else:
                self.loss = _SUPERSEDED
        except DBAPIError as error:
            logger.warning("the lease of the database cannot be renewed: %s", type(error.orig).__name__)
            self._renew_at = self._clock() + _RENEW_AGAIN_S
            return False
        return True

    def require(self, session: Session) -> None:
        """Locks the row of the lease until the transaction ends; raises 503 if another service has the lease."""
        if session.scalar(_CHECK, {"number": self.number, "pause": _MAX_PAUSE}) is None:
            self.loss = _SUPERSEDED
            message = "Another service has taken over; try again."
            raise WireError(503, "ServiceUnavailable", message, retry_after_s=1)

    def watch(self) -> None:
        """Acts on `verdict`."""
        if self._has_just_resumed() and self.loss is None:
            return
        verdict = self.verdict()
        if verdict != "continue" and self.loss is None:
            self.loss = _UNREACHABLE
        if verdict == "exit":
            logger.critical("the service stops at once: %s", self.loss)
            sys.stderr.flush()
            # os._exit(): finally blocks and atexit handlers could still write to what the next holder owns.
            self._exit_now(1)

    def _has_just_resumed(self) -> bool:
        """Returns True for a second after the process was suspended; once between two renewals."""
        now, ends_at = self._clock(), self._sent_at + _EXIT_AFTER_S
        if now - self._watched_at >= _SUSPENDED_S and self._resumed_with != self._sent_at:
            # Later than `ends_at` only if the process could not exit then.
            self._resume_until = now + _RESUME_S if now >= ends_at else min(now + _RESUME_S, ends_at)
            self._resumed_with = self._sent_at
        self._watched_at = now
        return now < self._resume_until

    def _renew_until_closed(self) -> None:
        # Short waits: their clock stops while the machine is suspended.
        while not self._closing.wait(_WATCH_S) and self.loss is None:
            if self._clock() >= self._renew_at:
                self.renew()

    def _watch_until_closed(self) -> None:
        while not self._closed.wait(_WATCH_S):
            self.watch()
