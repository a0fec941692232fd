"""Tunnels into jobs as processes: started by the first connection, and ended with the job."""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from pai_sdk._host.agent.processes import descendants
from pai_sdk._host.agent.tunnel.link import ResumableLink, SocketTransport
from pai_sdk._host.agent.tunnel.on_demand import SOCKET
from pai_sdk._host.agent.tunnel.streams import Stream, Tunnel
from pai_sdk._host.execution.base import Limits
from pai_sdk._host.execution.contract import launch_spec
from pai_sdk.errors import TunnelClosedError, TunnelError, TunnelRefusedError
from tests.support.waiting import until
from tests.unit.host.execution.conftest import Jobs, make_request

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="tunnels enter Linux processes")


def enter(jobs: Jobs, instance: str = "train1-master-0", *, rejoin_s: float = 20.0) -> Tunnel:
    def dial() -> SocketTransport:
        return SocketTransport(jobs.executor.connect_tunnel(jobs.root("train1"), instance))

    return Tunnel(ResumableLink.connect(dial, rejoin_s=rejoin_s))


def run(tunnel: Tunnel, *argv: str) -> tuple[str, int]:
    stream = tunnel.open("program", argv=list(argv))
    output = b""
    for name, content in stream.messages():
        output += content if name in ("stdout", "stderr") else b""
    return output.decode(), stream.wait_exit(0)


def read_all(stream: Stream) -> None:
    while stream.read():
        pass


def start(jobs: Jobs, command: str = "echo ready; sleep 1000", **fields: object) -> Path:
    root = jobs.start(make_request(command, **fields))
    jobs.until_log("ready")
    return root


def is_running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def supervisor_of(stream: Stream) -> int:
    """The ancestor of a program that is the supervisor: above the server's process and the spawner."""
    spawner = int(Path(f"/proc/{stream.result['pid']}/stat").read_text().rpartition(")")[2].split()[1])
    return int(Path(f"/proc/{spawner}/stat").read_text().rpartition(")")[2].split()[1])


def test_a_program_in_a_job_sees_what_the_job_sees(jobs: Jobs) -> None:
    root = start(
        jobs,
        "echo content >/ml/output/model/file || echo content >$PAI_OUTPUT_MODEL/file; echo ready; sleep 1000",
        OutputChannels=[{"Name": "model", "OutputUri": "oss://bucket/model/"}],
    )
    with enter(jobs) as tunnel:
        output, code = run(tunnel, "sh", "-c", "pwd; cat $PAI_OUTPUT_MODEL/file; echo $RANK; exit 3")
    assert output.splitlines() == [f"{jobs.ml()}/usercode", "content", "0"]
    assert code == 3
    assert (root / "state" / SOCKET).stat().st_mode & 0o777 == 0o600


def test_instances_are_entered_by_name(jobs: Jobs) -> None:
    start(jobs, "echo ready; sleep 1000", count=2)
    jobs.until_log("ready", "worker-0")
    for instance, rank in (("train1-master-0", "0"), ("train1-worker-0", "1"), ("", "0")):
        with enter(jobs, instance) as tunnel:
            assert run(tunnel, "sh", "-c", "echo $RANK") == (f"{rank}\n", 0)
    with enter(jobs, "train1-worker-9") as tunnel, pytest.raises(TunnelRefusedError) as caught:
        run(tunnel, "true")
    assert caught.value.code == "InstanceNotRunning"


def test_the_server_starts_with_the_first_connection(jobs: Jobs) -> None:
    start(jobs)
    with enter(jobs) as tunnel:
        stream = tunnel.open("program", argv=["sleep", "1000"])
        supervisor = supervisor_of(stream)
        stream.close()
    jobs.until(lambda state: state.phase == "running")
    assert descendants(supervisor)


