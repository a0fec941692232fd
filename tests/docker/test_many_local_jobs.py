"""Searches and pipelines over local jobs in containers."""

from __future__ import annotations

from pathlib import Path

import pytest

from pai_sdk import Estimator, Pipeline, Processor, Session, Tuner
from pai_sdk._data.storage.store import open_store
from tests.docker.engine import BASE_IMAGE, Engine

METRIC = {"name": "loss", "regex": r"loss=([\d.]+)"}


@pytest.fixture
def session(docker_host: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Session:
    monkeypatch.setenv("PAI_LOCAL_DIR", str(tmp_path / "local"))
    return Session("cn-x", "7")


def test_a_search_over_local_jobs_prunes_poor_trials(session: Session, tmp_path: Path) -> None:
    estimator = Estimator(
        BASE_IMAGE,
        "for step in 1 2 3 4 5 6 7 8; do echo loss=$PAI_HPS_LR; sleep 0.3; done; echo ok >$PAI_OUTPUT_MODEL/m.txt",
        metric_definitions=[METRIC],
        instance_type="local",
        session=session,
    )
    space = {"lr": [0.1, 0.2, 0.3, 0.4]}
    tuner = Tuner(estimator, space, sampler="grid", parallel=2, pruner="median", seed=1, study=tmp_path / "study")
    trials = tuner.run(show=False)
    assert {trial.state for trial in trials} <= {"complete", "pruned"}
    assert (tuner.best.params, tuner.best.value) == ({"lr": 0.1}, 0.1)
    assert open_store(tuner.best.model).head("m.txt").size_bytes == 3
    assert all(trial.job.refresh().status.is_terminal for trial in trials)


def test_local_jobs_as_steps_of_a_pipeline(session: Session, tmp_path: Path) -> None:
    def described() -> Pipeline:
        job = {"instance_type": "local", "session": session}
        pipeline = Pipeline("local", store=tmp_path / "runs", session=session)
        split = pipeline.step(
            Processor(BASE_IMAGE, "echo 42 >$PAI_OUTPUT_DATA/n.txt", **job), name="split", outputs=["data"]
        )
        train = pipeline.step(
            Estimator(BASE_IMAGE, "cp $PAI_INPUT_DATA/n.txt $PAI_OUTPUT_MODEL/m.txt", **job),
            name="train",
            inputs={"data": split.outputs.data},
        )
        pipeline.step(
            lambda uri: int(b"".join(open_store(uri).read("m.txt"))),
            name="read",
            arguments={"uri": train.outputs.model},
        )
        return pipeline

    assert described().run(show=False)["read"].result == 42
    assert {step.status for step in described().run(show=False).steps.values()} == {"cached"}
