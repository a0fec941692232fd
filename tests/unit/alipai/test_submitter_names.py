"""Estimators and processors by the names that subclasses written for alipai use."""

from __future__ import annotations

from pai_sdk.job import Channel

from pai_sdk import Estimator, Processor, Session
from pai_sdk.errors import InvalidInputError
from tests.support.messages import refused

SESSION = Session("cn-x", "1", oss_bucket_name="models", access_key_id="id", access_key_secret="hush")
PLACE = {"instance_type": "ecs.c6.large", "session": SESSION}


def test_an_estimator_says_its_image_and_names() -> None:
    estimator = Estimator("python:3.11", "true", base_job_name="digits", **PLACE)
    assert estimator.training_image_uri() == "python:3.11"
    assert estimator.job_name("mine") == "mine"
    made = estimator.job_name()
    assert made.startswith("digits-")
    assert made != estimator.job_name()
    assert Processor("python:3.11", "true", **PLACE).job_name().startswith("processor-")


def test_the_channels_of_a_request() -> None:
    estimator = Estimator("python:3.11", "true", output_path="oss://models/out/", **PLACE)
    channels = [Channel(name="train", required=True), Channel(name="test")]
    built = estimator.build_inputs({"train": "oss://models/t/"}, channels, {"extra": "oss://models/e/"})
    assert built == [
        {"Name": "extra", "InputUri": "oss://models/e/"},
        {"Name": "train", "InputUri": "oss://models/t/"},
    ]
    with refused(InvalidInputError, "inputs['train']"):
        estimator.build_inputs({}, channels)
    outputs = estimator.build_outputs("digits-1", [Channel(name="model"), Channel(name="logs")])
    assert [one["Name"] for one in outputs] == ["model", "logs"]
    assert all("digits-1" in one["OutputUri"] for one in outputs)
    assert outputs[1]["OutputUri"].endswith("/logs/")
    given = estimator.build_outputs("digits-1", [], {"figures": "oss://models/f/"})
    assert given == [{"Name": "figures", "OutputUri": "oss://models/f/"}]