def test_a_server_that_was_killed_is_started_again(jobs: Jobs) -> None:
    start(jobs)
    tunnel = enter(jobs)
    stream = tunnel.open("program", argv=["sleep", "1000"])
    spawner = int(Path(f"/proc/{stream.result['pid']}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(spawner, signal.SIGKILL)
    with pytest.raises(TunnelClosedError) as caught:
        stream.read()
    assert caught.value.code == "SessionUnknown"
    until(lambda: not is_running(stream.result["pid"]), "the end of the program")
    with enter(jobs) as tunnel:
        assert run(tunnel, "echo", "again") == ("again\n", 0)


def test_children_of_programs_end_with_a_server_that_was_killed(jobs: Jobs) -> None:
    start(jobs)
    with enter(jobs) as tunnel:
        stream = tunnel.open("program", argv=["sh", "-c", "sleep 1000 & echo $!; wait"])
        child = int(stream.read())
        spawner = int(Path(f"/proc/{stream.result['pid']}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(spawner, signal.SIGKILL)
        until(lambda: not is_running(child))


@pytest.mark.parametrize("ending", ["success", "stop"])
def test_the_end_of_a_job_ends_its_sessions(jobs: Jobs, ending: str) -> None:
    root = start(jobs, "echo ready; while [ ! -e end ]; do sleep 0.02; done")
    tunnel = enter(jobs)
    # An interactive shell ignores SIGTERM: the job does not wait for it.
    terminal = {"term": "xterm", "rows": 24, "columns": 80}
    stream = tunnel.open("program", argv=["bash", "-i"], terminal=terminal)
    daemon = tunnel.open(
        "program", argv=["sh", "-c", "setsid sh -c 'trap \"\" HUP TERM; echo $$; sleep 1000' & wait"]
    )
    processes = [int(daemon.read()), stream.result["pid"]]
    if ending == "success":
        (root / "ml" / "usercode" / "end").touch()
    else:
        jobs.executor.stop(root, reason_code="Stopped", reason_message="by the test")
    state = jobs.wait()
    assert state.succeeded == (ending == "success")
    with pytest.raises(TunnelError) as caught:
        read_all(stream)
    assert caught.value.code in ("JobEnded", "JobNotRunning")
    until(lambda: not any(map(is_running, processes)), "the end of the session")
    assert not (root / "state" / SOCKET).exists()
    with pytest.raises(TunnelRefusedError) as refused:
        enter(jobs)
    assert refused.value.code == "JobNotRunning"


def test_programs_of_tunnels_have_the_memory_limit_of_an_instance(jobs: Jobs) -> None:
    request = make_request("echo ready; sleep 1000")
    root = jobs.root("train1")
    jobs.roots.append(root)
    spec = launch_spec(root, "train1", request)
    jobs.executor.start(replace(spec, limits=Limits(memory_bytes=200 << 20)))
    jobs.until_log("ready")
    with enter(jobs) as tunnel:
        stream = tunnel.open(
            "program", argv=["python", "-c", "import time; x = b'x' * (400 << 20); time.sleep(1000)"]
        )
        with pytest.raises(TunnelError):
            read_all(stream)
    with enter(jobs) as tunnel:
        assert run(tunnel, "echo", "again") == ("again\n", 0)
    jobs.until(lambda state: state.phase == "running")


def test_jobs_that_cannot_be_entered(jobs: Jobs) -> None:
    with pytest.raises(TunnelRefusedError) as caught:
        jobs.executor.connect_tunnel(jobs.root("train1"), "train1-master-0")
    assert caught.value.code == "JobNotRunning"
    root = start(jobs)
    # As started by an earlier release.
    (root / "state" / SOCKET).unlink()
    with pytest.raises(TunnelRefusedError) as caught:
        jobs.executor.connect_tunnel(root, "train1-master-0")
    assert caught.value.code == "NotSupported"


def test_a_session_survives_another_service(jobs: Jobs) -> None:
    """The executor that connects has no state of the session."""
    start(jobs)
    connections: list[SocketTransport] = []

    def dial() -> SocketTransport:
        connection = jobs.executor.connect_tunnel(jobs.root("train1"), "train1-master-0")
        connections.append(SocketTransport(connection))
        return connections[-1]

    with Tunnel(ResumableLink.connect(dial)) as tunnel:
        stream = tunnel.open("program", argv=["cat"])
        for number in range(20):
            stream.write(b"%d\n" % number)
            connections[-1].close()
        stream.end()
        received = b""
        while data := stream.read():
            received += data
        assert received == b"".join(b"%d\n" % number for number in range(20))
        assert len(connections) > 1


def test_long_folders(jobs: Jobs) -> None:
    jobs.folder /= "a" * 120
    start(jobs)
    with enter(jobs) as tunnel:
        assert run(tunnel, "echo", "reached") == ("reached\n", 0)
