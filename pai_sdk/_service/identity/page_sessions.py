"""The sign-ins of browsers that were ended before their cookies expire."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from itertools import islice

from sqlalchemy import delete, select

from pai_sdk._service.identity.principal import Principal
from pai_sdk._service.state.database import Database
from pai_sdk._service.state.models import EndedPageSessionRow
from pai_sdk._service.wire_errors import WireError

_MAX_REMOVED = 10  # expired ones at each sign-out: more than one is added


class EndedPageSessions:
    """Ended sign-ins by id. Safe to use from several threads.

    They are in memory, because requests are admitted on the event loop, and in the database for the next process
    of the service. A server without a database has a new secret in each process, which no earlier cookie fits.
    """

    def __init__(self, database: Database | None = None, *, now: Callable[[], float] = time.time) -> None:
        self._database = database
        self._now = now
        self._lock = threading.Lock()
        self._expiries: dict[str, float] = {}  # seconds since 1970, by id
        if database is not None:
            with database.read() as session:
                rows = session.scalars(select(EndedPageSessionRow).order_by(EndedPageSessionRow.expires_at))
                self._expiries = {row.id: row.expires_at for row in rows}

    def __contains__(self, session_id: str) -> bool:
        """Returns whether a sign-in was ended."""
        return session_id in self._expiries

    def refusal(self, principal: Principal) -> WireError | None:
        """Returns why a request of a browser may not continue; None unless its sign-in was ended."""
        if principal.page_session not in self:
            return None
        return WireError(401, "MissingAuthorization", "This browser has signed out.")

    def add(self, session_id: str, expires_at: float) -> None:
        """Ends a sign-in; `expires_at` is when its cookie expires at the latest."""
        now = self._now()
        with self._lock:
            # First in memory: the cookie is refused in this process even if the database does not respond.
            self._expiries[session_id] = expires_at
            # The oldest are first, since all cookies live equally long: a flood of sign-outs costs no scans.
            for oldest, expiry in list(islice(self._expiries.items(), _MAX_REMOVED)):
                if expiry <= now:
                    del self._expiries[oldest]
        if self._database is not None:
            with self._database.write() as session:
                session.execute(delete(EndedPageSessionRow).where(EndedPageSessionRow.expires_at <= now))
                session.merge(EndedPageSessionRow(id=session_id, expires_at=expires_at))
