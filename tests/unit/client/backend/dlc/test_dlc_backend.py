"""Jobs of DLC through a session: exactly one of a plan, followed, stopped, changed."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from pai_sdk import Estimator, Secret, Session
from pai_sdk._client import submission
from pai_sdk._client.backend.base import Plan
from pai_sdk._client.backend.dlc.backend import DlcBackend
from pai_sdk._client.job.training_job import TrainingJob
from pai_sdk._client.submission import SubmissionPolicy
from pai_sdk.errors import ConnectionFailedError, InvalidInputError, InvalidRequestError, NotFoundError, PaiError
from tests.support.odd_dlc import FakeDlc, FakePod, Habits
from tests.unit.client.backend.dlc.conftest import Bucket


def estimator(session: Session, **parameters: Any) -> Estimator:
    return Estimator(
        "python:3.11",
        "python train.py",
        **{"instance_type": "ecs.c6.large", "session": session, "base_job_name": "train", **parameters},
    )


class TestSubmitting:
    def test_what_is_sent(self, session: Session, dlc: FakeDlc, bucket: Bucket) -> None:
        plan = estimator(session).plan()
        job = session.submit(plan)
        body = {key: value for key, value in dlc.jobs[job.id].items() if key in plan.body}
        assert body == plan.body
        assert (plan.api, job.id[:3]) == ("dlc", "dlc")
        sources = {source["MountPath"]: source for source in body["DataSources"]}
        assert {path: source["MountAccess"] for path, source in sources.items()} == {
            "/ml/job": "RO",
            "/ml/output/model": "RW",
            "/ml/output/checkpoints": "RW",
            "/ml/output/tensorboard": "RW",
        }
        assert sources["/ml/job"]["Uri"].startswith("oss://models.oss-cn-hangzhou-internal.aliyuncs.com/pai/")
        # The folders of outputs exist before they are mounted.
        name = plan.request.training_job_name
        assert sum(key.endswith("/") and name in key for key in bucket.objects) == 3
        assert any(key.endswith("/env.sh") for key in bucket.objects)

    def test_a_plan_shows_its_body(self, session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
        plan = estimator(session, environments={"HF_TOKEN": "secret-value"}).plan()
        assert '"DisplayName"' in str(plan)
        assert "secret-value" not in str(plan) + plan.to_json()
        assert plan.body["Envs"]["HF_TOKEN"] == "secret-value"

    def test_a_saved_plan_has_placeholders_of_secrets(
        self, session: Session, dlc: FakeDlc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        plan = estimator(session, environments={"HF_TOKEN": Secret("MY_TOKEN")}, labels={"team": "x"}).plan()
        path = plan.save(tmp_path / "plan.json")
        loaded = Plan.load(path)
        assert (loaded.body, loaded.api, loaded.loaded_from) == (plan.body, "dlc", path)
        monkeypatch.setattr(DlcBackend, "_check_uploaded", lambda *_: None)
        with pytest.raises(InvalidInputError) as caught:
            session.submit(loaded)
        assert [problem.where for problem in caught.value.problems] == ["environments['HF_TOKEN']"]
        monkeypatch.setenv("MY_TOKEN", "abcdefgh")
        job = session.submit(loaded)
        assert dlc.jobs[job.id]["Envs"]["HF_TOKEN"] == "abcdefgh"
        assert dlc.jobs[job.id]["WorkspaceId"] == "123"
        with pytest.raises(InvalidInputError):
            session.submit(Plan.load(path))
        assert len(dlc.jobs) == 1

    def test_bodies_in_files_that_cannot_be_sent(self, session: Session, tmp_path: Path) -> None:
        plan = estimator(session, environments={"A": "b"}).plan()
        masked = tmp_path / "masked.json"
        masked.write_text(plan.to_json())
        with pytest.raises(InvalidInputError) as caught:
            Plan.load(masked)
        assert "masked.json: Envs.A" in [problem.where for problem in caught.value.problems]
        wrong = tmp_path / "wrong.json"
        wrong.write_text(json.dumps({"DisplayName": "x", "JobSpecs": 3}))
        with pytest.raises(InvalidInputError) as caught:
            Plan.load(wrong)
        assert {problem.where.split(": ")[0] for problem in caught.value.problems} == {"wrong.json"}

    def test_the_argument_wins_over_the_settings(self, session: Session) -> None:
        assert estimator(session, api="trainingjob").plan().api == "trainingjob"
        with pytest.raises(InvalidInputError) as caught:
            estimator(session, api="dsw").plan()
        assert [problem.where for problem in caught.value.problems] == ["api"]

    def test_options_are_of_dlc_only(self, session: Session) -> None:
        with pytest.raises(InvalidInputError) as caught:
            estimator(session, api="trainingjob", dlc={"driver": "550"}).plan()
        assert [problem.where for problem in caught.value.problems] == ["dlc"]

    def test_an_unknown_option(self, session: Session) -> None:
        with pytest.raises(InvalidInputError) as caught:
            estimator(session, dlc={"driverr": "550"}).plan()
        assert [problem.where for problem in caught.value.problems] == ["dlc.driverr"]

    def test_checkpoints_of_a_running_job(self, session: Session, dlc: FakeDlc) -> None:
        first = estimator(session, checkpoints_path="oss://models/digits/").plan()
        job = session.submit(first)
        dlc.jobs[job.id]["Status"] = "Running"
        with pytest.raises(InvalidInputError) as caught:
            session.submit(estimator(session, checkpoints_path="oss://models/digits/").plan())
        assert [problem.where for problem in caught.value.problems] == ["checkpoints_path"]
        dlc.jobs[job.id]["Status"] = "Succeeded"
        session.submit(estimator(session, checkpoints_path="oss://models/digits/").plan())


@pytest.mark.parametrize("seed", range(30))
def test_never_two_jobs(session: Session, dlc: FakeDlc, seed: int) -> None:
    dlc.habits, dlc.chance = Habits.of(seed), random.Random(seed)
    # Other jobs of the same name are in the list, too.
    plan: Plan = estimator(session).plan()
    others = {dlc.add({"DisplayName": plan.request.training_job_name, "Envs": {"A": "b"}}) for _ in range(3)}
    backend = session.backend_for(None)
    job_id = None
    for _ in range(6):
        try:
            job_id = submission.submit(plan, backend, policy=SubmissionPolicy(), progress=False)
            break
        except PaiError as error:
            # A user submits the plan again. After a refusal that may be a lost create, it is searched for again.
            if not (error.may_pass or error.maybe_arrived):
                raise
    created = dlc.jobs.keys() - others
    assert created == {job_id}


def test_a_job_that_is_never_listed_is_named_by_its_key(session: Session, dlc: FakeDlc) -> None:
    dlc.habits = Habits(lost=1.0, list_lag_s=600.0)
    plan = estimator(session).plan()
    with pytest.raises(ConnectionFailedError) as caught:
        session.submit(plan)
    assert caught.value.maybe_arrived
    assert str(plan.request.label("pai-sdk-submission")) in str(caught.value)
    assert (dlc.calls.count("CreateJob"), len(dlc.jobs)) == (1, 1)
    # Later it is listed: the same plan is the same job.
    dlc.sleep(600)
    assert session.submit(plan).id in dlc.jobs
    assert len(dlc.jobs) == 1


class TestJobs:
    def test_a_job_by_its_id(self, session: Session, dlc: FakeDlc) -> None:
        job_id = dlc.add(
            {"DisplayName": "by-console", "JobType": "PyTorchJob", "UserCommand": "python a.py", "EcsSpec": ""},
            Status="EnvPreparing",
        )
        job = session.get_job(job_id)
        assert (job.name, job.status, job.record.dlc_status) == ("by-console", "Initializing", "EnvPreparing")
        assert job.record.algorithm_spec == {"JobType": "PyTorchJob", "Command": ["sh", "-c", "python a.py"]}
        with pytest.raises(NotFoundError):
            session.get_job("dlc0000000000000")

    def test_a_list(self, session: Session, dlc: FakeDlc) -> None:
        ids = [dlc.add({"DisplayName": f"train-{n}", "Settings": {"Tags": {"n": str(n)}}}) for n in range(5)]
        assert [job.id for job in session.list_jobs()] == ids[::-1]
        assert [job.id for job in session.list_jobs(skip=3, api="dlc")] == ids[1::-1]
        assert [job.id for job in TrainingJob.list(api="dlc", session=session)] == ids[::-1]
        page = TrainingJob.list(api="dlc", session=session, page_size=2, page_number=2)
        assert [job.id for job in page] == ids[2:0:-1]
        assert [job.id for job in session.list_jobs(labels={"n": "2"})] == [ids[2]]
        assert [job.id for job in session.list_jobs(name="-4", status="Creating")] == [ids[4]]
        assert [*session.list_jobs(status="CreateFailed")] == []

    def test_a_status_of_another_name(self, session: Session, dlc: FakeDlc) -> None:
        time = "2026-09-21T14:00:00Z"
        ends = {"GmtSuccessedTime": "Succeed", "GmtFailedTime": "Failed", "GmtStoppedTime": "Terminated"}
        for field, status in ends.items():
            job = session.get_job(
                dlc.add({"DisplayName": "a"}, Status="Over", GmtFinishTime=time, **{field: time})
            )
            assert (job.status, job.record.dlc_status) == (status, "Over")
            job.stop()  # the service refuses it, which is no error of a job that has ended
            job.delete()

    def test_stop(self, session: Session, dlc: FakeDlc) -> None:
        job = session.get_job(dlc.add({"DisplayName": "a"}))
        job.stop()
        assert (job.status, job.record.dlc_status) == ("Terminated", "Stopped")
        job.stop()  # it has ended: no error

    def test_a_stop_that_is_refused(self, session: Session, dlc: FakeDlc, monkeypatch: pytest.MonkeyPatch) -> None:
        job = session.get_job(dlc.add({"DisplayName": "a"}, Status="Succeeded"))
        dlc.refuses_stop_with = (409, "JobStateConflict")
        job.stop()
        dlc.jobs[job.id]["Status"] = "Running"
        refusal = InvalidRequestError("no", code="BadRequest", status_code=400, request_id="r")
        monkeypatch.setattr(dlc, "stop", lambda job_id: (_ for _ in ()).throw(refusal))
        with pytest.raises(InvalidRequestError):
            job.stop()

    def test_delete(self, session: Session, dlc: FakeDlc) -> None:
        job = session.get_job(dlc.add({"DisplayName": "a"}))
        with pytest.raises(InvalidInputError):
            job.delete()
        job.stop()
        job.delete()
        assert dlc.jobs == {}

    def test_a_change_of_the_priority(self, session: Session, dlc: FakeDlc) -> None:
        in_quota = session.get_job(dlc.add({"ResourceId": "quota1", "Priority": 1}, Status="Running"))
        in_quota.update(priority=5)
        assert in_quota.record.priority == 5
        with pytest.raises(InvalidInputError) as caught:
            session.get_job(dlc.add({"Priority": 1})).update(priority=5)
        assert [problem.where for problem in caught.value.problems] == ["priority"]
        in_quota.stop()
        with pytest.raises(InvalidInputError):
            in_quota.update(priority=6)

    @pytest.mark.parametrize("priority", ["a", "", "5", 0, 10, True, 2.5])
    def test_a_priority_that_is_none_is_not_sent(self, session: Session, dlc: FakeDlc, priority: Any) -> None:
        job = session.get_job(dlc.add({"ResourceId": "quota1", "Priority": 1}, Status="Running"))
        with pytest.raises(InvalidInputError) as caught:
            job.update(priority=priority)
        assert [problem.where for problem in caught.value.problems] == ["priority"]
        assert "UpdateJob" not in dlc.calls

    def test_a_job_that_ends_ends_the_wait_for_its_priority(
        self, session: Session, dlc: FakeDlc, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        job = session.get_job(dlc.add({"ResourceId": "quota1", "Priority": 1}, Status="Running"))
        monkeypatch.setattr(dlc, "update", lambda job_id, body: dlc.jobs[job_id].update(Status="Succeeded"))
        before_s = dlc.now_s
        with pytest.raises(InvalidInputError) as caught:
            job.update(priority=5)
        assert [problem.where for problem in caught.value.problems] == ["JOB"]
        assert dlc.now_s - before_s < 10

    def test_log_metrics_and_usage(self, session: Session, dlc: FakeDlc) -> None:
        submitter = estimator(session, metric_definitions=[{"name": "loss", "regex": "loss=([0-9.]+)"}])
        job = session.submit(submitter.plan(outputs={"tensorboard": "nas://fs.cn-hangzhou/tb/"}))
        pod = FakePod("uid", dlc.now_s)
        pod.write([(dlc.now_s + n, f"step {n} loss=0.{n}") for n in range(1, 4)], 0.0, dlc.chance)
        dlc.pods[f"{job.id}-master-0"] = [pod]
        dlc.jobs[job.id]["Status"] = "Succeeded"
        dlc.sleep(100)
        values = [(point.name, point.value) for point in job.metrics()]
        assert values == [("loss", 0.1), ("loss", 0.2), ("loss", 0.3)]
        assert [line.text for line in job.logs()] == [f"step {n} loss=0.{n}" for n in range(1, 4)]
        assert job.usage()[0].cpu_percent == 12.5
        assert job.events() == ["the job was queued", f"{job.id}-master-0 was scheduled"]
