"""A service that cannot be reached: each reason in one sentence, and nothing sent twice."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from pai_sdk._client.api.transport import Transport
from pai_sdk._core.config.credentials import static_credentials
from pai_sdk._core.endpoint import Endpoint
from pai_sdk._core.retry import RetryPolicy
from pai_sdk.errors import ConnectionFailedError, ServiceStartError
from tests.support.messages import refused
from tests.unit.client.api.conftest import FakeClock
from tests.unit.client.api.scripted_server import Reply, ScriptedServer, unused_endpoint

KEY = static_credentials("LTAI-example", "secret")


def ask(transport: Transport, method: str = "GET") -> Any:
    return transport.call("DoThing", method, "/api/v1/things").json


def test_refused(retry: RetryPolicy, clock: FakeClock) -> None:
    calls: list[int] = []
    endpoint = unused_endpoint()
    transport = Transport(Endpoint(endpoint, lambda: calls.append(1)), KEY, version="1", retry=retry)
    with refused(ConnectionFailedError) as caught:
        ask(transport)
    assert (len(calls), caught.value.maybe_arrived, caught.value.attempts) == (9, False, 10)
    assert caught.value.endpoint == endpoint


def test_a_service_that_cannot_be_started_says_so(retry: RetryPolicy) -> None:
    def fail() -> None:
        raise ServiceStartError("the disk is full")

    transport = Transport(Endpoint(unused_endpoint(), fail), KEY, version="1", retry=retry)
    with refused(ServiceStartError):
        ask(transport)


@pytest.mark.parametrize(
    ("number", "tries"),
    [
        (socket.EAI_NONAME, 1),
        (socket.EAI_AGAIN, 10),
    ],
)
def test_wrong_region_and_no_network(
    monkeypatch: pytest.MonkeyPatch, retry: RetryPolicy, number: int, tries: int
) -> None:
    def no_such_host(*_: object, **__: object) -> None:
        raise socket.gaierror(number, "no address")

    monkeypatch.setattr(socket, "getaddrinfo", no_such_host)
    transport = Transport("pai.cn-nowhere.aliyuncs.com", KEY, version="1", retry=retry)
    with refused(ConnectionFailedError) as caught:
        ask(transport, "POST")
    assert (caught.value.attempts, caught.value.maybe_arrived) == (tries, False)


def test_tls_to_a_server_that_speaks_none(server: ScriptedServer, retry: RetryPolicy) -> None:
    endpoint = server.endpoint.replace("http://", "https://")
    transport = Transport(endpoint, KEY, version="1", retry=retry)
    with refused(ConnectionFailedError):
        ask(transport)


def test_a_proxy_that_is_not_there(monkeypatch: pytest.MonkeyPatch, retry: RetryPolicy) -> None:
    monkeypatch.setenv("HTTPS_PROXY", unused_endpoint())
    transport = Transport("pai.cn-hangzhou.aliyuncs.com", KEY, version="1", retry=retry)
    with refused(ConnectionFailedError) as caught:
        ask(transport)
    assert not caught.value.maybe_arrived


def test_no_proxy_to_this_machine(
    monkeypatch: pytest.MonkeyPatch, server: ScriptedServer, transport: Transport
) -> None:
    monkeypatch.setenv("HTTP_PROXY", unused_endpoint())
    server.script = [Reply({"Answer": 42})]
    assert ask(transport) == {"Answer": 42}
