"""The embedded service: its start, a submission, the first log line, the end of a job, and how many jobs end."""

from __future__ import annotations

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pai_sdk import Processor, Session
from pai_sdk._client.job.training_job import TrainingJob
from tests.benchmarks.harness import Row, is_quick

REPETITIONS = 5

COLD = Row("Session.embedded(), service not running", at_most=0.9)
ACCEPTED = Row("start of a script to its accepted job", at_most=0.3)
FIRST_LINE = Row("run() to the first log line", at_most=0.15)
WAIT = Row("job's end to wait() returning", at_most=0.3)
WAIT_SILENT = Row("job's end to wait(show_logs=False) returning", at_most=0.3)
ENDED = Row("jobs of the command `true` that end", "/min", at_least=600)
ROWS = (COLD, ACCEPTED, FIRST_LINE, WAIT, WAIT_SILENT, ENDED)

JOBS = 20 if is_quick() else 100
CLIENTS = 8

# The job's last act is to write down the time, and its process is a shell: nothing of it ends later than that.
SCRIPT = "import time\nprint('started', flush=True)\ntime.sleep(1)\n"
COMMAND = "python3 train.py && date +%s.%N"
SUBMISSION = """
from pai_sdk import Processor, Session
Processor("python:3.11", "true", instance_type="ecs.c6.large", session=Session.embedded()).run(wait=False)
print("accepted", flush=True)
"""


def measure(cache: Path) -> dict[str, float | str]:
    Path("src").mkdir()
    Path("src", "train.py").write_text(SCRIPT)
    started = time.perf_counter()
    session = Session.embedded()
    cold = time.perf_counter() - started
    processor = Processor("python:3.11", COMMAND, source_dir="src", instance_type="ecs.c6.large", session=session)
    processor.run(show_logs=False)  # the first job of a service pays for what later ones find ready
    return {
        COLD.name: cold,
        FIRST_LINE.name: _to_first_line(processor),
        WAIT.name: _after_the_end(processor, show_logs=True),
        WAIT_SILENT.name: _after_the_end(processor, show_logs=False),
        ACCEPTED.name: _to_accepted(),
        ENDED.name: _ended_a_minute(session),
    }


def _to_accepted() -> float:
    started = time.perf_counter()
    with subprocess.Popen([sys.executable, "-c", SUBMISSION], stdout=subprocess.PIPE, text=True) as script:
        assert script.stdout is not None
        next(line for line in script.stdout if line == "accepted\n")
        return time.perf_counter() - started


def _ended_a_minute(session: Session) -> float:
    processor = Processor("python:3.11", "true", instance_type="ecs.c6.large", session=session)
    started = time.perf_counter()
    with ThreadPoolExecutor(CLIENTS) as clients:
        list(clients.map(lambda _: processor.run(show_logs=False), range(JOBS)))
    return 60 * JOBS / (time.perf_counter() - started)


def _to_first_line(processor: Processor) -> float:
    started = time.perf_counter()
    job = processor.run(wait=False)
    next(line for line in job.logs(follow=True) if line.text == "started")
    took = time.perf_counter() - started
    job.wait(show_logs=False)
    return took


def _after_the_end(processor: Processor, *, show_logs: bool) -> float:
    job = processor.run(wait=False)
    job.wait(show_logs=show_logs)
    returned = time.time()
    return returned - _end_of(job)


def _end_of(job: TrainingJob) -> float:
    *_, last = (line.text for line in job.logs())
    return float(last)
