"""Objects over the wire, with Alibaba Cloud's own client."""

from __future__ import annotations

import hashlib
import http.client
import io
import time
from urllib.parse import urlsplit

import oss2
import pytest
import requests
from hypothesis import given, settings
from hypothesis import strategies as st

from pai_sdk._service.oss.object_rows import StoredObject
from tests.service.objects.conftest import Wire
from tests.service.objects.contents import large
from tests.service.objects.serving import BUCKET
from tests.support.waiting import PATIENCE_S, until

KEYS = [
    "plain",
    "a/b//c",
    "../../etc/passwd",
    "x/../y",
    " a b ",
    "?#%+&=;:@",
    "%2F",
    "a\nb\tc",
    "\x01\x7f",
    "日本/é🙂",
]

clients = pytest.mark.parametrize(
    "options",
    [{"auth": auth, "enable_crc": crc} for auth in (oss2.Auth, oss2.AuthV4) for crc in (True, False)],
    ids=["v1-crc", "v1", "v4-crc", "v4"],
)


@clients
@pytest.mark.parametrize("key", KEYS, ids=ascii)
def test_an_object_comes_back_under_its_key(wire: Wire, options: dict, key: str) -> None:
    bucket = wire.bucket(**options)
    content = f"content of {key}".encode()
    etag = bucket.put_object(key, content, headers={"x-oss-meta-author": "me"}).etag
    assert etag == hashlib.md5(content).hexdigest().upper()
    answer = bucket.get_object(key)
    assert answer.read() == content
    assert (answer.etag, answer.headers["x-oss-meta-author"]) == (etag, "me")
    assert bucket.head_object(key).content_length == len(content)
    assert bucket.get_object_meta(key).etag == etag
    assert [info.key for info in oss2.ObjectIteratorV2(bucket, prefix=key)] == [key]
    assert bucket.batch_delete_objects([key]).status == 200 if key.isprintable() else bucket.delete_object(key)
    assert not bucket.object_exists(key)


@settings(max_examples=40, deadline=None)
@given(
    key=st.text(st.characters(codec="utf-8"), min_size=1, max_size=30).filter(
        lambda key: key[0] not in "/\\" and key not in (".", "..")  # these two are changed by requests itself
    )
)
def test_any_key(wire: Wire, key: str) -> None:
    bucket = wire.bucket()
    bucket.put_object(key, key.encode())
    assert bucket.get_object(key).read() == key.encode()
    assert key in [info.key for info in oss2.ObjectIterator(bucket, prefix=key)]
    bucket.delete_object(key)


@clients
def test_large_objects_go_through_whole(wire: Wire, options: dict, tmp_path) -> None:
    content = bytes(range(256)) * 4096 * 9 + b"tail"
    (tmp_path / "in").write_bytes(content)
    bucket = wire.bucket(**options)
    bucket.put_object_from_file("large", str(tmp_path / "in"))
    bucket.get_object_to_file("large", str(tmp_path / "out"))
    assert (tmp_path / "out").read_bytes() == content
    # Without a length, in chunks:
    bucket.put_object("chunked", iter([content[:100], content[100:]]))
    assert bucket.head_object("chunked").etag == bucket.head_object("large").etag


def test_an_empty_object(wire: Wire) -> None:
    bucket = wire.bucket()
    bucket.put_object("empty", b"")
    assert bucket.get_object("empty").read() == b""
    assert bucket.get_object("empty", byte_range=(0, 9)).read() == b""


@pytest.mark.parametrize(
    ("byte_range", "standard", "status", "expected"),
    [
        ("bytes=0-3", False, 206, b"0123"),
        ("bytes=4-", False, 206, b"456789"),
        ("bytes=-3", False, 206, b"789"),
        ("bytes=0-3,5-6", False, 206, b"0123"),
        ("bytes=0-10", False, 200, b"0123456789"),
        ("bytes=10-", False, 200, b"0123456789"),
        ("bytes=-0", False, 200, b"0123456789"),
        ("bytes=5-2", False, 200, b"0123456789"),
        ("byte=0-3", False, 200, b"0123456789"),
        ("bytes=-", False, 200, b"0123456789"),
        ("bytes=8-99", True, 206, b"89"),
        ("bytes=-99", True, 206, b"0123456789"),
        ("bytes=10-", True, 416, b""),
        ("bytes=-0", True, 416, b""),
        ("bytes=5-2", True, 200, b"0123456789"),
    ],
)
def test_ranges(wire: Wire, byte_range: str, standard: bool, status: int, expected: bytes) -> None:
    bucket = wire.bucket()
    bucket.put_object("digits", b"0123456789")
    headers = {"Range": byte_range, **({"x-oss-range-behavior": "standard"} if standard else {})}
    if status == 416:
        with pytest.raises(oss2.exceptions.ServerError) as error:
            bucket.get_object("digits", headers=headers)
        assert (error.value.status, error.value.code) == (416, "InvalidRange")
        return
    answer = bucket.get_object("digits", headers=headers)
    assert (answer.status, answer.read()) == (status, expected)
    if status == 206:
        first = b"0123456789".index(expected)
        assert answer.headers["content-range"] == f"bytes {first}-{first + len(expected) - 1}/10"


