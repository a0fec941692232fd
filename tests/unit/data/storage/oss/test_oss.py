from __future__ import annotations

import base64
import gzip
import hashlib
import itertools
import logging
import os
import shutil
import socket
import ssl
import subprocess
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import oss2
import pytest

from pai_sdk._core.config.credentials import Credentials
from pai_sdk._core.endpoint import Endpoint
from pai_sdk._core.retry import RetryPolicy
from pai_sdk._data.storage.oss.bucket import OssBucket, OssTransport
from pai_sdk._data.storage.oss.client import OssClient
from pai_sdk._data.storage.oss.http import HttpPool
from pai_sdk._data.storage.oss.parts import PartInfo
from pai_sdk._data.storage.uri import OssUri
from pai_sdk.errors import CredentialsError, SettingsError, StorageError
from tests.support.fake_oss import FakeOss, StoredObject
from tests.support.messages import refused
from tests.support.waiting import PATIENCE_S
from tests.unit.data.storage.conftest import BUCKET

pytestmark = [pytest.mark.interpreter, pytest.mark.usefixtures("wire")]

SECRET, TOKEN = "s3cret-of-the-key", "token-of-the-session"
KEYS = ["plain", "a/b c.txt", "ü/#?%41+&='\".txt", "line\nbreak", "日本/../x", "%2e%2e/y", "a//b", " ", "~-_."]


def uri(key: str, bucket: str = BUCKET) -> OssUri:
    return OssUri(bucket, key)


@pytest.mark.parametrize("key", KEYS)
def test_any_key_round_trips(client: OssClient, oss: FakeOss, key: str) -> None:
    client.put_bytes(uri(key), b"content")
    assert list(oss.buckets[BUCKET]) == [key]
    assert client.get_bytes(uri(key)) == b"content"
    assert [found.uri for found in client.list(uri(""))] == [uri(key)]
    client.delete(uri(key))
    client.delete(uri(key))
    assert not client.exists(uri(key))


@pytest.mark.parametrize("key", KEYS)
def test_requests_are_those_of_oss2(client: OssClient, oss: FakeOss, key: str) -> None:
    """Their path, and all that is signed but the time."""
    auth = oss2.AuthV4("key-id", "key-secret")
    bucket = oss2.Bucket(auth, oss.endpoint, BUCKET, region="cn-test", enable_crc=False)
    oss.buckets[BUCKET]["source"] = StoredObject(b"source")
    copied = {
        "x-oss-copy-source-if-match": oss.buckets[BUCKET]["source"].etag,
        "x-oss-metadata-directive": "REPLACE",
    }
    ours: list[Callable[[], object]] = [
        lambda: client.put_bytes(uri(key), b"content", meta={"owner": "me"}),
        lambda: client.head(uri(key)),
        lambda: client.get_bytes(uri(key)),
        lambda: client.copy(uri("source"), uri(key), etag=oss.buckets[BUCKET]["source"].etag),
    ]
    put = {"x-oss-meta-owner": "me", "Content-MD5": base64.b64encode(hashlib.md5(b"content").digest()).decode()}
    kind = oss2.utils.content_type_by_name(key) or "application/octet-stream"
    theirs: list[Callable[[], object]] = [
        lambda: bucket.put_object(key, b"content", headers=put),
        lambda: bucket.head_object(key),
        lambda: bucket.get_object(key).read(),
        lambda: bucket.copy_object(BUCKET, "source", key, headers={**copied, "Content-Type": kind}),
    ]
    for our_call, their_call in zip(ours, theirs, strict=True):
        our_call()
        their_call()
        our_request, their_request = oss.seen[-2:]
        assert (our_request.method, our_request.key, our_request.query) == (
            their_request.method,
            their_request.key,
            their_request.query,
        )
        assert signed_part(our_request.headers) == signed_part(their_request.headers)


def signed_part(headers: dict[str, str]) -> dict[str, str]:
    names = [name for name in headers if name.startswith(("x-oss-", "content-"))]
    return {name: headers[name] for name in names if name != "x-oss-date"}


