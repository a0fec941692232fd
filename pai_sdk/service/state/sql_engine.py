"""Engines for the service's databases: SQLite in a file, PostgreSQL by URL. No password is ever shown."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Engine, create_engine, event, make_url
from sqlalchemy.engine import URL
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from pai_sdk.base.extras import install_command
from pai_sdk.errors import ServiceStartError

__all__ = [
    "is_database_away",
    "lease_engine",
    "postgres_engine",
    "postgres_url",
    "shown_url",
    "told_in_one_sentence",
]

_EXAMPLE = "postgresql+psycopg://user@host/name"
_DRIVER = "postgresql+psycopg"
# A server that is gone is noticed in seconds, and no statement of ours takes a minute.
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
_CONNECTIONS_KEPT, _CONNECTIONS_MORE = 10, 20  # far below the 100 that a server allows by default


# SQLSTATE: connection exceptions, and a server that ends, has crashed, is starting, or has no connection left.
_AWAY_CLASS = "08"
_AWAY_STATES = frozenset({"53300", "57P01", "57P02", "57P03"})


def is_database_away(error: BaseException) -> bool:
    """Returns True if an error says that PostgreSQL does not respond: the same may succeed in a moment.

    SQLite is a file of this machine, and never away.

    Example:
        >>> is_database_away(ValueError("syntax error"))
        False
    """
    if isinstance(error, PoolTimeoutError):
        return True
    if not isinstance(error, DBAPIError) or not type(error.orig).__module__.startswith("psycopg"):
        return False
    state = getattr(error.orig, "sqlstate", None)
    if state is None:  # the server has said nothing: it was not reached, or the connection broke
        return error.connection_invalidated or type(error.orig).__name__ == "OperationalError"
    return state in _AWAY_STATES or state.startswith(_AWAY_CLASS)


def postgres_url(text: str) -> URL:
    """The URL of a PostgreSQL database, for the driver we use.

    Raises:
        ServiceStartError: it is none; the message does not repeat it, since it may hold a password.

    Example:
        >>> postgres_url("postgresql://me:secret@db/pai")
        postgresql+psycopg://me:***@db/pai
    """
    try:
        url = make_url(text.strip())
    except (ArgumentError, ValueError) as error:
        raise ServiceStartError(f"the database is not a URL such as {_EXAMPLE}") from error
    if url.drivername not in ("postgresql", "postgres", _DRIVER):
        raise ServiceStartError(f"the database {url.drivername!r} is not supported; give a URL such as {_EXAMPLE}")
    return url.set(drivername=_DRIVER)


def shown_url(url: URL) -> str:
    """The URL without password and parameters: those may hold one, too."""
    return url.set(query={}).render_as_string(hide_password=True)


def postgres_engine(url: URL) -> Engine:
    """An engine with a bounded number of connections; nothing is connected yet.

    Raises:
        ServiceStartError: the driver is not installed.
    """
    timeouts = {name: value for name, value in _TIMEOUTS.items() if name not in url.query}
    return _engine(url, timeouts, _STATEMENT_TIMEOUT_S, kept=_CONNECTIONS_KEPT, more=_CONNECTIONS_MORE)


def lease_engine(url: URL) -> Engine:
    """The same with one or two connections, on which nothing takes longer than two seconds.

    Raises:
        ServiceStartError: the driver is not installed.
    """
    return _engine(url, {**_TIMEOUTS, **_LEASE_TIMEOUTS}, _LEASE_STATEMENT_TIMEOUT_S, kept=1, more=1)


def _engine(url: URL, timeouts: dict[str, str], statement_timeout_s: int, *, kept: int, more: int) -> Engine:
    try:
        engine = create_engine(
            url,
            pool_size=kept,
            max_overflow=more,
            pool_pre_ping=True,
            connect_args={"client_encoding": "utf8", **timeouts},  # else text of a database in SQL_ASCII is bytes
            hide_parameters=True,  # of statements, in errors: requests are among them, and in these, secrets
        )
    except ImportError as error:
        raise ServiceStartError(
            f"PostgreSQL needs the driver psycopg; install it: {install_command('postgres')}"
        ) from error

    @event.listens_for(engine, "connect")
    def connected(connection: Any, record: Any) -> None:  # both are untyped in SQLAlchemy
        with connection.cursor() as cursor:
            cursor.execute(f"SET statement_timeout = '{statement_timeout_s}s'")
        connection.commit()

    return engine


@contextmanager
def told_in_one_sentence(what: str) -> Iterator[None]:
    """Turns what a database refuses at the start into an error that people can read.

    Args:
        what: the database, as it may be shown.
    """
    try:
        yield
    except DBAPIError as error:
        reason = str(error.orig).strip().splitlines() or [type(error.orig).__name__]
        raise ServiceStartError(f"the database {what} cannot be used: {reason[0]}") from error
