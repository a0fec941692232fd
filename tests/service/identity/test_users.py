"""Users where something fails: the database, or the service in the middle of a change."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from pai_sdk._service.background.scheduler import Scheduler
from pai_sdk._service.identity.users import Users
from pai_sdk._service.oss.store import ObjectStore
from pai_sdk._service.state.database import Database
from pai_sdk._service.state.folder import Keys
from tests.service.fakes import ScriptedExecutor
from tests.service.identity.test_two_users import user, with_new_key
from tests.service.services import job_body, running_service
from tests.service.test_scheduler import root


class DatabaseIsAway(Exception):
    """The database does not respond."""


def away() -> None:
    raise DatabaseIsAway


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with closing(Database.in_file(tmp_path / "jobs.db")) as database:
        yield database


@pytest.fixture
def users(database: Database) -> Users:
    return Users(database, Keys("LTAIown", "a secret of the service"))


def test_a_request_is_admitted_while_the_database_hangs(
    users: Users, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    users.add("alice", "submit")
    key_id = users.new_key("alice").key_id
    monkeypatch.setattr(database, "read", away)
    principal = users.principal(key_id)
    assert principal is not None
    assert principal.user == "alice"
    assert users.principal("LTAIunknown") is None


@pytest.mark.parametrize(
    "change", [lambda users, key_id: users.revoke("alice", key_id), lambda users, _: users.remove("alice")]
)
def test_a_revoked_key_opens_nothing_though_the_users_cannot_be_read_again(
    users: Users, database: Database, monkeypatch: pytest.MonkeyPatch, change: Callable[[Users, str], None]
) -> None:
    users.add("alice", "submit")
    key_id = users.new_key("alice").key_id
    with monkeypatch.context() as patched:
        patched.setattr(database, "read", away)
        with pytest.raises(DatabaseIsAway):
            change(users, key_id)
        with pytest.raises(DatabaseIsAway):
            users.principal(key_id)
    assert users.principal(key_id) is None


def test_a_user_whose_creation_was_cut_off_has_a_bucket_after_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = ObjectStore.create_bucket

    def cut_off(store: ObjectStore, bucket: str) -> bool:
        if bucket.endswith("-alice"):
            raise DatabaseIsAway
        return create(store, bucket)

    with monkeypatch.context() as patched:
        patched.setattr(ObjectStore, "create_bucket", cut_off)
        with running_service(tmp_path / "data") as operator:
            assert operator.call("POST", "/users", body={"Name": "alice", "Right": "submit"}).status_code == 500
            assert operator.call("POST", "/users", body={"Name": "alice", "Right": "submit"}).status_code == 409
    with running_service(tmp_path / "data") as operator:
        alice = with_new_key(operator, "alice")
        alice.bucket().put_object("mine", b"1")
        assert alice.bucket().get_object("mine").read() == b"1"


def test_queued_jobs_of_a_removed_user_are_stopped_and_running_ones_go_on(start: Callable[..., Any]) -> None:
    executor = ScriptedExecutor()
    with start(executor, slots=1) as operator:
        bob, alice = user(operator, "bob"), user(operator, "alice")
        running = bob.create(job_body())
        bob.until(running, "Running")
        queued = [bob.create(job_body()) for _ in range(12)]
        other = alice.create(job_body())
        assert operator.call("DELETE", "/users/bob").status_code == 200
        for job_id in queued:
            job = operator.until(job_id)
            assert (job["Status"], job["ReasonCode"]) == ("Terminated", "UserRemoved")
            assert "'bob'" in job["ReasonMessage"]
        assert operator.get(f"/trainingjobs/{running}")["Status"] == "Running"
        executor.succeed(root(operator, running))
        assert operator.until(running)["Status"] == "Succeed"
        operator.until(other, "Running")
        assert executor.begun == [running, other]


def test_queued_jobs_are_stopped_after_a_kill_right_behind_the_removal(
    start: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    executor = ScriptedExecutor()
    with start(executor, slots=1) as operator:
        bob = user(operator, "bob")
        running = bob.create(job_body())
        bob.until(running, "Running")
        queued = bob.create(job_body())
        monkeypatch.setattr(Scheduler, "wake", lambda scheduler: None)
        assert operator.call("DELETE", "/users/bob").status_code == 200
    monkeypatch.undo()
    with start(executor, slots=1) as operator:
        assert operator.until(queued)["ReasonCode"] == "UserRemoved"
        assert operator.get(f"/trainingjobs/{running}")["Status"] == "Running"
    assert executor.begun == [running]