def test_files_come_and_go_with_hash_and_mode(client: OssClient, tmp_path: Path) -> None:
    content, target = os.urandom(700_000), tmp_path / "target"
    client.put_bytes(uri("file"), content, meta={"pai-executable": "true", "owner": "me"})
    info = client.head(uri("file"))
    assert info is not None
    assert (info.size_bytes, info.meta["owner"]) == (700_000, "me")
    client.get_file(uri("file"), target)
    assert target.read_bytes() == content
    assert os.access(target, os.X_OK)
    assert list(tmp_path.iterdir()) == [target]


def test_a_packed_object_stays_packed(client: OssClient, oss: FakeOss, tmp_path: Path) -> None:
    packed = gzip.compress(b"text" * 1000)
    oss.buckets[BUCKET]["log.gz"] = StoredObject(packed, {"Content-Encoding": "gzip"})
    assert client.get_bytes(uri("log.gz")) == packed
    client.get_file(uri("log.gz"), tmp_path / "log.gz")
    assert (tmp_path / "log.gz").read_bytes() == packed


def test_a_listing_goes_over_pages(client: OssClient, oss: FakeOss) -> None:
    oss.buckets[BUCKET] = {f"p/{number:05}": StoredObject(b"x") for number in range(2_500)} | {
        "q": StoredObject(b"")
    }
    keys = [found.uri.key for found in client.list(uri("p/"))]
    assert keys == [f"p/{number:05}" for number in range(2_500)]
    assert len(oss.seen) == 3


@pytest.mark.parametrize("again", [1, 99])
def test_a_page_that_is_answered_twice_is_not_listed_twice(
    client: OssClient, oss: FakeOss, monkeypatch: pytest.MonkeyPatch, again: int
) -> None:
    oss.buckets[BUCKET] = {f"p/{number:05}": StoredObject(b"x") for number in range(1_500)}
    real, left = OssBucket.send, again

    def from_a_cache(bucket: OssBucket, method: str, key: str, *, params: dict[str, str]) -> object:
        nonlocal left
        if "continuation-token" in params and left > 0:
            left -= 1
            params = {name: value for name, value in params.items() if name != "continuation-token"}
        return real(bucket, method, key, params=params)

    monkeypatch.setattr(OssBucket, "send", from_a_cache)
    listed = client.list(uri("p/"))
    if again == 1:
        assert len(list(listed)) == 1_500
    else:
        with refused(StorageError):
            list(listed)


FAULTS = ["reset", "lost", "status", "html", "truncate", "corrupt"]


@pytest.mark.parametrize("kind", FAULTS)
def test_two_faults_in_a_row_are_outlived(client: OssClient, oss: FakeOss, tmp_path: Path, kind: str) -> None:
    content = os.urandom(400_000)
    oss.fail(kind, times=2)
    client.put_bytes(uri("k"), content)
    assert oss.buckets[BUCKET]["k"].content == content
    oss.faults.clear()
    oss.fail(kind, times=2)
    assert client.get_bytes(uri("k")) == content
    oss.faults.clear()
    oss.fail(kind, times=2)
    client.get_file(uri("k"), tmp_path / "k")
    assert (tmp_path / "k").read_bytes() == content
    oss.faults.clear()
    oss.fail(kind if kind != "corrupt" else "truncate", times=2)
    assert [found.uri.key for found in client.list(uri(""))] == ["k"]


@pytest.mark.parametrize("kind", ["truncate", "corrupt", "reset"])
def test_a_download_that_stays_broken_leaves_nothing(
    client: OssClient, oss: FakeOss, tmp_path: Path, kind: str
) -> None:
    oss.buckets[BUCKET]["k"] = StoredObject(b"x" * 50_000)
    (tmp_path / "k").write_text("old")
    oss.fail(kind, times=100)
    with pytest.raises(StorageError):
        client.get_file(uri("k"), tmp_path / "k")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"k": "old"}


