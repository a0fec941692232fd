"""Tuner: a search for the best hyperparameters of an estimator, or of a function."""

from __future__ import annotations

import copy
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

from pai_sdk.base.extras import missing_extra
from pai_sdk.base.keywords import checks_keywords
from pai_sdk.base.short_traceback import short_tracebacks
from pai_sdk.errors import InvalidInputError, Problem
from pai_sdk.run.functions.calling import kind_of
from pai_sdk.schemas.arguments import check_one_of, seconds_or_none
from pai_sdk.schemas.values import python_value
from pai_sdk.storage.store import Store, open_store
from pai_sdk.storage.uri import uri_scheme
from pai_sdk.submit.job_names import base_of_command
from pai_sdk.submit.problems import Problems
from pai_sdk.submit.submitter import EstimatorBase
from pai_sdk.tune.objectives import Direction, Objective, checked_objectives
from pai_sdk.tune.population import (
    PopulationBased,
    check_combination,
    checked_population,
    settings_problems,
)
from pai_sdk.tune.space import SearchSpace, checked_space
from pai_sdk.tune.template import TrialTemplate, no_estimator
from pai_sdk.tune.trials import Trial, TrialList

if TYPE_CHECKING:
    from pai_sdk.backend.base import Plan
    from pai_sdk.job.follow.polling import FollowPolicy
    from pai_sdk.session import Session
    from pai_sdk.submit.channels import InputSource
    from pai_sdk.tune.study import EarlierTrial, Study

__all__ = ["Tuner"]

_TRIALS, _PARALLEL, _MAX_FAILURES = 20, 4, 5
_LONGEST_NAME = 60