def test_conditions(wire: Wire) -> None:
    bucket = wire.bucket()
    etag = bucket.put_object("conditional", b"x").etag
    hour = 3600
    early, late = oss2.http_date(time.time() - hour), oss2.http_date(time.time() + hour)
    for headers, error in [
        ({"If-Match": f'"{etag}"'}, None),
        ({"If-Match": '"other"'}, oss2.exceptions.PreconditionFailed),
        ({"If-None-Match": f'"{etag}"'}, oss2.exceptions.NotModified),
        ({"If-None-Match": '"other"'}, None),
        ({"If-Modified-Since": late}, oss2.exceptions.NotModified),
        ({"If-Modified-Since": early}, None),
        ({"If-Unmodified-Since": early}, oss2.exceptions.PreconditionFailed),
        ({"If-Unmodified-Since": late}, None),
        ({"If-Modified-Since": "not a date"}, None),
    ]:
        for read in (lambda **wishes: bucket.get_object(**wishes).read(), bucket.head_object):
            if error is None:
                assert read(key="conditional", headers=headers)
            else:
                with pytest.raises(error):
                    read(key="conditional", headers=headers)


def test_standard_headers_are_kept_and_content_type_is_guessed(wire: Wire) -> None:
    bucket = wire.bucket()
    sent = {"Cache-Control": "no-cache", "Content-Disposition": "attachment", "Content-Encoding": "identity"}
    bucket.put_object("page.html", b"<p>", headers=sent)
    got = bucket.head_object("page.html").headers
    assert {name: got[name] for name in sent} == sent
    assert got["Content-Type"] == "text/html"


def test_metadata_of_any_bytes_comes_back(wire: Wire) -> None:
    bucket = wire.bucket()
    bucket.put_object("meta", b"x", headers={"x-oss-meta-name": "模型".encode()})
    assert bucket.head_object("meta").headers["x-oss-meta-name"].encode("latin-1").decode() == "模型"
    with pytest.raises(oss2.exceptions.ServerError) as error:
        bucket.put_object("meta", b"x", headers={"x-oss-meta-name": "m" * 9000})
    assert error.value.code == "InvalidArgument"


