"""Trials that are jobs: each is submitted once, pruned jobs are stopped, lost ones are submitted again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import optuna
import pytest

from pai_sdk import Estimator
from pai_sdk._client.tune import Choice, LogUniform, Objective, Tuner, Uniform
from pai_sdk._client.tune.template import OBJECTIVE_LABEL, PRUNED_LABEL, STUDY_LABEL, TRIAL_LABEL, TRIALS_LABEL
from pai_sdk.errors import ConnectionFailedError, InvalidInputError, TuningFailed
from tests.support.fake_backend import FAST
from tests.support.messages import refused
from tests.support.waiting import long_enough
from tests.unit.client.tune.fake_jobs import Curve, FakeJobs, FakeSession

pytestmark = pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")


def falling(values: Mapping[str, str]) -> Curve:
    """A loss that falls with the steps; the best learning rate is 0.1."""
    return [(float(values["lr"]) - 0.1) ** 2 + 1 / step for step in range(1, 10)]


def tuner(backend: FakeJobs, study: Path, **options: Any) -> Tuner:
    estimator = Estimator("python:3.11", "true", instance_type="ecs.c6.large", session=FakeSession(backend))  # type: ignore[arg-type]
    return Tuner(
        options.pop("estimator", estimator),
        **{"search": {"lr": LogUniform(1e-3, 1)}, "trials": 12, "seed": 1, "study": study, **options},
    )


def run(one: Tuner, **options: Any) -> Any:
    return one.run(show=False, policy=FAST, **options)


def test_each_trial_is_a_job_with_its_hyperparameters_labels_and_model(tmp_path: Path) -> None:
    backend = FakeJobs(falling)
    search = tuner(backend, tmp_path / "digits", parallel=3)
    trials = run(search)
    assert [trial.state for trial in trials] == ["complete"] * 12
    assert len(backend.jobs) == 12
    assert backend.most_at_once == 3
    for trial in trials:
        job = backend.jobs[trial.job_id]
        assert float(job.request.hyperparameters[0].value) == trial.params["lr"]
        assert job.labels[TRIAL_LABEL] == str(trial.number)
        assert (job.labels[OBJECTIVE_LABEL], job.labels[TRIALS_LABEL]) == ("minimize loss", "12")
        assert PRUNED_LABEL not in job.labels
        assert job.request.training_job_name == f"digits-{trial.number}"
        assert trial.value == job.curve[-1]
    assert len({job.labels[STUDY_LABEL] for job in backend.jobs.values()}) == 1
    best = search.best
    assert best.value == min(trial.value for trial in trials)
    assert best.model == f"oss://bucket/{best.job_id}/model/"
    assert best.job.status == "Succeed"


def test_poor_trials_are_stopped_and_pruned(tmp_path: Path) -> None:
    backend = FakeJobs(falling)
    trials = run(tuner(backend, tmp_path, pruner="asha", sampler="random", trials=20))
    pruned = [trial for trial in trials if trial.state == "pruned"]
    assert pruned
    assert trials.best.state == "complete"
    for trial in pruned:
        assert trial.reason == f"pruned at step {trial.steps}"
        assert backend.jobs[trial.job_id].labels[PRUNED_LABEL] == str(trial.steps)
        # the decision is that of the step, also where the job was further by then
        assert backend.jobs[trial.job_id].status in ("Terminated", "Succeed")
    assert {call.split()[1] for call in backend.calls if call.startswith("stop")} <= {t.job_id for t in pruned}
    assert any(backend.jobs[trial.job_id].status == "Terminated" for trial in pruned)


def test_a_job_that_was_preempted_is_submitted_again_and_is_no_failure(tmp_path: Path) -> None:
    backend = FakeJobs(falling, {0: ("Failed", "Preempted"), 3: ("Failed", "NodeLost")})
    trials = run(tuner(backend, tmp_path, max_failures=0, trials=5, parallel=2))
    assert [trial.state for trial in trials] == ["complete"] * 5
    assert len(backend.jobs) == 7
    assert backend.jobs[trials[0].job_id].labels[TRIAL_LABEL] == "0"


def test_failed_jobs_are_counted_and_too_many_of_them_end_the_search_with_the_reasons(tmp_path: Path) -> None:
    failed = ("Failed", "NonZeroExit")
    backend = FakeJobs(falling, {1: failed, 2: failed})
    search = tuner(backend, tmp_path, max_failures=2, trials=6)
    trials = run(search)
    assert [trial.state for trial in trials].count("failed") == 2
    assert all("train" in trial.reason for trial in trials if trial.state == "failed")
    backend = FakeJobs(falling, dict.fromkeys((0, 1, 4), failed))
    with pytest.raises(TuningFailed) as caught:
        run(tuner(backend, tmp_path / "other", max_failures=2, trials=30, parallel=2))
    assert len(caught.value.failures) == 3
    assert not [job for job in backend.jobs.values() if job.status == "Running"]
    backend.ends.clear()
    trials = run(tuner(backend, tmp_path / "other", max_failures=2, trials=30))  # the reason is gone
    assert len(trials) == 30


def test_a_metric_that_is_missing_is_named_beside_those_that_are_there(tmp_path: Path) -> None:
    backend = FakeJobs(falling)
    with refused(TuningFailed):
        run(tuner(backend, tmp_path, objective="accuracy", trials=2, max_failures=0, parallel=1))


def test_a_value_that_is_not_a_number_is_no_failure_that_counts(tmp_path: Path) -> None:
    backend = FakeJobs(lambda values: [float("nan")] if float(values["lr"]) > 0.01 else [1.0])
    trials = run(tuner(backend, tmp_path, max_failures=0, sampler="random"))
    assert {trial.state for trial in trials} == {"complete", "failed"}
    assert {trial.reason for trial in trials if trial.state == "failed"} == {"loss is not a number"}


def test_the_best_value_and_that_of_a_step_count_where_they_are_asked_for(tmp_path: Path) -> None:
    backend = FakeJobs(lambda values: [3.0, 1.0, 2.0])
    for at, value in (("last", 2.0), ("best", 1.0), (1, 3.0)):
        search = tuner(backend, tmp_path / str(at), objective=Objective("loss", at=at), trials=1)  # type: ignore[arg-type]
        assert run(search).best.value == value


def test_resources_and_images_are_searched_too(tmp_path: Path) -> None:
    backend = FakeJobs(lambda values: [1.0])
    types = ["ecs.c6.large", "ecs.g6.large"]
    search = {"instance_type": types, "image_uri": Choice(["python:3.11", "python:3.12"])}
    trials = run(tuner(backend, tmp_path, search=search, sampler="grid", trials=None))
    found = {
        (job.request.compute_resource.ecs_spec, job.request.algorithm_spec.image)  # type: ignore[union-attr]
        for job in backend.jobs.values()
    }
    assert len(trials) == len(found) == 4
    assert not any(job.request.hyperparameters for job in backend.jobs.values())


def test_a_search_begins_with_earlier_jobs(tmp_path: Path) -> None:
    backend = FakeJobs(falling)
    first = tuner(backend, tmp_path / "first", trials=3)
    jobs = [trial.job for trial in run(first)]
    second = tuner(backend, tmp_path / "second", trials=1, warm_start=jobs)
    found = run(second)
    assert [trial.is_earlier for trial in found] == [True] * 3 + [False]
    assert [trial.params["lr"] for trial in found[:3]] == [trial.params["lr"] for trial in first.trials]
    assert [trial.value for trial in found[:3]] == [trial.value for trial in first.trials]


@pytest.mark.parametrize("cut", ["submit", "submitted", "report", "end"])
def test_a_tuner_that_ends_between_two_steps_submits_nothing_twice(
    cut: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pai_sdk._client.tune.study import Study

    class Killed(BaseException):
        pass

    def die_before(*_: object, **__: object) -> None:
        raise Killed

    def die_after(method: Callable[..., Any]) -> Callable[..., Any]:
        def dying(*args: Any, **kwargs: Any) -> Any:
            method(*args, **kwargs)
            raise Killed

        return dying

    backend = FakeJobs(falling)
    for number in range(3):
        with monkeypatch.context() as broken:
            if cut == "submit":  # the job is there, and nothing is noted of it
                broken.setattr(FakeSession, "submit", die_after(FakeSession.submit))
            else:
                broken.setattr(Study, cut, die_before if number % 2 else die_after(getattr(Study, cut)))
            with pytest.raises(Killed):
                run(tuner(backend, tmp_path, pruner="median", parallel=2))
    trials = run(tuner(backend, tmp_path, pruner="median", parallel=2))
    assert [trial.number for trial in trials] == list(range(12))
    assert "running" not in {trial.state for trial in trials}
    assert sorted(int(job.labels[TRIAL_LABEL]) for job in backend.jobs.values()) == list(range(12))


def test_a_service_that_is_away_ends_the_search_which_goes_on_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = FakeJobs(falling)

    def away(*_: object, **__: object) -> None:
        raise ConnectionFailedError("no response", endpoint="fake", maybe_arrived=True)

    with monkeypatch.context() as broken:
        broken.setattr(FakeSession, "submit", away)
        with pytest.raises(ConnectionFailedError):
            run(tuner(backend, tmp_path))
    assert not backend.jobs
    assert len(run(tuner(backend, tmp_path))) == len(backend.jobs) == 12


def test_ctrl_c_leaves_jobs_running_or_stops_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for on_interrupt in ("detach", "stop"):
        backend = FakeJobs(falling)
        with monkeypatch.context() as interrupted:

            def press(self: Any, *_: object) -> None:
                raise KeyboardInterrupt

            interrupted.setattr("pai_sdk._client.tune.jobs.JobTrials._on_update", press)
            backend.is_paused = True
            with pytest.raises(KeyboardInterrupt):
                run(tuner(backend, tmp_path / on_interrupt, parallel=2), on_interrupt=on_interrupt)
        states = {job.status for job in backend.jobs.values()}
        assert states == ({"Running"} if on_interrupt == "detach" else {"Terminated"})
        backend.is_paused = False
        trials = run(tuner(backend, tmp_path / on_interrupt, parallel=2))
        assert [trial.state for trial in trials] == ["complete"] * 12
        assert len(backend.jobs) == (12 if on_interrupt == "detach" else 14)


def test_all_that_is_wrong_is_said_before_anything_is_sent(tmp_path: Path) -> None:
    backend = FakeJobs(falling)
    estimator = Estimator(
        "python:3.11",
        "true",
        instance_type="ecs.c6.large",
        session=FakeSession(backend),  # type: ignore[arg-type]
        checkpoints_path="oss://bucket/checkpoints/",
        metric_definitions=[{"name": "val_loss", "regex": "loss=(.*)"}],
    )
    search = {"instance_type": ["ecs.c6.large", 7], "image": ["a", "b"], "lr": Uniform(0, 1)}
    with pytest.raises(InvalidInputError) as caught:
        run(tuner(backend, tmp_path, estimator=estimator, search=search, objective="vall_loss"))
    text = str(caught.value)
    for expected in ("checkpoints_path", "did you mean 'val_loss'", "image_uri", "instance_type"):
        assert expected in text, text
    assert not backend.jobs
    assert not (tmp_path / "journal.jsonl").exists()
    with refused(InvalidInputError, "estimator"):
        Tuner(lambda config: {"loss": 1.0}, {"x": Uniform(0, 1)}).plan()


def test_a_plan_of_a_trial_is_shown_without_sending(tmp_path: Path) -> None:
    backend = FakeJobs(falling)
    plan = tuner(backend, tmp_path / "digits").plan()
    assert plan.request.training_job_name == "digits-0"
    assert [one.name for one in plan.request.hyperparameters] == ["lr"]
    assert not backend.jobs


def test_samplers_of_optuna_and_several_objectives(tmp_path: Path) -> None:
    backend = FakeJobs(falling)
    sampler = optuna.samplers.RandomSampler(seed=3)
    assert len(run(tuner(backend, tmp_path, sampler=sampler, trials=4))) == 4
    more = run(tuner(backend, tmp_path, sampler=sampler, trials=8))
    assert len({trial.params["lr"] for trial in more}) == 8  # after a restart, no values come again


def test_jobs_are_stopped_at_the_end_of_the_time_and_run_again_later(tmp_path: Path) -> None:
    def search(limit_s: float) -> tuple[FakeJobs, Path, Any]:
        backend, folder = FakeJobs(falling), tmp_path / f"{limit_s}"
        backend.is_paused = True
        return backend, folder, run(tuner(backend, folder, parallel=3, timeout=limit_s))

    backend, folder, trials = long_enough(search, lambda found: len(found[2]) == 3, first_s=0.3)
    assert [trial.state for trial in trials] == ["running"] * 3
    assert [job.status for job in backend.jobs.values()] == ["Terminated"] * 3
    backend.is_paused = False
    again = run(tuner(backend, folder, parallel=3, timeout=600))
    assert [trial.state for trial in again] == ["complete"] * 12
    assert len(backend.jobs) == 15
    with refused(InvalidInputError, "trial_timeout"):
        tuner(backend, tmp_path, trial_timeout=1)
