"""`breakpoint()` in a job: a client joins by the socket, no command ends the script, no wait is for ever."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pai_sdk._client.code.job_package import job_package
from pai_sdk._data.run.report.debugger_marker import FOLDER, Marker, debug_folder, instance_markers, read_markers
from pai_sdk._data.run.report.debugger_variables import debugger_variables
from tests.support.interpreters import INTERPRETERS
from tests.support.waiting import PATIENCE_S, long_enough, until

pytestmark = pytest.mark.interpreter

TRAIN = """
import sys

def step(number):
    value = number * 21
    breakpoint()
    return value + 0

for number in range(1, 3):
    print("step", step(number), flush=True)
print("done", flush=True)
"""


class Job:
    """A script that runs as in a job, with its debugger."""

    def __init__(
        self, folder: Path, text: str, *, python: list[str], rank: int, variables: Mapping[str, str]
    ) -> None:
        self.folder = folder / FOLDER
        self.clients: list[Client] = []
        (folder / "usercode").mkdir(exist_ok=True)
        script = folder / "usercode" / "train.py"
        script.write_text(text)
        environment = {
            "PATH": os.defpath,
            "PYTHONPATH": str(job_package()),
            "PAI_WORKING_DIR": str(script.parent),
            "PAI_TRAINING_JOB_ID": "train1",
            "PAI_INSTANCE_NAME": f"train1-worker-{rank}",
            "PAI_DEBUGGER_WAIT_S": str(PATIENCE_S),
            "RANK": str(rank),
            **debugger_variables("terminal"),
            **variables,
        }
        self.process = subprocess.Popen(
            [*python, str(script)],
            env=environment,
            cwd=script.parent,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def markers(self) -> list[dict[str, Any]]:
        return [marker for marker in read_markers(self.folder) if marker["pid"] == self.process.pid]

    def waiting(self) -> dict[str, Any]:
        """Wait until it waits for a client."""

        def marked() -> list[dict[str, Any]]:
            markers = [each for each in self.markers() if each["state"] == "waiting"]
            assert markers or self.process.poll() is None, self.end()
            return markers

        return until(marked)[0]

    def join(self, name: str = "") -> Client:
        self.clients.append(Client(self.folder / (name or f"{self.process.pid}.sock")))
        return self.clients[-1]

    def end(self) -> tuple[int, list[str], str]:
        """Wait for its end; returns exit code, output and log."""
        output, log = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, output.split("\n"), log


class Client:
    """A client of the debugger's terminal."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        folder = os.open(path.parent, os.O_RDONLY)
        self.socket.connect(f"/proc/self/fd/{folder}/{path.name}")
        os.close(folder)
        self.socket.settimeout(PATIENCE_S)
        self.text = ""

    def read_prompt(self) -> str:
        """Read to the next prompt; returns the text before it."""
        return self.read_to("(Pdb) ")

    def read_to(self, end: str) -> str:
        while end not in self.text:
            data = self.socket.recv(4096)
            assert data, self.text
            self.text += data.decode()
        text, _, self.text = self.text.partition(end)
        return text

    def send(self, command: str) -> None:
        self.socket.sendall(command.encode() + b"\n")

    def run(self, command: str) -> str:
        """Run a command; returns its output up to the next prompt."""
        self.send(command)
        return self.read_prompt()


@contextmanager
def started(
    folder: Path,
    text: str = TRAIN,
    *,
    version: str = "",
    options: tuple[str, ...] = ("-s",),
    rank: int = 0,
    **variables: str,
) -> Iterator[Job]:
    python = [INTERPRETERS[version] if version else sys.executable, *options]
    job = Job(folder, text, python=python, rank=rank, variables=variables)
    try:
        yield job
    finally:
        job.process.kill()
        job.process.communicate()
        for client in job.clients:
            client.socket.close()


