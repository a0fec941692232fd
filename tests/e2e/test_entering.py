"""Running jobs of a real service, entered by programs, shells, files and ports."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import pty
import signal
import struct
import subprocess
import termios
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.request import urlopen

import pytest

from pai_sdk import Processor, Session, TrainingJob
from pai_sdk.errors import JobError, ObjectNotFoundError, PaiError
from pai_sdk.jobs import ExecResult
from tests.e2e.test_command_line import PAI, environment, pai
from tests.faults.proxy import FaultProxy, Faults
from tests.support import ml
from tests.support.service_process import wait_until_gone
from tests.support.waiting import PATIENCE_S, until

SERVER = """
python3 -u -c '
import http.server, os
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = self.path.encode() * 10000
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
server.request_queue_size = 128
open("port-" + os.environ["RANK"], "w").write(str(server.server_address[1]))
print("begun", flush=True)
server.serve_forever()'
"""


@pytest.fixture(scope="module")
def job(service_dir: Path) -> Iterator[TrainingJob]:
    """A job of two instances, each with a web server."""
    session = Session.embedded(service_dir)
    processor = Processor("python:3.11", SERVER, instance_type="ecs.c6.large", instance_count=2, session=session)
    running = processor.run(wait=False, show_logs=False)
    for name in ("master-0", "worker-0"):
        next(line for line in running.logs(follow=True, instance=name) if line.text == "begun")
    yield running
    running.stop()
    until(lambda: running.status.is_terminal)


def output_of(job: TrainingJob, *argv: str, instance: int = 0, data: bytes | None = None) -> str:
    result = job.exec([*argv], instance=instance, input=data, capture=True)
    assert isinstance(result, ExecResult)
    assert result.exit_code == 0, result
    return result.text


def test_a_program_has_the_environment_of_its_instance(job: TrainingJob) -> None:
    script = 'echo "$PAI_INSTANCE_NAME $RANK"; pwd; exit 3'
    for rank, name in enumerate(("master-0", "worker-0")):
        result = job.exec(["sh", "-c", script], instance=rank, capture=True)
        assert result.exit_code == 3
        first, folder = result.text.splitlines()
        assert first == f"{job.id}-{name} {rank}"
        assert folder == ("/ml/usercode" if ml.can_be_had() else folder)


def test_input_and_output_are_bytes(job: TrainingJob) -> None:
    data = os.urandom(3 << 20)
    result = job.exec(["sh", "-c", "cat; echo error >&2; kill -9 $$"], input=data, capture=True)
    assert (result.exit_code, result.stdout == data, result.stderr) == (137, True, b"error\n")
    assert job.exec(["nosuch"], capture=True).exit_code == 127
    assert job.exec(["/etc/passwd"], capture=True).exit_code == 126


def test_the_command_passes_streams_and_exit_codes(session: Session, job: TrainingJob) -> None:
    done = subprocess.run(
        [*PAI, "exec", f"{job.id}:1", "sh", "-c", "cat; echo $RANK >&2; exit 3"],
        env=environment(session),
        input=bytes(range(256)),
        capture_output=True,
        timeout=PATIENCE_S,
    )
    assert (done.returncode, done.stdout, done.stderr) == (3, bytes(range(256)), b"1\n")
    everywhere = pai(session, "exec", "--all", job.id, "--", "sh", "-c", "echo one; echo two >&2; exit $RANK")
    assert everywhere.returncode == 1
    assert everywhere.stdout == "[0] one\n[1] one\n"
    assert everywhere.stderr == "[0] two\n[1] two\n"


def test_an_interrupt_reaches_a_program_without_a_terminal(session: Session, job: TrainingJob) -> None:
    script = "trap 'echo interrupted; exit 5' INT; echo begun; while :; do sleep 0.1; done"
    command, pipe = [*PAI, "exec", job.id, "sh", "-c", script], subprocess.PIPE
    with subprocess.Popen(command, env=environment(session), stdin=subprocess.DEVNULL, stdout=pipe) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"begun\n"
        process.send_signal(signal.SIGINT)
        assert process.stdout.read() == b"interrupted\n"
        assert process.wait(PATIENCE_S) == 5


class Terminal:
    """A command with a terminal of its own."""

    def __init__(self, session: Session, *arguments: str, rows: int = 33, columns: int = 77) -> None:
        self.near, self.far = pty.openpty()
        self.resize(rows, columns)
        self.before = termios.tcgetattr(self.far)
        self.printed = b""
        variables = {**environment(session), "TERM": "xterm-256color"}
        self.process = subprocess.Popen(
            [*PAI, *arguments],
            env=variables,
            stdin=self.far,
            stdout=self.far,
            stderr=self.far,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.near, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, keys: bytes) -> None:
        os.write(self.near, keys)

    def expect(self, text: bytes) -> None:
        while text not in self.printed:
            self.printed += os.read(self.near, 65536)
        self.printed = self.printed.partition(text)[2]

    def close(self) -> int:
        """Returns the exit code, with the terminal as it was before."""
        threading.Thread(target=self._drain, daemon=True).start()
        code = self.process.wait(PATIENCE_S)
        assert termios.tcgetattr(self.far) == self.before
        os.close(self.far)
        os.close(self.near)
        return code

    def _drain(self) -> None:
        try:
            while os.read(self.near, 65536):
                pass
        except OSError:
            pass


def test_a_shell_has_a_terminal(session: Session, job: TrainingJob) -> None:
    terminal = Terminal(session, "shell", f"{job.id}:1")
    terminal.type(b"stty size; echo $((20+1)) $TERM $RANK; test -t 0 && echo 'is a'' terminal'\n")
    terminal.expect(b"33 77")
    terminal.expect(b"21 xterm-256color 1")
    terminal.expect(b"is a terminal")
    terminal.type(b"sleep 51234; echo after'' $?\n")
    terminal.expect(b"sleep 51234")
    until(lambda: "sleep 51234" in output_of(job, "sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"))
    terminal.type(b"\x03")
    terminal.type(b"echo in'' control\n")
    terminal.expect(b"in control")
    terminal.resize(44, 88)
    os.kill(terminal.process.pid, signal.SIGWINCH)
    terminal.type(b"until [ \"$(stty size)\" = '44 88' ]; do sleep 0.1; done; echo re''sized\n")
    terminal.expect(b"resized")
    terminal.type(b"exit 9\n")
    assert terminal.close() == 9


def test_a_terminal_is_restored_after_a_signal(session: Session, job: TrainingJob) -> None:
    terminal = Terminal(session, "shell", job.id)
    terminal.type(b"echo $((40+2))\n")
    terminal.expect(b"42")
    terminal.process.terminate()
    assert terminal.close() == 128 + signal.SIGTERM


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_files_are_copied_both_ways(session: Session, job: TrainingJob, tmp_path: Path) -> None:
    big = tmp_path / "big file"
    big.write_bytes(os.urandom(50 << 20))
    big.chmod(0o755)
    folder = output_of(job, "pwd").strip()
    copied = pai(session, "cp", str(big), f"{job.id}:{folder}/")
    assert copied.returncode == 0, copied.stderr
    assert output_of(job, "sha256sum", f"{folder}/big file").split()[0] == digest(big)
    back = pai(session, "cp", f"{job.id}:{folder}/big file", str(tmp_path / "back"))
    assert back.returncode == 0, back.stderr
    assert digest(tmp_path / "back") == digest(big)
    assert (tmp_path / "back").stat().st_mode & 0o777 == 0o755
    assert sorted(path.name for path in tmp_path.iterdir()) == ["back", "big file"]
    job.exec(["rm", f"{folder}/big file"], capture=True)


def test_folders_are_copied_both_ways(job: TrainingJob, tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "deep" / "er").mkdir(parents=True)
    (source / "empty").mkdir()
    (source / "a.txt").write_text("a")
    (source / "deep" / "er" / "ü.bin").write_bytes(bytes(range(256)))
    (source / "link").symlink_to("deep/er")
    folder = output_of(job, "pwd", instance=1).strip()
    assert job.copy_to(source, f"{folder}/new", instance=1, progress=False) == f"{folder}/new"
    (source / "a.txt").write_text("changed")
    (source / "newest.txt").symlink_to("a.txt")  # the source itself is followed
    assert job.copy_to(source / "newest.txt", f"{folder}/new/a.txt", instance=1, progress=False)
    target = tmp_path / "target"
    target.mkdir()
    (target / "other").write_text("stays")
    assert job.copy_from(f"{folder}/new", target, instance=1, progress=False) == target / "new"
    copy = target / "new"
    assert (copy / "a.txt").read_text() == "changed"
    assert (copy / "deep" / "er" / "ü.bin").read_bytes() == bytes(range(256))
    assert (copy / "empty").is_dir()
    assert (copy / "link").readlink() == Path("deep/er")
    job.copy_from(f"{folder}/new", target, instance=1, progress=False)  # once more, over itself
    (target / "file").write_text("old")
    (target / "link").symlink_to("file")
    job.copy_from(f"{folder}/new/a.txt", target / "link", instance=1, progress=False)
    assert (target / "link").is_symlink()
    assert (target / "file").read_text() == "changed"
    assert (target / "other").read_text() == "stays"
    with pytest.raises(ObjectNotFoundError):
        job.copy_from(f"{folder}/nothing", target, instance=1)
    with pytest.raises(ObjectNotFoundError):
        job.copy_to(tmp_path / "nothing", folder, instance=1)
    job.exec(["rm", "-r", f"{folder}/new"], instance=1, capture=True)


def test_ports_of_a_job_are_ports_here(job: TrainingJob) -> None:
    port = int(output_of(job, "cat", "port-0"))
    with job.forward(f"0:{port}") as forward, ThreadPoolExecutor(20) as pool:
        address = f"http://127.0.0.1:{forward.ports[0].local}"

        def body(number: int) -> bytes:
            with urlopen(f"{address}/{number}", timeout=PATIENCE_S) as response:
                content: bytes = response.read()
                return content

        bodies = list(pool.map(body, range(100)))
    assert bodies == [b"/%d" % number * 10000 for number in range(100)]
    with pytest.raises(OSError):
        urlopen(address, timeout=5)


def test_a_port_that_nobody_listens_on_is_an_error_of_the_connection(session: Session, job: TrainingJob) -> None:
    command, pipe = [*PAI, "forward", job.id, "0:1"], subprocess.PIPE
    with subprocess.Popen(command, env=environment(session), stdout=pipe, stderr=pipe) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        local = process.stdout.readline().decode().split()[0]
        with pytest.raises(OSError):
            urlopen(f"http://{local}", timeout=PATIENCE_S)
        assert b"Ctrl-C" in process.stderr.readline()
        assert process.stderr.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 0


def test_ports_here_are_ports_of_a_job(job: TrainingJob) -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "5")
            self.end_headers()
            self.wfile.write(b"local")

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with job.forward(f"{server.server_address[1]}:0", reverse=True) as forward:
            url = f"http://127.0.0.1:{forward.ports[0].remote}"
            code = f"from urllib.request import urlopen; print(urlopen({url!r}).read())"
            assert output_of(job, "python3", "-c", code) == "b'local'\n"
        server.shutdown()


def test_a_proxy_that_passes_no_websockets_on(session: Session, job: TrainingJob) -> None:
    """Nor all requests: the answers of some are lost."""
    faults = Faults(rate=0.05, kinds=("reset", "lost", "503"))
    with FaultProxy(session.settings.endpoint or "", seed=1, faults=faults) as proxy:
        done = subprocess.run(
            [*PAI, "exec", job.id, "sh", "-c", "seq 50000; wc -c; exit 3"],
            env={**environment(session), "PAI_ENDPOINT": proxy.url},
            input=b"x" * 2_000_000,
            capture_output=True,
            timeout=PATIENCE_S,
        )
        assert any("/tunnel/sessions/" in request for request in proxy.seen)
    assert done.returncode == 3, done.stderr
    assert done.stdout.split() == [*(b"%d" % number for number in range(1, 50_001)), b"2000000"]


def pid_of(service_dir: Path) -> int:
    return int(json.loads((service_dir / "service.json").read_text())["pid"])


def is_another(service_dir: Path, pid: int) -> bool:
    return pid_of(service_dir) != pid


@pytest.mark.timeout(300)
def test_no_line_is_lost_when_the_service_is_killed(service_dir: Path, session: Session, job: TrainingJob) -> None:
    script = "i=0; while [ ! -e enough ]; do i=$((i+1)); echo $i; echo $i > count; sleep 0.1; done; wc -c"
    results: list[ExecResult] = []

    def count() -> int:
        written = output_of(job, "sh", "-c", "cat count || true").split()  # it may just be written anew
        return int(written[0]) if written else 0

    def run() -> None:
        results.append(job.exec(["sh", "-c", script], input=b"x" * 100_000, capture=True))

    thread = threading.Thread(target=run)
    thread.start()
    for written in (5, 15):
        until(lambda written=written: count() >= written)  # type: ignore[misc]
        pid = pid_of(service_dir)
        os.kill(pid, signal.SIGKILL)
        wait_until_gone(pid)
        until(partial(is_another, service_dir, pid))
    job.exec(["touch", "enough"], capture=True)
    thread.join(PATIENCE_S)
    assert results[0].exit_code == 0
    *numbers, size = results[0].text.split()
    assert len(numbers) > 10
    assert (numbers, size) == ([*map(str, range(1, len(numbers) + 1))], "100000")


def test_a_program_ends_with_its_job(service_dir: Path) -> None:
    session = Session.embedded(service_dir)
    processor = Processor("python:3.11", "echo begun; sleep 600", instance_type="ecs.c6.large", session=session)
    job = processor.run(wait=False, show_logs=False)
    next(iter(job.logs(follow=True)))
    errors: list[PaiError] = []

    def run() -> None:
        try:
            job.exec(["sleep", "61234"], capture=True)
        except PaiError as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    until(lambda: "sleep 61234" in output_of(job, "sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"))
    job.stop()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
    assert isinstance(errors[0], JobError) or errors, errors
    until(lambda: job.status.is_terminal)
