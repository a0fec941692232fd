"""Reads and checks the request of CreateTrainingJob; refuses it with all its problems at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pai_sdk.agent.sandbox import Sandbox, output_channels
from pai_sdk.errors import InvalidInputError
from pai_sdk.execution import contract
from pai_sdk.schemas.compute import ComputeResource
from pai_sdk.schemas.job_retries import JobRetries
from pai_sdk.schemas.request import TrainingJobRequest
from pai_sdk.schemas.spec import AlgorithmSpec
from pai_sdk.service.jobs.job_table import LONGEST_LABEL
from pai_sdk.service.jobs.patterns import pattern_problems
from pai_sdk.service.jobs.progress_figures import progress_patterns
from pai_sdk.service.jobs.reading import in_one_message, read_body, read_model
from pai_sdk.service.jobs.resolution import Resolved, resolve, spec_problems
from pai_sdk.service.registry.algorithm_registry import AlgorithmRegistry
from pai_sdk.service.wire_errors import WireError, invalid_parameter

__all__ = ["read_request", "read_spec"]

_LONGEST_NAME = 256
_MOST_PRIORITY = (1 << 31) - 1
_LONGEST_LIMIT = (1 << 31) - 1  # of a job's running time, in seconds or minutes


def read_request(
    body: dict[str, Any], *, workspace_of: Callable[[str | None], str], slots: int, algorithms: AlgorithmRegistry
) -> Resolved:
    """The job that is asked for, with the spec it runs, and the registered algorithm where it names one.

    Args:
        body: as it came; what is not set may be written in any form.
        workspace_of: gives the workspace that is asked for, or the default one; it refuses others.
        slots: how many instances can run here at once.
        algorithms: the registered ones.

    Raises:
        WireError: this service cannot run it; the message names every problem.
    """
    request = read_model(TrainingJobRequest, body)
    resolved = resolve(request, algorithms, workspace_id=workspace_of(request.workspace_id))
    request = resolved.request
    if request.algorithm_spec is None:
        raise invalid_parameter(
            "AlgorithmSpec: is missing; give one, or the AlgorithmName of a registered algorithm."
        )
    # What is out of bounds is refused before anything is built from it: instances, compiled patterns.
    _refuse([*_bound_problems(request, slots), *_pattern_problems(request.algorithm_spec)])
    _refuse([*_problems(request), *spec_problems(request), *_contract_problems(request)])
    return resolved


def read_spec(value: Any) -> AlgorithmSpec:
    """Reads the `AlgorithmSpec` of a version that is registered: JSON text or an object.

    Raises:
        WireError: no job could run it; the message names every problem.
    """
    if isinstance(value, str):
        try:
            value = read_body(value.encode())
        except WireError as error:
            raise invalid_parameter(f"AlgorithmSpec: {error.message}") from error
    spec = read_model(AlgorithmSpec, value, where="AlgorithmSpec")
    problems = [*_spec_problems(spec), *_pattern_problems(spec)]
    for where, names in (
        ("InputChannels", (channel.name for channel in spec.input_channels)),
        ("OutputChannels", (channel.name for channel in spec.output_channels)),
        ("HyperParameters", (definition.name for definition in spec.hyperparameter_definitions)),
    ):
        problems += _repeated(f"AlgorithmSpec.{where}", names)
    _refuse(problems)
    return spec


def _bound_problems(request: TrainingJobRequest, slots: int) -> Iterator[str]:
    yield from _count_problems(request.compute_resource, slots)
    if request.scheduler is not None:
        for name, limit in request.scheduler.to_wire().items():
            if limit < 0:
                yield f"Scheduler.{name}: {limit} is less than 0; 0 means no limit"
            elif limit > _LONGEST_LIMIT:
                yield f"Scheduler.{name}: {limit} is more than {_LONGEST_LIMIT}; 0 means no limit"
    try:
        JobRetries.of(request)
    except InvalidInputError as error:
        yield from (f"Settings: {problem}" for problem in error.problems)
    if not -_MOST_PRIORITY <= (request.priority or 0) <= _MOST_PRIORITY:
        yield f"Priority: {request.priority} is not between -{_MOST_PRIORITY} and {_MOST_PRIORITY}"


def _count_problems(resource: ComputeResource, slots: int) -> Iterator[str]:
    counts = [("EcsCount", resource.ecs_count), ("InstanceCount", resource.instance_count)]
    given = [(name, count) for name, count in counts if count is not None]
    for name, count in given:
        if count < 1:
            yield f"ComputeResource.{name}: {count} instances cannot run; ask for 1 at least"
        elif count > slots:
            yield f"ComputeResource.{name}: {count} instances never fit here; at most {slots} run at once"
    if len({count for _, count in given}) > 1:
        yield f"ComputeResource: EcsCount {resource.ecs_count} contradicts InstanceCount {resource.instance_count}"


def _problems(request: TrainingJobRequest) -> Iterator[str]:
    if not request.training_job_name.strip() or len(request.training_job_name) > _LONGEST_NAME:
        yield f"TrainingJobName: has {len(request.training_job_name)} characters; 1 to {_LONGEST_NAME} are allowed"
    if request.algorithm_spec is not None:
        yield from _spec_problems(request.algorithm_spec)
    for where, names in (
        ("InputChannels", (c.name for c in request.input_channels)),
        ("OutputChannels", (c.name for c in request.output_channels)),
        ("HyperParameters", (h.name for h in request.hyperparameters)),
        ("Labels", (label.key for label in request.labels)),
    ):
        yield from _repeated(where, names)
    for label in request.labels:
        if not label.key or max(len(label.key), len(label.value)) > LONGEST_LABEL:
            yield f"Labels: key or value of {label.key[:60]!r} is empty or longer than {LONGEST_LABEL} characters"


def _spec_problems(spec: AlgorithmSpec) -> Iterator[str]:
    if not spec.command:
        yield "AlgorithmSpec.Command: is empty; give the program to run"


def _pattern_problems(spec: AlgorithmSpec) -> Iterator[str]:
    metrics = [("MetricDefinitions", metric.name, metric.regex) for metric in spec.metric_definitions]
    progress = [("ProgressDefinitions", name, text) for name, text in progress_patterns(spec)]
    ranges = [(definition.name, definition.range) for definition in spec.hyperparameter_definitions]
    allowed = [("HyperParameters", name, found.pattern) for name, found in ranges if found and found.pattern]
    read = [*metrics, *progress]
    yield from _said_of(read, pattern_problems([text for _, _, text in read]))
    # A pattern that cannot be read forbids no value; one that would take all memory is refused all the same.
    limits = pattern_problems([text for _, _, text in allowed], readable=False)
    yield from _said_of(allowed, limits)


def _said_of(patterns: Iterable[tuple[str, str, str]], problems: Iterable[str]) -> Iterator[str]:
    for (where, name, _), problem in zip(patterns, problems, strict=True):
        if problem:
            yield f"{where}: the regex of {name!r} {problem}"


def _repeated(where: str, names: Iterable[str]) -> Iterator[str]:
    for name, times in Counter(names).items():
        if times > 1:
            yield f"{where}: {name!r} is defined {times} times"


def _contract_problems(request: TrainingJobRequest) -> Iterator[str]:
    """The names that could not become folders and variables of the job."""
    sandbox = Sandbox(Path("/"))
    try:
        for channel in request.input_channels:
            sandbox.input_dir(channel.name)
        for name in output_channels(request):
            sandbox.output_dir(name)
        contract.environment("train", request, contract.instances("train", request)[0])
    except InvalidInputError as error:
        for problem in error.problems:
            yield str(problem)


def _refuse(problems: Sequence[str]) -> None:
    if problems:
        raise invalid_parameter(in_one_message(problems))
