"""Functions as jobs at once, while the service is killed: each ends once, with its result."""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from pai_sdk import Session, TrainingJob, remote, report
from pai_sdk._service.embedded import ensure_running
from pai_sdk._service.state.folder import is_locked, read_info
from tests.support.waiting import until

__all__ = ["Trial", "main", "run"]

_LONGEST_S = 300.0


@dataclass
class Trial:
    """What was seen. `faults` is empty when all is well."""

    jobs: int
    kills: int = 0
    took_s: float = 0.0
    faults: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [f"{self.jobs} functions as jobs, {self.kills} kills of the service, {self.took_s:.0f} s"]
        lines += [f"FAULT: {fault}" for fault in self.faults]
        return "\n".join([*lines, "each ended once, with its result" if not self.faults else ""])


def run(folder: Path, *, jobs: int, kills: int, seed: int) -> Trial:
    """Submit them all at once, kill the service meanwhile, and look at all results."""
    data, starts = folder / "data", folder / "starts"
    starts.mkdir(parents=True)
    trial, begun = Trial(jobs), time.monotonic()
    ensure_running(data)
    session = Session.embedded(data)

    @remote(instance_type="ecs.c6.large", image_uri="python", session=session, show_logs=False)
    def work(number: int, seconds: float, notes: str) -> dict[str, float]:
        with open(f"{notes}/{number}", "a") as file:  # noqa: PTH123
            file.write("started\n")
        for step in (1, 2, 3):
            time.sleep(seconds / 3)
            report({"number": number * step}, step=step)
        if number % 5 == 4:
            raise ArithmeticError(number)
        return {"square": number**2}

    chance = random.Random(seed)
    seconds = [chance.uniform(0.2, 2.0) for _ in range(jobs)]

    def one(number: int) -> None:
        job = work.submit(number, seconds[number], str(starts))
        trial.faults.extend(_faults_of(job, number, starts))

    killer = threading.Thread(target=_kill, args=(data, kills, starts, jobs, trial))
    killer.start()
    with ThreadPoolExecutor(jobs) as pool:
        for number, future in enumerate([pool.submit(one, number) for number in range(jobs)]):
            if (error := future.exception()) is not None:
                trial.faults.append(f"{number}: {error!r}")
    killer.join()
    listed = list(session.list_jobs())
    if len(listed) != jobs or not all(job.status.is_terminal for job in listed):
        trial.faults.append(f"{len(listed)} jobs are listed")
    session.close()
    pid = ensure_running(data).pid
    os.kill(pid, signal.SIGTERM)
    until(lambda: not is_locked(data), "the end of the service")
    trial.took_s = time.monotonic() - begun
    return trial


def _faults_of(job: TrainingJob, number: int, starts: Path) -> Iterator[str]:
    try:
        result: object = job.result(_LONGEST_S)
    except ArithmeticError as error:
        result = error.args[0]
    expected = number if number % 5 == 4 else {"square": number**2}
    if result != expected:
        yield f"{number} has {result!r}"
    values = [point.value for point in job.metrics("number")]
    if values != [number, 2 * number, 3 * number]:
        yield f"{number} has the metrics {values}"
    if (starts / str(number)).read_text() != "started\n":
        yield f"{number} was started more than once"


def _kill(data: Path, kills: int, starts: Path, jobs: int, trial: Trial) -> None:
    """Kill the service when a share of the jobs has started, and start it again."""
    for number in range(kills):
        share = jobs * (number + 1) // (kills + 2)
        until(lambda share=share: len(list(starts.iterdir())) >= share, "the jobs", within_s=_LONGEST_S)
        info = read_info(data)
        with suppress(ProcessLookupError):
            if info is not None:
                os.kill(info.pid, signal.SIGKILL)
                trial.kills += 1
        until(lambda: not is_locked(data), "the end of the service")
        ensure_running(data)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.trials functions", description=__doc__)
    parser.add_argument("--jobs", type=int, default=30)
    parser.add_argument("--kills", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="functions-", ignore_cleanup_errors=True) as folder:
        trial = run(Path(folder), jobs=given.jobs, kills=given.kills, seed=given.seed)
    sys.stdout.write(f"{trial}\n")
    return 1 if trial.faults else 0
