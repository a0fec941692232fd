"""Jobs in YAML files: what they become, and what is said of mistakes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest

from pai_sdk import Session
from pai_sdk._client.submit.job_file import KINDS, JobFile, parameters_of
from pai_sdk._client.submit.job_file_schema import job_file_schema
from pai_sdk._core.names.peer_names import KEYWORDS
from pai_sdk.errors import InvalidInputError
from tests.support.messages import refused

ROOT = Path(__file__).resolve().parents[4]
GOOD = """\
# yaml-language-server: $schema=job-file.schema.json
image_uri: python:3.11
command: python train.py $PAI_USER_ARGS
source_dir: src
hyperparameters:
  lr: 1e-3
  layers: [64, 64]
environments:
  DEBUG: 1
  PRECISE: 1.10
labels: {team: vision, night: no}
inputs:
  train: data
  more: oss://bucket/more/
  set: d-0123456789ab/v1
instance_type: ecs.c6.large
spot_spec: {spot_strategy: SpotAsPriceGo}
"""
BAD = """\
image: python:3.11
command: python trane.py
source_dir: src
max_run_time: soon
hyperparameter: {lr: 1}
inputs:
  train: nowhere
environments:
  PAI_HPS: x
labels:
  a: b
  a: c
spot_spec:
  spot_strategy: Never
instance_type: ecs.c6.large
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text("print('hello')")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.csv").write_text("1,2")
    return tmp_path


@pytest.fixture
def session() -> Session:
    return Session("cn-hangzhou", "1", oss_bucket_name="models", access_key_id="a", access_key_secret="b")


def job_file(folder: Path, text: str) -> JobFile:
    (folder / "job.yaml").write_text(text)
    return JobFile.load(folder / "job.yaml")


def wire(file: JobFile, session: Session) -> dict[str, Any]:
    _, plan = file.plan(session)
    return plan.request.to_wire()


def test_a_file_becomes_the_request_of_its_estimator(folder: Path, session: Session) -> None:
    _, plan = job_file(folder, GOOD).plan(session)
    request = plan.request.to_wire()
    assert request["AlgorithmSpec"]["Image"] == "python:3.11"
    assert request["HyperParameters"] == [
        {"Name": "lr", "Value": "0.001"},
        {"Name": "layers", "Value": "[64, 64]"},
    ]
    assert request["Environments"] == {"DEBUG": "1", "PRECISE": "1.10"}, "as they are written"
    labels = {label["Key"]: label["Value"] for label in request["Labels"]}
    assert (labels["team"], labels["night"]) == ("vision", "no")
    assert request["ComputeResource"]["SpotSpec"] == {"SpotStrategy": "SpotAsPriceGo"}
    assert [upload.tree.root for upload in plan.uploads] == [folder / "src", folder / "data"]
    assert request["InputChannels"][2]["DatasetId"] == "d-0123456789ab"


def test_all_mistakes_at_once_each_with_its_line(folder: Path, session: Session) -> None:
    with pytest.raises(InvalidInputError) as caught:
        job_file(folder, BAD).plan(session)
    path = folder / "job.yaml"
    said = [str(problem).removeprefix(f"{path}:") for problem in caught.value.problems]
    lines = [int(text.partition(":")[0]) for text in said]
    assert lines == [1, 2, 4, 5, 7, 9, 12, 14]
    assert "'image_uri'" in said[0]
    assert "did you mean 'hyperparameters'?" in said[3]


def test_options_override_the_file_and_are_no_mistakes_of_it(folder: Path, session: Session) -> None:
    file = job_file(folder, GOOD).with_values(
        {"image_uri": "other", "hyperparameters": {"lr": "2"}, "max_run_time": None, "environments": {"B": "c"}}
    )
    request = wire(file, session)
    assert request["AlgorithmSpec"]["Image"] == "other"
    assert request["HyperParameters"][0] == {"Name": "lr", "Value": "2"}
    assert request["Environments"] == {"DEBUG": "1", "PRECISE": "1.10", "B": "c"}
    with refused(InvalidInputError, "max_run_time"):
        job_file(folder, GOOD).with_values({"max_run_time": "x"}).plan(session)


