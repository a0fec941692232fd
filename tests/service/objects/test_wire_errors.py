"""What the wire refuses, and how it says so."""

from __future__ import annotations

import base64
import http.client
from urllib.parse import urlsplit
from xml.etree import ElementTree

import oss2
import pytest

from pai_sdk._service.oss.xml import document
from tests.service.objects.conftest import Wire
from tests.service.objects.serving import KEY_ID, SECRET
from tests.support.waiting import PATIENCE_S


def ask(wire: Wire, method: str, path: str, headers: dict[str, str] | None = None, body: bytes | None = None):
    url = urlsplit(wire.endpoint)
    connection = http.client.HTTPConnection(url.hostname, url.port, timeout=PATIENCE_S)
    connection.request(method, path, body, headers or {})
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer, content


def test_a_document_is_escaped_and_names_its_encoding() -> None:
    expected = (
        b'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>NoSuchKey</Code><Key>a&lt;b&amp;</Key></Error>'
    )
    assert document("Error", [("Code", "NoSuchKey"), ("Key", "a<b&")]) == expected


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"secret": "wrong"}, "SignatureDoesNotMatch"),
        ({"key_id": "unknown"}, "InvalidAccessKeyId"),
        ({"auth": oss2.Auth, "secret": "wrong"}, "SignatureDoesNotMatch"),
        ({"auth": oss2.AuthV2}, "AccessDenied"),
    ],
)
def test_wrong_keys_get_403_in_xml(wire: Wire, options: dict, code: str) -> None:
    bucket = wire.bucket(**options)
    for use in (
        lambda: bucket.get_object("k"),
        lambda: bucket.head_object("k"),
        lambda: bucket.put_object("k", b"x" * 2_000_000),
        lambda: bucket.delete_object("k"),
        lambda: bucket.list_objects(),
        lambda: bucket.delete_bucket(),
    ):
        with pytest.raises(oss2.exceptions.ServerError) as error:
            use()
        assert (error.value.status, error.value.code) == (403, code)
        assert error.value.request_id == error.value.details["RequestId"]


@pytest.mark.parametrize("method", ["GET", "PUT", "POST", "DELETE", "HEAD", "OPTIONS", "PATCH", "TRACE"])
@pytest.mark.parametrize(
    "path", ["/", "/my-bucket", "/my-bucket/k", "/api", "/../../etc/passwd", "/%ff", "//", "/%00"]
)
def test_without_a_key_nothing_is_told(wire: Wire, method: str, path: str) -> None:
    answer, content = ask(wire, method, path)
    assert answer.status in (400, 403)
    assert answer.headers["x-oss-request-id"]
    if method != "HEAD":
        root = ElementTree.fromstring(content)
        assert [element.tag for element in root] == ["Code", "Message", "RequestId", "HostId"]
        assert root.findtext("Code") in ("AccessDenied", "InvalidObjectName")
    else:
        assert content == b""
        assert answer.headers["x-oss-err"]


def test_what_is_missing_says_what(wire: Wire) -> None:
    bucket = wire.bucket()
    for use in (bucket.get_object, bucket.head_object, bucket.get_object_meta, bucket.get_object_acl):
        with pytest.raises(oss2.exceptions.NoSuchKey):
            use("missing")
    for use in (wire.bucket("no-such-bucket").get_object, wire.bucket("no-such-bucket").head_object):
        with pytest.raises(oss2.exceptions.NoSuchBucket):
            use("missing")
    assert bucket.delete_object("missing").status == 204


@pytest.mark.parametrize(
    "use",
    [
        lambda bucket: bucket.put_object_tagging("k", oss2.models.Tagging()),
        lambda bucket: bucket.get_object("k", process="image/resize,w_1"),
        lambda bucket: bucket.put_symlink("k", "link"),
        lambda bucket: bucket.get_bucket_lifecycle(),
        lambda bucket: bucket.get_object("k", params={"versionId": "1"}),
        lambda bucket: bucket.put_object_acl("k", oss2.OBJECT_ACL_PUBLIC_READ),
        lambda bucket: bucket.put_object("k", b"changed", headers={"x-oss-object-acl": "public-read"}),
        lambda bucket: bucket.put_object("k", b"changed", headers={"x-oss-server-side-encryption": "KMS"}),
        lambda bucket: bucket.put_object("k", b"changed", headers={"x-oss-storage-class": "Archive"}),
        lambda bucket: bucket._Bucket__do_object("PUT", "k", params={"somethingNew": ""}, data=b"changed"),
        lambda bucket: bucket._Bucket__do_bucket("DELETE", params={"somethingNew": ""}),
    ],
)
def test_what_is_not_offered_is_refused_not_passed_over(wire: Wire, use) -> None:
    bucket = wire.bucket()
    bucket.put_object("k", b"as it was")
    with pytest.raises(oss2.exceptions.ServerError) as error:
        use(bucket)
    assert (error.value.status, error.value.code) == (501, "NotImplemented")
    assert bucket.get_object("k").read() == b"as it was"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<Delete>",
        b"<Other/>",
        b"<Delete/>",
        b'<!DOCTYPE d [<!ENTITY a "aaaa">]><Delete><Object><Key>&a;</Key></Object></Delete>',
        '<!DOCTYPE d [<!ENTITY a "aaaa">]><Delete><Object><Key>&a;</Key></Object></Delete>'.encode("utf-16"),
        b"\xff\xfe\x00",
        b"<Delete><Object><Key>a</Key></Object></Delete>" + b" " * (5 << 20),
    ],
    ids=range(8),
)
def test_bodies_that_are_not_what_they_should_be(wire: Wire, body: bytes) -> None:
    with pytest.raises(oss2.exceptions.ServerError) as error:
        wire.bucket()._Bucket__do_bucket("POST", params={"delete": ""}, data=body)
    assert error.value.status == 400
    assert error.value.code in ("MalformedXML", "EntityTooLarge")


