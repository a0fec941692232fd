"""Every operation of the object store, with the key of someone else, one that may only read, and unknown ones."""

from __future__ import annotations

from dataclasses import replace

import oss2
import pytest
import requests

from pai_sdk._service.oss.oss_app import ObjectApp
from pai_sdk._service.oss.store import ObjectStore
from tests.service.identity.test_two_users import user
from tests.service.services import Client
from tests.support.waiting import PATIENCE_S

VALUES = {"partNumber": "1", "list-type": "2", "position": "0"}
DELETES = b"<Delete><Object><Key>secret</Key></Object></Delete>"


@pytest.fixture(scope="module")
def alice(operator: Client) -> Client:
    alice = user(operator, "alice")
    alice.bucket().put_object("secret", b"zebra")
    return alice


@pytest.fixture(scope="module")
def upload_id(alice: Client) -> str:
    bucket = alice.bucket()
    upload_id = bucket.init_multipart_upload("parts").upload_id
    bucket.upload_part("parts", upload_id, 1, b"zebra")
    return str(upload_id)


@pytest.fixture(scope="module")
def operations(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, str, tuple[str, ...]]]:
    """Each operation of the store: service, bucket or object, its method, and the parameters that mark it."""
    store = ObjectStore(tmp_path_factory.mktemp("store"))
    app = ObjectApp(store, {}, region="local")
    known = app._operations  # type: ignore[attr-defined]
    found = [
        (level, method, tuple(operation.marks))
        for (level, method), operations in known.items()
        for operation in operations
    ]
    store.close()
    assert len(found) > 20
    return found


def ask(
    client: Client, bucket: str, level: str, method: str, marks: tuple[str, ...], upload_id: str
) -> tuple[int, str]:
    """Status and content of the response to an operation."""
    info = client.info
    auth = oss2.AuthV4(info.access_key_id, info.access_key_secret)
    signer = oss2.Bucket(auth, info.oss_endpoint, bucket, region=info.region_id)
    params = {mark: upload_id if mark == "uploadId" else VALUES.get(mark, "") for mark in marks}
    key = "" if level == "bucket" else "parts" if "uploadId" in marks else "secret"
    body = DELETES if "delete" in marks else b"spoilt" if method in ("PUT", "POST") and level == "object" else b""
    try:
        answer = signer._do(method, bucket, key, params=params, data=body)
    except oss2.exceptions.ServerError as error:
        return error.status, str(error.body)
    return answer.status, str(answer.read())


def content(alice: Client, upload_id: str) -> object:
    bucket = alice.bucket()
    parts = [(part.part_number, part.etag) for part in bucket.list_parts("parts", upload_id).parts]
    uploads = [upload.upload_id for upload in bucket.list_multipart_uploads().upload_list]
    keys = [(one.key, one.etag) for one in bucket.list_objects().object_list]
    return keys, uploads, parts, bucket.get_object("secret").read()


def strangers(operator: Client, alice: Client) -> dict[str, Client]:
    bob, carol, gone = user(operator, "bob"), user(operator, "carol", "read"), user(operator, "gone")
    operator.call("DELETE", f"/users/gone/keys/{gone.info.access_key_id}")
    return {
        "bob": bob,
        "carol": carol,
        "revoked": gone,
        "unknown": Client(replace(alice.info, access_key_id="LTAIunknown")),
        "secret of another": Client(replace(alice.info, access_key_secret=bob.info.access_key_secret)),
    }


def test_no_operation_opens_the_bucket_of_someone_else(
    operator: Client, alice: Client, upload_id: str, operations: list[tuple[str, str, tuple[str, ...]]]
) -> None:
    before = content(alice, upload_id)
    for name, client in strangers(operator, alice).items():
        for level, method, marks in operations:
            if level == "service":
                continue
            status, text = ask(client, alice.info.bucket, level, method, marks, upload_id)
            assert status in (403, 409), (name, level, method, marks, text)
            assert "zebra" not in text
    assert content(alice, upload_id) == before


def test_a_bucket_of_someone_else_and_a_missing_one_look_the_same(
    operator: Client, alice: Client, upload_id: str, operations: list[tuple[str, str, tuple[str, ...]]]
) -> None:
    erin = user(operator, "erin")
    for level, method, marks in operations:
        if level == "service" or (level, method) == ("bucket", "PUT"):
            continue
        answers = [
            ask(erin, bucket, level, method, marks, upload_id) for bucket in (alice.info.bucket, "not-there")
        ]
        assert {status for status, _ in answers} == {403}, (level, method, marks)


def test_who_may_only_read_changes_nothing_in_their_own_bucket(
    operator: Client, operations: list[tuple[str, str, tuple[str, ...]]]
) -> None:
    frank = user(operator, "frank")
    frank.bucket().put_object("secret", b"zebra")
    mine = str(frank.bucket().init_multipart_upload("parts").upload_id)
    operator.call("PUT", "/users/frank", body={"Right": "read"})
    before = content(frank, mine)
    for level, method, marks in operations:
        if level == "service":
            continue
        status, _ = ask(frank, frank.info.bucket, level, method, marks, mine)
        assert status == (200 if method in ("GET", "HEAD") else 403), (level, method, marks)
    assert content(frank, mine) == before


def test_nothing_of_someone_else_gets_into_a_bucket(operator: Client, alice: Client, upload_id: str) -> None:
    bob = user(operator, "bob2")
    own, theirs = bob.bucket(), alice.info.bucket
    mine = own.init_multipart_upload("parts").upload_id
    for action in (
        lambda: own.copy_object(theirs, "secret", "mine"),
        lambda: own.upload_part_copy(theirs, "secret", (0, 4), "parts", mine, 1),
        lambda: own.upload_part("parts", upload_id, 1, b"x"),
        lambda: own.list_parts("parts", upload_id),
        lambda: own.complete_multipart_upload("parts", upload_id, []),
    ):
        with pytest.raises(oss2.exceptions.ServerError) as refused:
            action()
        assert refused.value.status in (403, 404), refused.value
    assert own.list_objects().object_list == []


def test_a_presigned_address_ends_with_its_key(operator: Client) -> None:
    gina = user(operator, "gina")
    gina.bucket().put_object("file", b"x")
    url = gina.bucket().sign_url("GET", "file", 600)
    assert requests.get(url, timeout=PATIENCE_S).status_code == 200
    operator.call("DELETE", "/users/gina")
    assert requests.get(url, timeout=PATIENCE_S).status_code == 403


def test_the_list_of_buckets_has_those_of_the_user(operator: Client, alice: Client) -> None:
    info = alice.info
    service = oss2.Service(
        oss2.AuthV4(info.access_key_id, info.access_key_secret), info.oss_endpoint, region="local"
    )
    assert [one.name for one in service.list_buckets().buckets] == [info.bucket]