@short_tracebacks
class Tuner:
    """Searches for the hyperparameters with which a metric is best. Optuna chooses them.

    A trial is a job, with its own log, outputs and checkpoints, on any backend; or a call of a function in this
    process. The study is a folder. A search that was interrupted or killed is continued by the same call with the
    same `study`: jobs that run are followed again, and no trial is submitted twice.

    Args:
        estimator: an `Estimator` or `AlgorithmEstimator`, also one of a function (`Estimator.from_function`); or a
            function `f(config)`, which is called in this process. A function returns the metrics, or yields or
            reports them step by step.
        search: name to range: `Uniform`, `LogUniform`, `IntRange`, `Choice`, a list of values, or a distribution
            of Optuna. Names are hyperparameters, or resources: `instance_type`, `instance_count`, `image_uri`, ….
        objective: the metric, or an `Objective`; several for the best compromises.
        direction: `minimize` or `maximize`; not needed where the name is clear, such as `loss` or `accuracy`.
        trials: how many trials the study is to have; with the sampler `grid`, all points by default. A population
            has `size * generations`.
        parallel: how many trials run at once.
        sampler: `tpe` (the default), `random`, `grid`, `cmaes`, `gp`, `nsga2`, `qmc`, or a sampler of Optuna; or
            `pbt` or a `PopulationBased`, whose trials go on from checkpoints of other trials.
        pruner: ends poor trials early: `asha`, `median`, `hyperband` or a pruner of Optuna; none by default.
        seed: decides which hyperparameters are tried, trial by trial, also after an interruption.
        study: the folder of the study: a URI, a path, or a name below `~/.pai/studies`; a new one by default.
        max_failures: the search ends when more trials than this have failed.
        timeout: the longest time of a run of the search, in seconds. Then `run` returns the trials so far; those
            that run are stopped, and run again when the study is continued.
        trial_timeout: the longest time of a trial that is a function, in seconds; a longer one fails. A job has
            the `max_run_time` of the estimator.
        warm_start: trials to begin with: the URI of another study or of a run store, a `Tuner`, jobs, or a list of
            them.
        session: whose keys `oss://` takes for the study; that of the estimator by default.

    Attributes:
        study: the URI of the study.
        has_given_study: whether the study was given, and is not a new one.

    Raises:
        InvalidInputError: with all that is wrong.
        MissingExtraError: the extra `[tune]` is not installed.

    Example:
        >>> from pai_sdk.tune import Uniform
        >>> def train(config):
        ...     return {"loss": (config["x"] - 0.25) ** 2}
        >>> tuner = Tuner(train, {"x": Uniform(0, 1)}, trials=30, seed=1)
        >>> tuner.run().best.value < 0.01
        True
    """

    @checks_keywords
    def __init__(
        self,
        estimator: EstimatorBase | Callable[..., Any],
        search: Mapping[str, Any],
        objective: str | Objective | Sequence[str | Objective] = "loss",
        *,
        direction: Direction | Sequence[Direction] | None = None,
        trials: int | None = None,
        parallel: int = _PARALLEL,
        sampler: Any = None,
        pruner: Any = None,
        seed: int | None = None,
        study: str | Path | None = None,
        max_failures: int = _MAX_FAILURES,
        timeout: float | None = None,
        trial_timeout: float | None = None,
        warm_start: Any = None,
        session: Session | None = None,
    ) -> None:
        search_module = _search_module()
        problems = Problems()
        self._estimator = estimator
        self._session = session or getattr(estimator, "session", None)
        self._space = checked_space(search, problems)
        self._objectives = checked_objectives(objective, direction, problems)
        population = checked_population(sampler, problems)
        sampler = population or sampler
        if population is not None:
            submitter = estimator if isinstance(estimator, EstimatorBase) else None
            check_combination(self._objectives, pruner, warm_start, submitter, problems)
        self._trials = _checked_trials(trials, sampler, self._space, problems)
        self._parallel = _checked_count("parallel", parallel, 1, problems)
        self._max_failures = _checked_count("max_failures", max_failures, 0, problems)
        self._timeout_s = _checked_seconds("timeout", timeout, problems)
        self._trial_timeout_s = _checked_seconds("trial_timeout", trial_timeout, problems)
        if trial_timeout is not None and isinstance(estimator, EstimatorBase):
            hint = "give the estimator a max_run_time"
            problems.add("trial_timeout", "is for functions, and the trials are jobs", hint)
        seed = python_value(seed)  # type: ignore[assignment] # checked next
        if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int)):
            problems.add("seed", f"{seed!r} is not a whole number")
        if not isinstance(estimator, EstimatorBase):
            _check_function(estimator, problems)
        with problems.under("study"):
            self._store = _store_of(study, _base_name(estimator), self._session)
        self.has_given_study = study is not None
        self._chosen = {"sampler": sampler, "pruner": pruner, "seed": seed, "trials": self._trials}
        self._rules = search_module.rules_of(
            self._space,
            self._objectives,
            sampler=sampler,
            pruner=pruner,
            seed=seed,
            warm_start=warm_start,
            session=self._session,
            problems=problems,
        )
        problems.raise_if_any()
        self.study = self._store.uri
        self._name = _name_of(self.study)
        self._running: Study | None = None

    @classmethod
    def load(
        cls,
        study: str | Path,
        estimator: EstimatorBase | Callable[..., Any] | None = None,
        *,
        session: Session | None = None,
        **options: Any,
    ) -> Tuner:
        """The tuner of a study that exists: to look at it from any process, or to continue it.

        Args:
            study: its URI, path or name.
            estimator: to continue it; without one, the tuner only shows it.
            session: whose keys `oss://` takes, and where the jobs are.
            options: `trials`, `parallel`, `sampler`, `pruner`, `max_failures`, `timeout`, `trial_timeout` of the
                tuner. The sampler of a population is that of the study by default.

        Raises:
            RunNotFoundError: there is no such study.

        Example:
            >>> def train(config):
            ...     return {"loss": config["x"] ** 2}
            >>> tuner = Tuner(train, {"x": [1, 2, 3]}, sampler="grid")
            >>> trials = tuner.run()
            >>> Tuner.load(tuner.study).best.params
            {'x': 1}
        """
        session = session or getattr(estimator, "session", None)
        store = _store_of(study, "", session)
        found = _search_module().opened_to_read(store, session)
        search = found.space.ranges
        if found.population is not None:
            options.setdefault("sampler", found.population)
        return cls(
            _shows_only if estimator is None else estimator,
            search,
            found.objectives,
            study=store.uri,
            session=session,
            **options,
        )

    def __repr__(self) -> str:
        return f"<Tuner {self.study}>"

    @property
    def estimator(self) -> EstimatorBase | Callable[..., Any]:
        """What is run for each trial."""
        return self._estimator

    @property
    def description(self) -> dict[str, Any]:
        """What decides which trials there are, as JSON has it; without the estimator."""
        chosen = {name: _as_plain(value) for name, value in self._chosen.items()}
        return {
            "search": self._space.to_json(),
            "objectives": [one.to_json() for one in self._objectives],
            **chosen,
        }

    def earlier_trials(self) -> Sequence[EarlierTrial]:
        """The trials that a new study would begin with: those of `warm_start`.

        Raises:
            InvalidInputError: `warm_start` has no such trial.
        """
        earlier: Sequence[EarlierTrial] = self._rules.earlier()
        return earlier

    def with_study(self, study: str | Path) -> Tuner:
        """The same search, in another study.

        Args:
            study: its URI, path or name.

        Raises:
            InvalidInputError: the URI cannot be read.
        """
        one = copy.copy(self)
        one._store = _store_of(study, "", self._session)
        one.study, one.has_given_study = one._store.uri, True
        one._name = _name_of(one.study)
        return one

    @checks_keywords
    def plan(self, inputs: Mapping[str, InputSource] | None = None) -> Plan:
        """The plan of a first trial's job, without network and upload; its hyperparameters are an example.

        Args:
            inputs: input channel to what fills it, for all trials.

        Raises:
            InvalidInputError: with all that is wrong with any trial; or the trials are calls of a function.
        """
        if not isinstance(self._estimator, EstimatorBase):
            raise InvalidInputError([Problem("estimator", "is a function, whose trials have no plan")])
        template = TrialTemplate(self._estimator, self._name)
        self._check(template, inputs)
        return template.plan(template.samples(self._space)[0], 0, None, inputs)[1]

    @checks_keywords
    def run(
        self,
        inputs: Mapping[str, InputSource] | None = None,
        *,
        show: bool = True,
        on_interrupt: Literal["detach", "stop"] = "detach",
        policy: FollowPolicy | None = None,
    ) -> TrialList:
        """Run the trials that are missing, and wait for them.

        Args:
            inputs: input channel to what fills it, for all trials.
            show: a live table in a terminal or a notebook, a line for each end elsewhere.
            on_interrupt: effect of Ctrl-C on running jobs: they continue, or they are stopped and waited for.
            policy: how patiently to follow.

        Returns:
            All trials, as a list that shows as a table; `.best` is the best one.

        Raises:
            InvalidInputError: a trial cannot be submitted; `problems` lists all that is wrong.
            InUseError: another process drives the study.
            TuningFailed: too many trials have failed, or none has succeeded.
            KeyboardInterrupt: Ctrl-C; its message has the state of the jobs.
        """
        check_one_of("on_interrupt", on_interrupt, ("detach", "stop"))
        if self._estimator is _shows_only:
            hint = "to continue the study: Tuner.load(study, estimator)"
            raise InvalidInputError([Problem("estimator", "is missing", hint)])
        if isinstance(self._estimator, EstimatorBase):
            self._check(TrialTemplate(self._estimator, self._name), inputs)
        elif inputs is not None:
            raise InvalidInputError([Problem("inputs", "are for jobs, and the trials are calls of a function")])
        session = self._estimator._session() if isinstance(self._estimator, EstimatorBase) else self._session
        search = _search_module().Search(
            self._store,
            self._name,
            self._rules,
            trials=self._trials,
            parallel=self._parallel,
            max_failures=self._max_failures,
            timeout_s=self._timeout_s,
            trial_timeout_s=self._trial_timeout_s,
            show=show,
            session=session,
        )
        with search.study() as study:
            self._running = study
            try:
                if not isinstance(self._estimator, EstimatorBase):
                    result: TrialList = search.run_function(study, self._estimator)
                    return result
                template = TrialTemplate(self._estimator, self._name, study.id)
                result = search.run_jobs(study, template, inputs, on_interrupt=on_interrupt, policy=policy)
                return result
            finally:
                self._running = None

    def _check(self, template: TrialTemplate, inputs: Mapping[str, InputSource] | None) -> None:
        problems = Problems()
        template.check(self._space, self._objectives, inputs, problems)
        problems.raise_if_any()

    @property
    def trials(self) -> TrialList:
        """All trials of the study as they are now, also while another process runs them.

        Raises:
            RunNotFoundError: the study has not begun.
        """
        return self._opened().trials()

    @property
    def best(self) -> Trial:
        """The best trial; its `job` and its `model` are there.

        Raises:
            InvalidInputError: no trial is complete; or there are several objectives, and `best_trials` is meant.
            RunNotFoundError: the study has not begun.
        """
        if len(self._objectives) > 1:
            hint = "best_trials has the best compromises, trials.best the best one for the first objective"
            raise InvalidInputError([Problem("best", "is not defined for several objectives", hint)])
        trials = self.trials
        if (best := trials.best) is not None:
            return best
        if any(one.state == "complete" for one in trials):
            raise InvalidInputError([Problem("best", f"no trial of {self.study} satisfies all constraints")])
        raise InvalidInputError([Problem("best", f"no trial of {self.study} is complete yet")])

    @property
    def best_trials(self) -> TrialList:
        """The trials that no other one beats in all objectives; of one objective, the best trial."""
        return self._opened().best_trials()

    def plot(self, kind: str = "history", *, interactive: bool | None = None) -> Any:
        """A picture of the study; in a notebook it shows itself.

        Args:
            kind: `history`, `curves` (of pruned searches), `importance`, `slice`, `contour`, `parallel`, `pareto`
                or `timeline`.
            interactive: True for a figure of plotly, False for SVG (`history` and `curves` only); by default
                plotly where it is installed.

        Raises:
            InvalidInputError: there is no such picture, or nothing to draw yet.
            MissingExtraError: it needs plotly, which is not installed.
        """
        return _search_module().plot_study(self._opened(), kind, interactive=interactive)

    def _opened(self) -> Study:
        if self._running is not None:
            return self._running
        found: Study = _search_module().opened_to_read(self._store, self._session)
        return found