def test_what_is_copied_is_what_the_condition_was_asked_of(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket, store = wire.bucket(), wire.store
    etag = bucket.put_object("pinned", large(b"as it was")).etag
    find = store.index.find_with_content

    def replaced_as_soon_as_seen(*address: str) -> tuple[StoredObject, bytes | None]:
        info, content = find(*address)
        if info.etag == etag:
            store.put_bytes(*address, large(b"replaced"))
        return info, content

    monkeypatch.setattr(store.index, "find_with_content", replaced_as_soon_as_seen)
    with pytest.raises(oss2.exceptions.PreconditionFailed):
        bucket.copy_object(BUCKET, "pinned", "copy of it", headers={"x-oss-copy-source-if-match": etag})
    assert not bucket.object_exists("copy of it")


def test_copying(wire: Wire) -> None:
    bucket = wire.bucket()
    bucket.put_object("source ü/?", b"content", headers={"x-oss-meta-a": "1", "Content-Type": "text/x"})
    copied = bucket.copy_object(BUCKET, "source ü/?", "copy")
    head = bucket.head_object("copy")
    assert (head.etag, head.headers["x-oss-meta-a"], head.content_type) == (copied.etag, "1", "text/x")
    replace = {"x-oss-metadata-directive": "REPLACE", "x-oss-meta-b": "2", "Content-Type": "text/y"}
    bucket.copy_object(BUCKET, "copy", "copy", headers=replace)
    head = bucket.head_object("copy")
    assert "x-oss-meta-a" not in head.headers
    assert (head.headers["x-oss-meta-b"], head.content_type) == ("2", "text/y")
    assert bucket.get_object("copy").read() == b"content"
    with pytest.raises(oss2.exceptions.PreconditionFailed):
        bucket.copy_object(BUCKET, "copy", "c2", headers={"x-oss-copy-source-if-match": '"other"'})
    with pytest.raises(oss2.exceptions.NoSuchKey):
        bucket.copy_object(BUCKET, "nothing", "c3")
    with pytest.raises(oss2.exceptions.NoSuchBucket):
        bucket.copy_object("no-such-bucket", "nothing", "c3")


def test_appending(wire: Wire) -> None:
    bucket = wire.bucket(enable_crc=True)
    first = bucket.append_object("log", 0, b"one ")
    assert bucket.append_object("log", first.next_position, b"two").next_position == 7
    head = bucket.head_object("log")
    assert (head.object_type, head.headers["x-oss-next-append-position"]) == ("Appendable", "7")
    assert bucket.get_object("log").read() == b"one two"
    with pytest.raises(oss2.exceptions.PositionNotEqualToLength) as error:
        bucket.append_object("log", 3, b"x")
    assert error.value.next_position == 7
    bucket.put_object("normal", b"x")
    with pytest.raises(oss2.exceptions.ObjectNotAppendable):
        bucket.append_object("normal", 1, b"x")
    bucket.copy_object(BUCKET, "log", "log copy")
    bucket.append_object("log", 7, b"!")
    assert bucket.get_object("log copy").read() == b"one two"


def test_what_must_not_be_overwritten_is_not(wire: Wire) -> None:
    bucket = wire.bucket()
    only_new = {"x-oss-forbid-overwrite": "true"}
    bucket.put_object("unique", b"first", headers=only_new)
    for write in (
        lambda: bucket.put_object("unique", b"second", headers=only_new),
        lambda: bucket.copy_object(BUCKET, "unique", "unique", headers=only_new),
    ):
        with pytest.raises(oss2.exceptions.ServerError) as error:
            write()
        assert (error.value.status, error.value.code) == (409, "FileAlreadyExists")
    assert bucket.get_object("unique").read() == b"first"


@pytest.mark.parametrize("md5", [oss2.utils.content_md5(b"other"), "no base64!", "c2hvcnQ="])
def test_bytes_that_are_not_what_was_said_are_not_stored(wire: Wire, md5: str) -> None:
    bucket = wire.bucket()
    for size_bytes in (10, 3 << 20):
        with pytest.raises(oss2.exceptions.ServerError) as error:
            bucket.put_object("damaged", b"x" * size_bytes, headers={"Content-MD5": md5})
        assert (error.value.status, error.value.code) == (400, "InvalidDigest")
    assert not bucket.object_exists("damaged")
    bucket.put_object("whole", b"x", headers={"Content-MD5": oss2.utils.content_md5(b"x")})


@pytest.mark.parametrize("sent", [b"", b"half", b"x" * (3 << 20)])
def test_a_body_that_ends_early_leaves_nothing(wire: Wire, sent: bytes) -> None:
    url = urlsplit(wire.bucket().sign_url("PUT", "cut off", 600, slash_safe=True))
    connection = http.client.HTTPConnection(url.hostname, url.port, timeout=PATIENCE_S)
    connection.putrequest("PUT", f"{url.path}?{url.query}")
    connection.putheader("Content-Length", str(len(sent) + 1))
    connection.endheaders(sent)
    connection.close()
    incoming = wire.store.path_of_blob("00").parents[2] / "incoming"
    until(lambda: not list(incoming.iterdir()))
    assert not wire.bucket().object_exists("cut off")


@pytest.mark.parametrize("auth", [oss2.Auth, oss2.AuthV4])
@pytest.mark.parametrize("slash_safe", [False, True])
def test_presigned_urls(wire: Wire, auth: type, slash_safe: bool) -> None:
    bucket, key = wire.bucket(auth=auth), "folder/ü +&.txt"
    put = bucket.sign_url("PUT", key, 600, headers={"Content-Type": "text/z"}, slash_safe=slash_safe)
    with requests.Session() as session:
        assert session.put(put, data=b"presigned", headers={"Content-Type": "text/z"}).status_code == 200
        assert session.put(put, data=b"other").status_code == 403
        wishes = {"response-content-type": "text/q", "response-content-disposition": 'attachment; filename="ü"'}
        got = session.get(bucket.sign_url("GET", key, 600, params=wishes, slash_safe=slash_safe))
        assert (got.status_code, got.content, got.headers["Content-Type"]) == (200, b"presigned", "text/q")
        assert got.headers["Content-Disposition"].encode("latin-1").decode() == 'attachment; filename="ü"'
        injected = bucket.sign_url("GET", key, 600, params={"response-content-type": "a\r\nx-evil: 1"})
        assert session.get(injected).status_code == 400
        for url in (f"{put}&acl=", put.replace("folder", "other"), put.split("?")[0]):
            assert session.put(url, data=b"evil", headers={"Content-Type": "text/z"}).status_code == 403
    assert bucket.get_object(key).read() == b"presigned"


def test_the_bucket_may_stand_in_the_host(wire: Wire) -> None:
    port = urlsplit(wire.endpoint).port
    wire.bucket().put_object("in host/a", b"x")
    signed = urlsplit(wire.bucket().sign_url("GET", "in host/a", 600, slash_safe=True))
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    path = signed.path.removeprefix(f"/{BUCKET}")
    connection.request("GET", f"{path}?{signed.query}", headers={"Host": f"{BUCKET}.localhost:{port}"})
    answer = connection.getresponse()
    assert (answer.status, answer.read()) == (200, b"x")
    connection.close()


def test_a_reader_in_the_middle_of_an_object_that_is_replaced(wire: Wire) -> None:
    bucket = wire.bucket(enable_crc=False)
    old = b"o" * (24 << 20)
    bucket.put_object("replaced", old)
    answer = bucket.get_object("replaced")
    start = answer.read(1024)
    bucket.put_object("replaced", b"new")
    rest = io.BytesIO()
    for chunk in answer:
        rest.write(chunk)
    assert start + rest.getvalue() == old
    assert bucket.get_object("replaced").read() == b"new"
