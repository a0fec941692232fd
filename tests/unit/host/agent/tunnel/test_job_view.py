"""The processes of instances, while their programs are replaced."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from pai_sdk._host.agent.tunnel import job_view
from pai_sdk._host.agent.tunnel.job_view import InstanceView, variables_of

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="tunnels enter Linux processes")

INSTANCE = "train1-master-0"
AGAIN = 'exec sh -c "$0" "$0"'


@pytest.fixture
def replaced() -> Iterator[subprocess.Popen[bytes]]:
    """A process whose program is replaced again and again: for moments it has no variables."""
    with subprocess.Popen(
        ["sh", "-c", AGAIN, AGAIN], env={**os.environ, "PAI_INSTANCE_NAME": INSTANCE}
    ) as process:
        yield process
        process.kill()


def test_an_instance_is_found_while_its_program_is_replaced(replaced: subprocess.Popen[bytes]) -> None:
    for _ in range(150):
        assert InstanceView(os.getpid(), INSTANCE).leader("") == replaced.pid
        assert variables_of(replaced.pid)["PAI_INSTANCE_NAME"] == INSTANCE


def test_an_instance_that_does_not_run_has_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_view, "_EXEC_S", 0.05)
    assert InstanceView(os.getpid(), INSTANCE).leader("") == 0