@pytest.mark.parametrize("version", ["3.8", "3.10", "3.12", "3.13"])
def test_a_client_sees_the_frame_and_the_script_goes_on(tmp_path: Path, version: str) -> None:
    if version not in INTERPRETERS:
        pytest.skip(f"there is no Python {version} on this machine")
    with started(tmp_path, version=version, rank=3) as job:
        marker = job.waiting()
        assert (marker["rank"], marker["kind"], marker["function"], marker["line"]) == (3, "terminal", "step", 6)
        assert marker["instance"] == "train1-worker-3"
        client = job.join()
        assert "step()" in client.read_prompt()
        assert client.run("p value").strip() == "21"
        assert "<module>" in client.run("where")
        # A variable is changed, and steps are made.
        client.run("!value = 1000")
        client.run("n")
        client.send("c")
        # The session stays open until the next breakpoint.
        assert "step()" in client.read_prompt()
        assert client.run("p value").strip() == "42"
        client.send("detach")
        assert job.end()[:2] == (0, ["step 1000", "step 42", "done", ""])
        assert read_markers(job.folder) == []
        assert [*job.folder.iterdir()] == []


def test_markers_that_a_job_has_made_up_do_no_harm(tmp_path: Path) -> None:
    folder, elsewhere = tmp_path / FOLDER, tmp_path / "elsewhere"
    elsewhere.mkdir()
    real, nested = Marker(elsewhere / "1.json"), Marker(elsewhere / "2.json")
    texts = dict.fromkeys(("kind", "state", "instance", "file", "function", "working_dir"), "x")
    real.write({"rank": 0, "pid": 1, **texts})
    nested.write({})
    nested.path.write_text("[" * 16_000)
    assert [marker["rank"] for marker in read_markers(elsewhere)] == [0]
    folder.symlink_to(elsewhere)
    assert read_markers(folder) == []
    real.remove()
    nested.remove()


@pytest.mark.parametrize("command", ["q", "quit", "exit", "EOF", "detach", "c\nq"])
def test_no_command_ends_the_script(tmp_path: Path, command: str) -> None:
    with started(tmp_path, TRAIN.replace("range(1, 3)", "range(1, 2)"), PAI_DEBUGGER_WAIT_S="20") as job:
        job.waiting()
        client = job.join()
        client.read_prompt()
        for each in ("run", "restart", "interact", "import sys; sys.exit(3)", "1/0", "\x00\x01"):
            client.run(each)
        client.send(command)
        assert job.end()[:2] == (0, ["step 21", "done", ""])


def test_two_ranks_wait_at_two_breakpoints(tmp_path: Path) -> None:
    with started(tmp_path, rank=0) as first, started(tmp_path, rank=1) as second:
        jobs = [second, first]
        until(lambda: len(read_markers(first.folder)) == 2)
        assert [marker["rank"] for marker in read_markers(first.folder)] == [0, 1]
        variables = {"PAI_WORKING_DIR": str(tmp_path / "usercode"), "PAI_INSTANCE_NAME": "train1-worker-1"}
        (marker,) = instance_markers(variables)
        assert marker["socket"] == str(second.folder / f"{second.process.pid}.sock")
        clients = [job.join() for job in jobs]
        for client in clients:
            client.read_prompt()
        assert [client.run("p number").strip() for client in clients] == ["1", "1"]
        for client, job in zip(clients, jobs, strict=True):
            client.send("c")
            client.read_prompt()
            client.send("q")
            assert job.end()[:2] == (0, ["step 21", "step 42", "done", ""])


def test_after_the_deadline_the_script_goes_on(tmp_path: Path) -> None:
    with started(tmp_path, PAI_DEBUGGER_WAIT_S="0.2") as job:
        code, output, log = job.end()
    assert (code, output) == (0, ["step 21", "step 42", "done", ""])
    assert log.count("pai-sdk debug train1:0") == 2


