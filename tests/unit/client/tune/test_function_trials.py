"""Searches over functions in this process, and what a tuner shows of a study."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from optuna.exceptions import ExperimentalWarning
from optuna.pruners import MedianPruner, PatientPruner
from optuna.samplers import RandomSampler, TPESampler

from pai_sdk import ReportSession, RunManager, report
from pai_sdk._client.tune import Choice, IntRange, Objective, Trial, TrialList, Tuner, Uniform
from pai_sdk._client.tune.samplers import SeededSampler
from pai_sdk._core.extras import install_command
from pai_sdk._data.run.events.writer import EventWriter
from pai_sdk._data.run.store.run_store import RunStore
from pai_sdk.errors import InvalidInputError, MissingExtraError, RunNotFoundError, TuningFailed
from tests.support.messages import refused

SPACE = {"x": Uniform(-1, 1), "kind": ["a", "b"]}


def parabola(config: dict[str, Any]) -> dict[str, float]:
    return {"loss": (config["x"] - 0.25) ** 2 + (config["kind"] == "b"), "size": config["x"]}


def curve(config: dict[str, Any]) -> Iterator[dict[str, float]]:
    for step in range(1, 17):
        yield {"loss": config["x"] + 1 / step}


def run(tuner: Tuner) -> TrialList:
    return tuner.run(show=False)


def outcomes(trials: TrialList) -> list[tuple[object, ...]]:
    return [(one.number, one.state, one.params, one.values) for one in trials]


@pytest.mark.parametrize("sampler", ["tpe", "random", "nsga2"])
@pytest.mark.parametrize("parallel", [1, 4])
def test_a_search_finds_a_good_point(sampler: str, parallel: int, tmp_path: Path) -> None:
    tuner = Tuner(parabola, SPACE, trials=40, parallel=parallel, sampler=sampler, seed=1, study=tmp_path)
    trials = run(tuner)
    assert [one.number for one in trials] == list(range(40))
    assert tuner.best.params["kind"] == "a"
    assert tuner.best.value is not None
    assert tuner.best.value < 0.05
    assert tuner.best == trials.best == tuner.trials[tuner.best.number]


@pytest.mark.parametrize("sampler", ["tpe", "random", "nsga2", "grid"])
def test_a_search_that_is_continued_is_the_same_as_one_in_one_go(sampler: str, tmp_path: Path) -> None:
    space = {"x": Uniform(-1, 1, step=0.125), "kind": ["a", "b"]}

    def search(folder: str, trials: int) -> TrialList:
        return run(
            Tuner(parabola, space, trials=trials, parallel=1, sampler=sampler, seed=5, study=tmp_path / folder)
        )

    whole = search("whole", 24)
    for trials in (3, 11, 12, 24):
        parts = search("parts", trials)
    assert outcomes(parts) == outcomes(whole)


def test_the_same_seed_gives_the_same_values_and_no_seed_others(tmp_path: Path) -> None:
    found = [
        [one.params for one in run(Tuner(parabola, SPACE, trials=4, sampler="random", seed=seed))]
        for seed in (1, 1, 2, None, None)
    ]
    assert found[0] == found[1]
    assert len({str(each) for each in found}) == 4


def test_a_grid_has_each_point_once(tmp_path: Path) -> None:
    tuner = Tuner(parabola, {"x": [0.1, 0.2, 0.3], "kind": ["a", "b"]}, sampler="grid", study=tmp_path)
    trials = run(tuner)
    assert len({(one.params["x"], one.params["kind"]) for one in trials}) == len(trials) == 6


@pytest.mark.parametrize("pruner", ["asha", "median"])
def test_functions_are_pruned_between_two_reports(pruner: str, tmp_path: Path) -> None:
    closed = []

    def train(config: dict[str, Any]) -> Iterator[dict[str, float]]:
        try:
            yield from curve(config)
        finally:
            closed.append(config["x"])

    trials = run(Tuner(train, SPACE, trials=30, pruner=pruner, seed=1, study=tmp_path, parallel=2))
    states = [one.state for one in trials]
    assert states.count("pruned") > 0
    assert states.count("complete") > 0
    assert len(closed) == 30
    best = min(one.params["x"] for one in trials)
    assert trials.best is not None
    assert trials.best.params["x"] == best


def test_every_kind_of_function_reports(tmp_path: Path) -> None:
    def by_return(config: dict[str, Any]) -> float:
        return 0.5

    def by_report(config: dict[str, Any]) -> None:
        report({"eval": {"loss": 0.75}}, step=7)
        report({"eval": {"loss": 0.5}}, step=8)

    def by_reporter(config: dict[str, Any], reporter: Any) -> None:
        reporter(loss=0.5)

    def with_checkpoint(config: dict[str, Any], checkpoint_dir: str | None = None) -> dict[str, float]:
        assert checkpoint_dir is None
        return {"loss": 0.5}

    for function in (by_return, by_report, by_reporter, with_checkpoint):
        metric = "eval/loss" if function is by_report else "loss"
        tuner = Tuner(function, {"x": [1]}, metric, trials=1)
        assert run(tuner).best.value == 0.5  # type: ignore[union-attr]
        if function in (by_report, by_reporter):  # else it is one number
            assert Path(tuner.best.run, "tensorboard").is_dir()
            assert tuner.best.model == tuner.best.run


def test_failures_are_counted_and_end_the_search_with_their_cause(tmp_path: Path) -> None:
    def fails(config: dict[str, Any]) -> float:
        if config["n"] % 3 == 0:
            raise ValueError(f"no {config['n']}")
        return 1.0

    trials = run(Tuner(fails, {"n": list(range(9))}, sampler="grid", study=tmp_path))
    assert [one.state for one in trials].count("failed") == 3
    assert {one.reason.partition(" (")[0] for one in trials if one.reason} == {
        f"ValueError: no {n}" for n in (0, 3, 6)
    }
    assert "test_function_trials.py:" in next(one.reason for one in trials if one.reason)
    with pytest.raises(TuningFailed, match="no ") as caught:
        run(Tuner(fails, {"n": list(range(9))}, sampler="grid", max_failures=1, parallel=1))
    assert len(caught.value.failures) == 2
    assert isinstance(caught.value.__context__, ValueError)
    with pytest.raises(TuningFailed, match="did not report 'accuracy'; it reported loss"):
        run(Tuner(lambda config: {"loss": 1.0}, {"n": [1]}, "accuracy"))


class WithoutText(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize("parallel", [1, 2])
@pytest.mark.parametrize(
    ("ends", "reason"),
    [
        (lambda config: sys.exit(0), "SystemExit: 0"),
        (lambda config: (_ for _ in ()).throw(WithoutText()), "WithoutText: its message raises RuntimeError"),
        (lambda config: None, "the function has returned None, and reported nothing"),
        (lambda config: "0.5", "the function has returned a string, and reported nothing"),
    ],
)
def test_each_way_in_which_a_function_fails_has_a_reason(ends: Any, reason: str, parallel: int) -> None:
    with pytest.raises(TuningFailed) as caught:
        run(Tuner(ends, {"n": [1, 2]}, sampler="grid", max_failures=0, parallel=parallel))
    assert all(reason in one for one in caught.value.failures.values())


def test_several_objectives_have_several_best_trials(tmp_path: Path) -> None:
    def train(config: dict[str, Any]) -> dict[str, float]:
        return {"loss": config["n"], "accuracy": config["n"] / 10 if config["n"] < 5 else 0.1}

    tuner = Tuner(train, {"n": IntRange(1, 8)}, ["loss", "accuracy"], sampler="grid", study=tmp_path)
    run(tuner)
    assert sorted(one.params["n"] for one in tuner.best_trials) == [1, 2, 3, 4]
    with refused(InvalidInputError, "best"):
        _ = tuner.best
    assert "accuracy" in repr(tuner.trials)


def test_a_search_begins_with_the_trials_of_another_study_or_with_runs(tmp_path: Path) -> None:
    first = Tuner(parabola, SPACE, trials=10, seed=1, study=tmp_path / "first")
    run(first)
    for source in (tmp_path / "first", str(tmp_path / "first"), first, first.trials, [first]):
        name = tmp_path / f"second-{type(source).__name__}"
        second = Tuner(parabola, SPACE, trials=5, seed=2, study=name, warm_start=source)
        trials = run(second)
        assert [one.is_earlier for one in trials] == [True] * 10 + [False] * 5
        assert trials.best is not None
        assert trials.best.value == min(first.best.value, min(one.value for one in trials[10:]))  # type: ignore[type-var]
        assert outcomes(run(second)) == outcomes(trials)  # once

    store = RunStore.create(tmp_path / "store")
    for number in range(4):
        with ReportSession(tmp_path / "store" / "runs" / f"run{number}") as session:
            session.report({"loss": number / 10}, 1)
    with EventWriter(tmp_path / "store" / "runs" / "good" / "tensorboard") as writer:
        writer.hparams({"x": 0.25, "kind": "a"}, ["loss"])
        writer.scalars({"loss": 0.125}, 1)
    found = run(Tuner(parabola, SPACE, trials=1, study=tmp_path / "runs", warm_start=store))
    assert (found[0].params, found[0].value) == ({"x": 0.25, "kind": "a"}, 0.125)
    shutil.rmtree(tmp_path / "store" / "runs" / "good")
    with refused(InvalidInputError, "warm_start"):  # they say nothing of hyperparameters
        run(Tuner(parabola, SPACE, study=tmp_path / "third", warm_start=store))


def test_a_study_is_opened_from_anywhere(tmp_path: Path) -> None:
    tuner = Tuner(parabola, SPACE, trials=5, seed=1, study=tmp_path / "a study")
    with pytest.raises(RunNotFoundError):
        _ = tuner.trials
    with refused(RunNotFoundError):
        Tuner.load(tmp_path / "none")
    run(tuner)
    loaded = Tuner.load(tuner.study)
    assert outcomes(loaded.trials) == outcomes(tuner.trials)
    with refused(InvalidInputError, "estimator"):
        run(Tuner.load(tuner.study, trials=6))
    assert len(run(Tuner.load(tuner.study, parabola, trials=8))) == 8
    named = Tuner(parabola, SPACE, trials=2, study="by-name")
    run(named)
    assert named.study == (Path.home() / ".pai" / "studies" / "by-name").as_uri() + "/"
    assert len(Tuner.load("by-name").trials) == 2


def test_a_study_keeps_its_space_and_its_objectives(tmp_path: Path) -> None:
    run(Tuner(parabola, SPACE, trials=2, seed=1, study=tmp_path))
    with pytest.raises(InvalidInputError) as caught:
        run(Tuner(parabola, {"x": Uniform(0, 2)}, Objective("size", "maximize"), seed=2, study=tmp_path))
    assert {problem.where for problem in caught.value.problems} == {"search", "objective", "seed"}


def test_all_that_is_wrong_with_a_tuner_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError) as caught:
        Tuner(
            7,  # type: ignore[arg-type]
            {"x": 1},
            "throughput",
            trials=0,
            parallel=-1,
            sampler="tpee",
            pruner=8,
            seed="1",  # type: ignore[arg-type]
            max_failures=-1,
            study="",
        )
    places = {problem.where for problem in caught.value.problems}
    expected = {"search['x']", "direction", "trials", "parallel", "max_failures", "seed", "estimator", "study"}
    assert places == expected | {"sampler", "pruner"}
    with refused(InvalidInputError, "pruner"):
        Tuner(parabola, SPACE, ["loss", "accuracy"], pruner="asha")
    with refused(InvalidInputError, "sampler: search['x']"):
        Tuner(parabola, {"x": Uniform(0, 1)}, sampler="grid")
    with refused(TypeError, "trails"):
        Tuner(parabola, SPACE, trails=3)  # type: ignore[call-arg]


def test_trials_are_a_table_a_frame_and_a_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tuner = Tuner(curve, SPACE, trials=8, pruner="asha", seed=1, study=tmp_path)
    trials = run(tuner)
    lines = repr(trials).splitlines()
    assert lines[0].split() == ["trial", "state", "loss", "x", "kind", "time", "reason"]
    assert len(lines) == 9
    assert "<b>" in trials._repr_html_()
    frame = trials.to_pandas()
    assert list(frame["trial"]) == list(range(8))
    assert "<svg" in tuner.plot("history", interactive=False).svg
    assert "<svg" in tuner.plot("curves", interactive=False).svg
    with refused(InvalidInputError, "kind"):
        tuner.plot("histry")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "<svg" in tuner.plot().svg
    with refused(MissingExtraError):
        tuner.plot("importance")
    assert repr(TrialList([])) == "[]"
    many = TrialList([Trial(number, "complete", {"x": number}) for number in range(1000)])
    assert "960 more" in repr(many)


def test_without_optuna_the_error_says_what_to_install() -> None:
    program = """
