"""The body of CreateTrainingJob: read, and refused with all that is wrong with it at once."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import regex
from pydantic import ValidationError

from pai_sdk.errors import InvalidInputError
from pai_sdk.execution import contract
from pai_sdk.execution.sandbox import Sandbox, output_channels
from pai_sdk.job.request import TrainingJobRequest
from pai_sdk.job.spec import AlgorithmSpec
from pai_sdk.service.algorithms import Algorithms
from pai_sdk.service.faults import Fault, invalid_parameter
from pai_sdk.service.jobs import LONGEST_LABEL
from pai_sdk.service.progress import progress_patterns
from pai_sdk.service.resolution import Resolved, resolve, spec_problems
from pai_sdk.service.unset import without_unset

__all__ = ["read_body", "read_request", "read_spec"]

_LONGEST_NAME = 256
_MOST_PRIORITY = (1 << 31) - 1
_SHOWN_PROBLEMS = 20


def read_body(body: bytes) -> dict[str, Any]:
    """A request's body as a JSON object.

    Raises:
        Fault: it is none, or holds text that can be stored nowhere.
    """
    try:
        value = json.loads(body or b"{}")
        # What can be read need not be writable: lone surrogates, NaN, infinity.
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
        has_nul = _has_nul(value)
    except (ValueError, RecursionError) as error:
        raise invalid_parameter(f"The body is not JSON: {type(error).__name__}.") from error
    if not isinstance(value, dict):
        raise invalid_parameter("The body is not a JSON object.")
    if has_nul:
        raise invalid_parameter("The body holds a NUL character, which no database and no environment can.")
    return value


def read_request(body: dict[str, Any], *, workspace_id: str, slots: int, algorithms: Algorithms) -> Resolved:
    """The job that is asked for, with the spec it runs, and the registered algorithm where it names one.

    Args:
        body: as it came; what is not set may be written in any form.
        workspace_id: the only workspace there is.
        slots: how many instances can run here at once.
        algorithms: the registered ones.

    Raises:
        Fault: this service cannot run it; the message names every problem.
    """
    try:
        request = TrainingJobRequest.model_validate(
            without_unset(body, TrainingJobRequest), by_alias=True, by_name=False
        )
    except ValidationError as error:
        raise invalid_parameter(_all_of(_wire_problems(error))) from error
    if request.workspace_id not in (None, workspace_id):
        raise Fault(
            404,
            "WORKSPACE_NOT_FOUND",
            f"There is no workspace {request.workspace_id!r} here, only {workspace_id!r}.",
        )
    resolved = resolve(request, algorithms, workspace_id=workspace_id)
    request = resolved.request
    if request.algorithm_spec is None:
        raise invalid_parameter(
            "AlgorithmSpec: is missing; give one, or the AlgorithmName of a registered algorithm."
        )
    problems = [*_problems(request, slots), *spec_problems(request), *_contract_problems(request)]
    if problems:
        raise invalid_parameter(_all_of(problems))
    return resolved


def read_spec(body: dict[str, Any]) -> AlgorithmSpec:
    """The spec of a version that is registered: JSON text in the body's `AlgorithmSpec`, or an object.

    Raises:
        Fault: no job could run it; the message names every problem.
    """
    given = body.get("AlgorithmSpec")
    if isinstance(given, str):
        try:
            given = read_body(given.encode())
        except Fault as fault:
            raise invalid_parameter(f"AlgorithmSpec: {fault.message}") from fault
    try:
        spec = AlgorithmSpec.model_validate(without_unset(given, AlgorithmSpec), by_alias=True, by_name=False)
    except ValidationError as error:
        raise invalid_parameter(
            _all_of(f"AlgorithmSpec.{problem}" for problem in _wire_problems(error))
        ) from error
    problems = list(_spec_problems(spec))
    for where, names in (
        ("InputChannels", (channel.name for channel in spec.input_channels)),
        ("OutputChannels", (channel.name for channel in spec.output_channels)),
        ("HyperParameters", (definition.name for definition in spec.hyperparameter_definitions)),
    ):
        problems += _repeated(f"AlgorithmSpec.{where}", names)
    if problems:
        raise invalid_parameter(_all_of(problems))
    return spec


def _has_nul(value: Any) -> bool:
    if isinstance(value, dict):
        return any(_has_nul(key) or _has_nul(item) for key, item in value.items())
    if isinstance(value, list):
        return any(_has_nul(item) for item in value)
    return isinstance(value, str) and "\0" in value


def _wire_problems(error: ValidationError) -> Iterator[str]:
    for problem in error.errors(include_url=False, include_input=False, include_context=False):
        where = ".".join(str(part) for part in problem["loc"]) or "body"
        yield f"{where}: {problem['msg']}"


def _problems(request: TrainingJobRequest, slots: int) -> Iterator[str]:
    if not request.training_job_name.strip() or len(request.training_job_name) > _LONGEST_NAME:
        yield f"TrainingJobName: has {len(request.training_job_name)} characters; 1 to {_LONGEST_NAME} are allowed"
    if request.algorithm_spec is not None:
        yield from _spec_problems(request.algorithm_spec)
    if request.scheduler is not None:
        for name, limit in request.scheduler.to_wire().items():
            if limit < 0:
                yield f"Scheduler.{name}: {limit} is less than 0; 0 is without limit"
    if request.instance_count < 1:
        yield f"ComputeResource: {request.instance_count} instances cannot run; ask for 1 at least"
    elif request.instance_count > slots:
        yield f"ComputeResource: {request.instance_count} instances never fit here; at most {slots} run at once"
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
    if not -_MOST_PRIORITY <= (request.priority or 0) <= _MOST_PRIORITY:
        yield f"Priority: {request.priority} is not between -{_MOST_PRIORITY} and {_MOST_PRIORITY}"


def _spec_problems(spec: AlgorithmSpec) -> Iterator[str]:
    if not spec.command:
        yield "AlgorithmSpec.Command: is empty; give the program to run"
    for definition in spec.metric_definitions:
        yield from _regex_problems("MetricDefinitions", definition.name, definition.regex)
    for name, regex_text in progress_patterns(spec):
        yield from _regex_problems("ProgressDefinitions", name, regex_text)


def _repeated(where: str, names: Iterable[str]) -> Iterator[str]:
    for name, times in Counter(names).items():
        if times > 1:
            yield f"{where}: {name!r} is there {times} times"


def _regex_problems(where: str, name: str, pattern: str) -> Iterator[str]:
    try:
        if regex.compile(pattern).groups < 1:
            yield f"{where}: the regex of {name!r} has no group; put the value in one: loss=([0-9.]+)"
    except (regex.error, RecursionError, OverflowError) as error:
        yield f"{where}: the regex of {name!r} cannot be read: {error}"


def _contract_problems(request: TrainingJobRequest) -> Iterator[str]:
    """What could not become folders and variables of the job."""
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
    except IndexError:
        pass  # no instances: told already


def _all_of(problems: Iterable[str]) -> str:
    found = list(problems)
    shown = "; ".join(found[:_SHOWN_PROBLEMS])
    more = len(found) - _SHOWN_PROBLEMS
    return shown + (f"; and {more} more" if more > 0 else "")
