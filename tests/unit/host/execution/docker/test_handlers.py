"""Streams of a tunnel that end in a container: programs with their input and output, and ports by a program."""

from __future__ import annotations

import shutil
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from pai_sdk._host.agent.tunnel.streams import Stream, Tunnel
from pai_sdk._host.execution.docker.tunnel import container_ports
from pai_sdk._host.execution.docker.tunnel.handlers import serve_program
from pai_sdk._host.execution.docker.tunnel.instance_container import InstanceContainer
from pai_sdk.errors import TunnelClosedError, TunnelRefusedError
from tests.support.exec_engine import FakeEngine
from tests.support.waiting import until
from tests.unit.host.agent.tunnel.pairs import Pair

JOB = "train-1-worker-0"
Handler = Callable[[InstanceContainer, Stream], None]
HANDLERS: dict[str, Handler] = {
    "program": serve_program,
    "connect": container_ports.serve_connect,
    "listen": container_ports.serve_listen,
}


def serve(tunnel: Tunnel, handle: Callable[[Stream], None]) -> list[threading.Thread]:
    """Handles all streams of a tunnel; returns the threads, which end with it."""
    threads: list[threading.Thread] = []

    def start(target: Callable[..., None], *arguments: object) -> None:
        threads.append(threading.Thread(target=target, args=arguments, daemon=True))
        threads[-1].start()

    def run(stream: Stream) -> None:
        try:
            handle(stream)
        except TunnelRefusedError as error:
            stream.refuse(error.code, error.message)
        finally:
            stream.close()

    def accept() -> None:
        with suppress(TunnelClosedError):
            while True:
                start(run, tunnel.accept())

    start(accept)
    return threads


class Place:
    def __init__(self, fake: FakeEngine, container: InstanceContainer, pair: Pair) -> None:
        self.fake = fake
        self.pair = pair
        self.client = pair.client()
        self.threads = serve(pair.tunnels[0], lambda stream: HANDLERS[stream.kind](container, stream))


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    (tmp_path / f"{JOB}.env").write_text(f"export NOTE=yes\nexport PAI_WORKING_DIR={tmp_path}\n")
    (tmp_path / "bin").mkdir()
    fake = FakeEngine(tmp_path, variables={"PAI_SDK_SHARED": str(tmp_path)})
    pair = Pair()
    with fake.up() as engine:
        place = Place(fake, InstanceContainer(engine, "c1", JOB, None), pair)
        yield place
        place.client.close()
        for thread in place.threads:
            thread.join()
        assert all(each.state["ExitCode"] is not None for each in fake.executions.values())


def open_program(place: Place, *argv: str, **parameters: object) -> Stream:
    return place.client.open(
        "program", **{"argv": [*argv], "terminal": None, "variables": {}, "cwd": None, **parameters}
    )


def test_a_program_with_input_output_and_exit_code(place: Place) -> None:
    stream = open_program(
        place, "sh", "-c", 'cat; echo "$NOTE $MORE"; pwd >&2; exit 3', variables={"MORE": "more"}
    )
    stream.write(b"typed\n")
    stream.end()
    messages = [*stream.messages()]
    assert b"".join(data for name, data in messages if name == "stdout") == b"typed\nyes more\n"
    assert b"".join(data for name, data in messages if name == "stderr").decode() == f"{place.fake.folder}\n"
    assert messages[-1] == ("exit", {"code": 3})


def test_a_megabyte_each_way_and_a_reader_that_ends_early(place: Place) -> None:
    data = bytes(range(256)) * 8192
    stream = open_program(place, "cat")
    thread = threading.Thread(target=lambda: (stream.write(data), stream.end()))
    thread.start()
    assert b"".join(content for name, content in stream.messages() if name == "stdout") == data
    thread.join()
    early = open_program(place, "head", "-c", "3")
    early.write(b"abcdef")
    assert [*early.messages()] == [("stdout", b"abc"), ("exit", {"code": 0})]


def test_a_program_ends_with_its_client(place: Place) -> None:
    stream = open_program(place, "sh", "-c", "echo ready; sleep 1000")
    assert stream.read() == b"ready\n"
    stream.close()
    until(lambda: next(iter(place.fake.executions.values())).state["ExitCode"] is not None)


