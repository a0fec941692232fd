"""Stacks of real processes: the rank that hangs is named, whatever its fault and its Python."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pai_sdk._data.stacks.grouping import odd_ranks
from pai_sdk._data.stacks.processes import ProcessStack, parse_processes
from pai_sdk._host.agent.stacks import collect_stacks, find_py_spy
from tests.support.interpreters import INTERPRETERS
from tests.support.ranks import ranks
from tests.support.waiting import PATIENCE_S, until

pytestmark = pytest.mark.skipif(not find_py_spy(), reason="py-spy is not installed")

ODD = 2


def read(pids: list[int], *, native: bool = False, window_s: float = 0) -> list[ProcessStack]:
    return parse_processes(collect_stacks(pids, native=native, window_s=window_s, timeout_s=PATIENCE_S))


def odd_process(pids: list[int]) -> ProcessStack:
    """Wait until one rank stands out, as it does once all others wait for it."""
    processes = until(lambda: stacks if odd_ranks(stacks := read(pids)) else [])
    assert odd_ranks(processes) == (ODD,)
    return next(process for process in processes if process.rank == ODD and process.kind == "rank")


@pytest.mark.parametrize("fault", ["loader", "lock", "evaluate"])
def test_the_rank_that_the_others_wait_for_is_named(tmp_path: Path, fault: str) -> None:
    functions = {"loader": "load_data", "lock": "take_lock", "evaluate": "evaluate"}
    with ranks(tmp_path, 4, fault=fault) as pids:
        odd = odd_process(pids)
        assert odd.user_frame is not None
        assert (odd.user_frame.function, odd.problem) == (functions[fault], "")
        assert odd.instance == f"job-worker-{ODD}"


def test_a_rank_that_waits_for_a_program_is_named(tmp_path: Path) -> None:
    with ranks(tmp_path, 3, fault="program") as pids:
        odd = odd_process(pids)
        assert odd.user_frame is not None
        assert odd.user_frame.function == "run_program"


def test_a_stopped_rank_is_named(tmp_path: Path) -> None:
    with ranks(tmp_path, 4, fault="stop") as pids:
        odd = odd_process(pids)
        assert (odd.state, odd.pid) == ("T", pids[ODD])


@pytest.mark.parametrize("version", ["3.8", "3.10", "3.12", "3.13"])
def test_every_python_is_read(tmp_path: Path, version: str) -> None:
    if version not in INTERPRETERS:
        pytest.skip(f"there is no Python {version} on this machine")
    with ranks(tmp_path, 3, fault="loader", python=INTERPRETERS[version]) as pids:
        frame = odd_process(pids).user_frame
        assert frame is not None
        assert frame.function == "load_data"


def test_native_frames_are_read_on_request(tmp_path: Path) -> None:
    with ranks(tmp_path, 3, fault="loader") as pids:
        until(lambda: odd_ranks(read(pids)))
        plain, native = (read(pids, native=each) for each in (False, True))
        assert odd_ranks(native) == (ODD,)
        assert not any(frame.is_native for frame in plain[ODD].frames)
        assert any(frame.is_native for frame in native[ODD].frames)


def test_between_two_reads_use_of_cpu_and_motion_are_seen(tmp_path: Path) -> None:
    with ranks(tmp_path, 3, fault="evaluate") as pids:
        until(lambda: odd_ranks(read(pids)))

        def look() -> list[ProcessStack]:
            """On a busy machine, none may get a processor for a while."""
            seen = read(pids, window_s=0.5)
            of_others = max(seen[0].cpu_percent or 0, seen[1].cpu_percent or 0)
            return seen if (seen[ODD].cpu_percent or 0) > of_others else []

        busy = until(look, "the use of the processor by the odd one")
        assert [process.is_moving for process in (busy[0], busy[1])] == [False, False]
        assert busy[0].syscall in ("recvfrom", "")


def test_the_signature_of_a_rank_that_hangs_stays(tmp_path: Path) -> None:
    with ranks(tmp_path, 3, fault="loader") as pids:
        until(lambda: odd_ranks(read(pids)))
        assert [each.signature for each in read(pids)] == [each.signature for each in read(pids)]


TREE = """
import multiprocessing, os, subprocess, sys, time
if len(sys.argv) < 3:
    command = [sys.executable, __file__, sys.argv[1], "x"]
    variables = [{**os.environ, "RANK": str(n), "LOCAL_RANK": str(n)} for n in (4, 5)]
    for program in [subprocess.Popen(command, env=each) for each in variables]:
        program.wait()
