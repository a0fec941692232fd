"""What ranks of a running job do, and debuggers that they wait in, through the service."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

from pai_sdk import Estimator, Session, TrainingJob
from pai_sdk._host.agent.stacks import find_py_spy
from pai_sdk.errors import InvalidInputError
from tests.e2e.test_command_line import PAI, environment, pai
from tests.support.ranks import PROGRAM
from tests.support.waiting import PATIENCE_S, until

needs_py_spy = pytest.mark.skipif(not find_py_spy(), reason="py-spy is not installed")
ODD = 2


@contextmanager
def running(session: Session, folder: Path, text: str, **values: object) -> Iterator[TrainingJob]:
    source = folder / "src"
    source.mkdir(exist_ok=True)
    (source / "train.py").write_text(textwrap.dedent(text))
    default = {"command": "exec python train.py", "source_dir": source, "instance_type": "ecs.c6.large"}
    job = Estimator("python:3.11", session=session, **{**default, **values}).fit(wait=False)
    try:
        until(lambda: str(job.status) == "Running")
        yield job
    finally:
        job.stop()
        until(lambda: job.status.is_terminal)


# As torchrun does: processes with a rank each, below one without.
LAUNCH = """
    import os, subprocess, sys
    node, nodes = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    programs = [
        subprocess.Popen(
            [sys.executable, "ranks.py"],
            env={**os.environ, "RANK": str(4 * node + n), "LOCAL_RANK": str(n), "WORLD_SIZE": str(4 * nodes)},
        )
        for n in range(4)
    ]
    for program in programs:
        program.wait()
"""


@needs_py_spy
def test_the_rank_that_hangs_is_named(session: Session, tmp_path: Path) -> None:
    variables = {"FAULT": "loader", "ODD": str(ODD)}
    with running(session, tmp_path, PROGRAM, environments=variables, instance_count=4) as job:
        stacks = until(lambda: stacks if (stacks := job.stacks()).odd_ranks else None, pause_s=0.5)
        assert stacks.odd_ranks == (ODD,)
        odd = stacks.groups[0]
        assert (odd.ranks, odd.user_frame.function) == ((ODD,), "load_data")
        assert odd.processes[0].instance == f"{job.id}-worker-{ODD - 1}"
        assert not stacks.problems
        printed = pai(session, "stacks", job.id)
        assert printed.returncode == 0, printed.stderr
        assert printed.stdout.splitlines()[2].startswith("rank 2:")
        values = json.loads(pai(session, "stacks", job.id, "--json", "--native").stdout)
        assert values["odd_ranks"] == [ODD]
        only = json.loads(pai(session, "stacks", f"{job.id}:1", "--json").stdout)
        assert {process["instance"] for process in only["processes"]} == {f"{job.id}-worker-0"}
        with pytest.raises(InvalidInputError):
            job.stacks(timeout=0)
    with pytest.raises(InvalidInputError):
        job.stacks()


@needs_py_spy
@pytest.mark.slow
def test_64_ranks_of_16_instances_are_read_in_one_call(session: Session, tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "ranks.py").write_text(PROGRAM)
    variables = {"FAULT": "loader", "ODD": str(ODD)}
    with running(session, tmp_path, LAUNCH, environments=variables, instance_count=16) as job:
        stacks = until(lambda: stacks if (stacks := job.stacks()).odd_ranks else None, pause_s=0.5)
    assert stacks.odd_ranks == (ODD,)
    assert [len(group.ranks) for group in stacks.groups] == [1, 63]
    assert len([process for process in stacks.processes if process.kind == "launcher"]) == 16
    assert not stacks.problems


TRAIN = """
    import os
    rank = int(os.environ["RANK"])
    def step(number):
        value = number * 21 + rank
        breakpoint()
        return value + 0
    for number in (1, 2):
        print("step", step(number), flush=True)
    print("done", flush=True)
"""


class Client:
    """`pai-sdk debug` in a pipe."""

    def __init__(self, session: Session, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [*PAI, "debug", *arguments],
            env=environment(session),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    def run(self, command: str) -> str:
        stdin, _ = self._pipes()
        stdin.write(f"{command}\n".encode())
        stdin.flush()
        return self.read_prompt()

    def read_prompt(self) -> str:
        _, stdout = self._pipes()
        text = b""
        while not text.endswith(b"(Pdb) "):
            data = os.read(stdout.fileno(), 1)
            assert data, text
            text += data
        return text.decode().removesuffix("(Pdb) ").strip()

    def end(self, command: str) -> int:
        """Send the last command; returns the exit code."""
        self.process.communicate(f"{command}\n".encode(), timeout=PATIENCE_S)
        return self.process.returncode

    def _pipes(self) -> tuple[IO[bytes], IO[bytes]]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        return self.process.stdin, self.process.stdout


def lines(job: TrainingJob, rank: int) -> list[str]:
    instance = f"{job.id}-{'worker-0' if rank else 'master-0'}"
    return [line.text for line in job.logs(instance=instance) if line.text.startswith(("step", "done"))]


def test_two_ranks_are_debugged_and_go_on(session: Session, tmp_path: Path) -> None:
    with running(session, tmp_path, TRAIN, instance_count=2, debugger="terminal") as job:
        clients = [Client(session, f"{job.id}:{rank}") for rank in (1, 0)]
        for client in clients:
            assert "step()" in client.read_prompt()
        assert [client.run("p value") for client in clients] == ["22", "21"]
        if find_py_spy():
            assert job.stacks().odd_ranks == ()
        # A client that is killed joins again.
        clients[0].process.kill()
        clients[0].process.communicate()
        clients[0] = Client(session, f"{job.id}:1")
        clients[0].read_prompt()
        assert [client.run("p value") for client in clients] == ["22", "21"]
        # Ends of input detach, as Ctrl-D does; and both are at their second breakpoint soon.
        assert [client.end("p 1") for client in clients] == [0, 0]
        assert [Client(session, f"{job.id}:{rank}").end("q") for rank in (0, 1)] == [0, 0]
        job.wait(show_logs=False)
        assert lines(job, 0) == ["step 21", "step 42", "done"]
        assert lines(job, 1) == ["step 22", "step 43", "done"]


def test_a_rank_that_never_waits_is_an_error(session: Session, tmp_path: Path) -> None:
    with running(session, tmp_path, "import time; time.sleep(600)") as job:
        refused = pai(session, "debug", f"{job.id}:0", "--wait", "0")
        assert refused.returncode == 1
        assert "breakpoint" in refused.stderr


def test_an_editor_reaches_the_port(session: Session, tmp_path: Path) -> None:
    pytest.importorskip("debugpy")
    with running(session, tmp_path, TRAIN, debugger="debugpy") as job:
        command = [*PAI, "debug", job.id, "--editor", "--port", "0", "--source", "/home/me"]
        with subprocess.Popen(
            command, env=environment(session), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        ) as client:
            assert client.stdout is not None
            text = b""
            while not text.endswith(b"\n}\n"):
                text += client.stdout.readline()
            (configuration,) = json.loads(text)["configurations"]
            assert configuration["pathMappings"][0]["localRoot"] == "/home/me"
            with socket.create_connection(("127.0.0.1", configuration["connect"]["port"]), PATIENCE_S) as editor:
                body = b'{"seq":1,"type":"request","command":"initialize","arguments":{"adapterID":"x"}}'
                editor.sendall(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
                editor.settimeout(PATIENCE_S)
                assert editor.recv(4096).startswith(b"Content-Length")
            client.terminate()
