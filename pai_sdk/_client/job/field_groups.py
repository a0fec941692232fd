"""Groups the fields of a job's request for display, and compares two jobs by them."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from pai_sdk._client.display.base import duration_text
from pai_sdk._wire.masking import public_fields
from pai_sdk._wire.pai.hyperparameters import compare_hyperparameters, mask_hyperparameters
from pai_sdk._wire.pai.job_names import folder_pattern
from pai_sdk._wire.pai.record import JobRecord
from pai_sdk._wire.pai.recorded import recorded_fields
from pai_sdk._wire.pai.request import SUBMISSION_LABEL
from pai_sdk._wire.pai.wire import Received
from pai_sdk._wire.requests import RecordedCompute, RecordedRequest, RecordedSpec

FieldGroups: TypeAlias = dict[str, dict[str, str]]
"""Group to name to text. Secrets are masked."""

# The groups, in the order in which they are shown.
_GROUPS = ("code", "resources", "hyperparameters", "inputs", "outputs", "environments", "labels", "settings")
_ORDER = (*_GROUPS, "result")
_FIELD_TITLES = {
    "training_job_description": ("settings", "description"),
    "algorithm_name": ("code", "algorithm"),
    "algorithm_version": ("code", "algorithm version"),
    "algorithm_provider": ("code", "algorithm provider"),
    "priority": ("settings", "priority"),
    "role_arn": ("settings", "role"),
}
_RESOURCE_TITLES = {
    "ecs_spec": "type",
    "ecs_count": "count",
    "instance_count": "count",
    "resource_id": "quota",
    "use_spot_instance": "spot",
}
# The fields that are displayed in a group of their own, or not at all.
_GROUPED = frozenset(
    {"training_job_name", "workspace_id", "algorithm_spec", "code_dir", "compute_resource", "hyperparameters"}
    | {"labels", "input_channels", "output_channels", "environments", "python_requirements", *_FIELD_TITLES}
)
# In front of the command: the channel with the part of this package that jobs import.
_PACKAGE_PATH = re.compile(r'^export PYTHONPATH="[^"]*PAI_INPUT_PAI_SDK[^"]*"; ')


def request_groups(record: JobRecord) -> FieldGroups:
    """Returns the non-empty groups of fields of a job's request; unknown fields keep their wire names."""
    request = RecordedRequest.model_validate(public_fields(recorded_fields(record)))
    resource = request.compute_resource or RecordedCompute()
    groups: FieldGroups = {group: {} for group in _GROUPS}
    groups["code"] = dict(_code_fields(request))
    for name, title in _RESOURCE_TITLES.items():
        if (value := getattr(resource, name)) is not None:
            groups["resources"][title] = str(value)
    groups["resources"].update(_other_fields(resource, exclude=_RESOURCE_TITLES.keys()))
    groups["hyperparameters"] = {str(each.name): each.value or "" for each in request.hyperparameters}
    groups["inputs"] = {str(each.name): each.uri or each.dataset_id or "" for each in request.input_channels}
    groups["outputs"] = {str(each.name): each.uri or each.dataset_id or "" for each in request.output_channels}
    groups["environments"] = {name: str(value) for name, value in (request.environments or {}).items()}
    groups["labels"] = {str(each.key): each.value or "" for each in request.labels if each.key != SUBMISSION_LABEL}
    for name, (group, title) in _FIELD_TITLES.items():
        if (value := getattr(request, name)) is not None:
            groups[group][title] = str(value)
    groups["settings"].update(_other_fields(request, exclude=_GROUPED))
    return {group: fields for group, fields in groups.items() if fields}


def _code_fields(request: RecordedRequest) -> Iterator[tuple[str, str]]:
    spec = request.algorithm_spec or RecordedSpec()
    if spec.image:
        yield "image", spec.image
    if spec.job_type:
        yield "job type", spec.job_type
    if spec.command:
        yield "command", command_text(spec.command)
    if source := request.code_dir or spec.code_dir:
        yield "source", str(source)
    if request.python_requirements:
        yield "requirements", ", ".join(request.python_requirements)
    for metric in spec.metric_definitions:
        yield f"metric {metric.name}", str(metric.regex)


