"""Tunnels into containers: programs, terminals, files and ports, as root of the machine and as another user."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import tarfile
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from pai_sdk._client.backend.local import LocalBackend
from pai_sdk._client.job.training_job import TrainingJob
from pai_sdk._client.tunnel.copying import copy_from, copy_to
from pai_sdk._client.tunnel.opening import JobTunnel
from pai_sdk._host.agent.sandbox import Sandbox
from pai_sdk._host.agent.tunnel import socket_paths
from pai_sdk._host.agent.tunnel.link import SocketTransport
from pai_sdk._host.agent.tunnel.server import TunnelServer
from pai_sdk._host.agent.tunnel.streams import Stream
from pai_sdk._host.execution.docker.tunnel.dialing import log_file, socket_file
from pai_sdk._host.execution.docker.tunnel.host_process import connect_engine
from pai_sdk._host.execution.docker.tunnel.instance_container import InstanceContainer
from pai_sdk._host.execution.docker.tunnel.job_handlers import JobHandlers
from pai_sdk.errors import ObjectNotFoundError, TunnelError, TunnelRefusedError
from tests.docker.conftest import Submit
from tests.docker.engine import Engine
from tests.support.waiting import PATIENCE_S, until
from tests.unit.host.agent.tunnel.test_sftp import Client

TERMINAL = {"term": "xterm-nosuch", "rows": 33, "columns": 101}
LISTENS = """
import http.server
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(b"in the container")
http.server.HTTPServer(("127.0.0.1", 8123), Handler).serve_forever()
"""


@pytest.fixture
def job(backend: LocalBackend, submit: Submit) -> Iterator[TrainingJob]:
    job = submit(f"echo begun; python3 -c '{LISTENS}'", Environments={"NOTE": "two words"})
    next(iter(job.logs(follow=True)))
    yield job
    end(job)


def end(job: TrainingJob) -> None:
    job.stop()
    until(lambda: job.status.is_terminal)


@pytest.fixture(params=["root", "another user"])
def tunnel(
    job: TrainingJob,
    backend: LocalBackend,
    docker_host: Engine,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> Iterator[JobTunnel]:
    """A tunnel by the job's host process, or by one that may not enter containers and sees no process of them."""
    name = job.record.instance_names[0]
    if request.param == "root":
        with backend.connect_tunnel(job.id, name) as tunnel:
            yield tunnel
        return
    find = InstanceContainer.find

    def find_elsewhere(*arguments: object) -> InstanceContainer | None:
        container = find(*arguments)  # type: ignore[arg-type]
        return container and InstanceContainer(container.engine, container.id, container.instance, None)

    monkeypatch.setattr(InstanceContainer, "find", find_elsewhere)
    engine = connect_engine(docker_host.socket)
    handlers = JobHandlers(engine, sandbox_of(backend, job), job.id, name)
    server = TunnelServer(tmp_path / "tunnel.sock", handlers.by_kind())
    thread = threading.Thread(target=server.serve_forever)
    thread.start()

    def dial() -> SocketTransport:
        return SocketTransport(socket_paths.connect(tmp_path / "tunnel.sock", timeout_s=10))

    with JobTunnel(dial, job.id, name) as tunnel:
        yield tunnel
    server.close()
    thread.join()
    until(
        lambda: not [each for each in threading.enumerate() if each.name.startswith("serve")], "the last handler"
    )
    engine.close()


def sandbox_of(backend: LocalBackend, job: TrainingJob) -> Sandbox:
    return Sandbox(backend.data_dir / "jobs" / job.id)


def run(tunnel: JobTunnel, *argv: str, **parameters: object) -> Stream:
    return tunnel.open("program", argv=[*argv], **parameters)


def read_until(stream: Stream, text: bytes) -> bytes:
    printed = b""
    while text not in printed:
        chunk = stream.read()
        assert chunk, printed
        printed += chunk
    return printed


def output_of(stream: Stream) -> tuple[bytes, bytes, int]:
    """What a program prints until its end, on both channels, and its exit code."""
    printed = {"stdout": b"", "stderr": b""}
    code = -1
    for name, content in stream.messages():
        if name in printed:
            printed[name] += content
        elif name == "exit":
            code = content["code"]
    return printed["stdout"], printed["stderr"], code


def listens(tunnel: JobTunnel, port: int) -> bool:
    """Whether a program in the container listens on a port; found out without a connection."""
    return output_of(run(tunnel, "grep", "-q", f":{port:04X} ", "/proc/net/tcp"))[2] == 0


def is_running(container_program: str, job: TrainingJob, engine: Engine) -> bool:
    with engine.client() as client:
        processes = client.containers.get(job.record.instance_names[0]).top(ps_args="-eo pid,args")["Processes"]
    return any(container_program in " ".join(words) for words in processes)


