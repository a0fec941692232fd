"""Programs in an instance: streams, terminals, signals, and that nothing of a session remains."""

from __future__ import annotations

import os
import re
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from pai_sdk._host.agent.tunnel import programs
from pai_sdk._host.agent.tunnel.spawner import Child
from pai_sdk._host.agent.tunnel.streams import Stream, Tunnel
from pai_sdk.errors import TunnelClosedError, TunnelRefusedError
from tests.support.tunnels import RunningTunnel, running_tunnel
from tests.support.waiting import PATIENCE_S, until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="tunnels enter Linux processes")

TERMINAL = {"term": "xterm", "rows": 30, "columns": 91}


def outputs(stream: Stream) -> tuple[bytes, bytes, int]:
    parts: dict[str, bytes] = {"stdout": b"", "stderr": b""}
    for name, content in stream.messages():
        if name in parts:
            parts[name] += content
    return parts["stdout"], parts["stderr"], stream.wait_exit(0)


def read_until(stream: Stream, end: str) -> str:
    text = b""
    while not re.search(end.encode(), text, re.DOTALL):
        data = stream.read()
        assert data, text
        text += data
    return text.decode()


def is_running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_program_has_folder_variables_and_streams(tunnel: Tunnel, running: RunningTunnel) -> None:
    script = 'pwd; echo "$NOTE $EXTRA"; cat; echo bad >&2; exit 7'
    stream = tunnel.open("program", argv=["sh", "-c", script], variables={"EXTRA": "more"})
    assert stream.result["pid"] > 0
    stream.write(b"hello\n")
    stream.end()
    assert outputs(stream) == (f"{running.folder}\ntwo\nlines more\nhello\n".encode(), b"bad\n", 7)


@pytest.mark.parametrize(
    ("argv", "code", "message"),
    [
        (["nosuch"], 127, b"nosuch"),
        (["echo a; pwd"], 127, b"sh -c 'echo a; pwd'"),
        (["/etc/passwd"], 126, b"Permission denied"),
        (["sh", "-c", "kill -9 $$"], 137, b""),
        (["sh", "-c", "kill -INT $$"], 130, b""),
        (["sh", "-c", "exit 255"], 255, b""),
    ],
)
def test_exit_codes_are_those_of_a_shell(tunnel: Tunnel, argv: list[str], code: int, message: bytes) -> None:
    _, errors, exit_code = outputs(tunnel.open("program", argv=argv))
    assert exit_code == code
    assert message in errors
    assert b"Traceback" not in errors


def test_another_folder(tunnel: Tunnel, running: RunningTunnel) -> None:
    (running.folder / "sub").mkdir(exist_ok=True)
    assert outputs(tunnel.open("program", argv=["pwd"], cwd="sub"))[0] == f"{running.folder}/sub\n".encode()
    assert outputs(tunnel.open("program", argv=["pwd"], cwd="/"))[0] == b"/\n"
    assert outputs(tunnel.open("program", argv=["pwd"], cwd="none"))[2] == 126


@pytest.mark.parametrize(
    "parameters",
    [
        {"argv": "ls"},
        {"argv": [1]},
        {"argv": ["a\0b"]},
        {"argv": ["ls"], "variables": {"A=B": "c"}},
        {"argv": ["ls"], "variables": {"A": 1}},
        {"argv": ["ls"], "cwd": 7},
        {"argv": ["ls"], "terminal": True},
        {"argv": ["ls"], "terminal": {"rows": -1, "columns": 80}},
        {"argv": ["ls"], "terminal": {"rows": "24", "columns": 80}},
    ],
    ids=str,
)
def test_malformed_parameters(tunnel: Tunnel, parameters: dict[str, object]) -> None:
    with pytest.raises(TunnelRefusedError) as caught:
        tunnel.open("program", **parameters)
    assert caught.value.code == "InvalidRequest"


def test_unknown_kinds_and_instances(tunnel: Tunnel, running: RunningTunnel) -> None:
    with pytest.raises(TunnelRefusedError) as caught:
        tunnel.open("teleport")
    assert caught.value.code == "NotSupported"
    with (
        running.open(lambda: running.dial("train-worker-7")) as other,
        pytest.raises(TunnelRefusedError) as caught,
    ):
        other.open("program", argv=["true"])
    assert caught.value.code == "InstanceNotRunning"


# ---- terminals --------------------------------------------------------------------------------------------


def test_a_terminal_has_its_size_before_the_program_starts(tunnel: Tunnel) -> None:
    stream = tunnel.open("program", argv=["sh", "-c", "stty size; tty; echo $TERM"], terminal=TERMINAL)
    output, _, code = outputs(stream)
    size, name, term = output.split()[:2], output.split()[2], output.split()[3]
    assert (size, term, code) == ([b"30", b"91"], b"xterm", 0)
    assert name.startswith(b"/dev/pts/")


