"""Local jobs in Docker beside `docker run` of the same image: what this SDK adds.

Takes the engine that the environment names (DOCKER_HOST, or the usual sockets) and the image of the tests. Where
there is none, it starts the private engine of the tests (as root).
"""

from __future__ import annotations

import logging
import os
import resource
import time
from pathlib import Path
from typing import TYPE_CHECKING

from pai_sdk._client.backend.base import Plan
from pai_sdk._client.backend.local import LocalBackend
from pai_sdk._client.job.training_job import TrainingJob
from pai_sdk._client.submission import submit
from pai_sdk._host.execution.docker.engine import Engine, find_engine
from pai_sdk._wire.pai.request import TrainingJobRequest
from pai_sdk.errors import EngineNotFoundError
from tests.benchmarks.harness import Row
from tests.docker import engine as private
from tests.docker.engine import BASE_IMAGE

if TYPE_CHECKING:
    from collections.abc import Callable

LINES = 1_000_000

ROWS = [
    Row("docker run, to the first line"),
    Row("a job, from submit to the first line"),
    Row("what the SDK adds to that", at_most=0.3),
    Row("from the container's last word to the return of wait()", at_most=0.5),
    Row("1,000,000 lines through the follower", at_most=30),
    Row("memory that they take", "MiB", at_most=100),
]
REPETITIONS = 5


def measure(cache: Path) -> dict[str, float | str]:
    try:
        find_engine().close()
    except EngineNotFoundError:
        if reason := private.why_not():
            return _without(reason)
        own = private.Engine(Path(f"/tmp/pai-docker-{os.getpid()}"))  # a socket needs a short name
        own.up()
        try:
            own.load_base()
            os.environ["DOCKER_HOST"] = own.socket
            return _measure()
        finally:
            own.down()
    return _measure()


def _measure() -> dict[str, float | str]:
    engine = find_engine()
    try:
        if not engine.client.images.list(BASE_IMAGE):
            return _without(f"the engine has no image {BASE_IMAGE}")
        _bare(engine)  # the first container of an engine takes longer
        bare_s = _bare(engine)
    finally:
        engine.close()
    logging.getLogger("pai_sdk").setLevel(logging.ERROR)
    backend = LocalBackend(Path("local").absolute())
    try:
        _submitted(backend, "true").wait(show_logs=False)  # what is loaded once is not what is measured
        first_s = _first_line(backend)
        return {
            ROWS[0].name: bare_s,
            ROWS[1].name: first_s,
            ROWS[2].name: first_s - bare_s,
            ROWS[3].name: _end(backend),
            **_lines(backend),
        }
    finally:
        backend.prune()
        backend.close()


def _without(reason: str) -> dict[str, float | str]:
    return {row.name: reason for row in ROWS}


def _timed(function: Callable[[], object]) -> float:
    begun = time.perf_counter()
    function()
    return time.perf_counter() - begun


def _bare(engine: Engine) -> float:
    """Create, start, and read until the first line."""
    containers = engine.client.containers

    def run() -> None:
        container = containers.create(BASE_IMAGE, ["sh", "-c", "echo up; sleep 60"])
        made.append(container)
        container.start()
        next(iter(container.logs(stream=True, follow=True)))

    made: list = []
    try:
        return _timed(run)
    finally:
        for container in made:
            container.remove(force=True)


def _submitted(backend: LocalBackend, command: str) -> TrainingJob:
    wire = {
        "TrainingJobName": "bench",
        "ComputeResource": {"EcsSpec": "local", "EcsCount": 1},
        "AlgorithmSpec": {"Image": BASE_IMAGE, "Command": ["sh", "-c", command]},
    }
    return TrainingJob(submit(Plan(TrainingJobRequest.model_validate(wire)), backend, progress=False), backend)


def _first_line(backend: LocalBackend) -> float:
    jobs: list[TrainingJob] = []

    def run() -> None:
        jobs.append(_submitted(backend, "echo up; exec sleep 60"))
        next(iter(jobs[0].logs(follow=True)))

    try:
        return _timed(run)
    finally:
        jobs[0].stop()
        _ended(jobs[0])


def _ended(job: TrainingJob) -> None:
    while not job.status.is_terminal:
        time.sleep(0.05)


def _end(backend: LocalBackend) -> float:
    """The command's last act is to write down the time."""
    job = _submitted(backend, "sleep 1; date +%s.%N")
    job.wait(show_logs=False)
    returned = time.time()
    [line] = job.logs()
    return returned - float(line.text)


def _lines(backend: LocalBackend) -> dict[str, float | str]:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    job = _submitted(backend, f"seq {LINES}")
    seen = 0

    def follow() -> None:
        nonlocal seen
        for _ in job.logs(follow=True):
            seen += 1

    took_s = _timed(follow)
    job.wait(show_logs=False)
    if seen != LINES:
        raise RuntimeError(f"{seen} of {LINES} lines came through")
    grown_mib = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    return {ROWS[4].name: took_s, ROWS[5].name: grown_mib}
