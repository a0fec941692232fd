"""A malicious server in place of the service: it cannot fill the memory, and its text is shown as text only."""

from __future__ import annotations

import gzip
import tracemalloc

import pytest

from pai_sdk._client.api.transport import Transport
from pai_sdk._core.retry import RetryPolicy
from pai_sdk.errors import ApiError, InvalidResponseError
from tests.support.messages import refused
from tests.unit.client.api.conftest import FakeClock
from tests.unit.client.api.scripted_server import Reply, ScriptedServer


def test_a_bomb_is_not_unpacked_whole(server: ScriptedServer, transport: Transport) -> None:
    transport.max_response_bytes = 1 << 20
    server.script = [Reply(gzip.compress(bytes(64 << 20)), headers={"Content-Encoding": "gzip"})]
    tracemalloc.start()
    try:
        with refused(InvalidResponseError):
            transport.call("CreateTrainingJob", "POST", "/x")
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 16 << 20
    assert len(server.asked) == 1


def test_a_large_answer_is_whole(server: ScriptedServer, transport: Transport) -> None:
    server.script = [Reply({"Logs": ["x" * 100] * 20_000})]
    assert transport.call("ListTrainingJobLogs", "GET", "/x").json == server.script[0].body


@pytest.mark.parametrize(
    "headers",
    [
        {"Retry-After": "1e9"},
        {"Retry-After": "nan"},
        {"Retry-After": "Mon, 01 Jan 0001 00:00:00 +2359"},
        {"Retry-After": "Fri, 31 Dec 9999 23:59:59 -2359"},
        {"Retry-After": "Sat, 21 Nov 2026 15:00:00 +0000", "Date": "Mon, 01 Jan 0001 00:00:00 +2359"},
        {"x-acs-retry-after": "-inf"},
        {"x-acs-retry-after": "9" * 400},
    ],
)
def test_any_wish_for_a_pause_is_outlived(
    server: ScriptedServer, transport: Transport, clock: FakeClock, headers: dict[str, str]
) -> None:
    server.script = [Reply({"Code": "Throttling"}, 429, headers), Reply({"fine": True})]
    assert transport.call("GetTrainingJob", "GET", "/x").json == {"fine": True}
    assert clock.now_s <= RetryPolicy().longest_pause_s


def test_no_redirection_is_followed(server: ScriptedServer, transport: Transport) -> None:
    """The key's token would go along."""
    elsewhere = ScriptedServer()
    try:
        for status in (301, 302, 303, 307, 308):
            server.script = [Reply({}, status, {"Location": f"{elsewhere.endpoint}/x"})]
            with refused(InvalidResponseError):
                transport.call("CreateTrainingJob", "POST", "/x")
        assert elsewhere.asked == []
    finally:
        elsewhere.close()


def test_what_the_service_says_moves_no_cursor(server: ScriptedServer, transport: Transport) -> None:
    hostile = (
        "no\x1b]52;c;cm0gLXJmCg==\x07 \x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\ \x9b2J\x85\u202eno\u2066\x00\x7f"
    )
    server.script = [Reply({"Code": hostile, "Message": hostile, "RequestId": hostile}, 400)]
    with refused(ApiError) as caught:
        transport.call("GetTrainingJob", "GET", "/x")
    assert all(character.isprintable() for character in str(caught.value))