import sys
sys.modules["optuna"] = None
from pai_sdk.errors import MissingExtraError
from pai_sdk._client.tune import Tuner, Uniform
try:
    Tuner(lambda config: 1.0, {"x": Uniform(0, 1)})
except MissingExtraError as error:
    print(error)
"""
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert install_command("tune") in said


def test_calls_run_at_once_but_not_more_than_asked_for(tmp_path: Path) -> None:
    lock, running, most = threading.Lock(), set[int](), [0]
    together = threading.Barrier(3, timeout=30)

    def train(config: dict[str, Any]) -> float:
        with lock:
            running.add(threading.get_ident())
            most[0] = max(most[0], len(running))
        together.wait()
        with lock:
            running.discard(threading.get_ident())
        return config["x"]

    run(Tuner(train, SPACE, trials=9, parallel=3, study=tmp_path))
    assert most[0] == 3


def test_a_sampler_draws_by_the_number_of_the_trial_only() -> None:
    import optuna

    made: list[int] = []

    def make(seed: int) -> optuna.samplers.BaseSampler:
        made.append(seed)
        return optuna.samplers.RandomSampler(seed=seed)

    sampler = SeededSampler(make, 1)
    study = optuna.create_study(sampler=sampler)
    distributions = {name: optuna.distributions.FloatDistribution(0, 1) for name in "ab"}
    first = study.ask(distributions).params  # type: ignore[arg-type]
    again = optuna.create_study(sampler=SeededSampler(make, 1))
    assert again.ask(distributions).params == first  # type: ignore[arg-type]
    assert study.ask(distributions).params != first  # type: ignore[arg-type]


def test_the_runs_of_trials_have_their_hyperparameters(tmp_path: Path) -> None:
    def train(config: dict[str, Any]) -> Iterator[dict[str, float]]:
        for step in range(3):
            yield {"loss": config["lr"] + step}

    space = {"lr": Uniform(0, 1), "layers": Choice([[8, 8], [16]])}
    tuner = Tuner(train, space, "loss", trials=2, seed=1, study=tmp_path)
    run(tuner)
    with RunManager(tmp_path) as manager:
        manager.refresh()
        found = {one.id: dict(one.hparams) for one in manager.runs().runs}
    assert found == {
        f"runs/{trial.number}": {"lr": trial.params["lr"], "layers": json.dumps(trial.params["layers"])}
        for trial in tuner.trials
    }


def test_the_description_is_the_same_in_another_process_and_another_one_for_other_settings(tmp_path: Path) -> None:
    def described(pruner: Any, sampler: Any = None) -> dict[str, Any]:
        return Tuner(curve, {"x": Uniform(0, 1)}, pruner=pruner, sampler=sampler, study=tmp_path).description

    with pytest.warns(ExperimentalWarning):
        wrapped = [PatientPruner(MedianPruner(first), patience=1) for first in (1, 1, 2)]
    first, same, other = map(described, wrapped)
    assert first == same != other
    assert " at 0x" not in str(described(None, TPESampler(seed=1)))
    assert described(None, RandomSampler) == described(None, RandomSampler) != described(None, TPESampler)
    json.dumps(first)
