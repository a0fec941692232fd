"""A session that was used before a fork is used on both sides of it."""

from __future__ import annotations

import os
import signal
import threading
import warnings
from collections.abc import Callable, Iterator

import pytest
import requests

from pai_sdk import Session
from pai_sdk._core.connections import stay_on_this_machine
from pai_sdk._data.storage.uri import OssUri
from tests.support.waiting import PATIENCE_S
from tests.unit.client.api.scripted_server import Asked, Reply, ScriptedServer

pytestmark = pytest.mark.interpreter

Ask = Callable[[Session], object]


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    server = ScriptedServer()
    yield server
    server.close()


def in_a_child(ask: Callable[[], object]) -> int:
    """Fork, ask there, and return the child's exit code: 0 if there was an answer."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # a fork beside threads; that is what this is about
        child = os.fork()
    if child == 0:
        signal.alarm(int(PATIENCE_S))
        try:
            ask()
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize(
    "ask",
    [
        lambda session: session.get_job("train1"),
        lambda session: session.backend_for(None).files().head(OssUri.parse("oss://models/a")),
    ],
    ids=["api", "oss"],
)
def test_parent_and_child_have_connections_of_their_own(server: ScriptedServer, ask: Ask) -> None:
    connections = []

    def remember(_: Asked) -> Reply:
        connections.append(threading.get_ident())  # the server has a thread for each
        return Reply(
            {"Status": "Running"},
            headers={
                "ETag": '"7"',
                "Last-Modified": "Thu, 01 Jan 1970 00:00:00 GMT",
                "x-oss-request-id": "r",
            },
        )

    server.answer = remember
    where = server.endpoint
    with Session(
        "r",
        "1",
        endpoint=where,
        oss_endpoint=where,
        oss_bucket_name="models",
        access_key_id="LTAI-an-id",
        access_key_secret="very-secret",
    ) as session:
        ask(session)
        # On a connection that both use, each may read the answer meant for the other.
        assert in_a_child(lambda: ask(session)) == 0
        ask(session)
    parents, childs, again = connections
    assert childs != parents
    assert again == parents


def test_a_session_to_this_machine_uses_no_proxy() -> None:
    session = requests.Session()
    stay_on_this_machine(session)
    assert not session.trust_env