def test_retry_after_is_obeyed(oss: FakeOss) -> None:
    pauses: list[float] = []
    retry = RetryPolicy(sleep=pauses.append)
    client = OssClient(oss.endpoint, lambda: Credentials("id", SECRET), region="cn-test", retry=retry)
    oss.fail("status", status=429, code="TooManyRequests", headers={"Retry-After": "7"})
    client.put_bytes(uri("k"), b"")
    assert pauses == [7.0]


@pytest.mark.parametrize(
    ("status", "code", "message", "says"),
    [
        (404, "NoSuchBucket", "", "there is no bucket 'test-bucket' at http://127.0.0.1"),
        (404, "NoSuchKey", "", "no object with this key"),
        (403, "AccessDenied", "", "is not allowed to do this on bucket 'test-bucket'"),
        (403, "SignatureDoesNotMatch", "", "the access key secret does not belong"),
        (403, "InvalidAccessKeyId", "", "the access key id does not exist"),
        (403, "InvalidAccessKeyId", "The key expired at 2027-01-31T08:00:00Z.", "expired at 2027-01-31T08:00:00Z"),
        (403, "RequestTimeTooSkewed", "", "the clock of this machine is wrong"),
        (400, "InvalidArgument", "Invalid signing region in Authorization header.", "the region does not fit"),
        (409, "SomethingNew", "the reason", "the reason"),
    ],
)
def test_refusals_are_one_clear_sentence(
    client: OssClient, oss: FakeOss, status: int, code: str, message: str, says: str
) -> None:
    oss.fail("status", status=status, code=code, message=message)
    with pytest.raises(StorageError) as caught:
        client.get_bytes(uri("k"))
    error = caught.value
    assert says in str(error)
    assert (error.code, error.status_code, error.request_id, error.uri) == (code, status, "REQ-1", str(uri("k")))
    assert len(str(error).splitlines()) == 1
    assert len(oss.seen) == 1


def test_a_bucket_that_is_missing_is_not_an_object_that_is_missing(client: OssClient) -> None:
    assert client.head(uri("k")) is None
    with refused(StorageError, code="NoSuchBucket"):
        client.exists(uri("k", bucket="other-bucket"))


def test_the_endpoint_of_another_region_is_named(client: OssClient, oss: FakeOss) -> None:
    message = "The bucket you are attempting to access must be addressed using the specified endpoint."
    right = {"Endpoint": "oss-cn-beijing.aliyuncs.com"}
    oss.fail("status", status=403, code="AccessDenied", message=message, details=right)
    with refused(StorageError, code="AccessDenied"):
        client.get_bytes(uri("k"))


def no_answer_of(endpoint: str) -> tuple[StorageError, int]:
    """The error when no server responds as OSS does, and the number of pauses before it."""
    pauses: list[float] = []
    retry = RetryPolicy(max_attempts=10, sleep=pauses.append)
    with (
        OssClient(endpoint, lambda: Credentials("id", SECRET), region="cn-test", retry=retry) as client,
        pytest.raises(StorageError) as caught,
    ):
        client.exists(uri("k"))
    return caught.value, len(pauses)


def test_nothing_listens_is_tried_again() -> None:
    error, pauses = no_answer_of("http://127.0.0.1:1")
    assert str(error).startswith("oss://test-bucket/k: nothing listens at http://127.0.0.1:1; check the endpoint")
    assert (error.status_code, pauses) == (0, 9)


