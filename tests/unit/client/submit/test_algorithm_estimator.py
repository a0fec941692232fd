"""AlgorithmEstimator: what it asks for, what it sends, and what it refuses by the algorithm's own words."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pai_sdk import AlgorithmEstimator, Session
from pai_sdk._client.submit.algorithm_estimator import AlgorithmEstimator as FromEstimator
from pai_sdk.errors import InvalidInputError
from tests.support.messages import refused
from tests.unit.client.api.scripted_server import Asked, Reply, ScriptedServer

SPEC: dict[str, Any] = {
    "Image": "python:3.11",
    "Command": ["python", "train.py"],
    "JobType": "XGBoostJob",
    "InputChannels": [{"Name": "train", "Required": True}, {"Name": "test", "Required": False}],
    "OutputChannels": [{"Name": "model", "Required": True}, {"Name": "report"}],
    "HyperParameters": [
        {
            "Name": "lr",
            "Type": "Float",
            "DefaultValue": "0.1",
            "Range": {"Minimum": "0", "ExclusiveMinimum": True},
        },
        {"Name": "epochs", "Type": "Int", "Required": True, "Range": {"Minimum": "1", "Maximum": "100"}},
        {"Name": "mode", "Type": "String", "Range": {"Enum": ["fast", "exact"]}},
        {"Name": "tag", "Range": {"MinLength": 2, "MaxLength": 4, "Pattern": "^[a-z]+$"}},
        {"Name": "shuffle", "Type": "Boolean"},
        {"Name": "own", "Type": "Tensor"},
    ],
    "SupportedInstanceTypes": ["ecs.c6.large", "ecs.g6.large"],
    "SupportsDistributedTraining": False,
}
TRAIN = {"train": "oss://models/digits/"}


def session(endpoint: str = "http://127.0.0.1:9") -> Session:
    return Session(
        "cn-hangzhou",
        "7",
        oss_bucket_name="models",
        endpoint=endpoint,
        access_key_id="LTAI-example",
        access_key_secret="a-secret",
    )


def given(**parameters: Any) -> AlgorithmEstimator:
    values = {"algorithm_spec": SPEC, "hyperparameters": {"epochs": 3}, "session": session(), **parameters}
    return AlgorithmEstimator(**values)


def complaints(estimator: AlgorithmEstimator, inputs: Any = TRAIN, outputs: Any = None) -> dict[str, str]:
    with pytest.raises(InvalidInputError) as caught:
        estimator.plan(inputs, outputs)
    return {problem.where: f"{problem.what} ({problem.hint})" for problem in caught.value.problems}


@pytest.fixture
def catalog() -> Iterator[ScriptedServer]:
    """A service with the algorithms `digits` (v1, v2) and `digits-large`."""

    def answer(asked: Asked) -> Reply:
        if asked.path == "/api/v1/algorithms":
            wanted = asked.query.get("AlgorithmName", "")
            names = [name for name in ("digits-large", "digits") if wanted in name]
            shown = [{"AlgorithmId": f"id-{n}", "AlgorithmName": n, "AlgorithmProvider": "me"} for n in names]
            return Reply({"Algorithms": shown, "TotalCount": len(shown)})
        if asked.path.endswith("/versions"):
            shown = [{"AlgorithmVersion": version} for version in ("v1", "v2")]
            return Reply({"AlgorithmVersions": shown, "TotalCount": 2})
        version = asked.path.rpartition("/")[2]
        if version not in ("v1", "v2"):
            return Reply({"Code": "ALGORITHM_VERSION_NOT_FOUND", "Message": "no such version"}, 404)
        return Reply({"AlgorithmId": "id", "AlgorithmVersion": version, "AlgorithmSpec": SPEC})

    server = ScriptedServer()
    server.answer = answer
    yield server
    server.close()


def test_it_is_found_where_users_of_the_older_sdk_look() -> None:
    assert FromEstimator is AlgorithmEstimator


def test_a_registered_algorithm_is_sent_by_name_with_all_that_is_certain(catalog: ScriptedServer) -> None:
    estimator = AlgorithmEstimator("digits", session=session(catalog.endpoint))
    estimator.set_hyperparameters(epochs=3, mode="fast")
    request = estimator.plan(TRAIN, {"report": "oss://models/reports/"}).request.to_wire()
    assert (request["AlgorithmName"], request["AlgorithmVersion"], request["AlgorithmProvider"]) == (
        "digits",
        "v2",
        "me",
    )
    assert "AlgorithmSpec" not in request
    assert request["ComputeResource"] == {"EcsSpec": "ecs.c6.large", "EcsCount": 1}
    assert {h["Name"]: h["Value"] for h in request["HyperParameters"]} == {
        "epochs": "3",
        "mode": "fast",
        "lr": "0.1",
    }
    places = {channel["Name"]: channel["OutputUri"] for channel in request["OutputChannels"]}
    assert places["report"] == "oss://models/reports/"
    assert places["model"].startswith("oss://models/pai/training_job/")


def test_the_algorithm_is_asked_for_once(catalog: ScriptedServer) -> None:
    estimator = AlgorithmEstimator(
        "digits", "v1", hyperparameters={"epochs": 3}, session=session(catalog.endpoint)
    )
    assert [d.name for d in estimator.hyperparameter_definitions][:2] == ["lr", "epochs"]
    assert [c.name for c in estimator.input_channel_definitions] == ["train", "test"]
    assert [c.name for c in estimator.output_channel_definitions] == ["model", "report"]
    assert list(estimator.supported_instance_types) == ["ecs.c6.large", "ecs.g6.large"]
    for _ in range(3):
        estimator.plan(TRAIN)
    assert [(asked.method, asked.path) for asked in catalog.asked] == [
        ("GET", "/api/v1/algorithms"),
        ("GET", "/api/v1/algorithms/id-digits/versions/v1"),
    ]
    estimator.algorithm_version = "v2"  # another one than that which is known
    assert estimator.plan(TRAIN).request.algorithm_version == "v2"


def test_what_is_not_there_is_reported_with_all_else(catalog: ScriptedServer) -> None:
    there = session(catalog.endpoint)
    assert complaints(AlgorithmEstimator("digit", max_run_time=0, session=there)) == {
        "algorithm_name": "there is no algorithm 'digit' in the workspace (did you mean 'digits'?)",
        "max_run_time": "expected an integer (minimum 1), or None for no limit, got 0 ()",
    }
    found = complaints(AlgorithmEstimator("digits", "v3", session=there))
    assert found["algorithm_version"].startswith("the algorithm 'digits' has no version 'v3'")
    assert "'v2'" in found["algorithm_version"] or "v1, v2" in found["algorithm_version"]


def test_a_whole_spec_needs_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(*_: object) -> None:
        raise AssertionError("the network was used")

    monkeypatch.setattr(socket.socket, "connect", connect)
    request = given().plan(TRAIN).request.to_wire()
    assert "AlgorithmName" not in request
    sent = request["AlgorithmSpec"]
    assert {name: sent[name] for name in SPEC} == SPEC


def test_all_that_the_algorithm_does_not_take_is_reported_at_once() -> None:
    wrong = {"lr": 0, "epoch": 5, "mode": "slow", "tag": "A", "shuffle": "maybe", "own": "anything"}
    estimator = given(hyperparameters=wrong, instance_type="ecs.c6.larg", instance_count=2)
    found = complaints(estimator, {"trian": "oss://models/a/"}, {"modle": "oss://models/b/"})
    assert found == {
        "inputs['trian']": found["inputs['trian']"],
        "inputs['train']": "is required ()",
        "outputs['modle']": found["outputs['modle']"],
        "hyperparameters['lr']": "0 is too small; the exclusive minimum is 0 ()",
        "hyperparameters['epoch']": "the algorithm has no such hyperparameter (did you mean 'epochs'?)",
        "hyperparameters['epochs']": "is required ()",
        "hyperparameters['mode']": "expected one of fast, exact, got 'slow' ()",
        "hyperparameters['tag']": "'A' does not match ^[a-z]+$ ()",
        "hyperparameters['shuffle']": "expected true or false, got 'maybe' ()",
        "instance_type": "the algorithm does not run on 'ecs.c6.larg' (did you mean 'ecs.c6.large'?)",
        "instance_count": "the algorithm runs on one instance, not on 2 ()",
    }
    assert "no such channel" in found["inputs['trian']"]
    assert "no such channel" in found["outputs['modle']"]


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"epochs": "3.0"}, "expected an integer, got '3.0'"),
        ({"epochs": "1_0"}, "expected an integer, got '1_0'"),
        ({"epochs": 101}, "101 is too large; the maximum is 100"),
        ({"epochs": 3, "lr": "nan"}, "expected a number, got 'nan'"),
        ({"epochs": 3, "tag": "abcde"}, "has 5 characters; the maximum is 4"),
    ],
)
def test_values_are_checked_by_type_and_range(values: dict[str, Any], complaint: str) -> None:
    assert any(complaint in said for said in complaints(given(hyperparameters=values)).values())


@pytest.mark.parametrize("values", [{"epochs": 100}, {"epochs": "007"}, {"epochs": 1, "lr": "1e-3"}])
def test_values_at_the_edge_are_taken(values: dict[str, Any]) -> None:
    assert given(hyperparameters=values).plan(TRAIN).request.hyperparameters


def test_a_spec_that_defines_nothing_takes_anything() -> None:
    bare = {"Image": "python:3.11", "Command": ["true"]}
    plan = given(algorithm_spec=bare, hyperparameters={"any": 1}, instance_type="ecs.c6.large").plan(
        {"data": "oss://models/a/"}, {"model": "oss://models/b/"}
    )
    spec = plan.request.algorithm_spec
    assert spec is not None
    assert [channel.name for channel in spec.input_channels] == ["data"]
    assert [channel.name for channel in spec.output_channels] == ["model"]


@pytest.mark.parametrize(
    ("parameters", "where"),
    [
        ({"algorithm_spec": None}, ("algorithm_name",)),
        ({"algorithm_name": "digits"}, ("algorithm_name",)),
        ({"algorithm_version": "v1"}, ("algorithm_version",)),
        ({"algorithm_spec": None, "algorithm_name": " "}, ("algorithm_name",)),
        ({"algorithm_spec": {**SPEC, "Comand": []}}, ("algorithm_spec.Comand",)),
        ({"hyperparameters": 7}, ("hyperparameters", "hyperparameters['epochs']")),
    ],
)
def test_a_wrong_description_is_refused(parameters: dict[str, Any], where: tuple[str, ...]) -> None:
    with refused(InvalidInputError, *where):
        given(**parameters).plan(TRAIN)


def test_code_of_ones_own_is_taken_only_where_there_is_room_for_it(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('mine')")
    with_code = {**SPEC, "CodeDir": {"LocationType": "oss", "LocationValue": {"Bucket": "b", "Key": "k/"}}}
    found = complaints(given(algorithm_spec=with_code, source_dir=tmp_path))
    assert found == {"source_dir": "the algorithm has code of its own, and takes no other (leave it out)"}
    replaced = given(algorithm_spec={**with_code, "Customization": {"CodeDir": True}}, source_dir=tmp_path)
    request = replaced.plan(TRAIN).request
    assert request.code_dir is not None
    assert request.algorithm_spec is not None
    assert request.algorithm_spec.code_dir != request.code_dir
    filled = given(source_dir=tmp_path).plan(TRAIN).request
    assert filled.code_dir is None
    assert filled.algorithm_spec is not None
    assert filled.algorithm_spec.code_dir is not None


def test_on_this_machine_the_whole_spec_of_a_registered_algorithm_is_run(catalog: ScriptedServer) -> None:
    """Any machine will do, whatever types of instances the algorithm names."""
    estimator = AlgorithmEstimator(
        "digits", "v1", hyperparameters={"epochs": 3}, instance_type="local", session=session(catalog.endpoint)
    )
    request = estimator.plan(TRAIN).request
    assert request.algorithm_name is None
    assert request.algorithm_spec is not None
    assert request.algorithm_spec.image == SPEC["Image"]


def test_a_repr_shows_no_more_than_was_given() -> None:
    assert repr(AlgorithmEstimator("digits", "v1")) == (
        "AlgorithmEstimator(algorithm_name='digits', algorithm_version='v1')"
    )


def test_processes_of_a_machine_run_with_any_instance_type() -> None:
    bare = {"Image": "none", "Command": ["true"]}
    estimator = given(algorithm_spec=bare, hyperparameters=None)
    assert complaints(estimator, {}) == {
        "instance_type": "is required (such as instance_type='ecs.c6.large', or instance_spec with resource_id)"
    }
    estimator.session._backends.connection.uses_images = False
    assert estimator.plan().request.to_wire()["ComputeResource"]["EcsSpec"] == "ecs.c6.large"
