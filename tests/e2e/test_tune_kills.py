"""The tuner is killed again and again: each trial is there once, with one job, and the best one is the same."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from pai_sdk import Estimator, Session
from pai_sdk._client.tune import Trial, TrialList, Tuner
from pai_sdk._client.tune.template import TRIAL_LABEL
from tests.e2e.tune_program import POPULATION, POPULATION_STEPS
from tests.support.waiting import PATIENCE_S, until

KILLS = 5


def begin(kind: str, study: Path, *arguments: str, trials: int = 40) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.e2e.tune_program", kind, str(study), *arguments]
    return subprocess.Popen(command, env={**os.environ, "TEST_TRIALS": str(trials)}, stdout=subprocess.DEVNULL)


def run(kind: str, study: Path, *arguments: str, trials: int = 40) -> None:
    assert begin(kind, study, *arguments, trials=trials).wait(600) == 0


def kill_after(program: subprocess.Popen[bytes], study: Path, ended: int, delay_s: float) -> None:
    """Kill the tuner when a number of trials have ended, and a moment has passed."""

    def has_come() -> bool:
        journal = study / "journal.jsonl"
        return program.poll() is not None or (
            journal.exists() and journal.read_bytes().count(b'"datetime_complete":') >= ended
        )

    until(has_come, f"the end of {ended} trials", within_s=4 * PATIENCE_S)
    time.sleep(delay_s)
    assert program.poll() is None, "the search ended before it was killed"
    program.send_signal(signal.SIGKILL)
    program.wait()


def outcome(trial: Trial) -> tuple[object, ...]:
    return trial.number, trial.state, trial.params, trial.values, trial.steps


@pytest.mark.slow
def test_a_search_over_a_function_is_as_if_it_had_not_been_killed(tmp_path: Path) -> None:
    undisturbed, killed = tmp_path / "undisturbed", tmp_path / "killed"
    run("functions", undisturbed)
    chance = random.Random(1)
    for number in range(1, KILLS + 1):
        kill_after(begin("functions", killed), killed, number * 6, chance.uniform(0, 0.05))
    run("functions", killed)
    expected, found = Tuner.load(undisturbed), Tuner.load(killed)
    assert [outcome(trial) for trial in found.trials] == [outcome(trial) for trial in expected.trials]
    assert len(found.trials) == 40
    assert {trial.state for trial in found.trials} == {"complete", "pruned"}
    assert outcome(found.best) == outcome(expected.best)


def test_of_two_processes_one_works_and_the_other_says_who_does(tmp_path: Path) -> None:
    study = tmp_path / "study"
    first = begin("functions", study, trials=400)
    try:
        until(lambda: (study / "driver.json").exists(), "the claim of the first process")
        second = subprocess.run(
            [sys.executable, "-m", "tests.e2e.tune_program", "functions", str(study)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert first.poll() is None
        assert second.returncode == 1
        assert f"is in use by the process {first.pid} of " in second.stderr
    finally:
        first.kill()
        first.wait()


@pytest.mark.slow
def test_a_function_is_searched_as_jobs(service_dir: Path, tmp_path: Path) -> None:
    def train(config: dict[str, float]) -> float:
        return config["x"] ** 2

    estimator = Estimator.from_function(
        train, image_uri="python", instance_type="ecs.c6.large", session=Session.embedded(service_dir)
    )
    tuner = Tuner(estimator, {"x": [1.0, 2.0]}, sampler="grid", study=tmp_path / "function")
    assert tuner.run(show=False).best == tuner.best
    assert tuner.best.params == {"x": 1.0}
    assert tuner.best.job.result() == 1.0


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_search_over_jobs_goes_on_with_the_jobs_that_run(service_dir: Path, tmp_path: Path) -> None:
    undisturbed, killed = tmp_path / "undisturbed", tmp_path / "killed"
    run("jobs", undisturbed, str(service_dir))
    chance = random.Random(2)
    for number in range(1, KILLS + 1):
        program = begin("jobs", killed, str(service_dir))
        kill_after(program, killed, number * 6, chance.uniform(0, 1.0))
    run("jobs", killed, str(service_dir))
    session = Session.embedded(service_dir)
    expected, found = Tuner.load(undisturbed, session=session), Tuner.load(killed, session=session)
    trials = found.trials
    assert [trial.number for trial in trials] == list(range(40))
    assert {trial.state for trial in trials} == {"complete", "pruned"}, trials
    assert [trial.params for trial in trials] == [trial.params for trial in expected.trials]
    assert (found.best.params, found.best.values) == (expected.best.params, expected.best.values)
    check_jobs(session, trials)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_population_of_jobs_is_as_if_the_tuner_had_not_been_killed(service_dir: Path, tmp_path: Path) -> None:
    undisturbed, killed = tmp_path / "whole-population", tmp_path / "killed-population"
    run("population", undisturbed, str(service_dir))
    for ended in (2, POPULATION.size + 1):
        kill_after(begin("population", killed, str(service_dir)), killed, ended, 0.1)
    run("population", killed, str(service_dir))
    session = Session.embedded(service_dir)
    expected, found = (Tuner.load(study, session=session).trials for study in (undisturbed, killed))
    assert [(outcome(one), one.parent) for one in found] == [(outcome(one), one.parent) for one in expected]
    assert len(found) == len([*session.list_jobs(name="killed-population-")]) == POPULATION.trials
    ends: dict[int | None, float] = {None: 8.0}
    for trial in found:
        weight, lr = ends[trial.parent], trial.params["lr"]
        losses = [weight := weight * (1 - lr) ** 2 + 0.5 * lr**2 for _ in range(POPULATION_STEPS)]
        ends[trial.number] = weight
        first = POPULATION_STEPS * POPULATION.generation_of(trial.number)
        points = [(point.step, point.value) for point in trial.job.metrics("loss")]
        assert points == [(first + at, pytest.approx(loss)) for at, loss in enumerate(losses, 1)]
        assert trial.value == pytest.approx(weight)


def check_jobs(session: Session, trials: TrialList) -> None:
    """Each trial has one job, and none runs on."""
    jobs = [*session.list_jobs(name="killed-")]
    numbers = Counter(job.labels[TRIAL_LABEL] for job in jobs)
    assert numbers == {str(number): 1 for number in range(40)}
    assert {trial.job_id for trial in trials} == {job.id for job in jobs}
    until(lambda: all(job.status.is_terminal for job in jobs), "the end of the pruned jobs")
    states = {job.id: str(job.status) for job in jobs}
    assert {states[trial.job_id] for trial in trials if trial.state == "complete"} == {"Succeed"}