def test_input_output_and_exit_codes(tunnel: JobTunnel) -> None:
    script = 'cat; echo "$NOTE $MORE"; pwd; echo bad >&2; printenv PAI_SDK_SHARED; exit 7'
    stream = run(tunnel, "sh", "-c", script, variables={"MORE": "it's more"})
    stream.write(b"typed\n")
    stream.end()
    assert output_of(stream) == (b"typed\ntwo words it's more\n/ml/usercode\n", b"bad\n", 7)
    codes = [
        output_of(run(tunnel, *argv))[2] for argv in (["nosuch"], ["/etc/passwd"], ["sh", "-c", "kill -9 $$"])
    ]
    assert codes == [127, 126, 137]


def test_a_terminal_has_its_size_and_keys_and_its_input_ends_without_the_output(tunnel: JobTunnel) -> None:
    script = 'stty size; echo "$TERM"; echo ready; cat; echo "still $(tty)"'
    stream = run(tunnel, "sh", "-c", script, terminal=TERMINAL)
    assert read_until(stream, b"ready").split() == [b"33", b"101", b"xterm-256color", b"ready"]
    # In the middle of a line.
    stream.write(b"typed")
    stream.end()
    printed, _, code = output_of(stream)
    assert (b"still /dev/pts/" in printed, code) == (True, 0)
    # The default keys by which the engine leaves a terminal, Ctrl-P Ctrl-Q, and Ctrl-C.
    raw = run(tunnel, "sh", "-c", "stty raw -echo; echo ready; head -c 3 | od -An -tx1", terminal=TERMINAL)
    read_until(raw, b"ready")
    raw.write(b"\x10\x11q")
    assert b"10 11 71" in output_of(raw)[0]
    script = 'trap "stty size" WINCH; echo ready; while :; do sleep 0.05; done'
    sized = run(tunnel, "sh", "-c", script, terminal=TERMINAL)
    read_until(sized, b"ready")
    sized.send_event({"resize": [50, 120]})
    read_until(sized, b"50 120")
    sized.write(b"\x03")
    assert output_of(sized)[2] == 130


@pytest.mark.parametrize("terminal", [None, TERMINAL], ids=["pipe", "terminal"])
def test_a_program_ends_with_its_client_with_all_that_it_has_started(
    tunnel: JobTunnel, terminal: object, job: TrainingJob, docker_host: Engine
) -> None:
    script = "trap '' HUP; setsid sleep 98765 & nohup sleep 98765 >/dev/null 2>&1 & echo ready; wait; sleep 98765"
    stream = run(tunnel, "sh", "-c", script, terminal=terminal)
    read_until(stream, b"ready")
    assert is_running("98765", job, docker_host)
    stream.close()
    until(lambda: not is_running("98765", job, docker_host), "the end of the program")


def test_a_signal_and_a_child_in_the_background(tunnel: JobTunnel, job: TrainingJob, docker_host: Engine) -> None:
    stream = run(tunnel, "sh", "-c", "trap 'exit 9' INT; echo ready; while :; do sleep 0.05; done")
    read_until(stream, b"ready")
    stream.send_event({"signal": "INT"})
    assert output_of(stream)[2] == 9
    # It holds the output open.
    assert output_of(run(tunnel, "sh", "-c", "sleep 87654 & exit 4"))[2] == 4
    until(lambda: not is_running("87654", job, docker_host))


def test_files_of_20_mb_both_ways(tunnel: JobTunnel, tmp_path: Path) -> None:
    data = os.urandom(20 << 20)
    source = tmp_path / "model"
    (source / "deep").mkdir(parents=True)
    (source / "weights.bin").write_bytes(data)
    (source / "deep" / "run.sh").write_text("#!/bin/sh\necho ran\n")
    (source / "deep" / "run.sh").chmod(0o755)
    (source / "link").symlink_to("weights.bin")
    copied = copy_to(tunnel, source, "/ml/output/copied", progress=False)
    assert (copied.files, copied.size_bytes) == (2, len(data) + 19)
    script = "cd /ml/output/copied; sha256sum weights.bin | cut -c1-64; deep/run.sh; readlink link; stat -c %u *"
    printed = output_of(run(tunnel, "sh", "-c", script))[0].decode().split()
    assert printed == [hashlib.sha256(data).hexdigest(), "ran", "weights.bin", *[str(os.getuid())] * 3]
    copy_from(tunnel, "/ml/output/copied", tmp_path / "back", progress=False)
    assert (tmp_path / "back" / "weights.bin").read_bytes() == data
    assert os.access(tmp_path / "back" / "deep" / "run.sh", os.X_OK)
    copy_from(tunnel, "/etc/hostname", tmp_path / "name", progress=False)
    assert (tmp_path / "name").read_text().strip()
    with pytest.raises(ObjectNotFoundError):
        copy_from(tunnel, "/ml/nosuch", tmp_path / "none", progress=False)