def test_a_program_in_a_terminal_is_resized_and_signalled(place: Place) -> None:
    terminal = {"term": "xterm", "rows": 30, "columns": 90}
    script = 'stty size; trap "stty size" WINCH; trap "exit 9" TERM; echo ready; while :; do sleep 0.05; done'
    stream = open_program(place, "sh", "-c", script, terminal=terminal)
    printed = b""
    while b"ready" not in printed:
        printed += stream.read()
    assert b"30 90" in printed
    stream.send_event({"resize": [40, 100]})
    while b"40 100" not in printed:
        printed += stream.read()
    stream.send_event({"resize": "nonsense"})
    stream.send_event({"signal": "TERM"})
    assert stream.wait_exit(20) == 9


@pytest.mark.parametrize(
    "parameters",
    [{"argv": "sh"}, {"argv": ["a\0b"]}, {"cwd": 3}, {"variables": ["A"]}, {"terminal": "yes"}],
)
def test_a_malformed_program_is_refused(place: Place, parameters: dict[str, object]) -> None:
    with pytest.raises(TunnelRefusedError) as refused:
        open_program(place, "true", **parameters)
    assert refused.value.code == "InvalidRequest"


@pytest.fixture
def echo_port() -> Iterator[int]:
    """A server that answers with what it got, once it has all."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def run() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    with connection:
                        data = b""
                        while chunk := connection.recv(65536):
                            data += chunk
                            if data.endswith(b"\n"):
                                break
                        connection.sendall(data.upper())

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


@pytest.mark.parametrize("program", ["python3", "bash", "nc"])
def test_a_port_is_reached_by_a_program_of_the_image(place: Place, program: str, echo_port: int) -> None:
    provide(place, program)
    stream = place.client.open("connect", host="localhost", port=echo_port)
    stream.write(b"hello " * 1000 + b"\n")
    data = b""
    while chunk := stream.read():
        data += chunk
    assert data == b"HELLO " * 1000 + b"\n"
    stream.close()


@pytest.mark.parametrize("program", ["python3", "bash"])
def test_a_port_without_a_listener_refuses(place: Place, program: str) -> None:
    provide(place, program)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(TunnelRefusedError) as refused:
        place.client.open("connect", host="127.0.0.1", port=port)
    assert refused.value.code == "ConnectionRefused"


def provide(place: Place, program: str) -> None:
    """Has the image only this program, and those that the scripts need."""
    folder = place.fake.folder / "bin"
    for name in {program, "sh", "cat", "grep", "env"}:
        other = {"nc": shutil.which("busybox"), "python3": sys.executable}
        target = other.get(name) or shutil.which(name)
        if target is None:
            pytest.skip(f"there is no {name} here")
        (folder / name).symlink_to(target)
    place.fake.variables["PATH"] = str(folder)


def test_hosts_and_ports_outside_of_the_instance_are_refused(place: Place) -> None:
    bad = ({"host": "localhost", "port": 0}, {"host": "localhost", "port": "22"}, {"host": "8.8.8.8", "port": 53})
    for parameters in bad:
        with pytest.raises(TunnelRefusedError) as refused:
            place.client.open("connect", **parameters)
        assert refused.value.code == "InvalidRequest"


def test_listening_needs_the_rights_of_root_on_the_engine_s_machine(place: Place) -> None:
    with pytest.raises(TunnelRefusedError) as refused:
        place.client.open("listen", port=0)
    assert refused.value.code == "NotSupported"


def test_an_image_without_any_program_for_it_says_so(place: Place) -> None:
    provide(place, "cat")
    with pytest.raises(TunnelRefusedError) as refused:
        place.client.open("connect", host="localhost", port=9)
    assert refused.value.code == "NotSupported"


def test_without_a_program_a_login_shell_runs(place: Place) -> None:
    stream = open_program(place)
    stream.write(b"echo $NOTE$-; exit 6\n")
    messages = [*stream.messages()]
    assert messages[-1] == ("exit", {"code": 6})
    assert b"yes" in b"".join(data for name, data in messages if name == "stdout")


def test_a_folder_may_be_relative_to_the_job_s(place: Place) -> None:
    stream = open_program(place, "pwd", cwd="bin")
    assert stream.read().decode() == f"{place.fake.folder}/bin\n"
    absent = open_program(place, "pwd", cwd="nosuch")
    assert [*absent.messages()][-1] == ("exit", {"code": 126})