def test_a_client_that_sends_nothing_is_detached_at_the_deadline(tmp_path: Path) -> None:
    def is_joined(timeout_s: float) -> bool:
        text = TRAIN.replace("breakpoint()", f"breakpoint(timeout_s={timeout_s}) if number == 1 else None")
        folder = tmp_path / f"{timeout_s}"
        folder.mkdir()
        with started(folder, text) as job:
            job.waiting()
            try:
                job.join().read_prompt()
            except (OSError, AssertionError):  # the deadline has passed before
                return False
            assert job.end()[:2] == (0, ["step 21", "step 42", "done", ""])
            return True

    assert long_enough(is_joined, bool, first_s=0.5)


def test_a_lost_client_joins_the_same_session_again(tmp_path: Path) -> None:
    with started(tmp_path) as job:
        job.waiting()
        client = job.join()
        client.read_prompt()
        client.run("!mine = value + 1")
        client.socket.close()
        job.waiting()
        again = job.join()
        # It says where it is.
        assert "step()" in again.read_prompt()
        assert again.run("p mine").strip() == "22"
        again.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        again.socket.close()
        job.waiting()
        last = job.join()
        last.read_prompt()
        last.send("q")
        # The second breakpoint waits for a client again.
        job.waiting()
        job.join().send("q")
        assert job.end()[0] == 0


def test_a_new_client_replaces_one_that_seems_alive(tmp_path: Path) -> None:
    with started(tmp_path) as job:
        job.waiting()
        first = job.join()
        first.read_prompt()
        first.run("!mine = value + 1")
        second = job.join()
        assert "step()" in second.read_prompt()
        assert second.run("p mine").strip() == "22"
        assert "Another client" in first.text + first.socket.recv(4096).decode()
        # Also one that comes while the script runs to the next breakpoint.
        second.send("c")
        second.read_prompt()
        third = job.join()
        third.read_prompt()
        third.send("q")
        assert job.end()[:2] == (0, ["step 21", "step 42", "done", ""])


def test_a_client_that_reads_nothing_does_not_stop_the_script_for_ever(tmp_path: Path) -> None:
    with started(tmp_path) as job:
        job.waiting()
        client = job.join()
        client.read_prompt()
        client.socket.settimeout(0.5)
        with pytest.raises(TimeoutError):
            client.send("p 'x' * 10000\n" * 100_000)
        client.socket.close()
        job.waiting()


def test_breakpoints_in_threads_and_forked_processes(tmp_path: Path) -> None:
    text = """
import os, threading
def work(name):
    breakpoint()
    print(name, flush=True)
threads = [threading.Thread(target=work, args=(name,)) for name in ("a", "b")]
for thread in threads: thread.start()
for thread in threads: thread.join()
child = os.fork()
if child == 0:
    work("child")
    os._exit(0)
os.waitpid(child, 0)
print("done", flush=True)
"""
    with started(tmp_path, text) as job:
        job.waiting()
        client = job.join()
        for _ in range(2):
            client.read_prompt()
            client.send("c")
        marker = until(lambda: [each for each in read_markers(job.folder) if each["pid"] != job.process.pid])[0]
        child = job.join(marker["socket"])
        child.read_prompt()
        child.send("q")
        code, output, _ = job.end()
    assert (code, sorted(output[:2]), output[2:]) == (0, ["a", "b"], ["child", "done", ""])


@pytest.mark.parametrize("option", ["-I", "-E"])
def test_isolated_programs_have_pythons_own_breakpoint(tmp_path: Path, option: str) -> None:
    with started(tmp_path, "breakpoint()\n", options=(option,)) as job:
        code, output, log = job.end()
    # Pdb without a terminal reads the end of its input.
    assert code == 1
    assert "(Pdb)" in "".join(output)
    assert "pai-sdk debug" not in log


def test_a_folder_that_cannot_be_used_is_no_reason_to_fail(tmp_path: Path) -> None:
    (tmp_path / FOLDER).write_text("a file")
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    (temporary / f"{FOLDER}-{os.getuid()}").symlink_to("/")
    with started(tmp_path, TMPDIR=str(temporary)) as job:
        code, output, _ = job.end()
    assert (code, output[-2]) == (0, "done")


