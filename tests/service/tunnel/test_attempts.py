"""Tunnels into jobs with several attempts: they end with one of them, and forwards continue in the next one."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from pai_sdk import Session
from pai_sdk._client.job.entering import EnteredJob
from pai_sdk._service.settings import Pace
from pai_sdk.errors import JobError, TunnelClosedError
from tests.service.services import Client, running_service, session_on
from tests.service.tunnel.tunnelling import running_job
from tests.service.two_services import free_port
from tests.support.waiting import PATIENCE_S, until

RETRIES = {"Tags": {"pai-sdk.max_retries": "1", "pai-sdk.retry_on": "KilledBySignal"}}
SERVE = """
import socket, sys
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
while True:
    connection, _ = server.accept()
    connection.sendall(sys.argv[2].encode())
    connection.close()
"""


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    monkeypatch.setattr("pai_sdk._client.tunnel.attempts._STATUS_S", PATIENCE_S)
    with running_service(tmp_path / "data", pace=Pace(first_retry_wait_s=0.2)) as client:
        yield client


def entered(session: Session, job_id: str) -> EnteredJob:
    job = session.get_job(job_id)
    return EnteredJob(job.backend, job.refresh())


def kill(entered: EnteredJob) -> None:
    until(lambda: entered.exec(["test", "-s", "pid"], None, input=b"") == 0)
    entered.exec(["sh", "-c", "setsid sh -c 'sleep 0.3; kill -9 $(cat pid)' & sleep 600"], None, input=b"")


def test_a_program_ends_with_its_attempt(client: Client) -> None:
    job_id = running_job(client, "echo $$ > pid; sleep 600", Settings=RETRIES)
    with pytest.raises(TunnelClosedError) as ended:
        kill(entered(session_on(client.info), job_id))
    assert ended.value.code == "AttemptEnded"
    client.until(job_id, "Running")
    with pytest.raises((TunnelClosedError, JobError)) as last:
        kill(entered(session_on(client.info), job_id))
    assert getattr(last.value, "code", "") != "AttemptEnded"


def test_a_forward_continues_in_the_next_attempt(client: Client) -> None:
    port, notices = free_port(), list[str]()
    serve = f"echo x >> attempts; echo $$ > pid; python3 -c '{SERVE}' {port} $(wc -l < attempts)"
    job_id = running_job(client, serve, Settings=RETRIES)
    job = entered(session_on(client.info), job_id)
    with job.forward([f"0:{port}"], None, on_error=notices.append) as forward:

        def response() -> bytes:
            address = "127.0.0.1", forward.ports[0].local
            try:
                with socket.create_connection(address, PATIENCE_S) as connection:
                    return connection.recv(10)
            except ConnectionError:  # the job does not listen yet
                return b""

        until(lambda: response() == b"1")
        with pytest.raises(TunnelClosedError):
            kill(job)
        until(lambda: response() == b"2")
        assert any("attempt 1" in notice for notice in notices)
        client.call("PUT", f"/trainingjobs/{job_id}/stop")
        with pytest.raises((TunnelClosedError, JobError)):
            forward.wait(PATIENCE_S)
