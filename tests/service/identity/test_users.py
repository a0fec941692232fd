"""Users where something fails: the database, or the service in the middle of a change."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from pai_sdk.service.identity.users import Users
from pai_sdk.service.objects.store import ObjectStore
from pai_sdk.service.state.database import Database
from pai_sdk.service.state.folder import Keys
from tests.service.identity.test_two_users import with_new_key
from tests.service.services import running_service


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
    monkeypatch.setattr("time.monotonic", lambda: 1e9)
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
