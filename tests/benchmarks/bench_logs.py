"""Following logs on the embedded service: a million lines, the delay of a line, fifty jobs at once."""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pai_sdk import Processor, Session
from pai_sdk._client.job.training_job import TrainingJob
from pai_sdk._service.state.folder import read_info
from tests.benchmarks.harness import Row

REPETITIONS = 3

LIVE = Row("1,000,000 lines followed while they are written", "lines/s", at_least=100_000)
ENDED = Row("1,000,000 lines of a job that has ended", "lines/s", at_least=100_000)
MEMORY = Row("memory that takes", "MB", at_most=100)
DELAY = Row("a line written to the line seen, median")
DELAY_P99 = Row("a line written to the line seen, 99 of 100", at_most=0.2)
THREADS = Row("threads while 50 jobs are followed", "", at_most=20)
CPU = Row("processor time of that, share of one core", "", at_most=0.05)
ROWS = (LIVE, ENDED, MEMORY, DELAY, DELAY_P99, THREADS, CPU)

_LINES = 1_000_000
_JOBS = 50
_WATCHED_S = 10.0

MANY = """
for first in range(0, LINES, 1000):
    lines = (f"step {n} loss=0.12345 accuracy=0.98765 time=0.123s" for n in range(first, first + 1000))
    print("\\n".join(lines))
"""
TIMES = """
import time
for _ in range(400):
    print(repr(time.time()), flush=True)
    time.sleep(0.013)
"""


def measure(cache: Path) -> dict[str, float | str]:
    with _service(Path("data")) as session:
        return {**_million(session), **_delays(session), **_fifty(session)}


@contextmanager
def _service(folder: Path) -> Iterator[Session]:
    """A service that runs all jobs at once."""
    folder.mkdir()
    command = [
        sys.executable,
        "-m",
        "pai_sdk._service",
        "--data",
        str(folder),
        "--port",
        "0",
        "--slots",
        str(2 * _JOBS),
    ]
    with (
        (folder.parent / "service.log").open("wb") as log,
        subprocess.Popen(command, stdout=log, stderr=log) as server,
    ):
        while read_info(folder) is None:
            time.sleep(0.05)
        yield Session.embedded(folder)
        server.terminate()


def _job(session: Session, script: str) -> TrainingJob:
    folder = Path(f"source-{time.monotonic_ns()}")
    folder.mkdir()
    (folder / "main.py").write_text(script)
    processor = Processor(
        "python:3.11", "python3 main.py", source_dir=str(folder), instance_type="ecs.c6.large", session=session
    )
    return processor.run(wait=False, show_logs=False)


def _million(session: Session) -> dict[str, float | str]:
    _job(session, "print('warm')").wait(show_logs=False)
    job = _job(session, MANY.replace("LINES", str(_LINES)))
    before_mb = _peak_mb()
    speeds = []
    for _ in range(2):
        lines = (line for line in job.logs(follow=True) if line.text.startswith("step"))
        next(lines)
        begun = time.perf_counter()
        assert 1 + sum(1 for _ in lines) == _LINES
        speeds.append(_LINES / (time.perf_counter() - begun))
    return {LIVE.name: speeds[0], ENDED.name: speeds[1], MEMORY.name: _peak_mb() - before_mb}


def _delays(session: Session) -> dict[str, float | str]:
    delays = []
    for line in _job(session, TIMES).logs(follow=True):
        try:
            delays.append(time.time() - float(line.text))
        except ValueError:
            continue  # a line of the service's own
    # The first lines may be older than the first look at the log.
    cuts = statistics.quantiles(delays[50:], n=100)
    return {DELAY.name: cuts[49], DELAY_P99.name: cuts[98]}


def _fifty(session: Session) -> dict[str, float | str]:
    jobs = [
        _job(session, "import time\nfor _ in range(600): print('x', flush=True); time.sleep(1)")
        for _ in range(_JOBS)
    ]
    counts = [0] * _JOBS

    def follow(number: int) -> None:
        for _ in jobs[number].logs(follow=True):
            counts[number] += 1

    others = threading.active_count()
    followers = [threading.Thread(target=follow, args=(number,), daemon=True) for number in range(_JOBS)]
    for follower in followers:
        follower.start()
    while not all(counts):
        time.sleep(0.1)
    cpu, begun = time.process_time(), time.perf_counter()
    time.sleep(_WATCHED_S)
    share = (time.process_time() - cpu) / (time.perf_counter() - begun)
    threads = threading.active_count() - others - _JOBS
    for job in jobs:
        job.stop()
    for follower in followers:
        follower.join(60)
    return {THREADS.name: threads, CPU.name: share}


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
