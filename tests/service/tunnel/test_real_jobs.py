"""Programs in jobs that are processes of this machine, through the service and with the client of the library."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from pai_sdk import Session
from pai_sdk._client.api.transport import Transport
from pai_sdk._client.job.entering import EnteredJob
from pai_sdk._client.tunnel.opening import JobTunnel
from pai_sdk._client.tunnel.polling import PolledTransport
from pai_sdk._host.agent.tunnel.streams import Stream
from pai_sdk.errors import TunnelClosedError
from tests.service.identity.test_two_users import user
from tests.service.services import Client, running_service, session_on
from tests.service.tunnel.tunnelling import running_job
from tests.support.waiting import PATIENCE_S, until

COUNT = "i=0; while [ $i -lt 3000 ]; do echo $i; i=$((i+1)); done; read word; echo $word; exit 7"
NUMBERS = [str(number).encode() for number in range(3000)]


def entered(session: Session, job_id: str, instance: str | None = None) -> JobTunnel:
    job = session.get_job(job_id)
    return EnteredJob(job.backend, job.refresh()).connect(instance)


def shell(tunnel: JobTunnel, script: str) -> Stream:
    return tunnel.open("program", argv=["sh", "-c", script], terminal=None, variables={}, cwd=None)


def output(stream: Stream) -> list[bytes]:
    data = bytearray()
    while part := stream.read():
        data += part
    return bytes(data).split()


def test_a_program_runs_in_each_instance(service: Client) -> None:
    job_id = running_job(service, "sleep 600", ComputeResource={"EcsSpec": "local", "EcsCount": 2})
    session = session_on(service.info)
    for instance, rank in ((None, b"0"), ("worker-0", b"1")):
        with entered(session, job_id, instance) as tunnel:
            stream = shell(tunnel, "echo $RANK $PAI_TRAINING_JOB_ID; cat; exit 3")
            stream.write(b"input\n")
            stream.end()
            assert output(stream) == [rank, job_id.encode(), b"input"]
            assert stream.wait_exit(PATIENCE_S) == 3
    service.call("PUT", f"/trainingjobs/{job_id}/stop")


def test_a_restart_of_the_service_loses_nothing_of_a_program(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    with ExitStack() as stack:
        with running_service(data_dir) as client:
            job_id = running_job(client, "sleep 600")
            tunnel = stack.enter_context(entered(session_on(client.info), job_id))
            stream, received = shell(tunnel, COUNT), list[bytes]()
            reader = threading.Thread(target=lambda: received.extend(output(stream)))
            reader.start()
        stream.write(b"hello\n")  # while there is no service
        with running_service(data_dir) as client:
            reader.join(PATIENCE_S)
            assert received == [*NUMBERS, b"hello"]
            assert stream.wait_exit(PATIENCE_S) == 7
            client.call("PUT", f"/trainingjobs/{job_id}/stop")
            client.until(job_id)


def test_a_tunnel_ends_with_its_job_and_with_its_key(service: Client) -> None:
    alice = user(service, "alice")
    job_id = running_job(alice, "sleep 600")
    session = session_on(alice.info)
    with entered(session, job_id) as tunnel:
        stream = shell(tunnel, "echo started; sleep 600")
        assert stream.read() == b"started\n"
        service.call("DELETE", f"/users/alice/keys/{alice.info.access_key_id}")
        revoked_at = time.monotonic()
        with pytest.raises(TunnelClosedError) as ended:
            stream.wait_exit(PATIENCE_S)
        assert time.monotonic() - revoked_at < PATIENCE_S / 2, ended.value
    with entered(session_on(service.info), job_id) as tunnel:
        stream = shell(tunnel, "echo started; sleep 600")
        assert stream.read() == b"started\n"
        service.call("PUT", f"/trainingjobs/{job_id}/stop")
        with pytest.raises(TunnelClosedError):
            stream.wait_exit(PATIENCE_S)
        service.until(job_id)


def test_a_proxy_that_refuses_websockets(service: Client) -> None:
    job_id = running_job(service, "sleep 600")
    transport: Transport = session_on(service.info).get_job(job_id).backend._transport

    def dial() -> PolledTransport:
        polled = PolledTransport(transport, job_id, f"{job_id}-master-0")
        polled.open()
        return polled

    with JobTunnel(dial, job_id, f"{job_id}-master-0") as tunnel:
        stream = shell(tunnel, COUNT)
        stream.write(b"hello\n")
        assert output(stream) == [*NUMBERS, b"hello"]
        assert stream.wait_exit(PATIENCE_S) == 7
    service.call("PUT", f"/trainingjobs/{job_id}/stop")


def test_many_tunnels_into_one_instance(service: Client) -> None:
    job_id = running_job(service, "sleep 600")
    session, start = session_on(service.info), threading.Barrier(20)
    exits: list[int] = []

    def run(number: int) -> None:
        start.wait()
        with entered(session, job_id) as tunnel:
            exits.append(shell(tunnel, f"exit {number}").wait_exit(PATIENCE_S))

    threads = [threading.Thread(target=run, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    until(lambda: len(exits) == 20)
    assert sorted(exits) == [*range(20)]
    service.call("PUT", f"/trainingjobs/{job_id}/stop")