def test_a_long_path_is_no_problem(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 120)
    folder.mkdir()
    with started(folder) as job:
        job.waiting()
        client = job.join()
        client.read_prompt()


def test_a_marker_is_written_and_removed_by_two_threads(tmp_path: Path) -> None:
    marker = Marker(tmp_path / "1.json")

    def write() -> None:
        for _ in range(5000):
            marker.write({"rank": 0})

    with ThreadPoolExecutor(1) as threads:
        writing = threads.submit(write)
        while not writing.done():
            marker.remove()
        writing.result()


def test_the_marker_of_a_killed_process_does_not_count(tmp_path: Path) -> None:
    with started(tmp_path) as job:
        job.waiting()
        job.process.send_signal(signal.SIGKILL)
        job.process.wait()
        assert [path.suffix for path in sorted(job.folder.iterdir())] == [".json", ".sock"]
        assert read_markers(job.folder) == []


def test_markers_are_not_trusted(tmp_path: Path) -> None:
    assert read_markers(tmp_path / "missing") == []
    folder = debug_folder({"PAI_WORKING_DIR": str(tmp_path / "usercode")})
    os.mkfifo(folder / "1.json")
    (folder / "2.json").symlink_to("/etc/passwd")
    markers = [Marker(folder / f"{number}.json") for number in range(3, 7)]
    valid = {
        "rank": 0,
        "pid": 6,
        "kind": "terminal",
        "state": "waiting",
        "instance": "",
        "file": "",
        "function": "",
    }
    valid["working_dir"] = ""
    for marker, content in zip(markers, ({}, {"rank": "0", "pid": 1}, {**valid, "file": 3}, valid), strict=True):
        marker.write(content)
    assert [each["pid"] for each in read_markers(folder)] == [6]
    for marker in markers:
        marker.remove()
    assert read_markers(folder) == []


