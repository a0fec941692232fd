"""What is below a process."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from pai_sdk._host.agent.memory import exceeds, has_killed_since
from pai_sdk._host.agent.processes import groups_below, signal_group

pytestmark = pytest.mark.interpreter

_NEST = """
echo $$
[ "$1" = 0 ] && exec sleep 60
setsid sh "$0" $(($1 - 1))
echo "went on"
"""


def test_groups_are_told_from_the_outermost_to_the_innermost(tmp_path: Path) -> None:
    """In this order a shell is asked to end before the command it waits for, after which it would go on."""
    (tmp_path / "nest").write_text(_NEST)
    command = ["sh", str(tmp_path / "nest"), "20"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as outermost:
        assert outermost.stdout is not None
        leaders = [int(outermost.stdout.readline()) for _ in range(21)]
        try:
            found = groups_below(os.getpid())
            assert [group for group in found if group in leaders] == leaders
        finally:
            for leader in leaders:
                signal_group(leader, signal.SIGKILL)
        assert outermost.stdout.read() == ""


def test_no_process_exceeds_a_huge_limit() -> None:
    assert not exceeds(1 << 60, [1])


def test_without_an_earlier_count_kills_of_the_kernel_are_unknown() -> None:
    assert has_killed_since(None) is None
