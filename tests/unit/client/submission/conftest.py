"""The scripted server and the clock of the API's tests, and a backend that uses them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pai_sdk._client.backend.service import ServiceBackend
from pai_sdk._core.config.credentials import static_credentials
from pai_sdk._core.config.settings import Settings
from pai_sdk._core.retry import RetryPolicy
from tests.unit.client.api.conftest import clock, retry, server
from tests.unit.client.api.scripted_server import ScriptedServer

__all__ = ["clock", "retry", "server"]


@pytest.fixture
def backend(server: ScriptedServer, retry: RetryPolicy) -> Iterator[ServiceBackend]:
    key = static_credentials("LTAI-example", "keep me secret".replace(" ", "-"))
    settings = Settings(region_id="cn-hangzhou", workspace_id="1", endpoint=server.endpoint)
    backend = ServiceBackend(settings, key, retry=retry, timeout_s=(20.0, 60.0))
    yield backend
    backend.close()