def test_outside_a_job_it_is_pdb(tmp_path: Path) -> None:
    text = "from pai_sdk.reports import wait_for_debugger\nwait_for_debugger()\nprint('here')\n"
    script = tmp_path / "train.py"
    script.write_text(text)
    done = subprocess.run(
        [sys.executable, str(script)],
        env={"PATH": os.defpath, "PYTHONPATH": str(job_package())},
        input="c\n",
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (done.returncode, done.stdout.endswith("here\n")) == (0, True)


def test_without_debugpy_a_terminal_can_join(tmp_path: Path) -> None:
    with started(tmp_path, options=("-s", "-S"), PAI_DEBUGGER="debugpy") as job:
        job.waiting()
        client = job.join()
        client.read_prompt()
        client.send("q")
        job.waiting()
        job.join().send("q")
        code, _, log = job.end()
    assert code == 0
    assert "debugpy" in log


class Dap:
    """A client of the Debug Adapter Protocol, as an editor is one."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
        self.file = self.socket.makefile("rb")
        self.number = 0

    def send(self, command: str, **arguments: Any) -> None:
        self.number += 1
        body = json.dumps({"seq": self.number, "type": "request", "command": command, "arguments": arguments})
        self.socket.sendall(f"Content-Length: {len(body)}\r\n\r\n{body}".encode())

    def read_to(self, name: str) -> dict[str, Any]:
        """Read to a response to a command or to an event."""
        while True:
            headers = [line.strip() for line in iter(self.file.readline, b"\r\n")]
            message = json.loads(self.file.read(int(headers[0].split()[1])))
            if name in (message.get("command"), message.get("event")):
                assert message.get("success", True), message
                return dict(message.get("body") or {})

    def request(self, command: str, **arguments: Any) -> dict[str, Any]:
        self.send(command, **arguments)
        return self.read_to(command)

    def attach(self) -> None:
        self.request("initialize", adapterID="debugpy", pathFormat="path")
        self.send("attach", justMyCode=True)
        self.read_to("initialized")
        self.request("configurationDone")

    def close(self) -> None:
        self.file.close()
        self.socket.close()


def test_an_editor_stops_in_the_frame_and_lets_the_script_go_on(tmp_path: Path) -> None:
    pytest.importorskip("debugpy")
    with started(tmp_path, PAI_DEBUGGER="debugpy") as job:
        marker = job.waiting()
        assert marker["kind"] == "debugpy"
        editor = Dap(marker["port"])
        editor.attach()
        thread = editor.read_to("stopped")["threadId"]
        frame = editor.request("stackTrace", threadId=thread)["stackFrames"][0]
        assert (frame["name"], Path(frame["source"]["path"]).name) == ("step", "train.py")
        value = editor.request("evaluate", expression="value", frameId=frame["id"], context="repl")
        assert value["result"] == "21"
        editor.request("continue", threadId=thread)
        # It stays attached.
        thread = editor.read_to("stopped")["threadId"]
        editor.request("disconnect", terminateDebuggee=False)
        assert job.end()[:2] == (0, ["step 21", "step 42", "done", ""])
        editor.close()


def test_threads_at_breakpoints_go_on_without_an_editor(tmp_path: Path) -> None:
    pytest.importorskip("debugpy")
    text = """
import threading
def work():
    breakpoint(timeout_s=1)
threads = [threading.Thread(target=work) for _ in range(3)]
for thread in threads: thread.start()
for thread in threads: thread.join()
breakpoint(timeout_s=0)
print("done", flush=True)
"""
    with started(tmp_path, text, PAI_DEBUGGER="debugpy") as job:
        code, output, log = job.end()
    assert (code, output) == (0, ["done", ""]), log


def test_a_forked_process_waits_for_a_terminal_since_debugpy_listens_in_its_parent(tmp_path: Path) -> None:
    pytest.importorskip("debugpy")
    text = """
import os
breakpoint(timeout_s=0)
child = os.fork()
if child == 0:
    breakpoint()
    print("child", flush=True)
    os._exit(0)
os.waitpid(child, 0)
print("done", flush=True)
"""
    with started(tmp_path, text, PAI_DEBUGGER="debugpy") as job:
        waiting = until(lambda: [each for each in read_markers(job.folder) if each["pid"] != job.process.pid])[0]
        assert waiting["kind"] == "terminal"
        child = job.join(waiting["socket"])
        child.read_prompt()
        child.send("c")
        code, output, log = job.end()
    assert (code, output) == (0, ["child", "done", ""])
    assert "A terminal can join" in log


def test_without_an_editor_the_script_goes_on(tmp_path: Path) -> None:
    pytest.importorskip("debugpy")
    with started(tmp_path, PAI_DEBUGGER="debugpy", PAI_DEBUGGER_WAIT_S="0.2") as job:
        code, output, log = job.end()
    assert (code, output) == (0, ["step 21", "step 42", "done", ""])
    assert "pai-sdk debug train1:0 --editor" in log
    assert "frozen" not in log


def test_a_reader_at_the_wrong_moment_does_not_hide_a_marker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader locks a marker for a moment, also one that is written just now."""
    fcntl = pytest.importorskip("fcntl")
    path = tmp_path / "7.json"
    reader = os.open(path, os.O_RDONLY | os.O_CREAT)
    fcntl.flock(reader, fcntl.LOCK_SH)
    monkeypatch.setattr("time.sleep", lambda _: fcntl.flock(reader, fcntl.LOCK_UN))
    marker = Marker(path)
    texts = dict.fromkeys(("kind", "state", "instance", "file", "function", "working_dir"), "")
    marker.write({"rank": 0, "pid": 7, "line": 1, **texts})
    os.close(reader)
    assert [each["pid"] for each in read_markers(tmp_path)] == [7]
    marker.remove()
    assert read_markers(tmp_path) == []
