"""A service for the tests of a module; modules that change it in each test have one of their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.service.fakes import ScriptedExecutor
from tests.service.services import Client, running_service


@pytest.fixture(scope="module")
def operator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with running_service(tmp_path_factory.mktemp("service") / "data", ScriptedExecutor()) as client:
        yield client
