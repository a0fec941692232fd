"""Keys of a running service that expire during a test, without waiting for the time."""

from __future__ import annotations

import time
from pathlib import Path

from sqlalchemy import create_engine, update

from pai_sdk._service.state.models import AccessKeyRow
from pai_sdk._service.state.sql_engine import postgres_engine, postgres_url
from pai_sdk._wire.pai.wire import wire_time
from tests.service.identity.test_two_users import with_new_key
from tests.service.postgres import url_for
from tests.service.services import Client

DAY_S = 86_400.0


def with_expiring_key(operator: Client, name: str, after_s: float) -> Client:
    """A client that signs with a new key of a user, which expires later."""
    return with_new_key(operator, name, Expiration=wire_time(time.time() + after_s))


def expire(operator: Client, client: Client, name: str, *, data_dir: Path | None = None) -> str:
    """Moves the expiry of a key into the past; returns it as the service writes it."""
    folder = data_dir or operator.info.data_dir
    url = url_for(folder)
    engine = postgres_engine(postgres_url(url)) if url else create_engine(f"sqlite:///{folder / 'service.db'}")
    expired_at = time.time() - 60
    with engine.begin() as connection:
        row = update(AccessKeyRow).where(AccessKeyRow.id == client.info.access_key_id)
        assert connection.execute(row.values(expires_at=expired_at)).rowcount == 1
    engine.dispose()
    # The service has the keys in memory, and reads them again at each change of a user.
    right = operator.get(f"/users/{name}")["Right"]
    assert operator.call("PUT", f"/users/{name}", body={"Right": right}).status_code == 200
    return str(wire_time(expired_at))
