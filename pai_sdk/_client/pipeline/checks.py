"""Checks the arguments of a step, and a pipeline before any of its steps runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pai_sdk._client.backend.base import Plan
from pai_sdk._client.pipeline.execution import job_name
from pai_sdk._client.pipeline.references import (
    Condition,
    OutputReference,
    PipelineParameter,
    Reference,
    ResultReference,
    resolved,
)
from pai_sdk._client.pipeline.searches import SearchCall
from pai_sdk._client.pipeline.steps import CallWork, EachWork, JobWork, PipelineStep, StepOutputs
from pai_sdk._core.names.hints import TYPE_NAMES, name_hint, wrong_type, wrong_value
from pai_sdk.errors import InvalidInputError, Problem


def mapping_problems(arguments: Mapping[str, object]) -> Iterator[Problem]:
    """Yields the arguments that are no dicts with string keys."""
    for where, value in arguments.items():
        if value is None:
            continue
        if not isinstance(value, Mapping):
            yield wrong_type(where, value, "a mapping", "such as {'name': value}")
        else:
            wrong = [key for key in value if not isinstance(key, str)]
            yield from (Problem(f"{where}[{key!r}]", "expected a string as the name") for key in wrong)


def outputs_problems(outputs: object) -> Iterator[Problem]:
    """Yields outputs that are neither names nor a dict."""
    if not isinstance(outputs, str | Sequence | Mapping):
        yield wrong_type("outputs", outputs, "a list of names, or a mapping of names to URIs")
    elif not all(isinstance(output, str) for output in outputs):
        yield Problem("outputs", f"expected names as strings, got {outputs!r}")


def steps_before(after: object) -> tuple[tuple[PipelineStep, ...], list[Problem]]:
    """Returns the steps of `after`, and the problems with it."""
    steps = (after,) if isinstance(after, PipelineStep) else () if after is None else after
    if isinstance(steps, Sequence) and all(isinstance(step, PipelineStep) for step in steps):
        return tuple(steps), []
    return (), [wrong_value("after", after, "a step or a list of steps")]


_PLACEHOLDERS = "oss://pipeline-placeholder/"


class Placeholders:
    """Values in place of those that only a run has: strings that name the references."""

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        self.parameters = parameters

    def output(self, step: str, channel: str) -> Any:
        """Returns a placeholder URI."""
        return f"{_PLACEHOLDERS}{step}/{channel}/"

    def result(self, step: str) -> Any:
        """Returns a placeholder for a result and for all parts of it."""
        return _AnyPart(step)

    def status(self) -> dict[str, Any]:
        """Returns the status of a run without failures."""
        return {"status": "succeeded", "failed": {}}


class _AnyPart(str):
    def __new__(cls, step: str) -> _AnyPart:
        return super().__new__(cls, f"<result of {step}>")

    def __getitem__(self, key: Any) -> _AnyPart:
        return self


def check_parameters(
    parameters: Mapping[str, PipelineParameter], arguments: Mapping[str, Any], problems: list[Problem]
) -> dict[str, Any]:
    """Returns the values of a run's parameters, and appends to `problems`."""
    problems += [
        Problem(name, "is not a parameter of the pipeline", name_hint(name, parameters))
        for name in arguments
        if name not in parameters
    ]
    values: dict[str, Any] = {}
    for name, parameter in parameters.items():
        value = arguments.get(name, parameter.default)
        if value is ...:
            problems.append(
                Problem(name, "is required", f"the pipeline has no default for it ({parameter.type.__name__})")
            )
            continue
        try:
            values[name] = _as_type(value, parameter.type)
        except (ValueError, OverflowError):
            problems.append(Problem(name, f"expected {TYPE_NAMES[parameter.type]}, got {value!r}"))
    return values


def _as_type(value: Any, type_: type) -> Any:
    if isinstance(value, str) and type_ is not str:  # from a command line
        return _as_bool(value) if type_ is bool else type_(value)
    if type_ is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, type_) or (isinstance(value, bool) and type_ is not bool):
        raise ValueError
    return value


def _as_bool(text: str) -> bool:
    if text.lower() not in ("true", "1", "false", "0"):
        raise ValueError
    return text.lower() in ("true", "1")


