"""Jobs that hang in scripted ways, and healthy ones that look alike, under the rules of a real service.

Ranks are processes that reduce over sockets, or over gloo with a Python that has torch: then, a stuck data
loader is one of torch with a worker process. Each fault must be reported with its rank within the limit of the
rule, two steps and 30 seconds; no healthy job may be reported at all. As root, the full disk is one of 1 MiB.
"""

from __future__ import annotations

import argparse
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from pai_sdk._data.rules.codec import WATCH_VARIABLE, rules_text
from pai_sdk._data.rules.rules import IdleCpu, NoProgress, OddRank, ProcessStopped
from pai_sdk._service.settings import Pace
from pai_sdk._wire.pai.wire import seconds_of
from tests.service.services import TERMINAL, Client, job_body, running_service

__all__ = ["FAULTS", "HEALTHY", "Outcome", "main", "run"]

_ROOT = Path(__file__).resolve().parents[2]
_MIN_S = 10.0
_RANKS = 4
_STEP_S = 0.2
_SLOWDOWN = 25
FULL_DISK = "full-disk"
_RULES = (
    NoProgress(min_s=_MIN_S, first_step_s=120),
    OddRank(apart_s=2),
    ProcessStopped(min_s=5),
    IdleCpu(enabled=False),
)
_TRAINING = """
import os, socket, sys, threading, time
sys.path.append(os.environ["TRIAL_ROOT"])
kind, culprit, marker = os.environ["TRIAL_KIND"], int(os.environ["TRIAL_RANK"]), os.environ["TRIAL_MARKER"]
step_s, extra_s = float(os.environ["TRIAL_STEP_S"]), float(os.environ["TRIAL_EXTRA_S"])
rank, world, port = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), int(os.environ["MASTER_PORT"])
first = 0
if kind == "sleeping_chief":
    if rank == 0:
        os.execvp("sleep", ["sleep", "infinity"])
    first = 1
if os.environ.get("TRIAL_GLOO"):
    import torch
    import torch.distributed as dist
    dist.init_process_group("gloo", rank=rank - first, world_size=world - first)
    def all_reduce():
        dist.all_reduce(torch.ones(1))
    def barrier():
        dist.barrier()
else:
    def connect():
        if rank == first:
            server = socket.create_server(("127.0.0.1", port), backlog=64)
            return [server.accept()[0] for _ in range(world - first - 1)]
        while True:
            try:
                return [socket.create_connection(("127.0.0.1", port))]
            except OSError:
                time.sleep(0.1)
    peers = connect()
    def exchange():
        if rank == first:
            for peer in peers:
                peer.recv(1)
        for peer in peers:
            peer.send(b"x")
        if rank != first:
            peers[0].recv(1)
    def all_reduce():
        exchange()
    def barrier():
        exchange()
def begin_fault():
    with open(marker, "w") as file:
        file.write(repr(time.time()))
FAULT_AT, last = 40, int(os.environ["TRIAL_STEPS"])
batches = None
if os.environ.get("TRIAL_GLOO") and kind == "stuck_loader":
    class Batches(torch.utils.data.Dataset):
        def __len__(self):
            return last
        def __getitem__(self, number):
            while rank == culprit and number >= FAULT_AT:
                time.sleep(600)
            return torch.zeros(1)
    batches = iter(torch.utils.data.DataLoader(Batches(), num_workers=1, prefetch_factor=2))
def load_data():
    while batches is None:
        time.sleep(600)
    next(batches)
def lock_twice():
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()
def connect_for_ever(problem):
    attempt = 0
    while True:
        attempt += 1
        print(f"{problem}, retrying in 2 s (attempt {attempt})", flush=True)
        time.sleep(2)
def write_for_ever():
    attempt = 0
    while True:
        attempt += 1
        try:
            with open(os.environ["TRIAL_OUTPUT"], "a") as file:
                while True:
                    file.write("x" * 100000)
                    file.flush()
        except OSError as error:
            print(f"{error}, trying again ({attempt})", flush=True)
            time.sleep(1)
def finish():
    while True:
        time.sleep(600)
def throttled():
    time.sleep(step_s * float(os.environ["TRIAL_SLOWDOWN"]))
def evaluate():
    end = time.monotonic() + extra_s
    while time.monotonic() < end:
        sum(range(20000))
def save():
    end, block = time.monotonic() + extra_s, os.urandom(1 << 20)
    with open(marker + ".checkpoint", "wb") as file:
        while time.monotonic() < end:
            file.seek(0)
            file.write(block)
            file.flush()
            os.fsync(file.fileno())
            time.sleep(0.2)
def draw_bar():
    end, count = time.monotonic() + extra_s, 0
    while time.monotonic() < end:
        count += 1
        sys.stdout.write(f"\\r{count}/1000")
        sys.stdout.flush()
        time.sleep(0.5)
report = None
if kind == "slow_rank" and rank == 0:
    from pai_sdk.reports import report
if kind == "long_first_step":
    time.sleep(extra_s)
has_begun = False
if kind == "skipped_collective":
    last = FAULT_AT + 10
for step in range(last):
    time.sleep(step_s)
    if kind == "rare_lines":
        time.sleep(0.25)
    if batches is not None and not (rank == culprit and step >= FAULT_AT):
        load_data()
    if step >= FAULT_AT and rank == culprit:
        if kind == "skipped_collective":
            # The next operation pairs with the skipped one of the others: they hang at the end.
            if step == FAULT_AT:
                continue
            if step == last - 1:
                all_reduce()
                begin_fault()
                finish()
        elif os.environ.get("TRIAL_FAULT") and not has_begun:
            has_begun = True
            begin_fault()
        if kind == "stuck_loader":
            load_data()
        if kind == "deadlocked_lock":
            lock_twice()
        if kind == "endless_retry":
            connect_for_ever("connection refused")
        if kind == "full_disk":
            write_for_ever()
        if kind == "slow_rank":
            throttled()
        if kind == "nan_loss":
            print(f"step {step} loss=nan", flush=True)
            all_reduce()
            continue
    if step in (50, 80):
        if kind == "evaluation" and rank == 0:
            evaluate()
        if kind == "checkpoint" and rank == 0:
            save()
        if kind == "progress_bar" and rank == 0:
            draw_bar()
    all_reduce()
    if rank == first and (kind != "rare_lines" or step % 30 == 0):
        if report is not None:
            report({"loss": 1 / (step + 1)}, step=step)
        print(f"step {step} loss={1 / (step + 1):.4f}", flush=True)
barrier()
if os.environ.get("TRIAL_GLOO"):
    dist.destroy_process_group()  # else its threads may abort the process at its end
if kind == "sleeping_chief" and rank == first:
    begin_fault()
"""
FAULTS = (
    "stuck_loader",
    "skipped_collective",
    "deadlocked_lock",
    "endless_retry",
    "full_disk",
    "stopped_process",
    "slow_rank",
    "nan_loss",
)
HEALTHY = (
    "plain",
    "evaluation",
    "checkpoint",
    "long_first_step",
    "progress_bar",
    "rare_lines",
    "sleeping_chief",
)


