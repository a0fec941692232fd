"""The queue of messages and its worker, with a clock of the test's own."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, select

from pai_sdk._data.notify.guard import AddressGuard
from pai_sdk._data.notify.targets import Target, Webhook, target_of
from pai_sdk._service.background.notifications import MAX_PER_MINUTE, NotificationWorker
from pai_sdk._service.services.jobs.changes import Changes
from pai_sdk._service.services.jobs.job_table import Jobs
from pai_sdk._service.services.jobs.queueing.submission import NewJob
from pai_sdk._service.services.notifications.queue import NotificationQueue
from pai_sdk._service.services.notifications.sealing import Sealer
from pai_sdk._service.state.database import Database
from pai_sdk._service.state.disk import DiskWatch
from pai_sdk._service.state.models import Event, NotifyTargetRow
from pai_sdk._wire.pai.request import TrainingJobRequest
from pai_sdk._wire.pai.status import JobStatus
from tests.service.postgres import url_for
from tests.service.services import job_body
from tests.support.waiting import until
from tests.unit.client.api.scripted_server import Reply, Reset, ScriptedServer

LOCAL = AddressGuard.of(["127.0.0.1"])


@dataclass
class Place:
    """A database with jobs, and a worker that runs when the test lets it."""

    folder: Path
    secret: str = "the key of the service"
    now: float = 1000.0
    guard: AddressGuard = LOCAL
    lines: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        url = url_for(self.folder)
        self.database = (
            Database.in_file(self.folder / "x.db")
            if url is None
            else Database(create_engine(url), display_name="x")
        )
        self.jobs = Jobs(self.database, Changes())
        self.begin()

    def begin(self, **changes: Any) -> None:
        """A worker that knows nothing of what an earlier one has sent, as after a restart."""
        for name, value in changes.items():
            setattr(self, name, value)
        self.queue = NotificationQueue(
            self.database,
            Sealer(self.secret),
            link_of=lambda job_id: f"http://page/{job_id}",
            now=lambda: self.now,
        )
        self.jobs.record_finish = self.queue.record_finish
        self.worker = NotificationWorker(
            self.queue,
            self.guard,
            add_event=self.jobs.add_event,
            read_lines=lambda job_id: self.lines,
            disk=DiskWatch(self.folder),
            now=lambda: self.now,
            jitter=lambda: 1.0,
        )

    def run(self, after_s: float = 0.0) -> None:
        self.now += after_s
        while self.queue.due_identities(self.now):
            self.worker.start_due()
            assert self.worker.join(60)

    def add(self, *targets: Target | str, name: str = "demo") -> str:
        request = TrainingJobRequest.model_validate(job_body(TrainingJobName=name))
        values = [target_of(target) for target in targets]
        return self.jobs.create(
            NewJob(
                request,
                "1",
                in_transaction=lambda session, job_id: self.queue.attach(session, values, job_id=job_id),
            )
        )

    def end(self, job_id: str, status: JobStatus = JobStatus.FAILED, **changes: Any) -> None:
        self.jobs.move(
            job_id, status, text="ended", reason_message="Memory ran out.", reason_code="Oom", **changes
        )

    def events(self, job_id: str) -> list[str]:
        with self.database.read() as session:
            texts = session.scalars(select(Event.text).where(Event.job_id == job_id).order_by(Event.number))
            return [text for text in texts if text.startswith("Notification")]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path)
    with closing(place.database):
        yield place


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    server = ScriptedServer()
    yield server
    server.close()


def test_the_end_of_a_job_is_announced_once(place: Place, server: ScriptedServer) -> None:
    job_id = place.add(f"{server.endpoint}/hook")
    place.run()
    assert server.asked == []
    place.lines = ["first", "last"]
    place.end(job_id)
    for _ in range(3):
        place.run(120)
    (request,) = server.asked
    message = request.json
    assert (message["job_id"], message["status"], message["code"]) == (job_id, "Failed", "JobFailed")
    assert (message["message"], message["reason_code"]) == ("Memory ran out.", "Oom")
    assert (message["url"], message["lines"]) == (f"http://page/{job_id}", ["first", "last"])
    assert place.events(job_id) == []
    place.worker.task.start()
    until(lambda: place.worker.is_idle)
    place.worker.close()


@pytest.mark.parametrize(
    ("status", "code"),
    [(JobStatus.SUCCEED, "JobSucceeded"), (JobStatus.FAILED, "JobFailed"), (JobStatus.TERMINATED, "JobStopped")],
)
def test_only_what_the_user_wants(place: Place, server: ScriptedServer, status: JobStatus, code: str) -> None:
    occasions = {"JobSucceeded": "succeeded", "JobFailed": "failed", "JobStopped": "stopped"}
    job_id = place.add(f"{server.endpoint}/other#on=watch", f"{server.endpoint}/it#on=watch,{occasions[code]}")
    place.end(job_id, status)
    place.run()
    assert [(request.path, request.json["code"]) for request in server.asked] == [("/it", code)]


def test_what_a_rule_detects(place: Place, server: ScriptedServer) -> None:
    job_id = place.add(f"{server.endpoint}/hook", f"{server.endpoint}/ends#on=failed")
    evidence = {"rank": 2, "lines": ["\x1b[1mstep 7"], "odd": object(), "huge": "x" * 100_000}
    assert place.queue.enqueue(job_id, "NoProgress", "No step for 10 min.", evidence) == 1
    assert place.queue.enqueue("missing", "NoProgress", "x") == 0
    place.run()
    (request,) = server.asked
    assert (request.json["code"], request.json["title"]) == ("NoProgress", "demo: NoProgress")
    assert request.json["lines"] == ["step 7"]
    assert request.json["evidence"]["rank"] == 2
    assert "huge" not in request.json["evidence"]


def test_a_repeated_create_adds_no_second_target(place: Place, server: ScriptedServer) -> None:
    job_id = place.add(f"{server.endpoint}/hook")
    with place.database.write() as session:
        place.queue.attach(session, [Webhook(f"{server.endpoint}/hook")], job_id=job_id)
    place.end(job_id)
    place.run()
    assert len(server.asked) == 1


def test_a_target_that_is_away_is_asked_again_ever_later(place: Place, server: ScriptedServer) -> None:
    server.script = [Reset, Reply({}, 503), Reply({}, 500), Reply({})]
    job_id = place.add(f"{server.endpoint}/hunter2")
    place.end(job_id)
    place.run()
    (event,) = place.events(job_id)
    assert event.startswith("NotificationDelayed")
    assert "hunter2" not in event
    pauses = [5.0, 10.0, 20.0]
    for count, pause_s in enumerate(pauses, start=1):
        place.run(pause_s - 0.1)
        assert len(server.asked) == count
        place.run(0.1)
        assert len(server.asked) == count + 1
    place.run(10_000)
    assert len(server.asked) == 4
    assert len(place.events(job_id)) == 1


def test_the_longest_pause_is_an_hour_and_a_day_is_enough(place: Place, server: ScriptedServer) -> None:
    server.script = [Reply({}, 503)]
    job_id = place.add(f"{server.endpoint}/hunter2")
    place.end(job_id)
    attempts = []
    for _ in range(60):
        before = len(server.asked)
        place.run()
        if len(server.asked) > before:
            attempts.append(place.now)
        next_at = place.queue.next_at()
        if next_at is None:
            break
        place.now = next_at
    pauses = [later - earlier for earlier, later in itertools.pairwise(attempts)]
    assert max(pauses) == 3600.0
    assert attempts[-1] - attempts[0] >= 24 * 3600
    assert [event.split(":")[0] for event in place.events(job_id)] == ["NotificationDelayed", "NotificationFailed"]
    assert "HTTP 503" in place.events(job_id)[-1]


def test_a_refusal_is_said_at_once(place: Place, server: ScriptedServer) -> None:
    server.script = [Reply({"errcode": 310000, "errmsg": "sign not match"})]
    job_id = place.add(f"dingtalk+{server.endpoint}/hunter2#secret=hunter2")
    place.end(job_id)
    place.run()
    place.run(10_000)
    assert len(server.asked) == 1
    (event,) = place.events(job_id)
    assert event.startswith("NotificationFailed")
    assert "[310000]" in event
    assert "hunter2" not in event


def test_retry_after_is_obeyed(place: Place, server: ScriptedServer) -> None:
    server.script = [Reply({}, 429, {"Retry-After": "400"}), Reply({})]
    job_id = place.add(f"{server.endpoint}/hook")
    place.end(job_id)
    place.run()
    place.run(399)
    assert len(server.asked) == 1
    place.run(1)
    assert len(server.asked) == 2


def test_new_messages_do_not_hurry_a_target_that_is_blocked(place: Place, server: ScriptedServer) -> None:
    server.script = [Reply({"errcode": 130101, "errmsg": "too fast"}), Reply({"errcode": 0})]
    url = f"dingtalk+{server.endpoint}/robot"
    place.end(place.add(url, name="first"))
    place.run()
    place.end(place.add(url, name="second"))
    place.run(599)
    assert len(server.asked) == 1
    place.run(1)
    texts = [request.json["markdown"]["title"] for request in server.asked]
    assert texts == ["first: Failed", "first: Failed", "second: Failed"]


def test_many_messages_are_folded(place: Place, server: ScriptedServer) -> None:
    count = 3 * MAX_PER_MINUTE
    jobs = [place.add(f"{server.endpoint}/hook", name=f"job{number}") for number in range(count)]
    for job_id in jobs:
        place.end(job_id)
    place.run()
    messages = [request.json for request in server.asked]
    assert len(messages) == MAX_PER_MINUTE
    assert [message["name"] for message in messages] == [f"job{number}" for number in range(MAX_PER_MINUTE)]
    assert messages[-1]["folded"] == count - MAX_PER_MINUTE
    assert f"job{MAX_PER_MINUTE}: Failed" in messages[-1]["message"]
    # Within the same minute, further ones wait; then they are one message.
    for number in range(3):
        place.end(place.add(f"{server.endpoint}/hook", name=f"late{number}"))
    place.run(30)
    assert len(server.asked) == MAX_PER_MINUTE
    place.run(30)
    assert [request.json["name"] for request in server.asked[MAX_PER_MINUTE:]] == ["late0", "late1", "late2"]


def test_one_target_does_not_use_the_rate_of_another(place: Place, server: ScriptedServer) -> None:
    for number in range(2 * MAX_PER_MINUTE):
        place.end(place.add(f"{server.endpoint}/{number % 2}", name=f"job{number}"))
    place.run()
    assert len(server.asked) == 2 * MAX_PER_MINUTE


def test_a_restart_delivers_what_was_queued_once(place: Place, server: ScriptedServer) -> None:
    first, second = place.add(f"{server.endpoint}/a"), place.add(f"{server.endpoint}/b")
    place.end(first)
    place.run()
    place.end(second)  # the service ends before it is sent
    place.begin()
    place.run()
    place.begin()
    place.run(100)
    assert sorted(request.json["job_id"] for request in server.asked) == sorted([first, second])
    assert len({request.json["id"] for request in server.asked}) == 2


def test_nothing_secret_is_in_the_database(place: Place, server: ScriptedServer, tmp_path: Path) -> None:
    targets: list[Target | str] = [
        Webhook(f"{server.endpoint}/hunter2-path", {"Authorization": "hunter2-header"}),
        f"dingtalk+{server.endpoint}/robot?access_token=hunter2-token#secret=hunter2-secret",
        "mailtos://hunter2-user:hunter2-password@example.com",
    ]
    place.end(place.add(*targets))
    with place.database.read() as session:
        rows = session.scalars(select(NotifyTargetRow)).all()
        assert len(rows) == 3
        assert "hunter2" not in repr([(row.sealed, row.identity, row.occasions) for row in rows])
    content = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert b"hunter2" not in content
    assert b"access_token" not in content


def test_another_key_of_the_service_reads_no_target(place: Place, server: ScriptedServer) -> None:
    job_id = place.add(f"{server.endpoint}/hook")
    place.end(job_id)
    place.begin(secret="another")
    place.run()
    assert server.asked == []
    assert place.events(job_id)[0].startswith("NotificationFailed")


def test_addresses_of_the_own_network_are_refused(place: Place, server: ScriptedServer) -> None:
    place.begin(guard=AddressGuard())
    job_id = place.add(f"{server.endpoint}/hook", "http://169.254.169.254/latest", "http://[::1]:9/")
    place.end(job_id)
    place.run()
    assert server.asked == []
    events = place.events(job_id)
    assert len(events) == 3
    assert all(event.startswith("NotificationFailed") and "--notify-allow" in event for event in events)


def test_a_deleted_job_takes_its_messages_along(place: Place, server: ScriptedServer) -> None:
    job_id = place.add(f"{server.endpoint}/hook")
    place.end(job_id)
    place.jobs.delete(job_id)
    place.run()
    assert (server.asked, place.queue.next_at()) == ([], None)


def test_a_rule_that_fires_without_end_fills_no_database(place: Place, server: ScriptedServer) -> None:
    job_id = place.add(f"{server.endpoint}/hook")
    counts = [place.queue.enqueue(job_id, "NaN", "again") for _ in range(300)]
    assert 150 < sum(counts) < 250


def test_equal_urls_with_other_headers_are_other_targets(place: Place, server: ScriptedServer) -> None:
    teams = ["red", "blue"]
    for number in range(4 * MAX_PER_MINUTE):
        hook = Webhook(f"{server.endpoint}/hook", {"Authorization": teams[number % 2]})
        place.end(place.add(hook, name=f"{teams[number % 2]}{number}"))
    place.run()
    for team in teams:
        messages = [request.json for request in server.asked if request.headers["authorization"] == team]
        assert len(messages) == MAX_PER_MINUTE
        assert all(message["name"].startswith(team) for message in messages)
        assert messages[-1]["folded"] == MAX_PER_MINUTE


def test_a_message_is_not_folded_into_one_with_a_wrong_secret(place: Place, server: ScriptedServer) -> None:
    server.script = [Reply({"errcode": 0})]
    for number in range(2 * MAX_PER_MINUTE):
        secret = "wrong" if number < MAX_PER_MINUTE else "right"
        place.end(place.add(f"dingtalk+{server.endpoint}/robot#secret={secret}", name=f"job{number}"))
    place.run()
    assert len(server.asked) == 2 * MAX_PER_MINUTE


def test_a_slow_target_does_not_delay_others(
    place: Place, server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, quick = threading.Event(), Webhook(f"{server.endpoint}/quick")
    deliver = Webhook.deliver

    def wait_or_deliver(target: Webhook, *arguments: Any) -> None:
        if "slow" in target.url:
            slow.wait(60)
        deliver(target, *arguments)

    monkeypatch.setattr(Webhook, "deliver", wait_or_deliver)
    monkeypatch.setattr("pai_sdk._service.background.notifications._CLOSE_S", 0.1)
    place.end(place.add(f"{server.endpoint}/slow"))
    place.worker.task.start()
    until(lambda: not place.queue.due_identities(place.now) or place.worker._threads)
    place.end(place.add(quick))
    place.worker.task.wake()
    until(lambda: server.asked)
    assert not place.worker.is_idle
    place.worker.close()  # ends, though a target does not respond
    assert [request.path for request in server.asked] == ["/quick"]
    slow.set()
    assert place.worker.join(60)


def test_a_target_is_sent_to_by_one_thread(place: Place, server: ScriptedServer) -> None:
    for number in range(3):
        place.end(place.add(f"{server.endpoint}/hook", name=f"job{number}"))
    for _ in range(5):
        place.worker.start_due()
    assert place.worker.join(60)
    assert [request.json["name"] for request in server.asked] == ["job0", "job1", "job2"]


def test_an_error_of_the_queue_in_a_thread_is_logged_and_tried_again(
    place: Place, server: ScriptedServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    failures = [OSError(28, "No space left on device")]
    pending = place.queue.pending

    def fail_once(*arguments: Any) -> Any:
        if failures:
            raise failures.pop()
        return pending(*arguments)

    place.worker.task._retry_s = 0.01
    monkeypatch.setattr(place.queue, "pending", fail_once)
    place.end(place.add(f"{server.endpoint}/hook"))
    place.worker.task.start()
    until(lambda: server.asked)
    place.worker.close()
    assert "tried again" in caplog.text