def test_a_processor_with_channels(folder: Path, session: Session) -> None:
    text = (
        "kind: Processor\nimage_uri: i\ncommand: c\nparameters: {rows: 3}\ninstance_type: ecs.c6.large\n"
        "output_channels: [data, {name: report, required: false}]\n"
    )
    request = wire(job_file(folder, text), session)
    assert [channel["Name"] for channel in request["OutputChannels"]] == ["data", "report"]
    with refused(InvalidInputError) as caught:
        job_file(folder, text + "input_channels: data\nhyperparameters: {a: 1}\n").plan(session)
    assert [problem.where.rpartition(": ")[2] for problem in caught.value.problems] == [
        "input_channels",
        "hyperparameters",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "- a\n",
        "kind: Trainer\nimage_uri: i\ncommand: c\ninstance_type: t\n",
        "command: c\ninstance_type: t\n",
    ],
)
def test_files_that_describe_no_job(folder: Path, session: Session, text: str) -> None:
    with refused(InvalidInputError):
        job_file(folder, text).plan(session)


def test_keys_of_other_sdks_say_what_replaces_them(folder: Path, session: Session) -> None:
    text = "training_image: i\ncommand: c\ninstance_type: ecs.c6.large\nvolume_size: 50\ncompute: cpu\n"
    with pytest.raises(InvalidInputError) as caught:
        job_file(folder, text).plan(session)
    said = [(problem.where.rpartition(": ")[2], problem.hint) for problem in caught.value.problems]
    assert said == [
        ("training_image", "image_uri='python:3.11'"),
        ("volume_size", KEYWORDS["volume_size"].instead),
        ("compute", KEYWORDS["compute"].instead),
    ]


def test_without_a_file_problems_have_the_names_of_parameters(session: Session) -> None:
    with pytest.raises(InvalidInputError) as caught:
        JobFile({"image_uri": "i"}).plan(session)
    assert [problem.where for problem in caught.value.problems] == ["command", "instance_type"]


# ---- the schema


def test_the_published_schema_is_up_to_date() -> None:
    published = json.loads((ROOT / "docs" / "job-file.schema.json").read_text(encoding="utf-8"))
    assert published == job_file_schema(), (
        "make it anew: python -m pai_sdk._client.submit.job_file_schema > docs/job-file.schema.json"
    )


def test_the_schema_takes_what_is_right_and_refuses_what_is_not(folder: Path) -> None:
    import jsonschema  # it takes 1.5 s, and every process of pytest would load it
    import yaml

    validator = jsonschema.Draft202012Validator(job_file_schema())
    validator.check_schema(job_file_schema())
    assert not list(validator.iter_errors(job_file(folder, GOOD).file.value))  # type: ignore[union-attr]
    wrong = [error.message for error in validator.iter_errors(yaml.safe_load(BAD))]
    for expected in ("'image'", "'image_uri' is a required", "'soon'", "'Never'"):
        assert any(expected in message for message in wrong), (expected, wrong)


@pytest.mark.parametrize("kind", KINDS)
def test_every_parameter_has_a_description(kind: str) -> None:
    properties = cast("dict[str, Any]", job_file_schema()["$defs"][kind]["properties"])
    assert set(properties) == {"kind", *parameters_of(KINDS[kind])}
    assert not [name for name, schema in properties.items() if name != "kind" and not schema["description"]]


def test_descriptions_are_sentences() -> None:
    """A first word of one letter lost its blank: "Asecond submission"."""
    described = job_file_schema()["$defs"]["Estimator"]["properties"]["idempotency_key"]["description"]
    assert described.startswith("A second submission ")