@dataclass
class Outcome:
    """What was seen of one job."""

    kind: str
    rank: int
    delay_s: float | None = None  # from the fault to the first finding that names the rank
    limit_s: float = 0.0
    findings: list[str] = field(default_factory=list)
    problem: str = ""
    has_gloo: bool = False

    def __str__(self) -> str:
        delay = "" if self.delay_s is None else f" after {self.delay_s:.1f} of {self.limit_s:.1f} s"
        gloo = " (gloo)" if self.has_gloo else ""
        return f"{self.kind}{gloo} rank {self.rank}{delay} {self.problem or 'ok'}"


def run(
    client: Client, folder: Path, kind: str, *, seed: int, extra_s: float = 25.0, torch_python: str = ""
) -> Outcome:
    """Runs one job, and compares what the rules report with what it does; with gloo by a Python that has torch."""
    rng = random.Random(seed)
    is_fault = kind in FAULTS
    # Rank 0 prints: where it hangs itself, the others wait for it likewise.
    outcome = Outcome(
        kind,
        rng.randrange(_RANKS) if is_fault and kind != "slow_rank" else rng.randrange(1, _RANKS),
        has_gloo=bool(torch_python),
    )
    marker = folder / f"{kind}-{seed}"
    output = folder / FULL_DISK
    variables = {
        WATCH_VARIABLE: rules_text(_RULES),
        "TRIAL_ROOT": str(_ROOT),
        "TRIAL_KIND": kind,
        "TRIAL_RANK": str(outcome.rank),
        "TRIAL_MARKER": str(marker),
        "TRIAL_STEP_S": str(_STEP_S),
        "TRIAL_SLOWDOWN": str(_SLOWDOWN),
        "TRIAL_EXTRA_S": str(extra_s),
        "TRIAL_FAULT": "1" if is_fault else "",
        "TRIAL_STEPS": "2000" if is_fault else "100",
        "TRIAL_OUTPUT": str(output / "checkpoint") if output.is_dir() else "/dev/full",
    }
    if torch_python:
        variables |= {"TRIAL_GLOO": "1", "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    spec = {
        "Command": [torch_python or sys.executable, "-c", _TRAINING],
        "MetricDefinitions": [{"Name": "loss", "Regex": r"loss=([\d.]+)"}],
    }
    body = job_body(
        AlgorithmSpec=spec, Environments=variables, ComputeResource={"EcsSpec": "local", "EcsCount": _RANKS}
    )
    job_id = client.create(body)
    try:
        if is_fault:
            _follow_fault(client, job_id, outcome, marker)
        else:
            if kind == "sleeping_chief":
                _wait_for(marker, time.monotonic() + 300)
                time.sleep(extra_s)
                job = client.get(f"/trainingjobs/{job_id}")
            else:
                job = client.until(job_id, timeout_s=900)
            outcome.findings = [text for _, text in _findings(client, job_id)]
            if job["Status"] != ("Running" if kind == "sleeping_chief" else "Succeed") or outcome.findings:
                outcome.problem = f"{job['Status']}: {outcome.findings or job.get('ReasonMessage')}"
    finally:
        client.call("PUT", f"/trainingjobs/{job_id}/stop")
    return outcome


