"""Processes of an instance that wait in a debugger, and the stacks of the instance, through a tunnel."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pai_sdk._client.code.job_package import job_package
from pai_sdk._data.run.report.debugger_variables import debugger_variables
from pai_sdk._data.stacks.processes import parse_processes
from pai_sdk._host.agent.tunnel.streams import Tunnel
from tests.support.tunnels import INSTANCE, RunningTunnel
from tests.support.waiting import until

TRAIN = "value = 42\nbreakpoint()\nprint('done')\n"


@pytest.fixture
def script(running: RunningTunnel, clean_home: Path) -> Iterator[subprocess.Popen[str]]:
    """A script of the instance, at its breakpoint."""
    variables = {
        "PATH": os.defpath,
        "PYTHONPATH": str(job_package()),
        "PAI_WORKING_DIR": str(running.folder),
        "PAI_INSTANCE_NAME": INSTANCE,
        **debugger_variables("terminal"),
    }
    command = [sys.executable, "-s", "-c", TRAIN]
    with subprocess.Popen(
        command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        yield process
        process.kill()


def test_a_debugger_is_listed_and_joined(tunnel: Tunnel, script: subprocess.Popen[str]) -> None:
    (session,) = until(lambda: tunnel.open("debuggers").result["sessions"])
    assert (session["rank"], session["pid"], session["state"]) == (0, script.pid, "waiting")
    with tunnel.open("socket", path=session["socket"]) as stream:
        stream.write(b"p value\nq\n")
        text = b"".join(iter(stream.read, b"")).decode()
    assert "42" in text
    assert script.wait() == 0
    assert tunnel.open("debuggers").result == {"sessions": []}


def test_the_stacks_of_an_instance_arrive(tunnel: Tunnel) -> None:
    with tunnel.open("stacks", native=False, timeout_s=20) as stream:
        content = json.loads(b"".join(iter(stream.read, b"")))
    (process,) = parse_processes(content, instance=INSTANCE)
    assert (process.program, process.kind, process.instance) == ("sleep", "rank", INSTANCE)
