"""Jobs of DLC that are submitted again: copies, saved plans, and the other API, on a service that runs them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from pai_sdk import Estimator, Session
from pai_sdk._client.api.dlc_jobs import DlcJobs
from pai_sdk._client.backend.base import Plan
from pai_sdk._client.backend.dlc.backend import DlcBackend
from pai_sdk._client.job.field_groups import differences
from pai_sdk._data.storage.uri import OssUri
from pai_sdk.cli.selection.job_names import find_job
from pai_sdk.errors import InvalidInputError, NotFoundError
from pai_sdk.jobs import TrainingJob, clone

TRAIN = """
import os, pathlib
print("lr", os.environ["PAI_HPS_LR"], os.environ["PAI_USER_ARGS"], os.environ["V3"], os.environ["V24"])
print("rows", pathlib.Path(os.environ["PAI_INPUT_ROWS"]).read_text(), os.access("tool.sh", os.X_OK))
pathlib.Path(os.environ["PAI_OUTPUT_MODEL"], "model.txt").write_text(os.environ["PAI_HPS_LR"])
"""


def estimator(session: Session, folder: Path, **parameters: Any) -> Estimator:
    source = folder / "src"
    source.mkdir(exist_ok=True)
    (source / "train.py").write_text(TRAIN)
    (source / "tool.sh").write_text("echo tool\n")
    (source / "tool.sh").chmod(0o755)
    usual: dict[str, Any] = {
        "source_dir": source,
        "hyperparameters": {"lr": 0.5, "api_token": "abcdefgh"},
        "environments": {f"V{number}": str(number) for number in range(25)},
        "labels": {"team": "x"},
        "instance_type": "ecs.c6.large",
        "session": session,
        "api": "dlc",
    }
    return Estimator("python:3.11", "python train.py", **{**usual, **parameters})


def lines_of(job: TrainingJob) -> list[str]:
    return [line.text for line in job.logs()]


def finished(session: Session, plan: Plan) -> TrainingJob:
    return session.submit(plan).wait(show_logs=False)


def test_a_copy_has_all_but_the_changes(session: Session, tmp_path: Path) -> None:
    (tmp_path / "rows.txt").write_text("3")
    first = estimator(session, tmp_path).fit({"rows": tmp_path / "rows.txt"}, show_logs=False)
    plan = clone(first, hyperparameters={"lr": 0.1}, environments={"V3": "new"}, labels={"copy": "1"})
    assert plan.request.training_job_name != first.name
    second = finished(session, plan)
    assert lines_of(first) == ["lr 0.5 --lr 0.5 --api_token abcdefgh 3 24", "rows 3 True"]
    assert lines_of(second) == ["lr 0.1 --lr 0.1 --api_token abcdefgh new 24", "rows 3 True"]
    assert second.labels.items() >= {"team": "x", "copy": "1"}.items()
    assert first.outputs.keys() == second.outputs.keys()
    assert {*first.outputs.values()}.isdisjoint(second.outputs.values())
    session.files().put_bytes(OssUri.parse("oss://pai-local/rows/7.txt"), b"7")
    third = finished(session, clone(second, inputs={"rows": "oss://pai-local/rows/7.txt"}, command="env | sort"))
    assert "PAI_INPUT_ROWS=/ml/input/data/rows/7.txt" in lines_of(third)
    assert "V3=new" in lines_of(third)


def console_job(session: Session, **fields: Any) -> TrainingJob:
    """Creates a job as the console does."""
    body = {
        "DisplayName": "from-the-console",
        "JobType": "PyTorchJob",
        "WorkspaceId": session.settings.workspace_id,
        "UserCommand": "echo $GREETING from $(cat /mnt/data/name)",
        "Envs": {"GREETING": "hello"},
        "DataSources": [{"Uri": "oss://pai-local/names/", "MountPath": "/mnt/data"}],
        "JobSpecs": [{"Type": "Worker", "PodCount": 2, "Image": "python:3.11", "EcsSpec": "ecs.c6.large"}],
        "Settings": {"Tags": {"team": "x"}, "EnableErrorMonitoringInAIMaster": True},
        **fields,
    }
    backend = cast("Any", session.backend_for(None, "dlc"))
    jobs: DlcJobs = cast(DlcBackend, backend)._jobs
    return session.get_job(jobs.create_once(body).job_id or "").wait(show_logs=False)


def test_a_copy_of_a_job_of_the_console(session: Session) -> None:
    session.files().put_bytes(OssUri.parse("oss://pai-local/names/name"), b"x")
    first = console_job(session)
    plan = clone(first, environments={"GREETING": "goodbye"}, instance_count=1)
    body = plan.body
    assert body["DataSources"][0]["MountPath"] == "/mnt/data"
    assert body["Settings"]["EnableErrorMonitoringInAIMaster"] is True
    assert (body["UserCommand"], body["JobSpecs"][0]["PodCount"]) == (
        "echo $GREETING from $(cat /mnt/data/name)",
        1,
    )
    assert lines_of(finished(session, plan)) == ["goodbye from x"]
    assert lines_of(finished(session, clone(first, command="echo other"))) == ["other", "other"]
    with pytest.raises(InvalidInputError) as caught:
        clone(first, hyperparameters={"lr": 1}, outputs={"model": "oss://pai-local/m/"})
    assert [problem.where for problem in caught.value.problems] == ["hyperparameters", "outputs"]
    assert {each.name for each in differences(first.record, session.get_job(first.id).record)} == set()


def test_between_the_apis(session: Session, tmp_path: Path) -> None:
    (tmp_path / "rows.txt").write_text("3")
    expected = ["lr 0.5 --lr 0.5 --api_token abcdefgh 3 24", "rows 3 True"]
    first = estimator(session, tmp_path, api="trainingjob").fit({"rows": tmp_path / "rows.txt"}, show_logs=False)
    second = finished(session, clone(first, api="dlc", session=session))
    assert (second.id[:3], lines_of(second)) == ("dlc", expected)
    plan = clone(second, api="trainingjob", session=session)
    assert (plan.api, plan.warnings) == ("trainingjob", ())
    third = finished(session, plan)
    assert (third.id[:3] != "dlc", lines_of(third)) == (True, expected)
    assert {(each.group, each.name) for each in differences(first.record, third.record)} <= {
        ("result", "duration"),
        ("settings", "Settings.EnableOssAppend"),
    }


def test_what_a_training_job_cannot_have_is_named(session: Session) -> None:
    session.files().put_bytes(OssUri.parse("oss://pai-local/names/name"), b"x")
    with pytest.raises(InvalidInputError) as caught:
        clone(console_job(session, UserCommand="true"), api="trainingjob", session=session)
    assert {problem.where for problem in caught.value.problems} == {
        "DataSources./mnt/data.Uri",
        "DataSources./mnt/data.MountPath",
    }
    plan = clone(
        console_job(session, UserCommand="true", DataSources=None, SuccessPolicy="AllWorkers"),
        api="trainingjob",
        session=session,
    )
    assert "SuccessPolicy" in plan.warnings[0]


def test_a_saved_plan(session: Session, tmp_path: Path) -> None:
    (tmp_path / "rows.txt").write_text("3")
    job = estimator(session, tmp_path, idempotency_key="night-1").plan({"rows": tmp_path / "rows.txt"})
    session.backend_for(None, "dlc").upload(job)
    path = job.save(tmp_path / "plan.json")
    assert path.stat().st_mode & 0o77 == 0
    loaded = Plan.load(path)
    assert (loaded.body, loaded.api) == (job.body, "dlc")
    first = finished(session, loaded)
    assert lines_of(first) == ["lr 0.5 --lr 0.5 --api_token abcdefgh 3 24", "rows 3 True"]
    assert session.submit(Plan.load(path)).id == first.id
    assert session.submit(job).id == first.id
    other = estimator(session, tmp_path, idempotency_key="night-1").plan({"rows": tmp_path / "rows.txt"})
    assert session.submit(other).id == first.id


def test_commands_find_a_job_by_its_name(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pai_sdk._client.session.default._default", session)
    monkeypatch.setattr("pai_sdk.cli.selection.job_names._has_service", lambda: True)
    plan = estimator(session, tmp_path, source_dir=None).plan(job_name="by-name-only")
    job = session.submit(plan)
    assert find_job("by-name-only").id == job.id
    with pytest.raises(NotFoundError):
        find_job("by-no-name")


def test_a_saved_plan_becomes_one_job(session: Session, tmp_path: Path) -> None:
    plan = estimator(session, tmp_path, source_dir=None).plan()
    path = plan.save(tmp_path / "plan.json")
    with pytest.raises(InvalidInputError) as caught:
        session.submit(Plan.load(path))
    assert [problem.where for problem in caught.value.problems] == ["/ml/job"]
    session.submit(plan)
    with pytest.raises(InvalidInputError):
        session.submit(Plan.load(path))
