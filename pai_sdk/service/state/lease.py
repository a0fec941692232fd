"""One service at a time for a PostgreSQL database: a lease, which its holder renews until it ends.

The lease is one row: who holds it, a number that each new holder raises, and when it runs out by the clock of the
database. The holder does not ask that clock. It counts from the moment before it sent the last renewal that
succeeded, so it always thinks that the lease ends earlier than the database does.

    seconds since then    what the holder does
    2                     renews
    6                     begins nothing any more, and starts to end
    7.5                   ends at once, in the middle of whatever it does
    8                     another service can take the lease

A process that was suspended cannot watch a clock. So each transaction that changes something begins with a check
of the number, and locks the row against a change of it until the transaction has ended.
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

from pai_sdk.service.state.process_names import ProcessName
from pai_sdk.service.wire_errors import WireError

__all__ = ["LASTS_S", "Lease", "LeaseTable", "Taken", "now_s"]

logger = logging.getLogger(__name__)

LASTS_S = 8.0
"""How long a lease lasts after each renewal."""

_RENEW_S, _RENEW_AGAIN_S = 2.0, 0.5
_STOP_AFTER_S, _EXIT_AFTER_S = 6.0, 7.5
_WATCH_S = 0.1
_LONGEST_PAUSE = "5s"  # within a transaction: the server then undoes it, and its lock of the row ends

_UNREACHABLE = "its database could not be reached for 6 seconds"
_TAKEN = "another service has taken its database"

# Alone for a moment. Services of earlier releases hold this lock as long as they run.
_ALONE = text("SELECT pg_try_advisory_xact_lock(1885432180, hashtext(current_schema()))")
_CREATE = text(
    "CREATE TABLE IF NOT EXISTS service_lease (id INTEGER PRIMARY KEY CHECK (id = 1), mark TEXT NOT NULL,"
    " holder TEXT NOT NULL, number BIGINT NOT NULL, expires_at TIMESTAMPTZ NOT NULL)"
)
_FILL = text("INSERT INTO service_lease VALUES (1, :mark, '', 0, clock_timestamp()) ON CONFLICT DO NOTHING")
_LOOK = text("SELECT mark, holder, number, expires_at FROM service_lease")
# Not while a transaction of the last holder is open, which has the row FOR KEY SHARE.
_FREE = text(
    "SELECT mark, holder, number, expires_at FROM service_lease"
    " WHERE expires_at <= clock_timestamp() OR number = :ended FOR UPDATE SKIP LOCKED"
)
_TAKE = text(
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

_Verdict: TypeAlias = Literal["go on", "stop", "exit"]


def now_s() -> float:
    """Seconds by a clock that is never set; on Linux it goes on while the machine sleeps."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)


@dataclass(frozen=True)
class Taken:
    """A lease that was just taken.

    Attributes:
        number: ours.
        mark: of this database, the same for all its leases.
        before: who held it until it ran out; None if the last holder gave it back.
    """

    number: int
    mark: str
    before: ProcessName | None


class _Renewable(Protocol):
    """What a holder needs of the table."""

    def renew(self, number: int) -> bool:
        """See `LeaseTable.renew`."""

    def release(self, number: int) -> None:
        """See `LeaseTable.release`."""


