"""A plan: the exact request, without network; printed, saved, loaded, and submitted as it is, once."""

from __future__ import annotations

import json
import socket
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from pai_sdk import Estimator, Secret, Session
from pai_sdk._client.backend.base import Plan
from pai_sdk._client.submission import submit
from pai_sdk._wire.masking import public_request
from pai_sdk._wire.pai.request import SUBMISSION_LABEL, TrainingJobRequest
from pai_sdk.errors import ConnectionFailedError, InvalidInputError
from tests.support.fake_backend import FakeBackend
from tests.support.messages import refused
from tests.unit.client.api.scripted_server import Asked, Reply, ScriptedServer, oss_listing


class Cloud:
    """PAI's API and OSS in one: keeps the objects put there, and the bodies of the jobs created."""

    def __init__(self) -> None:
        self.server = ScriptedServer()
        self.server.answer = self._answer
        self.objects: dict[str, bytes] = {}
        self.bodies: list[bytes] = []

    def session(self) -> Session:
        where = self.server.endpoint
        return Session(
            "cn-x",
            "7",
            oss_bucket_name="models",
            endpoint=where,
            oss_endpoint=where,
            access_key_id="i",
            access_key_secret="s",
        )

    def _answer(self, asked: Asked) -> Reply:
        if asked.path == "/api/v1/trainingjobs" and asked.method == "POST":
            self.bodies.append(asked.body)
            return Reply({"TrainingJobId": f"train{len(self.bodies)}"})
        if asked.path == "/api/v1/trainingjobs":
            wanted = json.loads(asked.query.get("Labels", "{}")).items()
            jobs = [
                {"TrainingJobId": f"train{number}", "Labels": labels}
                for number, labels in enumerate((json.loads(body)["Labels"] for body in self.bodies), 1)
                if wanted <= {label["Key"]: label["Value"] for label in labels}.items()
            ]
            return Reply({"TrainingJobs": jobs, "TotalCount": len(jobs)})
        if asked.path.startswith("/api/"):
            return Reply({"TrainingJobId": asked.path.rpartition("/")[2], "Status": "Running"})
        if "list-type" in asked.query:
            keys = {unquote(path).removeprefix("/models/"): len(content) for path, content in self.objects.items()}
            return oss_listing({key: size for key, size in keys.items() if key.startswith(asked.query["prefix"])})
        if asked.method == "PUT":
            self.objects[asked.path] = asked.body
        found = asked.path in self.objects
        content = b"" if asked.method == "PUT" else self.objects.get(asked.path, b"")
        headers = {"ETag": '"x"', "x-oss-request-id": "r", "Last-Modified": "Sat, 21 Nov 2026 00:00:00 GMT"}
        return Reply(content, 200 if found else 404, headers=headers)


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    cloud = Cloud()
    yield cloud
    cloud.server.close()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text("print(1)")
    (tmp_path / "ü data.csv").write_text("1,2")
    return tmp_path


def make_plan(session: Session, source: Path) -> Plan:
    trainer = Estimator(
        "img",
        "python train.py",
        str(source / "src"),
        environments={"TOKEN": "hush", "WHO": "é"},
        labels={"team": "a"},
        instance_type="ecs.x",
        session=session,
    )
    return trainer.plan({"train": source / "ü data.csv"})


def problems_of(call: Any) -> dict[str, str]:
    with pytest.raises(InvalidInputError) as caught:
        call()
    return {problem.where: f"{problem.what} ({problem.hint})" for problem in caught.value.problems}


