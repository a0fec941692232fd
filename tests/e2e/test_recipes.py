"""A registered model from its registration, by three clients, to the outputs of its training."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from pai_sdk import Session
from pai_sdk._client.model import ModelTrainingRecipe, RegisteredModel
from pai_sdk._core.config.settings import save_config
from pai_sdk._service.embedded import ensure_running
from tests.support.peer_environment import python_with

pytestmark = pytest.mark.timeout(1800)  # the first run installs the official client

OFFICIAL = Path(__file__).with_name("official_registry_program.py")
ALIPAI = Path(__file__).with_name("alipai_recipe_program.py")
TRAIN = """
import json, os, pathlib
values = {name: os.environ[f"PAI_HPS_{name.upper()}"] for name in ("lr", "epochs")}
rows = [row for path in pathlib.Path("/ml/input/data/train").rglob("*.csv") for row in path.read_text().split()]
start = pathlib.Path("/ml/input/data/model/weights.txt").read_text()
pathlib.Path("/ml/output/model/result.json").write_text(json.dumps({**values, "rows": rows, "start": start}))
"""
RECIPE: dict[str, Any] = {
    "AlgorithmSpec": {
        "Image": "python:3.11",
        "Command": ["sh", "-c", "python3 train.py"],
        "CodeDir": {"LocationType": "oss", "LocationValue": {"Bucket": "pai-local", "Key": "recipes/code/"}},
        "InputChannels": [{"Name": "model", "Required": True}, {"Name": "train", "Required": True}],
        "OutputChannels": [{"Name": "model", "Required": True}],
        "HyperParameters": [
            {"Name": "lr", "Type": "Float", "DefaultValue": "0.1"},
            {"Name": "epochs", "Type": "Int", "DefaultValue": "1"},
        ],
    },
    "HyperParameters": [{"Name": "epochs", "Value": "2"}],
    "InputChannels": [{"Name": "train", "InputUri": "oss://pai-local/recipes/data/"}],
    "ComputeResource": {"EcsSpec": "ecs.c6.large", "EcsCount": 1},
}
MODEL = {"Uri": "oss://pai-local/recipes/model/", "TrainingSpec": RECIPE}
BY_DEFAULT = {"lr": "0.1", "epochs": "2", "rows": ["1,2"], "start": "0.5"}


@pytest.fixture(scope="module")
def python() -> Path:
    """Made before the tests' own HOME is set, so that it is kept from run to run."""
    return python_with("alibabacloud_aiworkspace20210204==8.3.5")


