"""Registered algorithms as users run them, and PAI's official client on the same service."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pai_sdk import AlgorithmEstimator, Session
from pai_sdk._service.embedded import ensure_running
from pai_sdk.errors import InvalidInputError
from tests.support.peer_environment import python_with
from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.timeout(1800)  # the first run installs the official client

PROGRAM = Path(__file__).with_name("official_client_program.py")
SPEC: dict[str, Any] = {
    "Image": "python:3.11",
    "Command": [
        "sh",
        "-c",
        "echo rate $PAI_HPS_LR epochs $PAI_HPS_EPOCHS; echo 50% done; cp $PAI_INPUT_TRAIN/* $PAI_OUTPUT_MODEL/",
    ],
    "InputChannels": [{"Name": "train", "Required": True}],
    "OutputChannels": [{"Name": "model", "Required": True}],
    "HyperParameters": [
        {"Name": "lr", "Type": "Float", "DefaultValue": "0.1", "Range": {"Minimum": "0", "Maximum": "1"}},
        {"Name": "epochs", "Type": "Int", "Required": True},
    ],
    "ProgressDefinitions": {"OverallProgress": {"Regex": "([0-9]+)% done"}},
    "SupportedInstanceTypes": ["ecs.c6.large"],
}


def test_a_registered_algorithm_from_its_definition_to_its_model(session: Session, tmp_path: Path) -> None:
    digits = session.algorithms.create("digits", description="Learns digits")
    session.algorithms.create_version(digits, "v1", {**SPEC, "Command": ["false"]})
    session.algorithms.create_version(digits, "v2", SPEC)
    data = tmp_path / "data"
    data.mkdir()
    (data / "train.csv").write_text("1,2\n")
    estimator = AlgorithmEstimator("digits", hyperparameters={"epochs": 3}, session=session)
    plan = estimator.plan({"train": data})
    assert (plan.request.algorithm_name, plan.request.algorithm_version) == ("digits", "v2")
    job = estimator.fit({"train": data}, show_logs=False)
    assert job.record.algorithm_version == "v2"
    assert "rate 0.1 epochs 3" in [line.text for line in job.logs()]
    assert job.record.latest_progress is not None
    assert job.record.latest_progress["OverallProgress"]["Value"] == 50
    model = job.download("model", tmp_path / "model")
    assert (model / "train.csv").read_text() == "1,2\n"
    assert estimator.model_data() == job.outputs["model"]
    with pytest.raises(InvalidInputError) as caught:
        AlgorithmEstimator("digits", hyperparameters={"epoch": 3, "lr": 2}, session=session).fit({"trian": data})
    assert len(caught.value.problems) == 5


def test_a_whole_spec_runs_without_being_registered(session: Session, tmp_path: Path) -> None:
    (tmp_path / "x").write_text("1")
    estimator = AlgorithmEstimator(algorithm_spec=SPEC, hyperparameters={"epochs": 1}, session=session)
    job = estimator.fit({"train": tmp_path}, show_logs=False)
    assert "rate 0.1 epochs 1" in [line.text for line in job.logs()]


@pytest.fixture(scope="module")
def official_python() -> Path:
    """Beside ours it would need other releases."""
    return python_with("alibabacloud_paistudio20220112==2.6.2")


@pytest.fixture(scope="module")
def official(official_python: Path, service_dir: Path) -> dict[str, Any]:
    """What the official client was answered, by action."""
    info = ensure_running(service_dir)
    given = {name: getattr(info, name) for name in ("endpoint", "access_key_id", "access_key_secret", "region_id")}
    done = subprocess.run(
        [str(official_python), str(PROGRAM), json.dumps(given)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answers: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answers


def test_the_official_client_has_all_its_actions_answered(official: dict[str, Any]) -> None:
    refused = {action: answer for action, answer in official.items() if "error" in answer}
    assert set(refused) == {"create_instance_web_terminal", "check_instance_web_terminal"}, refused
    assert {answer["code"] for answer in refused.values()} == {"NotSupported"}
    assert len(official) == 28  # 18 on jobs, 10 on algorithms: all that the release has


def test_the_official_client_finds_its_fields_filled(official: dict[str, Any]) -> None:
    job = official["get_training_job"]
    assert job["Status"] == "Running"
    assert (job["AlgorithmName"], job["AlgorithmVersion"], job["IsTempAlgo"]) == ("official", "v1", False)
    assert job["HyperParameters"] == [{"Name": "lr", "Value": "0.1"}]
    assert job["LatestMetrics"][0]["Value"] == 0.5
    assert job["LatestProgress"]["OverallProgress"]["Value"] == 0.25
    assert [i["Status"] for i in job["Instances"]] == ["Running"]
    assert official["list_training_jobs"]["TotalCount"] == 1
    assert "PAI_HPS_LR=0.1" in official["list_training_job_logs"]["Logs"]
    assert official["list_training_job_events"]["Events"]
    assert official["list_training_job_instance_events"]["Events"]
    assert official["list_training_job_metrics"]["Metrics"]
    (usage,) = official["list_training_job_instance_metrics"]["InstanceMetrics"]
    assert usage["Metrics"][0]["Value"] > 0
    assert official["get_token"]["Token"]
    assert official["get_algorithm"]["AlgorithmDescription"] == "of an official client"
    assert official["get_algorithm_version"]["AlgorithmSpec"]["Image"] == "none"
    assert official["list_algorithm_versions"]["TotalCount"] == 2
    assert [a["AlgorithmName"] for a in official["list_algorithms"]["Algorithms"]] == ["official"]


def test_an_algorithm_is_registered_and_shown_by_the_command(embedded_home: Path, tmp_path: Path) -> None:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "pai_sdk", "algorithm", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=2 * PATIENCE_S, check=False)

    assert embedded_home
    spec = tmp_path / "spec.json"
    spec.write_text(json.dumps(SPEC))
    assert run("list").stdout == "no algorithms\n"
    for version in ("v1", "v2"):
        created = run("create", "digits", version, "--spec", str(spec), "--description", "Learns digits")
        assert f"AlgorithmEstimator('digits', '{version}')" in created.stdout, created.stderr
    assert run("list").stdout == "digits  Learns digits\n"
    shown = json.loads(run("show", "digits").stdout)
    assert (shown["AlgorithmVersion"], shown["AlgorithmSpec"]["Command"]) == ("v2", SPEC["Command"])
    assert "did you mean 'digits'?" in run("show", "digit").stderr
    spec.write_text("{")
    assert "is not JSON" in run("create", "digits", "v3", "--spec", str(spec)).stderr