def test_a_host_that_is_not_there_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def not_found(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", not_found)
    error, pauses = no_answer_of("https://oss-cn-hangzhuo.aliyuncs.com")
    assert "there is no host https://oss-cn-hangzhuo.aliyuncs.com; check region and endpoint" in str(error)
    assert (error.status_code, pauses) == (0, 0)


def test_https_spoken_to_an_http_port_is_told_at_once(oss: FakeOss) -> None:
    error, pauses = no_answer_of(oss.endpoint.replace("http:", "https:"))
    assert "no secure connection to https://127.0.0.1" in str(error)
    assert "write the endpoint with http://" in str(error)
    assert pauses == 0


def test_a_certificate_that_is_not_trusted_is_told_at_once(tmp_path: Path) -> None:
    with tls_server(tmp_path) as endpoint:
        error, pauses = no_answer_of(endpoint)
    assert f"the certificate of {endpoint} is not accepted: self-signed certificate" in str(error)
    assert pauses == 0


@contextmanager
def tls_server(folder: Path) -> Iterator[str]:
    """A server with a self-signed certificate."""
    made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    subject = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2"]
    files = ["-keyout", str(folder / "key"), "-out", str(folder / "certificate")]
    if shutil.which("openssl") is None:
        pytest.skip("no openssl here to make a certificate with")
    subprocess.run([*made, *subject, *files], check=True, capture_output=True, timeout=60)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "certificate", folder / "key")
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection, suppress(OSError):
                context.wrap_socket(connection, server_side=True).close()

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"https://127.0.0.1:{listener.getsockname()[1]}"
        thread.join(PATIENCE_S)


@pytest.mark.parametrize(
    ("status", "body", "attempts", "what"),
    [
        (404, b"<html><h1>404 Not Found</h1></html>", 1, "HTTP 404 and a web page"),
        (403, b"<!DOCTYPE html><p>Blocked</p>", 1, "HTTP 403 and a web page"),
        (404, b'{"detail":"Not Found"}', 1, "HTTP 404 and no reason"),
        (502, b"<html><h1>502 Bad Gateway</h1></html>", 4, "HTTP 502 and a web page"),
    ],
)
def test_what_is_not_oss_is_not_taken_for_it(
    oss: FakeOss, client: OssClient, status: int, body: bytes, attempts: int, what: str
) -> None:
    oss.fail("page", times=99, status=status, message=body.decode())
    with refused(StorageError) as caught:
        client.get_bytes(uri("k"))
    assert (caught.value.status_code, caught.value.code, len(oss.seen)) == (status, "", attempts)
    with refused(StorageError):
        client.exists(uri("k"))  # a HEAD, whose refusal has no body


@pytest.mark.parametrize("page", ["<html>Please log in<br></html>", "<html><p>Please log in</p></html>", ""])
def test_a_page_in_place_of_an_answer_is_not_asked_for_ever(oss: FakeOss, page: str) -> None:
    pauses: list[float] = []
    retry = RetryPolicy(sleep=pauses.append)
    # Many a server gives an ETag to what it answers for any path.
    oss.fail("page", times=99, status=200, message=page, headers={"ETag": '"5f2a"'})
    with OssClient(oss.endpoint, lambda: Credentials("id", SECRET), region="cn-test", retry=retry) as client:
        for attempt in (
            lambda: client.put_bytes(uri("k"), b"x"),
            lambda: client.get_bytes(uri("k")),
            lambda: client.delete(uri("k")),
            lambda: client.exists(uri("k")),
            lambda: list(client.list(uri(""))),
            lambda: client.parts.start(uri("k")),
            lambda: client.parts.complete(uri("k"), "id", [PartInfo(1, 1, "etag", 0)]),
            lambda: client.parts.abort(uri("k"), "id"),
        ):
            pauses.clear()
            with refused(StorageError):
                attempt()
            assert len(pauses) == 4


def test_silence_has_an_end(oss: FakeOss) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        retry = RetryPolicy(max_attempts=2, sleep=lambda seconds: None)
        endpoint = f"http://127.0.0.1:{server.getsockname()[1]}"
        client = OssClient(
            endpoint, lambda: Credentials("id", SECRET), region="cn-test", retry=retry, read_timeout_s=0.1
        )
        with refused(StorageError):
            client.exists(uri("k"))


def test_the_region_must_be_known() -> None:
    with refused(SettingsError):
        OssClient("https://storage.example.com", lambda: Credentials("id", SECRET))


