"""Who holds what, who waits and why, as users and administrators read it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pai_sdk._service.services.jobs.queueing.queue import WaitingReason
from pai_sdk._service.services.jobs.queueing.waiting import QueueReader, WaitingJob
from pai_sdk._wire.resources.queue import QueueState
from pai_sdk.cli.instances.queue_tables import queue_tables
from pai_sdk.cli.selection.backend import session_on
from tests.service.fakes import ScriptedExecutor
from tests.service.identity.test_quotas import asking, events, set_quota, succeed
from tests.service.identity.test_two_users import user
from tests.service.services import Client, job_body
from tests.support.waiting import until


@pytest.fixture
def executor() -> ScriptedExecutor:
    return ScriptedExecutor()


@pytest.fixture
def operator(start: Callable[..., Any], executor: ScriptedExecutor) -> Iterator[Client]:
    with start(executor, slots=2, cpus=8) as client:
        yield client


def reasons(client: Client) -> dict[str, str]:
    return {job["id"]: job["code"] for job in client.get("/queue")["queued"]}


def test_a_page_of_the_list_has_the_reasons_of_its_own_jobs(
    operator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = QueueReader.reason
    asked: list[str] = []

    def reason(self: QueueReader, job: WaitingJob) -> WaitingReason:
        asked.append(job.id)
        return read(self, job)

    first = operator.create(asking(8))
    operator.until(first, "Running")
    waiting = [operator.create(asking(8)) for _ in range(3)]
    until(lambda: operator.get("/runs", fields="status")["total"] == 4)
    monkeypatch.setattr(QueueReader, "reason", reason)
    (row,) = operator.get("/runs", fields="queue_place", sort="-created", limit=1)["runs"]
    assert (row["id"], row["queue_place"], asked) == (waiting[2], 3, [waiting[2]])


def test_each_waiting_job_has_its_place_and_its_reason(operator: Client, executor: ScriptedExecutor) -> None:
    alice, bob = user(operator, "alice"), user(operator, "bob")
    set_quota(operator, "alice", RunningJobs=1)
    first, second, third = (alice.create(asking(2)) for _ in range(3))
    alice.until(first, "Running")
    large, small = bob.create(asking(8)), bob.create(asking(1))
    until(lambda: reasons(operator).get(large) == "Capacity")
    assert reasons(operator) == {second: "Quota", third: "EarlierJobs", large: "Capacity", small: "EarlierJobs"}
    queued = {job["id"]: job for job in operator.get("/queue")["queued"]}
    assert [queued[each]["position"] for each in (second, third, large, small)] == [1, 2, 1, 2]
    assert queued[large]["needs"] == {"instances": 1, "cpus": 8.0, "memory_gib": 1.0, "gpus": 0}
    # The event, the job's page, the list and the command have one text.
    text = queued[large]["reason"]
    assert "8 CPUs (6 of 8 are free)" in text
    until(lambda: text in events(bob, large), "the event")
    assert bob.get(f"/runs/{large}/job")["message"] == text
    (row,) = until(lambda: bob.get("/runs", filter=f"id={json.dumps(large)}", fields="queue_place")["runs"])
    assert (row["queue_place"], row["waits_for"]) == (1, text)
    reason = session_on(bob.info).get_job(large).waiting_reason()
    assert reason is not None
    assert reason.reason == text
    succeed(alice, executor, first)
    bob.until(large, "Running")
    until(lambda: reasons(operator).get(second) == "Capacity")


def test_a_user_with_the_larger_share_waits_for_their_turn(operator: Client, executor: ScriptedExecutor) -> None:
    alice, bob = user(operator, "alice"), user(operator, "bob")
    running = [alice.create(job_body()) for _ in range(2)]
    for job_id in running:
        alice.until(job_id, "Running")
    of_alice, of_bob = alice.create(job_body()), bob.create(job_body())
    until(lambda: reasons(operator).get(of_bob) == "Capacity")
    assert reasons(operator) == {of_alice: "Turn", of_bob: "Capacity"}
    users = {each["user"]: each for each in operator.get("/queue")["users"]}
    assert users["alice"]["share"] >= 1 > users["bob"]["share"] == 0
    assert (users["alice"]["running"], users["alice"]["queued"], users["bob"]["queued"]) == (2, 1, 1)


def test_others_jobs_and_shares_are_hidden(operator: Client, executor: ScriptedExecutor) -> None:
    alice, bob = user(operator, "alice"), user(operator, "bob")
    before = bob.get("/queue")
    job_id = alice.create(asking(3, TrainingJobName="secret-of-alice"))
    alice.until(job_id, "Running")
    waiting = alice.create(asking(8, TrainingJobName="another-of-alice"))
    until(lambda: waiting in reasons(alice))
    assert bob.get("/queue") == before
    assert before["user"] == "bob"
    assert [each["user"] for each in before["users"]] == ["bob"]
    own = alice.get("/queue")
    assert [each["name"] for each in own["started"]] == ["secret-of-alice"]
    assert {each["resource"]: each["used"] for each in own["capacity"]}["cpus"] == 3
    everything = operator.get("/queue")
    assert [each["user"] for each in everything["users"]][:1] == ["alice"]
    assert everything["started"] == own["started"]


def test_the_command_shows_the_figures_of_the_route(operator: Client, executor: ScriptedExecutor) -> None:
    job_id = operator.create(asking(2, count=2))
    operator.until(job_id, "Running")
    operator.create(asking(8))
    until(lambda: "Capacity" in reasons(operator).values())
    state = session_on(operator.info).runs.queue()
    assert state.started == QueueState.model_validate(operator.get("/queue")).started
    capacity, users, started, queued = [[*map(list, table.rows)] for table in queue_tables(state, 0)]
    assert capacity[:2] == [["instances", "2", "2"], ["cpus", "4", "8"]]
    assert users[0][3:6] == ["1", "1", "4"]
    assert [row[2] for row in started] == ["master-0", "worker-0"]
    assert queued[0][-1] == operator.get("/queue")["queued"][0]["reason"]
