"""Functions as jobs: their plan, and what is refused before anything is sent."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

import pai_sdk
from pai_sdk import Estimator, Session, remote
from pai_sdk.code.function_package import FOLDER, LABEL, job_key
from pai_sdk.errors import InvalidInputError, WrongCallError
from pai_sdk.submit.function_estimator import FunctionEstimator, RemoteFunction

HERE = "{}.{}".format(*sys.version_info)


def session() -> Session:
    return Session("cn-x", "7", oss_bucket_name="models", access_key_id="i", access_key_secret="s")


def train(config: dict[str, Any]) -> float:
    return float(config["lr"])


def estimator(**more: Any) -> FunctionEstimator:
    given = {"image_uri": "image", "instance_type": "ecs.c6.large", "session": session(), **more}
    return Estimator.from_function(train, **given)


def test_the_plan_of_a_function(tmp_path: Path) -> None:
    (tmp_path / "src" / "inner").mkdir(parents=True)
    (tmp_path / "src" / "inner" / "data.txt").write_text("x")
    (tmp_path / "src" / ".gitignore").write_text("*.log")
    (tmp_path / "src" / "a.log").write_text("x")
    plan = estimator(hyperparameters={"lr": 0.1}, source_dir=tmp_path / "src", environments={"A": "b"}).plan()
    request = plan.request
    code, package = plan.uploads
    names = {entry.path for entry in code.tree.entries}
    assert {"inner/data.txt", f"{FOLDER}/run.py", f"{FOLDER}/call"} <= names
    assert "a.log" not in names
    assert [channel.name for channel in request.input_channels] == ["pai_sdk"]
    assert [channel.name for channel in request.output_channels] == [
        "model",
        "checkpoints",
        "tensorboard",
        "result",
    ]
    assert request.training_job_name.startswith("train_")
    assert [(each.name, each.value) for each in request.hyperparameters] == [("lr", "0.1")]
    nonce = {label.key: label.value for label in request.labels}[LABEL]
    assert request.environments == {"A": "b", "FUNCTION_CALL_KEY": job_key(nonce).hex()}
    assert job_key(nonce).hex() not in str(plan)
    assert code.tree.root.exists()
    del plan
    assert not code.tree.root.exists()
    assert package.tree.root.exists()


def test_each_plan_has_a_key_of_its_own() -> None:
    one = estimator()
    first, second = one.plan(), one.plan()
    assert first.request.environments != second.request.environments
    assert one.environments is None
    assert one.source_dir is None


@pytest.mark.parametrize(
    ("image", "instance_type", "is_refused"),
    [
        ("python:3.8-slim", "ecs.c6.large", True),
        ("registry.example/pai/pytorch:2.1-gpu-py38-cu121", "local", True),
        (f"python:{HERE}-slim", "local", False),
        (f"x/pytorch:2.1-py{HERE.replace('.', '')}-cu121", "ecs.c6.large", False),
        ("image", "local", False),
        ("happy:38", "local", False),
    ],
)
def test_the_python_of_an_image_is_checked_by_its_name(image: str, instance_type: str, is_refused: bool) -> None:
    one = estimator(image_uri=image, instance_type=instance_type)
    if not is_refused:
        one.plan()
        return
    with pytest.raises(InvalidInputError, match=rf"its Python is 3\.8, and train is pickled by Python {HERE}"):
        one.plan()


def test_what_does_not_go_with_a_function() -> None:
    with pytest.raises(InvalidInputError, match="git_config"):
        estimator(git_config={"repo": "https://example.com/x.git"}).plan()
    with pytest.raises(InvalidInputError, match="source_dir"):
        estimator(source_dir="oss://models/code/").plan()
    with pytest.raises(InvalidInputError, match="cannot be called as a training"):
        Estimator.from_function(lambda: None, image_uri="x")
    with pytest.raises(WrongCallError, match="instance_typ"):
        remote(image_uri="x", instance_typ="local")(train)


def test_wrong_arguments_are_refused_before_anything_is_sent() -> None:
    far = remote(image_uri="x", instance_type="c", session=session())(train)
    with pytest.raises(InvalidInputError, match="missing a required argument"):
        far()
    with pytest.raises(InvalidInputError, match=r"missing a required argument: 'config'.*tuple"):
        far.map([{"lr": 0.1}])
    assert far.estimator.jobs == []


def test_a_remote_function_looks_like_the_function() -> None:
    far = pai_sdk.remote(image_uri="x", instance_type="c")(train)
    assert isinstance(far, RemoteFunction)
    assert (far.__name__, far.__wrapped__, far.function({"lr": 2})) == ("train", train, 2.0)
    assert repr(far) == "<RemoteFunction train>"
