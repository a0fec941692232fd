"""Resolves the algorithm of a job and the defaults of its hyperparameters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import regex

from pai_sdk._service.services.algorithms import AlgorithmRegistry
from pai_sdk._service.wire_errors import invalid_parameter
from pai_sdk._wire.pai.definitions import (
    AlgorithmDefinition,
    hyperparameter_problems,
    instance_problems,
    with_defaults,
)
from pai_sdk._wire.pai.request import TrainingJobRequest
from pai_sdk._wire.pai.spec import AlgorithmSpec, Channel
from pai_sdk.errors import Problem

_MAX_MATCH_S = 0.05


@dataclass(frozen=True)
class Resolved:
    """A job with its resolved algorithm."""

    request: TrainingJobRequest  # has a copy of the spec: later versions of the algorithm have no effect
    workspace_id: str
    algorithm_id: str | None = None  # None if the request has a spec


def resolve(request: TrainingJobRequest, algorithms: AlgorithmRegistry, *, workspace_id: str) -> Resolved:
    """Adds the spec of a registered algorithm and the defaults of hyperparameters to a request."""
    algorithm_id = None
    if request.algorithm_name is not None:
        if request.algorithm_spec is not None:
            raise invalid_parameter("AlgorithmSpec: conflicts with AlgorithmName; give only one of them.")
        algorithm, version = algorithms.get_by_name(
            request.algorithm_name,
            request.algorithm_version,
            request.algorithm_provider,
            workspace_id=workspace_id,
        )
        algorithm_id = algorithm.id
        registered = {"algorithm_version": version.version, "algorithm_provider": algorithm.provider}
        spec = AlgorithmSpec.model_validate(version.spec)
        request = request.model_copy(update={**registered, "algorithm_spec": spec})
    if request.algorithm_spec is not None:
        definition = AlgorithmDefinition.of(request.algorithm_spec)
        if algorithm_id is not None and request.code_dir is not None and not definition.takes_code:
            raise invalid_parameter("CodeDir: the algorithm has code of its own, and takes no other.")
        definitions = definition.hyperparameter_definitions
        values = with_defaults(definitions, request.hyperparameters)
        request = request.model_copy(update={"hyperparameters": values})
    return Resolved(request, workspace_id, algorithm_id)


def spec_problems(request: TrainingJobRequest) -> Iterator[str]:
    """Yields the problems of a job by the definitions of its algorithm."""
    if request.algorithm_spec is None:
        return
    definition = AlgorithmDefinition.of(request.algorithm_spec)
    resource = request.compute_resource
    problems: list[Problem] = [
        *hyperparameter_problems(
            definition.hyperparameter_definitions,
            request.hyperparameters,
            "HyperParameters",
            fits_pattern=_fits_in_time,
        ),
        *instance_problems(
            definition,
            resource.ecs_spec,
            request.instance_count,
            ("ComputeResource.EcsSpec", "ComputeResource.EcsCount"),
        ),
    ]
    yield from map(str, problems)
    yield from _missing(
        "InputChannels", request.algorithm_spec.input_channels, {c.name for c in request.input_channels}
    )


def _missing(where: str, definitions: Sequence[Channel], present: set[str]) -> Iterator[str]:
    for channel in definitions:
        if channel.required and channel.name not in present:
            yield f"{where}: {channel.name!r} is required"


def _fits_in_time(pattern: str, text: str) -> bool:
    """Returns whether a value matches; an invalid or slow pattern accepts any value."""
    try:
        # Not in the cache of the regex module, which limits the number of patterns but not their size.
        compiled = regex.compile(pattern, cache_pattern=False)
        return compiled.search(text, timeout=_MAX_MATCH_S, concurrent=True) is not None
    except (regex.error, TimeoutError, RecursionError, OverflowError):
        return True
