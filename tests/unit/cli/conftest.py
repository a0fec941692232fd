"""The command against a backend in memory."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Protocol

import pytest
from typer.main import get_command
from typer.testing import CliRunner, Result

from pai_sdk._client.session import Session
from pai_sdk.cli.root import app
from tests.support.fake_backend import FakeBackend


class Pai(Protocol):
    """`pai-sdk` with arguments."""

    def __call__(self, *arguments: object, input: str | None = None) -> Result: ...


@pytest.fixture(scope="session", autouse=True)
def same_command() -> Iterator[None]:
    """One command for all calls of a runner: making it takes longer than what most tests do with it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("typer.testing._get_command", cache(get_command))
        yield


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> FakeBackend:
    """What runs the jobs of the default session."""
    backend = FakeBackend()
    session = Session("cn-hangzhou", "1", oss_bucket_name="models", access_key_id="a", access_key_secret="b")
    monkeypatch.setattr("pai_sdk._client.session.default._default", session)
    monkeypatch.setattr(Session, "backend_for", lambda self, instance_type, api=None: backend)
    monkeypatch.setenv("COLUMNS", "100")
    return backend


@pytest.fixture
def pai(memory: FakeBackend) -> Pai:
    """The command; errors of the package are raised."""

    def run(*arguments: object, input: str | None = None) -> Result:
        result = CliRunner().invoke(app, [str(argument) for argument in arguments], input=input)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return run
