"""Many jobs of DLC together, as a user runs them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pai_sdk import Estimator, Pipeline, Processor, Session, as_completed, gather, run_all
from pai_sdk.errors import JobsFailed
from pai_sdk.tune import Tuner, Uniform

REPORTS = "import os; from pai_sdk import report; report({'loss': float(os.environ['PAI_HPS_LR'])}, step=1)"


def processor(session: Session, command: str, **parameters: Any) -> Processor:
    usual = {"instance_type": "ecs.c6.large", "session": session, "api": "dlc"}
    return Processor("python:3.11", command, **{**usual, **parameters})


def test_run_all_gather_and_watch(session: Session) -> None:
    jobs = run_all([processor(session, f"echo {number}") for number in range(3)], max_parallel=2, show=False)
    assert [[line.text for line in job.logs()] for job in jobs] == [["0"], ["1"], ["2"]]
    assert {job.id for job in as_completed(jobs)} == {job.id for job in jobs}
    failing = processor(session, "exit 3", labels={"n": "4"}).run(wait=False, show_logs=False)
    with pytest.raises(JobsFailed) as caught:
        gather([*jobs, failing], show=False)
    assert len(caught.value.failures) == 1
    with session.watch(api="dlc") as manager:
        manager.wait_until_loaded()
        assert {run.id for run in manager.runs().runs} >= {job.id for job in (*jobs, failing)}
    training = processor(session, "true", api="trainingjob").run(show_logs=False)
    assert [job.status for job in gather([training, *jobs], show=False)] == ["Succeed"] * 4


def test_a_pipeline_and_a_search(session: Session, tmp_path: Path) -> None:
    pipeline = Pipeline("squares", session=session)
    rate = pipeline.parameter("rate", float, 0.1)
    split = pipeline.step(processor(session, "echo 3 >$PAI_OUTPUT_CLEAN/n.txt"), name="split", outputs=["clean"])
    train = Estimator(
        "python:3.11",
        "cat $PAI_INPUT_DATA/n.txt; echo $PAI_HPS_LR",
        instance_type="ecs.c6.large",
        session=session,
        api="dlc",
    )
    pipeline.step(train, name="train", inputs={"data": split.outputs.clean}, hyperparameters={"lr": rate})
    run = pipeline.run()
    job = session.get_job(run.steps["train"].job_id or "")
    assert (job.id[:3], [line.text for line in job.logs()]) == ("dlc", ["3", "0.1"])

    (tmp_path / "src").mkdir()
    (tmp_path / "src/train.py").write_text(REPORTS)
    searched = Estimator(
        "python:3.11",
        "python train.py",
        source_dir=tmp_path / "src",
        instance_type="ecs.c6.large",
        session=session,
        api="dlc",
    )
    tuner = Tuner(
        searched, {"lr": Uniform(0.1, 1)}, objective="loss", trials=2, parallel=2, study=tmp_path / "study"
    )
    assert len({trial.values["loss"] for trial in tuner.run()}) == 2
    assert tuner.best.job is not None
    assert tuner.best.job.id.startswith("dlc")


SAVES = """
import pathlib
from pai_sdk import get_checkpoint, report
start = get_checkpoint()
print("from", start.step if start else None)
folder = pathlib.Path("state")
folder.mkdir(exist_ok=True)
(folder / "state.json").write_text("{}")
report({"loss": 1}, step=(start.step if start else 0) + 1, checkpoint=folder, checkpoint_upload_mode="SYNC")
"""


def test_a_job_resumes_from_another(session: Session, tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src/train.py").write_text(SAVES)
    parameters: dict[str, Any] = {
        "source_dir": tmp_path / "src",
        "instance_type": "ecs.c6.large",
        "session": session,
        "api": "dlc",
    }
    first = Estimator("python:3.11", "python train.py", **parameters).fit(show_logs=False)
    second = Estimator("python:3.11", "python train.py", resume=first.id, **parameters).fit(show_logs=False)
    assert [[line.text for line in job.logs()] for job in (first, second)] == [["from None"], ["from 1"]]
