"""A service that speaks TLS: what works over https, which certificates are refused, and how they are renewed."""

from __future__ import annotations

import http.client
import json
import logging
import os
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import oss2
import pytest
import requests
from typer.testing import CliRunner

from pai_sdk._client.session.session import Session
from pai_sdk._core.config.credentials import static_credentials
from pai_sdk._core.missing_response import diagnose
from pai_sdk._service.settings import ConnectionLimits
from pai_sdk.alipai.pai.estimator import Estimator
from pai_sdk.cli.root import app
from pai_sdk.errors import ConnectionFailedError, ServiceStartError
from tests.service.certificates import Authority, Files
from tests.service.fakes import ScriptedExecutor
from tests.service.services import Client, running_service
from tests.service.web.browsing import code_in, headers_of_page
from tests.support.waiting import PATIENCE_S, until


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


@pytest.fixture(scope="module")
def client(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    files = authority.issue("127.0.0.1", "localhost")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REQUESTS_CA_BUNDLE", str(authority.file))
        folder = tmp_path_factory.mktemp("tls") / "data"
        with running_service(folder, tls_cert=files.certificate, tls_key=files.key) as found:
            yield found


@pytest.fixture
def session(client: Client) -> Iterator[Session]:
    with session_with(client, client.info.endpoint) as found:
        yield found


def session_with(client: Client, endpoint: str) -> Session:
    return Session(
        client.info.region_id,
        client.info.workspace_id,
        endpoint=endpoint,
        aiworkspace_endpoint=endpoint,
        oss_endpoint=endpoint,
        oss_bucket_name=client.info.bucket,
        credentials=static_credentials(client.info.access_key_id, client.info.access_key_secret),
        profile="",
    )


def plain(client: Client) -> str:
    return client.info.endpoint.replace("https://", "http://")


def connect(endpoint: str, authority: Authority) -> http.client.HTTPSConnection:
    address = urlsplit(endpoint)
    trusting = ssl.create_default_context(cafile=str(authority.file))
    return http.client.HTTPSConnection(address.hostname or "", address.port, timeout=PATIENCE_S, context=trusting)


def is_healthy(connection: http.client.HTTPSConnection) -> bool:
    connection.request("GET", "/healthz")
    response = connection.getresponse()
    return json.loads(response.read()) == {"status": "ok"}


def serial_of(endpoint: str, authority: Authority) -> str:
    """The serial number of the certificate that a new connection gets."""
    connection = connect(endpoint, authority)
    try:
        connection.connect()
        return str(connection.sock.getpeercert()["serialNumber"])
    finally:
        connection.close()


# ---- what works


def test_a_job_runs_and_its_log_and_files_come_over_https(session: Session, tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "train.py").write_text(
        "import os, pathlib\n"
        "print('trusts', os.environ['REQUESTS_CA_BUNDLE'])\n"
        "text = pathlib.Path(os.environ['PAI_INPUT_A'], 'x').read_text()\n"
        "pathlib.Path(os.environ['PAI_OUTPUT_MODEL'], 'w.txt').write_text(text * 2)\n"
    )
    (tmp_path / "x").write_text("weights ")
    data = session.upload(tmp_path / "x", "oss://pai-local/data/x")
    estimator = Estimator(
        image_uri="none",
        source_dir=str(tmp_path / "code"),
        command="python train.py",
        instance_type="any",
        session=session,
    )
    job = estimator.fit(inputs={"a": data.removesuffix("x")}, wait=False)
    lines = [line.text for line in job.logs(follow=True)]
    assert any(line.startswith("trusts ") for line in lines)
    job.wait()
    found = job.download("model", tmp_path / "model")
    assert (found / "w.txt").read_text() == "weights weights "


def test_large_objects_go_both_ways_over_https(client: Client) -> None:
    content = os.urandom(3 << 20)
    client.bucket().put_object("large", content)
    assert client.bucket().get_object("large").read() == content


def test_urls_that_the_service_makes_are_https(client: Client) -> None:
    assert client.info.endpoint == client.info.oss_endpoint
    assert client.info.endpoint.startswith("https://127.0.0.1:")
    bucket = client.bucket()
    upload = bucket.init_multipart_upload("parts").upload_id
    part = oss2.models.PartInfo(1, bucket.upload_part("parts", upload, 1, b"content").etag)
    done = bucket.complete_multipart_upload("parts", upload, [part])
    assert f"<Location>{client.info.endpoint}/pai-local/parts</Location>" in done.resp.response.text


def test_the_page_opens_and_its_cookie_is_only_sent_by_https(client: Client, authority: Authority) -> None:
    link = client.call("POST", "/pagelinks").json()["Url"]
    assert link.startswith(f"{client.info.endpoint}/ui/#code=")
    port = urlsplit(link).port
    assert port is not None
    sent = {
        name.replace("_", "-"): value for name, value in headers_of_page(port, Origin=client.info.endpoint).items()
    }
    connection = connect(client.info.endpoint, authority)
    connection.request("POST", "/ui/session", json.dumps({"code": code_in(link)}), sent)
    response = connection.getresponse()
    assert response.status == 200, response.read()
    assert "secure" in response.getheader("Set-Cookie", "").lower().split("; ")
    connection.close()


def test_commands_of_this_machine_find_the_service_without_the_ca(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("REQUESTS_CA_BUNDLE", raising=False)
    done = CliRunner().invoke(app, ["service", "status", "--data", str(client.info.data_dir), "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.output)["endpoint"] == client.info.endpoint


def test_a_client_without_the_ca_learns_what_to_set(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REQUESTS_CA_BUNDLE")
    monkeypatch.delenv("CURL_CA_BUNDLE", raising=False)
    with (
        session_with(client, client.info.endpoint) as session,
        pytest.raises(ConnectionFailedError, match="set REQUESTS_CA_BUNDLE to its file"),
    ):
        list(session.list_jobs())


def test_a_client_with_http_learns_that_the_port_may_speak_tls(client: Client) -> None:
    with pytest.raises(requests.ConnectionError) as caught:
        requests.get(f"{plain(client)}/healthz", timeout=PATIENCE_S)
    assert diagnose(caught.value, plain(client)).sentence.endswith(
        "if it speaks TLS, write the endpoint with https://"
    )


# ---- which name clients use


@pytest.mark.parametrize(
    ("names", "options", "host"),
    [
        (["train.example", "localhost"], {}, "train.example"),
        (["b.example", "a.example"], {"names": ("https://a.example",)}, "a.example"),
        (["*.lab.example"], {"names": ("gpu.lab.example",)}, "gpu.lab.example"),
        (["train.example", "127.0.0.1"], {"host": "0.0.0.0"}, "127.0.0.1"),
    ],
)
def test_the_endpoint_has_a_name_of_the_certificate(
    start: Callable[..., Any], authority: Authority, names: list[str], options: dict[str, Any], host: str
) -> None:
    files = authority.issue(*names)
    with start(ScriptedExecutor(), tls_cert=files.certificate, tls_key=files.key, **options) as client:
        assert urlsplit(client.info.endpoint).hostname == host


# ---- which files are refused


def swapped(authority: Authority) -> Files:
    return Files(authority.issue("a.example").certificate, authority.issue("a.example").key)


def exchanged(authority: Authority) -> Files:
    files = authority.issue("a.example")
    return Files(files.key, files.certificate)


def damaged(authority: Authority) -> Files:
    files = authority.issue("a.example")
    text = files.certificate.read_text()
    files.certificate.write_text(text[:80] + "!" + text[81:])
    return files


def missing(authority: Authority) -> Files:
    files = authority.issue("a.example")
    return Files(files.certificate, files.key.with_name("nowhere.key"))


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda ca: ca.issue("a.example", days=-1, since_days=-9), "has expired"),
        (lambda ca: ca.issue("a.example", since_days=2), "is not valid yet"),
        (lambda ca: ca.issue("a.example", passphrase=b"hunter2"), "has a passphrase"),
        (swapped, "does not belong to the certificate"),
        (exchanged, "contains no certificate in PEM"),
        (damaged, "cannot be used"),
        (missing, "nowhere.key cannot be read: No such file"),
    ],
)
def test_files_that_cannot_be_used_are_refused_before_anything_begins(
    start: Callable[..., Any],
    authority: Authority,
    tmp_path: Path,
    make: Callable[[Authority], Files],
    problem: str,
) -> None:
    files = make(authority)
    with pytest.raises(ServiceStartError, match=problem), start(tls_cert=files.certificate, tls_key=files.key):
        pass
    assert not (tmp_path / "data").exists()


def test_one_file_alone_is_refused(start: Callable[..., Any], authority: Authority) -> None:
    files = authority.issue("a.example")
    with pytest.raises(ServiceStartError, match="give both --tls-cert and --tls-key"), start(tls_key=files.key):
        pass
    done = CliRunner().invoke(app, ["serve", "--tls-cert", str(files.certificate)])
    assert done.exit_code == 2
    assert "give --tls-cert and --tls-key, or neither" in " ".join(done.output.replace("│", " ").split())


# ---- renewal


def test_a_renewed_certificate_is_used_and_no_connection_ends(
    start: Callable[..., Any], authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pai_sdk._service.http.tls")
    files = authority.issue("127.0.0.1")
    with start(ScriptedExecutor(), tls_cert=files.certificate, tls_key=files.key) as client:
        endpoint = client.info.endpoint
        connection = connect(endpoint, authority)
        assert is_healthy(connection)
        first_socket, first = connection.sock, serial_of(endpoint, authority)

        key = files.key.read_bytes()
        files.key.write_bytes(b"half of a file")
        until(lambda: "the certificate is not renewed" in caplog.text)
        assert serial_of(endpoint, authority) == first, "the last one stays"
        files.key.write_bytes(key)

        authority.issue("127.0.0.1", into=files)
        until(lambda: serial_of(endpoint, authority) != first)
        assert "the certificate was renewed; it is valid until" in caplog.text
        assert is_healthy(connection)
        assert connection.sock is first_socket, "the same connection"
        connection.close()


# ---- clients that do not close, or do not begin


def test_a_client_that_never_begins_tls_is_disconnected(start: Callable[..., Any], authority: Authority) -> None:
    files = authority.issue("127.0.0.1")
    limits = ConnectionLimits(head_s=0.5)
    with start(ScriptedExecutor(), tls_cert=files.certificate, tls_key=files.key, connections=limits) as client:
        port = urlsplit(client.info.endpoint).port
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as silent:
            assert silent.recv(1) == b""


def test_a_client_that_keeps_its_connection_does_not_hold_up_the_end(
    start: Callable[..., Any], authority: Authority
) -> None:
    files = authority.issue("127.0.0.1")
    with start(ScriptedExecutor(), tls_cert=files.certificate, tls_key=files.key) as client:
        connection = connect(client.info.endpoint, authority)
        assert is_healthy(connection)
        begun = time.monotonic()
    assert time.monotonic() - begun < PATIENCE_S / 2
    connection.close()
