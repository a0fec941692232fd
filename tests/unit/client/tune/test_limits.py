"""Searches that end early: Ctrl-C, time limits, and functions that cannot be a training."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from pai_sdk import PopulationBased, RunManager, report
from pai_sdk._client.tune import Tuner, Uniform
from pai_sdk.errors import InvalidInputError, TuningFailed
from tests.support.waiting import PATIENCE_S, long_enough, until

SPACE = {"x": Uniform(0, 1)}


def calls() -> list[threading.Thread]:
    """The threads in which functions are called."""
    return [thread for thread in threading.enumerate() if thread.name == "pai-run_trial"]


_HANGING = """
import sys, threading
from pathlib import Path
from pai_sdk import Tuner, Uniform

def train(config):
    Path(sys.argv[1], f"began-{config['x']}").touch()
    if len(sys.argv) == 2:
        threading.Event().wait()
    return config["x"]

tuner = Tuner(train, {"x": Uniform(0, 1)}, trials=4, parallel=2, seed=1, study=Path(sys.argv[1], "study"))
print(len(tuner.run(show=False)))
"""


@pytest.mark.parametrize("presses", [1, 2])
def test_one_ctrl_c_ends_a_search_whose_functions_hang(tmp_path: Path, presses: int) -> None:
    for number in range(5):
        folder = tmp_path / str(number)
        folder.mkdir()
        command = [sys.executable, "-c", _HANGING, str(folder)]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        try:
            until(lambda: len([*folder.glob("began-*")]) == 2)  # noqa: B023 - called in this turn only
            began = time.monotonic()
            process.send_signal(signal.SIGINT)
            for _ in range(presses - 1):
                time.sleep(0.1)
                process.send_signal(signal.SIGINT)
            pressed_s = time.monotonic() - began
            _, text = process.communicate(timeout=PATIENCE_S)
            took_s = time.monotonic() - began
        finally:
            process.kill()
        if pressed_s < 0.5:
            break  # a press that comes a second later repeats no other
    assert process.returncode == -signal.SIGINT
    assert took_s < PATIENCE_S / 2
    assert f"study='{(folder / 'study').as_uri()}/'" in text.splitlines()[-1]
    assert text.count("Traceback") == 1
    assert "threading.py" not in text
    again = subprocess.run([*command, "again"], capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    assert again.stdout == "4\n"


@pytest.mark.parametrize("parallel", [1, 2])
@pytest.mark.parametrize("sampler", ["random", PopulationBased(size=2, generations=2)])
def test_a_function_that_takes_too_long_is_a_failed_trial(tmp_path: Path, parallel: int, sampler: Any) -> None:
    released = threading.Event()

    def search(limit_s: float) -> tuple[float, list[Any]]:
        late = threading.Event()

        def train(config: dict[str, Any]) -> float:
            if not late.is_set():
                late.set()
                released.wait()
            return float(config["x"])

        tuner = Tuner(
            train,
            SPACE,
            trials=None if isinstance(sampler, PopulationBased) else 4,
            max_failures=4,
            parallel=parallel,
            sampler=sampler,
            seed=1,
            study=tmp_path / f"{limit_s}",
            trial_timeout=limit_s,
        )
        return limit_s, tuner.run(show=False)

    limit_s, found = long_enough(
        search, lambda found: [trial.state for trial in found[1]].count("failed") == 1, first_s=0.5
    )
    assert sorted(trial.state for trial in found) == ["complete"] * 3 + ["failed"]
    reasons = [trial.reason for trial in found if trial.state == "failed"]
    assert reasons == [f"it did not finish within {limit_s:g} s"]
    journal = tmp_path / f"{limit_s}" / "journal.jsonl"
    before = journal.read_bytes()
    released.set()
    until(lambda: not calls())
    assert journal.read_bytes() == before
    released.clear()
    hanging = Tuner(lambda config: released.wait(), SPACE, trials=3, max_failures=1, parallel=2, trial_timeout=0.1)
    with pytest.raises(TuningFailed) as caught:
        hanging.run(show=False)
    assert len(caught.value.failures) == 2
    released.set()


def test_a_function_that_is_given_up_writes_no_further_report(tmp_path: Path) -> None:
    reported, released, stopped = threading.Event(), threading.Event(), threading.Event()

    def train(config: dict[str, Any]) -> None:
        report({"loss": 1.0})
        reported.set()
        released.wait()
        try:
            report({"loss": 2.0})
        finally:
            stopped.set()

    def search(limit_s: float) -> Path:
        folder = tmp_path / f"{limit_s}"
        with pytest.raises(TuningFailed):
            Tuner(train, SPACE, trials=1, max_failures=0, study=folder, trial_timeout=limit_s).run(show=False)
        return folder

    folder = long_enough(search, lambda _: reported.is_set(), first_s=0.3)
    released.set()
    assert stopped.wait(PATIENCE_S)
    until(lambda: not calls())
    with RunManager(folder) as manager:
        manager.refresh()
        (run,) = manager.runs().runs
    assert run.tags["loss"].last.value == 1.0


def test_a_search_ends_at_its_time_and_goes_on_later(tmp_path: Path) -> None:
    released = threading.Event()

    def train(config: dict[str, Any]) -> float:
        released.wait()
        return float(config["x"])

    def tuner(folder: Path, timeout: float) -> Tuner:
        return Tuner(train, SPACE, trials=3, parallel=2, seed=1, study=folder, timeout=timeout)

    def search(limit_s: float) -> tuple[Path, Any]:
        folder = tmp_path / f"{limit_s}"
        began = time.monotonic()
        trials = tuner(folder, limit_s).run(show=False)
        assert time.monotonic() - began < limit_s + PATIENCE_S / 2
        return folder, trials

    folder, trials = long_enough(search, lambda found: len(found[1]) == 2, first_s=0.2)
    assert [trial.state for trial in trials] == ["running", "running"]
    assert trials.best is None
    journal = (folder / "journal.jsonl").read_bytes()
    released.set()
    until(lambda: not calls())
    assert (folder / "journal.jsonl").read_bytes() == journal  # another process may have the study now
    again = tuner(folder, 600).run(show=False)
    assert [trial.state for trial in again] == ["complete"] * 3
    assert [trial.params for trial in again][:2] == [trial.params for trial in trials]


@pytest.mark.parametrize("value", [0, -1, float("nan"), "1", True])
@pytest.mark.parametrize("name", ["timeout", "trial_timeout"])
def test_a_time_limit_is_a_number_of_seconds(name: str, value: Any) -> None:
    with pytest.raises(InvalidInputError) as caught:
        Tuner(lambda config: 1.0, SPACE, **{name: value})
    assert [problem.where for problem in caught.value.problems] == [name]


@pytest.mark.parametrize("parallel", [1, 3])
def test_an_objective_of_optuna_is_refused_at_its_first_call(tmp_path: Path, parallel: int) -> None:
    calls: list[int] = []

    def objective(trial: Any) -> float:
        calls.append(1)
        return float(trial.suggest_float("x", 0, 1))

    with pytest.raises(InvalidInputError) as caught:
        Tuner(objective, SPACE, trials=30, max_failures=30, parallel=parallel, study=tmp_path).run(show=False)
    (problem,) = caught.value.problems
    assert problem.where == "estimator"
    assert "suggest_float" in problem.what
    assert len(calls) <= parallel
    assert len(Tuner(lambda config: 1.0, SPACE, trials=4, study=tmp_path).run(show=False)) == 4


@pytest.mark.parametrize("value", ["path", "0.5", None, [1.0]])
@pytest.mark.parametrize("reports", [True, False])
def test_a_metric_that_is_no_number_is_named(value: Any, reports: bool) -> None:
    def train(config: dict[str, Any]) -> Any:
        metrics = {"loss": 0.1, "model": value}
        return report(metrics) if reports else metrics

    with pytest.raises(TuningFailed) as caught:
        Tuner(train, SPACE, trials=1, max_failures=0).run(show=False)
    assert "'model': expected a number" in caught.value.failures[0]
