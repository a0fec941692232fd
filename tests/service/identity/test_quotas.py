"""Quotas of users, and the queue between users, on a service."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event, insert
from typer.testing import CliRunner

from pai_sdk._client.api.training_jobs import TrainingJobs
from pai_sdk._service.services.jobs.changes import Changes
from pai_sdk._service.services.jobs.host_resources import Capacity
from pai_sdk._service.services.jobs.job_table import Jobs
from pai_sdk._service.services.jobs.queueing.queue import FairQueue
from pai_sdk._service.state.database import Database
from pai_sdk._service.state.models import Job, UseRow
from pai_sdk._wire.pai.status import JobStatus
from pai_sdk.cli.root import app
from pai_sdk.cli.selection.backend import session_on
from pai_sdk.errors import InvalidInputError, UserQuotaError
from tests.service.fakes import ScriptedExecutor
from tests.service.identity.test_two_users import user
from tests.service.services import Client, job_body
from tests.support.messages import refused
from tests.support.waiting import until


@pytest.fixture
def executor() -> ScriptedExecutor:
    return ScriptedExecutor()


@pytest.fixture
def operator(start: Callable[..., Any], executor: ScriptedExecutor) -> Iterator[Client]:
    with start(executor, slots=2) as client:
        yield client


def asking(cpus: int, gpus: int = 0, count: int = 1, **fields: Any) -> dict[str, Any]:
    spec = {"CPU": str(cpus), "GPU": str(gpus), "Memory": "1"}
    return job_body(ComputeResource={"InstanceCount": count, "InstanceSpec": spec}, **fields)


def set_quota(operator: Client, name: str, **limits: Any) -> None:
    answer = operator.call("PUT", f"/users/{name}/quota", body=limits)
    assert answer.status_code == 200, answer.text


def succeed(client: Client, executor: ScriptedExecutor, job_id: str) -> None:
    client.until(job_id, "Running")
    executor.succeed(client.info.data_dir / "jobs" / job_id)
    client.until(job_id)


def events(client: Client, job_id: str) -> list[str]:
    return [line.partition(" ")[2] for line in client.get(f"/trainingjobs/{job_id}/events")["Events"]]


def test_the_only_job_of_a_user_begins_before_the_hundred_of_another(
    start: Callable[..., Any], executor: ScriptedExecutor
) -> None:
    with start(executor, slots=1) as operator:
        alice, bob = user(operator, "alice"), user(operator, "bob")
        many = [alice.create(job_body()) for _ in range(100)]
        alice.until(many[0], "Running")
        only = bob.create(job_body())
        assert "behind" not in events(bob, only)[0]
        succeed(alice, executor, many[0])
        succeed(bob, executor, only)
        succeed(alice, executor, many[1])
        assert executor.begun[:3] == [many[0], only, many[1]]


def test_a_high_priority_is_before_own_jobs_only(start: Callable[..., Any], executor: ScriptedExecutor) -> None:
    with start(executor, slots=1) as operator:
        alice, bob = user(operator, "alice"), user(operator, "bob")
        first = alice.create(job_body())
        alice.until(first, "Running")
        low, high = alice.create(job_body()), alice.create(job_body(Priority=1000))
        of_bob = bob.create(job_body(Priority=-1000))
        for client, job_id in ((alice, first), (bob, of_bob), (alice, high), (alice, low)):
            succeed(client, executor, job_id)
        assert executor.begun == [first, of_bob, high, low]


def test_a_user_at_their_quota_waits_alone_and_the_job_says_for_what(
    operator: Client, executor: ScriptedExecutor
) -> None:
    alice, bob = user(operator, "alice"), user(operator, "bob")
    set_quota(operator, "alice", RunningJobs=1)
    first, second = alice.create(job_body()), alice.create(job_body())
    alice.until(first, "Running")
    text = "The job waits for the quota of user 'alice': 1 running job (0 of 1 are free)."
    until(lambda: text in events(alice, second))
    of_bob = bob.create(job_body())
    bob.until(of_bob, "Running")
    assert alice.get(f"/trainingjobs/{second}")["Status"] == "Submitted"
    succeed(alice, executor, first)
    alice.until(second, "Running")
    assert events(alice, second).count(text) == 1


def test_a_job_that_a_lowered_quota_does_not_allow_says_so(operator: Client, executor: ScriptedExecutor) -> None:
    alice = user(operator, "alice")
    set_quota(operator, "alice", CPUs=2)
    first, second = alice.create(asking(2)), alice.create(asking(2))
    alice.until(first, "Running")
    until(lambda: any("waits for the quota" in text for text in events(alice, second)))
    set_quota(operator, "alice", CPUs=1)
    text = "The job needs more than the quota of user 'alice' allows: 2 CPUs (1 of 1 are free)."
    succeed(alice, executor, first)
    until(lambda: any(text in event for event in events(alice, second)))
    assert alice.get(f"/trainingjobs/{second}")["Status"] == "Submitted"
    set_quota(operator, "alice", CPUs=2)
    alice.until(second, "Running")


def test_a_greater_quota_takes_effect_at_once(operator: Client) -> None:
    alice = user(operator, "alice")
    set_quota(operator, "alice", RunningJobs=1)
    ids = [alice.create(job_body()) for _ in range(2)]
    alice.until(ids[0], "Running")
    set_quota(operator, "alice", RunningJobs=2)
    alice.until(ids[1], "Running")


def test_a_job_that_exceeds_the_quota_by_itself_is_refused(operator: Client) -> None:
    alice = user(operator, "alice")
    set_quota(operator, "alice", CPUs=4, GPUs=0)
    answer = alice.call("POST", "/trainingjobs", body=asking(3, count=2))
    assert (answer.status_code, answer.json()["Code"]) == (400, "UserQuotaExceeded")
    assert "'alice'" in answer.json()["Message"]
    assert "6 CPUs (4 of 4 are free)" in answer.json()["Message"]
    alice.create(asking(4))
    operator.create(asking(6))  # the service's own key has no quota


def test_at_most_as_many_jobs_wait_as_the_quota_says(operator: Client) -> None:
    alice = user(operator, "alice")
    set_quota(operator, "alice", RunningJobs=1, QueuedJobs=1)
    alice.until(alice.create(job_body()), "Running")
    alice.create(job_body())
    answer = alice.call("POST", "/trainingjobs", body=job_body())
    assert answer.json()["Code"] == "UserQuotaExceeded"
    assert "1 queued jobs" in answer.json()["Message"]


def test_a_user_reads_their_own_quota_and_changes_none(operator: Client) -> None:
    alice, bob = user(operator, "alice"), user(operator, "bob")
    set_quota(operator, "alice", CPUs=8, RunningJobs=1)
    running = alice.create(asking(2))
    alice.until(running, "Running")
    alice.create(asking(3))
    found = alice.get("/quota")
    assert found["Quota"] == {"CPUs": 8, "GPUs": None, "RunningJobs": 1, "QueuedJobs": None}
    assert found["Used"] == {"CPUs": 2, "GPUs": 0, "RunningJobs": 1, "QueuedJobs": 1}
    assert operator.get("/users/alice/quota")["Used"] == found["Used"]
    assert set(bob.get("/quota")["Quota"].values()) == {None}
    assert bob.call("GET", "/users/alice/quota").status_code == 403
    assert alice.call("PUT", "/users/alice/quota", body={}).status_code == 403


@pytest.mark.parametrize("limits", [{"CPUs": -1}, {"GPUs": 1.5}, {"RunningJobs": "many"}, {"Cores": 1}])
def test_a_quota_that_is_none_is_refused(operator: Client, limits: dict[str, Any]) -> None:
    user(operator, "alice")
    assert operator.call("PUT", "/users/alice/quota", body=limits).status_code == 400
    assert operator.call("PUT", "/users/nobody/quota", body={}).status_code == 404
    assert operator.call("GET", "/users/nobody/quota").status_code == 404


def test_each_change_of_a_quota_is_in_the_audit_log(operator: Client) -> None:
    alice = user(operator, "alice")
    set_quota(operator, "alice", GPUs=1)
    alice.call("PUT", "/users/alice/quota", body={})
    entries = operator.get("/audit")["Entries"]
    changes = [
        (one["User"], one["Method"], one["Status"])
        for one in entries
        if one["Path"] == "/api/v1/users/alice/quota"
    ]
    assert changes == [("alice", "PUT", 403), ("", "PUT", 200)]


def test_use_is_remembered_by_the_next_service_on_the_folder(start: Callable[..., Any], tmp_path: Path) -> None:
    executor = ScriptedExecutor()
    with start(executor, slots=1) as operator:
        alice, bob = user(operator, "alice"), user(operator, "bob")
        succeed(alice, executor, alice.create(job_body()))
        first = operator.create(job_body())
        operator.until(first, "Running")
        of_alice, of_bob = alice.create(job_body()), bob.create(job_body())
    with start(executor, slots=1) as operator:
        for job_id in (first, of_bob, of_alice):
            succeed(operator, executor, job_id)
    assert executor.begun[-3:] == [first, of_bob, of_alice]


def test_a_deleted_job_stays_charged(operator: Client, executor: ScriptedExecutor, tmp_path: Path) -> None:
    alice = user(operator, "alice")
    job_id = alice.create(job_body())
    succeed(alice, executor, job_id)
    assert alice.call("DELETE", f"/trainingjobs/{job_id}").status_code == 200
    bob = user(operator, "bob")
    held = [operator.create(job_body()) for _ in range(2)]
    for each in held:
        operator.until(each, "Running")
    of_alice, of_bob = alice.create(job_body()), bob.create(job_body())
    succeed(operator, executor, held[0])
    bob.until(of_bob, "Running")
    assert alice.get(f"/trainingjobs/{of_alice}")["Status"] == "Submitted"


def test_the_error_of_the_client_names_quota_and_request(operator: Client) -> None:
    alice = user(operator, "alice")
    with session_on(operator.info) as session:
        assert session.users.set_quota("alice", cpus=1.5).quota.cpus == 1.5
    with session_on(alice.info) as session:
        assert session.users.own_quota().quota.cpus == 1.5
        with refused(UserQuotaError):
            TrainingJobs(session.users._transport).create_once(asking(2))


@pytest.mark.parametrize("name", ["a/b", "", "/"])
def test_a_name_that_would_be_another_path_is_named_by_the_client(operator: Client, name: str) -> None:
    with session_on(operator.info) as session:
        for call in (session.users.new_key, session.users.remove, session.users.set_quota):
            with refused(InvalidInputError):
                call(name)


def test_the_command_changes_what_is_given_and_shows_quota_and_use(operator: Client) -> None:
    alice = user(operator, "alice")
    alice.until(alice.create(asking(2)), "Running")

    def quota(*options: str) -> Any:
        command = ["service", "user", "quota", "alice", "--data", str(operator.info.data_dir), *options]
        return CliRunner().invoke(app, command)

    assert quota("--cpus", "8", "--gpus", "1", "--running", "4").exit_code == 0
    assert json.loads(quota("--gpus", "none", "--json").stdout)["Quota"] == {"CPUs": 8.0, "RunningJobs": 4}
    lines = [line.split() for line in quota().stdout.splitlines()]
    assert ["CPUs", "8", "2"] in lines
    assert ["GPUs", "no", "limit", "0"] in lines
    assert ["running", "4", "1"] in lines
    wrong = quota("--running", "few")
    assert wrong.exit_code == 2
    assert "neither a number nor 'none'" in wrong.output


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Jobs]:
    database = Database.in_file(tmp_path / "service.db")
    yield Jobs(database, Changes())
    database.close()


def put(jobs: Jobs, owner: str, number: int, **fields: Any) -> dict[str, Any]:
    request = job_body()
    values = {"id": f"{owner}{number}", "name": "x", "workspace_id": "1", "request": request, "instance_count": 1}
    values |= {"owner": owner, "status": JobStatus.SUBMITTED, "created_at": 0.0, "modified_at": 0.0}
    return {**values, "instances": [], "priority": 0, "not_before": None, "version": 1, **fields}


def test_a_job_is_not_taken_before_its_next_attempt(jobs: Jobs) -> None:
    now = [100.0]
    with jobs.database.write() as session:
        session.execute(insert(Job), [put(jobs, "alice", 1, not_before=200.0), put(jobs, "bob", 1)])
        session.add(UseRow(owner="bob", instances=5, cpus=0, gpus=0, at=100.0))
    queue = FairQueue(jobs, clock=lambda: now[0])
    capacity = lambda: Capacity(slots=1)  # noqa: E731
    first = queue.next_to_start(capacity, [])
    assert first is not None
    assert first.id == "bob1"
    now[0] = 200.0
    first = queue.next_to_start(capacity, [])
    assert first is not None
    assert first.id == "alice1"


def test_ten_thousand_queued_jobs_are_not_read_to_find_the_next(jobs: Jobs) -> None:
    with jobs.database.write() as session:
        rows = [put(jobs, f"user{n % 20}", n, priority=n % 7) for n in range(10_000)]
        session.execute(insert(Job), rows)
    plans: list[str] = []

    def explain(connection: Any, cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        if "FROM jobs" in statement and not statement.startswith("EXPLAIN"):
            found = connection.connection.driver_connection.execute(f"EXPLAIN QUERY PLAN {statement}", parameters)
            plans.extend(row[3] for row in found)

    event.listen(jobs.database.engine, "before_cursor_execute", explain)
    assert FairQueue(jobs).next_to_start(lambda: Capacity(slots=1), []) is not None
    assert plans
    assert all("SEARCH jobs USING" in plan and "jobs_by_turn" in plan for plan in plans), set(plans)
