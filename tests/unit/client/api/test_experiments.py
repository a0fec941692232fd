"""The actions on experiments, as they go over the wire, and what is read of odd answers."""

from __future__ import annotations

import json

import pytest

from pai_sdk._client.api.experiments import Experiments
from pai_sdk._client.api.transport import Transport
from pai_sdk.errors import ConnectionFailedError, InvalidInputError, InvalidResponseError
from tests.support.messages import refused
from tests.unit.client.api.scripted_server import Reply, Reset, ScriptedServer
from tests.unit.client.api.test_training_jobs import paged

PATH = "/api/v1/experiments"


@pytest.fixture
def experiments(transport: Transport) -> Experiments:
    return Experiments(transport, "12")


def test_every_action_as_the_wire_has_it(experiments: Experiments, server: ScriptedServer) -> None:
    server.script = [Reply({"ExperimentId": "exp-1"})]
    assert experiments.create("digits", artifact_uri="oss://b/a/", labels={"team": "x"}) == "exp-1"
    assert experiments.get("exp-1").experiment_id == "exp-1"
    experiments.update("exp-1", name="letters", accessibility="PUBLIC")
    experiments.set_labels("exp-1", {"a": "b"})
    experiments.delete_label("exp-1", "a/b")
    experiments.delete("exp-1")
    labels = {"Labels": [{"Key": "a", "Value": "b"}]}
    assert [(asked.method, asked.path, json.loads(asked.body or b"null")) for asked in server.asked] == [
        (
            "POST",
            PATH,
            {
                "Name": "digits",
                "WorkspaceId": "12",
                "ArtifactUri": "oss://b/a/",
                "Labels": [{"Key": "team", "Value": "x"}],
            },
        ),
        ("GET", f"{PATH}/exp-1", None),
        ("PUT", f"{PATH}/exp-1", {"Name": "letters", "Accessibility": "PUBLIC"}),
        ("POST", f"{PATH}/exp-1/labels", labels),
        ("DELETE", f"{PATH}/exp-1/labels/a%2Fb", None),
        ("DELETE", f"{PATH}/exp-1", None),
    ]
    actions = ["Create", "Get", "Update", "Set", "Delete", "Delete"]
    named = ["Experiment"] * 3 + ["ExperimentLabels", "ExperimentLabel", "Experiment"]
    assert [asked.headers["x-acs-action"] for asked in server.asked] == [
        "".join(parts) for parts in zip(actions, named, strict=True)
    ]


def test_a_list_goes_over_all_pages_and_past_odd_items(experiments: Experiments, server: ScriptedServer) -> None:
    odd = ["text", {"Name": "without an id"}]
    known = [{"ExperimentId": f"exp-{n}", "Labels": None} for n in range(150)]
    server.answer = paged("Experiments", [*odd, *known])
    found = experiments.list(name="d", labels={"team": "x", "by": "me"})
    assert [experiment.experiment_id for experiment in found] == [f"exp-{n}" for n in range(150)]
    assert {asked.query["Labels"] for asked in server.asked} == {"team=x,by=me"}
    assert {(asked.query["Name"], asked.query["WorkspaceId"]) for asked in server.asked} == {("d", "12")}


def test_a_name_is_found_exactly_also_where_the_option_is_not_known(
    experiments: Experiments, server: ScriptedServer
) -> None:
    server.answer = paged("Experiments", [{"ExperimentId": f"exp-{n}", "Name": f"digits{n}"} for n in range(3)])
    assert experiments.find("digits2").experiment_id == "exp-2"
    assert json.loads(server.asked[0].query["Options"]) == {"match_name_exactly": "true"}
    with refused(InvalidInputError, "name"):
        experiments.find("digts1")


def test_a_creation_that_may_have_arrived_is_not_sent_again(
    experiments: Experiments, server: ScriptedServer
) -> None:
    server.script = [Reset]
    with pytest.raises(ConnectionFailedError) as caught:
        experiments.create("digits")
    assert caught.value.maybe_arrived
    assert len(server.asked) == 1


def test_a_deletion_whose_answer_was_lost_is_done(experiments: Experiments, server: ScriptedServer) -> None:
    server.script = [Reset, Reply({"Code": "EXPERIMENT_NOT_FOUND", "Message": "gone"}, 404)]
    experiments.delete("exp-1")
    assert len(server.asked) == 2


def test_an_answer_without_an_id_is_reported(experiments: Experiments, server: ScriptedServer) -> None:
    server.script = [Reply({"Name": "digits"})]
    with refused(InvalidResponseError):
        experiments.create("digits")