def test_a_plan_needs_no_network(cloud: Cloud, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session = cloud.session()

    def refuse(*args: Any, **named: Any) -> None:
        raise AssertionError("the network was used")

    for name in ("socket", "create_connection", "getaddrinfo"):
        monkeypatch.setattr(socket, name, refuse)
    plan = make_plan(session, source)
    assert len(plan.uploads) == 2
    assert cloud.server.asked == []


def test_exactly_what_was_planned_is_sent(cloud: Cloud, source: Path) -> None:
    session = cloud.session()
    plan = make_plan(session, source)
    shown = json.loads(plan.to_json())
    job = session.submit(plan)
    assert job.id == "train1"
    assert cloud.bodies == [plan.request.to_json().encode()]
    assert json.loads(cloud.bodies[0]) == shown


def test_what_is_printed_keeps_secrets(cloud: Cloud, source: Path) -> None:
    plan = make_plan(cloud.session(), source)
    shown, _, uploads = str(plan).partition("\nupload: ")
    assert json.loads(shown)["Environments"] == {"TOKEN": "******", "WHO": "******"}
    assert json.loads(shown)["AlgorithmSpec"] == plan.request.to_wire()["AlgorithmSpec"]
    assert str(source / "src") in uploads
    assert plan.request.training_job_name in repr(plan)
    assert "hush" not in str(plan) + repr(plan) + repr(plan.request)
    assert "hush" in plan.to_json()


def test_temporary_keys_are_no_less_secret() -> None:
    person = {"Id": "me", "AccessKeyId": "hush", "SecurityToken": "hush"}
    body = {
        "TrainingJobName": "n",
        "ComputeResource": {},
        "CredentialConfig": {"CredentialConfigItems": [{"Roles": [{"AssumeUserInfo": person}]}]},
    }
    plan = Plan(TrainingJobRequest.model_validate(body))
    assert "hush" not in str(plan) + repr(plan)
    assert "hush" in plan.to_json()


def test_a_plan_becomes_one_job(cloud: Cloud, source: Path) -> None:
    session = cloud.session()
    plan = make_plan(session, source)
    session.submit(plan)
    reported = problems_of(lambda: session.submit(plan))
    assert reported == {
        "plan": "was submitted already, as job train1 "
        "(plan again for another job: it gets a name and output folders of its own)"
    }
    assert len(cloud.bodies) == 1
    again = make_plan(session, source)
    session.submit(again)
    assert again.request.output_channels != plan.request.output_channels


def test_many_threads_make_one_job_of_a_plan(cloud: Cloud, source: Path) -> None:
    session = cloud.session()
    plan = make_plan(session, source)
    outcomes: list[str] = []

    def try_it() -> None:
        try:
            outcomes.append(session.submit(plan).id)
        except InvalidInputError:
            outcomes.append("refused")

    threads = [threading.Thread(target=try_it) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["refused"] * 4 + ["train1"]


def test_a_plan_that_could_not_be_sent_can_be_sent_later(source: Path) -> None:
    cloud = Cloud()
    session = cloud.session()
    plan = make_plan(session, source)

    class Unreachable(FakeBackend):
        def create(self, plan: Plan, *, progress: bool = True) -> str:
            raise ConnectionFailedError("connection refused", endpoint="there")

    with pytest.raises(ConnectionFailedError):
        submit(plan, Unreachable())
    assert session.submit(plan).id == "train1"
    cloud.server.close()


def test_a_saved_plan_is_loaded_and_sent_byte_by_byte(cloud: Cloud, source: Path, tmp_path: Path) -> None:
    session = cloud.session()
    plan = make_plan(session, source)
    session.submit(make_plan(session, source))  # the same code, so it is in OSS
    loaded = Plan.load(plan.save(tmp_path / "plan.json"))
    assert loaded.request == plan.request
    session.submit(loaded)
    assert cloud.bodies[1] == plan.request.to_json().encode()


def test_a_loaded_plan_whose_files_are_not_in_oss_says_so(cloud: Cloud, source: Path, tmp_path: Path) -> None:
    session = cloud.session()
    path = make_plan(session, source).save(tmp_path / "plan.json")
    reported = problems_of(lambda: session.submit(Plan.load(path)))
    assert {*reported} == {"source_dir", "inputs['train']"}
    for text in reported.values():
        assert "its files are not in oss://models/pai/" in text
        assert "submit the plan where it was created, or create it again" in text
    assert cloud.bodies == []


def test_a_loaded_plan_whose_files_were_deleted_since_says_so(cloud: Cloud, source: Path, tmp_path: Path) -> None:
    session = cloud.session()
    path = make_plan(session, source).save(tmp_path / "plan.json")
    session.submit(make_plan(session, source))
    for key in [key for key in cloud.objects if key.endswith("train.py")]:
        del cloud.objects[key]
    reported = problems_of(lambda: session.submit(Plan.load(path)))
    assert {*reported} == {"source_dir"}
    assert len(cloud.bodies) == 1


def test_a_loaded_plan_that_another_process_submitted_is_refused(
    cloud: Cloud, source: Path, tmp_path: Path
) -> None:
    plan = make_plan(cloud.session(), source)
    path = plan.save(tmp_path / "plan.json")
    cloud.session().submit(plan)
    assert (
        "was submitted already, as job train1"
        in problems_of(lambda: cloud.session().submit(Plan.load(path)))["plan"]
    )
    assert len(cloud.bodies) == 1


def test_a_body_of_any_origin_can_be_loaded(cloud: Cloud, tmp_path: Path) -> None:
    body = {"TrainingJobName": "n", "AlgorithmName": "a", "ComputeResource": {"EcsSpec": "ecs.x", "EcsCount": 1}}
    (tmp_path / "body.json").write_text(json.dumps(body))
    session = cloud.session()
    session.submit(Plan.load(tmp_path / "body.json"))
    (sent,) = map(json.loads, cloud.bodies)
    assert (sent["TrainingJobName"], sent["WorkspaceId"]) == ("n", "7")
    assert [label["Key"] for label in sent["Labels"]] == [SUBMISSION_LABEL]


@pytest.mark.parametrize(
    ("content", "reported"),
    [
        (None, {"No such file"}),
        ("{", {"is not JSON"}),
        ("[]", {"expected a mapping, got a list"}),
        ('{"TrainingJobName": "n", "ComputResource": {}}', {"did you mean 'ComputeResource'", "is required"}),
    ],
)
def test_a_file_that_is_no_plan_says_what_is_wrong(
    tmp_path: Path, content: str | None, reported: set[str]
) -> None:
    path = tmp_path / "plan.json"
    if content is not None:
        path.write_text(content)
    texts = [f"{where}: {text}" for where, text in problems_of(lambda: Plan.load(path)).items()]
    assert len(texts) == len(reported)
    assert all("plan.json" in text for text in texts)
    assert all(any(words in text for text in texts) for words in reported)


def test_a_file_that_is_no_plan_is_not_quoted(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text('{"TrainingJobName": "n", "ComputeResource": {"EcsSpec": "x"}, "Environments": "TOKEN=hush"}')
    with pytest.raises(InvalidInputError) as caught:
        Plan.load(path)
    assert [problem.where for problem in caught.value.problems] == ["plan.json.Environments"]
    assert "hush" not in "".join(traceback.format_exception(caught.value))


def test_a_plan_warns_of_a_pipe_that_hides_a_failure(cloud: Cloud, caplog: pytest.LogCaptureFixture) -> None:
    estimator = Estimator(
        "image", "python train.py | tee log", instance_type="ecs.c6.large", session=cloud.session()
    )
    plan = estimator.plan()
    assert "warning: `python train.py | tee log` hides a failure" in str(plan)
    assert "pipefail" in str(plan)
    estimator.submit(plan, show_logs=False)
    assert plan.warnings[0] in caplog.text
    estimator.command = "set -o pipefail; python train.py | tee log"
    assert estimator.plan().warnings == ()


def test_a_plan_for_processes_says_that_the_image_is_not_used(cloud: Cloud) -> None:
    session = cloud.session()
    estimator = Estimator("python:3.11", "true", instance_type="ecs.c6.large", session=session)
    assert estimator.plan().notes == ()
    session = estimator.session = cloud.session()
    session._backends.connection.uses_images = False  # as `Session.embedded()` does
    assert "note: Jobs run as processes, not in containers: the image 'python:3.11' is not used" in str(
        estimator.plan()
    )
    estimator.instance_type = "local"
    assert estimator.plan().notes == ()


def test_processes_of_a_machine_need_no_instance_type(cloud: Cloud) -> None:
    estimator = Estimator("python:3.11", "true", session=cloud.session())
    with refused(InvalidInputError, "instance_type"):
        estimator.plan()
    session = estimator.session = cloud.session()
    session._backends.connection.uses_images = False  # as `Session.embedded()` does
    assert estimator.plan().request.to_wire()["ComputeResource"]["EcsSpec"] == "ecs.c6.large"
    assert estimator.instance_type is None


def test_a_secret_is_in_the_request_that_is_sent_and_nowhere_else(
    cloud: Cloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("MY_TOKEN", "hunter2")
    caplog.set_level("DEBUG")
    estimator = Estimator(
        "image",
        "python train.py --api-key hunter2",
        hyperparameters={"db_password": "hunter2", "lr": 0.1},
        environments={"HF_TOKEN": Secret("MY_TOKEN"), "PLAIN": "1"},
        instance_type="ecs.c6.large",
        session=cloud.session(),
    )
    plan = estimator.plan()
    shown = [
        str(plan),
        repr(plan),
        plan._repr_html_(),
        repr(plan.request),
        repr(estimator),
        json.dumps(public_request(plan.request)),  # as in training-job.json
    ]
    assert not [text for text in shown if "hunter2" in text]
    assert '"0.1"' in str(plan)
    environments = json.loads(plan.save(tmp_path / "plan.json").read_text())["Environments"]
    assert environments == {"HF_TOKEN": "${secret:MY_TOKEN}", "PLAIN": "1"}
    job = estimator.submit(Plan.load(tmp_path / "plan.json"), show_logs=False)
    sent = json.loads(cloud.bodies[0])
    assert sent["Environments"] == {"HF_TOKEN": "hunter2", "PLAIN": "1"}
    assert {each["Name"]: each["Value"] for each in sent["HyperParameters"]}["db_password"] == "hunter2"
    assert "hunter2" not in repr(job) + caplog.text


def test_a_secret_that_is_not_set_is_missed_before_anything_is_sent(cloud: Cloud) -> None:
    estimator = Estimator(
        "image",
        "true",
        environments={"HF_TOKEN": Secret("NOT_SET_ANYWHERE")},
        instance_type="ecs.c6.large",
        session=cloud.session(),
    )
    plan = estimator.plan()
    with refused(InvalidInputError, "environments['HF_TOKEN']"):
        estimator.submit(plan)
    assert cloud.bodies == []
