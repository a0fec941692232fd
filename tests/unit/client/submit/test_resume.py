"""`Estimator(resume=…)`: what is found in planning, what is copied before the job starts, and what is an error."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from pai_sdk import Estimator, Session
from pai_sdk._client.backend.base import Plan
from pai_sdk._client.job.training_job import TrainingJob
from pai_sdk._data.run.report.checkpoints import commit
from pai_sdk._data.run.store.stored_checkpoints import complete_checkpoints
from pai_sdk.errors import CheckpointError, InvalidInputError
from tests.support.fake_backend import FakeBackend
from tests.support.messages import refused


def saved(folder: Path, step: int, weights: str = "1.0") -> Path:
    (folder / str(step)).mkdir(parents=True)
    (folder / str(step) / "weights").write_text(weights)
    commit(folder / str(step), step=step)
    return folder


def steps(folder: Path) -> list[int]:
    return [found.step for found in complete_checkpoints(folder)]


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Session:
    monkeypatch.setenv("PAI_LOCAL_DIR", str(tmp_path / "local"))
    return Session()


@pytest.fixture
def earlier_job(tmp_path: Path, session: Session, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the checkpoints of the job `local-1`."""
    folder = tmp_path / "earlier"
    backend = FakeBackend()
    backend.extra = {"OutputChannels": [{"Name": "checkpoints", "OutputUri": folder.as_uri() + "/"}]}
    monkeypatch.setattr(Session, "get_job", lambda self, job_id: TrainingJob(job_id, backend))
    return folder


def plan(session: Session, outputs: dict[str, Any] | None = None, **more: Any) -> Plan:
    return Estimator("python:3.11", "true", instance_type="local", session=session, **more).plan(outputs=outputs)


def problem(session: Session, **more: Any) -> str:
    with pytest.raises(InvalidInputError) as caught:
        plan(session, **more)
    (found,) = caught.value.problems
    assert found.where == "resume"
    return f"{found.what}; {found.hint}"


def target(made: Plan) -> Path:
    assert made.resume is not None
    return Path(made.resume.target.removeprefix("file://"))


def test_without_it_nothing_is_looked_for(session: Session, tmp_path: Path) -> None:
    saved(tmp_path / "ck", 3)
    for resume in (None, False):
        assert plan(session, resume=resume, checkpoints_path=str(tmp_path / "ck")).resume is None


def test_true_needs_a_place(session: Session) -> None:
    found = problem(session, resume=True)
    assert "checkpoints_path='oss://…'" in found
    assert "resume='<id of the earlier job>'" in found
    assert "<URI of checkpoints>" in found


@pytest.mark.parametrize("given_as", ["checkpoints_path", "outputs"])
def test_true_resumes_from_the_newest_complete_one_where_it_is(
    session: Session, tmp_path: Path, given_as: str
) -> None:
    folder = saved(saved(tmp_path / "ck", 3), 20)
    (folder / "21").mkdir()
    (folder / "21" / "half").write_text("x")
    where = (
        {"checkpoints_path": str(folder)}
        if given_as == "checkpoints_path"
        else {"outputs": {"checkpoints": str(folder)}}
    )
    made = plan(session, resume=True, **where)
    assert made.resume is not None
    assert made.resume.step == 20
    assert f"resume: step 20 from {folder.as_uri()}/20/ (3 bytes, in place)" in str(made)
    made.resume.copy_to_target(session)
    assert steps(folder) == [20, 3]


def test_true_without_a_complete_one_starts_from_scratch_and_says_so(
    session: Session, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "ck" / "3").mkdir(parents=True)
    (tmp_path / "ck" / "3" / "half").write_text("x")
    with caplog.at_level(logging.INFO, "pai_sdk"):
        made = plan(session, resume=True, checkpoints_path=str(tmp_path / "ck"))
    assert made.resume is not None
    assert made.resume.step is None
    assert "resume: no complete checkpoint in" in str(made)
    assert [line.getMessage() for line in caplog.records if "starts from scratch" in line.getMessage()] == [
        f"resume: {made.resume}"
    ]
    made.resume.copy_to_target(session)


