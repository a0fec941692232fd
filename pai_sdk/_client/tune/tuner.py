"""Tuner: a search for the best hyperparameters of an estimator, or of a function."""

from __future__ import annotations

import copy
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

from pai_sdk._client.job.notifications import checked_targets, notified
from pai_sdk._client.submit.job_names import base_of_command
from pai_sdk._client.submit.problems import Problems
from pai_sdk._client.submit.submitter import EstimatorBase
from pai_sdk._client.tune.objectives import Direction, Objective, checked_objectives
from pai_sdk._client.tune.population import (
    PopulationBased,
    check_combination,
    checked_population,
    settings_problems,
)
from pai_sdk._client.tune.space import SearchSpace, checked_space
from pai_sdk._client.tune.template import TrialTemplate, no_estimator, study_labels
from pai_sdk._client.tune.trials import SearchLimits, Trial, TrialList
from pai_sdk._core.extras import missing_extra
from pai_sdk._core.names.aliases import Aliased
from pai_sdk._core.names.hints import wrong_value
from pai_sdk._core.names.keywords import checks_keywords
from pai_sdk._core.short_traceback import short_tracebacks
from pai_sdk._data.run.functions.calling import kind_of
from pai_sdk._data.storage.store import Store, open_store
from pai_sdk._data.storage.uri import uri_scheme
from pai_sdk._wire.pai.arguments import check_choice, seconds_or_none
from pai_sdk._wire.pai.values import python_value
from pai_sdk.errors import InvalidInputError, Problem

if TYPE_CHECKING:
    from pai_sdk._client.backend.base import Plan
    from pai_sdk._client.job.follow.polling import FollowPolicy
    from pai_sdk._client.session import Session
    from pai_sdk._client.submit.channels import InputSource
    from pai_sdk._client.tune.study import EarlierTrial, Study
    from pai_sdk._data.notify.targets import Notification

_TRIALS, _PARALLEL, _MAX_FAILURES = 20, 4, 5
_MAX_NAME_LENGTH = 60


