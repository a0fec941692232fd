"""Collects the stacks of all processes of an instance: two reads, with the use of CPU between them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pai_sdk._host.agent.processes import descendants
from pai_sdk._host.agent.stacks.kernel import KernelProcess, read_process, wait_of
from pai_sdk._host.agent.stacks.py_spy import NOT_INSTALLED, StackError, find_py_spy, read_threads

_VARIABLES = ("RANK", "LOCAL_RANK", "PAI_INSTANCE_NAME")
_MAX_PROCESSES = 1024
_PAUSE_CPU_S = 0.05
_MAX_WORKERS = 16  # threads of this process that wait for py-spy
_Threads = list[dict[str, Any]]
_Rank = tuple[str, str]


def collect_stacks(
    pids: Sequence[int],
    *,
    native: bool = False,
    window_s: float = 1.0,
    timeout_s: float = 30.0,
    py_spy: str | None = None,
) -> dict[str, Any]:
    """Returns the processes of an instance with their stacks, for `_data.stacks.processes.parse_processes`.

    No process is paused, unless `native` frames are requested or a stack moves too fast to be read otherwise.

    Args:
        pids: the first processes of the instance; all processes below them are read, too.
        native: frames of compiled libraries, too.
        window_s: seconds between two reads, to see which processes use the CPU and move; 0 for one read.
        timeout_s: maximum time; what was not read by then has a `problem`.
        py_spy: path of py-spy; by default it is searched beside this Python.
    """
    deadline = time.monotonic() + timeout_s
    program = find_py_spy() if py_spy is None else py_spy
    tree = dict.fromkeys([*pids, *(each for pid in pids for each in descendants(pid))])
    reads = (read_process(pid, variables=_VARIABLES) for pid in list(tree)[:_MAX_PROCESSES])
    # Of a zombie, only its exit code is left.
    processes = [process for process in reads if process is not None and process.state != "Z"]
    started_at = time.monotonic()
    waits = {process.pid: wait_of(process.pid) for process in processes}
    with ThreadPoolExecutor(_MAX_WORKERS) as workers:
        first = _read_all(workers, program, processes, native=native, deadline=deadline)
        pause_s = min(started_at + window_s, deadline) - time.monotonic()
        if window_s and pause_s > 0:
            time.sleep(pause_s)
        later = {process.pid: read_process(process.pid) for process in processes}
        elapsed_s = max(time.monotonic() - started_at, 0.01)
        running = [
            process
            for process in processes
            if window_s and _has_run(process, later[process.pid], was_paused=native)
        ]
        second = _read_all(workers, program, running, native=native, deadline=deadline)
    kinds = _kinds(processes, first)
    entries = []
    for process in processes:
        now, threads = later[process.pid], first[process.pid]
        if now is None or now.started_at != process.started_at:
            continue  # it has exited
        entry = _entry(process, now, kinds[process.pid], waits[process.pid])
        if window_s:
            entry["cpu_percent"] = round(100 * (now.cpu_s - process.cpu_s) / elapsed_s, 1)
        if isinstance(threads, str):
            entry["problem"] = threads
        else:
            again = second.get(process.pid, threads)
            entry["is_moving"] = not isinstance(again, str) and _frames(again) != _frames(threads)
            entry["threads"] = threads if isinstance(again, str) else again
        entries.append(entry)
    return {"processes": entries, "window_s": round(elapsed_s, 3), "py_spy": bool(program)}


def _read_all(
    workers: ThreadPoolExecutor,
    program: str,
    processes: Sequence[KernelProcess],
    *,
    native: bool,
    deadline: float,
) -> dict[int, _Threads | str]:
    """Returns the stacks of each process by its id, or why there are none."""

    def read(process: KernelProcess) -> _Threads | str:
        if not process.is_python:
            return "it is no Python program"
        if not program:
            return NOT_INSTALLED
        try:
            stopped = process.state in ("T", "t")
            return read_threads(program, process.pid, native=native, is_stopped=stopped, deadline=deadline)
        except StackError as error:
            return str(error)

    return dict(zip((process.pid for process in processes), workers.map(read, processes), strict=True))


def _entry(process: KernelProcess, now: KernelProcess, kind: str, wait: tuple[str, str]) -> dict[str, Any]:
    rank = process.variables.get("RANK", "")
    return {
        "pid": process.pid,
        "parent_pid": process.parent_pid,
        "rank": int(rank) if rank.isdecimal() else None,
        "instance": process.variables.get("PAI_INSTANCE_NAME", ""),
        "kind": kind,
        "program": process.program,
        "state": now.state,
        "cpu_s": now.cpu_s,
        "cpu_percent": None,
        "wchan": wait[0],
        "syscall": wait[1],
        "threads": [],
        "is_moving": False,
        "problem": "",
    }


def _has_run(process: KernelProcess, now: KernelProcess | None, *, was_paused: bool) -> bool:
    """Returns whether the main thread may have moved; else its stack is the same."""
    if now is None or not process.is_python:
        return False
    # A pause for native frames switches threads, too, and uses a little CPU.
    if was_paused:
        return now.state == "R" or now.cpu_s - process.cpu_s > _PAUSE_CPU_S
    return now.state == "R" or (now.switches, now.cpu_s) != (process.switches, process.cpu_s)


def _frames(threads: _Threads) -> object:
    return threads[0]["frames"] if threads else None


def _kinds(processes: Sequence[KernelProcess], stacks: Mapping[int, _Threads | str]) -> dict[int, str]:
    """Returns for each process whether it trains a rank, helps such a process, or launches it."""
    by_pid = {process.pid: process for process in processes}
    kinds = dict.fromkeys(by_pid, "other")
    python = [process for process in processes if process.is_python]
    ancestors = {process.pid: _python_ancestors(process, by_pid) for process in python}
    # torchrun and its like start processes of other ranks, or wait for one program that they have started.
    launchers = {
        ancestor.pid
        for process in python
        for ancestor in ancestors[process.pid]
        if _rank(ancestor) != _rank(process) or _waits_for_program(stacks[ancestor.pid])
    }
    trainers: dict[_Rank, KernelProcess] = {}
    for process in python:
        if process.pid in launchers:
            kinds[process.pid] = "launcher"
        elif any(ancestor.pid not in launchers for ancestor in ancestors[process.pid]):
            kinds[process.pid] = "child"
        elif (other := trainers.get(_rank(process))) is None or other.cpu_s < process.cpu_s:
            # Of the programs in a pipe, the one that has used most of the CPU.
            trainers[_rank(process)] = process
    if not python and processes:
        # No Python at all: the program that works, or the last of a chain of shells.
        process = max(enumerate(processes), key=lambda pair: (pair[1].cpu_s, pair[0]))[1]
        trainers[_rank(process)] = process
    kinds.update({process.pid: "rank" for process in trainers.values()})
    return kinds


def _python_ancestors(process: KernelProcess, by_pid: Mapping[int, KernelProcess]) -> list[KernelProcess]:
    ancestors: list[KernelProcess] = []
    parent = by_pid.get(process.parent_pid)
    while parent is not None and len(ancestors) < len(by_pid):
        if parent.is_python:
            ancestors.append(parent)
        parent = by_pid.get(parent.parent_pid)
    return ancestors


def _rank(process: KernelProcess) -> _Rank:
    return process.variables.get("RANK", ""), process.variables.get("LOCAL_RANK", "")


def _waits_for_program(stacks: _Threads | str) -> bool:
    """Returns whether the main thread waits for the exit of a program."""
    frames = [] if isinstance(stacks, str) or not stacks else stacks[0]["frames"]
    return bool(frames) and frames[-1]["file"].endswith("/subprocess.py")
