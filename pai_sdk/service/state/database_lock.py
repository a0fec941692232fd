"""One service for one database: an advisory lock of PostgreSQL, released when its holder's connection ends."""

from __future__ import annotations

import time
from contextlib import suppress
from types import TracebackType

from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError

from pai_sdk.errors import ServiceStartError

__all__ = ["DatabaseLock"]

# Locks belong to a database; services in schemas of their own do not meet. The first number is any.
_TAKE = text("SELECT pg_try_advisory_lock(1885432180, hashtext(current_schema()))")
_GIVE_BACK = text("SELECT pg_advisory_unlock(1885432180, hashtext(current_schema()))")
_ASK = text("SELECT 1")
_PATIENCE_S = 3.0


class DatabaseLock:
    """Holds a PostgreSQL database for this service, with a connection of its own.

    Raises:
        ServiceStartError: another service has it.
    """

    def __init__(self, engine: Engine, *, shown_as: str) -> None:
        self._engine = engine
        # The server notices a moment later that the connection of one that has just ended, or was killed, is gone.
        deadline = time.monotonic() + _PATIENCE_S
        self._connection: Connection | None = self._take()
        while self._connection is None and time.monotonic() < deadline:
            time.sleep(0.05)
            self._connection = self._take()
        if self._connection is None:
            raise ServiceStartError(
                f"another service already runs on the database {shown_as}; stop it, or give each a database"
            )

    def __enter__(self) -> DatabaseLock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let the next service have the database."""
        connection, self._connection = self._connection, None
        if connection is not None:
            if not connection.invalidated:
                with suppress(DBAPIError):  # the server notices only later that a connection was closed
                    connection.execute(_GIVE_BACK)
            connection.invalidate()  # closed, not given back to the pool: the lock ends with it at the latest
            connection.close()

    def is_lost(self) -> bool:
        """True if another service took the database while the server could not be reached; asks the server."""
        try:
            if self._connection is not None:
                self._connection.execute(_ASK)
                return False
        except DBAPIError:
            self.close()
        try:
            self._connection = self._take()
        except DBAPIError:
            return False  # the server cannot be reached, so no other service has it either
        return self._connection is None

    def _take(self) -> Connection | None:
        connection = self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        try:
            is_ours = bool(connection.scalar(_TAKE))
        except BaseException:
            connection.close()
            raise
        if is_ours:
            return connection
        connection.close()
        return None
