"""A pipeline as a step of another one: its steps, with names and values of their own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from pai_sdk._client.pipeline.checks import check_parameters
from pai_sdk._client.pipeline.references import (
    Condition,
    OutputReference,
    PipelineParameter,
    Reference,
    ResultReference,
    references_in,
)
from pai_sdk._client.pipeline.steps import CallWork, EachWork, JobWork, PipelineStep
from pai_sdk.errors import InvalidInputError, Problem

__all__ = ["nested_steps"]


def nested_steps(
    steps: Mapping[str, PipelineStep],
    parameters: Mapping[str, PipelineParameter],
    name: str,
    arguments: Mapping[str, Any],
    after: tuple[PipelineStep, ...],
    when: Condition | Reference | None,
) -> Iterator[PipelineStep]:
    """Yields the steps of an inner pipeline for an outer one, each named `name/step`.

    `steps` and `parameters` are those of the inner pipeline; `arguments`, `after` and `when` may refer to steps of
    the outer one.
    """
    values = _values_of(parameters, arguments)
    nested: dict[str, PipelineStep] = {}

    def of_outer(value: Any) -> Any:
        """Returns the value with references to the steps of the outer pipeline."""
        if isinstance(value, PipelineParameter):
            return values[value.name] if parameters.get(value.name) is value else value
        if isinstance(value, OutputReference | ResultReference) and steps.get(value.step.name) is not value.step:
            return value  # of a third pipeline: an error when the outer one is checked
        if isinstance(value, OutputReference):
            return OutputReference(nested[value.step.name], value.channel)
        if isinstance(value, ResultReference):
            return ResultReference(nested[value.step.name], value.path)
        if isinstance(value, Condition):
            return Condition(value.symbol, of_outer(value.left), of_outer(value.right))
        if isinstance(value, Mapping):
            return {key: of_outer(item) for key, item in value.items()}
        return [of_outer(item) for item in value] if isinstance(value, list | tuple) else value

    def work_of(work: JobWork | CallWork | EachWork) -> JobWork | CallWork | EachWork:
        if isinstance(work, EachWork):
            template = replace(work.template, **of_outer(work.template.bindings))
            return replace(work, values=of_outer(work.values), template=template)
        return replace(work, **of_outer(work.bindings))

    for step in steps.values():
        nested[step.name] = replace(
            step,
            name=f"{name}/{step.name}",
            work=work_of(step.work),
            after=(*after, *(nested.get(previous.name, previous) for previous in step.after)),
            when=_both(when, None if step.when is None else of_outer(step.when)),
        )
        yield nested[step.name]


def _values_of(parameters: Mapping[str, PipelineParameter], arguments: Mapping[str, Any]) -> dict[str, Any]:
    deferred = {name: value for name, value in arguments.items() if [*references_in(value)]}
    immediate = {name: value for name, value in arguments.items() if name not in deferred}
    problems: list[Problem] = []
    values = check_parameters({k: v for k, v in parameters.items() if k not in deferred}, immediate, problems)
    problems += [Problem(name, "is no parameter of that pipeline") for name in deferred if name not in parameters]
    if problems:
        raise InvalidInputError(
            [Problem(f"arguments[{problem.where!r}]", problem.what, problem.hint) for problem in problems]
        )
    return {**values, **deferred}


def _both(first: Condition | Reference | None, second: Any) -> Any:
    if first is None or second is None:
        return second if first is None else first
    return Condition("and", first, second)
