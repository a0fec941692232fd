"""What depends on Optuna itself: pruners that learn, constraints, and times in journals of several releases."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.pruners import BasePruner, HyperbandPruner, PatientPruner, SuccessiveHalvingPruner

from pai_sdk import Pipeline, report
from pai_sdk._client.tune import Tuner, Uniform
from pai_sdk._client.tune.journal import open_journal
from pai_sdk._data.storage.store import open_store
from pai_sdk.errors import InvalidInputError, PipelineFailed, TuningFailed
from tests.support.messages import refused

SPACE = {"x": Uniform(0, 1)}

# ---- pruners ----------------------------------------------------------------------------------------------------

# Last step and level of the trials, in their order; the loss falls with the step.
_TRIALS = [(100, 0.5), (1000, 0.4), (1000, 5.0), (1000, 6.0), (1000, 7.0), (1000, 8.0)]
_STEPS = [1, 2, 4, 8, 10, 16, 32, 40, 64, 100, 128, 160, 256, 512, 640, 1000]


def search(study: Path, pruner: Any, parts: list[int], sampler: str = "random") -> list[tuple[Any, ...]]:
    """Search in several processes, as far as the tuner can tell; each goes on to a number of trials."""
    following = iter(_TRIALS)

    def train(config: dict[str, Any]) -> None:
        last, level = next(following)
        for step in [step for step in _STEPS if step <= last]:
            report({"loss": level + config["x"] / 100 + 10 / step}, step=step)

    for trials in parts:
        tuner = Tuner(train, SPACE, trials=trials, parallel=1, pruner=pruner, sampler=sampler, seed=1, study=study)
        tuner.run(show=False)
    return [(trial.number, trial.state, trial.reason, trial.params) for trial in tuner.trials]


def patient() -> BasePruner:
    with pytest.warns(optuna.exceptions.ExperimentalWarning):
        return PatientPruner(HyperbandPruner(), 1)


@pytest.mark.parametrize("sampler", ["random", "tpe"])
@pytest.mark.parametrize("kind", ["asha", "hyperband", "median", patient, SuccessiveHalvingPruner])
def test_a_continued_search_prunes_as_one_without_interruption(
    tmp_path: Path, kind: str | Callable[[], BasePruner], sampler: str
) -> None:
    pruner = kind if isinstance(kind, str) else kind()
    whole = search(tmp_path / "whole", pruner, [6], sampler)
    for number, parts in enumerate(([2, 6], [1, 2, 3, 4, 5, 6])):
        assert search(tmp_path / f"{number}", pruner, parts, sampler) == whole


def test_a_pruner_object_keeps_nothing_of_a_study_in_another_one(tmp_path: Path) -> None:
    pruner = SuccessiveHalvingPruner()
    first = search(tmp_path / "first", pruner, [6])
    global _TRIALS
    before, _TRIALS = _TRIALS, [(1000, 0.1), *_TRIALS[1:]]
    try:
        longer = search(tmp_path / "longer", SuccessiveHalvingPruner(), [6])
        assert search(tmp_path / "again", pruner, [6]) == longer
    finally:
        _TRIALS = before
    assert search(tmp_path / "last", pruner, [6]) == first


# ---- samplers ---------------------------------------------------------------------------------------------------

GRID = {"x": [0.1, 0.5], "kind": ["a", "b"]}


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("parallel", [1, 3])
@pytest.mark.parametrize(
    ("make", "space"),
    [
        (lambda: optuna.samplers.GridSampler(GRID), {"x": Uniform(0, 1), "kind": ["a", "b"]}),
        (lambda: optuna.samplers.BruteForceSampler(), GRID),
    ],
)
def test_a_sampler_that_has_no_more_values_ends_the_search(
    tmp_path: Path, make: Callable[[], Any], space: dict[str, Any], parallel: int
) -> None:
    tuner = Tuner(
        lambda config: config["x"], space, "loss", trials=20, parallel=parallel, sampler=make(), study=tmp_path
    )
    trials = tuner.run(show=False)
    assert {trial.state for trial in trials} == {"complete"}
    assert len({(trial.params["x"], trial.params["kind"]) for trial in trials}) == 4
    assert 4 <= len(trials) <= 4 + parallel


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
@pytest.mark.parametrize("parallel", [1, 2])
@pytest.mark.parametrize(
    "make",
    [
        lambda: optuna.samplers.GridSampler({"y": [0.1]}),
        lambda: optuna.samplers.GridSampler({"x": [5.0], "kind": ["c"]}),
        lambda: optuna.samplers.BruteForceSampler(),
    ],
)
def test_a_sampler_that_does_not_fit_the_space_is_named(
    tmp_path: Path, make: Callable[[], Any], parallel: int
) -> None:
    def tuner(sampler: Any) -> Tuner:
        space = {"x": Uniform(0, 1), "kind": ["a", "b"]}
        return Tuner(lambda config: 1.0, space, trials=3, parallel=parallel, sampler=sampler, study=tmp_path)

    with pytest.raises(InvalidInputError) as caught:
        tuner(make()).run(show=False)
    assert [problem.where for problem in caught.value.problems] == ["sampler"]
    assert [trial.state for trial in tuner("random").run(show=False)] == ["complete"] * 3


def test_what_a_sampler_needs_is_named_before_the_first_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with refused(InvalidInputError, "sampler"):
        Tuner(lambda config: 1.0, SPACE, sampler="cmaes")


def test_a_search_whose_trials_are_all_pruned_says_so(tmp_path: Path) -> None:
    def train(config: dict[str, Any]) -> None:
        report({"loss": 1.0}, step=1)

    pruner = optuna.pruners.ThresholdPruner(upper=0.5)
    with refused(TuningFailed) as caught:
        Tuner(train, SPACE, trials=3, pruner=pruner, study=tmp_path).run(show=False)
    assert caught.value.failures == {}


# ---- constraints ------------------------------------------------------------------------------------------------


def constraints(trial: optuna.trial.FrozenTrial) -> tuple[float, ...]:
    return (0.5 - trial.params["x"],)  # feasible from 0.5 on


def constrained(
    function: Callable[[dict[str, Any]], Any],
    objective: Any,
    study: Path | None = None,
    limit: Callable[..., tuple[float, ...]] = constraints,
    **options: Any,
) -> Tuner:
    sampler = optuna.samplers.TPESampler(seed=1, constraints_func=limit)
    return Tuner(function, SPACE, objective, trials=12, parallel=1, sampler=sampler, study=study, **options)


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("objective", ["loss", ["loss", "latency"]])
def test_the_best_trials_satisfy_the_constraints(tmp_path: Path, objective: Any) -> None:
    tuner = constrained(lambda config: {"loss": config["x"], "latency": 2 * config["x"]}, objective, tmp_path)
    trials = tuner.run(show=False)
    best = min((trial for trial in trials if trial.params["x"] >= 0.5), key=lambda trial: trial.params["x"])
    assert trials.best == best
    assert [trial.number for trial in tuner.best_trials] == [best.number]
    assert [trial.is_feasible for trial in trials] == [trial.params["x"] >= 0.5 for trial in trials]
    frame = trials.to_pandas()
    assert [*frame["feasible"]] == [trial.is_feasible for trial in trials]
    assert "feasible" in repr(trials).splitlines()[0]
    assert Tuner.load(tmp_path).trials.best == best
    tuner.plot(interactive=False)
    more = Tuner(lambda config: 1.0, SPACE, "loss", trials=1, study=tmp_path / "more", warm_start=trials)
    if objective == "loss":
        assert more.run(show=False).best is not None
        assert [trial.is_feasible for trial in more.trials][:12] == [trial.is_feasible for trial in trials]
        assert more.best.params == best.params


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning", "ignore::FutureWarning")
def test_without_a_feasible_trial_there_is_no_best_one(tmp_path: Path) -> None:
    tuner = constrained(lambda config: config["x"], "loss", tmp_path, lambda trial: (1.0,))
    assert tuner.run(show=False).best is None
    assert [*tuner.best_trials] == []
    with refused(InvalidInputError, "best"):
        tuner.best  # noqa: B018
    pipeline = Pipeline("test", store=tmp_path / "store")
    pipeline.step(tuner, name="search")
    with refused(PipelineFailed):
        pipeline.run(show=False)


# ---- releases ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("starts_with_zone", [True, False])
def test_a_trial_begun_with_one_release_ends_with_another(tmp_path: Path, starts_with_zone: bool) -> None:
    Tuner(lambda config: 1.0, SPACE, trials=1, parallel=1, study=tmp_path).run(show=False)
    file, now = tmp_path / "journal.jsonl", datetime.now(timezone.utc)
    texts = now.isoformat(timespec="microseconds"), now.astimezone().replace(tzinfo=None).isoformat()
    lines = []
    for record in map(json.loads, file.read_text().splitlines()):
        for name, text in zip(
            ("datetime_start", "datetime_complete"), texts[:: 1 if starts_with_zone else -1], strict=True
        ):
            if name in record:
                assert datetime.fromisoformat(record[name]).utcoffset() == timedelta(0)  # for any machine
                record[name] = text
        lines.append(json.dumps(record))
    file.write_text("\n".join([*lines, ""]))
    (trial,) = Tuner.load(tmp_path).trials
    assert trial.seconds == pytest.approx(0, abs=0.001)
    times = [
        datetime.fromisoformat(record[name])
        for record in open_journal(open_store(tmp_path)).read_logs(0)
        for name in ("datetime_start", "datetime_complete")
        if name in record
    ]
    assert [time.utcoffset() for time in times] == [None, None]  # what Optuna 4 can subtract


def test_a_time_that_is_none_is_a_damaged_record(tmp_path: Path) -> None:
    (tmp_path / "journal.jsonl").write_text('{"op_code":6,"datetime_complete":"yesterday"}\n')
    with refused(Exception):
        Tuner.load(tmp_path)