def test_a_terminal_is_resized(tunnel: Tunnel) -> None:
    script = "trap 'stty size; exit 0' WINCH; echo ready; while :; do sleep 0.05; done"
    stream = tunnel.open("program", argv=["sh", "-c", script], terminal=TERMINAL)
    read_until(stream, "ready")
    stream.send_event({"resize": [50, 132]})
    read_until(stream, "50 132")
    assert stream.wait_exit(PATIENCE_S) == 0


def test_an_unknown_terminal_is_replaced(tunnel: Tunnel) -> None:
    terminal = {**TERMINAL, "term": "no-such-terminal"}
    stream = tunnel.open("program", argv=["sh", "-c", "echo $TERM"], terminal=terminal)
    assert outputs(stream)[0] == b"xterm-256color\r\n"


def test_ctrl_c_interrupts_the_program_in_the_foreground(tunnel: Tunnel) -> None:
    script = "trap 'echo interrupted; exit 6' INT; echo ready; while :; do sleep 0.05; done"
    stream = tunnel.open("program", argv=["sh", "-c", script], terminal=TERMINAL)
    read_until(stream, "ready")
    stream.write(b"\x03")
    read_until(stream, "interrupted")
    assert stream.wait_exit(PATIENCE_S) == 6


def test_the_end_of_input_of_a_terminal(tunnel: Tunnel) -> None:
    for text in (b"", b"line\n", b"within a line"):
        stream = tunnel.open("program", argv=["cat"], terminal=TERMINAL)
        stream.write(text)
        stream.end()
        output, _, code = outputs(stream)
        assert code == 0
        assert text.strip() in output


def test_an_empty_command_is_a_login_shell(tunnel: Tunnel) -> None:
    stream = tunnel.open("program", argv=[], terminal=TERMINAL)
    stream.write(b"echo sh''ell; exit 4\n")
    read_until(stream, "shell")
    while stream.read():
        pass
    assert stream.wait_exit(PATIENCE_S) == 4


# ---- ends -------------------------------------------------------------------------------------------------


def test_signals_of_the_client(tunnel: Tunnel) -> None:
    stream = tunnel.open(
        "program", argv=["sh", "-c", "trap 'echo got; exit 9' USR1; echo ready; while :; do sleep 0.05; done"]
    )
    read_until(stream, "ready")
    stream.send_event({"signal": "USR1"})
    read_until(stream, "got")
    assert stream.wait_exit(PATIENCE_S) == 9


def test_a_signal_overtakes_input_that_the_program_does_not_read(tunnel: Tunnel) -> None:
    stream = tunnel.open("program", argv=["sleep", "1000"])
    # Pipe and window are full.
    stop = threading.Event()

    def write() -> None:
        with suppress(BrokenPipeError, TunnelClosedError):
            while not stop.is_set():
                stream.write(bytes(10_000))

    writing = threading.Thread(target=write)
    writing.start()
    until(lambda: stream._windows.credit[0] < 20_000, "a full window")
    stream.send_event({"signal": "TERM"})
    assert stream.wait_exit(PATIENCE_S) == 143
    stop.set()
    stream.close()
    writing.join()


def children_of(stream: Stream, count: int) -> list[int]:
    text = ""
    while text.count("\n") < count:
        text += stream.read().decode()
    return [int(line) for line in text.split()]


@pytest.mark.parametrize("terminal", [None, TERMINAL], ids=["pipes", "terminal"])
@pytest.mark.parametrize("ending", ["exit", "close", "tunnel"])
def test_nothing_of_a_session_remains(
    running: RunningTunnel, terminal: dict[str, object] | None, ending: str
) -> None:
    """Children in the background, that ignore SIGHUP, and that have left the session."""
    script = (
        "sleep 1000 & echo $!; nohup sleep 1000 2>/dev/null & echo $!; "
        "setsid sh -c 'echo $$; exec sleep 1000' & read line; exit 3"
    )
    tunnel = running.open()
    stream = tunnel.open("program", argv=["sh", "-c", script], terminal=terminal)
    processes = [*children_of(stream, 3), stream.result["pid"]]
    assert all(map(is_running, processes))
    if ending == "exit":
        stream.write(b"\n")
        while stream.read():
            pass
        assert stream.wait_exit(PATIENCE_S) == 3
    elif ending == "close":
        stream.close()
    else:
        tunnel.close()
    until(lambda: not any(map(is_running, processes)), "the end of the session")
    tunnel.close()


def test_a_program_that_nobody_reads_waits_and_ends_with_its_stream(tunnel: Tunnel) -> None:
    stream = tunnel.open("program", argv=["yes"])
    process = stream.result["pid"]
    other = tunnel.open("program", argv=["echo", "beside"])
    assert outputs(other)[0] == b"beside\n"
    stream.close()
    until(lambda: not is_running(process), "the end of the program")