@pytest.fixture(scope="module")
def files(service_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The files of the recipe and the model, in OSS."""
    folder = tmp_path_factory.mktemp("files")
    contents = {"code/train.py": TRAIN, "data/rows.csv": "1,2\n", "model/weights.txt": "0.5"}
    for name, content in contents.items():
        (folder / name).parent.mkdir()
        (folder / name).write_text(content)
    with Session.embedded(service_dir) as session:
        session.upload(folder, "oss://pai-local/recipes/", progress=False)


@pytest.fixture(scope="module")
def answers(python: Path, service_dir: Path, files: None) -> dict[str, Any]:
    """The answers to the official client, which has registered the model `official`."""
    info = ensure_running(service_dir)
    given = {name: getattr(info, name) for name in ("endpoint", "access_key_id", "access_key_secret", "region_id")}
    command = [str(python), str(OFFICIAL), json.dumps(given), json.dumps(MODEL)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def result(recipe: ModelTrainingRecipe, folder: Path) -> Any:
    assert recipe.latest_job is not None
    return json.loads((recipe.latest_job.download("model", folder) / "result.json").read_text())


def test_all_actions_of_the_official_client_are_answered(answers: dict[str, Any]) -> None:
    refused = {name: answer["code"] for name, answer in answers.items() if "error" in answer}
    assert refused == {"create again": "MODEL_ALREADY_EXISTS", "get deleted": "MODEL_NOT_FOUND"}
    assert [answers[name]["VersionName"] for name in ("create version", "create next")] == ["0.1.0", "0.2.0"]
    assert answers["get version"]["TrainingSpec"] == RECIPE
    assert (answers["list versions"]["TotalCount"], len(answers["list versions"]["Versions"])) == (2, 1)
    (listed,) = answers["list"]["Models"]
    assert (listed["ModelName"], listed["ModelDescription"]) == ("official", "the official one")
    assert listed["LatestVersion"]["VersionName"] == "0.1.0"


def test_a_model_of_the_official_client_is_trained_by_its_recipe(
    answers: dict[str, Any], session: Session, tmp_path: Path
) -> None:
    recipe = RegisteredModel("official", session=session).training_recipe(hyperparameters={"lr": 0.3})
    assert recipe.train(show_logs=False).outputs.keys() == {"model"}
    assert result(recipe, tmp_path / "model") == {**BY_DEFAULT, "lr": "0.3"}


@pytest.fixture(scope="module")
def home(service_dir: Path, files: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home on the service, in which the command line has registered the model `by-shell`."""
    home = tmp_path_factory.mktemp("home")
    with Session.embedded(service_dir) as session:
        save_config(session.settings, home / ".pai" / "config.json")
    (home / "recipe.json").write_text(json.dumps(RECIPE))
    arguments = ["create", "by-shell", MODEL["Uri"], "--training-spec", "recipe.json", "--task", "copy"]
    assert "ModelTrainingRecipe('by-shell', '0.1.0')" in _model_command(home, service_dir, *arguments)
    return home


def _model_command(home: Path, service_dir: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "pai_sdk", "model", *arguments]
    done = subprocess.run(
        command, cwd=home, env=_environment(home, service_dir), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def _environment(home: Path, service_dir: Path) -> dict[str, str]:
    info = ensure_running(service_dir)
    return {
        **os.environ,
        "HOME": str(home),
        "ALIBABA_CLOUD_ACCESS_KEY_ID": info.access_key_id,
        "ALIBABA_CLOUD_ACCESS_KEY_SECRET": info.access_key_secret,
        "ALIBABA_CLOUD_ECS_METADATA_DISABLED": "true",
    }


def test_the_command_line_lists_and_shows_what_it_has_registered(home: Path, service_dir: Path) -> None:
    assert "by-shell  0.1.0" in _model_command(home, service_dir, "list").splitlines()
    assert json.loads(_model_command(home, service_dir, "show", "by-shell"))["TrainingSpec"] == RECIPE
    shown = [json.loads(line) for line in _model_command(home, service_dir, "list", "--json").splitlines()]
    assert "by-shell" in {model["ModelName"] for model in shown}


def test_a_program_written_for_alipai_trains_it_and_reads_its_outputs(home: Path, service_dir: Path) -> None:
    info = ensure_running(service_dir)
    program = home / "program.py"
    program.write_text(re.sub(r"^from pai\.", "from pai_sdk.", ALIPAI.read_text(), flags=re.MULTILINE))
    done = subprocess.run(
        [sys.executable, str(program), info.access_key_id, info.access_key_secret, "by-shell", str(home)],
        env=_environment(home, service_dir),
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    seen = json.loads(done.stdout.splitlines()[-1])
    assert "by-shell" in seen["listed"]
    assert seen["hyperparameters"] == {"lr": "0.1", "epochs": "2"}
    assert (seen["inputs"], seen["definitions"]) == (["model", "train"], ["lr", "epochs"])
    assert seen["scripts"] == ["train.py"]
    assert seen["default"] == BY_DEFAULT
    assert seen["own"] == {**BY_DEFAULT, "epochs": "3", "rows": ["a", "b"]}
    assert seen["estimator"] == {**BY_DEFAULT, "epochs": "5"}
    assert seen["status"] == "Succeed"
    assert "deploy it with PAI-EAS" in seen["deploy"]
    assert "pytorch" in seen["serving image"]
    assert seen["HuggingFaceEstimator"].startswith("docker.io/huggingface/transformers-pytorch-gpu:")
    assert "/modelscope:" in seen["ModelScopeEstimator"]


def test_an_archive_with_code_is_unpacked(session: Session, files: None, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    with tarfile.open(tmp_path / "code.tar.gz", "w:gz") as packed:
        packed.add(tmp_path / "train.py", "src/train.py")
    session.upload(tmp_path / "code.tar.gz", "oss://pai-local/recipes/", progress=False)
    recipe = ModelTrainingRecipe(
        image_uri="python:3.11",
        command="true",
        source_dir="oss://pai-local/recipes/code.tar.gz",
        session=session,
    )
    folder = Path(recipe.retrieve_scripts(tmp_path / "unpacked"))
    assert (folder / "src" / "train.py").read_text() == TRAIN