def _follow_fault(client: Client, job_id: str, outcome: Outcome, marker: Path) -> None:
    instance = f"{job_id}-" + ("master-0" if outcome.rank == 0 else f"worker-{outcome.rank - 1}")
    deadline = time.monotonic() + 300
    if outcome.kind == "stopped_process":
        _stop_when_marked(instance, marker, deadline)
    step_s = _STEP_S * (_SLOWDOWN if outcome.kind == "slow_rank" else 1)
    while time.monotonic() < deadline:
        findings = _findings(client, job_id)
        named = [at for at, text in findings if instance in text or f"rank {outcome.rank}," in text]
        if named and marker.exists() and (text := marker.read_text()):
            outcome.findings = [text for _, text in findings]
            # On a busy machine steps vary, and the limit follows the longest gap; the event says it.
            limits = [
                float(limit) for _, found in findings for limit in re.findall(r"the limit is (\d+) s", found)
            ]
            outcome.limit_s = max([_MIN_S, *limits]) + 2 * step_s + 30
            outcome.delay_s = min(named) - float(text)
            if outcome.delay_s > outcome.limit_s:
                outcome.problem = f"late: the limit is {outcome.limit_s:.1f} s"
            elif outcome.delay_s < 0:
                outcome.problem = f"before the fault: {outcome.findings}"
            return
        if client.get(f"/trainingjobs/{job_id}")["Status"] in TERMINAL:
            break
        time.sleep(0.5)
    outcome.findings = [text for _, text in _findings(client, job_id)]
    outcome.problem = f"not named; {outcome.findings}"


def _findings(client: Client, job_id: str) -> list[tuple[float, str]]:
    codes = ("NoProgress:", "OddRank:", "ProcessStopped:", "NonFiniteMetric:", "MetricJump:", "IdleCpu:")
    rows = [line.partition(" ") for line in client.get(f"/trainingjobs/{job_id}/events")["Events"]]
    return [(seconds_of(at) or 0.0, text) for at, _, text in rows if text.startswith(codes)]


def _wait_for(marker: Path, deadline: float) -> None:
    while not marker.exists() and time.monotonic() < deadline:
        time.sleep(0.2)


