"""Engines for the service's databases: SQLite in a file, PostgreSQL by URL. Messages never hold a password."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Engine, create_engine, event, make_url
from sqlalchemy.engine import URL
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from pai_sdk._core.extras import install_command
from pai_sdk.errors import ServiceStartError

_EXAMPLE = "postgresql+psycopg://user@host/name"
_DRIVER = "postgresql+psycopg"
# libpq parameters. A lost server is detected after 15 + 3 x 5 = 30 s; no statement of the service takes a minute.
_TIMEOUTS = {
    "connect_timeout": "10",
    "keepalives_idle": "15",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
}
_STATEMENT_TIMEOUT_S = 60
_LEASE_TIMEOUTS = {"connect_timeout": "2", "tcp_user_timeout": "2000"}
_LEASE_STATEMENT_TIMEOUT_S = 2
_POOL_SIZE, _MAX_OVERFLOW = 10, 20  # far below the 100 that a server allows by default


# SQLSTATE: connection exceptions (class 08); too many connections; shutdown by an administrator, crash, starting
# up.
_AWAY_CLASS = "08"
_AWAY_STATES = frozenset({"53300", "57P01", "57P02", "57P03"})


def is_database_away(error: BaseException) -> bool:
    """Returns True if an error reports that PostgreSQL does not respond, so that a retry may succeed."""
    if isinstance(error, PoolTimeoutError):
        return True
    # SQLite is a local file, and never away.
    if not isinstance(error, DBAPIError) or not type(error.orig).__module__.startswith("psycopg"):
        return False
    state = getattr(error.orig, "sqlstate", None)
    if state is None:  # no response of the server: it was not reached, or the connection broke
        return error.connection_invalidated or type(error.orig).__name__ == "OperationalError"
    return state in _AWAY_STATES or state.startswith(_AWAY_CLASS)


def postgres_url(text: str) -> URL:
    """Parses the URL of a PostgreSQL database, and selects the driver psycopg; else raises ServiceStartError."""
    try:
        url = make_url(text.strip())
    except (ArgumentError, ValueError) as error:
        # The message must not quote it: it may hold a password.
        raise ServiceStartError(f"the database is not a URL such as {_EXAMPLE}") from error
    if url.drivername not in ("postgresql", "postgres", _DRIVER):
        raise ServiceStartError(f"the database {url.drivername!r} is not supported; give a URL such as {_EXAMPLE}")
    return url.set(drivername=_DRIVER)


def display_url(url: URL) -> str:
    """Returns the URL without password and parameters, which may hold a password too."""
    return url.set(query={}).render_as_string(hide_password=True)


def postgres_engine(url: URL) -> Engine:
    """Creates an engine with a bounded number of connections; does not connect yet."""
    timeouts = {name: value for name, value in _TIMEOUTS.items() if name not in url.query}
    return _engine(url, timeouts, _STATEMENT_TIMEOUT_S, pool_size=_POOL_SIZE, max_overflow=_MAX_OVERFLOW)


def lease_engine(url: URL) -> Engine:
    """Creates an engine for the lease: at most two connections, whose statements time out after 2 s."""
    return _engine(url, {**_TIMEOUTS, **_LEASE_TIMEOUTS}, _LEASE_STATEMENT_TIMEOUT_S, pool_size=1, max_overflow=1)


def _engine(
    url: URL, timeouts: dict[str, str], statement_timeout_s: int, *, pool_size: int, max_overflow: int
) -> Engine:
    try:
        engine = create_engine(
            url,
            pool_size=pool_size,
            max_overflow=max_overflow,
            pool_pre_ping=True,
            # Without an encoding, psycopg 3 returns bytes for a database in SQL_ASCII.
            connect_args={"client_encoding": "utf8", **timeouts},
            hide_parameters=True,  # errors would quote requests, which hold secrets
        )
    except ImportError as error:
        raise ServiceStartError(
            f"PostgreSQL needs the driver psycopg; install it: {install_command('postgres')}"
        ) from error

    @event.listens_for(engine, "connect")
    def configure(connection: Any, record: Any) -> None:  # both are untyped in SQLAlchemy
        with connection.cursor() as cursor:
            cursor.execute(f"SET statement_timeout = '{statement_timeout_s}s'")
        # SET is undone when its transaction is rolled back, and psycopg begins one implicitly.
        connection.commit()

    return engine


@contextmanager
def readable_start_errors(database: str) -> Iterator[None]:
    """Turns errors of the database at the start into `ServiceStartError`."""
    try:
        yield
    except DBAPIError as error:
        reason = str(error.orig).strip().splitlines() or [type(error.orig).__name__]
        raise ServiceStartError(f"the database {database} cannot be used: {reason[0]}") from error
