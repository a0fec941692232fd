"""Population-based training: trials go on from checkpoints, in the same way after any interruption."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from pai_sdk import Estimator, PopulationBased, get_checkpoint, get_context, report
from pai_sdk._client.submit.algorithm_estimator import AlgorithmEstimator
from pai_sdk._client.submit.problems import Problems
from pai_sdk._client.tune import Choice, IntRange, LogUniform, Objective, TrialList, Tuner, Uniform
from pai_sdk._client.tune.jobs import JobTrials
from pai_sdk._client.tune.population import EndedMember, checked_population
from pai_sdk._client.tune.search_file import SearchFile
from pai_sdk._client.tune.space import Range, SearchSpace
from pai_sdk._client.tune.study import Study
from pai_sdk._data.run.report.checkpoints import commit, complete_checkpoints
from pai_sdk.errors import CheckpointError, InvalidInputError, PaiError, StorageError, TuningFailed
from tests.support.fake_backend import FAST
from tests.support.messages import refused
from tests.unit.client.tune.fake_jobs import FakeJobs, FakeSession

SPACE: dict[str, Any] = {"lr": LogUniform(1e-3, 1), "units": IntRange(1, 8), "kind": ["a", "b", "c"]}
SMALL = PopulationBased(size=4, generations=3)
STEPS = 4


class Killed(BaseException):
    pass


def load_state() -> tuple[float, int]:
    """The weight and the step of the checkpoint to go on from."""
    start = get_checkpoint()
    if start is None:
        return 8.0, 0
    return json.loads((start.path / "state.json").read_text())["weight"], start.step or 0


def save_state(folder: Path, weight: float) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "state.json").write_text(json.dumps({"weight": weight}))
    return folder


def trainer(steps: int = STEPS) -> Callable[[dict[str, Any]], None]:
    """A training with noise: a large learning rate is good far from the goal, and a small one near it."""

    def train(config: dict[str, Any]) -> None:
        weight, first = load_state()
        own = get_context().folder
        assert own is not None
        for step in range(first + 1, first + steps + 1):
            weight = weight * (1 - config["lr"]) ** 2 + 0.5 * config["lr"] ** 2
            state = save_state(own / "state", weight) if step == first + steps else None
            report({"loss": weight}, step=step, checkpoint=state)

    return train


def tuner(study: Path | str, train: Callable[..., Any] | None = None, **options: Any) -> Tuner:
    given = {"sampler": SMALL, "seed": 1, "study": study, "search": SPACE, **options}
    return Tuner(train or trainer(), given.pop("search"), **given)


def run(one: Tuner) -> TrialList:
    return one.run(show=False)


def outcomes(trials: TrialList) -> list[tuple[object, ...]]:
    return [(one.number, one.state, one.parent, one.params, one.values) for one in trials]


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# ---- decisions


def members(*scores: float | None) -> list[EndedMember]:
    return [
        EndedMember(n, {"lr": 0.1 + n / 100, "units": n + 1, "kind": "b"}, one) for n, one in enumerate(scores)
    ]


def test_the_worst_and_the_failed_go_on_from_the_best_and_the_others_from_themselves() -> None:
    space = SearchSpace({"lr": LogUniform(1e-3, 1), "units": IntRange(1, 8), "kind": Choice(["a", "b", "c"])})
    population = PopulationBased(size=8, fraction=0.25, resample=0.0)
    before = members(0.5, 0.1, None, 0.9, 0.2, float("inf"), 0.3, 0.4)
    found = [population.successor(8 + at, 1, before, space) for at in range(8)]
    assert [one.parent for at, one in enumerate(found) if at not in (2, 5)] == [0, 1, 3, 4, 6, 7]
    assert all(found[at].params == before[at].params for at in (0, 1, 3, 4, 6, 7))
    for at in (2, 5):
        assert found[at].parent in (1, 4)
        parent = before[found[at].parent].params
        assert found[at].params["lr"] in (parent["lr"] * 0.8, parent["lr"] * 1.25)
        assert found[at].params["units"] != parent["units"]
        assert found[at].params["kind"] in ("a", "c")
    assert found == [population.successor(8 + at, 1, before, space) for at in range(8)]
    drawn = [PopulationBased(size=8, resample=1.0).successor(8 + at, 1, before, space) for at in (2, 5)]
    assert [dict(one.params) for one in drawn] == [{}, {}]  # all of them are drawn anew


def test_one_good_member_is_the_parent_of_all() -> None:
    space = SearchSpace({"lr": LogUniform(1e-3, 1)})
    before = members(None, None, 0.5, None)
    assert {SMALL.successor(4 + at, 1, before, space).parent for at in range(4)} == {2}


@pytest.mark.parametrize(
    ("given", "value", "possible"),
    [
        (Uniform(0, 1), 0.5, {0.4, 0.625}),
        (Uniform(0, 0.5), 0.5, {0.4, 0.5}),
        (Uniform(-1, 1), -1.0, {-0.8, -1.0}),
        (Uniform(0, 1, step=0.25), 0.5, {0.25, 0.75}),
        (LogUniform(0.1, 1), 0.1, {0.1, 0.125}),
        (IntRange(1, 64), 16, {13, 20}),
        (IntRange(1, 4), 1, {1, 2}),
        (IntRange(0, 4), 0, {0, 1}),
        (IntRange(16, 250, step=16), 240, {192, 240}),
        (IntRange(1, 1024, log=True), 100, {80, 125}),
        (Choice([1, True, 2]), "true", {"1", "2"}),
        (Choice(["a", "b", "c"]), "a", {"b"}),
        (Choice(["a"]), "a", {"a"}),
        (Choice([[8], [16]]), "[8]", {"[16]"}),
    ],
)
def test_changed_values_stay_in_their_range(given: Range, value: object, possible: set[object]) -> None:
    space = SearchSpace({"x": given})
    population = PopulationBased(size=2, resample=0.0)
    before = [EndedMember(0, {"x": value}, 0.0), EndedMember(1, {"x": value}, 1.0)]
    found = {population.successor(1, seed, before, space).params["x"] for seed in range(40)}
    assert found == possible


# ---- functions


def test_the_best_of_a_population_beats_the_best_of_fixed_hyperparameters(tmp_path: Path) -> None:
    """The same seed, the same first hyperparameters, the same number of steps."""
    population = PopulationBased(size=8, generations=5, perturbation=(0.5, 1.5))
    space = {"lr": LogUniform(1e-3, 1)}
    changed = tuner(tmp_path / "population", sampler=population, search=space)
    long = trainer(STEPS * population.generations)
    fixed = tuner(tmp_path / "fixed", long, sampler="random", trials=8, search=space)
    run(changed)
    run(fixed)
    assert [one.params for one in changed.trials[:8]] == [one.params for one in fixed.trials]
    assert changed.best.value is not None
    assert fixed.best.value is not None
    assert changed.best.value < 0.5 * fixed.best.value


@pytest.mark.parametrize("parallel", [1, 3])
def test_each_trial_begins_with_the_checkpoint_of_its_parent(parallel: int, tmp_path: Path) -> None:
    began: dict[str, int] = {}
    plain = trainer()

    def train(config: dict[str, Any], checkpoint_dir: str | None = None) -> None:
        weight, step = load_state()
        assert (checkpoint_dir is None) == (step == 0)
        began[json.dumps(config) + str(weight)] = step
        plain(config)

    trials = run(tuner(tmp_path / "study", train, parallel=parallel))
    assert [one.number for one in trials] == list(range(SMALL.trials))
    assert [one.parent is None for one in trials] == [True] * 4 + [False] * 8
    assert sorted({*began.values()}) == [0, STEPS, 2 * STEPS]
    for one in trials:
        steps = [found.step for found in complete_checkpoints(Path(one.run, "checkpoints"))]
        assert steps[0] == STEPS * (SMALL.generation_of(one.number) + 1)
        if one.parent is not None:
            first = next(iter(complete_checkpoints(Path(trials[one.parent].run, "checkpoints"))))
            assert files_of(Path(one.run, "checkpoints", str(first.step))) == files_of(first.path)
    lines = repr(trials).splitlines()
    assert lines[0].split()[:3] == ["trial", "parent", "state"]
    assert list(trials.to_pandas()["parent"][4:]) == [one.parent for one in trials[4:]]


def test_the_same_seed_gives_the_same_population(tmp_path: Path) -> None:
    found = [
        outcomes(run(tuner(tmp_path / str(number), parallel=parallel, seed=seed)))
        for number, (seed, parallel) in enumerate([(1, 1), (1, 4), (2, 4)])
    ]
    assert found[0] == found[1] != found[2]


@pytest.mark.parametrize("at", [0, 7, 17, 30])
def test_a_tuner_killed_in_any_trial_goes_on_as_if_it_had_not_been(at: int, tmp_path: Path) -> None:
    reports = [0]
    plain = trainer()

    def dying(config: dict[str, Any]) -> None:
        if reports[0] > at:
            raise Killed
        reports[0] += STEPS
        if reports[0] > at:  # in the middle of its steps, after it has saved some
            trainer(1 + at % (STEPS - 1))(config)
            raise Killed
        plain(config)

    with pytest.raises(Killed):
        run(tuner(tmp_path / "killed", dying, parallel=1))
    whole = run(tuner(tmp_path / "whole", parallel=1))
    found = run(tuner(tmp_path / "killed", parallel=1))
    assert outcomes(found) == outcomes(whole)
    for one in found:
        assert {found.step for found in complete_checkpoints(Path(one.run, "checkpoints"))} == {
            found.step for found in complete_checkpoints(Path(whole[one.number].run, "checkpoints"))
        }


@pytest.mark.parametrize("copied", [0, 1])
def test_a_checkpoint_that_was_copied_in_part_is_copied_again(
    copied: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pai_sdk._data.storage.stores.local import LocalStore

    whole = run(tuner(tmp_path / "whole", parallel=1))
    write, writes = LocalStore.write, [0]

    def dying(self: LocalStore, path: str, *args: Any, **kwargs: Any) -> Any:
        if "/runs/" in str(self.root):
            writes[0] += 1
            if writes[0] > copied:
                raise StorageError("the disk is full")
        return write(self, path, *args, **kwargs)

    with monkeypatch.context() as broken:
        broken.setattr(LocalStore, "write", dying)
        with refused(PaiError):
            run(tuner(tmp_path / "killed", parallel=1))
    assert outcomes(run(tuner(tmp_path / "killed", parallel=1))) == outcomes(whole)


def test_without_checkpoints_each_trial_starts_from_scratch(tmp_path: Path) -> None:
    def train(config: dict[str, Any]) -> float:
        assert get_checkpoint() is None
        return abs(config["lr"] - 0.3)

    trials = run(tuner(tmp_path, train))
    assert len(trials) == SMALL.trials
    assert trials[4].parent is not None


def test_a_failed_member_is_replaced(tmp_path: Path) -> None:
    plain = trainer()
    calls = [0]

    def train(config: dict[str, Any]) -> None:
        calls[0] += 1
        if calls[0] in (2, 7):
            raise ValueError("no")
        plain(config)

    trials = run(tuner(tmp_path / "study", train, parallel=1))
    assert [one.number for one in trials if one.state == "failed"] == [1, 6]
    assert trials[5].parent not in (1, None)
    assert trials[10].parent not in (6, None)
    assert trials[10].state == "complete"


def test_a_generation_without_a_success_ends_the_search(tmp_path: Path) -> None:
    def train(config: dict[str, Any]) -> float:
        if get_checkpoint() is not None or calls[0] >= 4:
            raise ValueError("no memory")
        calls[0] += 1
        return 1.0

    calls = [0]
    for _ in range(2):  # now, and when it is continued
        with refused(TuningFailed) as caught:
            run(tuner(tmp_path, train, parallel=2))
        assert caught.value.generation == 1
        assert sorted(caught.value.failures) == [4, 5, 6, 7]
    assert len(Tuner.load(tmp_path).trials) == 8
    calls[0] = 0
    with refused(TuningFailed):  # it is the last one
        run(tuner(tmp_path / "last", train, sampler=PopulationBased(size=4, generations=2)))


def test_values_that_are_no_numbers_are_failures_of_members_only(tmp_path: Path) -> None:
    def train(config: dict[str, Any]) -> float:
        return float("nan") if config["lr"] > 0.1 else config["lr"]

    trials = run(tuner(tmp_path, train, max_failures=0))
    assert {one.state for one in trials} == {"complete", "failed"}
    assert all(trials[one.parent].state == "complete" for one in trials if one.parent is not None)


def test_the_parents_run_must_be_on_this_machine(tmp_path: Path) -> None:
    import shutil

    study = tmp_path / "study"
    run(tuner(study, sampler=PopulationBased(size=4, generations=1)))
    shutil.rmtree(study / "runs")
    with pytest.raises(CheckpointError, match="on the machine where it has run"):
        run(tuner(study))


def test_a_study_in_a_store_has_its_runs_on_this_machine(tmp_path: Path) -> None:
    studies = [f"memory://{tmp_path.name}/{name}/same" for name in ("one", "two")]
    found = [run(tuner(study)) for study in studies]
    assert outcomes(found[0]) == outcomes(found[1])
    assert not {one.run for one in found[0]} & {one.run for one in found[1]}


# ---- continuing


def test_a_study_is_loaded_with_its_population_and_continued_with_more_generations(tmp_path: Path) -> None:
    whole = run(tuner(tmp_path / "whole"))
    study = tmp_path / "parts"
    run(tuner(study, sampler=PopulationBased(size=4, generations=1)))
    more = PopulationBased(size=4, generations=3)
    assert [one.parent for one in Tuner.load(study).trials] == [None] * 4
    assert outcomes(run(Tuner.load(study, trainer(), sampler=more))) == outcomes(whole)
    assert len(run(Tuner.load(study, trainer()))) == 12  # the study remembers it


def test_another_population_is_not_that_of_the_study(tmp_path: Path) -> None:
    run(tuner(tmp_path / "population"))
    for sampler in ("pbt", PopulationBased(size=4, generations=3, resample=0.5), "random", None):
        with refused(InvalidInputError, "sampler") as caught:
            run(tuner(tmp_path / "population", sampler=sampler))
        assert [one.where for one in caught.value.problems] == ["sampler"]
    run(tuner(tmp_path / "random", sampler="random", trials=1))
    with refused(InvalidInputError, "sampler"):
        run(tuner(tmp_path / "random"))


# ---- what is wrong


def test_all_that_is_wrong_with_a_population_is_said_at_once(tmp_path: Path) -> None:
    bad = PopulationBased(size=1, generations=0, fraction=0.75, perturbation=(0.0,), resample=2)
    names = ("size", "generations", "fraction", "perturbation", "resample")
    with pytest.raises(InvalidInputError) as caught:
        tuner(
            tmp_path, sampler=bad, pruner="asha", warm_start="elsewhere", trials=-1, objective=["loss", "accuracy"]
        )
    expected = {*(f"sampler.{name}" for name in names), "objective", "pruner", "warm_start", "trials"}
    assert {one.where for one in caught.value.problems} == expected
    with refused(InvalidInputError, "trials"):
        tuner(tmp_path, trials=20)
    with refused(InvalidInputError, "objective"):
        tuner(tmp_path, objective=Objective("loss", at=3))
    with refused(InvalidInputError, "sampler.sise"):
        tuner(tmp_path, sampler={"pbt": {"sise": 4}})
    with refused(InvalidInputError, "sampler.pbt"):
        tuner(tmp_path, sampler={"pbt": 4})
    with refused(InvalidInputError, "estimator"):
        Tuner(AlgorithmEstimator("digits", instance_type="ecs.c6.large"), SPACE, sampler="pbt", study=tmp_path)
    tuner(tmp_path, trials=12)


def test_a_population_is_given_by_its_name_and_in_a_file(tmp_path: Path) -> None:
    problems = Problems()
    assert checked_population("pbt", problems) == PopulationBased()
    assert checked_population({"pbt": None}, problems) == PopulationBased()
    assert checked_population("tpe", problems) is None
    assert not problems.entries
    file = tmp_path / "space.yaml"
    file.write_text(
        "search:\n  lr: {log_uniform: [1e-3, 1]}\n"
        "sampler: {pbt: {size: 4, generations: 3, perturbation: [0.5, 2]}}\n"
    )
    arguments = SearchFile.load(file).arguments()
    expected = PopulationBased(size=4, generations=3, perturbation=(0.5, 2))
    assert checked_population(arguments["sampler"], problems) == expected
    described = tuner(tmp_path / "study", sampler=arguments["sampler"]).description
    assert described == tuner(tmp_path / "study", sampler=expected).description
    assert described != tuner(tmp_path / "study").description
    assert json.loads(json.dumps(described))["trials"] == 12


# ---- jobs


def falling(values: Mapping[str, str]) -> list[float]:
    return [(float(values["lr"]) - 0.1) ** 2 + 1 / step for step in range(1, 4)]


def job_tuner(backend: FakeJobs, study: Path, resume: str | None = None, **options: Any) -> Tuner:
    session: Any = FakeSession(backend)
    estimator = Estimator("python:3.11", "true", instance_type="ecs.c6.large", session=session, resume=resume)
    return Tuner(
        estimator,
        {"lr": LogUniform(1e-3, 1)},
        **{"sampler": SMALL, "parallel": 3, "seed": 1, "study": study, **options},
    )


def run_jobs(one: Tuner, **options: Any) -> TrialList:
    return one.run(show=False, policy=FAST, **options)


def check_lineage(backend: FakeJobs, trials: TrialList) -> None:
    """Each job was given the checkpoint of the job of its parent."""
    for one in trials:
        start = backend.jobs[one.job_id].resume
        if one.parent is None:
            assert start is None
            continue
        parent = backend.jobs[trials[one.parent].job_id]
        assert start is not None
        assert parent.checkpoints is not None
        assert start.source == parent.checkpoints.as_uri() + "/"
        own = backend.jobs[one.job_id].checkpoints
        assert own is not None
        assert (own / str(start.step) / "job").read_text() == parent.id


def test_each_job_resumes_from_the_job_of_its_parent(tmp_path: Path) -> None:
    backend = FakeJobs(falling, outputs=tmp_path / "outputs")
    trials = run_jobs(job_tuner(backend, tmp_path / "study"))
    assert [one.state for one in trials] == ["complete"] * 12
    assert backend.most_at_once == 3
    check_lineage(backend, trials)
    calls = run(tuner(tmp_path / "calls", lambda config: falling(config)[-1], search={"lr": LogUniform(1e-3, 1)}))
    assert [(one.parent, one.params) for one in calls] == [(one.parent, one.params) for one in trials]


def test_the_first_generation_resumes_from_what_the_estimator_says(tmp_path: Path) -> None:
    earlier = tmp_path / "earlier" / "7"
    save_state(earlier, 2.0)
    commit(earlier, step=7)
    backend = FakeJobs(falling, outputs=tmp_path / "outputs")
    trials = run_jobs(job_tuner(backend, tmp_path / "study", resume=str(earlier.parent)))
    starts = [backend.jobs[one.job_id].resume for one in trials]
    assert [one and one.step for one in starts] == [7 + 3 * SMALL.generation_of(one.number) for one in trials]
    assert {one.source for one in starts[:4] if one} == {earlier.parent.as_uri() + "/"}


def test_lost_and_failed_jobs_of_a_population(tmp_path: Path) -> None:
    ends = {1: ("Failed", "NonZeroExit"), 5: ("Failed", "Preempted")}
    backend = FakeJobs(falling, ends, tmp_path / "outputs")
    trials = run_jobs(job_tuner(backend, tmp_path / "study", parallel=1))
    assert [one.number for one in trials if one.state == "failed"] == [1]
    assert trials[5].parent != 1
    assert len(backend.jobs) == 13
    check_lineage(backend, trials)
    every = FakeJobs(falling, dict.fromkeys(range(4), ("Failed", "NonZeroExit")), tmp_path / "other")
    with pytest.raises(TuningFailed, match="all 4 trials of generation 0 failed"):
        run_jobs(job_tuner(every, tmp_path / "every"))
    assert len(every.jobs) == 4


def test_a_generation_whose_jobs_cannot_be_submitted_ends_the_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise InvalidInputError([])

    monkeypatch.setattr(FakeSession, "submit", refuse)
    with refused(TuningFailed):
        run_jobs(job_tuner(FakeJobs(falling), tmp_path))


def test_jobs_without_checkpoints_start_from_scratch(tmp_path: Path) -> None:
    backend = FakeJobs(falling, outputs=tmp_path / "outputs")
    with pytest.MonkeyPatch.context() as without:
        without.setattr("tests.unit.client.tune.fake_jobs.FakeJob.save", lambda self: None)
        trials = run_jobs(job_tuner(backend, tmp_path / "study"))
    assert [one.state for one in trials] == ["complete"] * 12
    assert {backend.jobs[one.job_id].resume for one in trials} == {None}


@pytest.mark.parametrize("cut", ["submit", "submitted", "end", "next"])
@pytest.mark.parametrize("after", [3, 6])
def test_a_tuner_that_ends_between_two_steps_has_the_same_population(
    cut: str, after: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = run_jobs(job_tuner(FakeJobs(falling, outputs=tmp_path / "whole-outputs"), tmp_path / "whole"))
    backend = FakeJobs(falling, outputs=tmp_path / "outputs")
    numbers = itertools.count(1)

    def dying(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            number = next(numbers)
            found = method(*args, **kwargs) if number != after or cut in ("submit", "end") else None
            if number == after:
                raise Killed
            return found

        return call

    owner = FakeSession if cut == "submit" else Study
    with monkeypatch.context() as broken:
        broken.setattr(owner, cut, dying(getattr(owner, cut)))
        with pytest.raises(Killed):
            run_jobs(job_tuner(backend, tmp_path / "study"))
    trials = run_jobs(job_tuner(backend, tmp_path / "study"))
    assert outcomes(trials) == outcomes(whole)
    assert len(backend.jobs) == 12
    check_lineage(backend, trials)


@pytest.mark.parametrize("on_interrupt", ["detach", "stop"])
def test_ctrl_c_in_a_generation(on_interrupt: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = run_jobs(job_tuner(FakeJobs(falling, outputs=tmp_path / "whole-outputs"), tmp_path / "whole"))
    backend = FakeJobs(falling, outputs=tmp_path / "outputs")
    real = JobTrials._on_update

    def press(self: Any, *args: Any) -> None:
        if len(backend.jobs) > 5:
            raise KeyboardInterrupt
        real(self, *args)

    with monkeypatch.context() as interrupted:
        interrupted.setattr(JobTrials, "_on_update", press)
        with pytest.raises(KeyboardInterrupt):
            run_jobs(job_tuner(backend, tmp_path / "study"), on_interrupt=on_interrupt)
    trials = run_jobs(job_tuner(backend, tmp_path / "study"))
    assert outcomes(trials) == outcomes(whole)
    check_lineage(backend, trials)
