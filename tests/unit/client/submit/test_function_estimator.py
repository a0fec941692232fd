"""Functions as jobs: their plan, and what is refused before anything is sent."""

from __future__ import annotations

import pickle
import sys
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import pai_sdk
from pai_sdk import Estimator, Session, remote
from pai_sdk._client.code.function_package import FOLDER, LABEL, job_key
from pai_sdk._client.submit.estimator import FunctionEstimator
from pai_sdk._client.submit.function_estimator import RemoteFunction
from pai_sdk._data.run.functions.calling import error_message, error_of
from pai_sdk.errors import InvalidInputError, WrongCallError
from tests.support.messages import refused

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
    assert request.training_job_name.startswith("train-")
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
    with refused(InvalidInputError, "git_config"):
        estimator(git_config={"repo": "https://example.com/x.git"}).plan()
    with refused(InvalidInputError, "source_dir"):
        estimator(source_dir="oss://models/code/").plan()
    with pytest.raises(InvalidInputError, match="cannot be called as a training"):
        Estimator.from_function(lambda: None, image_uri="x")
    with refused(WrongCallError, "instance_typ"):
        remote(image_uri="x", instance_typ="local")(train)


async def coroutine() -> None: ...


async def stream() -> AsyncIterator[int]:
    yield 1


def numbers() -> Iterator[int]:
    yield 1


class Model:
    async def __call__(self) -> None: ...


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (coroutine, r"coroutine is an async function.*asyncio\.run"),
        (stream, "stream is an async function"),
        (partial(coroutine), "async function"),
        (Model(), "Model is an async function"),
        (numbers, "numbers is a generator function.*return a list"),
    ],
)
def test_a_function_whose_call_has_no_value_is_refused(function: Any, why: str) -> None:
    with refused(InvalidInputError, "function"):
        remote(image_uri="x", instance_type="c")(function)
    if "async" in why:
        with refused(InvalidInputError, "function"):
            Estimator.from_function(function, image_uri="x")


class _Job:
    """A job with a result."""

    def __init__(self, error: BaseException | None) -> None:
        self._error = error

    def result(self) -> str:
        if self._error is not None:
            raise self._error
        return "value"


def test_what_one_job_raises_leaves_the_values_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    far = remote(image_uri="x", instance_type="c", session=session())(train)
    header, payload = error_message(KeyboardInterrupt("in the job"), pickle.dumps)
    there = error_of(header, payload)
    results: list[BaseException | None] = [None, there, ValueError("x"), KeyboardInterrupt("here")]
    monkeypatch.setattr(far, "_submit", lambda args, kwargs: _Job(results[kwargs["config"]]))
    items = [{"config": number} for number in range(4)]
    found = far.map([*items[:3], items[0]], return_exceptions=True)
    assert (found[0], found[1], repr(found[2]), found[3]) == ("value", there, "ValueError('x')", "value")
    with pytest.raises(KeyboardInterrupt, match="in the job"):
        far.map(items[:3])
    with pytest.raises(KeyboardInterrupt, match="here"):  # Ctrl-C
        far.map(items, return_exceptions=True)


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