def load():
    time.sleep(600)
worker = multiprocessing.get_context("fork").Process(target=load, daemon=True)
worker.start()
open(os.path.join(sys.argv[1], os.environ["RANK"]), "w").close()
worker.join()
"""


def test_launchers_and_loaders_are_told_from_ranks(tmp_path: Path) -> None:
    (tmp_path / "tree.py").write_text(TREE)
    # As `torchrun` below a shell: the rank of the launcher is that of its node.
    command = ["sh", "-c", f"{sys.executable} tree.py {tmp_path}; exit 3"]
    with subprocess.Popen(command, env={**os.environ, "RANK": "1"}, cwd=tmp_path) as shell:
        until(lambda: (tmp_path / "4").exists() and (tmp_path / "5").exists())
        processes = read([shell.pid])
        kinds = sorted((process.kind, process.rank) for process in processes)
        names = {process.program for process in processes if process.kind == "rank"}
        for process in processes:
            os.kill(process.pid, 9)
    assert kinds == [("child", 4), ("child", 5), ("launcher", 1), ("other", 1), ("rank", 4), ("rank", 5)]
    assert names == {f"{Path(sys.executable).name} tree.py"}


def test_a_program_that_is_no_python_has_what_it_waits_for() -> None:
    with subprocess.Popen(["sleep", "600"], env={"RANK": "7"}) as program:
        (process,) = until(lambda: entries if (entries := read([program.pid]))[0].program == "sleep" else [])
        program.kill()
    assert (process.kind, process.rank, process.program, process.threads) == ("rank", 7, "sleep", ())
    assert process.problem


def test_arguments_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import time; print('started', flush=True); time.sleep(600)")
    command = [sys.executable, "-u", "-X", "utf8", str(tmp_path / "train.py"), "--token", "hidden-4711"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        program.stdout.readline()
        content = json.dumps(collect_stacks([program.pid], window_s=0))
        program.kill()
    assert "train.py" in content
    assert "hidden-4711" not in content


def test_without_py_spy_the_kernel_still_says_what_ranks_wait_for(tmp_path: Path) -> None:
    with ranks(tmp_path, 3, fault="loader") as pids:
        until(lambda: odd_ranks(read(pids)))
        processes = parse_processes(collect_stacks(pids, window_s=0, py_spy=""))
        assert all(process.problem and not process.threads for process in processes)
        assert odd_ranks(processes) in ((ODD,), ())  # () where the kernel shows no system calls


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("echo 'Error: Permission Denied: run as root' >&2; exit 1", "Permission Denied"),
        ("echo '{'", "py-spy"),
        ("echo '[]'", "no threads"),
        ("exec sleep 600", "in time"),
    ],
)
def test_a_py_spy_that_fails_or_hangs_is_a_problem_of_the_process(tmp_path: Path, text: str, problem: str) -> None:
    script = tmp_path / "py-spy"
    script.write_text(f"#!/bin/sh\n{text}\n")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as program:
        started_at = time.monotonic()
        entries = collect_stacks([program.pid], window_s=0, timeout_s=1, py_spy=str(script))["processes"]
        program.kill()
    assert problem in entries[0]["problem"] or "no time left" in entries[0]["problem"]
    assert time.monotonic() - started_at < PATIENCE_S


def test_processes_that_have_exited_are_left_out() -> None:
    program = subprocess.Popen(["true"])
    program.wait()
    assert collect_stacks([program.pid], window_s=0)["processes"] == []
