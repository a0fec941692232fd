"""Pipelines of jobs: outputs become inputs, and earlier executions count while their outputs are there."""

from __future__ import annotations

import _thread
import time
from pathlib import Path
from typing import Any

import pytest

from pai_sdk._client.pipeline import Pipeline, PipelineRun
from pai_sdk._client.session import Session
from pai_sdk._client.submit.estimator import Estimator
from pai_sdk._client.submit.processor import Processor
from pai_sdk._client.tune import Tuner
from pai_sdk._data.pipelines.records import (
    FOLDER_LABEL,
    PIPELINE_LABEL,
    RUN_LABEL,
    STEP_LABEL,
    RunRecords,
    StepRecord,
)
from pai_sdk._data.storage.store import open_store
from pai_sdk.errors import InvalidInputError, PipelineFailed, PipelineStopped
from tests.service.services import Client, session_on
from tests.support.waiting import until

SPLIT = 'echo "$ROWS rows" >"$PAI_OUTPUT_CLEAN/data.txt"'
TRAIN = '(cat "$PAI_INPUT_DATA/data.txt"; echo "lr $PAI_HPS_LR") >"$PAI_OUTPUT_MODEL/model.txt"'


@pytest.fixture
def session(service: Client) -> Session:
    return session_on(service.info)


def text_of(model: str, session: Session) -> str:
    return b"".join(open_store(model, session).read("model.txt")).decode()


def make(tmp_path: Path, session: Session, *, train: str = TRAIN, **settings: Any) -> Pipeline:
    pipeline = Pipeline("digits", store=tmp_path / "store", session=session)
    rows = pipeline.parameter("rows", int, 10)
    lr = pipeline.parameter("lr", float, 0.1)
    job = {"instance_type": "ecs.c6.large", "session": session}
    split = pipeline.step(
        Processor("python:3.11", SPLIT, **job), name="split", outputs=["clean"], environments={"ROWS": rows}
    )
    trained = pipeline.step(
        Estimator("python:3.11", train, **job),
        name="train",
        inputs={"data": split.outputs.clean},
        hyperparameters={"lr": lr},
        **settings,
    )
    pipeline.step(lambda model: text_of(model, session), name="read", arguments={"model": trained.outputs.model})
    return pipeline


def statuses(run: PipelineRun) -> list[str]:
    return [one.status for one in run.steps.values()]


def jobs_of(run: PipelineRun, session: Session) -> list[str]:
    return [job.id for job in session.list_jobs() if job.labels.get(RUN_LABEL) == run.id]


def test_outputs_of_jobs_are_inputs_of_others(tmp_path: Path, session: Session) -> None:
    run = make(tmp_path, session).run(show=False, rows=3)
    assert run["read"].result == "3 rows\nlr 0.1\n"
    assert sorted(jobs_of(run, session)) == sorted([run["split"].job_id, run["train"].job_id])
    again = make(tmp_path, session).run(show=False, rows=3)
    assert statuses(again) == ["cached"] * 3
    assert jobs_of(again, session) == []
    other = make(tmp_path, session).run(show=False, rows=3, lr=0.2)
    assert statuses(other) == ["cached", "succeeded", "succeeded"]
    assert other["train"].reason == "hyperparameter lr has changed"
    assert other["read"].result == "3 rows\nlr 0.2\n"
    changed = make(tmp_path, session, train=f"{TRAIN}; true").run(show=False, rows=3, lr=0.2)
    assert changed["train"].reason == "the request has changed"


def test_a_folder_that_is_too_long_for_a_label_is_not_in_one(session: Session) -> None:
    pipeline = Pipeline(
        "digits", store=f"oss://{session.settings.oss_bucket_name}/{'long/' * 60}", session=session
    )
    split = Processor("python:3.11", "true", instance_type="ecs.c6.large", session=session)
    pipeline.step(split, name="split")
    run = pipeline.run(show=False)
    labels = session.get_job(run["split"].job_id).labels
    assert labels.keys() >= {RUN_LABEL, STEP_LABEL, PIPELINE_LABEL}
    assert FOLDER_LABEL not in labels