def test_a_job_is_resumed_in_an_output_of_its_own(session: Session, earlier_job: Path) -> None:
    saved(saved(earlier_job, 3), 20)
    made = plan(session, resume="local-1")
    assert f"resume: step 20 from {earlier_job.as_uri()}/20/" in str(made)
    assert not target(made).exists()  # a dry run copies nothing
    assert made.resume is not None
    made.resume.copy_to_target(session)
    made.resume.copy_to_target(session)  # a submission that is repeated
    assert steps(target(made)) == [20]
    assert steps(earlier_job) == [20, 3]


def test_a_job_that_is_at_hand_is_resumed(session: Session, earlier_job: Path) -> None:
    saved(earlier_job, 20)
    made = plan(session, resume=session.get_job("local-1"))
    assert made.resume is not None
    assert made.resume.step == 20


@pytest.mark.parametrize("form", ["uri", "uri of the run", "path", "text"])
def test_a_uri_or_a_path_is_resumed(session: Session, tmp_path: Path, form: str) -> None:
    folder = saved(tmp_path / "run" / "checkpoints", 7)
    resume = {
        "uri": folder.as_uri(),
        "uri of the run": folder.parent.as_uri(),
        "path": folder,
        "text": str(folder),
    }
    made = plan(session, resume=resume[form])
    assert made.resume is not None
    made.resume.copy_to_target(session)
    assert steps(target(made)) == [7]


def test_a_job_without_a_complete_checkpoint_is_an_error(session: Session, earlier_job: Path) -> None:
    (earlier_job / "3").mkdir(parents=True)
    assert "there is no complete checkpoint in" in problem(session, resume="local-1")


def test_a_job_without_checkpoints_is_an_error(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = FakeBackend()
    backend.extra = {"OutputChannels": [{"Name": "model", "OutputUri": "file:///m/"}]}
    monkeypatch.setattr(Session, "get_job", lambda self, job_id: TrainingJob(job_id, backend))
    assert problem(session, resume="local-1") == "job local-1 has no output 'checkpoints'; it has: model"


def test_a_restart_goes_on_from_its_own_newer_checkpoint(
    session: Session, earlier_job: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The same parameters again, after the new job was preempted: it does not fall back to the earlier job."""
    saved(earlier_job, 20)
    own = tmp_path / "own"
    first = plan(session, resume="local-1", checkpoints_path=str(own))
    assert first.resume is not None
    first.resume.copy_to_target(session)
    saved(own, 30)
    with caplog.at_level(logging.INFO, "pai_sdk"):
        again = plan(session, resume="local-1", checkpoints_path=str(own))
    assert again.resume is not None
    assert (again.resume.step, again.resume.is_at_target) == (30, True)
    assert "already has step 30, which is not older than step 20" in caplog.text


def test_a_checkpoint_that_changed_since_the_plan_is_an_error(session: Session, earlier_job: Path) -> None:
    saved(earlier_job, 20)
    made = plan(session, resume="local-1")
    commit(earlier_job / "20", step=20, metrics={"loss": 1.0})
    assert made.resume is not None
    with refused(CheckpointError):
        made.resume.copy_to_target(session)
    assert steps(target(made)) == []


def test_a_file_of_the_plan_would_not_copy_so_none_is_written(
    session: Session, earlier_job: Path, tmp_path: Path
) -> None:
    saved(earlier_job, 20)
    with refused(InvalidInputError, "plan"):
        plan(session, resume="local-1").save(tmp_path / "plan.json")
    plan(session, resume=True, checkpoints_path=str(earlier_job)).save(tmp_path / "plan.json")


@pytest.mark.parametrize("wrong", [3, "", " ", ["x"]])
def test_other_types_are_errors(session: Session, wrong: object) -> None:
    assert "expected True, a job or its id, or the URI or path of checkpoints, got " in problem(
        session, resume=wrong
    )


def test_a_file_system_that_only_the_service_reads_is_an_error(session: Session) -> None:
    cloud = Session("cn-x", "1", oss_bucket_name="models", endpoint="http://127.0.0.1:9")
    estimator = Estimator(
        "img", "true", instance_type="ecs.c6.large", session=cloud, resume=True, checkpoints_path="nas://f.cn-x/d/"
    )
    with pytest.raises(InvalidInputError, match="checkpoints can be resumed from and copied to oss://"):
        estimator.plan()
