"""`Pipeline`: steps in plain Python, where outputs of one step are inputs of others."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pai_sdk._client.backend.base import Plan
from pai_sdk._client.job.follow.polling import FollowPolicy
from pai_sdk._client.job.notifications import checked_targets, notified
from pai_sdk._client.pipeline.checks import (
    Placeholders,
    check_parameters,
    check_steps,
    mapping_problems,
    outputs_problems,
    plan_of,
    steps_before,
)
from pai_sdk._client.pipeline.nesting import nested_steps
from pai_sdk._client.pipeline.pipeline_folder import PipelineFolder
from pai_sdk._client.pipeline.pipeline_run import PipelineRun
from pai_sdk._client.pipeline.references import (
    Condition,
    PipelineParameter,
    Reference,
    StatusReference,
)
from pai_sdk._client.pipeline.running import drive
from pai_sdk._client.pipeline.searches import SearchCall
from pai_sdk._client.pipeline.steps import CallWork, EachWork, JobWork, PipelineStep
from pai_sdk._client.submit.submitter import JobSubmitter
from pai_sdk._client.tune.tuner import Tuner
from pai_sdk._core.names.hints import wrong_type, wrong_value
from pai_sdk._core.names.keywords import checks_keywords
from pai_sdk._core.short_traceback import short_tracebacks
from pai_sdk._data.pipelines.records import PipelineRunRecord, RunRecords
from pai_sdk.errors import InvalidInputError, Problem

if TYPE_CHECKING:
    from pai_sdk._client.session import Session
    from pai_sdk._data.notify.targets import Notification

_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,63}")
_NAME_HINT = "letters, digits, '_', '.' and '-'; maximum 64"
_OF_RUN = ("self", "show", "cache", "on_interrupt", "policy")  # what else `run` takes
_TYPES = (str, int, float, bool)
_Work = JobSubmitter | Tuner | Callable[..., Any]


class _Steps(dict[str, PipelineStep]):
    """The steps of a pipeline by name, in the order in which they were described."""

    def add(
        self,
        name: str,
        work: JobWork | CallWork | EachWork,
        after: PipelineStep | Sequence[PipelineStep],
        when: Condition | Reference | None,
        retries: int,
        timeout: float | None,
        *,
        cache: bool,
        on_exit: bool = False,
    ) -> PipelineStep:
        """Adds a step; raises InvalidInputError for settings that are not usable."""
        before, problems = steps_before(after)
        problems += _setting_problems(when, retries, timeout, cache=cache, on_exit=on_exit)
        problems += self._name_problems(name)
        if problems:
            raise InvalidInputError(problems)
        self[name] = PipelineStep(name, work, before, when, retries, timeout, cache, on_exit)
        return self[name]

    def _name_problems(self, name: object) -> Iterator[Problem]:
        if not isinstance(name, str) or not all(_NAME.fullmatch(part) for part in name.split("/")):
            yield Problem("name", f"{name!r} is not a valid name", _NAME_HINT)
        elif name in self:
            yield Problem("name", f"a step {name!r} exists already", "give `name`")

    def add_pipeline(
        self,
        other: Pipeline,
        name: str,
        arguments: Mapping[str, Any],
        after: PipelineStep | Sequence[PipelineStep],
        when: Condition | Reference | None,
    ) -> PipelineStep:
        """Adds the steps of another pipeline, below a name; returns the last one."""
        if not other.steps:
            raise InvalidInputError([Problem("work", f"the pipeline {other.name!r} has no steps")])
        if other.steps is self:
            raise InvalidInputError([Problem("work", "is the pipeline itself", "give another one")])
        before, problems = steps_before(after)
        problems += [*_setting_problems(when, 0, None), *mapping_problems({"arguments": arguments})]
        if problems:
            raise InvalidInputError(problems)
        added = [*nested_steps(other.steps, other.parameters, name, arguments, before, when)]
        problems = [problem for step in added for problem in self._name_problems(step.name)]
        if problems:
            raise InvalidInputError(problems)
        self.update((step.name, step) for step in added)
        return added[-1]

    def described(self) -> list[dict[str, Any]]:
        """Returns what is kept of the steps with a run."""
        return [{"name": s.name, "kind": s.kind, "needs": [n.name for n in s.needs]} for s in self.values()]


@short_tracebacks
class Pipeline:
    """Jobs and calls of functions, in the order that their inputs and outputs demand.

    Nothing runs before `run`. A run is a folder in a store: another process can show it, stop it, and resume it
    after this one was killed.

    Args:
        name: of the pipeline.
        store: a folder or URI for its runs and for what is kept of earlier executions; by default
            `~/.pai/pipelines/<name>`.
        parallel: how many calls and jobs run at once.
        session: whose keys open a store in OSS.
        notify: targets of a message about the end of a run, which this process sends; as for jobs.

    Raises:
        InvalidInputError: an argument is not usable.

    Example:
        >>> import tempfile
        >>> pipeline = Pipeline("double", store=tempfile.mkdtemp())
        >>> number = pipeline.parameter("number", int, 3)
        >>> double = pipeline.step(lambda x: 2 * x, name="double", arguments={"x": number})
        >>> more = pipeline.step(
        ...     lambda x: x + 1, name="more", arguments={"x": double.result}, when=double.result > 5
        ... )
        >>> pipeline.run(show=False)["more"].result
        7
    """

    @checks_keywords
    def __init__(
        self,
        name: str,
        *,
        store: str | Path | None = None,
        parallel: int = 8,
        session: Session | None = None,
        notify: Sequence[Notification | str] | None = None,
    ) -> None:
        problems = []
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            problems.append(Problem("name", f"{name!r} is not a valid name", _NAME_HINT))
        if isinstance(parallel, bool) or not isinstance(parallel, int) or parallel < 1:
            problems.append(wrong_value("parallel", parallel, "an integer (minimum 1)"))
        if problems:
            raise InvalidInputError(problems)
        self.name = name
        self.parallel = parallel
        self._notifications = checked_targets(notify)
        self._folder = PipelineFolder(store or Path.home() / ".pai" / "pipelines" / name, session)
        self._steps = _Steps()
        self._parameters: dict[str, PipelineParameter] = {}

    # ---- describing it

    @property
    def steps(self) -> Mapping[str, PipelineStep]:
        """The steps by name, in the order in which they were described."""
        return self._steps

    @property
    def parameters(self) -> Mapping[str, PipelineParameter]:
        """The parameters by name."""
        return self._parameters

    @property
    def status(self) -> Reference:
        """How the run went, for steps with `on_exit=True`: a dict with `status` and `failed`."""
        return StatusReference()

    def parameter(self, name: str, type: type = str, default: Any = ..., *, help: str = "") -> PipelineParameter:
        """A value that a run is given: `pipeline.run(lr=0.1)`.

        Args:
            name: its name.
            type: `str`, `int`, `float` or `bool`.
            default: the value without another one; without a default each run has to give one.
            help: what it is for.

        Raises:
            InvalidInputError: the name or the type is not usable.
        """
        problems = [*_parameter_problems(name, type, self._parameters)]
        if problems:
            raise InvalidInputError(problems)
        parameter = PipelineParameter(name, type, default, help)
        if default is not ...:
            check_parameters({name: parameter}, {}, problems)
        if problems:
            raise InvalidInputError(problems)
        self._parameters[name] = parameter
        return parameter

    def step(
        self,
        work: _Work | Pipeline,
        *,
        name: str | None = None,
        inputs: Mapping[str, Any] | None = None,
        hyperparameters: Mapping[str, Any] | None = None,
        environments: Mapping[str, Any] | None = None,
        outputs: Sequence[str] | Mapping[str, Any] = (),
        arguments: Mapping[str, Any] | None = None,
        after: PipelineStep | Sequence[PipelineStep] = (),
        when: Condition | Reference | None = None,
        retries: int = 0,
        timeout: float | None = None,
        cache: bool = True,
        on_exit: bool = False,
    ) -> PipelineStep:
        """Add a step. Values may be outputs of other steps, their results, or parameters.

        Args:
            work: an estimator, a processor, a tuner, a function, or another pipeline. The result of a tuner is its
                best trial: `params`, `value`, `values`, `trial`, `job` and `model`.
            name: of the step; that of the function or the job by default.
            inputs: maps each input channel of the job, or of all jobs of a search, to its data.
            hyperparameters: of a job, added to those of the estimator.
            environments: of a job, added to those of the estimator.
            outputs: of a job: the names of outputs, or output channel to its target. An `Estimator` has the
                outputs `model`, `checkpoints` and `tensorboard`.
            arguments: of a function by name, or parameters of a pipeline.
            after: steps that have to end before, without giving a value.
            when: a condition; the step is skipped if it does not hold, with all that need a value of it.
            retries: how many attempts may follow a failed one.
            timeout: the longest time of an attempt, in seconds.
            cache: whether an earlier execution with the same code, values and inputs counts.
            on_exit: run it when all others have ended, however they ended.

        Returns:
            The step. Its `outputs` and its `result` are for other steps. For a pipeline, the last of its steps.

        Raises:
            InvalidInputError: something is wrong; the rest is checked before anything runs.
        """
        if isinstance(work, Pipeline):
            _check_unset(
                inputs=inputs,
                hyperparameters=hyperparameters,
                environments=environments,
                outputs=outputs,
                retries=retries,
                timeout=timeout is not None,
                cache=not cache,
                on_exit=on_exit,
            )
            return self._steps.add_pipeline(work, name or work.name, arguments or {}, after, when)
        step_work = _work(work, inputs, hyperparameters, environments, outputs, arguments)
        return self._steps.add(
            name or _name_of(work), step_work, after, when, retries, timeout, cache=cache, on_exit=on_exit
        )

    def each(
        self,
        values: Sequence[Any] | Reference,
        work: _Work,
        *,
        value: str,
        name: str | None = None,
        inputs: Mapping[str, Any] | None = None,
        hyperparameters: Mapping[str, Any] | None = None,
        environments: Mapping[str, Any] | None = None,
        outputs: Sequence[str] | Mapping[str, Any] = (),
        arguments: Mapping[str, Any] | None = None,
        after: PipelineStep | Sequence[PipelineStep] = (),
        when: Condition | Reference | None = None,
        retries: int = 0,
        timeout: float | None = None,
        cache: bool = True,
    ) -> PipelineStep:
        """Add a step for each of some values, which may be known later only: `train[0]`, `train[1]` and so on.

        Args:
            values: a list, or the result of a step that is one.
            work: as in `step`.
            value: the name of the argument, or of the hyperparameter, that each value becomes.
            name: of the step.
            inputs: as in `step`.
            hyperparameters: as in `step`.
            environments: as in `step`.
            outputs: as in `step`.
            arguments: as in `step`.
            after: as in `step`.
            when: a condition for all of them.
            retries: of each.
            timeout: of each, in seconds.
            cache: as in `step`, for each.

        Returns:
            The step. Its `result` is the list of the results, its `outputs.NAME` the list of the URIs.
        """
        template = _work(work, inputs, hyperparameters, environments, outputs, arguments)
        if isinstance(values, Sequence) and not isinstance(values, str | bytes):
            values = [*values]
        return self._steps.add(
            name or _name_of(work), EachWork(values, template, value), after, when, retries, timeout, cache=cache
        )

    # ---- running it

    def check(self, **parameters: Any) -> dict[str, Any]:
        """Check the pipeline, without network.

        Args:
            parameters: those of a run.

        Returns:
            The values of all parameters.

        Raises:
            InvalidInputError: with all problems.
        """
        problems: list[Problem] = []
        values = check_parameters(self._parameters, parameters, problems)
        if not self._steps:
            problems.append(Problem("pipeline", "has no steps", "add them by pipeline.step(…)"))
        if not problems:
            problems += check_steps([*self._steps.values()], self._parameters, values)
        if problems:
            raise InvalidInputError(problems)
        return values

    def plans(self, **parameters: Any) -> dict[str, Plan]:
        """A dry run: the plans of all jobs. What is not known before the run has a name that says what it is.

        Args:
            parameters: those of a run.

        Raises:
            InvalidInputError: with all problems.
        """
        placeholders = Placeholders(self.check(**parameters))
        plans = ((name, plan_of(step, self.name, placeholders)) for name, step in self._steps.items())
        return {name: plan for name, plan in plans if plan is not None}

    def run(
        self,
        *,
        show: bool = True,
        cache: bool = True,
        on_interrupt: Literal["detach", "stop"] = "detach",
        policy: FollowPolicy | None = None,
        **parameters: Any,
    ) -> PipelineRun:
        """Run all steps, and wait for them.

        Args:
            show: a live table in a terminal, a line for each end elsewhere.
            cache: whether earlier executions count in this run.
            on_interrupt: effect of Ctrl-C on running jobs: they continue, or they are stopped.
            policy: the times of polling jobs.
            parameters: by name.

        Returns:
            The run; all steps have succeeded, or were skipped.

        Raises:
            InvalidInputError: something is wrong with the pipeline; nothing was run.
            PipelineFailed: steps have failed.
            PipelineStopped: the run was stopped on request; `resume` continues it.
            KeyboardInterrupt: Ctrl-C; `resume` goes on.
        """
        _check_interrupt(on_interrupt)
        if problems := _switch_problems(show=show, cache=cache):
            raise InvalidInputError(problems)
        values = self.check(**parameters)
        run_id = _new_run_id()
        record = PipelineRunRecord(
            run_id, self.name, values, self._steps.described(), uses_cache=cache, created_at=time.time()
        )
        records = self._folder.records(run_id)
        records.write_run(record)
        return self._drive(record, records, show, on_interrupt, policy)

    def resume(
        self,
        run_id: str | None = None,
        *,
        show: bool = True,
        on_interrupt: Literal["detach", "stop"] = "detach",
        policy: FollowPolicy | None = None,
    ) -> PipelineRun:
        """Go on with a run whose process has ended, or run failed steps again.

        Args:
            run_id: of the run; the newest one that has not succeeded by default.
            show: as in `run`.
            on_interrupt: as in `run`.
            policy: as in `run`.

        Raises:
            RunNotFoundError: there is no such run.
            InUseError: another process works on it.
            PipelineFailed: steps have failed.
            PipelineStopped: the run was stopped on request; `resume` continues it.
        """
        _check_interrupt(on_interrupt)
        records = self._folder.records(run_id) if run_id is not None else self._folder.unfinished(self.name)
        record = records.read_run()
        if record.pipeline != self.name:
            message = f"{records.uri} is a run of the pipeline {record.pipeline!r}, and this one is {self.name!r}"
            raise InvalidInputError([Problem("run_id", message, "resume it with its own pipeline")])
        self.check(**record.parameters)
        record.steps = self._steps.described()
        return self._drive(record, records, show, on_interrupt, policy)

    def runs(self) -> list[PipelineRun]:
        """The runs, the newest first."""
        return self._folder.runs()

    def _drive(
        self,
        record: PipelineRunRecord,
        records: RunRecords,
        show: bool,
        on_interrupt: str,
        policy: FollowPolicy | None,
    ) -> PipelineRun:
        steps, following = [*self._steps.values()], policy or FollowPolicy()
        run_steps = partial(drive, parallel=self.parallel, show=show, on_interrupt=on_interrupt, policy=following)
        with notified(self._notifications, "pipeline", self.name, {"run": records.uri}):
            return run_steps(steps, record, records, self._folder.cache())

    def __repr__(self) -> str:
        return f"<Pipeline {self.name!r}: {len(self._steps)} steps>"


def _new_run_id() -> str:
    """Returns an id that sorts by time: two runs may begin in one second."""
    now_ns = time.time_ns()
    day = time.strftime("%Y%m%d-%H%M%S", time.gmtime(now_ns // 10**9))
    return f"{day}-{now_ns // 10**6 % 1000:03}{secrets.token_hex(2)}"


def _parameter_problems(name: object, type_: object, parameters: Container[object]) -> Iterator[Problem]:
    if not isinstance(name, str) or not name.isidentifier() or name in _OF_RUN:
        yield Problem(
            "name", f"{name!r} is not a valid name", f"a Python identifier, and none of: {', '.join(_OF_RUN)}"
        )
    elif name in parameters:
        yield Problem("name", f"a parameter {name!r} exists already")
    if type_ not in _TYPES:
        yield wrong_value("type", type_, "str, int, float or bool")


def _check_unset(**settings: object) -> None:
    """Raises InvalidInputError for settings of steps that a pipeline as a step cannot have."""
    hint = "give it to the steps of that pipeline"
    if wrong := [Problem(name, "is for jobs and functions", hint) for name, is_set in settings.items() if is_set]:
        raise InvalidInputError(wrong)


def _work(
    work: object,
    inputs: Mapping[str, Any] | None,
    hyperparameters: Mapping[str, Any] | None,
    environments: Mapping[str, Any] | None,
    outputs: Sequence[str] | Mapping[str, Any],
    arguments: Mapping[str, Any] | None,
) -> JobWork | CallWork:
    mappings = {
        "inputs": inputs,
        "hyperparameters": hyperparameters,
        "environments": environments,
        "arguments": arguments,
    }
    if wrong := [*mapping_problems(mappings), *outputs_problems(outputs)]:
        raise InvalidInputError(wrong)
    bindings: dict[str, Any] = {
        "inputs": dict(inputs or {}),
        "hyperparameters": dict(hyperparameters or {}),
        "environments": dict(environments or {}),
        "outputs": outputs
        if isinstance(outputs, Mapping)
        else [outputs]
        if isinstance(outputs, str)
        else [*outputs],
    }
    if isinstance(work, Tuner):
        bindings["arguments"] = dict(arguments or {})
        hint = "set them in the estimator of the tuner"
        wrong = [
            Problem(name, "are for jobs and functions", hint)
            for name, v in bindings.items()
            if v and name != "inputs"
        ]
        if wrong:
            raise InvalidInputError(wrong)
        return CallWork(SearchCall(work), bindings["inputs"])
    if isinstance(work, JobSubmitter):
        if arguments:
            hint = "give `hyperparameters` or `environments`"
            raise InvalidInputError([Problem("arguments", "are for functions and pipelines", hint)])
        return JobWork(work, **bindings)
    if callable(work) and not isinstance(work, type):
        wrong = [Problem(name, "is for jobs", "give `arguments`") for name, value in bindings.items() if value]
        if wrong:
            raise InvalidInputError(wrong)
        return CallWork(work, dict(arguments or {}))
    raise InvalidInputError(
        [wrong_type("work", work, "an Estimator, a Processor, a Tuner, a function or a Pipeline")]
    )


def _name_of(work: object) -> str:
    name = getattr(work, "base_job_name", None) or getattr(work, "__name__", "").strip("_")
    name = "search" if isinstance(work, Tuner) else name
    if not name or name == "<lambda>":
        raise InvalidInputError([Problem("name", "is required", "give `name`")])
    return str(name)


def _check_interrupt(value: object) -> None:
    if value not in ("detach", "stop"):
        raise InvalidInputError([wrong_value("on_interrupt", value, "'detach' or 'stop'")])


def _setting_problems(when: object, retries: object, timeout: object, **switches: object) -> list[Problem]:
    problems = _switch_problems(**switches)
    if when is not None and not isinstance(when, Condition | Reference):
        expected = "a comparison of a result or a parameter"
        problems.append(wrong_value("when", when, expected, "such as score.result > 0.9"))
    if isinstance(retries, bool) or not isinstance(retries, int) or retries < 0:
        problems.append(wrong_value("retries", retries, "an integer (minimum 0)"))
    is_number = isinstance(timeout, int | float) and not isinstance(timeout, bool) and timeout > 0
    if timeout is not None and not is_number:  # NaN is not more than 0
        problems.append(wrong_value("timeout", timeout, "a number of seconds above 0"))
    return problems


def _switch_problems(**switches: object) -> list[Problem]:
    return [
        wrong_value(name, value, "True or False")
        for name, value in switches.items()
        if not isinstance(value, bool)
    ]