def test_a_bearer_token_is_not_enough(oss: FakeOss) -> None:
    client = OssClient(oss.endpoint, lambda: Credentials("", "", bearer_token="b"), region="cn-test")
    with refused(CredentialsError):
        client.exists(uri("k"))
    assert oss.seen == []


@pytest.mark.parametrize("endpoint", ["http://store.example.com", "http://10.0.0.7:80", "http://localhost:8080"])
@pytest.mark.parametrize("path_style", [True, False])
def test_where_the_bucket_is_named(endpoint: str, path_style: bool) -> None:
    client = OssClient(endpoint, lambda: Credentials("id", SECRET), region="cn-test", path_style=path_style)
    url = client.place(uri("k"))["url"]
    is_host = "example" in endpoint and not path_style
    assert url == (f"http://{BUCKET}.store.example.com/" if is_host else f"{endpoint}/{BUCKET}/")


def test_a_proxy_of_the_environment_is_used(
    oss: FakeOss, retry: RetryPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fake store stands for the proxy: it gets requests for a host that does not exist."""
    monkeypatch.undo()  # of `wire`
    monkeypatch.setenv("HTTP_PROXY", oss.endpoint)
    key = Credentials("id", SECRET)
    far = OssClient("http://store.example.com", lambda: key, region="cn-test", retry=retry, path_style=True)
    with far:
        far.put_bytes(uri("k"), b"content")
        assert far.get_bytes(uri("k")) == b"content"
    assert {seen.headers["host"] for seen in oss.seen} == {"store.example.com"}


def test_each_request_is_signed_with_one_triple(oss: FakeOss) -> None:
    keys: Iterator[int] = itertools.count()

    def provide() -> Credentials:
        number = next(keys)
        return Credentials(f"id-{number}", f"secret-{number}", f"token-{number}")

    client = OssClient(oss.endpoint, provide, region="cn-test")
    for _ in range(3):
        client.exists(uri("k"))
    signed = [(seen.headers["authorization"], seen.headers["x-oss-security-token"]) for seen in oss.seen]
    assert [token for _, token in signed] == ["token-0", "token-1", "token-2"]
    assert all(
        f"Credential=id-{number}/" in text and "/cn-test/oss/" in text for number, (text, _) in enumerate(signed)
    )


def test_no_secret_in_log_error_or_repr(oss: FakeOss, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    client = OssClient(oss.endpoint, lambda: Credentials("id", SECRET, TOKEN), region="cn-test")
    # OSS answers a refused signature with the text it would have signed, token and all.
    leak = {"CanonicalRequest": f"x-oss-security-token:{TOKEN}", "StringToSign": SECRET}
    oss.fail("status", status=403, code="SignatureDoesNotMatch", message="no", details=leak)
    with pytest.raises(StorageError) as caught:
        client.get_bytes(uri("k"))
    shown = "".join(traceback.format_exception(caught.value))
    assert "SignatureDoesNotMatch" in shown
    assert TOKEN not in shown
    assert SECRET not in shown
    bad = OssClient(oss.endpoint, lambda: Credentials("id", SECRET, f"{TOKEN}\n"), region="cn-test")
    with pytest.raises(StorageError) as caught:
        bad.get_bytes(uri("k"))
    assert TOKEN not in "".join(traceback.format_exception(caught.value))
    assert TOKEN not in caplog.text
    assert SECRET not in caplog.text + repr(client)


def test_netrc_and_proxies_are_not_for_this_machine(
    oss: FakeOss, client: OssClient, clean_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (clean_home / ".netrc").write_text("machine 127.0.0.1 login me password mine\n")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    client.put_bytes(uri("k"), b"")
    assert oss.seen[0].headers["authorization"].startswith("OSS4-HMAC-SHA256")


def test_connections_are_kept(oss: FakeOss, client: OssClient) -> None:
    for number in range(20):
        client.put_bytes(uri(f"k{number}"), b"x")
        client.get_bytes(uri(f"k{number}"))
        client.exists(uri(f"k{number}"))
    assert oss.connections == 1


def test_threads_that_begin_together_share_one_pool(oss: FakeOss, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []
    make = OssTransport._create_pool

    def slowly(wires: OssTransport, root: str) -> HttpPool | None:
        made.append(root)
        time.sleep(0.05)
        return make(wires, root)

    monkeypatch.setattr(OssTransport, "_create_pool", slowly)
    with (
        OssClient(oss.endpoint, lambda: Credentials("id", SECRET), region="cn-test") as client,
        ThreadPoolExecutor(8) as threads,
    ):
        assert [*threads.map(lambda number: client.exists(uri(f"k{number}")), range(8))] == [False] * 8
    assert len(made) == 1


def test_all_of_oss2_can_be_used(oss: FakeOss, client: OssClient, tmp_path: Path) -> None:
    """Bodies and reads that the client itself never has go by oss2 as it is."""
    bucket = client.oss2_bucket(uri(""))
    (tmp_path / "file").write_bytes(b"file")
    bucket.put_object("text", "text")
    bucket.put_object_from_file("file", str(tmp_path / "file"))
    oss.buckets[BUCKET]["packed"] = StoredObject(gzip.compress(b"packed"), {"Content-Encoding": "gzip"})
    result = bucket.get_object("text")
    assert (result.read(2), result.read(), result.headers["ETag"]) == (
        b"te",
        b"xt",
        f'"{bucket.head_object("text").etag}"',
    )
    assert bucket.get_object("file").read() == b"file"
    assert bucket.get_object("packed").read() == b"packed"
    assert [found.key for found in bucket.list_objects_v2().object_list] == ["file", "packed", "text"]


@pytest.mark.parametrize(
    ("own", "given", "asked"),
    [
        ("oss-cn-beijing.aliyuncs.com", None, "https://oss-cn-beijing.aliyuncs.com"),
        (
            "oss-cn-beijing.aliyuncs.com",
            "oss-cn-beijing-internal.aliyuncs.com",
            "https://oss-cn-beijing.aliyuncs.com",
        ),
        ("oss-cn-beijing.aliyuncs.com", "oss-cn-hangzhou.aliyuncs.com", "https://oss-cn-hangzhou.aliyuncs.com"),
        ("http://127.0.0.1:80", "127.0.0.1:80", "http://127.0.0.1:80"),
        ("https://store.example.com", "STORE.example.com", "https://store.example.com"),
    ],
)
def test_which_endpoint_is_asked(own: str, given: str | None, asked: str) -> None:
    client = OssClient(own, lambda: Credentials("id", SECRET), region="cn-test")
    assert client._connection.bucket(OssUri(BUCKET, "k", given)).endpoint == asked


@pytest.mark.parametrize(
    ("endpoint", "region"),
    [
        ("oss-cn-beijing.aliyuncs.com", "cn-beijing"),
        ("oss-cn-beijing-internal.aliyuncs.com", "cn-beijing"),
        ("oss-accelerate.aliyuncs.com", "cn-hangzhou"),
        ("http://127.0.0.1:80", "cn-hangzhou"),
    ],
)
def test_signed_for_the_region_that_the_endpoint_names(endpoint: str, region: str) -> None:
    client = OssClient(endpoint, lambda: Credentials("id", SECRET), region="cn-hangzhou")
    assert client.region == client._connection.bucket(OssUri(BUCKET, "k")).region == region


def test_whoever_starts_the_store_again_is_called_before_each_further_attempt(retry: RetryPolicy) -> None:
    calls: list[int] = []
    credentials = Credentials("key-id", "key-secret")
    with (
        OssClient(
            Endpoint("http://127.0.0.1:9", lambda: calls.append(1)),
            lambda: credentials,
            region="cn-test",
            retry=retry,
        ) as client,
        refused(StorageError),
    ):
        client.get_bytes(OssUri("bucket", "key"))
    assert len(calls) == 3
