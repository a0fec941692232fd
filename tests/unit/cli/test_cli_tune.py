"""`pai-sdk tune`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pai_sdk._client.session import Session
from pai_sdk.errors import InvalidInputError
from tests.support.messages import refused
from tests.unit.cli.conftest import Pai
from tests.unit.client.tune.fake_jobs import FakeJobs

JOB = "image_uri: python:3.11\ncommand: python train.py\ninstance_type: ecs.c6.large\n"
SPACE = "search:\n  lr: {log_uniform: [1e-3, 1]}\n  layers: [1, 2]\nobjective: {metric: loss, at: best}\nseed: 1\n"


@pytest.fixture
def jobs(pai: Pai, monkeypatch: pytest.MonkeyPatch) -> FakeJobs:
    backend = FakeJobs(lambda values: [float(values["lr"]), 2.0])
    monkeypatch.setattr(Session, "backend_for", lambda self, instance_type, api=None: backend)
    return backend


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    job, space = tmp_path / "job.yaml", tmp_path / "space.yaml"
    job.write_text(JOB)
    space.write_text(SPACE)
    return job, space


def test_a_search_from_two_files_and_options(pai: Pai, jobs: FakeJobs, files: tuple[Path, Path]) -> None:
    job, space = files
    study = job.parent / "study"
    result = pai(
        "tune", job, "--search", space, "--trials", 4, "--parallel", 2, "--study", study, "-s", "epochs=3"
    )
    assert result.exit_code == 0
    assert "best: trial" in result.output
    assert "pai-sdk download train" in result.output
    assert len(jobs.jobs) == 4
    names = {one.name for one in jobs.jobs["train0"].request.hyperparameters}
    assert names == {"lr", "layers", "epochs"}
    again = pai("tune", job, "--search", space, "--trials", 6, "--study", study, "--json")
    lines = [json.loads(line) for line in again.stdout.splitlines()]
    assert [one["number"] for one in lines] == list(range(6))
    assert {one["values"]["loss"] == one["params"]["lr"] for one in lines} == {True}
    assert len(jobs.jobs) == 6


def test_a_dry_run_shows_the_request_of_a_trial(pai: Pai, jobs: FakeJobs, files: tuple[Path, Path]) -> None:
    job, space = files
    result = pai("tune", job, "--search", space, "--dry-run")
    assert "lr" in {each["Name"] for each in json.loads(result.stdout)["HyperParameters"]}
    assert not jobs.jobs


def test_failures_give_the_exit_code_of_a_failed_job(pai: Pai, jobs: FakeJobs, files: tuple[Path, Path]) -> None:
    job, space = files
    jobs.ends.update(dict.fromkeys(range(9), ("Failed", "NonZeroExit")))
    result = pai("tune", job, "--search", space, "--max-failures", 1, "--parallel", 1)
    assert result.exit_code == 100
    assert "2 of" in result.stderr


@pytest.mark.parametrize(
    ("space", "options"),
    [
        ("[1, 2]", ()),
        ("search: {lr: [1]}\nobjectve: loss", ()),
        ("search: {lr: [1]}\nobjective: {metrik: loss}", ()),
        ("lr: {loguniform: [1, 2]}", ()),
        ("lr: [1, 2]", ("--sampler", "tpee", "--trials", 0)),
    ],
)
def test_what_is_wrong_with_a_search_is_said(
    space: str, options: tuple[object, ...], pai: Pai, jobs: FakeJobs, files: tuple[Path, Path]
) -> None:
    job, file = files
    file.write_text(space)
    with refused(InvalidInputError):
        pai("tune", job, "--search", file, *options)
    assert not jobs.jobs


def test_only_estimators_with_outputs_of_their_own_are_searched(
    pai: Pai, jobs: FakeJobs, files: tuple[Path, Path]
) -> None:
    job, space = files
    job.write_text(JOB + "kind: Processor\n")
    with refused(InvalidInputError):
        pai("tune", job, "--search", space)
    job.write_text(JOB + "outputs: {model: 'oss://models/one/'}\n")
    with refused(InvalidInputError):
        pai("tune", job, "--search", space)