def test_a_job_that_calls_a_function_counts_while_the_function_is_the_same(
    tmp_path: Path, session: Session
) -> None:
    def described(factor: float, lr: float) -> Pipeline:
        def train(config: dict[str, float]) -> dict[str, float]:
            return {"loss": factor * config["lr"]}

        job = {"image_uri": "python:3.11", "instance_type": "ecs.c6.large", "session": session}
        pipeline = Pipeline("function", store=tmp_path / "store", session=session)
        pipeline.step(Estimator.from_function(train, **job), name="train", hyperparameters={"lr": lr})
        return pipeline

    assert statuses(described(2, 0.5).run(show=False)) == ["succeeded"]
    again = described(2, 0.5).run(show=False)
    assert again["train"].status == "cached", again["train"].reason
    assert described(2, 0.25).run(show=False)["train"].reason == "hyperparameter lr has changed"
    assert described(3, 0.25).run(show=False)["train"].reason == "variable factor has changed"


def test_a_search_over_jobs_is_a_step_with_inputs_of_other_steps(tmp_path: Path, session: Session) -> None:
    def described(low: float = 0.1) -> Pipeline:
        job = {"instance_type": "ecs.c6.large", "session": session}
        pipeline = Pipeline("searched", store=tmp_path / "store", session=session)
        data = pipeline.step(Processor("python:3.11", SPLIT, **job), name="split", outputs=["clean"])
        train = f"{TRAIN}; echo loss=$PAI_HPS_LR"
        metric = {"name": "loss", "regex": "loss=(.*)"}
        tuner = Tuner(
            Estimator("python:3.11", train, metric_definitions=[metric], **job),
            {"lr": [low, 0.5]},
            sampler="grid",
        )
        found = pipeline.step(tuner, inputs={"data": data.outputs.clean})
        pipeline.step(lambda uri: text_of(uri, session), name="read", arguments={"uri": found.result["model"]})
        return pipeline

    assert [*described().plans()] == ["split", "search"]
    run = described().run(show=False)
    assert run["read"].result.endswith("lr 0.1\n")
    assert run["search"].result["params"] == {"lr": 0.1}
    assert statuses(described().run(show=False)) == ["cached"] * 3
    assert described(0.2).run(show=False)["search"].reason.startswith("the search has changed")


def test_an_execution_whose_output_was_deleted_does_not_count(tmp_path: Path, session: Session) -> None:
    run = make(tmp_path, session).run(show=False)
    model = open_store(run["train"].outputs["model"], session)
    model.delete([file.path for file in model.list()])
    again = make(tmp_path, session).run(show=False)
    assert again["train"].reason == "the output model of the earlier execution is gone"
    assert statuses(again) == ["cached", "succeeded", "succeeded"]


def test_the_failure_of_a_job_is_that_of_its_step(tmp_path: Path, session: Session) -> None:
    with pytest.raises(PipelineFailed, match=r"train: job .* Failed: .* exit code 3") as failed:
        make(tmp_path, session, train="exit 3", retries=1).run(show=False)
    run = PipelineRun.load(failed.value.run)
    assert statuses(run) == ["succeeded", "failed", "blocked"]
    assert (run["train"].attempt, len(jobs_of(run, session))) == (2, 3)


def test_a_job_that_takes_too_long_is_stopped(tmp_path: Path, session: Session) -> None:
    with pytest.raises(PipelineFailed, match=r"train: it did not finish within 1 s") as failed:
        make(tmp_path, session, train="sleep 1000", timeout=1).run(show=False)
    run = PipelineRun.load(failed.value.run)

    def states() -> set[str]:
        # Of the run, not of the step: if the submission takes longer than the timeout, the step knows no job.
        return {str(session.get_job(job_id).status) for job_id in jobs_of(run, session)}

    until(lambda: states() <= {"Succeed", "Terminated"}, "the end of the job")


