"""A service that is told to end while clients are at it: each gets an answer, and nothing half-done stays."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from pai_sdk._host.execution.log_metrics import LogMetrics
from pai_sdk._service.oss.bucket_store import BucketStore
from pai_sdk._service.settings import ConnectionLimits
from tests.service.fakes import ScriptedExecutor
from tests.service.services import job_body
from tests.support.waiting import PATIENCE_S, until


@pytest.fixture
def start(start: Callable[..., Any]) -> Callable[..., Any]:
    """Starts a service that ends soon."""
    return partial(start, connections=ConnectionLimits(grace_s=0.2, last_grace_s=PATIENCE_S))


def send(url: str, method: str, *, length: int = 0, body: bytes = b"") -> socket.socket:
    """A request on a connection of its own, with less of a body than it says."""
    parts = urlsplit(url)
    connection = socket.create_connection((parts.hostname, parts.port), timeout=PATIENCE_S)
    lines = [f"{method} {parts.path}?{parts.query} HTTP/1.1", f"Host: {parts.netloc}", f"Content-Length: {length}"]
    connection.sendall("\r\n".join([*lines, "", ""]).encode() + body)
    return connection


def rest_of(connection: socket.socket) -> bytes:
    received = b""
    with connection:
        try:
            while chunk := connection.recv(1 << 20):
                received += chunk
        except ConnectionError:
            pass
    return received


def test_an_upload_that_does_not_end_in_time_is_told_to_come_again_and_leaves_nothing(
    start: Callable[..., Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    incoming = tmp_path / "data" / "objects" / "incoming"
    with start(ScriptedExecutor()) as client:
        client.bucket().put_object("kept", b"old")
        upload = send(client.bucket().sign_url("PUT", "kept", 60), "PUT", length=5 << 20, body=bytes(1 << 20))
        until(lambda: [draft for draft in incoming.iterdir() if draft.stat().st_size])
        answers: list[bytes] = []
        reading = threading.Thread(target=lambda: answers.append(rest_of(upload)))
        reading.start()
    reading.join(PATIENCE_S)
    assert answers[0].startswith(b"HTTP/1.1 503 ")
    assert b"retry-after: 1" in answers[0]
    assert not list(incoming.iterdir())
    assert [record.getMessage() for record in caplog.records if record.levelno > logging.INFO] == []
    with start(ScriptedExecutor()) as client:
        assert client.bucket().get_object("kept").read() == b"old"


def test_an_output_that_is_being_saved_does_not_keep_it_from_ending_and_is_saved_by_the_next(
    start: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    executor, sending = ScriptedExecutor(), threading.Event()

    def write(store: BucketStore, path: str, content: object, **_: object) -> None:
        """Of a file that has no end."""
        sending.set()
        while True:
            store._check_cancelled()
            time.sleep(0.01)

    with pytest.MonkeyPatch.context() as endless, start(executor) as client:
        model = f"oss://{client.info.bucket}/out/"
        job_id = client.create(job_body(OutputChannels=[{"Name": "model", "OutputUri": model}]))
        client.until(job_id, "Running")
        root = client.info.data_dir / "jobs" / job_id
        (root / "ml" / "output" / "model" / "w.bin").write_bytes(b"weights")
        endless.setattr(BucketStore, "write", write)
        executor.succeed(root)
        assert sending.wait(PATIENCE_S)
    told = [record.getMessage() for record in caplog.records]
    assert f"job {job_id} has finished; the next service on this data folder saves its remaining outputs" in told
    assert [record for record in caplog.records if record.levelno > logging.INFO] == []
    with start(executor) as client:
        assert client.until(job_id)["Status"] == "Succeed"
        assert client.bucket().get_object("out/w.bin").read() == b"weights"


def test_metrics_that_are_being_read_do_not_keep_it_from_ending_and_are_read_by_the_next(
    start: Callable[..., Any],
) -> None:
    executor, reading = ScriptedExecutor(), threading.Event()

    def read(logs: LogMetrics, patterns: object, *, is_final: bool) -> Iterator[dict[str, float]]:
        """Of a log that has no end."""
        while is_final:
            reading.set()
            time.sleep(0.01)
            yield {}

    with pytest.MonkeyPatch.context() as endless, start(executor) as client:
        spec = {"MetricDefinitions": [{"Name": "loss", "Regex": "loss=([0-9.]+)"}]}
        endless.setattr(LogMetrics, "read_on", read)
        job_id = client.create(job_body(AlgorithmSpec=spec))
        client.until(job_id, "Running")
        root = client.info.data_dir / "jobs" / job_id
        executor.print(root, f"{job_id}-master-0", "loss=0.5\n")
        executor.succeed(root)
        assert reading.wait(PATIENCE_S)
    with start(executor) as client:
        assert client.until(job_id)["Status"] == "Succeed"
        assert [metric["Value"] for metric in client.get(f"/trainingjobs/{job_id}/metrics")["Metrics"]] == [0.5]


def test_who_does_not_read_an_answer_does_not_keep_it_from_ending(
    start: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    with start(ScriptedExecutor()) as client:
        client.bucket().put_object("large", bytes(32 << 20))
        download = send(client.bucket().sign_url("GET", "large", 60), "GET")
        assert download.recv(100).startswith(b"HTTP/1.1 200 ")
    assert len(rest_of(download)) < 32 << 20
    assert [record.getMessage() for record in caplog.records] == []
