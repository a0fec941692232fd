"""`pai-sdk service user`, `workspace` and `audit`, on a running service."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from typer.testing import CliRunner

from pai_sdk.cli.root import app
from tests.service.fakes import ScriptedExecutor
from tests.service.services import Client, job_body


@pytest.fixture
def operator(start: Callable[..., Any]) -> Iterator[Client]:
    with start(ScriptedExecutor()) as client:
        yield client


def run(operator: Client, *words: str, exit_code: int = 0) -> str:
    """What a command of `pai-sdk service` prints."""
    result = CliRunner().invoke(app, ["service", *words, "--data", str(operator.info.data_dir)])
    assert result.exit_code == exit_code, result.output
    return result.output


def test_a_user_is_added_used_and_removed(operator: Client) -> None:
    settings = json.loads(run(operator, "user", "add", "alice", "--json"))
    key_id, secret = settings["ALIBABA_CLOUD_ACCESS_KEY_ID"], settings["ALIBABA_CLOUD_ACCESS_KEY_SECRET"]
    alice = Client(replace(operator.info, access_key_id=key_id, access_key_secret=secret))
    job_id = alice.create(job_body())
    assert settings["PAI_OSS_BUCKET_NAME"] == "pai-local-alice"
    listed = run(operator, "user", "list")
    assert key_id in listed
    assert secret not in listed + run(operator, "user", "list", "--json") + run(operator, "audit", "--json")
    run(operator, "user", "right", "alice", "read")
    assert alice.call("PUT", f"/trainingjobs/{job_id}/stop").status_code == 403
    second = json.loads(run(operator, "user", "key", "alice", "--json"))["ALIBABA_CLOUD_ACCESS_KEY_ID"]
    run(operator, "user", "revoke", "alice", key_id)
    assert alice.call("GET", "/trainingjobs").status_code == 403
    assert second in run(operator, "user", "list")
    run(operator, "user", "remove", "alice")
    assert "alice" not in run(operator, "user", "list")
    assert "POST /api/v1/trainingjobs" in run(operator, "audit", "--user", "alice")


def test_a_key_may_expire(operator: Client) -> None:
    settings = json.loads(run(operator, "user", "add", "alice", "--expires", "90d", "--json"))
    lasting = json.loads(run(operator, "user", "key", "alice", "--json"))["ALIBABA_CLOUD_ACCESS_KEY_ID"]
    printed = run(operator, "user", "key", "alice", "--expires", "2199-01-31T08:00+08:00")
    assert "# the key ends at 2199-01-31T00:00:00Z" in printed
    keys = {
        key["access_key_id"]: key for key in json.loads(run(operator, "user", "list", "--json"))[0]["access_keys"]
    }
    assert keys[lasting]["expiration"] is None
    assert keys[settings["ALIBABA_CLOUD_ACCESS_KEY_ID"]]["expiration"] is not None
    for table in (run(operator, "user", "list"), run(operator, "audit")):
        assert "(until 2199-01-31T00:00:00Z)" in table
        assert f"{lasting} (until" not in table
    for wrong in ("0d", "2020-01-01", "soon", "99999999999999d"):
        run(operator, "user", "add", "bob", "--expires", wrong, exit_code=2)
    assert "bob" not in run(operator, "user", "list")  # refused before a user without a key is created


def test_a_workspace_gets_members_and_goes(operator: Client) -> None:
    workspace_id = run(operator, "workspace", "add", "vision").strip()
    settings = json.loads(run(operator, "user", "add", "alice", "--workspace", workspace_id, "--json"))
    assert settings["PAI_WORKSPACE_ID"] == workspace_id
    assert "PAI.AlgoDeveloper" in run(operator, "workspace", "members", workspace_id)
    run(operator, "workspace", "member", workspace_id, "alice", "--role", "WorkspaceAdmin")
    assert "PAI.WorkspaceAdmin" in run(operator, "workspace", "members", workspace_id)
    assert "alice" not in run(operator, "workspace", "members", "1")
    run(operator, "workspace", "leave", workspace_id, "alice")
    assert "alice" not in run(operator, "workspace", "members", workspace_id)
    assert "vision" in run(operator, "workspace", "list")
    run(operator, "workspace", "remove", workspace_id)
    assert "vision" not in run(operator, "workspace", "list")


def test_what_cannot_be_done_is_one_sentence(operator: Client) -> None:
    for words in (
        ("user", "add", "Alice"),
        ("user", "remove", "nobody"),
        ("user", "add", "bob", "--workspace", "9"),
        ("workspace", "remove", "1"),
        ("workspace", "member", "1", "nobody"),
    ):
        result = CliRunner().invoke(app, ["service", *words, "--data", str(operator.info.data_dir)])
        assert result.exit_code != 0, words
        assert "Traceback" not in result.output
    assert run(operator, "user", "list", "--json").strip() in ("", "[]")
