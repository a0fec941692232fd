"""What the rules of the service cost a healthy job: a step of a watched one beside the same with `watch=False`."""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from pai_sdk._data.rules.codec import WATCH_VARIABLE, rules_text
from pai_sdk._data.rules.rules import NoProgress, OddRank
from tests.benchmarks.harness import Row
from tests.service.services import Client, job_body, running_service

REPETITIONS = 5
STEPS = 1_000

COST = Row("step of 10 ms in a watched job, above the same with watch=False", unit="%", at_most=0.5)
STACKS = Row("the same while its stacks are read", unit="%", at_most=0.5)
STEP = Row("step without rules", unit="ms")
SERVICE = Row("processor time of the service for the rules of a job", unit="% of a core", at_most=0.5)
ROWS = (COST, STACKS, STEP, SERVICE)

# The time of a step without what other programs have taken: running, and waiting for anything but a processor.
TRAINING = """
import json, sys, time
def waited():
    with open("/proc/thread-self/schedstat") as file:
        return int(file.read().split()[1]) / 1e9
times = []
for step in range(STEPS):
    begun, before = time.perf_counter(), waited()
    sum(number * number for number in range(ROUNDS))
    times.append(time.perf_counter() - begun - (waited() - before))
    if step % 10 == 0 and PRINTS:
        print(f"step {step} loss={1 / (step + 1):.4f}", flush=True)
with open(OUTPUT, "w") as file:
    json.dump(times, file)
"""
# The job prints nothing: it is quiet for longer than the limit at once, and its stacks are read again and again.
READ = (NoProgress(min_s=1, first_step_s=1, busy_s=3600), OddRank(apart_s=1))


def measure(cache: Path) -> dict[str, float | str]:
    """One repetition: pairs of jobs that run at the same time, so that other work slows both of them."""
    if not Path("/proc/thread-self/schedstat").exists():
        return dict.fromkeys((row.name for row in ROWS), "the kernel does not tell who waits for a processor")
    off, on, stacks = rules_text(False), rules_text(True), rules_text(READ)
    rounds = _rounds_of(0.01)
    with running_service(Path("data").absolute(), slots=2) as client, ThreadPoolExecutor(2) as threads:
        _run(client, off, rounds, steps=50)  # the first job of a service pays for later ones

        def pair(rules: str, prints: bool) -> tuple[float, float]:
            tasks = [
                threads.submit(_run, Client(client.info), each, rounds, prints=prints) for each in (rules, off)
            ]
            return tasks[0].result(), tasks[1].result()

        thread = next(each for each in threading.enumerate() if each.name == "rules")
        clock = time.pthread_getcpuclockid(thread.ident or 0)
        begun, used = time.monotonic(), time.clock_gettime(clock)
        on_s, off_s = pair(on, prints=True)
        share = (time.clock_gettime(clock) - used) / (time.monotonic() - begun)
        read_s, beside_s = pair(stacks, prints=False)
    return {
        COST.name: 100 * (on_s / off_s - 1),
        STACKS.name: 100 * (read_s / beside_s - 1),
        STEP.name: 1000 * off_s,
        SERVICE.name: 100 * share,
    }


def _rounds_of(seconds: float) -> int:
    """Returns how many additions take so long."""
    times = []
    for _ in range(20):
        begun = time.thread_time()
        sum(number * number for number in range(100_000))
        times.append(time.thread_time() - begun)
    return int(100_000 * seconds / statistics.median(times))


def _run(client: Client, rules: str, rounds: int, *, steps: int = STEPS, prints: bool = True) -> float:
    """Runs one job; returns the median of its steps."""
    output = Path(tempfile.mkdtemp(dir=Path.cwd()), "times.json")
    values = f"STEPS, ROUNDS, PRINTS, OUTPUT = {steps}, {rounds}, {prints}, {str(output)!r}"
    spec: dict[str, Any] = {
        "Command": [sys.executable, "-c", f"{values}\n{TRAINING}"],
        "MetricDefinitions": [{"Name": "loss", "Regex": r"loss=([\d.]+)"}],
    }
    job_id = client.create(job_body(AlgorithmSpec=spec, Environments={WATCH_VARIABLE: rules}))
    job = client.until(job_id, timeout_s=250)
    assert job["Status"] == "Succeed", job
    times = json.loads(output.read_text())
    assert len(times) == steps
    return float(statistics.median(times))