def test_a_server_on_the_loopback_of_the_container(tunnel: JobTunnel) -> None:
    until(lambda: listens(tunnel, 8123))
    stream = tunnel.open("connect", host="localhost", port=8123)
    stream.write(b"GET / HTTP/1.0\r\n\r\n")
    answer = b""
    while chunk := stream.read():
        answer += chunk
    assert answer.endswith(b"in the container")
    with pytest.raises(TunnelRefusedError) as refused:
        tunnel.open("connect", host="localhost", port=9)
    assert refused.value.code == "ConnectionRefused"
    with pytest.raises(TunnelRefusedError) as refused:
        tunnel.open("connect", host="10.0.0.1", port=22)
    assert refused.value.code == "InvalidRequest"


def test_ports_and_commands_by_the_job(job: TrainingJob) -> None:
    def read() -> bytes:
        with job.forward("0:8123") as forward:
            url = f"http://127.0.0.1:{forward.ports[0].local}/"
            return bytes(urllib.request.urlopen(url, timeout=PATIENCE_S).read())

    until(lambda: job.exec(["sh", "-c", "grep -q :1FBB /proc/net/tcp"], capture=True).exit_code == 0)
    assert read() == b"in the container"
    # In the other direction: a server of this machine, as the job sees it.
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        job.forward([(listener.getsockname()[1], 8200)], reverse=True),
    ):
        listener.settimeout(PATIENCE_S)
        script = 'import socket; print(socket.create_connection(("127.0.0.1", 8200)).recv(9))'
        results = []
        thread = threading.Thread(
            target=lambda: results.append(job.exec(["python3", "-c", script], capture=True).stdout)
        )
        thread.start()
        connection, _ = listener.accept()
        with connection:
            connection.sendall(b"welcome")
        thread.join()
        assert results == [b"b'welcome'\n"]


def test_an_image_without_bash_and_python(
    submit: Submit, backend: LocalBackend, busybox: str, tmp_path: Path
) -> None:
    job = submit("echo hello >note; echo begun; exec httpd -f -p 127.0.0.1:8124", image=busybox)
    next(iter(job.logs(follow=True)))
    with backend.connect_tunnel(job.id, job.record.instance_names[0]) as tunnel:
        stream = run(tunnel, "sh", "-c", "cat; exit 5")
        stream.write(b"typed")
        stream.end()
        assert output_of(stream) == (b"typed", b"", 5)
        shell = run(tunnel, terminal=TERMINAL)
        shell.write(b"stty size; echo $TERM; exit 6\n")
        printed, _, code = output_of(shell)
        assert (b"33 101" in printed, b"xterm-256color" in printed, code) == (True, True, 6)
        until(lambda: listens(tunnel, 8124))
        stream = tunnel.open("connect", host="localhost", port=8124)
        stream.write(b"GET /note HTTP/1.0\r\n\r\n")
        answer = b""
        while chunk := stream.read():
            answer += chunk
        assert answer.endswith(b"hello\n")
        (tmp_path / "file").write_text("content")
        copy_to(tunnel, tmp_path / "file", "/ml/output/new/", progress=False)
        copy_from(tunnel, "/ml/output/new/file", tmp_path / "back", progress=False)
        assert (tmp_path / "back").read_text() == "content"
    end(job)