def test_a_step_that_had_begun_is_gone_on_with(tmp_path: Path, session: Session) -> None:
    """A process was killed before it noted the job, and before it noted anything."""
    first = make(tmp_path, session).run(show=False)
    records = first.records
    split, train = first["split"], first["train"]
    split.status, train.status = "running", "running"
    split.job_id, job_id = "", split.job_id
    first.record.status = "running"
    records.write_run(first.record)
    records.write_step(split)
    records.write_step(train)
    resumed = make(tmp_path, session).resume(first.id, show=False)
    assert (resumed["split"].job_id, resumed["train"].job_id) == (job_id, train.job_id)
    assert resumed.status == "succeeded"
    assert len(jobs_of(resumed, session)) == 2


def test_mistakes_in_jobs_are_found_before_anything_runs(tmp_path: Path, session: Session) -> None:
    pipeline = Pipeline("wrong", store=tmp_path / "store", session=session)
    job = {"instance_type": "ecs.c6.large", "session": session}
    split = pipeline.step(Processor("python:3.11", SPLIT, **job), name="split", outputs=["clean"])
    pipeline.step(Estimator("python:3.11", TRAIN, **job), name="train", inputs={"data": split.outputs.cleen})
    pipeline.step(Processor("python:3.11", "", **job), name="empty")
    pipeline.step(Processor("python:3.11", "true", **job), name="hyper", hyperparameters={"lr": 1})
    pipeline.step(Estimator("python:3.11", "true", **job), name="placed", outputs=["figures"])
    with pytest.raises(InvalidInputError) as wrong:
        pipeline.run(show=False)
    text = str(wrong.value)
    assert "step 'train': split.outputs.cleen: step 'split' has no output 'cleen' (did you mean 'clean'?)" in text
    assert "step 'empty': command" in text
    assert "step 'hyper': hyperparameters: a Processor has none" in text
    assert "step 'placed': outputs: an added output of Estimator needs a URI" in text
    assert not pipeline.runs()


def test_a_dry_run_shows_every_request(tmp_path: Path, session: Session) -> None:
    plans = make(tmp_path, session).plans(lr=0.3)
    assert [*plans] == ["split", "train"]
    assert [one.value for one in plans["train"].request.hyperparameters] == ["0.3"]
    assert plans["train"].request.input_channels[0].input_uri == "oss://pipeline-placeholder/split/clean/"


