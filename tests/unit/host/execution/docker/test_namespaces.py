"""What enters a container: it must be one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="containers have namespaces of Linux")

# In a process of its own, which would be in other namespaces afterwards.
ENTER = """
import sys
from pai_sdk._host.execution.docker.tunnel import namespaces
try:
    namespaces.enter(int(sys.argv[1]))
except PermissionError:
    sys.exit(7)
"""


def test_a_process_of_this_machine_is_no_container() -> None:
    """The container has ended, and its process id is that of another process by now."""
    groups = Path("/proc/self/cgroup").read_text()
    other = subprocess.Popen(["sleep", "60"])
    try:
        done = subprocess.run([sys.executable, "-c", ENTER, str(other.pid)], timeout=30, check=False)
    finally:
        other.kill()
        other.wait()
    assert done.returncode == 7
    assert Path("/proc/self/cgroup").read_text() == groups
