"""A pipeline as a step of another one: its steps, with names and values of their own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
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
    rebinding = _Rebinding(steps, parameters, _values_of(parameters, arguments))
    nested = rebinding.nested
    for step in steps.values():
        nested[step.name] = replace(
            step,
            name=f"{name}/{step.name}",
            work=rebinding.work(step.work),
            after=(*after, *(nested.get(previous.name, previous) for previous in step.after)),
            when=_both(when, None if step.when is None else rebinding.value(step.when)),
        )
        yield nested[step.name]


@dataclass(frozen=True)
class _Rebinding:
    """Binds the references of an inner pipeline to values and steps of the outer one."""

    steps: Mapping[str, PipelineStep]
    parameters: Mapping[str, PipelineParameter]
    arguments: Mapping[str, Any]  # the value of each parameter
    nested: dict[str, PipelineStep] = field(default_factory=dict)  # the steps so far, by their inner names

    def value(self, value: Any) -> Any:
        """Returns the value with references to the steps of the outer pipeline."""
        if isinstance(value, PipelineParameter):
            return self.arguments[value.name] if self.parameters.get(value.name) is value else value
        if isinstance(value, OutputReference | ResultReference):
            return self._reference(value)
        if isinstance(value, Condition):
            return Condition(value.symbol, self.value(value.left), self.value(value.right))
        if isinstance(value, Mapping):
            return {key: self.value(item) for key, item in value.items()}
        return [self.value(item) for item in value] if isinstance(value, list | tuple) else value

    def work(self, work: JobWork | CallWork | EachWork) -> JobWork | CallWork | EachWork:
        """Returns the work of a step with references to the steps of the outer pipeline."""
        if isinstance(work, EachWork):
            template = replace(work.template, **self.value(work.template.bindings))
            return replace(work, values=self.value(work.values), template=template)
        return replace(work, **self.value(work.bindings))

    def _reference(self, reference: OutputReference | ResultReference) -> OutputReference | ResultReference:
        name = reference.step.name
        if self.steps.get(name) is not reference.step:
            return reference  # of a third pipeline: an error when the outer one is checked
        if isinstance(reference, OutputReference):
            return OutputReference(self.nested[name], reference.channel)
        return ResultReference(self.nested[name], reference.path)


def _values_of(parameters: Mapping[str, PipelineParameter], arguments: Mapping[str, Any]) -> dict[str, Any]:
    deferred = {name: value for name, value in arguments.items() if [*references_in(value)]}
    immediate = {name: value for name, value in arguments.items() if name not in deferred}
    problems: list[Problem] = []
    values = check_parameters({k: v for k, v in parameters.items() if k not in deferred}, immediate, problems)
    problems += [Problem(name, "is not a parameter of it") for name in deferred if name not in parameters]
    if problems:
        raise InvalidInputError(
            [Problem(f"arguments[{problem.where!r}]", problem.what, problem.hint) for problem in problems]
        )
    return {**values, **deferred}


def _both(first: Condition | Reference | None, second: Any) -> Any:
    if first is None or second is None:
        return second if first is None else first
    return Condition("and", first, second)
