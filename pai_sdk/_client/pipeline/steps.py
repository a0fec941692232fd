"""The steps of a pipeline, as they are described: a job, a call of a function, or one of them for each value."""

from __future__ import annotations

import copy
import inspect
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pai_sdk._client.pipeline.references import (
    Condition,
    OutputReference,
    Reference,
    ResultReference,
    StatusReference,
    references_in,
)
from pai_sdk._client.submit.processor import Processor
from pai_sdk._core.names.hints import name_hint, wrong_type
from pai_sdk._wire.pai.spec import Channel
from pai_sdk.errors import Problem

if TYPE_CHECKING:
    from pai_sdk._client.backend.base import Plan
    from pai_sdk._client.submit.submitter import JobSubmitter

_OVERRIDES = ("inputs", "hyperparameters", "environments", "outputs")


@dataclass(eq=False)
class JobWork:
    """The job of a step."""

    submitter: JobSubmitter
    inputs: Mapping[str, Any] = field(default_factory=dict)  # channel to source, outputs of other steps among them
    hyperparameters: Mapping[str, Any] = field(default_factory=dict)  # added to those of the submitter
    environments: Mapping[str, Any] = field(default_factory=dict)  # added to those of the submitter
    outputs: Sequence[str] | Mapping[str, Any] = ()  # names of channels, or channel to target

    @property
    def bindings(self) -> dict[str, Any]:
        """Returns the values that may have references, by name."""
        return {name: value for name in _OVERRIDES for value in [getattr(self, name)] if value}

    def plan(
        self,
        bindings: Mapping[str, Any],
        *,
        name: str,
        key: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> tuple[JobSubmitter, Plan]:
        """Returns the submitter and the plan of the job; raises InvalidInputError for a wrong job."""
        submitter = copy.copy(self.submitter)
        for field_name in ("hyperparameters", "environments"):
            if added := bindings.get(field_name):
                if (
                    field_name == "environments"
                ):  # values of parameters and results have types, variables have none
                    added = {name: v if isinstance(v, str) else json.dumps(v) for name, v in added.items()}
                setattr(submitter, field_name, {**(getattr(submitter, field_name) or {}), **added})
        outputs = bindings.get("outputs", ())
        placed = outputs if isinstance(outputs, Mapping) else None
        if outputs and isinstance(submitter, Processor):
            defined = submitter.describe().output_channels
            added = [Channel(name=name) for name in outputs if name not in {channel.name for channel in defined}]
            submitter.set_output_channels([*defined, *added])
        submitter.idempotency_key = key
        submitter.labels = {**(submitter.labels or {}), **(labels or {})}
        return submitter, submitter.plan(bindings.get("inputs"), placed, job_name=name)

    def problems(self) -> Iterator[Problem]:
        """Yields the problems that planning does not find."""
        if self.hyperparameters and not hasattr(self.submitter, "hyperparameters"):
            hint = "give `environments`, which its command can read"
            yield Problem("hyperparameters", f"a {type(self.submitter).__name__} has none", hint)
        if self.outputs and not isinstance(self.outputs, Mapping) and not isinstance(self.submitter, Processor):
            hint = "give a mapping of names to URIs; it has the outputs model, checkpoints and tensorboard"
            yield Problem("outputs", f"an added output of {type(self.submitter).__name__} needs a URI", hint)
        if self.submitter.idempotency_key is not None:
            yield Problem("idempotency_key", "would be shared by all runs", "leave it out: each run has its own")


@dataclass(eq=False)
class CallWork:
    """A call of a function in the process that runs the pipeline; the result must be JSON."""

    function: Callable[..., Any]
    arguments: Mapping[str, Any] = field(default_factory=dict)

    @property
    def bindings(self) -> dict[str, Any]:
        """Returns the values that may have references, by name."""
        return {"arguments": self.arguments} if self.arguments else {}

    def problems(self) -> Iterator[Problem]:
        """Yields arguments that the function does not accept, or lacks."""
        try:
            signature = inspect.signature(self.function)
        except (TypeError, ValueError):  # some built-in ones
            return
        parameters = signature.parameters
        takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
        for name in self.arguments:
            if name not in parameters and not takes_all:
                yield Problem(
                    f"arguments[{name!r}]", "is not a parameter of the function", name_hint(name, parameters)
                )
        for name, parameter in parameters.items():
            is_keyword = parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
            if is_keyword and parameter.default is parameter.empty and name not in self.arguments:
                yield Problem(f"arguments[{name!r}]", "is required")
            elif parameter.kind is parameter.POSITIONAL_ONLY and parameter.default is parameter.empty:
                yield Problem(
                    f"arguments[{name!r}]", "can be given by position only", "use a function without `/`"
                )


@dataclass(eq=False)
class EachWork:
    """Work that is repeated for each of some values. Each is a step of its own, such as `train[0]`."""

    values: Sequence[Any] | Reference  # or a reference to a list that is known later
    template: JobWork | CallWork
    name: str  # of the value: an argument of the function, or a hyperparameter

    @property
    def bindings(self) -> dict[str, Any]:
        """Returns the values that may have references, by name."""
        return {"values": self.values, **self.template.bindings}

    def of_value(self, value: Any) -> JobWork | CallWork:
        """Returns the work for one of the values."""
        work = copy.copy(self.template)
        if isinstance(work, CallWork):
            work.arguments = {**work.arguments, self.name: value}
        elif hasattr(work.submitter, "hyperparameters"):
            work.hyperparameters = {**work.hyperparameters, self.name: value}
        else:
            work.environments = {**work.environments, self.name: str(value)}
        return work

    def problems(self) -> Iterator[Problem]:
        """Yields the problems of the values and of the work."""
        if not isinstance(self.values, Sequence | Reference) or isinstance(self.values, str | bytes):
            yield wrong_type("values", self.values, "a list, or a result of a step")
            return
        if not isinstance(self.name, str):
            yield wrong_type("value", self.name, "the name of an argument or a hyperparameter")
            return
        yield from self.of_value(None).problems()


Work = JobWork | CallWork | EachWork


class StepOutputs:
    """The outputs of a step, by name: `train.outputs.model`, `train.outputs["model"]`."""

    def __init__(self, step: PipelineStep) -> None:
        self._step = step

    def __getattr__(self, channel: str) -> OutputReference:
        if channel.startswith("__"):
            raise AttributeError(channel)
        return OutputReference(self._step, channel)

    def __getitem__(self, channel: str) -> OutputReference:
        return OutputReference(self._step, channel)


@dataclass(eq=False, repr=False)
class PipelineStep:
    """A step, created by `Pipeline.step` and `Pipeline.each`."""

    name: str
    work: Work
    after: tuple[PipelineStep, ...] = ()  # must finish before, without giving this step a value
    when: Condition | Reference | None = None
    retries: int = 0  # the number of attempts after a failed one
    timeout_s: float | None = None  # of one attempt
    cache: bool = True  # whether an earlier execution with the same code and inputs counts
    on_exit: bool = False  # runs at the end, however the other steps ended

    @property
    def outputs(self) -> Any:
        """The outputs of its job, for inputs and arguments of other steps: `train.outputs.model`."""
        return StepOutputs(self)

    @property
    def result(self) -> ResultReference:
        """The value that its function returns. For `each`, the list of the values."""
        return ResultReference(self)

    @property
    def kind(self) -> str:
        """`job`, `call` or `each`."""
        return {JobWork: "job", CallWork: "call", EachWork: "each"}[type(self.work)]

    @property
    def references(self) -> list[Reference]:
        """All references in it."""
        return [*references_in(self.work.bindings), *references_in(self.when)]

    @property
    def gives(self) -> list[PipelineStep]:
        """The steps that give it values."""
        return list(dict.fromkeys(reference.step for reference in self.references if reference.step is not None))

    @property
    def needs(self) -> list[PipelineStep]:
        """The steps that have to end before it begins."""
        return list(dict.fromkeys([*self.gives, *self.after]))

    @property
    def reads_status(self) -> bool:
        """Whether it has the status of the run as a value."""
        return any(isinstance(reference, StatusReference) for reference in self.references)

    def __repr__(self) -> str:
        return f"<step {self.name!r}>"