def test_the_host_process_serves_all_and_ends_with_the_job(
    job: TrainingJob, backend: LocalBackend, docker_host: Engine
) -> None:
    sandbox, name = sandbox_of(backend, job), job.record.instance_names[0]
    connections = []

    def connect() -> None:
        connections.append(backend._executor.connect_tunnel(sandbox.root, name))

    threads = [threading.Thread(target=connect) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(connections) == 4
    assert len(host_processes(sandbox)) == 1
    for connection in connections:
        connection.close()
    # A cut connection is joined again, and nothing of the program is lost.
    transports: list[SocketTransport] = []

    def dial() -> SocketTransport:
        transports.append(SocketTransport(backend._executor.connect_tunnel(sandbox.root, name)))
        return transports[-1]

    with JobTunnel(dial, job.id, name) as tunnel:
        stream = run(tunnel, "sh", "-c", "for i in 1 2 3 4 5; do read -r line; echo $i $line; done")
        for word in (b"a\n", b"b\n", b"c\n", b"d\n", b"e\n"):
            stream.write(word)
            transports[-1].close()
        assert output_of(stream)[0].split() == b"1 a 2 b 3 c 4 d 5 e".split()
        assert len(transports) > 1
        left = run(tunnel, "sleep", "1000")
        end(job)
        # By SIGTERM as the job, or SIGKILL with its container.
        assert output_of(left)[2] in (137, 143)
    until(lambda: host_processes(sandbox) == [], "the end of the host process")
    assert log_file(sandbox).read_text() == ""
    assert not socket_file(sandbox).exists()
    with pytest.raises(TunnelRefusedError) as refused:
        backend._executor.connect_tunnel(sandbox.root, name)
    assert refused.value.code == "JobNotRunning"


def test_a_host_process_that_was_killed_leaves_no_program(
    job: TrainingJob, backend: LocalBackend, docker_host: Engine
) -> None:
    sandbox, name = sandbox_of(backend, job), job.record.instance_names[0]
    with backend.connect_tunnel(job.id, name) as tunnel:
        read_until(run(tunnel, "sh", "-c", "setsid sleep 76543 & echo ready; sleep 76543"), b"ready")
        (process,) = host_processes(sandbox)
        assert is_running("76543", job, docker_host)
        os.kill(process, signal.SIGKILL)
        # The client joins the next process, which does not know the session, at once.
        until(lambda: process not in host_processes(sandbox))
        until(lambda: not is_running("76543", job, docker_host))
        with pytest.raises(TunnelError):
            run(tunnel, "true")
    assert job.exec(["sh", "-c", "exit 3"], capture=True).exit_code == 3


def host_processes(sandbox: Sandbox) -> list[int]:
    processes = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"pai_sdk._host.execution.docker.tunnel.host_process" in words and str(sandbox.root).encode() in words:
            processes.append(int(path.parent.name))
    return processes


def test_sftp_and_stacks(job: TrainingJob, backend: LocalBackend) -> None:
    name = job.record.instance_names[0]
    with backend.connect_tunnel(job.id, name) as tunnel:
        with tunnel.open("sftp") as stream:
            client = Client(stream)
            assert client.send(struct.pack(">IBI", 5, 1, 3))[0] == 2
            assert b"/ml/usercode" in client.request(16, b".")[1]
            # A link of the job leads within the container.
            assert job.exec(["ln", "-s", "/etc/hostname", "link"], capture=True).exit_code == 0
            handle = client.request(3, b"link", 1, 0)[1]
            assert name[-63:].lstrip("-").encode() in client.request(5, handle[4:], 0, 0, 100)[1]
        with tunnel.open("stacks", native=False, timeout_s=PATIENCE_S) as stream:
            content = b""
            while chunk := stream.read():
                content += chunk
    processes = json.loads(content)["processes"]
    assert any("serve_forever" in json.dumps(process) for process in processes)


def test_a_copy_that_is_broken_off_leaves_nothing(job: TrainingJob, backend: LocalBackend) -> None:
    with backend.connect_tunnel(job.id, job.record.instance_names[0]) as tunnel:
        stream = tunnel.open("write_archive", path="/ml/output/half", mode="file", name="half")
        member = tarfile.TarInfo("half")
        member.size = 10_000_000
        stream.write(member.tobuf() + bytes(3_000_000))
        until(lambda: job.exec(["sh", "-c", "ls -A /ml/output"], capture=True).text != "")
        stream.close()
        until(lambda: job.exec(["sh", "-c", "ls -A /ml/output"], capture=True).text == "")


OPENS = """
import os, sys
from pai_sdk._host.execution.docker.tunnel import namespaces
namespaces.enter(int(sys.argv[1]), sys.argv[2])
status = open("/proc/self/status").read()
print(*(line.split()[1] for line in status.splitlines() if line.startswith(("CapEff", "CapBnd"))))
print(os.uname().nodename, os.getuid(), sorted(os.listdir("/ml")))
try:
    os.open("/ml/output/disk", os.O_RDONLY)
except PermissionError:
    print("refused")
"""


def test_what_enters_a_container_has_no_more_rights_than_it(job: TrainingJob, docker_host: Engine) -> None:
    """Root of a container can make the device of a disk; its control group forbids to open it."""
    name = job.record.instance_names[0]
    made = job.exec(["sh", "-c", "mknod /ml/output/disk b 8 0; grep CapEff /proc/self/status"], capture=True)
    with docker_host.client() as client:
        process = str(client.containers.get(name).attrs["State"]["Pid"])
    command = [sys.executable, "-c", OPENS, process, name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    rights = made.stdout.split()[1].decode()
    host = name[-63:].lstrip("-")
    assert done.stdout.splitlines() == [
        f"{rights} {rights}",
        f"{host} 0 ['input', 'output', 'usercode']",
        "refused",
    ]
