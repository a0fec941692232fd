"""alipai, unmodified and in an environment of its own, on our service: what its users run runs here too."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from pai_sdk import Session
from pai_sdk._service.embedded import ensure_running
from tests.benchmarks.peers import ALIPAI
from tests.support.peer_environment import python_with
from tests.unit.alipai.alipai_table import NAMES

pytestmark = pytest.mark.timeout(1800)  # the first run installs it

PROGRAM = Path(__file__).with_name("alipai_program.py")
COLLECT = Path(__file__).with_name("collect_alipai.py")  # not beside a folder `pai`, which would hide alipai
# What alipai itself uses is the older one; its clients have the newer one too.
SIGNATURES = {"acs": "v2", "ACS3-HMAC-SHA256": None}
GIVEN = ("endpoint", "oss_endpoint", "bucket", "region_id", "workspace_id", "access_key_id", "access_key_secret")


@pytest.fixture(scope="module")
def python() -> Path:
    """Made before the tests' own HOME is set, so that it is kept from run to run."""
    return python_with(*ALIPAI.packages)


@pytest.fixture(scope="module")
def answers(
    python: Path, service_dir: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[str, Any]]:
    """What alipai found, and what it printed, by the signature; both run at once, as they mostly wait."""
    info = ensure_running(service_dir)
    running = {}
    for number, (scheme, algorithm) in enumerate(SIGNATURES.items()):
        given = {name: getattr(info, name) for name in GIVEN}
        given |= {"signature_algorithm": algorithm, "name": f"digits-{number}"}
        folder = tmp_path_factory.mktemp("alipai")
        command = [str(python), str(PROGRAM), json.dumps(given), str(folder)]
        running[scheme] = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    found = {}
    for scheme, process in running.items():
        printed, errors = process.communicate(timeout=600)
        assert process.returncode == 0, errors[-3000:]
        found[scheme] = {**json.loads(printed.splitlines()[-1]), "printed": printed}
    return found


@pytest.fixture(params=list(SIGNATURES))
def found(request: pytest.FixtureRequest, answers: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """What was found with one of the signatures."""
    own = answers[request.param]
    assert {scheme.partition(" ")[0] for scheme in own["signed by"]} == {request.param}
    return own


def test_the_list_of_its_names_is_that_of_the_package(python: Path) -> None:
    done = subprocess.run([str(python), str(COLLECT)], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout) == NAMES, "run the script collect_alipai.py again, as it says"


def test_an_estimator_trains_and_leaves_its_outputs(
    found: dict[str, Any], session: Session, tmp_path: Path
) -> None:
    status, logs, model, extra = found["estimator"]
    assert (status, logs) == ("Succeed", ["rate 0.1 loss=0.5"])
    assert "rate 0.1 loss=0.5" in found["printed"].splitlines()  # what its wait() shows
    session.download(model, tmp_path / "model", progress=False)
    assert (tmp_path / "model" / "train.csv").read_text() == "1,2\n"
    session.download(extra, tmp_path / "extra", progress=False)
    assert (tmp_path / "extra" / "more.txt").read_text() == "more\n"


def test_what_an_estimator_brought_along_is_in_its_job(found: dict[str, Any]) -> None:
    job = found["job"]
    assert job["ExperimentConfig"] == {
        "ExperimentId": found["experiment id"],
        "ExperimentName": f"{found['experiment']['Name']}-2",
    }
    assert job["Environments"] == {"A": "b"}
    assert job["Labels"] == [{"Key": "by", "Value": "alipai"}]
    assert job["Scheduler"] == {"MaxRunningTimeInSeconds": 600}
    assert job["LatestMetrics"][0]["Value"] == 0.5
    assert "UserVpc" not in job  # it is sent as {}


def test_a_processor_runs_with_channels_of_its_own(
    found: dict[str, Any], session: Session, tmp_path: Path
) -> None:
    status, logs, outputs = found["processor"]
    assert (status, logs, [*outputs]) == ("Succeed", ["done"], ["table"])
    session.download(outputs["table"], tmp_path / "table", progress=False)
    assert (tmp_path / "table" / "table.txt").read_text() == "processed\n"


def test_algorithms_run_registered_or_not(found: dict[str, Any]) -> None:
    created, by_name = found["algorithm"]
    assert created == by_name
    for kind, epochs in (("registered", 3), ("latest", 4), ("unregistered", 3)):
        status, logs, outputs = found[kind]
        assert (status, logs, {*outputs}) == ("Succeed", [f"epochs {epochs}"], {"model", "extra"}), kind


def test_a_failure_is_one_and_the_list_has_all_jobs(found: dict[str, Any]) -> None:
    job, status = found["failed"]
    assert (status, found["failure"]) == ("Failed", "Failed")
    assert found["list"][job] == "Failed"
    assert [*found["list"].values()].count("Succeed") >= 5


def test_experiments_are_created_found_changed_and_deleted(found: dict[str, Any]) -> None:
    experiment = found["experiment"]
    assert [(label["Key"], label["Value"]) for label in experiment["Labels"]] == [("team", "search")]
    assert found["labels left"] == []
    assert found["experiment by name"] == found["experiment id"] == experiment["ExperimentId"]
    assert found["tensorboard"] == f"{experiment['ArtifactUri']}tensorboard/"
    assert found["experiments left"] == []


def test_a_registered_model_is_trained_by_its_recipe(found: dict[str, Any]) -> None:
    version, status, logs, model, labels = found["recipe"]
    assert (version, status, logs, labels) == ("0.1.0", "Succeed", ["epochs 7"], {"by": "alipai"})
    assert model.endswith("/model/")
    assert found["recipe's estimator"] == ["Succeed", ["epochs 8"]]
    assert found["models"]
