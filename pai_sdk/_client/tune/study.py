"""A study in its folder: Optuna's study, and the rules for starting and finishing trials.

The records of a trial, each committed before the next step:

    asked: number and hyperparameters ──▶ job submitted ──▶ values reported ──▶ told: complete, pruned, failed
                                                              └──▶ marked as pruned ──▶ its job stopped ──┘

So a process that is killed at any point leaves enough for the next one. The job of a trial has a key of the
study's id, the number of the trial and of the attempt; submitting it again returns the existing job.
"""

from __future__ import annotations

import math
import secrets
import uuid
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import optuna
from optuna.exceptions import ExperimentalWarning
from optuna.pruners import BasePruner, NopPruner
from optuna.samplers import BaseSampler
from optuna.storages import JournalStorage
from optuna.trial import FrozenTrial, TrialState

from pai_sdk._client.tune.journal import StudyJournal
from pai_sdk._client.tune.objectives import Objective, StepValue
from pai_sdk._client.tune.population import PopulationBased
from pai_sdk._client.tune.samplers import (
    PopulationSampler,
    SeededSampler,
    distribution_of,
    generation_before,
    is_learning,
    pruner_of_study,
    teach,
)
from pai_sdk._client.tune.space import SearchSpace
from pai_sdk._client.tune.trials import Trial, TrialList
from pai_sdk.errors import InvalidInputError, PaiError, Problem, RunNotFoundError, StorageError, TuningFailed

_NAME = "study"  # of the one study in a journal
_META = "pai_sdk"
_MAX_STEP = "longest_step"  # in the metadata: the last step of the trial that the pruner has learned from
_JOB, _ATTEMPT, _REASON, _PRUNED_AT, _COUNTED, _RUN, _EARLIER, _PARENT = (
    "job",
    "attempt",
    "reason",
    "pruned_at",
    "counts_as_failure",
    "run",
    "earlier",
    "parent",
)
_CONSTRAINTS = "constraints"  # Optuna's system attribute
_STATES = {
    TrialState.RUNNING: "running",
    TrialState.WAITING: "running",
    TrialState.COMPLETE: "complete",
    TrialState.PRUNED: "pruned",
    TrialState.FAIL: "failed",
}


@dataclass(frozen=True)
class EarlierTrial:
    """A trial of another study, or an earlier run: hyperparameters, values of objectives and constraints."""

    params: Mapping[str, Any]
    values: Sequence[float]
    origin: str = ""
    constraints: Sequence[float] = ()


@dataclass(frozen=True)
class StudyRules:
    """The arguments to create a study, or to check those of an existing one."""

    space: SearchSpace
    objectives: Sequence[Objective]
    make_sampler: Callable[[int, int], BaseSampler]  # from the seed and the number of earlier trials
    pruner: BasePruner
    seed: int | None = None  # random if None
    # The trials of the warm start; called only when the study is created.
    earlier: Callable[[], Sequence[EarlierTrial]] = list
    population: PopulationBased | None = None  # None with other samplers

    def check(self, study: Study) -> None:
        """Raises InvalidInputError if an existing study has other rules; a new pruner or sampler is allowed."""
        problems = []
        hint = "give another study, with warm_start= the URI of this one"
        if not self.space.continues(study.space):
            problems.append(Problem("search", f"is not that of the study {study.uri}", hint))
        objectives = [objective.to_json() for objective in study.objectives]
        if [objective.to_json() for objective in self.objectives] != objectives:
            described = ", ".join(f"{each.metric} ({each.direction}, at {each.at})" for each in study.objectives)
            problems.append(Problem("objective", f"is not that of the study {study.uri}: {described}", hint))
        if self.seed is not None and self.seed != study.seed:
            problems.append(Problem("seed", f"is not that of the study {study.uri}, which is {study.seed}", hint))
        population, requested = study.population, self.population
        if not (requested is None if population is None else population.decides_like(requested)):
            kind = "one without a population" if population is None else f"{population}"
            problems.append(Problem("sampler", f"is not that of the study {study.uri}: {kind}", hint))
        if problems:
            raise InvalidInputError(problems)


@dataclass
class LiveTrial:
    """A trial that is not finished."""

    trial: optuna.trial.Trial
    params: dict[str, Any]
    attempt: int = 0  # how often the job was lost, and had to be submitted again
    job_id: str = ""  # empty before the submission
    pruned_at: int | None = None  # the step, while its job has not been stopped
    points: dict[str, list[StepValue]] = field(default_factory=dict)  # by metric
    is_new: bool = False  # this process has created it, so that it cannot have a job yet
    parent: int | None = None  # the trial whose checkpoint it starts from, in a population
    parent_job: str = ""  # empty if the parent is a function
    reported: set[int] = field(default_factory=set)

    @property
    def number(self) -> int:
        """The number of the trial in the study."""
        return self.trial.number


