"""What the rules of the service cost a healthy job: a step while they work, beside one while they rest."""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from pai_sdk._data.rules.codec import WATCH_VARIABLE, rules_text
from pai_sdk._data.rules.rules import NoProgress, OddRank
from pai_sdk._host.agent.stacks.collecting import collect_stacks
from pai_sdk._service.background.watch.rule_watcher import RuleWatcher
from tests.benchmarks.harness import Row
from tests.service.services import Client, job_body, running_service

REPETITIONS = 5
WINDOW_S, WINDOWS = 4.0, 14
SETTLED_S = 1.5  # of each window: until what began in the one before has ended
PACED = 3  # windows in which the job's pace and first values are learned

COST = Row("step of 10 ms in a watched job, above that while the rules rest", unit="%", at_most=0.5)
STACKS = Row("the same while its stacks are read", unit="%", at_most=0.5)
READS = Row("stacks read in a minute of the row above", unit="times")
STEP = Row("step without rules", unit="ms")
SERVICE = Row("processor time of the service for the rules of a job", unit="% of a core", at_most=0.5)
ROWS = (COST, STACKS, READS, STEP, SERVICE)

_COLLECT = "pai_sdk._service.background.watch.rule_watcher.collect_stacks"

# The time of a step without what other programs have taken: running, and waiting for anything but a processor.
TRAINING = """
import json, sys, time
def waited():
    with open("/proc/thread-self/schedstat") as file:
        return int(file.read().split()[1]) / 1e9
steps, until = [], time.monotonic() + SECONDS
while (begun := time.monotonic()) < until:
    before = waited()
    sum(number * number for number in range(ROUNDS))
    steps.append((begun, time.monotonic() - begun - (waited() - before)))
    if len(steps) % 10 == 0 and PRINTS:
        print(f"step {len(steps)} loss={1 / len(steps):.4f}", flush=True)
with open(OUTPUT, "w") as file:
    json.dump(steps, file)
"""
# The job prints nothing: it is quiet for longer than the limit at once, and its stacks are read again and again.
READ = (NoProgress(min_s=1, first_step_s=1, busy_s=3600), OddRank(apart_s=1))


class Switch:
    """Lets the thread of the rules work in every other window, and counts the stacks that it reads.

    Two processes differ by several percent, whatever watches them. So a step is compared with the same one a few
    seconds later, in one process.
    """

    def __init__(self) -> None:
        self.is_on = True
        self.reads = 0
        self.windows: list[tuple[float, float, bool]] = []

    def run(self, seconds: float) -> None:
        """Switch until the job ends."""
        end = time.monotonic() + seconds
        while (begun := time.monotonic()) < end:
            self.is_on = not self.is_on
            time.sleep(WINDOW_S)
            self.windows.append((begun + SETTLED_S, begun + WINDOW_S, self.is_on))
        self.is_on = True

    def compare(self, steps: Sequence[tuple[float, float]]) -> tuple[float, float]:
        """Returns the medians of the steps with and without rules."""
        times: dict[bool, list[float]] = {True: [], False: []}
        for start, end, is_on in self.windows[PACED:]:
            times[is_on] += [duration for begun, duration in steps if start <= begun < end - duration]
        return statistics.median(times[True]), statistics.median(times[False])


def measure(cache: Path) -> dict[str, float | str]:
    """One repetition."""
    if not Path("/proc/thread-self/schedstat").exists():
        return dict.fromkeys((row.name for row in ROWS), "the kernel does not tell who waits for a processor")
    watching, reading = Switch(), Switch()
    with _switched() as use, running_service(Path("data").absolute(), slots=2) as client:
        thread = next(each for each in threading.enumerate() if each.name == "rules")
        clock = time.pthread_getcpuclockid(thread.ident or 0)
        begun, used = time.monotonic(), time.clock_gettime(clock)
        use(watching)
        on_s, off_s = watching.compare(_run(client, rules_text(True), watching, prints=True))
        # The rules rest for half of the time.
        share = 2 * (time.clock_gettime(clock) - used) / (time.monotonic() - begun)
        use(reading)
        read_s, beside_s = reading.compare(_run(client, rules_text(READ), reading, prints=False))
    return {
        COST.name: 100 * (on_s / off_s - 1),
        STACKS.name: 100 * (read_s / beside_s - 1),
        READS.name: reading.reads / (WINDOW_S * WINDOWS / 2) * 60,
        STEP.name: 1000 * off_s,
        SERVICE.name: 100 * share,
    }


@contextmanager
def _switched() -> Iterator[Callable[[Switch], None]]:
    """Puts a switch into all watchers of this process; yields what sets it."""
    switches = [Switch()]
    run = RuleWatcher._run

    def run_if_on(self: RuleWatcher) -> None:
        if switches[-1].is_on:
            run(self)

    def count(*arguments: Any, **options: Any) -> Any:
        switches[-1].reads += 1
        return collect_stacks(*arguments, **options)

    with patch.object(RuleWatcher, "_run", run_if_on), patch(_COLLECT, count):
        yield switches.append


def _rounds_of(seconds: float) -> int:
    """Returns how many additions take so long."""
    times = []
    for _ in range(20):
        begun = time.thread_time()
        sum(number * number for number in range(100_000))
        times.append(time.thread_time() - begun)
    return int(100_000 * seconds / statistics.median(times))


def _run(client: Client, rules: str, switch: Switch, *, prints: bool) -> list[tuple[float, float]]:
    """Runs one job; returns its steps, when each began and its duration."""
    output, seconds = Path(tempfile.mkdtemp(dir=Path.cwd()), "steps.json"), WINDOW_S * WINDOWS
    values = f"SECONDS, ROUNDS, PRINTS, OUTPUT = {seconds}, {_rounds_of(0.01)}, {prints}, {str(output)!r}"
    spec: dict[str, Any] = {
        "Command": [sys.executable, "-c", f"{values}\n{TRAINING}"],
        "MetricDefinitions": [{"Name": "loss", "Regex": r"loss=([\d.]+)"}],
    }
    job_id = client.create(job_body(AlgorithmSpec=spec, Environments={WATCH_VARIABLE: rules}))
    client.until(job_id, "Running")
    switch.run(seconds - WINDOW_S)
    job = client.until(job_id, timeout_s=250)
    assert job["Status"] == "Succeed", job
    return [(begun, duration) for begun, duration in json.loads(output.read_text())]
