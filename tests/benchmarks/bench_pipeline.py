"""Pipelines: 1,000 steps of a fan-out, overhead a step, a second run from the cache, beside Prefect and Metaflow.

Steps do nothing, so all time is overhead. Prefect and Metaflow have an environment and processes of their own.
"""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

from tests.benchmarks import peers
from tests.benchmarks.harness import Row
from tests.benchmarks.peers import Peer

REPETITIONS = 3
STEPS = 1_000
METAFLOW_STEPS = 100  # a process for each step: about a second

RUN = Row("1,000 calls as steps of a fan-out: overhead a step", unit="ms", at_most=10)
CACHED = Row("the same, all from the cache: a step", unit="ms")
LOAD = Row("the state of that run, read by another process", unit="s", at_most=1)
PREFECT = Row("Prefect, 1,000 tasks of a flow mapped over threads, its own server: a task", unit="ms")
METAFLOW = Row("Metaflow, 100 steps of a foreach: a step", unit="ms")
ROWS = (RUN, CACHED, LOAD, PREFECT, METAFLOW)


def prepare(cache: Path) -> None:
    """Install the others."""
    peers.PREFECT.install(cache)
    peers.METAFLOW.install(cache)


def measure(cache: Path) -> dict[str, float | str]:
    """One repetition."""
    others = {PREFECT.name: of_prefect, METAFLOW.name: of_metaflow}
    return {**ours(Path("ours")), **{name: others[name](cache) for name in others}}


def ours(folder: Path) -> dict[str, float]:
    """A step that gives the values, one for each of them, and one that takes all."""
    from pai_sdk._client.pipeline import Pipeline, PipelineRun

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


TASKS = """
import sys
import time
from prefect import flow, task
from prefect.task_runners import ThreadPoolTaskRunner

@task
def add(x):
    return x + 1

@flow(task_runner=ThreadPoolTaskRunner(max_workers=8))
def fan(count):
    return sum(future.result() for future in add.map(range(count)))

fan(1)  # starts the server
begin = time.perf_counter()
assert fan({count}) == sum(range(1, {count} + 1))
print("took", time.perf_counter() - begin)
"""


def of_prefect(cache: Path) -> float | str:
    """Tasks in threads of one process, with the state in the server that Prefect starts for them."""
    settings = {
        "PREFECT_HOME": str(Path("prefect").absolute()),
        "PREFECT_LOGGING_LEVEL": "CRITICAL",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "DO_NOT_TRACK": "1",
    }
    done = _run(peers.PREFECT, cache, TASKS.format(count=STEPS), [], settings)
    return done if isinstance(done, str) else float(done.stdout.split("took ")[1].split()[0]) / STEPS * 1e3


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


def of_metaflow(cache: Path) -> float | str:
    """Metaflow starts a process for each step."""
    settings = {"METAFLOW_USER": "benchmark", "METAFLOW_DATASTORE_SYSROOT_LOCAL": str(Path("metaflow").absolute())}
    options = ["run", "--max-workers", "8", "--max-num-splits", "1000"]
    begin = time.perf_counter()
    done = _run(peers.METAFLOW, cache, FLOW.format(count=METAFLOW_STEPS), options, settings)
    return done if isinstance(done, str) else (time.perf_counter() - begin) / METAFLOW_STEPS * 1e3


def _run(
    peer: Peer, cache: Path, program: str, options: list[str], settings: dict[str, str]
) -> subprocess.CompletedProcess[str] | str:
    """Run a program with the Python of a peer; the reason, if that fails."""
    python = peer.python(cache)
    if isinstance(python, str):
        return python
    file = Path(f"{peer.name}_fan.py")
    file.write_text(program, encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | settings
    command = [str(python), str(file), *options]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=250, check=False)
    if done.returncode:
        return f"{peer.name} failed: {(done.stderr.splitlines() or ['no reason'])[-1]}"
    return done