def test_a_job_that_is_submitted_while_the_run_is_stopped_is_stopped(
    tmp_path: Path, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit = Processor.submit

    def slowly(self: Processor, plan: Any, **more: Any) -> Any:
        job = submit(self, plan, **more)
        make(tmp_path, session).runs()[0].records.request_stop()
        time.sleep(1.5)  # the run has seen it by then
        return job

    pipeline = Pipeline("digits", store=tmp_path / "store", session=session)
    pipeline.step(
        Processor("python:3.11", "sleep 1000", instance_type="ecs.c6.large", session=session), name="long"
    )
    monkeypatch.setattr(Processor, "submit", slowly)
    with pytest.raises(PipelineStopped) as stopped:
        pipeline.run(show=False)
    run = PipelineRun.load(stopped.value.run)
    assert (run.status, run["long"].status) == ("stopped", "stopped")
    job = session.get_job(run["long"].job_id)
    until(lambda: job.refresh().status == "Terminated", "the end of the job")


@pytest.mark.parametrize("effect", ["detach", "stop"])
def test_ctrl_c_during_a_submission(
    tmp_path: Path, session: Session, monkeypatch: pytest.MonkeyPatch, effect: Any
) -> None:
    submit, jobs = Processor.submit, []

    def slowly(self: Processor, plan: Any, **more: Any) -> Any:
        jobs.append(submit(self, plan, **more))
        _thread.interrupt_main()
        time.sleep(1)  # the engine handles Ctrl-C by then
        return jobs[-1]

    pipeline = Pipeline("digits", store=tmp_path / "store", session=session)
    pipeline.step(
        Processor("python:3.11", "sleep 1000", instance_type="ecs.c6.large", session=session), name="long"
    )
    monkeypatch.setattr(Processor, "submit", slowly)
    with pytest.raises(KeyboardInterrupt):
        pipeline.run(show=False, on_interrupt=effect)
    if effect == "stop":
        until(lambda: jobs[0].refresh().status == "Terminated", "the end of the job")
        return
    (run,) = pipeline.runs()
    assert run["long"].job_id == jobs[0].id
    assert not jobs[0].refresh().status.is_terminal
    jobs[0].stop()


def test_ctrl_c_between_the_submission_and_its_record_stops_the_job(
    tmp_path: Path, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread of the submission had read that the step was not abandoned; nobody stopped the job."""
    write_step, ids = RunRecords.write_step, []

    def interrupted(self: RunRecords, record: Any) -> None:
        if record.job_id and not ids:
            ids.append(record.job_id)
            _thread.interrupt_main()
            time.sleep(1)  # the engine handles Ctrl-C by then
        write_step(self, record)

    monkeypatch.setattr(RunRecords, "write_step", interrupted)
    pipeline = Pipeline("digits", store=tmp_path / "store", session=session)
    pipeline.step(
        Processor("python:3.11", "sleep 1000", instance_type="ecs.c6.large", session=session), name="long"
    )
    with pytest.raises(KeyboardInterrupt):
        pipeline.run(show=False, on_interrupt="stop")
    job = session.get_job(ids[0])
    until(lambda: job.refresh().status == "Terminated", "the end of the job")


def test_a_job_whose_submission_took_too_long_is_stopped(
    tmp_path: Path, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit, jobs = Processor.submit, []

    def slowly(self: Processor, plan: Any, **more: Any) -> Any:
        time.sleep(1)
        jobs.append(submit(self, plan, **more))
        return jobs[-1]

    monkeypatch.setattr(Processor, "submit", slowly)
    pipeline = Pipeline("digits", store=tmp_path / "store", session=session)
    long = Processor("python:3.11", "sleep 1000", instance_type="ecs.c6.large", session=session)
    pipeline.step(long, name="long", timeout=0.3)
    with pytest.raises(PipelineFailed, match=r"it did not finish within 0\.3 s"):
        pipeline.run(show=False)
    until(lambda: jobs and jobs[0].refresh().status == "Terminated", "the end of the job")


def test_code_that_was_changed_in_its_place_in_oss_is_run_again(
    tmp_path: Path, session: Session, service: Client
) -> None:
    code, place = tmp_path / "code", f"oss://{service.info.bucket}/code-of-{tmp_path.name}/"
    code.mkdir()

    def run(text: str) -> PipelineRun:
        (code / "a.sh").write_text(text)
        session.upload(code, place, progress=False)
        pipeline = Pipeline("digits", store=tmp_path / "store", session=session)
        one = Processor("python:3.11", "sh a.sh", source_dir=place, instance_type="ecs.c6.large", session=session)
        pipeline.step(one, name="one")
        return pipeline.run(show=False)

    assert run("echo 1")["one"].status == "succeeded"
    assert run("echo 1")["one"].status == "cached"
    assert run("echo 2")["one"].reason == "the code has changed"


def test_a_job_is_run_again_for_another_place_or_a_lost_file_but_not_for_another_time_limit(
    tmp_path: Path, session: Session
) -> None:
    bucket = f"oss://{session.settings.oss_bucket_name}"
    command = 'echo a >"$PAI_OUTPUT_MODEL/a.txt"; echo b >"$PAI_OUTPUT_MODEL/b.txt"'

    def run(place: str, **settings: Any) -> StepRecord:
        pipeline = Pipeline("places", store=tmp_path / "store", session=session)
        job = Estimator("python:3.11", command, instance_type="ecs.c6.large", session=session, **settings)
        pipeline.step(job, name="one", outputs={"model": f"{bucket}/{place}/"})
        return pipeline.run(show=False)["one"]

    def files(place: str) -> list[str]:
        return sorted(file.path for file in open_store(f"{bucket}/{place}/", session).list())

    assert run("first").status == "succeeded"
    assert run("first", max_run_time=3_000).status == "cached"
    other = run("second")
    assert (other.status, other.reason) == ("succeeded", "output model has changed")
    assert files("second") == ["a.txt", "b.txt"]
    open_store(f"{bucket}/first/", session).delete(["b.txt"])
    lost = run("first")
    assert (lost.status, lost.reason) == (
        "succeeded",
        "the output model of the earlier execution is changed",
    )
    assert files("first") == ["a.txt", "b.txt"]
