"""Jobs that hang in scripted ways, and healthy ones that look alike, under the rules of a real service.

Ranks are processes that reduce over sockets, or over gloo where torch is installed. Each fault must be reported
with its rank within the limit of the rule, two steps and 30 seconds; no healthy job may be reported at all.
"""

from __future__ import annotations

import argparse
import importlib.util
import random
import re
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
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
if os.environ.get("TRIAL_GLOO"):
    import torch
    import torch.distributed as dist
    dist.init_process_group("gloo")
    def all_reduce():
        dist.all_reduce(torch.ones(1))
    def barrier():
        dist.barrier()
else:
    def connect():
        if rank == 0:
            server = socket.create_server(("127.0.0.1", port), backlog=64)
            return [server.accept()[0] for _ in range(world - 1)]
        while True:
            try:
                return [socket.create_connection(("127.0.0.1", port))]
            except OSError:
                time.sleep(0.1)
    peers = connect()
    def exchange():
        if rank == 0:
            for peer in peers:
                peer.recv(1)
        for peer in peers:
            peer.send(b"x")
        if rank:
            peers[0].recv(1)
    def all_reduce():
        exchange()
    def barrier():
        exchange()
def begin_fault():
    with open(marker, "w") as file:
        file.write(repr(time.time()))
def load_data():
    while True:
        time.sleep(600)
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
            with open("/dev/full", "w") as file:
                file.write("x" * 100000)
        except OSError as error:
            print(f"{error}, trying again ({attempt})", flush=True)
            time.sleep(1)
def skip():
    # Ahead of all others by one collective operation, and then at the end.
    finish()
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
FAULT_AT, last = 40, int(os.environ["TRIAL_STEPS"])
has_begun = False
for step in range(last):
    time.sleep(step_s)
    if kind == "rare_lines":
        time.sleep(extra_s / last)
    if step >= FAULT_AT and rank == culprit:
        if os.environ.get("TRIAL_FAULT") and not has_begun:
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
        if kind == "skipped_collective":
            skip()
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
    if rank == 0 and (kind != "rare_lines" or step % 30 == 0):
        if report is not None:
            report({"loss": 1 / (step + 1)}, step=step)
        print(f"step {step} loss={1 / (step + 1):.4f}", flush=True)
barrier()
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
HEALTHY = ("plain", "evaluation", "checkpoint", "long_first_step", "progress_bar", "rare_lines")


@dataclass
class Outcome:
    """What was seen of one job."""

    kind: str
    rank: int
    delay_s: float | None = None  # from the fault to the first finding that names the rank
    limit_s: float = 0.0
    findings: list[str] = field(default_factory=list)
    problem: str = ""

    def __str__(self) -> str:
        delay = "" if self.delay_s is None else f" after {self.delay_s:.1f} s"
        return f"{self.kind} rank {self.rank}{delay} {self.problem or 'ok'}"


def run(client: Client, folder: Path, kind: str, *, seed: int, extra_s: float = 25.0) -> Outcome:
    """Runs one job, and compares what the rules report with what it does."""
    rng = random.Random(seed)
    is_fault = kind in FAULTS
    # Rank 0 prints: where it hangs itself, the others wait for it likewise.
    outcome = Outcome(
        kind, rng.randrange(_RANKS) if is_fault and kind != "slow_rank" else rng.randrange(1, _RANKS)
    )
    marker = folder / f"{kind}-{seed}"
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
    }
    if importlib.util.find_spec("torch") is not None and seed % 2:
        variables["TRIAL_GLOO"] = "1"
    spec = {
        "Command": [sys.executable, "-c", _TRAINING],
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
            job = client.until(job_id, timeout_s=900)
            outcome.findings = [text for _, text in _findings(client, job_id)]
            if job["Status"] != "Succeed" or outcome.findings:
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


def _stop_when_marked(instance: str, marker: Path, deadline: float) -> None:
    while not marker.exists() and time.monotonic() < deadline:
        time.sleep(0.2)
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get("PAI_INSTANCE_NAME") == instance and _TRAINING in process.cmdline():
                process.send_signal(signal.SIGSTOP)


def run_all(kinds: Sequence[str], count: int, *, seed: int, jobs: int, extra_s: float) -> list[Outcome]:
    """Runs `count` jobs of these kinds in turn, some at once, on one service."""
    with tempfile.TemporaryDirectory() as root:
        settings: dict[str, Any] = {"pace": Pace(watch_interval_s=1.0), "slots": jobs * _RANKS}
        with running_service(Path(root) / "data", **settings) as client, ThreadPoolExecutor(jobs) as threads:
            tasks = [
                threads.submit(
                    run, Client(client.info), Path(root), kinds[n % len(kinds)], seed=seed + n, extra_s=extra_s
                )
                for n in range(count)
            ]
            outcomes = []
            for task in tasks:
                outcomes.append(task.result())
                print(outcomes[-1], flush=True)
            return outcomes


def main(arguments: list[str]) -> int:
    """Returns 1 if a fault was not named in time, or a healthy job was reported."""
    parser = argparse.ArgumentParser(prog="tests.trials watch_faults", description=__doc__)
    parser.add_argument("--faults", type=int, default=60)
    parser.add_argument("--healthy", type=int, default=50)
    parser.add_argument("--jobs", type=int, default=6, help="how many run at once")
    parser.add_argument("--extra-s", type=float, default=25.0, help="pause of healthy jobs")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    shared = {"seed": options.seed, "jobs": options.jobs, "extra_s": options.extra_s}
    faults = run_all(FAULTS, options.faults, **shared)
    healthy = run_all(HEALTHY, options.healthy, **shared)
    wrong = [outcome for outcome in (*faults, *healthy) if outcome.problem]
    delays = [outcome.delay_s for outcome in faults if outcome.delay_s is not None]
    slowest = f", the slowest after {max(delays):.1f} s" if delays else ""
    print(f"{len(faults)} faults{slowest}; {len(healthy)} healthy jobs; {len(wrong)} wrong")
    return 1 if wrong else 0