@short_tracebacks
class Tuner(Aliased):
    """Searches for the hyperparameters with which a metric is best. Optuna selects them.

    A trial is a job, with its own log, outputs and checkpoints, on any backend; or a call of a function in this
    process. The study is a folder. A search that was interrupted or killed is continued by repeating the call with
    the same `study`: running jobs are followed again, and no trial is submitted twice.

    Args:
        estimator: an `Estimator` or `AlgorithmEstimator`, also one of a function (`Estimator.from_function`); or a
            function `f(config)`, which is called in this process. A function returns the metrics, or yields or
            reports them step by step.
        search: name to range: `Uniform`, `LogUniform`, `IntRange`, `Choice`, a list of values, or a distribution
            of Optuna. Names are hyperparameters, or resources: `instance_type`, `instance_count`, `image_uri`, ….
        objective: the metric, or an `Objective`; several for Pareto-optimal trials.
        direction: `minimize` or `maximize`; not needed where the name is clear, such as `loss` or `accuracy`.
        trials: the number of trials of the study; with the sampler `grid`, all points by default. A population
            has `size * generations`.
        parallel: the number of concurrent trials.
        sampler: `tpe` (the default), `random`, `grid`, `cmaes`, `gp`, `nsga2`, `qmc`, or a sampler of Optuna; or
            `pbt` or a `PopulationBased`, whose trials continue from checkpoints of other trials.
        pruner: ends poor trials early: `asha`, `median`, `hyperband` or a pruner of Optuna; none by default.
        seed: decides which hyperparameters are tried, trial by trial, also after an interruption.
        study: the folder of the study: a URI, a path, or a name below `~/.pai/studies`; a new one by default.
        max_failures: the search ends when more trials than this have failed.
        timeout: the limit of a run of the search, in seconds. Then `run` returns the trials so far; running
            ones are stopped, and run again when the study is continued.
        trial_timeout: the limit of a trial that is a function, in seconds; a longer one fails. A job has
            the `max_run_time` of the estimator.
        warm_start: trials to start with: the URI of another study or of a run store, a `Tuner`, jobs, or a list of
            them.
        session: the session whose keys are used for `oss://`; that of the estimator by default.
        notify: targets of a message about the end of the search, which this process sends; as for jobs.

    Attributes:
        study: the URI of the study.
        has_given_study: whether `study` was passed, so that it may not be a new one.

    Raises:
        InvalidInputError: an argument is invalid; it has all problems.
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
        notify: Sequence[Notification | str] | None = None,
    ) -> None:
        self._notifications = checked_targets(notify)
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
        self._limits = SearchLimits(
            _checked_trials(trials, sampler, self._space, problems),
            _checked_count("parallel", parallel, 1, problems),
            _checked_count("max_failures", max_failures, 0, problems),
            _checked_seconds("timeout", timeout, problems),
            _checked_seconds("trial_timeout", trial_timeout, problems),
        )
        if trial_timeout is not None and isinstance(estimator, EstimatorBase):
            hint = "give the estimator a max_run_time"
            problems.add("trial_timeout", "is for functions, and the trials are jobs", hint)
        seed = python_value(seed)  # type: ignore[assignment] # checked next
        if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int)):
            problems.add("seed", f"expected an integer, got {seed!r}")
        if not isinstance(estimator, EstimatorBase):
            _check_function(estimator, problems)
        with problems.under("study"):
            self._store = _store_of(study, _base_name(estimator), self._session)
        self.has_given_study = study is not None
        self._chosen = {"sampler": sampler, "pruner": pruner, "seed": seed, "trials": self._limits.trials}
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
        """Returns the tuner of an existing study: to read it from any process, or to continue it.

        Args:
            study: the URI, path or name.
            estimator: to continue the study; without one, the tuner only reads it.
            session: the session whose keys are used for `oss://`, and which has the jobs.
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
        existing = _search_module().open_read_only(store, session)
        search = existing.space.ranges
        if existing.population is not None:
            options.setdefault("sampler", existing.population)
        return cls(
            _read_only_estimator if estimator is None else estimator,
            search,
            existing.objectives,
            study=store.uri,
            session=session,
            **options,
        )

    def __repr__(self) -> str:
        return f"<Tuner {self.study}>"

    @property
    def estimator(self) -> EstimatorBase | Callable[..., Any]:
        """The estimator or function of the trials."""
        return self._estimator

    @property
    def description(self) -> dict[str, Any]:
        """The settings that determine the trials, as JSON; without the estimator."""
        chosen = {name: _as_plain(value) for name, value in self._chosen.items()}
        return {
            "search": self._space.to_json(),
            "objectives": [objective.to_json() for objective in self._objectives],
            **chosen,
        }

    def earlier_trials(self) -> Sequence[EarlierTrial]:
        """Returns the trials that a new study would start with: those of `warm_start`.

        Raises:
            InvalidInputError: `warm_start` has no such trial.
        """
        earlier: Sequence[EarlierTrial] = self._rules.earlier()
        return earlier

    def with_study(self, study: str | Path) -> Tuner:
        """Returns a copy of the tuner with another study.

        Args:
            study: the URI, path or name.

        Raises:
            InvalidInputError: the URI is invalid.
        """
        tuner = copy.copy(self)
        tuner._store = _store_of(study, "", self._session)
        tuner.study, tuner.has_given_study = tuner._store.uri, True
        tuner._name = _name_of(tuner.study)
        return tuner

    @checks_keywords
    def plan(self, inputs: Mapping[str, InputSource] | None = None) -> Plan:
        """Returns the plan of a first trial's job, without network and upload, with example hyperparameters.

        Args:
            inputs: maps each input channel to its data, for all trials.

        Raises:
            InvalidInputError: a trial is invalid, with all problems; or the trials are calls of a function.
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
        """Run the missing trials, and wait for them.

        Args:
            inputs: maps each input channel to its data, for all trials.
            show: display a live table in a terminal or a notebook; elsewhere, print a line for each finished
                trial.
            on_interrupt: effect of Ctrl-C on running jobs: `detach` lets them continue, `stop` stops them and
                waits.
            policy: intervals and timeouts of following.

        Returns:
            All trials, as a list that is displayed as a table; `.best` is the best one.

        Raises:
            InvalidInputError: a trial cannot be submitted; `problems` lists all reasons.
            InUseError: another process drives the study.
            TuningFailed: too many trials have failed, or none has succeeded.
            KeyboardInterrupt: Ctrl-C; its message has the state of the jobs.
        """
        check_choice("on_interrupt", on_interrupt, ("detach", "stop"))
        if self._estimator is _read_only_estimator:
            hint = "to continue the study: Tuner.load(study, estimator)"
            raise InvalidInputError([Problem("estimator", "is required", hint)])
        session = self._session
        if isinstance(self._estimator, EstimatorBase):
            self._check(TrialTemplate(self._estimator, self._name), inputs)
            session = self._estimator.resolved_session()
        elif inputs is not None:
            raise InvalidInputError([Problem("inputs", "are for jobs, and the trials are calls of a function")])
        search = _search_module().Search(self._store, self._name, self._rules, self._limits, show, session)
        notifying = notified(self._notifications, "search", self._name, {"study": self.study})
        with search.study() as study, notifying:
            self._running = study
            try:
                if not isinstance(self._estimator, EstimatorBase):
                    result: TrialList = search.run_function(study, self._estimator)
                    return result
                labels = study_labels(study.id, study.objectives[0], self._limits.trials)
                template = TrialTemplate(self._estimator, self._name, labels)
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
        """All trials of the study in their current state, also while another process runs them.

        Raises:
            RunNotFoundError: the study has not started.
        """
        return self._opened().trials()

    @property
    def best(self) -> Trial:
        """The best trial, with `job` and `model`.

        Raises:
            InvalidInputError: no trial is complete; or there are several objectives, which need `best_trials`.
            RunNotFoundError: the study has not started.
        """
        if len(self._objectives) > 1:
            hint = "best_trials has the best compromises, trials.best the best one for the first objective"
            raise InvalidInputError([Problem("best", "is not defined for several objectives", hint)])
        trials = self.trials
        if (best := trials.best) is not None:
            return best
        if any(trial.state == "complete" for trial in trials):
            raise InvalidInputError([Problem("best", f"no trial of {self.study} satisfies all constraints")])
        raise InvalidInputError([Problem("best", f"no trial of {self.study} is complete yet")])

    @property
    def best_trials(self) -> TrialList:
        """The Pareto-optimal trials; for one objective, the best trial."""
        return self._opened().best_trials()

    def plot(self, kind: str = "history", *, interactive: bool | None = None) -> Any:
        """Returns a plot of the study, which notebooks display.

        Args:
            kind: `history`, `curves` (of pruned searches), `importance`, `slice`, `contour`, `parallel`, `pareto`
                or `timeline`.
            interactive: True for a figure of plotly, False for SVG (`history` and `curves` only); by default
                plotly where it is installed.

        Raises:
            InvalidInputError: there is no such plot, or no data yet.
            MissingExtraError: it needs plotly, which is not installed.
        """
        return _search_module().plot_study(self._opened(), kind, interactive=interactive)

    def _opened(self) -> Study:
        if self._running is not None:
            return self._running
        study: Study = _search_module().open_read_only(self._store, self._session)
        return study


def _search_module() -> ModuleType:
    """Imports and returns the module that needs Optuna."""
    try:
        from pai_sdk._client.tune import search
    except ImportError as error:
        if error.name is None or error.name.partition(".")[0] not in ("optuna", "numpy"):
            raise
        raise missing_extra("a Tuner needs Optuna", "tune") from error
    return search


def _as_plain(value: Any, depth: int = 4) -> Any:
    """Returns a setting as JSON: for samplers and pruners, class and attributes, equal in every process."""
    if value is None or isinstance(value, str | int | float):
        return value
    name = getattr(value, "__qualname__", type(value).__qualname__)
    if isinstance(value, type) or depth == 0 or not hasattr(value, "__dict__"):
        return f"{name} {re.sub(' at 0x[0-9a-fA-F]+', '', repr(value))}"
    return {name: {key: _as_plain(attribute, depth - 1) for key, attribute in vars(value).items()}}


def _read_only_estimator(config: Any) -> None:
    """Stands for the estimator of a study that is only read."""


def _check_function(value: object, problems: Problems) -> None:
    if isinstance(value, type) or not callable(value):
        problems.entries.append(no_estimator(value))
        return
    with problems.under("estimator"):
        kind_of(value)


def _checked_trials(trials: object, sampler: object, space: SearchSpace, problems: Problems) -> int:
    if isinstance(sampler, PopulationBased) and not settings_problems(sampler):
        if trials not in (None, sampler.trials):
            message = (
                f"{trials!r} conflicts with the sampler: {sampler.size} members, {sampler.generations} generations"
            )
            problems.add("trials", message, f"leave it out: these are {sampler.trials} trials")
        return sampler.trials
    if trials is None and sampler == "grid":
        size = 1
        try:
            for column in space.grid():
                size *= len(column)
        except InvalidInputError:  # reported with the sampler
            return _TRIALS
        return size
    return _checked_count("trials", _TRIALS if trials is None else trials, 1, problems)


def _checked_count(where: str, value: object, minimum: int, problems: Problems) -> int:
    value = python_value(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
        problems.entries.append(wrong_value(where, value, f"an integer (minimum {minimum})"))
        return minimum
    return value


def _checked_seconds(where: str, argument: object, problems: Problems) -> float | None:
    value = python_value(argument)
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and value > 0
    if value is not None and not is_number:  # NaN is not more than 0
        problems.entries.append(wrong_value(where, argument, "a number of seconds above 0"))
        return None
    return seconds_or_none(value, where)


def _base_name(estimator: object) -> str:
    if isinstance(estimator, EstimatorBase):
        command = getattr(estimator, "command", "")
        function = getattr(estimator, "function", None)
        function_name = getattr(function, "__name__", "") if not command else ""
        base = (
            estimator.base_job_name
            or function_name
            or base_of_command(command if isinstance(command, str | list) else "")
        )
        return base or "search"
    return getattr(estimator, "__name__", "") or "search"


def _store_of(study: str | Path | None, base: str, session: Any) -> Store:
    """Opens the folder of a study."""
    if study is None:
        name = re.sub(r"[^A-Za-z0-9]+", "-", base).strip("-")[:40] or "search"
        return open_store(Path.home() / ".pai" / "studies" / f"{name}-{uuid.uuid4().hex[:6]}")
    if not isinstance(study, str | Path) or not str(study):
        raise InvalidInputError([Problem("", f"{study!r} is not a folder", "give a URI, a path or a name")])
    text = str(study)
    if isinstance(study, str) and uri_scheme(text) is None and not re.search(r"[/\\]", text):
        return open_store(Path.home() / ".pai" / "studies" / text)
    return open_store(study, session)


def _name_of(uri: str) -> str:
    """Returns the name of a study, for its jobs: the last part of the URI."""
    last = uri.rstrip("/").rpartition("/")[2]
    return re.sub(r"[^A-Za-z0-9_-]+", "-", last).strip("-_")[:_MAX_NAME_LENGTH] or "search"
