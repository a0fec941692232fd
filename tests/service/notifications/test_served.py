"""Notifications of a real service: from `notify` of a job to the receiver, while no client waits."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, select, update
from typer.testing import CliRunner

from pai_sdk import Estimator, Webhook
from pai_sdk._service.state.models import Job, NotifyTargetRow
from pai_sdk.cli.root import app
from tests.service.fakes import ScriptedExecutor
from tests.service.postgres import url_for
from tests.service.schedules.test_schedule_routes import make_due, use
from tests.service.services import Client, job_body, session_on
from tests.support.waiting import until
from tests.unit.client.api.scripted_server import ScriptedServer

ALLOWED = ("127.0.0.1",)


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    server = ScriptedServer()
    yield server
    server.close()


def estimator(client: Client, command: str, *targets: Any) -> Estimator:
    return Estimator(
        "none", command, instance_type="ecs.c6.large", notify=targets, session=session_on(client.info)
    )


def test_a_failed_job_without_a_client(start: Callable[..., Any], server: ScriptedServer) -> None:
    with start(notify_allow=ALLOWED) as client:
        trainer = estimator(client, "echo hello; exit 3", f"{server.endpoint}/hunter2")
        plan = trainer.plan()
        assert "hunter2" not in str(plan) + plan.to_json() + json.dumps(plan.body)
        job = trainer.submit(plan)
        assert job.notifications == ()
        until(lambda: server.asked)
        client.until(job.id)
        assert "hunter2" not in json.dumps(client.get(f"/trainingjobs/{job.id}"))
        (request,) = server.asked
    message = request.json
    assert (message["job_id"], message["code"]) == (job.id, "JobFailed")
    assert "hello" in message["lines"]
    assert message["url"].startswith("http://")


def test_a_rerun_of_one_s_own_job_has_its_targets(start: Callable[..., Any], server: ScriptedServer) -> None:
    with start(notify_allow=ALLOWED) as client:
        first = client.create(job_body(Notifications=[{"Kind": "webhook", "Url": f"{server.endpoint}/hook"}]))
        client.until(first)
        body = {"token": "0" * 16}
        again, _ = (client.call("POST", f"/runs/{first}/rerun", body=body).json()["id"] for _ in range(2))
        client.until(again)
        until(lambda: len(server.asked) == 2)
    assert sorted(request.json["job_id"] for request in server.asked) == sorted([first, again])


def test_a_rerun_of_another_user_s_job_has_no_targets(
    start: Callable[..., Any], server: ScriptedServer, tmp_path: Path
) -> None:
    with start(notify_allow=ALLOWED) as client:
        first = client.create(job_body(Notifications=[{"Kind": "webhook", "Url": f"{server.endpoint}/hook"}]))
        client.until(first)
        until(lambda: server.asked)
        url = url_for(tmp_path / "data")
        engine = create_engine(f"sqlite:///{tmp_path}/data/service.db" if url is None else url)
        with engine.begin() as connection:
            connection.execute(update(Job).values(owner="another"))
        again = client.call("POST", f"/runs/{first}/rerun", body={"token": "0" * 16}).json()["id"]
        client.until(again)
        with engine.begin() as connection:
            assert connection.execute(select(NotifyTargetRow.job_id)).scalars().all() == [first]
        engine.dispose()


def test_targets_of_the_user_s_own_classes_stay_with_the_client(
    start: Callable[..., Any], server: ScriptedServer
) -> None:
    class Mine:
        def __init__(self) -> None:
            self.messages: list[Any] = []

        def send(self, message: Any, /) -> None:
            self.messages.append(message)

    mine = Mine()
    with start(notify_allow=ALLOWED) as client:
        trainer = estimator(client, "true", Webhook(f"{server.endpoint}/a"), mine)
        job = trainer.submit(trainer.plan(), wait=True, show_logs=False)
        assert [message["job_id"] for message in mine.messages] == [job.id]
        until(lambda: server.asked)
    assert [request.json["code"] for request in server.asked] == ["JobSucceeded"]


def test_a_private_address_is_refused_by_a_service_for_all(
    start: Callable[..., Any], server: ScriptedServer
) -> None:
    with start() as client:
        job_id = client.create(job_body(Notifications=[{"Kind": "webhook", "Url": f"{server.endpoint}/hunter2"}]))
        client.until(job_id)

        def refusals() -> list[str]:
            events = client.get(f"/trainingjobs/{job_id}/events", PageSize=100)["Events"]
            return [event for event in events if "NotificationFailed" in event]

        (event,) = until(refusals)
    assert "hunter2" not in event
    assert server.asked == []


def test_an_embedded_service_may_reach_its_own_machine(start: Callable[..., Any], server: ScriptedServer) -> None:
    with start(embedded=True) as client:
        client.until(client.create(job_body(Notifications=[{"Kind": "webhook", "Url": server.endpoint}])))
        until(lambda: server.asked)


@pytest.mark.parametrize(
    "value",
    [
        *("https://a", {"Kind": "webhook"}, [{"Kind": "pigeon", "Url": "https://a"}], [{"Url": "https://a"}]),
        *(
            [{"Kind": "webhook", "Url": "ftp://hunter2"}],
            [{"Kind": "webhook", "Url": "https://a", "On": ["never"]}],
        ),
        *([{"Kind": "webhook", "Url": "https://a"}] * 11, [7]),
    ],
)
def test_wrong_targets(service: Client, value: Any) -> None:
    answer = service.call("POST", "/trainingjobs", body=job_body(Notifications=value))
    assert (answer.status_code, answer.json()["Code"]) == (400, "InvalidParameter")
    assert "hunter2" not in answer.text


def test_a_restart_sends_what_was_queued(
    start: Callable[..., Any], server: ScriptedServer, tmp_path: Path
) -> None:
    executor = ScriptedExecutor()
    with start(executor) as client:
        job_id = client.create(job_body(Notifications=[{"Kind": "webhook", "Url": f"{server.endpoint}/hunter2"}]))
        client.until(job_id, "Running")
    executor.fail(tmp_path / "data" / "jobs" / job_id, f"{job_id}-master-0", 1)
    with start(executor, notify_allow=ALLOWED) as client:
        client.until(job_id)
        until(lambda: server.asked)
    with start(executor, notify_allow=ALLOWED) as client:
        client.until(job_id)
    assert [request.json["job_id"] for request in server.asked] == [job_id]
    files = [path for path in (tmp_path / "data").rglob("*") if path.is_file()]
    assert not [path for path in files if b"hunter2" in path.read_bytes()]


def test_a_schedule_hands_its_targets_to_its_jobs(
    start: Callable[..., Any], server: ScriptedServer, tmp_path: Path
) -> None:
    executor = ScriptedExecutor()
    with start(executor, notify_allow=ALLOWED) as client:
        session = session_on(client.info)
        trainer = Estimator(
            "none", "true", instance_type="ecs.c6.large", notify=[f"{server.endpoint}/hunter2"], session=session
        )
        schedule = session.schedules.create("nightly", "0 0 29 2 *", trainer.plan())
        shown = client.get(f"/schedules/{schedule.schedule_id}")
        assert "hunter2" not in json.dumps(shown)
        assert "Notifications" not in shown["Request"]
    make_due(tmp_path / "data")
    with start(executor, notify_allow=ALLOWED) as client:
        (job_id,) = until(lambda: executor.running)
        executor.succeed(tmp_path / "data" / "jobs" / job_id)
        client.until(job_id)
        until(lambda: server.asked)
    assert [request.json["job_id"] for request in server.asked] == [job_id]


def test_a_schedule_says_when_it_creates_no_job(
    start: Callable[..., Any], server: ScriptedServer, tmp_path: Path
) -> None:
    executor = ScriptedExecutor()
    target = [{"Kind": "webhook", "Url": f"{server.endpoint}/hook"}]
    with start(executor, notify_allow=ALLOWED) as client:
        body = {"Name": "nightly", "Cron": "0 0 29 2 *", "Request": job_body(Notifications=target)}
        assert client.call("POST", "/schedules", body=body).status_code == 200
    make_due(tmp_path / "data")
    with start(executor, notify_allow=ALLOWED):
        until(lambda: executor.running)
    make_due(tmp_path / "data")
    with start(executor, notify_allow=ALLOWED):
        until(lambda: server.asked)
    assert [request.json["code"] for request in server.asked] == ["ScheduleMissed"]


def test_the_command_line(
    start: Callable[..., Any], server: ScriptedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with start(notify_allow=ALLOWED) as client:
        use(client, monkeypatch)
        command = ["run", "--image", "none", "--command", "true", "-t", "ecs.c6.large", "--no-wait"]
        done = CliRunner().invoke(app, [*command, "--notify", f"{server.endpoint}/hunter2"])
        assert done.exit_code == 0, done.output
        assert "hunter2" not in done.output
        until(lambda: server.asked)
        dry = CliRunner().invoke(app, [*command, "--dry-run", "--notify", f"{server.endpoint}/hunter2"])
        assert "hunter2" not in dry.output
    assert server.asked[0].json["code"] == "JobSucceeded"
