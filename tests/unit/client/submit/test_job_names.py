"""Default names of jobs are readable, unique and within the limits of the service."""

from __future__ import annotations

import re
from typing import Any

import pytest

from pai_sdk._client.submit.job_names import base_of_command, new_folder
from pai_sdk._client.submit.request_fields import base_of, folder_of
from pai_sdk._wire.pai.job_names import name_of_copy, new_name

ENDING = r"-[0-9][0-9a-z]{5}"


@pytest.mark.parametrize(
    ("hyperparameters", "parts"),
    [
        (None, ""),
        ({"lr": 0.1}, "-lr0.1"),
        ({"seed": 3, "epochs": 5, "learning_rate": 1e-05}, "-lr1e-05-epochs5"),
        ({"depth": 4, "batch_size": "32", "width": 7}, "-bs32-depth4"),
        ({"shuffle": True, "model": "resnet", "data": "/ml/input"}, ""),
        ({"api_key": 123, "max_tokens": 5, "password": "9"}, ""),
        ({"lr": float("inf"), "two words": 2, "rate": 1e20}, "-rate1e20"),
    ],
)
def test_a_name_shows_the_hyperparameters_that_say_most(
    hyperparameters: dict[str, Any] | None, parts: str
) -> None:
    assert re.fullmatch("train" + re.escape(parts) + ENDING, new_name("train", hyperparameters))


def test_names_differ_and_are_short_enough() -> None:
    names = {new_name("x" * 75, {"a" * 16: 1234567890, "b" * 16: 1234567890}) for _ in range(100)}
    assert len(names) == 100
    assert all(len(name) <= 100 for name in names)


@pytest.mark.parametrize(
    ("command", "base"),
    [
        ("python train.py --lr 0.1", "train"),
        ("cd /ml && torchrun --nproc_per_node 2 src/fit_all.v2.py", "fit_all.v2"),
        (["python", "-m", "package.training", "x"], "training"),
        ("bash 'run me.sh'", "me"),
        ("echo $PAI_USER_ARGS", ""),
        ("sh ./go.sh", "go"),
    ],
)
def test_a_command_names_its_jobs(command: str | list[str], base: str) -> None:
    assert base_of_command(command) == base


@pytest.mark.parametrize("name", ["train-lr0.1-3f2a9c", "train_20261122_092149_5c804775"])
def test_a_copy_has_its_own_hyperparameters_in_its_name(name: str) -> None:
    made = name_of_copy(name, {"lr": "0.1"}, {"lr": "0.2"})
    assert re.fullmatch(r"train-lr0\.2" + ENDING, made)


def test_a_copy_keeps_the_digits_that_a_user_wrote() -> None:
    assert re.fullmatch("run-202611" + ENDING, name_of_copy("run-202611", {}, {}))


def test_the_folder_of_an_explicit_name_has_a_suffix() -> None:
    assert new_folder("train-lr0.1-3f2a9c", is_explicit=False) == "train-lr0.1-3f2a9c"
    assert re.fullmatch("digits" + ENDING, new_folder("digits", is_explicit=True))


def test_a_folder_within_an_experiment_has_letters_and_digits_only() -> None:
    assert folder_of("train-lr0.1-3f2a9c") == "trainlr013f2a9c"


def test_a_class_names_its_jobs() -> None:
    assert base_of(type("_MyTrainer", (), {})) == "mytrainer"
