"""A key or a clock that is wrong, before a real service: what the user reads."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta, tzinfo
from types import SimpleNamespace

import pytest

from pai_sdk import Session
from pai_sdk._client.api import responses as answers
from pai_sdk._client.api import transport as auth
from pai_sdk._core.config.credentials import Credentials
from pai_sdk._core.retry import RetryPolicy
from pai_sdk.errors import AuthenticationError, NotFoundError, PaiError
from tests.service.services import Client, running_service


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with running_service(tmp_path_factory.mktemp("service") / "data") as client:
        yield client


def ask(client: Client, *, key_id: str = "", secret: str = "") -> PaiError:
    info = client.info
    key = Credentials(key_id or info.access_key_id, secret or info.access_key_secret)
    with (
        Session(
            info.region_id,
            info.workspace_id,
            endpoint=info.endpoint,
            credentials=key,
            retry=RetryPolicy(max_attempts=1),
        ) as session,
        pytest.raises(PaiError) as caught,
    ):
        session.get_job("train0")
    assert "\n" not in str(caught.value)
    assert info.access_key_secret not in str(caught.value)
    return caught.value


def test_the_right_key_gets_in(client: Client) -> None:
    error = ask(client)
    assert isinstance(error, NotFoundError)
    assert str(error).startswith(
        "GetTrainingJob: There is no training job 'train0' here; `pai-sdk ps` lists the jobs. "
        "[TRAINING_JOB_NOT_FOUND, HTTP 404"
    )


def test_a_wrong_key_id(client: Client) -> None:
    error = ask(client, key_id="LTAI-wrong")
    assert isinstance(error, AuthenticationError)
    assert "has no such access key id" in str(error)


def test_a_wrong_secret(client: Client) -> None:
    error = ask(client, secret="wrong")
    assert isinstance(error, AuthenticationError)
    assert "the access key secret does not belong to the access key id; check both" in str(error)


@pytest.mark.parametrize(("ahead", "told"), [(timedelta(hours=5), "ahead of"), (timedelta(days=-40), "behind")])
def test_a_wrong_clock(client: Client, monkeypatch: pytest.MonkeyPatch, ahead: timedelta, told: str) -> None:
    real = datetime

    class WrongClock(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
            return real.now(tz) + ahead

    monkeypatch.setattr(auth, "datetime", WrongClock)
    # Not the clock of the service, which runs in this process.
    clock = SimpleNamespace(time=lambda: real.now().timestamp() + ahead.total_seconds())
    monkeypatch.setattr(answers, "time", clock)
    error = ask(client)
    assert isinstance(error, AuthenticationError)
    amount = "5 hours" if told == "ahead of" else "40 days"
    assert f"the clock of this machine is {amount} {told} the service's; correct it" in str(error)