def _stop_when_marked(instance: str, marker: Path, deadline: float) -> None:
    _wait_for(marker, deadline)
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get("PAI_INSTANCE_NAME") == instance and _TRAINING in process.cmdline():
                process.send_signal(signal.SIGSTOP)


@contextmanager
def _full_disk(folder: Path) -> Iterator[None]:
    """Mounts a disk of 1 MiB, where this process may."""
    disk = folder / FULL_DISK
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m,mode=777", "tmpfs", str(disk)]
    is_mounted = shutil.which("mount") is not None and subprocess.run(command, check=False).returncode == 0
    if not is_mounted:
        disk.rmdir()
    try:
        yield
    finally:
        if is_mounted:
            subprocess.run(["umount", "--lazy", str(disk)], check=True)


def run_all(
    kinds: Sequence[str], count: int, *, seed: int, jobs: int, extra_s: float, python: str, gloo: str
) -> list[Outcome]:
    """Runs `count` jobs of these kinds in turn, some at once, on one service."""
    with tempfile.TemporaryDirectory() as root, _full_disk(Path(root)):
        settings: dict[str, Any] = {"pace": Pace(watch_interval_s=1.0), "slots": jobs * _RANKS}
        with running_service(Path(root) / "data", **settings) as client, ThreadPoolExecutor(jobs) as threads:

            def start(number: int) -> Outcome:
                has_gloo = gloo == "only" or (gloo == "half" and number < count // 2)
                kind, torch_python = kinds[number % len(kinds)], python if has_gloo else ""
                try:
                    outcome = run(
                        Client(client.info),
                        Path(root),
                        kind,
                        seed=seed + number,
                        extra_s=extra_s,
                        torch_python=torch_python,
                    )
                except Exception as error:  # such as a timeout: one job must not end the others
                    outcome = Outcome(kind, -1, problem=repr(error), has_gloo=has_gloo)
                print(outcome, flush=True)
                return outcome

            return [*threads.map(start, range(count))]


def _print_table(outcomes: Sequence[Outcome]) -> None:
    """Prints per kind how many jobs were as they should be, and the largest share of the time that was used."""
    print(f"{'kind':<20} {'gloo':<5} {'jobs':>4} {'right':>5} {'slowest s':>9} {'allowed s':>9}")
    for kind in (*FAULTS, *HEALTHY):
        for has_gloo in (True, False):
            rows = [each for each in outcomes if (each.kind, each.has_gloo) == (kind, has_gloo)]
            late = max(rows, key=lambda each: (each.delay_s or 0.0) - each.limit_s, default=None)
            if late is None:
                continue
            right = sum(not each.problem for each in rows)
            times = "" if late.delay_s is None else f"{late.delay_s:>9.1f} {late.limit_s:>9.1f}"
            print(f"{kind:<20} {'yes' if has_gloo else 'no':<5} {len(rows):>4} {right:>5} {times}")


def main(arguments: list[str]) -> int:
    """Returns 1 if a fault was not named in time, or a healthy job was reported."""
    parser = argparse.ArgumentParser(prog="tests.trials watch_faults", description=__doc__)
    parser.add_argument("--faults", type=int, default=60)
    parser.add_argument("--healthy", type=int, default=50)
    parser.add_argument("--jobs", type=int, default=4, help="how many run at once")
    parser.add_argument("--extra-s", type=float, default=25.0, help="pause of healthy jobs")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--python", default="", help="a Python with torch; half of the jobs use gloo then")
    parser.add_argument("--gloo", choices=("half", "only"), default="half", help="with --python")
    options = parser.parse_args(arguments)
    shared = {
        "seed": options.seed,
        "jobs": options.jobs,
        "extra_s": options.extra_s,
        "python": options.python,
        "gloo": options.gloo if options.python else "none",
    }
    faults = run_all(FAULTS, options.faults, **shared)
    healthy = run_all(HEALTHY, options.healthy, **shared)
    wrong = [outcome for outcome in (*faults, *healthy) if outcome.problem]
    for outcome in wrong:
        print(f"wrong: {outcome}; {outcome.findings}")
    _print_table([*faults, *healthy])
    print(f"{len(faults)} faults, {len(healthy)} healthy jobs, {len(wrong)} wrong")
    return 1 if wrong else 0
