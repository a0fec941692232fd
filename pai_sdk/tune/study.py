"""A study in its folder: what Optuna knows of it, and the rules by which trials begin and end.

The records of a trial, each committed before the next step is taken:

    asked: number and hyperparameters ──▶ job submitted ──▶ values reported ──▶ told: complete, pruned, failed
                                                              └──▶ marked as pruned ──▶ its job stopped ──┘

So a process that is killed anywhere leaves enough for the next one. The job of a trial has a key made of the
study's id, the number of the trial and of the attempt; submitting it again gives the same job.
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

from pai_sdk.errors import InvalidInputError, PaiError, Problem, RunNotFoundError, StorageError, TuningFailed
from pai_sdk.tune.journal import StudyJournal
from pai_sdk.tune.objectives import Objective, StepValue
from pai_sdk.tune.population import PopulationBased
from pai_sdk.tune.pruners import is_learning, pruner_of_study, teach
from pai_sdk.tune.samplers import PopulationSampler, SeededSampler, distribution_of, generation_before
from pai_sdk.tune.space import SearchSpace
from pai_sdk.tune.trials import Trial, TrialList

__all__ = ["EarlierTrial", "LiveTrial", "Study", "StudyRules"]

_NAME = "study"  # of the one study in a journal
_META = "pai_sdk"
_LONGEST = "longest_step"  # in the metadata: what the pruner has learned from
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
    """A trial of another study, or an earlier run: its hyperparameters, values of objectives and constraints."""

    params: Mapping[str, Any]
    values: Sequence[float]
    origin: str = ""
    constraints: Sequence[float] = ()


@dataclass(frozen=True)
class StudyRules:
    """What a study is created with.

    Attributes:
        space: the ranges.
        objectives: what is searched for.
        make_sampler: from the seed and the number of earlier trials to the sampler.
        pruner: ends trials early.
        seed: None for a random one.
        earlier: gives the trials to begin with; called when the study is created.
        population: the settings of population-based training; None with other samplers.
    """

    space: SearchSpace
    objectives: Sequence[Objective]
    make_sampler: Callable[[int, int], BaseSampler]
    pruner: BasePruner
    seed: int | None = None
    earlier: Callable[[], Sequence[EarlierTrial]] = list
    population: PopulationBased | None = None


@dataclass
class LiveTrial:
    """A trial that has not ended.

    Attributes:
        trial: as Optuna knows it.
        params: its hyperparameters.
        attempt: how often its job was lost, and had to be submitted again.
        job_id: of its job; empty before the submission.
        pruned_at: the step at which it was pruned, while its job has not been stopped.
        points: the values of each metric so far, by the metric.
        is_new: it was asked for by this process, so it cannot have a job yet.
        parent: the trial whose checkpoint it begins with, in a population.
        parent_job: the job of that trial; empty if it is a function.
    """

    trial: optuna.trial.Trial
    params: dict[str, Any]
    attempt: int = 0
    job_id: str = ""
    pruned_at: int | None = None
    points: dict[str, list[StepValue]] = field(default_factory=dict)
    is_new: bool = False
    parent: int | None = None
    parent_job: str = ""
    _reported: set[int] = field(default_factory=set)

    @property
    def number(self) -> int:
        """Its number in the study."""
        return self.trial.number


class Study:
    """A study, for one driver, or for readers.

    Used by one thread at a time.

    Args:
        journal: its records.
        uri: of its folder.
        found: as Optuna has it.
        pruner: ends trials early.
        session: where its jobs are.
    """

    def __init__(
        self, journal: StudyJournal, uri: str, found: optuna.Study, pruner: BasePruner, session: Any = None
    ) -> None:
        meta = found.user_attrs[_META]
        self.id: str = meta["id"]
        self.seed: int = meta["seed"]
        self.uri = uri
        self.space = SearchSpace.from_json(meta["search"])
        self.objectives = [Objective(*one) for one in meta["objectives"]]
        self.population = PopulationBased(**meta["population"]) if "population" in meta else None
        self.optuna = found
        self.prunes = not isinstance(pruner, NopPruner)
        self._pruner = pruner
        self._has_learned = not is_learning(pruner)
        self._skipped: int = meta["skipped"]
        self._journal = journal
        self._distributions = {name: distribution_of(one) for name, one in self.space.ranges.items()}
        self._session = session
        self._is_exhausted = False
        # Samplers of a grid stop the study after its last point, which Optuna allows in `optimize` only.
        found.stop = self._stop  # type: ignore[method-assign]

    @classmethod
    def create(cls, journal: StudyJournal, uri: str, rules: StudyRules, session: Any = None) -> Study:
        """A new study, with the earlier trials."""
        earlier = rules.earlier()
        seed = secrets.randbelow(2**31) if rules.seed is None else rules.seed
        pruner = pruner_of_study(rules.pruner)
        meta = {
            "id": uuid.uuid4().hex,
            "seed": seed,
            "search": rules.space.to_json(),
            "objectives": [one.to_json() for one in rules.objectives],
            "skipped": len(earlier),
        }
        if rules.population is not None:
            meta["population"] = rules.population.to_json()
        with _quiet():
            found = optuna.create_study(
                storage=_storage(journal),
                study_name=_NAME,
                directions=[one.direction or "minimize" for one in rules.objectives],
                sampler=rules.make_sampler(seed, len(earlier)),
                pruner=pruner,
            )
        found.set_user_attr(_META, meta)
        distributions = {name: distribution_of(one) for name, one in rules.space.ranges.items()}
        for one in earlier:
            found.add_trial(
                optuna.trial.create_trial(
                    params=dict(one.params),
                    distributions=distributions,
                    values=[float(value) for value in one.values],
                    user_attrs={_EARLIER: True, _REASON: one.origin},
                    system_attrs={_CONSTRAINTS: [*one.constraints]} if one.constraints else {},
                )
            )
        journal.commit()
        return cls(journal, uri, found, pruner, session)

    @classmethod
    def load(cls, journal: StudyJournal, uri: str, rules: StudyRules | None = None, session: Any = None) -> Study:
        """A study that exists.

        Args:
            journal: its records.
            uri: of its folder.
            rules: to continue it; None to read it.
            session: where its jobs are.

        Raises:
            RunNotFoundError: there is none.
            StorageError: its records are damaged, or of another program.
            InvalidInputError: it has another search space, other objectives, or another population.
        """
        if not len(journal):
            raise RunNotFoundError(f"there is no study in {uri}", run_id=uri)
        pruner = NopPruner() if rules is None else pruner_of_study(rules.pruner)
        try:
            found = optuna.load_study(study_name=_NAME, storage=_storage(journal), pruner=pruner)
            if _META not in found.user_attrs:
                raise StorageError(f"the study in {uri} is one of another program: no tuner has made it")
            study = cls(journal, uri, found, pruner, session)
        except PaiError:
            raise
        except Exception as error:  # whatever Optuna makes of records that are missing, or of another program
            what = f"the journal of the study in {uri} is damaged, or of another program"
            raise StorageError(f"{what}: {type(error).__name__}: {error}") from error
        if rules is not None:
            study._check(rules)
            study.space = rules.space  # with named tuples, for example, which the journal has as tuples
            study._continue_population(rules.population)
            study._learn()
            found.sampler = rules.make_sampler(study.seed, study._skipped)
            if not isinstance(found.sampler, SeededSampler):
                found.sampler.reseed_rng()  # else it would draw the values of the first trials again
        return study

    def _check(self, rules: StudyRules) -> None:
        problems = []
        hint = "give another study, with warm_start= the URI of this one"
        if not rules.space.continues(self.space):
            problems.append(Problem("search", f"is not that of the study {self.uri}", hint))
        if [one.to_json() for one in rules.objectives] != [one.to_json() for one in self.objectives]:
            text = ", ".join(f"{one.metric} ({one.direction}, at {one.at})" for one in self.objectives)
            problems.append(Problem("objective", f"is not that of the study {self.uri}: {text}", hint))
        if rules.seed is not None and rules.seed != self.seed:
            problems.append(Problem("seed", f"is not that of the study {self.uri}, which is {self.seed}", hint))
        mine, given = self.population, rules.population
        if not (given is None if mine is None else mine.decides_like(given)):
            kind = "one without a population" if mine is None else f"{mine}"
            problems.append(Problem("sampler", f"is not that of the study {self.uri}: {kind}", hint))
        if problems:
            raise InvalidInputError(problems)

    def _continue_population(self, given: PopulationBased | None) -> None:
        """Note another number of generations."""
        if given is not None and given != self.population:
            self.population = given
            self._set_meta("population", given.to_json())
            self.commit()

    def _set_meta(self, name: str, value: Any) -> None:
        self.optuna.set_user_attr(_META, {**self.optuna.user_attrs[_META], name: value})

    # ---- what there is

    def trials(self) -> TrialList:
        """All trials."""
        found = self.optuna.get_trials(deepcopy=False)
        return TrialList([self._trial(one) for one in found], self.objectives)

    def best_trials(self) -> TrialList:
        """The trials that no other one beats in all objectives; of one objective, the best trial."""
        if len(self.objectives) == 1:
            best = self.trials().best
            return TrialList([best] if best else [], self.objectives)
        return TrialList([self._trial(one) for one in self.optuna.best_trials], self.objectives)

    @property
    def begun(self) -> int:
        """How many trials have begun, without the earlier ones."""
        return len(self.optuna.get_trials(deepcopy=False)) - self._skipped

    def failures(self) -> dict[int, str]:
        """Why trials failed that count as failures, by their numbers."""
        found = self.optuna.get_trials(deepcopy=False, states=(TrialState.FAIL,))
        return {one.number: one.user_attrs.get(_REASON, "") for one in found if one.user_attrs.get(_COUNTED)}

    def _trial(self, one: FrozenTrial) -> Trial:
        attrs = one.user_attrs
        seconds = one.duration.total_seconds() if one.duration is not None else None
        return Trial(
            one.number,
            _STATES[one.state],
            self.space.decoded(one.params),
            {o.metric: value for o, value in zip(self.objectives, one.values or (), strict=False)},
            steps=one.last_step,
            job_id=attrs.get(_JOB, ""),
            run=attrs.get(_RUN, ""),
            reason=attrs.get(_REASON, ""),
            seconds=None if attrs.get(_EARLIER) else seconds,
            is_earlier=bool(attrs.get(_EARLIER)),
            parent=attrs.get(_PARENT),
            constraints=_constraints(one),
            _session=self._session,
        )

    # ---- the way of a trial

    def unfinished(self) -> list[LiveTrial]:
        """The trials that have begun and not ended, as an earlier process has left them."""
        found = self.optuna.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
        return [self._live(optuna.trial.Trial(self.optuna, one._trial_id), one) for one in found]

    def next(self, trials: int) -> LiveTrial | None:
        """Begin the next trial.

        Args:
            trials: how many the study is to have.

        Returns:
            The trial; None when all have begun or the sampler has no more values, or while the generation before
            it has not ended.

        Raises:
            TuningFailed: all trials of the generation before it failed, also of the last generation.
        """
        number = self.begun
        if self._is_exhausted:
            return None
        return self.ask() if self._earlier_generation_ended(number) and number < trials else None

    def _earlier_generation_ended(self, number: int) -> bool:
        """True if the trials of the generation before that of a trial have all ended.

        Raises:
            TuningFailed: all of them have failed.
        """
        if self.population is None:
            return True
        before = generation_before(self.population, self.optuna, number)
        if any(one.state == TrialState.RUNNING for one in before):
            return False
        if before and all(one.state == TrialState.FAIL for one in before):
            reasons = {one.number: one.user_attrs.get(_REASON, "") for one in before}
            generation = self.population.generation_of(number) - 1
            raise TuningFailed(reasons, study=self.uri, trials=number, generation=generation)
        return True

    def ask(self) -> LiveTrial:
        """Begin a trial. It is committed with the next commit, with all of its hyperparameters and its parent.

        Raises:
            InvalidInputError: the sampler raises, as one of Optuna does that does not fit the search space.
        """
        try:
            trial = self.optuna.ask(self._distributions)
        except Exception as error:
            self._journal.abandon()  # it has a trial without all of its hyperparameters
            what = f"has no values for trial {self.begun - 1}: {type(error).__name__}: {error}"
            missing = getattr(error, "name", None) if isinstance(error, ImportError) else None
            raise InvalidInputError(
                [Problem("sampler", what, f"run: pip install {missing}" if missing else "")]
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

    def _live(self, trial: optuna.trial.Trial, one: FrozenTrial) -> LiveTrial:
        attrs = one.user_attrs
        live = LiveTrial(trial, self.space.decoded(one.params), attrs.get(_ATTEMPT, 0), attrs.get(_JOB, ""))
        live.pruned_at = attrs.get(_PRUNED_AT)
        live._reported = {*one.intermediate_values}
        self._set_parent(live, attrs.get(_PARENT))
        return live

    def key(self, live: LiveTrial) -> str:
        """The idempotency key of the trial's job."""
        return f"tune-{self.id}-{live.number}-{live.attempt}"

    def submitted(self, live: LiveTrial, job_id: str) -> None:
        """Note the job of a trial."""
        live.job_id = job_id
        live.trial.set_user_attr(_JOB, job_id)

    def ran_in(self, live: LiveTrial, folder: str) -> None:
        """Note the run of a trial that is a function."""
        live.trial.set_user_attr(_RUN, folder)

    def lost(self, live: LiveTrial) -> None:
        """The job of a trial was lost through no fault of its own: it is to be submitted again."""
        live.attempt, live.job_id, live.is_new = live.attempt + 1, "", False
        live.points.clear()
        live.trial.set_user_attr(_ATTEMPT, live.attempt)
        live.trial.set_user_attr(_JOB, "")
        self.commit()

    def report(self, live: LiveTrial, points: Sequence[StepValue]) -> bool:
        """Hand new values of the objective to the pruner, one after the other.

        The decision depends on the values and their order, and not on when they arrive.

        Args:
            live: the trial.
            points: its values so far; those that are known already are passed over.

        Returns:
            Whether the trial is pruned. `live.pruned_at` is then the step, and this is committed.
        """
        if not self.prunes or live.pruned_at is not None:
            return live.pruned_at is not None
        for point in points:
            if point.step in live._reported or point.step < 0:
                continue
            live._reported.add(point.step)
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
        """Before a decision, and after a restart: have the pruner learn from the same trial."""
        if self._has_learned:
            return
        longest = self.optuna.user_attrs[_META].get(_LONGEST)
        if longest is None:
            complete = self.optuna.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
            longest = max((one.last_step for one in complete if one.last_step is not None), default=None)
            if longest is None:
                return
            self._set_meta(_LONGEST, longest)  # committed with the decision
        with _quiet():
            teach(self._pruner, longest)
        self._has_learned = True

    def end(self, live: LiveTrial) -> str:
        """End a trial whose values are all there; returns its state.

        One whose values are not all there has failed. A value that is not a number is no failure that counts:
        a learning rate was too high.
        """
        values: list[float] = []
        for one in self.objectives:
            value = one.value_of(live.points.get(one.metric, ()))
            if value is None:
                self.fail(live, _missing(one, live))
                return "failed"
            if math.isnan(value):
                self.fail(live, f"{one.metric} is not a number", counts=False)
                return "failed"
            values.append(value)
        self.optuna.tell(live.trial, values)
        self.commit()
        return "complete"

    def prune(self, live: LiveTrial) -> None:
        """End a trial that is pruned."""
        self.optuna.tell(live.trial, state=TrialState.PRUNED)
        self.commit()

    def fail(self, live: LiveTrial, reason: str, *, counts: bool = True) -> None:
        """End a trial that has failed.

        Args:
            live: the trial.
            reason: why.
            counts: whether it counts as one of the failures that end a search.
        """
        live.trial.set_user_attr(_REASON, reason)
        live.trial.set_user_attr(_COUNTED, counts)
        self.optuna.tell(live.trial, state=TrialState.FAIL)
        self.commit()

    def commit(self) -> None:
        """Write what has changed."""
        self._journal.commit()


def _constraints(one: FrozenTrial) -> tuple[float, ...]:
    """Returns the constraints of a trial: a list before Optuna 5, values by their names since then."""
    attrs = one.system_attrs
    named = [value for name, value in attrs.items() if name.startswith(f"{_CONSTRAINTS}:")]
    return tuple(float(value) for value in (*(attrs.get(_CONSTRAINTS) or ()), *named))


def _missing(one: Objective, live: LiveTrial) -> str:
    points = live.points.get(one.metric)
    if points:
        return f"has no {one.metric} at step {one.at}; the last step is {points[-1].step}"
    others = ", ".join(sorted(name for name in live.points if live.points[name]))
    return f"did not report {one.metric!r}; it reported {others or 'nothing'}"


@contextmanager
def _quiet() -> Iterator[None]:
    """Within it, Optuna does not announce the study that it creates."""
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
