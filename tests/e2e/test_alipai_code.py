"""Code written for alipai runs when `pai` is replaced by `pai_sdk` in its imports, and does the same."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pai_sdk import Session
from pai_sdk._core.config.settings import save_config
from pai_sdk._service.embedded import ensure_running

PROGRAM = Path(__file__).with_name("alipai_style_program.py")
STEPS = {
    "Image": "none",
    "Command": ["sh", "-c", 'touch "/ml/output/checkpoints/epoch_$PAI_HPS_EPOCHS.pth"'],
    "HyperParameters": [{"Name": "epochs", "Type": "Int", "DefaultValue": "1"}],
    "OutputChannels": [{"Name": "model"}, {"Name": "checkpoints"}],
    "SupportedInstanceTypes": ["ecs.c6.large"],
}


@pytest.fixture(scope="module")
def seen(service_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the program has seen."""
    info = ensure_running(service_dir)
    with Session.embedded(service_dir) as session:
        session.algorithms.create_version(session.algorithms.create("steps"), "v1", STEPS)
        home = tmp_path_factory.mktemp("alipai home")
        save_config(session.settings, home / ".pai" / "config.json")
    program = home / "program.py"
    program.write_text(re.sub(r"^from pai\.", "from pai_sdk.", PROGRAM.read_text(), flags=re.MULTILINE))
    done = subprocess.run(
        [sys.executable, str(program), info.access_key_id, info.access_key_secret, str(home)],
        env={**os.environ, "HOME": str(home), "ALIBABA_CLOUD_ECS_METADATA_DISABLED": "true"},
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_the_session_of_the_config_file(seen: dict[str, Any]) -> None:
    assert seen["session"] == ["local", "1", "local", False]


def test_an_estimator_trains_and_its_outputs_are_found(seen: dict[str, Any]) -> None:
    trained = seen["trained"]
    assert trained["model"] == {"rows": 3, "n_estimators": "50", "max_depth": "5"}
    assert trained["hyperparameters"] == {"n_estimators": "50", "max_depth": "5"}
    assert trained["there"] == [True] * 3
    facts = ("is_oss_uri", "found", "status", "completed", "latest")
    assert [trained[fact] for fact in facts] == [True] * len(facts)
    assert seen["board"] == [True, True]


def test_a_failure_is_caught_by_its_name(seen: dict[str, Any]) -> None:
    assert seen["failed"] == ["Failed", False, True]


def test_a_processor_and_its_experiment(seen: dict[str, Any]) -> None:
    assert seen["processed"] == [True] * 3
    assert seen["experiment"] == [True] * 5


def test_a_registered_algorithm(seen: dict[str, Any]) -> None:
    assert seen["algorithm"] == [["checkpoints", "model"], True, True, ["epochs"]]


def test_images_and_descriptions_that_only_the_cloud_can_run(seen: dict[str, Any]) -> None:
    assert seen["images"] == ["PyTorch", "1.12", "GPU", True, True]
    assert seen["lingjun"] == [0.5, "nas"]


def test_what_is_left_out_names_itself(seen: dict[str, Any]) -> None:
    assert seen["left out"] == [
        "Estimator.deploy",
        "pai_sdk.model.container_serving_spec",
        "pai_sdk.model.InferenceSpec",
    ]
