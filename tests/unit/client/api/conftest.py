"""A scripted server, a clock that runs only during sleeps, and a transport between them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from pai_sdk._client.api.transport import Transport
from pai_sdk._core.config.credentials import static_credentials
from pai_sdk._core.retry import RetryPolicy
from tests.unit.client.api.scripted_server import ScriptedServer


@dataclass
class FakeClock:
    """Time that passes only during sleeps."""

    now_s: float = 0.0
    pauses: list[float] = field(default_factory=list)

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now_s += seconds

    def now(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def retry(clock: FakeClock) -> RetryPolicy:
    return RetryPolicy(max_attempts=10, sleep=clock.sleep, clock=clock.now)


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    server = ScriptedServer()
    yield server
    server.close()


@pytest.fixture
def transport(server: ScriptedServer, retry: RetryPolicy) -> Iterator[Transport]:
    key = static_credentials("LTAI-example", "keep me secret".replace(" ", "-"))
    transport = Transport(server.endpoint, key, version="2022-01-12", retry=retry, timeout_s=(20.0, 60.0))
    yield transport
    transport.close()
