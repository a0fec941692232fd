"""Pipelines: 1,000 steps of a fan-out, overhead a step, a second run from the cache, beside Prefect and Metaflow.

Each part runs in a process of its own: `python -m tests.benchmarks.bench_pipeline PART FOLDER` measures one.
Steps do nothing, so all time is overhead. Prefect and Metaflow are measured where they are installed.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

from tests.benchmarks.harness import ROOT, Row

REPETITIONS = 3
STEPS = 1_000
METAFLOW_STEPS = 100  # a process for each step: about a second

RUN = Row("1,000 calls as steps of a fan-out: overhead a step", unit="ms", at_most=10)
CACHED = Row("the same, all from the cache: a step", unit="ms")
LOAD = Row("the state of that run, read by another process", unit="s", at_most=1)
PREFECT = Row("Prefect, 1,000 tasks of a flow mapped over threads, its own server: a task", unit="ms")
METAFLOW = Row("Metaflow, 100 steps of a foreach: a step", unit="ms")
ROWS = (RUN, CACHED, LOAD, PREFECT, METAFLOW)


def measure(cache: Path) -> dict[str, float | str]:
    """One repetition."""
    del cache
    found: dict[str, float | str] = {}
    for part, row in (("ours", None), ("prefect", PREFECT), ("metaflow", METAFLOW)):
        if row is not None and importlib.util.find_spec(part) is None:
            found[row.name] = f"{part} is not installed"
            continue
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-m", "tests.benchmarks.bench_pipeline", part, folder]
            done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False, cwd=ROOT)
        if done.returncode and row is not None:
            found[row.name] = f"{part} failed: {(done.stderr.splitlines() or ['no reason'])[-1]}"
        else:
            done.check_returncode()
            found.update(json.loads(done.stdout.splitlines()[-1]))
    return found


def ours(folder: Path) -> dict[str, float]:
    """A step that gives the values, one for each of them, and one that takes all."""
    from pai_sdk.pipeline import Pipeline, PipelineRun

    def described() -> Pipeline:
        pipeline = Pipeline("fan", store=folder, parallel=8)
        values = pipeline.step(lambda: [*range(STEPS)], name="values")
        each = pipeline.each(values.result, lambda x: x + 1, name="each", value="x")
        pipeline.step(lambda all_: sum(all_), name="sum", arguments={"all_": each.result})
        return pipeline

    begin = time.perf_counter()
    run = described().run(show=False)
    took = time.perf_counter() - begin
    assert run["sum"].result == sum(range(1, STEPS + 1))
    begin = time.perf_counter()
    again = described().run(show=False)
    cached = time.perf_counter() - begin
    assert again["sum"].status == "cached"
    begin = time.perf_counter()
    assert len(PipelineRun.load(run.uri).steps) == STEPS + 3
    load = time.perf_counter() - begin
    return {RUN.name: took / STEPS * 1e3, CACHED.name: cached / STEPS * 1e3, LOAD.name: load}


def prefect(folder: Path) -> dict[str, float]:
    """Tasks in threads of one process, with the state in the server that Prefect starts for them."""
    os.environ |= {
        "PREFECT_HOME": str(folder),
        "PREFECT_LOGGING_LEVEL": "ERROR",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "DO_NOT_TRACK": "1",
    }
    from prefect import flow, task
    from prefect.task_runners import ThreadPoolTaskRunner

    @task
    def add(x: int) -> int:
        return x + 1

    @flow(task_runner=ThreadPoolTaskRunner(max_workers=8))
    def fan(count: int) -> int:
        return sum(future.result() for future in add.map(range(count)))

    fan(1)  # starts the server
    begin = time.perf_counter()
    assert fan(STEPS) == sum(range(1, STEPS + 1))
    return {PREFECT.name: (time.perf_counter() - begin) / STEPS * 1e3}


FLOW = """
from metaflow import FlowSpec, step

class Fan(FlowSpec):
    @step
    def start(self):
        self.values = list(range({count}))
        self.next(self.each, foreach="values")

    @step
    def each(self):
        self.x = self.input + 1
        self.next(self.join)

    @step
    def join(self, inputs):
        self.total = sum(one.x for one in inputs)
        self.next(self.end)

    @step
    def end(self):
        pass

if __name__ == "__main__":
    Fan()
"""


def metaflow(folder: Path) -> dict[str, float]:
    """Metaflow starts a process for each step."""
    program = folder / "fan.py"
    program.write_text(textwrap.dedent(FLOW).format(count=METAFLOW_STEPS))
    environment = {**os.environ, "METAFLOW_USER": "benchmark", "METAFLOW_DATASTORE_SYSROOT_LOCAL": str(folder)}
    command = [sys.executable, str(program), "run", "--max-workers", "8", "--max-num-splits", "1000"]
    begin = time.perf_counter()
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True, timeout=250)
    return {METAFLOW.name: (time.perf_counter() - begin) / METAFLOW_STEPS * 1e3}


def main() -> None:
    """Measure one part."""
    parts: dict[str, Callable[[Path], dict[str, float]]] = {"ours": ours, "prefect": prefect, "metaflow": metaflow}
    sys.stdout.write(json.dumps(parts[sys.argv[1]](Path(sys.argv[2]))) + "\n")


if __name__ == "__main__":
    main()
