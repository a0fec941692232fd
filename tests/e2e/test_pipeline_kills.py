"""A pipeline of 20 steps is killed again and again: jobs run once, and the cache has the whole run afterwards."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from pai_sdk import Session
from pai_sdk._client.pipeline.execution import RUN_LABEL, STEP_LABEL
from tests.benchmarks.harness import ROOT
from tests.e2e.pipeline_program import described
from tests.support.waiting import PATIENCE_S, quickest, until

KILLS = 20
MOST_S = 0.6
CALLS = {"a2-call", "a5-call", "b2-call", "b5-call", "end", "after"}


def started(folder: Path, service_dir: Path, salt: str, *options: str) -> subprocess.Popen[str]:
    """The program, as soon as it has described its pipeline."""
    command = [sys.executable, "-m", "tests.e2e.pipeline_program", str(folder), str(service_dir), salt, *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert process.stdout is not None
    assert process.stdout.readline() == "begins\n"
    return process


def ended(process: subprocess.Popen[str]) -> dict[str, Any]:
    """What the program says at its end."""
    out, _ = process.communicate(timeout=2 * PATIENCE_S)
    found: dict[str, Any] = json.loads(out.splitlines()[-1])
    return found


def ran(folder: Path, salt: str) -> Counter[str]:
    """How often each step ran."""
    return Counter((folder / f"{salt}.ran").read_text(encoding="utf-8").split())


@pytest.mark.timeout(900)
def test_a_pipeline_that_is_killed_twenty_times_runs_each_job_once(
    service_dir: Path, session: Session, tmp_path: Path
) -> None:
    chance = random.Random(7)
    killed, runs = 0, 0
    while killed < KILLS:
        salt = f"salt{runs}"
        runs += 1
        done: dict[str, Any] = {}
        while not done:
            process = started(tmp_path, service_dir, salt)
            try:
                process.wait(chance.uniform(0, MOST_S) if killed < KILLS else 2 * PATIENCE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
                killed += 1
            else:
                assert process.returncode == 0
                done = ended(process)
        counts = ran(tmp_path, salt)
        steps = done["steps"]
        assert len(steps) == 20
        assert {name: count for name, count in counts.items() if count > 1 and name not in CALLS} == {}
        assert set(counts) == set(steps), "each step ran"
        job_ids = {job_id for _, job_id, _ in steps.values() if job_id}
        there = list(session.list_jobs())
        # If the run had ended just before the kill, another one has taken all of its jobs from the cache.
        (run,) = {job.labels[RUN_LABEL] for job in there if job.id in job_ids}
        jobs = [job for job in there if job.labels.get(RUN_LABEL) == run]
        assert sorted(job.labels[STEP_LABEL] for job in jobs) == sorted(set(steps) - CALLS)
        assert {job.id for job in jobs} == job_ids

    def again() -> float:
        found = ended(started(tmp_path, service_dir, salt, "--new"))
        assert {status for status, _, _ in found["steps"].values()} == {"cached"}
        return float(found["took_s"])

    assert quickest(again, enough_s=1.0) < 1
    changed = ended(started(tmp_path, service_dir, salt, "--new", "--changed", "b3"))
    executed = {name for name, (status, _, _) in changed["steps"].items() if status == "succeeded"}
    assert executed == {"b3", "b4", "b5", "b5-call", "last", "end", "after"}
    assert changed["steps"]["b3"][2] == "the request has changed"
    assert changed["steps"]["b4"][2] == "input in has changed"


@pytest.mark.timeout(300)
def test_of_two_processes_that_resume_a_run_one_works(service_dir: Path, session: Session, tmp_path: Path) -> None:
    first = started(tmp_path, service_dir, "two")
    until(lambda: (tmp_path / "two.ran").exists(), "the first job")
    first.kill()
    first.communicate()
    begun = [started(tmp_path, service_dir, "two") for _ in range(2)]
    found = [ended(process) for process in begun]
    (refused,) = [one for one in found if "in use" in one]
    (worked,) = [one for one in found if "steps" in one]
    assert refused["holder"]["pid"] == worked["pid"]
    assert f"the process {worked['pid']} of " in refused["in use"]
    assert {status for status, _, _ in worked["steps"].values()} == {"succeeded"}
    assert {name for name, count in ran(tmp_path, "two").items() if count > 1} <= CALLS


@pytest.mark.timeout(300)
def test_a_process_that_is_only_stopped_keeps_its_run(service_dir: Path, session: Session, tmp_path: Path) -> None:
    """A process that is suspended holds the lock on a local folder; when it goes on, it ends its run."""
    first = started(tmp_path, service_dir, "held")
    until(lambda: (tmp_path / "held.ran").exists(), "the first job")
    os.kill(first.pid, signal.SIGSTOP)
    try:
        assert ended(started(tmp_path, service_dir, "held"))["holder"]["pid"] == first.pid
    finally:
        os.kill(first.pid, signal.SIGCONT)
    assert len(described(tmp_path, session, "held").runs()) == 1
    assert {status for status, _, _ in ended(first)["steps"].values()} == {"succeeded"}
