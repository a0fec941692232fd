"""`pai-sdk algorithm create`, `pai-sdk model create`: a wrong spec is reported before anything is registered."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pai_sdk._wire.pai.recipes import check_recipes
from pai_sdk.cli.root import app
from pai_sdk.errors import InvalidInputError
from tests.support.messages import refused


@pytest.mark.parametrize(
    ("content", "reported"),
    [
        (None, "spec.json cannot be read: No such file"),
        ('{"Image": "x"', "spec.json is not JSON"),
        ("[]", "does not contain a JSON object"),
        ('{"Imag": "x", "Command": ["true"]}', "did you mean 'Image'?"),
    ],
)
def test_a_wrong_spec_registers_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str | None, reported: str
) -> None:
    asked: list[str] = []
    monkeypatch.setattr("pai_sdk.cli.registered.get_default_session", lambda: asked.append("session"))
    path = tmp_path / "spec.json"
    if content is not None:
        path.write_text(content)
    done = CliRunner().invoke(app, ["algorithm", "create", "digits", "v1", "--spec", str(path)])
    assert isinstance(done.exception, InvalidInputError)
    assert reported in str(done.exception)
    assert asked == []


ALGORITHM = """{"Image": "python:3.11", "Command": ["true"], "HyperParameters": [
    {"Name": "lr", "Type": "Float", "Required": true}, {"Name": "data", "Required": true}]}"""


@pytest.mark.parametrize(
    ("content", "reported"),
    [
        ("[]", "does not contain a JSON object"),
        ('{"AlgorithmName": ""}', "--training-spec: names no algorithm"),
        ('{"LoRA": {"Inputs": []}}', "--training-spec['LoRA']: names no algorithm"),
        ('{"AlgorithmSpec": {"Imag": "x", "Command": ["true"]}}', "did you mean 'Image'?"),
        ('{"AlgorithmName": "digits", "InputChannels": [{"InputUri": "oss://a/"}]}', "InputChannels[0].Name"),
        (f'{{"AlgorithmSpec": {ALGORITHM}, "HyperParameters": [{{"Name": "rl", "Value": 1}}]}}', "available: lr"),
        (
            f'{{"AlgorithmSpec": {ALGORITHM}, "HyperParameters": [{{"Name": "lr", "Value": "x"}}]}}',
            "expected a number",
        ),
    ],
)
def test_a_wrong_recipe_registers_no_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str, reported: str
) -> None:
    asked: list[str] = []
    monkeypatch.setattr("pai_sdk.cli.registered.get_default_session", lambda: asked.append("session"))
    path = tmp_path / "recipe.json"
    path.write_text(content)
    done = CliRunner().invoke(app, ["model", "create", "digits", "oss://m/", "--training-spec", str(path)])
    assert isinstance(done.exception, InvalidInputError)
    assert reported in str(done.exception)
    assert asked == []


def test_a_recipe_that_is_no_dict_is_refused() -> None:
    with refused(InvalidInputError, "training_spec"):
        check_recipes([], "training_spec")  # type: ignore[arg-type]


def test_a_recipe_need_not_give_every_required_value() -> None:
    values = [{"Name": "lr", "Value": 0.5}]
    check_recipes({"AlgorithmSpec": json.loads(ALGORITHM), "HyperParameters": values}, "training_spec")


def test_a_local_path_registers_no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr("pai_sdk.cli.registered.get_default_session", lambda: asked.append("session"))
    done = CliRunner().invoke(app, ["model", "create", "digits", "models/digits"])
    assert isinstance(done.exception, InvalidInputError)
    assert "URI: 'models/digits' is not a URI" in str(done.exception)
    assert asked == []
