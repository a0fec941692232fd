"""Reports from jobs on the embedded service, and from the same function in this process."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from pai_sdk import Estimator, ReportSession, Session, TrainingJob
from pai_sdk._data.run.events.records import read_scalars
from pai_sdk._data.run.report.checkpoints import latest_checkpoint
from tests.support.interpreters import INTERPRETERS
from tests.support.waiting import until
from tests.trials import launches

TRAIN = """
import json, os, time
from pai_sdk import checkpoint_dir, get_checkpoint, report
from pai_sdk.checkpoints import latest_checkpoint

def train(last, wait_at=None):
    start = get_checkpoint()
    loss, step = 1.0, 0
    if start is not None:
        loss, step = json.loads((start.path / "state").read_text()), start.step
    while step < last:
        step += 1
        loss *= 0.9
        report({"loss": loss, "eval": {"step": step}}, step=step)
        with checkpoint_dir(step) as folder:
            (folder / "state").write_text(json.dumps(loss))
        while step == wait_at:
            time.sleep(0.05)
            saved = latest_checkpoint(os.environ["PAI_OUTPUT_CHECKPOINTS"])
            if saved is not None and saved.step == step:
                report({"saved": step}, step=step)

if __name__ == "__main__":
    train(int(os.environ["PAI_HPS_LAST"]), int(os.environ["PAI_HPS_WAIT_AT"]))
"""


def estimator(session: Session, source: Path, python: str = "python", **more: object) -> Estimator:
    return Estimator(
        "python:3.11",
        f"{python} train.py",
        source,
        hyperparameters={"last": 5, "wait_at": -1, **more.pop("hyperparameters", {})},
        instance_type="ecs.c6.large",
        session=session,
        **more,
    )


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "src"
    folder.mkdir()
    (folder / "train.py").write_text(textwrap.dedent(TRAIN))
    return folder


def metrics(job: TrainingJob) -> list[tuple[str | None, int | None, float | None]]:
    return sorted((point.name, point.step, point.value) for point in job.metrics())


def test_a_job_and_a_function_report_the_same(session: Session, source: Path, tmp_path: Path) -> None:
    job = estimator(session, source).fit(show_logs=False)
    in_job = metrics(job)
    namespace: dict[str, object] = {"__name__": "train"}
    exec(compile(TRAIN, "train.py", "exec"), namespace)
    with ReportSession(tmp_path / "run") as run, run.bound():
        namespace["train"](5)
    files = (tmp_path / "run" / "tensorboard").iterdir()
    assert in_job == sorted((e.tag, e.step, e.value) for path in files for e in read_scalars(path))
    assert [point.step for point in job.metrics("loss")] == [1, 2, 3, 4, 5]
    folder = job.download("checkpoints", tmp_path / "checkpoints", progress=False)
    theirs, ours = latest_checkpoint(folder), latest_checkpoint(tmp_path / "run" / "checkpoints")
    assert (theirs.step, theirs.files) == (ours.step, ours.files)


@pytest.mark.parametrize("version", ["3.8", "3.13"])
def test_a_job_reports_with_a_python_that_has_no_pai_sdk(session: Session, source: Path, version: str) -> None:
    if version not in INTERPRETERS:
        pytest.skip(f"there is no Python {version} on this machine")
    job = estimator(session, source, f"{INTERPRETERS[version]} -s").fit(show_logs=False)
    assert [point.step for point in job.metrics("eval/step")] == [1, 2, 3, 4, 5]


LATE = """
import os, time
from pai_sdk import checkpoint_dir, get_checkpoint, get_context, report
from pai_sdk._data.run.report.checkpoints import latest_checkpoint

def newest():
    found = latest_checkpoint(os.environ["PAI_OUTPUT_CHECKPOINTS"])
    return 0 if found is None else found.step

context = get_context()
last = int(os.environ["PAI_HPS_LAST"])
while context.rank and newest() < last:  # as late as it can be
    time.sleep(0.05)
start = get_checkpoint()
report({"start": 0 if start is None else start.step}, step=1)
if context.rank == 0:
    for step in range(1 if start is None else start.step + 1, last + 1):
        with checkpoint_dir(step) as folder:
            (folder / "state").write_text(str(step))
"""


def test_a_rank_that_starts_late_begins_where_rank_0_has_begun(session: Session, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(LATE)
    at: dict[str, str] = {}
    for last, start in ((4, 0.0), (6, 4.0)):  # the second one resumes
        one = estimator(session, tmp_path, hyperparameters={"last": last}, instance_count=2, **at)
        job = one.fit(show_logs=False)
        assert [point.value for point in job.metrics("start")] == [start, start]
        at = {"checkpoints_path": one.checkpoints_data()}


@pytest.mark.parametrize("kind", launches.KINDS)
def test_all_ranks_of_a_launch_begin_with_the_same_checkpoint(tmp_path: Path, kind: str) -> None:
    trial = launches.run(tmp_path, kind=kind, launches=4, seed=1)
    assert trial.faults == []
    assert trial.starts


def test_a_job_that_is_killed_is_resumed_by_the_next(session: Session, source: Path) -> None:
    first = estimator(session, source, hyperparameters={"last": 9, "wait_at": 3})
    job = first.fit(wait=False, show_logs=False)
    until(lambda: [point.step for point in job.metrics("saved")][:1] == [3])  # while it runs
    assert [point.step for point in job.metrics("loss")] == [1, 2, 3]
    job.stop()
    until(lambda: job.status.is_terminal)
    second = estimator(session, source, checkpoints_path=first.checkpoints_data()).fit(show_logs=False)
    assert [point.step for point in second.metrics("loss")] == [4, 5]
    assert [point.value for point in second.metrics("loss")] == pytest.approx([0.9**4, 0.9**5])
