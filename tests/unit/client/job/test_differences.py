"""What a job was asked to do, and in what two jobs differ."""

from __future__ import annotations

from typing import Any

from pai_sdk._client.job.field_groups import command_text, differences, request_groups
from pai_sdk._wire.pai.record import JobRecord
from pai_sdk._wire.pai.request import SUBMISSION_LABEL


def record(name: str, lr: str = "0.1", **changes: Any) -> JobRecord:
    return JobRecord.model_validate(
        {
            "TrainingJobId": f"train-{name}",
            "TrainingJobName": name,
            "Status": "Succeed",
            "Duration": 61,
            "AlgorithmSpec": {"Command": ["python", "train.py"], "Image": "python:3.11"},
            "CodeDir": {"LocationValue": {"Bucket": "b", "Key": "code/1/", "Endpoint": f"127.0.0.1:{len(name)}"}},
            "HyperParameters": [{"Name": "lr", "Value": lr}],
            "OutputChannels": [{"Name": "model", "OutputUri": f"oss://b/{name}/model/"}],
            "Labels": [{"Key": SUBMISSION_LABEL, "Value": name}],
            "Environments": {"TOKEN": "secret"},
            "Settings": {"EnableRDMA": True, "Tags": {"a": "b"}},
            **changes,
        }
    )


def test_facts_have_all_of_a_request_and_no_secret() -> None:
    facts = request_groups(record("one", Priority=3, MadeUp={"x": 1}, PythonRequirements=["https://me:pw@host/x"]))
    assert facts["code"]["command"] == "python train.py"
    assert facts["code"]["source"] == "oss://b/code/1/"
    assert facts["environments"] == {"TOKEN": "******"}
    assert facts["settings"] == {"priority": "3", "Settings.EnableRDMA": "true", "Settings.Tags.a": "b"}
    assert "labels" not in facts, "the label of the submission is nobody's choice"
    assert "secret" not in str(facts)
    assert "pw" not in str(facts)


def test_two_jobs_of_one_plan_do_not_differ() -> None:
    assert differences(record("one"), record("other")) == []
    folders = ("one", "one-3f2a9c", "one-4b2c1d")  # of jobs whose user gave them the same name
    places = [[{"Name": "model", "OutputUri": f"oss://b/{folder}/model/"}] for folder in folders]
    jobs = [record("one", OutputChannels=place) for place in places]
    assert differences(jobs[0], jobs[1]) == differences(jobs[1], jobs[2]) == []


def test_differences_in_what_was_asked_and_what_came_of_it() -> None:
    ours = record("one", LatestMetrics=[{"Name": "loss", "Value": 0.5}])
    theirs = record("other", lr="0.2", Environments={"TOKEN": "another", "B": "c"}, Status="Failed")
    found = [(each.group, each.name, each.first, each.second) for each in differences(ours, theirs)]
    assert found == [
        ("hyperparameters", "lr", "0.1", "0.2"),
        ("environments", "B", None, "******"),
        ("environments", "TOKEN", "one value", "another value"),
        ("result", "status", "Succeed", "Failed"),
        ("result", "metric loss", "0.5", None),
    ]
    assert "secret" not in str(found)


def test_a_command_is_shown_as_it_was_written() -> None:
    assert command_text(["sh", "-c", "python train.py $PAI_USER_ARGS"]) == "python train.py $PAI_USER_ARGS"
    assert command_text(["python", "a b.py"]) == "python 'a b.py'"
