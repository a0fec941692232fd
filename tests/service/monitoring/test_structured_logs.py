"""Logs as JSON: every line parses, names its request, and has no secret."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import requests

from pai_sdk._service.monitoring.structured_logs import JsonFormatter
from pai_sdk._service.settings import ServiceInfo
from tests.service.services import Client, job_body
from tests.support.waiting import PATIENCE_S

SERVE = [sys.executable, "-m", "pai_sdk", "serve", "--port", "0", "--json"]


@dataclass
class Served:
    """A service that was started by the command, and its stderr."""

    client: Client
    process: subprocess.Popen[str]
    log: Path

    def lines(self) -> list[str]:
        """All lines of the log; the service has ended then."""
        self.process.terminate()
        assert self.process.wait(PATIENCE_S) == 0
        return self.log.read_text().splitlines()


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Any]:
    begun: list[tuple[subprocess.Popen[str], Client]] = []

    def begin(*options: str) -> Served:
        log = tmp_path / "stderr"
        with log.open("w") as target:
            process = subprocess.Popen(
                [*SERVE, "--data", str(tmp_path / "data"), *options],
                stdout=subprocess.PIPE,
                stderr=target,
                text=True,
                env={**os.environ, "HOME": str(tmp_path)},
            )
        assert process.stdout is not None
        with process.stdout as greeting:
            first = greeting.readline()
        assert first, log.read_text()
        client = Client(ServiceInfo(**json.loads(first)))
        begun.append((process, client))
        return Served(client, process, log)

    yield begin
    for process, client in begun:
        client.session.close()
        process.kill()
        process.wait(PATIENCE_S)


def test_each_line_is_an_object_that_names_its_request(serve: Any) -> None:
    served = serve("--log-format", "json", "--access-log")
    client: Client = served.client
    job_id = client.create(job_body("echo hello"))
    client.until(job_id, "Succeed")
    listed = client.call("GET", "/trainingjobs")
    signed = client.bucket().sign_url("GET", "a/b\nc", 60)
    assert requests.get(signed, timeout=PATIENCE_S).status_code == 404
    page = client.call("POST", "/pagelinks").json()["Url"]
    ticket = "/ui/download/the-ticket-of-a-file"
    requests.get(client.info.endpoint + ticket, timeout=PATIENCE_S)
    requests.get(
        f"{client.info.endpoint}/metrics", headers={"Authorization": "Bearer guess-1234"}, timeout=PATIENCE_S
    )

    text = served.lines()
    lines = [json.loads(line) for line in text]
    assert {"time", "level", "logger", "message"} <= set.intersection(*(set(line) for line in lines))
    assert all(line["time"].endswith("Z") and line["time"][10] == "T" for line in lines)
    requests_of = [line for line in lines if line["logger"] == "pai_sdk._service.access"]
    of_job = next(line for line in requests_of if line["path"] == f"/api/v1/trainingjobs/{job_id}")
    assert (of_job["job_id"], of_job["user"], of_job["status"]) == (job_id, "local", 200)
    of_list = next(
        line for line in requests_of if line["path"] == "/api/v1/trainingjobs" and line["method"] == "GET"
    )
    assert of_list["request_id"] == listed.json()["RequestId"]
    assert of_list["duration_ms"] > 0
    of_object = next(line for line in requests_of if line["path"] == "/pai-local/a/b\nc")
    assert of_object["status"] == 404
    assert of_object["request_id"]

    everything = "\n".join(text)
    secrets = [client.info.access_key_secret, "Signature", "the-ticket", "guess-1234", page.partition("code=")[2]]
    assert [secret for secret in secrets if secret in everything] == []


def test_lines_of_requests_are_opt_in(serve: Any) -> None:
    served = serve("--log-format", "json")
    served.client.get("/trainingjobs")
    lines = [json.loads(line) for line in served.lines()]
    assert any(line["message"].startswith("serving http://") for line in lines)
    assert not [line for line in lines if line["logger"] == "pai_sdk._service.access"]


def test_lines_of_requests_as_text(serve: Any) -> None:
    served = serve("--access-log")
    served.client.get("/trainingjobs", Status="Running")
    (line,) = [line for line in served.lines() if "/trainingjobs" in line]
    assert line.startswith("INFO GET /api/v1/trainingjobs 200 in ")


def test_a_service_that_does_not_start_says_so_in_json(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "thesis.txt").write_text("not a service's")
    done = subprocess.run(
        [*SERVE, "--data", str(tmp_path / "data"), "--log-format", "json"],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env={**os.environ, "HOME": str(tmp_path)},
        check=False,
    )
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert json.loads(line)["level"] == "CRITICAL"
    assert str(tmp_path / "data") in json.loads(line)["message"]


# ---- the formatter


def formatted(message: str, *values: object, exception: BaseException | None = None) -> dict[str, Any]:
    info = (type(exception), exception, exception.__traceback__) if exception is not None else None
    line = JsonFormatter().format(logging.LogRecord("pai_sdk.x", logging.ERROR, "", 1, message, values, info))
    assert "\n" not in line
    found: dict[str, Any] = json.loads(line)
    return found


def test_an_exception_with_line_breaks_is_one_line() -> None:
    try:
        raise ValueError("first\nsecond \u2028 \x1b[31m \udcff")
    except ValueError as error:
        line = formatted("job %s failed\nbadly", "train0a1b2c3d4e5f", exception=error)
    assert line["message"] == "job train0a1b2c3d4e5f failed\nbadly"
    assert line["job_id"] == "train0a1b2c3d4e5f"
    assert "ValueError: first\nsecond" in line["exception"]
    assert "Traceback" in line["exception"]


@pytest.mark.parametrize(
    "text",
    [
        "GET /b/k?OSSAccessKeyId=LTAI&Expires=1&Signature=hunter2%3D failed",
        "x-oss-signature=hunter2&x",
        "Authorization: ACS3-HMAC-SHA256 Credential=LTAI,SignedHeaders=host,Signature=hunter2",
        "Authorization: OSS LTAIabcdefgh:hunter2+hunter2=",
        "authorization: Bearer hunter2-hunter2",
        "postgresql+psycopg://pai:hunter2@db.example.com/pai is gone",
        "connection with password=hunter2 failed",
        '{"access_key_secret": "hunter2"}',
        "SecurityToken=hunter2",
        "/ui/#code=hunter2",
    ],
)
def test_what_looks_like_a_secret_is_replaced(text: str) -> None:
    assert "hunter2" not in str(formatted("%s", text))
    assert "hunter2" not in str(formatted("failed", exception=RuntimeError(text)))