@dataclass(frozen=True)
class Difference:
    """One difference of two jobs."""

    group: str  # of `request_groups`, or `result`
    name: str
    first: str | None  # None if the first job has none
    second: str | None  # None if the second job has none


def differences(first: JobRecord, second: JobRecord) -> list[Difference]:
    """Returns all differences of two jobs, in the order of the groups; values of variables are masked."""
    first_fields, second_fields = _comparable_fields(first), _comparable_fields(second)
    changed = [
        Difference(*key, first_fields.get(key), second_fields.get(key))
        for key in {**first_fields, **second_fields}
        if key[0] != "hyperparameters"
        # Output folders that differ only in the name of the job count as equal.
        and _without_job_names(first_fields.get(key), first) != _without_job_names(second_fields.get(key), second)
    ]
    return sorted(
        [*changed, *_hyperparameters(first, second), *_environments(first, second)],
        key=lambda difference: _ORDER.index(difference.group),
    )


def command_text(command: Sequence[str]) -> str:
    """Returns a command as the user wrote it: the script of `sh -c`, or the quoted arguments."""
    if list(command[:2]) == ["sh", "-c"] and len(command) > 2:
        text = _PACKAGE_PATH.sub("", command[2])
        if len(command) == 3:
            return text
        if text == 'exec "$@"':
            return shlex.join(command[4:])
    return shlex.join(command)


def _other_fields(model: Received, *, exclude: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yields the remaining fields, by their names on the wire."""
    fields = model.model_dump(mode="json", by_alias=True, exclude_none=True, exclude={*exclude})
    for name, value in fields.items():
        if value not in ([], {}):
            yield from _flattened(name, value)


def _flattened(name: str, value: Any) -> Iterator[tuple[str, str]]:
    """Yields the leaves of a value with their dotted paths."""
    if isinstance(value, Mapping):
        for inner, item in value.items():
            yield from _flattened(f"{name}.{inner}", item)
    elif isinstance(value, str):
        yield name, value
    else:
        yield name, json.dumps(value, ensure_ascii=False)


def _comparable_fields(record: JobRecord) -> dict[tuple[str, str], str]:
    fields = {
        (group, name): text
        for group, group_fields in request_groups(record).items()
        for name, text in group_fields.items()
    }
    fields["result", "status"] = record.status
    if record.status.is_terminal and record.duration is not None:
        fields["result", "duration"] = duration_text(record.duration)
    if record.reason_message and record.status.is_failure:
        fields["result", "reason"] = record.reason_message
    for metric in record.latest_metrics:
        if metric.name and metric.value is not None:
            fields["result", f"metric {metric.name}"] = f"{metric.value:g}"
    return fields


def _without_job_names(text: str | None, record: JobRecord) -> str | None:
    """Returns the text without the name and the id of the job, which differ in every job."""
    if text and record.training_job_name:
        text = folder_pattern(record.training_job_name).sub("…", text)
    return text.replace(record.training_job_id, "…") if text and record.training_job_id else text


def _hyperparameters(first: JobRecord, second: JobRecord) -> list[Difference]:
    """Returns the hyperparameters that differ; secrets are compared by value and masked in the result."""
    rows = [{name: text or "" for name, text in job.hyperparameter_values.items()} for job in (first, second)]
    pairs = [*zip(rows, (first, second), strict=True)]
    comparable = [{name: _without_job_names(text, record) for name, text in row.items()} for row, record in pairs]
    first_masked, second_masked = map(mask_hyperparameters, rows)
    return [
        Difference("hyperparameters", name, first_masked.get(name), second_masked.get(name))
        for name in compare_hyperparameters(comparable).differing
    ]


def _environments(first: JobRecord, second: JobRecord) -> list[Difference]:
    """Returns the variables that both jobs have with different values."""
    first_values, second_values = first.environments or {}, second.environments or {}
    return [
        Difference("environments", name, "one value", "another value")
        for name in first_values
        if name in second_values and first_values[name] != second_values[name]
    ]
