"""`pai-sdk notify test`."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from typer.testing import CliRunner

from pai_sdk.cli.root import new_app
from pai_sdk.errors import InvalidInputError
from tests.unit.client.api.scripted_server import Reply, ScriptedServer


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    server = ScriptedServer()
    yield server
    server.close()


def test_each_target_gets_one_message(server: ScriptedServer) -> None:
    done = CliRunner().invoke(new_app(), ["notify", "test", f"{server.endpoint}/hunter2", f"{server.endpoint}/b"])
    assert done.exit_code == 0
    assert [request.path for request in server.asked] == ["/hunter2", "/b"]
    assert server.asked[0].json["code"] == "Test"
    assert "hunter2" not in done.output


def test_a_refusal_is_printed(server: ScriptedServer) -> None:
    server.script = [Reply({"errcode": 310000, "errmsg": "keywords not in content"})]
    urls = f"dingtalk+{server.endpoint}/hunter2\n\nwecom+{server.endpoint}/hunter2\n"
    done = CliRunner().invoke(new_app(), ["notify", "test", "--json", "-"], input=urls)
    assert done.exit_code == 1
    outcomes = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(outcome["sent"], outcome["code"]) for outcome in outcomes] == [(False, "310000")] * 2
    assert "keywords not in content" in outcomes[0]["reason"]
    assert "hunter2" not in done.output


@pytest.mark.parametrize("arguments", [[""], ["-"]], ids=["unset-variable", "empty-input"])
def test_no_url_is_no_success(arguments: list[str]) -> None:
    done = CliRunner().invoke(new_app(), ["notify", "test", *arguments], input="\n")
    assert isinstance(done.exception, InvalidInputError)


def test_what_is_no_target(server: ScriptedServer) -> None:
    done = CliRunner().invoke(new_app(), ["notify", "test", server.endpoint, "hunter2"])
    assert isinstance(done.exception, InvalidInputError)
    assert server.asked == []
    assert "hunter2" not in str(done.exception)
