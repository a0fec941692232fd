"""What enters a container: it must be the one of the instance."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pai_sdk._host.agent.processes import descendants
from tests.support.waiting import until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="containers have namespaces of Linux")

# In a process of its own, which would be in other namespaces afterwards.
ENTER = """
import os, sys
from pai_sdk._host.execution.docker.tunnel import namespaces
try:
    getattr(namespaces, sys.argv[1])(int(sys.argv[2]), "j-master-0")
except PermissionError:
    sys.exit(7)
print(os.readlink("/proc/thread-self/ns/net"))
"""
UNSHARE = ["unshare", "--net", "--uts", "--pid", "--fork", "--kill-child"]


def entered(function: str, process: int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", ENTER, function, str(process)]
    return subprocess.run(command, timeout=30, check=False, capture_output=True, text=True)


def container(name: str) -> Iterator[int]:
    """A process in namespaces of its own, with the name of an instance among its arguments."""
    if subprocess.run([*UNSHARE, "true"], check=False, capture_output=True).returncode:
        pytest.skip("namespaces are refused here")
    outer = subprocess.Popen([*UNSHARE, "sh", "-c", "sleep 60; true", name])
    until(lambda: len(descendants(outer.pid)) == 2)
    yield next(process for process in descendants(outer.pid) if name.encode() in arguments(process))
    outer.kill()
    outer.wait()


def arguments(process: int) -> list[bytes]:
    return Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")


@pytest.fixture
def master() -> Iterator[int]:
    yield from container("j-master-0")


@pytest.fixture
def other() -> Iterator[int]:
    yield from container("k-master-0")


@pytest.mark.parametrize("function", ["enter", "enter_network"])
def test_a_process_of_this_machine_is_no_container(function: str) -> None:
    """The container has ended, and its process id is that of another process by now."""
    groups = Path("/proc/self/cgroup").read_text()
    command = [sys.executable, "-c", "import time; time.sleep(60)", "j-master-0"]
    process = subprocess.Popen(command)
    try:
        done = entered(function, process.pid)
    finally:
        process.kill()
        process.wait()
    assert done.returncode == 7
    assert Path("/proc/self/cgroup").read_text() == groups


@pytest.mark.parametrize("function", ["enter", "enter_network"])
def test_a_process_of_another_container(function: str, other: int) -> None:
    assert entered(function, other).returncode == 7


def test_the_network_of_an_instance(master: int) -> None:
    done = entered("enter_network", master)
    assert done.stdout.strip() == str(Path(f"/proc/{master}/ns/net").readlink()), done.stderr