class LeaseTable:
    """The row in the database. Its functions raise SQLAlchemy's `DBAPIError` when that cannot be reached.

    Args:
        engine: with short timeouts.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine.execution_options(isolation_level="READ COMMITTED")
        self._is_there = False

    def take(self) -> Taken | None:
        """Take the lease if it has run out, or its holder ended on this machine; None if it is another's."""
        ended = self._number_of_ended()
        with self._engine.begin() as connection:
            if not connection.scalar(_ALONE):
                return None
            if not self._is_there:
                connection.execute(_CREATE)
                connection.execute(_FILL, {"mark": secrets.token_hex(16)})
            free = connection.execute(_FREE, {"ended": ended}).first()
            taken = None
            if free is not None:
                number = connection.scalar(_TAKE, {"holder": ProcessName.ours().to_json(), "lasts": LASTS_S})
                taken = Taken(int(number or 0), free.mark, ProcessName.parse(free.holder))
        self._is_there = True
        return taken

    def renewed_at(self) -> str:
        """A text that changes with each renewal."""
        if not self._is_there:
            return ""
        with self._engine.connect() as connection:
            row = connection.execute(_LOOK).one()
        return f"{row.number} {row.expires_at.isoformat()}"

    def renew(self, number: int) -> bool:
        """Let the lease last longer; False if another has taken it."""
        with self._engine.begin() as connection:
            return connection.scalar(_RENEW, {"number": number, "lasts": LASTS_S}) is not None

    def release(self, number: int) -> None:
        """Give it back: another can take it at once."""
        with self._engine.begin() as connection:
            connection.execute(_RELEASE, {"number": number})

    def _number_of_ended(self) -> int:
        """The number of a holder that was killed on this machine; -1 if the holder may still run."""
        if not self._is_there:
            return -1
        with self._engine.connect() as connection:
            row = connection.execute(_LOOK).one()
        holder = ProcessName.parse(row.holder)
        return int(row.number) if holder is not None and holder.has_ended() else -1


class Lease:
    """A lease that this process holds; renewed by a thread until it is closed.

    Args:
        table: where it is renewed.
        number: its number.
        sent_at: when taking it was sent, by the clock.
        clock: replaced by tests.
        exit_now: ends the process; replaced by tests.

    Attributes:
        number: grows with each holder.
        loss: why it cannot be used any more; None while it can.
    """

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
        self.loss: str | None = None
        self._table = table
        self._sent_at = sent_at
        self._clock = clock
        self._exit_now = exit_now
        self._ending, self._ended = threading.Event(), threading.Event()
        self._renewing = threading.Thread(target=self._renew_until_end, name="lease", daemon=True)
        self._watching = threading.Thread(target=self._watch_until_end, name="lease-watch", daemon=True)

    def start(self) -> None:
        """Renew it from now on."""
        self._renewing.start()
        self._watching.start()

    def close(self) -> None:
        """Give it back."""
        self._ending.set()
        self._renewing.join()
        if self.loss is None:
            with suppress(DBAPIError):  # then it runs out
                self._table.release(self.number)
        self._ended.set()  # only now: if the server does not respond, the process ends in time
        self._watching.join()

    @property
    def is_held(self) -> bool:
        """True while something may be begun."""
        return self.verdict() == "go on"

    def verdict(self) -> _Verdict:
        """What to do now."""
        age_s = self._clock() - self._sent_at
        if self.loss == _TAKEN or age_s >= _EXIT_AFTER_S:
            return "exit"
        return "stop" if self.loss is not None or age_s >= _STOP_AFTER_S else "go on"

    def renew(self) -> bool:
        """Renew it once; False if the database cannot be reached."""
        sent_at = self._clock()
        try:
            if self._table.renew(self.number):
                self._sent_at = sent_at
            else:
                self.loss = _TAKEN
        except DBAPIError as error:
            logger.warning("the lease of the database cannot be renewed: %s", type(error.orig).__name__)
            return False
        return True

    def require(self, session: Session) -> None:
        """See within a transaction that we have the lease; no process takes it before the transaction ends.

        Raises:
            WireError: another has it.
        """
        if session.scalar(_CHECK, {"number": self.number, "pause": _LONGEST_PAUSE}) is None:
            self.loss = _TAKEN
            message = "Another service has taken over; try again."
            raise WireError(503, "ServiceUnavailable", message, retry_after_s=1)

    def watch(self) -> None:
        """Do what `verdict` says."""
        verdict = self.verdict()
        if verdict != "go on" and self.loss is None:
            self.loss = _UNREACHABLE
        if verdict == "exit":
            logger.critical("the service stops at once: %s", self.loss)
            sys.stderr.flush()
            self._exit_now(1)

    def _renew_until_end(self) -> None:
        pause_s = _RENEW_S
        while not self._ending.wait(pause_s) and self.loss is None:
            pause_s = _RENEW_S if self.renew() else _RENEW_AGAIN_S

    def _watch_until_end(self) -> None:
        while not self._ended.wait(_WATCH_S):
            self.watch()
