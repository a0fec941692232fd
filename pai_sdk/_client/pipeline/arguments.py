"""Checks the types of the arguments of `Pipeline.step` and `Pipeline.each`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pai_sdk._client.pipeline.steps import PipelineStep
from pai_sdk._core.names.hints import wrong_type
from pai_sdk.errors import Problem


def mapping_problems(arguments: Mapping[str, object]) -> Iterator[Problem]:
    """Yields the arguments that are no dicts with string keys."""
    for where, value in arguments.items():
        if value is None:
            continue
        if not isinstance(value, Mapping):
            yield wrong_type(where, value, "give a dict, such as {'name': value}")
        else:
            wrong = [key for key in value if not isinstance(key, str)]
            yield from (Problem(f"{where}[{key!r}]", "has no text as its name") for key in wrong)


def outputs_problems(outputs: object) -> Iterator[Problem]:
    """Yields outputs that are neither names nor a dict."""
    if not isinstance(outputs, str | Sequence | Mapping):
        yield wrong_type("outputs", outputs, "give a list of names, or a dict from name to URI")
    elif not all(isinstance(output, str) for output in outputs):
        yield Problem("outputs", f"is {outputs!r}", "give names as texts")


def steps_before(after: object) -> tuple[tuple[PipelineStep, ...], list[Problem]]:
    """Returns the steps of `after`, and the problems with it."""
    steps = (after,) if isinstance(after, PipelineStep) else () if after is None else after
    if isinstance(steps, Sequence) and all(isinstance(step, PipelineStep) for step in steps):
        return tuple(steps), []
    return (), [Problem("after", f"is {after!r}", "give a step, or a list of steps")]