def _search_module() -> ModuleType:
    """The modules that need Optuna.

    Raises:
        MissingExtraError: it is not installed.
    """
    try:
        from pai_sdk.tune import search
    except ImportError as error:
        if error.name is None or error.name.partition(".")[0] not in ("optuna", "numpy"):
            raise
        raise missing_extra("a Tuner needs Optuna", "tune") from error
    return search


def _as_plain(value: Any, depth: int = 4) -> Any:
    """A setting as JSON has it: of a sampler or a pruner, its class and attributes, which every process has alike.

    Args:
        value: the setting.
        depth: how far its attributes are followed.
    """
    if value is None or isinstance(value, str | int | float):
        return value
    name = getattr(value, "__qualname__", type(value).__qualname__)
    if isinstance(value, type) or depth == 0 or not hasattr(value, "__dict__"):
        return f"{name} {re.sub(' at 0x[0-9a-fA-F]+', '', repr(value))}"
    return {name: {key: _as_plain(one, depth - 1) for key, one in vars(value).items()}}


def _shows_only(config: Any) -> None:
    """In the place of the estimator of a study that is only looked at."""


def _check_function(given: object, problems: Problems) -> None:
    if isinstance(given, type) or not callable(given):
        problems.found.append(no_estimator(given))
        return
    with problems.under("estimator"):
        kind_of(given)


