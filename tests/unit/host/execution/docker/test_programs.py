"""Programs in a container by the engine's exec calls: input, output, terminal, exit code and end."""

from __future__ import annotations

import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from pai_sdk._host.execution.docker.engine import Engine
from pai_sdk._host.execution.docker.tunnel.exec_stream import EngineRefusedError, ExecStream
from pai_sdk._host.execution.docker.tunnel.instance_container import InstanceContainer
from pai_sdk._host.execution.docker.tunnel.programs import ContainerProgram, ProgramSpec, Terminal
from tests.support.exec_engine import FakeEngine
from tests.support.waiting import PATIENCE_S, until

JOB = "train-1-worker-0"


@dataclass
class Place:
    engine: Engine
    fake: FakeEngine
    ml: Path

    def run(self, *argv: str, process: int | None = None, **fields: object) -> ContainerProgram:
        container = InstanceContainer(self.engine, "c1", JOB, process)
        return ContainerProgram(container, ProgramSpec(argv, **fields))  # type: ignore[arg-type]


@pytest.fixture(params=[True, False], ids=["sized at start", "sized later"])
def place(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Place]:
    shared = tmp_path / "shared"
    ml = tmp_path / "usercode"
    shared.mkdir()
    ml.mkdir()
    (shared / f"{JOB}.env").write_text(
        f'set -- "$_env" a.b=odd "$@"\nexport NOTE="two words"\nexport PAI_WORKING_DIR={ml}\n'
    )
    (shared / f"{JOB}.settings").write_text("PAI_SDK_UMASK=0027\n")
    fake = FakeEngine(tmp_path, sizes_at_start=request.param, variables={"PAI_SDK_SHARED": str(shared)})
    with fake.up() as engine:
        yield Place(engine, fake, ml)


def collect(program: ContainerProgram) -> dict[int, bytes]:
    output = {1: b"", 2: b""}
    for source, chunk in program.output():
        output[source] += chunk
    return output


def finish(program: ContainerProgram) -> None:
    program.end()
    program.disconnect()
    program.close()


def never() -> threading.Event:
    return threading.Event()


def test_a_program_has_the_variables_and_the_folder_of_the_job(place: Place) -> None:
    script = 'echo "$NOTE $LANG"; pwd; umask; printenv PAI_SDK_SHARED; cat; echo oops >&2; exit 7'
    program = place.run("sh", "-c", script, variables={"LANG": "it's C", "not a name": "x"})
    program.write(b"from stdin")
    program.end_input()
    output = collect(program)
    assert output[1].decode().split("\n") == ["two words it's C", str(place.ml), "0027", "from stdin"]
    assert (output[2], program.wait(never())) == (b"oops\n", 7)
    finish(program)
    other = place.run("printenv", "a.b")
    assert collect(other)[1] == b"odd\n"
    finish(other)


def test_exit_codes_are_those_of_a_shell(place: Place) -> None:
    (place.ml / "data").write_text("no program")
    codes = []
    for argv in (["nosuch"], ["./data"], ["sh", "-c", "kill -9 $$"]):
        program = place.run(*argv)
        collect(program)
        codes.append(program.wait(never()))
        finish(program)
    assert codes == [127, 126, 137]


def test_a_terminal_has_its_size_at_the_first_look_and_input_ends_without_the_output(place: Place) -> None:
    script = 'stty size; echo "$TERM"; cat; echo rest'
    program = place.run("sh", "-c", script, terminal=Terminal("xterm-nosuch", 33, 101))
    program.write(b"typed")
    program.end_input()
    lines = collect(program)[1].decode().replace("\r", "").splitlines()
    # The echo of what was typed may come first.
    assert any(line.endswith("33 101") for line in lines)
    assert "xterm-256color" in lines
    assert lines[-1].endswith("rest")
    assert program.wait(never()) == 0
    finish(program)


def test_a_resize_and_keys_arrive(place: Place) -> None:
    script = 'trap "stty size; exit 5" WINCH; echo ready; while :; do sleep 0.05; done'
    program = place.run("sh", "-c", script, terminal=Terminal("xterm", 24, 80))
    output = program.output()
    printed = b""
    while b"ready" not in printed:
        printed += next(output)[1]
    program.resize(50, 120)
    assert b"50 120" in b"".join(chunk for _, chunk in output)
    assert program.wait(never()) == 5
    finish(program)
    again = place.run("sh", "-c", "echo ready; exec sleep 60", terminal=Terminal("xterm", 24, 80))
    assert b"ready" in next(again.output())[1]
    again.write(b"\x03")
    collect(again)
    assert again.wait(never()) == 130
    finish(again)


@pytest.mark.parametrize("terminal", [None, Terminal("xterm", 24, 80)], ids=["pipe", "terminal"])
def test_the_end_ends_all_processes_also_those_that_ignore_it(place: Place, terminal: Terminal | None) -> None:
    script = "trap '' HUP; setsid sleep 1000 & nohup sleep 1001 >/dev/null 2>&1 & echo $! $$; wait; sleep 1002"
    program = place.run("bash", "-c", script, terminal=terminal, process=os.getpid())
    printed = b""
    output = program.output()
    while not printed.endswith(b"\n"):
        printed += next(output)[1]
    processes = [int(word) for word in printed.split()]
    finish(program)
    until(lambda: not any(alive(process) for process in processes))
    mark = program._mark.encode()
    left = [path for path in Path("/proc").glob("[0-9]*/environ") if mark in environ(path)]
    assert left == []


def environ(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_signal_reaches_the_program(place: Place) -> None:
    program = place.run("sh", "-c", "trap 'exit 9' INT; echo ready; while :; do sleep 0.05; done")
    assert next(program.output())[1] == b"ready\n"
    program.signal("INT")
    assert program.wait(never()) == 9
    finish(program)


def test_an_engine_that_refuses_says_why(place: Place) -> None:
    with pytest.raises(EngineRefusedError, match="no such exec") as refused:
        ExecStream.start(place.engine, "nosuch", {"Tty": False})
    assert refused.value.status == 404


def test_output_in_one_packet_with_the_headers_is_not_lost(tmp_path: Path, place: Place) -> None:
    path = str(tmp_path / "other.sock")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n\x01\0\0\0\0\0\0\x03out\x02\0\0\0\0\0\0\x03err")

        thread = threading.Thread(target=answer)
        thread.start()
        stream = ExecStream.start(Engine(f"unix://{path}", place.engine.client), "any", {"Tty": False})
        assert [*stream.output()] == [(1, b"out"), (2, b"err")]
        stream.close()
        thread.join()


@pytest.mark.parametrize("shell", ["dash", "bash", "busybox"])
def test_the_signal_script_finds_session_and_mark(shell: str) -> None:
    from pai_sdk._host.execution.docker.tunnel.programs import script

    argv = {"busybox": ["busybox", "sh"]}.get(shell, [shell])
    sleeper = subprocess.Popen(["sleep", "100"], start_new_session=True)
    marked = subprocess.Popen(["sleep", "100"], env={"MARK": "abc123"})

    def send(name: str, session: int, mark: str) -> int:
        return subprocess.run(
            [*argv, "-c", script("signal.sh"), "sh", name, str(session), mark], check=False
        ).returncode

    assert send("0", sleeper.pid, "nosuchmark") == 0
    assert send("TERM", sleeper.pid, "abc123") == 0
    assert [sleeper.wait(PATIENCE_S), marked.wait(PATIENCE_S)] == [-15, -15]
    assert send("0", sleeper.pid, "abc123") == 1