def check_steps(
    steps: Sequence[PipelineStep], parameters: Mapping[str, PipelineParameter], values: Mapping[str, Any]
) -> Iterator[Problem]:
    """Yields all problems of the steps, which are in the order of their definition, so without cycles."""
    plans: dict[str, Plan] = {}
    for step in steps:
        where = f"step {step.name!r}"
        misplaced = (problem for name, bound in step.work.bindings.items() for problem in _misplaced(name, bound))
        step_problems = [*misplaced, *step.work.problems(), *_reference_problems(step, steps, parameters)]
        yield from (Problem(f"{where}: {problem.where}", problem.what, problem.hint) for problem in step_problems)
        if step_problems:
            continue
        try:
            if (plan := plan_of(step, "", Placeholders(values))) is not None:
                plans[step.name] = plan
        except InvalidInputError as error:
            yield from (
                Problem(f"{where}: {problem.where}", problem.what, problem.hint) for problem in error.problems
            )
    for step in steps:
        yield from _output_problems(step, plans)


def plan_of(step: PipelineStep, pipeline: str, values_of_run: Placeholders) -> Plan | None:
    """Returns the plan of a step's job or of the first trial of its search, with placeholders; None for a call."""
    work = step.work
    if isinstance(work, EachWork):
        values = work.values if isinstance(work.values, list | tuple) else [""]
        work = work.of_value(values[0] if values else "")
    bindings = resolved(work.bindings, values_of_run)
    if isinstance(work, CallWork):
        search = work.function if isinstance(work.function, SearchCall) else None
        return search.plan(bindings.get("arguments", {})) if search is not None else None
    return work.plan(bindings, name=job_name(pipeline or "pipeline", step.name))[1]


def _misplaced(where: str, value: object) -> Iterator[Problem]:
    """Yields steps and conditions in place of values, and references at positions that are not resolved."""
    if isinstance(value, PipelineStep | StepOutputs):
        # The outputs have no attribute for their step, since each attribute is a channel.
        name = value.name if isinstance(value, PipelineStep) else value["any"].step.name
        yield Problem(where, f"is not a value but the step {name!r}", "give its result or outputs.NAME")
    elif isinstance(value, Condition):
        yield Problem(where, f"is the condition {value}", "give it to `when`, or compare in the function")
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _misplaced(f"{where}[{key!r}]", item)
    elif isinstance(value, list | tuple):
        for number, item in enumerate(value):
            yield from _misplaced(f"{where}[{number}]", item)
    members = value if isinstance(value, set | frozenset | Mapping) else ()
    if any(isinstance(item, Reference) for item in members):
        yield Problem(where, "has a reference in a set or as a key", "give it in a list or as a value")


def _reference_problems(
    step: PipelineStep, steps: Sequence[PipelineStep], parameters: Mapping[str, PipelineParameter]
) -> Iterator[Problem]:
    step_ids = {id(other) for other in steps}
    for needed in step.needs:
        if id(needed) not in step_ids:
            yield Problem(needed.name, "is a step of another pipeline", "add that pipeline as a step")
        elif needed.on_exit and not step.on_exit:
            yield Problem(needed.name, "runs at the end, so no other step can wait for it")
        elif step.on_exit and not needed.on_exit and needed in step.gives:
            hint = "an on_exit step runs also when that step has failed; give it pipeline.status"
            yield Problem(needed.name, "gives a value to a step with on_exit=True", hint)
    for reference in step.references:
        if isinstance(reference, PipelineParameter) and parameters.get(reference.name) is not reference:
            yield Problem(f"parameter {reference.name!r}", "is one of another pipeline")
        elif isinstance(reference, OutputReference) and _work_of(reference.step) is CallWork:
            hint = f"a function gives a value: {reference.step.name}.result"
            yield Problem(repr(reference), f"step {reference.step.name!r} is a call, which has no outputs", hint)
        elif isinstance(reference, ResultReference) and _work_of(reference.step) is JobWork:
            hint = f"a job has outputs: {reference.step.name}.outputs.NAME"
            yield Problem(repr(reference), f"step {reference.step.name!r} is a job, which has no result", hint)
    if step.reads_status and not step.on_exit:
        yield Problem("pipeline.status", "is known at the end only", "give it to a step with on_exit=True")


def _output_problems(step: PipelineStep, plans: Mapping[str, Plan]) -> Iterator[Problem]:
    """Yields references to outputs that a job does not have."""
    for reference in step.references:
        if isinstance(reference, OutputReference) and reference.step.name in plans:
            names = [channel.name for channel in plans[reference.step.name].request.output_channels]
            if reference.channel not in names:
                message = f"step {reference.step.name!r} has no output {reference.channel!r}"
                yield Problem(f"step {step.name!r}: {reference!r}", message, name_hint(reference.channel, names))


def _work_of(step: PipelineStep) -> type:
    work = step.work
    return type(work.template if isinstance(work, EachWork) else work)