def _checked_trials(given: object, sampler: object, space: SearchSpace, problems: Problems) -> int:
    if isinstance(sampler, PopulationBased) and not settings_problems(sampler):
        if given not in (None, sampler.trials):
            what = f"{given!r} contradicts the sampler: {sampler.size} members, {sampler.generations} generations"
            problems.add("trials", what, f"leave it out: these are {sampler.trials} trials")
        return sampler.trials
    if given is None and sampler == "grid":
        size = 1
        try:
            for column in space.grid():
                size *= len(column)
        except InvalidInputError:  # reported with the sampler
            return _TRIALS
        return size
    return _checked_count("trials", _TRIALS if given is None else given, 1, problems)


def _checked_count(where: str, given: object, least: int, problems: Problems) -> int:
    given = python_value(given)
    if isinstance(given, bool) or not isinstance(given, int) or given < least:
        problems.add(
            where,
            f"{given!r} is not a number of {'trials' if where != 'parallel' else 'jobs'}",
            f"a whole number, {least} or more",
        )
        return least
    return given


def _checked_seconds(where: str, given: object, problems: Problems) -> float | None:
    value = python_value(given)
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and value > 0
    if value is not None and not is_number:  # NaN is not more than 0
        problems.add(where, f"is {given!r}", "seconds, more than 0")
        return None
    return seconds_or_none(value, where)


def _base_name(estimator: object) -> str:
    if isinstance(estimator, EstimatorBase):
        command = getattr(estimator, "command", "")
        function = getattr(estimator, "function", None)
        named = getattr(function, "__name__", "") if not command else ""
        base = (
            estimator.base_job_name or named or base_of_command(command if isinstance(command, str | list) else "")
        )
        return base or "search"
    return getattr(estimator, "__name__", "") or "search"


def _store_of(study: str | Path | None, base: str, session: Any) -> Store:
    """The folder of a study.

    Raises:
        InvalidInputError: the URI cannot be read.
    """
    if study is None:
        name = re.sub(r"[^A-Za-z0-9]+", "-", base).strip("-")[:40] or "search"
        return open_store(Path.home() / ".pai" / "studies" / f"{name}-{uuid.uuid4().hex[:6]}")
    if not isinstance(study, str | Path) or not str(study):
        raise InvalidInputError([Problem("", f"{study!r} is no folder", "give a URI, a path or a name")])
    text = str(study)
    if isinstance(study, str) and uri_scheme(text) is None and not re.search(r"[/\\]", text):
        return open_store(Path.home() / ".pai" / "studies" / text)
    return open_store(study, session)


def _name_of(uri: str) -> str:
    """The name of a study, for its jobs: the last part of its URI."""
    last = uri.rstrip("/").rpartition("/")[2]
    return re.sub(r"[^A-Za-z0-9_-]+", "-", last).strip("-_")[:_LONGEST_NAME] or "search"