def test_a_terminal_whose_program_does_not_read_ends_with_its_stream(running: RunningTunnel) -> None:
    with running.open() as tunnel:
        below = Path(f"/proc/{running.server.pid}/task/{running.server.pid}/children")
        until(lambda: len(below.read_text().split()) == 1, "the end of the programs of earlier tests")
        (server,) = below.read_text().split()
        threads = Path(f"/proc/{server}/task")
        for _ in range(3):
            stream = tunnel.open(
                "program", argv=["sh", "-c", "stty raw; echo ready; sleep 1000"], terminal=TERMINAL
            )
            read_until(stream, "ready")
            # More than a terminal has room for.
            stream.write(bytes(200_000))
            stream.close()
        # The listening thread, the one for the replies of the spawner, and four of this tunnel.
        until(lambda: len(list(threads.iterdir())) <= 6, "the end of the threads")


def test_streams_that_are_closed_at_once_leave_nothing(tunnel: Tunnel) -> None:
    processes = []
    for number in range(30):
        terminal = TERMINAL if number % 2 else None
        stream = tunnel.open("program", argv=["sleep", "1000"], terminal=terminal)
        processes.append(stream.result["pid"])
        stream.close()
    until(lambda: not any(map(is_running, processes)), "the end of the programs")


def test_a_large_paste_into_a_terminal(tunnel: Tunnel) -> None:
    script = "stty raw -echo; echo ready; head -c 500000 | wc -c"
    stream = tunnel.open("program", argv=["sh", "-c", script], terminal=TERMINAL)
    read_until(stream, "ready")
    stream.write(bytes(500_000))
    read_until(stream, "500000")
    assert stream.wait_exit(PATIENCE_S) == 0


def test_output_after_the_end_of_input(tunnel: Tunnel) -> None:
    stream = tunnel.open("program", argv=["sh", "-c", "cat >/dev/null; echo after; sleep 0.05; echo later"])
    stream.write(b"x" * 100_000)
    stream.end()
    assert outputs(stream) == (b"after\nlater\n", b"", 0)


def test_a_program_that_closes_its_input_early(tunnel: Tunnel) -> None:
    stream = tunnel.open("program", argv=["sh", "-c", "exec <&-; echo closed; exit 2"])
    for _ in range(40):
        try:
            stream.write(bytes(100_000))
        except BrokenPipeError:
            break
    assert outputs(stream)[::2] == (b"closed\n", 2)


def test_two_sessions_at_once(running: RunningTunnel) -> None:
    with running.open() as first, running.open() as second:
        streams = [tunnel.open("program", argv=["cat"]) for tunnel in (first, second)]
        for number, stream in enumerate(streams):
            stream.write(b"%d" % number)
        assert [stream.read() for stream in streams] == [b"0", b"1"]
        first.close()
        streams[1].write(b"still")
        assert streams[1].read() == b"still"


@pytest.mark.parametrize("size", [30 << 20])
def test_large_contents_both_ways(tunnel: Tunnel, size: int) -> None:
    stream = tunnel.open("program", argv=["sh", "-c", "cat"])
    block = os.urandom(1 << 20)

    def write() -> None:
        for _ in range(size >> 20):
            stream.write(block)
        stream.end()

    writing = threading.Thread(target=write)
    writing.start()
    received = 0
    while data := stream.read():
        start = received % len(block)
        assert data == (block + block)[start : start + len(data)]
        received += len(data)
    writing.join()
    assert received == size
    assert stream.wait_exit(PATIENCE_S) == 0


def test_a_server_that_was_killed_leaves_nothing(tmp_path: Path) -> None:
    with running_tunnel(tmp_path) as running:
        tunnel = running.open(rejoin_s=0.1)
        stream = tunnel.open("program", argv=["sh", "-c", "nohup sleep 1000 2>/dev/null & echo $!; cat"])
        processes = [*children_of(stream, 1), stream.result["pid"]]
        running.server.kill()
        until(lambda: not is_running(stream.result["pid"]), "the end of the program")
        assert processes
        with pytest.raises(TunnelClosedError):
            stream.read()
        # Left to the supervisor, which kills what is below it at its end.
        os.kill(processes[0], 9)


def test_the_end_of_the_server_is_reported(tmp_path: Path) -> None:
    with running_tunnel(tmp_path) as running:
        tunnel = running.open()
        stream = tunnel.open("program", argv=["cat"])
        running.server.terminate()
        with pytest.raises(TunnelClosedError) as caught:
            stream.read()
        assert caught.value.code == "JobEnded"
        until(lambda: not is_running(stream.result["pid"]), "the end of the program")


def test_a_write_that_is_under_way_reaches_no_other_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of a program closes its input, whose number the next file gets."""
    reader, writer = os.pipe()
    program = programs._Program(Child(lambda: None), writer, {})
    others = []

    def write_all(descriptor: int, data: memoryview) -> None:
        program.close()
        others.extend(os.pipe())
        os.write(descriptor, data)

    monkeypatch.setattr(programs, "write_all", write_all)
    program.write(memoryview(b"secret"))
    os.set_blocking(others[0], False)
    with pytest.raises(BlockingIOError):
        os.read(others[0], 100)
    assert os.read(reader, 100) == b"secret"
    # And it is closed then.
    assert os.read(reader, 100) == b""
    for descriptor in (reader, *others):
        os.close(descriptor)
