"""The actions on workspaces, as they go over the wire, and what is read of odd answers."""

from __future__ import annotations

import pytest

from pai_sdk._client.api.transport import Transport
from pai_sdk._client.api.workspaces import Workspaces
from pai_sdk.errors import InvalidResponseError
from tests.support.messages import refused
from tests.unit.client.api.scripted_server import Reply, ScriptedServer
from tests.unit.client.api.test_training_jobs import paged


@pytest.fixture
def workspaces(transport: Transport) -> Workspaces:
    return Workspaces(transport)


def test_one_by_its_id_and_the_default_one(workspaces: Workspaces, server: ScriptedServer) -> None:
    server.script = [Reply({"WorkspaceName": "vision", "New": 1}), Reply({"WorkspaceId": 7, "IsDefault": True})]
    found, default = workspaces.get("12"), workspaces.default()
    assert (found.workspace_id, found.workspace_name) == ("12", "vision")
    assert (default.workspace_id, default.is_default) == ("7", True)
    assert [asked.path for asked in server.asked] == ["/api/v1/workspaces/12", "/api/v1/defaultWorkspaces"]


def test_lists_go_over_all_pages_and_past_odd_items(workspaces: Workspaces, server: ScriptedServer) -> None:
    odd = ["text", {"WorkspaceId": "1", "IsDefault": "perhaps"}]
    server.answer = paged("Workspaces", [*odd, *({"WorkspaceId": str(n)} for n in range(150))])
    assert [found.workspace_id for found in workspaces.list(name="v")] == [str(n) for n in range(150)]
    assert {asked.query["WorkspaceName"] for asked in server.asked} == {"v"}
    assert len(server.asked) == 2


def test_an_answer_that_is_no_workspace_is_reported(workspaces: Workspaces, server: ScriptedServer) -> None:
    server.script = [Reply({"IsDefault": "perhaps"})]
    with refused(InvalidResponseError):
        workspaces.default()


@pytest.mark.parametrize(
    ("answer", "path"),
    [
        (Reply({"ConfigValue": "oss://models/out/"}), "oss://models/out/"),
        (Reply({"ConfigValue": ""}), None),
        (Reply({}), None),
        (Reply({"Code": "NotFound", "Message": "no such key"}, 404), None),
    ],
)
def test_where_models_are_to_be_put(
    workspaces: Workspaces, server: ScriptedServer, answer: Reply, path: str | None
) -> None:
    server.script = [answer]
    assert workspaces.model_export_path("12") == path
    assert server.asked[0].path == "/api/v1/workspaces/12/config"
