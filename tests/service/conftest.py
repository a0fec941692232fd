"""Services for the tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pai_sdk._host.execution.base import Executor
from pai_sdk._service.services.jobs.changes import Subscription
from tests.service.services import Client, running_service


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """One service for all tests that can share it; it runs jobs for real."""
    with running_service(tmp_path_factory.mktemp("service") / "data") as client:
        yield client


@pytest.fixture
def start(tmp_path: Path) -> Callable[..., Any]:
    """Starts a service of the test's own."""

    def begin(executor: Executor | str | None = None, data_dir: Path | None = None, **settings: Any) -> Any:
        return running_service(data_dir or tmp_path / "data", executor, **settings)

    return begin


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> set[Subscription]:
    """One for each request whose answer is, or was, held back."""
    found: set[Subscription] = set()
    wait = Subscription.wait

    async def noted(news: Subscription, timeout_s: float) -> bool:
        found.add(news)
        return await wait(news, timeout_s)

    monkeypatch.setattr(Subscription, "wait", noted)
    return found
