"""Tables of two users, by pyodps: neither reads, writes, lists or drops those of the other."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from odps import ODPS, errors
from odps.tunnel import TableTunnel

from tests.service.identity.test_two_users import user
from tests.service.services import Client, job_body, session_on


@pytest.fixture(scope="module")
def alice(operator: Client) -> Client:
    alice = user(operator, "alice")
    tables(alice).create_table("secret", ("n bigint", "dt string"))
    table = tables(alice).get_table("secret")
    table.create_partition("dt=1")
    with table.open_writer(partition="dt=1") as writer:
        writer.write([[7]])
    return alice


@pytest.fixture(scope="module")
def bob(operator: Client) -> Client:
    return user(operator, "bob")


@pytest.fixture(scope="module")
def carol(operator: Client) -> Client:
    return user(operator, "carol", "read")


def tables(client: Client) -> ODPS:
    info = client.info
    where = {"endpoint": info.endpoint, "tunnel_endpoint": info.endpoint}
    return ODPS(info.access_key_id, info.access_key_secret, project="shop", **where)


def tunnel(client: Client) -> TableTunnel:
    return TableTunnel(tables(client), endpoint=client.info.endpoint)


def rows(client: Client, name: str = "secret") -> list[int]:
    with tables(client).get_table(name).open_reader(partition="dt=1") as reader:
        return [record["n"] for record in reader]


ATTEMPTS: dict[str, Callable[[Client], object]] = {
    "read": rows,
    "facts": lambda client: tables(client).get_table("secret").reload(),
    "partitions": lambda client: list(tables(client).get_table("secret").partitions),
    "partition": lambda client: tables(client).get_table("secret").get_partition("dt=1").reload(),
    "download": lambda client: tunnel(client).create_download_session("secret", partition_spec="dt=1"),
    "upload": lambda client: tunnel(client).create_upload_session("secret", partition_spec="dt=1"),
    "new partition": lambda client: tables(client).get_table("secret").create_partition("dt=2"),
    "no partition": lambda client: tables(client).get_table("secret").delete_partition("dt=1"),
    "drop": lambda client: tables(client).delete_table("secret"),
    "create": lambda client: tables(client).create_table("secret", "n bigint", if_not_exists=True),
    "create in capitals": lambda client: tables(client).create_table("SECRET", "n bigint"),
}


@pytest.mark.parametrize("what", ATTEMPTS)
@pytest.mark.parametrize("who", ["bob", "carol"])
def test_the_table_of_someone_else_is_not_there(
    request: pytest.FixtureRequest, operator: Client, alice: Client, who: str, what: str
) -> None:
    with pytest.raises(errors.ODPSError):
        ATTEMPTS[what](request.getfixturevalue(who))
    assert rows(alice) == rows(operator) == [7]
    assert [one.name for one in tables(alice).get_table("secret").partitions] == ["dt='1'"]


def test_a_missing_table_and_that_of_someone_else_look_the_same(alice: Client, bob: Client) -> None:
    said = []
    for name in ("secret", "missing"):
        with pytest.raises(errors.NoSuchTable) as refused:
            tables(bob).get_table(name).reload()
        said.append(str(refused.value).replace(name, "").replace(refused.value.request_id, ""))
    assert said[0] == said[1]
    assert not tables(bob).exist_table("secret")
    tables(bob).delete_table("secret", if_exists=True)
    assert rows(alice) == [7]


def test_a_list_has_the_tables_of_its_user(operator: Client, alice: Client, bob: Client) -> None:
    tables(bob).create_table("own", ("n bigint", "dt string"), if_not_exists=True)
    assert [table.name for table in tables(alice).list_tables()] == ["secret"]
    assert [table.name for table in tables(bob).list_tables()] == ["own"]
    assert {"own", "secret"} <= {table.name for table in tables(operator).list_tables()}


def test_sessions_of_someone_else_cannot_be_used(alice: Client, bob: Client) -> None:
    tables(bob).create_table("target", ("n bigint", "dt string"), if_not_exists=True)
    upload = tunnel(alice).create_upload_session("secret", partition_spec="dt=1")
    download = tunnel(alice).create_download_session("secret", partition_spec="dt=1")
    for name in ("secret", "target"):
        with pytest.raises(errors.ODPSError):
            tunnel(bob).create_upload_session(name, upload_id=upload.id, partition_spec="dt=1")
        with pytest.raises(errors.ODPSError):
            tunnel(bob).create_download_session(name, download_id=download.id, partition_spec="dt=1")


def test_who_may_only_read_creates_no_table(carol: Client) -> None:
    with pytest.raises(errors.ODPSError, match="may only read"):
        tables(carol).create_table("new", "n bigint")


def test_a_revoked_key_opens_no_table(operator: Client) -> None:
    dave = user(operator, "dave")
    tables(dave).create_table("of_dave", "n bigint")
    operator.call("DELETE", f"/users/dave/keys/{dave.info.access_key_id}")
    with pytest.raises(errors.ODPSError, match="does not exist"):
        tables(dave).get_table("of_dave").reload()


def test_a_job_uses_the_tables_of_its_owner_only(operator: Client, alice: Client, bob: Client) -> None:
    stolen = {"Name": "rows", "InputUri": "odps://shop/tables/secret/dt=1"}
    spoilt = {"Name": "rows", "OutputUri": "odps://shop/tables/secret/dt=1"}
    for fields in ({"InputChannels": [stolen]}, {"OutputChannels": [spoilt]}):
        job_id = bob.create(job_body(**fields))
        message = bob.until(job_id, "InitializeFailed")["ReasonMessage"]
        assert "Table not found" in message or "is taken" in message, message
        alice.until(alice.create(job_body(**fields)), "Running")
    assert rows(alice) == [7]


def test_a_session_of_a_user_has_the_tables_of_the_user(alice: Client, bob: Client) -> None:
    session_on(alice.info).tables.client().create_table("by_session", "n bigint", if_not_exists=True)
    assert session_on(alice.info).tables.client().exist_table("by_session")
    assert not session_on(bob.info).tables.client().exist_table("by_session")