class Study:
    """A study, for one driver or for readers. Used by one thread at a time."""

    def __init__(
        self, journal: StudyJournal, uri: str, optuna_study: optuna.Study, pruner: BasePruner, session: Any = None
    ) -> None:
        meta = optuna_study.user_attrs[_META]
        self.id: str = meta["id"]
        self.seed: int = meta["seed"]
        self.uri = uri
        self.space = SearchSpace.from_json(meta["search"])
        self.objectives = [Objective(*item) for item in meta["objectives"]]
        self.population = PopulationBased(**meta["population"]) if "population" in meta else None
        self.optuna = optuna_study
        self.prunes = not isinstance(pruner, NopPruner)
        self._pruner = pruner
        self._has_learned = not is_learning(pruner)
        self._skipped: int = meta["skipped"]
        self._journal = journal
        self._distributions = {name: distribution_of(item) for name, item in self.space.ranges.items()}
        self._session = session
        self._is_exhausted = False
        # Samplers of a grid stop the study after its last point, which Optuna allows in `optimize` only.
        optuna_study.stop = self._stop  # type: ignore[method-assign]

    @classmethod
    def create(cls, journal: StudyJournal, uri: str, rules: StudyRules, session: Any = None) -> Study:
        """Creates a study, with the earlier trials."""
        earlier = rules.earlier()
        seed = secrets.randbelow(2**31) if rules.seed is None else rules.seed
        pruner = pruner_of_study(rules.pruner)
        meta = {
            "id": uuid.uuid4().hex,
            "seed": seed,
            "search": rules.space.to_json(),
            "objectives": [objective.to_json() for objective in rules.objectives],
            "skipped": len(earlier),
        }
        if rules.population is not None:
            meta["population"] = rules.population.to_json()
        with _quiet():
            optuna_study = optuna.create_study(
                storage=_storage(journal),
                study_name=_NAME,
                directions=[objective.direction or "minimize" for objective in rules.objectives],
                sampler=rules.make_sampler(seed, len(earlier)),
                pruner=pruner,
            )
        optuna_study.set_user_attr(_META, meta)
        distributions = {name: distribution_of(value_range) for name, value_range in rules.space.ranges.items()}
        for trial in earlier:
            optuna_study.add_trial(
                optuna.trial.create_trial(
                    params=dict(trial.params),
                    distributions=distributions,
                    values=[float(value) for value in trial.values],
                    user_attrs={_EARLIER: True, _REASON: trial.origin},
                    system_attrs={_CONSTRAINTS: [*trial.constraints]} if trial.constraints else {},
                )
            )
        journal.commit()
        return cls(journal, uri, optuna_study, pruner, session)

    @classmethod
    def load(cls, journal: StudyJournal, uri: str, rules: StudyRules | None = None, session: Any = None) -> Study:
        """Loads an existing study: with `rules` to continue it, without to read it."""
        if not len(journal):
            raise RunNotFoundError(f"there is no study in {uri}", run_id=uri)
        pruner = NopPruner() if rules is None else pruner_of_study(rules.pruner)
        try:
            optuna_study = optuna.load_study(study_name=_NAME, storage=_storage(journal), pruner=pruner)
            if _META not in optuna_study.user_attrs:
                raise StorageError(f"the study in {uri} belongs to another program: no tuner has created it")
            study = cls(journal, uri, optuna_study, pruner, session)
        except PaiError:
            raise
        except Exception as error:  # of any kind: Optuna does not check missing or foreign records
            message = f"the journal of the study in {uri} is damaged, or of another program"
            raise StorageError(f"{message}: {type(error).__name__}: {error}") from error
        if rules is not None:
            rules.check(study)
            study.space = rules.space  # may have named tuples, which the journal stores as plain tuples
            study._continue_population(rules.population)
            study._learn()
            optuna_study.sampler = rules.make_sampler(study.seed, study._skipped)
            if not isinstance(optuna_study.sampler, SeededSampler):
                optuna_study.sampler.reseed_rng()  # otherwise it would draw the values of the first trials again
        return study

    def _continue_population(self, population: PopulationBased | None) -> None:
        """Records another number of generations."""
        if population is not None and population != self.population:
            self.population = population
            self._set_meta("population", population.to_json())
            self.commit()

    def _set_meta(self, name: str, value: Any) -> None:
        self.optuna.set_user_attr(_META, {**self.optuna.user_attrs[_META], name: value})

    # ---- reading

    def trials(self) -> TrialList:
        """Returns all trials."""
        trials = self.optuna.get_trials(deepcopy=False)
        return TrialList([self._trial(trial) for trial in trials], self.objectives)

    def best_trials(self) -> TrialList:
        """Returns the Pareto-optimal trials; for one objective, the best trial."""
        if len(self.objectives) == 1:
            best = self.trials().best
            return TrialList([best] if best else [], self.objectives)
        return TrialList([self._trial(trial) for trial in self.optuna.best_trials], self.objectives)

    @property
    def num_started(self) -> int:
        """The number of started trials, without the earlier ones."""
        return len(self.optuna.get_trials(deepcopy=False)) - self._skipped

    def failures(self) -> dict[int, str]:
        """Returns the reasons of failed trials that count as failures, by number."""
        trials = self.optuna.get_trials(deepcopy=False, states=(TrialState.FAIL,))
        return {
            trial.number: trial.user_attrs.get(_REASON, "") for trial in trials if trial.user_attrs.get(_COUNTED)
        }

    def _trial(self, trial: FrozenTrial) -> Trial:
        attrs = trial.user_attrs
        seconds = trial.duration.total_seconds() if trial.duration is not None else None
        return Trial(
            trial.number,
            _STATES[trial.state],
            self.space.decoded(trial.params),
            {o.metric: value for o, value in zip(self.objectives, trial.values or (), strict=False)},
            steps=trial.last_step,
            job_id=attrs.get(_JOB, ""),
            run=attrs.get(_RUN, ""),
            reason=attrs.get(_REASON, ""),
            seconds=None if attrs.get(_EARLIER) else seconds,
            is_earlier=bool(attrs.get(_EARLIER)),
            parent=attrs.get(_PARENT),
            constraints=_constraints(trial),
            _session=self._session,
        )

    # ---- the life of a trial

    def unfinished(self) -> list[LiveTrial]:
        """Returns the started and unfinished trials of an earlier process."""
        trials = self.optuna.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
        return [self._live(optuna.trial.Trial(self.optuna, trial._trial_id), trial) for trial in trials]

    def next(self, trials: int) -> LiveTrial | None:
        """Starts the next trial; None if there is none, or while the previous generation is not finished."""
        number = self.num_started
        if self._is_exhausted:
            return None
        return self.ask() if self._is_previous_generation_finished(number) and number < trials else None

    def _is_previous_generation_finished(self, number: int) -> bool:
        """Returns whether the generation before that of a trial is finished; raises if all of it failed."""
        if self.population is None:
            return True
        before = generation_before(self.population, self.optuna, number)
        if any(trial.state == TrialState.RUNNING for trial in before):
            return False
        if before and all(trial.state == TrialState.FAIL for trial in before):
            reasons = {trial.number: trial.user_attrs.get(_REASON, "") for trial in before}
            generation = self.population.generation_of(number) - 1
            raise TuningFailed(reasons, study=self.uri, trials=number, generation=generation)
        return True

    def ask(self) -> LiveTrial:
        """Starts a trial. The next commit writes it, with all hyperparameters and the parent."""
        try:
            trial = self.optuna.ask(self._distributions)
        except Exception as error:
            self._journal.abandon()  # the pending records have a trial with missing hyperparameters
            message = f"has no values for trial {self.num_started - 1}: {type(error).__name__}: {error}"
            missing = getattr(error, "name", None) if isinstance(error, ImportError) else None
            raise InvalidInputError(
                [Problem("sampler", message, f"run: pip install {missing}" if missing else "")]
            ) from error
        live = LiveTrial(trial, self.space.decoded(trial.params), is_new=True)
        if isinstance(self.optuna.sampler, PopulationSampler):
            self._set_parent(live, self.optuna.sampler.parent(self.optuna, trial.number))
            if live.parent is not None:
                trial.set_user_attr(_PARENT, live.parent)
        return live

    def _stop(self) -> None:
        self._is_exhausted = True

    def _set_parent(self, live: LiveTrial, parent: int | None) -> None:
        live.parent = parent
        if parent is not None:
            live.parent_job = self.optuna.get_trials(deepcopy=False)[parent].user_attrs.get(_JOB, "")

    def _live(self, trial: optuna.trial.Trial, frozen: FrozenTrial) -> LiveTrial:
        attrs = frozen.user_attrs
        live = LiveTrial(trial, self.space.decoded(frozen.params), attrs.get(_ATTEMPT, 0), attrs.get(_JOB, ""))
        live.pruned_at = attrs.get(_PRUNED_AT)
        live.reported = {*frozen.intermediate_values}
        self._set_parent(live, attrs.get(_PARENT))
        return live

    def key(self, live: LiveTrial) -> str:
        """Returns the idempotency key of the trial's job."""
        return f"tune-{self.id}-{live.number}-{live.attempt}"

    def submitted(self, live: LiveTrial, job_id: str) -> None:
        """Records the job of a trial."""
        live.job_id = job_id
        live.trial.set_user_attr(_JOB, job_id)

    def ran_in(self, live: LiveTrial, folder: str) -> None:
        """Records the run of a trial that is a function."""
        live.trial.set_user_attr(_RUN, folder)

    def lost(self, live: LiveTrial) -> None:
        """Records that the job of a trial was lost by an interruption, so that it is submitted again."""
        live.attempt, live.job_id, live.is_new = live.attempt + 1, "", False
        live.points.clear()
        live.trial.set_user_attr(_ATTEMPT, live.attempt)
        live.trial.set_user_attr(_JOB, "")
        self.commit()

    def report(self, live: LiveTrial, points: Sequence[StepValue]) -> bool:
        """Passes values that are new to the pruner, in their order; returns whether the trial is pruned."""
        if not self.prunes or live.pruned_at is not None:
            return live.pruned_at is not None
        for point in points:
            # The decision depends on the values and their order, never on their time of arrival.
            if point.step in live.reported or point.step < 0:
                continue
            live.reported.add(point.step)
            live.trial.report(point.value, point.step)
            self._learn()
            if live.trial.should_prune():
                live.pruned_at = point.step
                live.trial.set_user_attr(_PRUNED_AT, point.step)
                live.trial.set_user_attr(_REASON, f"pruned at step {point.step}")
                break
        self.commit()
        return live.pruned_at is not None

    def _learn(self) -> None:
        """Makes the pruner learn from the recorded trial, before a decision and after a restart."""
        if self._has_learned:
            return
        max_step = self.optuna.user_attrs[_META].get(_MAX_STEP)
        if max_step is None:
            complete = self.optuna.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
            max_step = max((trial.last_step for trial in complete if trial.last_step is not None), default=None)
            if max_step is None:
                return
            self._set_meta(_MAX_STEP, max_step)  # committed with the decision, so that a restart repeats it
        with _quiet():
            teach(self._pruner, max_step)
        self._has_learned = True

    def end(self, live: LiveTrial) -> str:
        """Finishes a trial and returns its state; a trial with missing values has failed."""
        values: list[float] = []
        for objective in self.objectives:
            value = objective.value_of(live.points.get(objective.metric, ()))
            if value is None:
                self.fail(live, _missing(objective, live))
                return "failed"
            if math.isnan(value):
                # Does not count as a failure of the search: the usual cause is a learning rate that is too high.
                self.fail(live, f"{objective.metric} is not a number", counts=False)
                return "failed"
            values.append(value)
        self.optuna.tell(live.trial, values)
        self.commit()
        return "complete"

    def prune(self, live: LiveTrial) -> None:
        """Finishes a trial that is pruned."""
        self.optuna.tell(live.trial, state=TrialState.PRUNED)
        self.commit()

    def fail(self, live: LiveTrial, reason: str, *, counts: bool = True) -> None:
        """Finishes a trial that has failed; `counts` tells whether it counts for `max_failures`."""
        live.trial.set_user_attr(_REASON, reason)
        live.trial.set_user_attr(_COUNTED, counts)
        self.optuna.tell(live.trial, state=TrialState.FAIL)
        self.commit()

    def commit(self) -> None:
        """Writes pending records."""
        self._journal.commit()


def _constraints(trial: FrozenTrial) -> tuple[float, ...]:
    """Returns the constraints of a trial: a list before Optuna 5, values by their names since then."""
    attrs = trial.system_attrs
    by_name = [value for name, value in attrs.items() if name.startswith(f"{_CONSTRAINTS}:")]
    return tuple(float(value) for value in (*(attrs.get(_CONSTRAINTS) or ()), *by_name))


def _missing(objective: Objective, live: LiveTrial) -> str:
    points = live.points.get(objective.metric)
    if points:
        return f"has no {objective.metric} at step {objective.at}; the last step is {points[-1].step}"
    other_metrics = ", ".join(sorted(name for name in live.points if live.points[name]))
    return f"did not report {objective.metric!r}; it reported {other_metrics or 'nothing'}"


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppresses Optuna's log line for the study that it creates."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(max(before, optuna.logging.WARNING))
    try:
        yield
    finally:
        optuna.logging.set_verbosity(before)


def _storage(journal: StudyJournal) -> JournalStorage:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        return JournalStorage(journal)
