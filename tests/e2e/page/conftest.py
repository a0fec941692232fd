"""Users of one service: its operator, two users who submit jobs, and one who only reads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.service.fakes import ScriptedExecutor
from tests.service.identity.test_two_users import user
from tests.service.services import Client, running_service


@pytest.fixture(scope="module")
def service_options() -> dict[str, Any]:
    """The settings of the service, which a module may replace; without programs that run."""
    return {"executor": ScriptedExecutor()}


@pytest.fixture(scope="module")
def operator(tmp_path_factory: pytest.TempPathFactory, service_options: dict[str, Any]) -> Iterator[Client]:
    with running_service(tmp_path_factory.mktemp("service") / "data", **service_options) as client:
        yield client


@pytest.fixture(scope="module")
def alice(operator: Client) -> Client:
    return user(operator, "alice")


@pytest.fixture(scope="module")
def bob(operator: Client) -> Client:
    return user(operator, "bob")


@pytest.fixture(scope="module")
def reader(operator: Client) -> Client:
    return user(operator, "eve", "read")
