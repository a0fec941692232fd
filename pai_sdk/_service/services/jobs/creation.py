"""Parses and checks the request of CreateTrainingJob; an error lists all problems."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pai_sdk._data.rules.codec import WATCH_VARIABLE, parse_rules
from pai_sdk._host.agent.sandbox import Sandbox, output_channels
from pai_sdk._host.execution import contract
from pai_sdk._service.services.algorithms import AlgorithmRegistry
from pai_sdk._service.services.jobs.patterns import pattern_problems
from pai_sdk._service.services.jobs.progress_figures import progress_patterns
from pai_sdk._service.services.jobs.reading import join_problems, read_body, read_model
from pai_sdk._service.services.jobs.resolution import Resolved, resolve, spec_problems
from pai_sdk._service.wire_errors import WireError, invalid_parameter
from pai_sdk._wire.dlc.names import JOB_PREFIX as DLC_PREFIX
from pai_sdk._wire.pai.compute import ComputeResource
from pai_sdk._wire.pai.job_retries import JobRetries
from pai_sdk._wire.pai.request import MAX_LABEL_LENGTH, TrainingJobRequest
from pai_sdk._wire.pai.spec import AlgorithmSpec
from pai_sdk.errors import InvalidInputError

_MAX_NAME_LENGTH = 256
_MAX_PRIORITY = (1 << 31) - 1
_MAX_TIME_LIMIT = (1 << 31) - 1  # of a job's running time, in seconds or minutes


def read_request(
    body: dict[str, Any],
    *,
    workspace_of: Callable[[str | None], str],
    slots: int,
    algorithms: AlgorithmRegistry,
    is_of_dlc: bool = False,
) -> Resolved:
    """Parses a job, and resolves its algorithm; WireError lists all problems.

    `workspace_of` returns the requested workspace or the default one. `slots` limits the concurrent instances.
    """
    request = read_model(TrainingJobRequest, body)
    resolved = resolve(request, algorithms, workspace_id=workspace_of(request.workspace_id))
    request = resolved.request
    if request.algorithm_spec is None:
        raise invalid_parameter(
            "AlgorithmSpec: is missing; give one, or the AlgorithmName of a registered algorithm."
        )
    # Bounds are checked first: later checks allocate memory for instances and compiled patterns.
    _refuse([*_bound_problems(request, slots), *_pattern_problems(request.algorithm_spec)])
    _refuse([*_problems(request), *spec_problems(request), *_contract_problems(request, is_of_dlc)])
    return resolved


def read_spec(value: Any) -> AlgorithmSpec:
    """Reads the `AlgorithmSpec` of a version that is registered: JSON text or an object."""
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
    if request.roles and request.instance_count > slots:
        yield f"Roles: {request.instance_count} instances exceed the capacity of this service, {slots}"
    if request.scheduler is not None:
        for name, limit in request.scheduler.to_wire().items():
            if limit < 0:
                yield f"Scheduler.{name}: {limit} is less than 0; 0 means no limit"
            elif limit > _MAX_TIME_LIMIT:
                yield f"Scheduler.{name}: {limit} is more than {_MAX_TIME_LIMIT}; 0 means no limit"
    try:
        JobRetries.of(request)
    except InvalidInputError as error:
        yield from (f"Settings: {problem}" for problem in error.problems)
    try:
        parse_rules((request.environments or {}).get(WATCH_VARIABLE) or "[]")
    except InvalidInputError as error:
        yield from (f"Environments: {problem}" for problem in error.problems)
    if not -_MAX_PRIORITY <= (request.priority or 0) <= _MAX_PRIORITY:
        yield f"Priority: {request.priority} is not between -{_MAX_PRIORITY} and {_MAX_PRIORITY}"


def _count_problems(resource: ComputeResource, slots: int) -> Iterator[str]:
    counts = [("EcsCount", resource.ecs_count), ("InstanceCount", resource.instance_count)]
    values = [(name, count) for name, count in counts if count is not None]
    for name, count in values:
        if count < 1:
            yield f"ComputeResource.{name}: {count} instances cannot run; the minimum is 1"
        elif count > slots:
            yield f"ComputeResource.{name}: {count} instances exceed the capacity of this service, {slots}"
    if len({count for _, count in values}) > 1:
        mismatch = f"EcsCount {resource.ecs_count} conflicts with InstanceCount {resource.instance_count}"
        yield f"ComputeResource: {mismatch}"


def _problems(request: TrainingJobRequest) -> Iterator[str]:
    if not request.training_job_name.strip() or len(request.training_job_name) > _MAX_NAME_LENGTH:
        length = len(request.training_job_name)
        yield f"TrainingJobName: has {length} characters; 1 to {_MAX_NAME_LENGTH} are allowed"
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
        if not label.key or max(len(label.key), len(label.value)) > MAX_LABEL_LENGTH:
            key = repr(label.key[:60])
            yield f"Labels: key or value of {key} is empty or longer than {MAX_LABEL_LENGTH} characters"


def _spec_problems(spec: AlgorithmSpec) -> Iterator[str]:
    if not spec.command:
        yield "AlgorithmSpec.Command: is empty; give the program to run"


def _pattern_problems(spec: AlgorithmSpec) -> Iterator[str]:
    metrics = [("MetricDefinitions", metric.name, metric.regex) for metric in spec.metric_definitions]
    progress = [("ProgressDefinitions", name, text) for name, text in progress_patterns(spec)]
    ranges = [(definition.name, definition.range) for definition in spec.hyperparameter_definitions]
    allowed = [
        ("HyperParameters", name, value_range.pattern)
        for name, value_range in ranges
        if value_range and value_range.pattern
    ]
    read = [*metrics, *progress]
    yield from _messages_of(read, pattern_problems([text for _, _, text in read]))
    # An invalid pattern accepts any value, but one that would use all memory is refused.
    limits = pattern_problems([text for _, _, text in allowed], readable=False)
    yield from _messages_of(allowed, limits)


def _messages_of(patterns: Iterable[tuple[str, str, str]], problems: Iterable[str]) -> Iterator[str]:
    for (where, name, _), problem in zip(patterns, problems, strict=True):
        if problem:
            yield f"{where}: the regex of {name!r} {problem}"


def _repeated(where: str, names: Iterable[str]) -> Iterator[str]:
    for name, times in Counter(names).items():
        if times > 1:
            yield f"{where}: {name!r} is defined {times} times"


def _contract_problems(request: TrainingJobRequest, is_of_dlc: bool) -> Iterator[str]:
    """Yields the names that cannot be folders or variables of the job."""
    sandbox = Sandbox(Path("/"))
    try:
        for channel in request.input_channels:
            sandbox.input_dir(channel.name)
        for name in output_channels(request):
            sandbox.output_dir(name)
        job_id = DLC_PREFIX if is_of_dlc else "train"
        contract.environment(job_id, request, contract.instances(job_id, request)[0], input_files={})
    except InvalidInputError as error:
        for problem in error.problems:
            yield str(problem)


def _refuse(problems: Sequence[str]) -> None:
    if problems:
        raise invalid_parameter(join_problems(problems))