@pytest.mark.parametrize("key", ["/leading", "\\leading", "k" * 1024])
def test_keys_that_oss_does_not_allow(wire: Wire, key: str) -> None:
    bucket = wire.bucket()
    for use in (lambda: bucket.put_object(key, b"x"), lambda: bucket.get_object(key)):
        with pytest.raises(oss2.exceptions.ServerError) as error:
            use()
        assert (error.value.status, error.value.code) == (400, "InvalidObjectName")


@pytest.mark.parametrize("name", ["ab", "a" * 64, "Upper", "under_score", "-lead", "trail-", "a.b"])
def test_bucket_names_that_oss_does_not_allow(wire: Wire, name: str) -> None:
    bucket = wire.bucket("good-name")
    bucket.bucket_name = name
    for use in (bucket.create_bucket, bucket.get_bucket_info, lambda: bucket.put_object("k", b"x")):
        with pytest.raises(oss2.exceptions.ServerError) as error:
            use()
        assert (error.value.status, error.value.code) == (400, "InvalidBucketName")


@pytest.mark.parametrize(
    ("key", "headers", "status", "code"),
    [
        ("missing", {}, 404, "NoSuchKey"),
        ("there", {"If-Match": '"other"'}, 412, "PreconditionFailed"),
        ("there", {"If-Unmodified-Since": "Mon, 01 Jan 2001 00:00:00 GMT"}, 412, "PreconditionFailed"),
    ],
)
def test_what_head_cannot_say_in_a_body_it_says_in_a_header(
    wire: Wire, key: str, headers: dict[str, str], status: int, code: str
) -> None:
    wire.bucket().put_object("there", b"x")
    url = urlsplit(wire.bucket().sign_url("HEAD", key, 600))
    answer, content = ask(wire, "HEAD", f"{url.path}?{url.query}", headers)
    assert (answer.status, content) == (status, b"")
    said = ElementTree.fromstring(base64.b64decode(answer.headers["x-oss-err"]))
    assert (said.tag, said.findtext("Code")) == ("Error", code)
    assert said.findtext("RequestId") == answer.headers["x-oss-request-id"]


@pytest.mark.parametrize(
    "source",
    [
        "my-bucket/k",
        "/my-bucket",
        "/my-bucket/",
        "//k",
        "/my-bucket/k?versionId=1",
        "/no_name/k",
        "/my-bucket/%ff",
    ],
)
def test_sources_of_copies_that_cannot_be(wire: Wire, source: str) -> None:
    bucket = wire.bucket()
    bucket.put_object("k", b"x")
    upload_id = bucket.init_multipart_upload("copy").upload_id
    part = {"partNumber": "1", "uploadId": upload_id}
    for params in ({}, part):
        with pytest.raises(oss2.exceptions.ServerError) as error:
            bucket._Bucket__do_object("PUT", "copy", params=params, headers={"x-oss-copy-source": source})
        assert error.value.status in (400, 501)
        assert error.value.code in ("InvalidArgument", "InvalidBucketName", "NotImplemented")
    assert bucket.list_parts("copy", upload_id).parts == []
    bucket.abort_multipart_upload("copy", upload_id)
    assert not bucket.object_exists("copy")


def test_too_large_is_said_before_it_is_sent(wire: Wire) -> None:
    url = urlsplit(wire.bucket().sign_url("PUT", "huge", 600))
    answer, content = ask(wire, "PUT", f"{url.path}?{url.query}", {"Content-Length": str((5 << 30) + 1)})
    assert answer.status == 400
    assert b"<Code>EntityTooLarge</Code>" in content


def test_a_query_nobody_can_read(wire: Wire) -> None:
    for query in ("a=%ff", "&".join(f"p{number}=1" for number in range(100))):
        answer, content = ask(wire, "GET", f"/my-bucket/k?{query}", {"Authorization": f"OSS {KEY_ID}:x"})
        assert answer.status == 400
        assert b"<Code>InvalidArgument</Code>" in content


def test_secrets_stay_out_of_the_log(wire: Wire, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", logger="pai_sdk")
    bucket = wire.bucket()
    bucket.put_object("k", b"x")
    with pytest.raises(oss2.exceptions.NoSuchKey):
        bucket.get_object("missing")
    assert SECRET not in caplog.text
    assert KEY_ID not in caplog.text
