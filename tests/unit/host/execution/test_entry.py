"""Commands beside an instance: processes of this user are found and entered, others are not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pai_sdk._host.execution.docker.usage import _usage
from pai_sdk._host.execution.process.entry import ProcessEntry, find_process_entry

NAME = f"train{os.getpid()}-master-0"


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[Path]:
    variables = {"PAI_INSTANCE_NAME": NAME, "PAI_WORKING_DIR": str(tmp_path), "NOTE": "two\nlines", "PATH": "/bin"}
    command = ["/bin/sh", "-c", "sleep 100 & echo; wait"]
    with subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, start_new_session=True) as first:
        assert first.stdout is not None
        first.stdout.readline()
        yield tmp_path
        os.killpg(first.pid, signal.SIGKILL)


def entered(instance: str, *command: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """A command in the instance, run by a process of its own, whose streams it takes."""
    program = (
        "import sys; from pai_sdk._host.execution.process.entry import find_process_entry as find; "
        "sys.exit(find(sys.argv[1]).run(sys.argv[2:]))"
    )
    words = [sys.executable, "-c", program, instance, *command]
    return subprocess.run(words, input=stdin, capture_output=True, text=True, check=False, timeout=60)


def test_a_command_has_folder_variables_and_streams(instance: Path) -> None:
    done = entered(NAME, "sh", "-c", 'pwd; echo "$NOTE"; cat; echo bad >&2; exit 7', stdin="hello\n")
    assert done.stdout == f"{instance}\ntwo\nlines\nhello\n"
    assert (done.stderr, done.returncode) == ("bad\n", 7)


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        (("nosuch",), 127, "there is no program 'nosuch' in the job"),
        (("/etc/passwd",), 126, "cannot be entered"),
        (("sh", "-c", "kill -9 $$"), 137, ""),
    ],
)
def test_exit_codes_are_those_of_a_shell(instance: Path, command: tuple[str, ...], code: int, said: str) -> None:
    done = entered(NAME, *command)
    assert done.returncode == code
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_an_instance_that_is_not_here_is_not_found(instance: Path) -> None:
    assert isinstance(find_process_entry(NAME), ProcessEntry)
    assert find_process_entry(NAME.removesuffix("0")) is None
    assert find_process_entry("train-unknown-master-0") is None


def test_processes_of_other_users_do_not_count(instance: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root could read their variables, and must not enter a `/ml` that they have made."""
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert find_process_entry(NAME) is None


def test_a_folder_that_has_gone(instance: Path) -> None:
    instance.rmdir()
    done = entered(NAME, "pwd")
    assert done.returncode == 126
    assert f"cannot be entered: {instance}: No such file" in done.stderr
    instance.mkdir()


@pytest.mark.parametrize(
    "stats", [{}, {"cpu_stats": None, "memory_stats": {}}, {"precpu_stats": {"cpu_usage": None}}]
)
def test_an_engine_that_says_little(stats: dict[str, object]) -> None:
    usage = _usage("local-1-master-0", stats)
    assert usage == ("local-1-master-0", None, None, None, None, None)


def test_memory_is_what_cannot_be_taken_away() -> None:
    usage = _usage("one", {"memory_stats": {"usage": 96, "limit": 400, "stats": {"inactive_file": 16}}})
    assert (usage.memory_bytes, usage.memory_percent) == (80, 20.0)


def test_processor_time_is_in_percent_of_the_machine() -> None:
    stats = {
        "cpu_stats": {"cpu_usage": {"total_usage": 300}, "system_cpu_usage": 2000},
        "precpu_stats": {"cpu_usage": {"total_usage": 100}, "system_cpu_usage": 1000},
        "memory_stats": {"usage": 96, "limit": 400, "stats": {"inactive_file": 16}},
    }
    usage = _usage("local-1-master-0", stats)
    assert (usage.cpu_percent, usage.memory_percent, usage.memory_bytes) == (20.0, 20.0, 80)
