"""A job submitted again, with changes."""

from __future__ import annotations

import re
from typing import Any

import pytest

from pai_sdk._client.submit.cloning import clone_plan
from pai_sdk._client.submit.request_fields import folder_of
from pai_sdk._wire.pai.record import JobRecord
from pai_sdk._wire.pai.recorded import request_of
from pai_sdk._wire.pai.request import SUBMISSION_LABEL
from pai_sdk.errors import InvalidInputError

NAME = "digits-20261122-092149-5c804775"
FIELDS: dict[str, Any] = {
    "TrainingJobId": "train1",
    "TrainingJobName": NAME,
    "WorkspaceId": "1",
    "Status": "Succeed",
    "IsTempAlgo": True,
    "AlgorithmSpec": {
        "Command": ["sh", "-c", "python train.py"],
        "Image": "python:3.11",
        "CodeDir": {"LocationType": "oss", "LocationValue": {"Bucket": "models", "Key": "code/1/"}},
        "MadeAt": "2026",
    },
    "AlgorithmName": "tmp-algorithm-17",
    "ComputeResource": {"EcsSpec": "ecs.c6.large", "EcsCount": 2, "Price": 1.5},
    "HyperParameters": [{"Name": "lr", "Value": "0.5"}, {"Name": "epochs", "Value": "3"}],
    "InputChannels": [{"Name": "train", "InputUri": "oss://models/data/", "Size": 3}],
    "OutputChannels": [{"Name": "model", "OutputUri": f"oss://models/pai/{NAME}/model/"}],
    "Environments": {"TOKEN": "secret"},
    "Labels": [{"Key": SUBMISSION_LABEL, "Value": "old"}, {"Key": "team", "Value": "vision"}],
    "ExperimentConfig": {"ExperimentId": "exp-1", "ExperimentName": "night"},
}


def record(**changes: Any) -> JobRecord:
    return JobRecord.model_validate({**FIELDS, **changes})


def test_a_request_without_what_only_records_have() -> None:
    wire = request_of(record()).to_wire()
    assert wire["ComputeResource"] == {"EcsSpec": "ecs.c6.large", "EcsCount": 2}
    assert wire["ExperimentConfig"] == {"ExperimentId": "exp-1"}
    assert "AlgorithmName" not in wire, "the algorithm was made for this job only"
    registered = request_of(record(IsTempAlgo=False, AlgorithmName="digits", AlgorithmVersion="v1")).to_wire()
    assert (registered["AlgorithmName"], registered["AlgorithmVersion"]) == ("digits", "v1")
    assert "AlgorithmSpec" not in registered


def test_a_clone_has_a_name_and_folders_of_its_own() -> None:
    wire = clone_plan(record(), hyperparameters={"lr": 0.1, "new": True}).request.to_wire()
    name = wire["TrainingJobName"]
    assert name.startswith("digits-lr0.1-epochs3-")
    assert name != NAME
    assert wire["OutputChannels"] == [{"Name": "model", "OutputUri": f"oss://models/pai/{name}/model/"}]
    assert {each["Name"]: each["Value"] for each in wire["HyperParameters"]} == {
        "lr": "0.1",
        "epochs": "3",
        "new": "true",
    }
    labels = {label["Key"]: label["Value"] for label in wire["Labels"]}
    assert labels["team"] == "vision"
    assert labels[SUBMISSION_LABEL] != "old"
    assert wire["Environments"] == {"TOKEN": "secret"}
    assert wire["AlgorithmSpec"]["CodeDir"]["LocationValue"]["Key"] == "code/1/"


def test_a_clone_in_an_experiment_has_folders_of_its_own_there() -> None:
    place = "oss://models/exp/digits202611220921495c804775/model/"
    wire = clone_plan(record(OutputChannels=[{"Name": "model", "OutputUri": place}])).request.to_wire()
    folder = folder_of(wire["TrainingJobName"])
    assert wire["OutputChannels"] == [{"Name": "model", "OutputUri": f"oss://models/exp/{folder}/model/"}]


def test_other_instances_image_command_and_channels() -> None:
    wire = clone_plan(
        record(),
        instance_type="ecs.g6.large",
        image_uri="other",
        command="python other.py",
        inputs={"train": "oss://models/more/", "test": "oss://models/test/"},
        max_run_time=60,
        job_name="mine",
    ).request.to_wire()
    assert wire["ComputeResource"] == {"EcsSpec": "ecs.g6.large", "EcsCount": 2}
    assert wire["AlgorithmSpec"]["Image"] == "other"
    assert wire["AlgorithmSpec"]["Command"] == ["sh", "-c", "python other.py"]
    assert [channel["InputUri"] for channel in wire["InputChannels"]] == [
        "oss://models/more/",
        "oss://models/test/",
    ]
    assert wire["Scheduler"] == {"MaxRunningTimeInSeconds": 60}
    assert wire["TrainingJobName"] == "mine"


def test_what_would_overwrite_or_cannot_be_copied_is_refused() -> None:
    fixed = record(
        OutputChannels=[{"Name": "checkpoints", "OutputUri": "oss://models/ckpt/"}], Environments={"TOKEN": "****"}
    )
    with pytest.raises(InvalidInputError) as caught:
        clone_plan(fixed, instance_type="local", inputs={"train": "data"})
    assert [problem.where for problem in caught.value.problems] == [
        "inputs['train']",
        "outputs['checkpoints']",
        "environments['TOKEN']",
        "instance_type",
    ]
    plan = clone_plan(fixed, outputs={"checkpoints": "oss://models/ckpt/"}, environments={"TOKEN": "again"})
    assert plan.request.output_channels[0].output_uri == "oss://models/ckpt/"


@pytest.mark.parametrize("earlier", ["same", "same-3f2a9c", "same3f2a9c"])
def test_a_clone_of_a_job_whose_name_the_user_gave(earlier: str) -> None:
    channels = [{"Name": "model", "OutputUri": f"oss://models/out/{earlier}/model/"}]
    first = record(TrainingJobName="same", OutputChannels=channels)
    hyphen = "" if earlier == "same3f2a9c" else "-"
    plan = clone_plan(first, job_name="same")
    assert plan.request.training_job_name == "same"
    uri = plan.request.output_channels[0].output_uri or ""
    assert re.fullmatch(rf"oss://models/out/same{hyphen}\w{{6}}/model/", uri)
    assert uri != channels[0]["OutputUri"]
    renamed = clone_plan(first)
    name = renamed.request.training_job_name
    folder = name if hyphen else folder_of(name)
    assert renamed.request.output_channels[0].output_uri == f"oss://models/out/{folder}/model/"
