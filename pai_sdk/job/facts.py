"""The request of a job as names and texts in groups, and the differences of two jobs."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from pai_sdk._wire.masking import public_fields
from pai_sdk._wire.requests import RecordedCompute, RecordedRequest, RecordedSpec
from pai_sdk.display.base import duration_text
from pai_sdk.schemas.hyperparameters import compare_hyperparameters, mask_hyperparameters
from pai_sdk.schemas.job_names import folder_pattern
from pai_sdk.schemas.record import JobRecord
from pai_sdk.schemas.recorded import recorded_fields
from pai_sdk.schemas.request import SUBMISSION_LABEL
from pai_sdk.schemas.wire import Received

__all__ = ["Difference", "Facts", "command_text", "differences", "job_facts"]

Facts: TypeAlias = dict[str, dict[str, str]]
"""Group to name to text. Secrets are masked."""

# The groups, in the order in which they are shown.
_GROUPS = ("code", "resources", "hyperparameters", "inputs", "outputs", "environments", "labels", "settings")
_ORDER = (*_GROUPS, "result")
_TEXTS = {
    "training_job_description": ("settings", "description"),
    "algorithm_name": ("code", "algorithm"),
    "algorithm_version": ("code", "algorithm version"),
    "algorithm_provider": ("code", "algorithm provider"),
    "priority": ("settings", "priority"),
    "role_arn": ("settings", "role"),
}
_RESOURCE_TEXTS = {
    "ecs_spec": "type",
    "ecs_count": "count",
    "instance_count": "count",
    "resource_id": "quota",
    "use_spot_instance": "spot",
}
# The fields that are displayed in a group of their own, or not at all.
_GROUPED = frozenset(
    {"training_job_name", "workspace_id", "algorithm_spec", "code_dir", "compute_resource", "hyperparameters"}
    | {"labels", "input_channels", "output_channels", "environments", "python_requirements", *_TEXTS}
)
# In front of the command: the channel with the part of this package that jobs import.
_PACKAGE_PATH = re.compile(r'^export PYTHONPATH="[^"]*PAI_INPUT_PAI_SDK[^"]*"; ')


def job_facts(record: JobRecord) -> Facts:
    """The request of a job in groups; all of it, and what is not known here by its name on the wire.

    Args:
        record: of the job.

    Returns:
        Only groups that have something.

    Example:
        >>> record = JobRecord.model_validate({"TrainingJobId": "train1", "HyperParameters": [
        ...     {"Name": "lr", "Value": "0.1"}], "ComputeResource": {"EcsSpec": "ecs.c6.large", "EcsCount": 1}})
        >>> job_facts(record)
        {'resources': {'type': 'ecs.c6.large', 'count': '1'}, 'hyperparameters': {'lr': '0.1'}}
    """
    request = RecordedRequest.model_validate(public_fields(recorded_fields(record)))
    resource = request.compute_resource or RecordedCompute()
    facts: Facts = {group: {} for group in _GROUPS}
    facts["code"] = dict(_code_texts(request))
    for name, title in _RESOURCE_TEXTS.items():
        if (value := getattr(resource, name)) is not None:
            facts["resources"][title] = str(value)
    facts["resources"].update(_other_fields(resource, exclude=_RESOURCE_TEXTS.keys()))
    facts["hyperparameters"] = {str(each.name): each.value or "" for each in request.hyperparameters}
    facts["inputs"] = {str(each.name): each.uri or each.dataset_id or "" for each in request.input_channels}
    facts["outputs"] = {str(each.name): each.uri or each.dataset_id or "" for each in request.output_channels}
    facts["environments"] = {name: str(value) for name, value in (request.environments or {}).items()}
    facts["labels"] = {str(each.key): each.value or "" for each in request.labels if each.key != SUBMISSION_LABEL}
    for name, (group, title) in _TEXTS.items():
        if (value := getattr(request, name)) is not None:
            facts[group][title] = str(value)
    facts["settings"].update(_other_fields(request, exclude=_GROUPED))
    return {group: texts for group, texts in facts.items() if texts}


def _code_texts(request: RecordedRequest) -> Iterator[tuple[str, str]]:
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
    """One difference of two jobs.

    Attributes:
        group: `code`, `hyperparameters`, `inputs`, …, or `result`.
        name: within the group.
        first: of the first job; None where it has none.
        second: of the second one.
    """

    group: str
    name: str
    first: str | None
    second: str | None


def differences(first: JobRecord, second: JobRecord) -> list[Difference]:
    """All differences of two jobs, groups in their order. Values of variables are compared, and masked.

    Args:
        first: a job.
        second: another one. Output folders that differ only in the name of the job count as the same.

    Example:
        >>> a, b = (JobRecord.model_validate({"TrainingJobId": f"train{lr}", "Status": "Succeed",
        ...     "HyperParameters": [{"Name": "lr", "Value": lr}]}) for lr in ("0.1", "0.2"))
        >>> differences(a, b)
        [Difference(group='hyperparameters', name='lr', first='0.1', second='0.2')]
    """
    ours, theirs = _all_facts(first), _all_facts(second)
    found = [
        Difference(*key, ours.get(key), theirs.get(key))
        for key in {**ours, **theirs}
        if key[0] != "hyperparameters"
        and _same_in_both(ours.get(key), first) != _same_in_both(theirs.get(key), second)
    ]
    return sorted(
        [*found, *_hyperparameters(first, second), *_environments(first, second)],
        key=lambda one: _ORDER.index(one.group),
    )


def command_text(command: Sequence[str]) -> str:
    """A command as its user wrote it: text that goes through `sh -c`, or the words of a list.

    Example:
        >>> command_text(["sh", "-c", "python train.py $PAI_USER_ARGS"]), command_text(["python", "a b.py"])
        ('python train.py $PAI_USER_ARGS', "python 'a b.py'")
    """
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
            yield from _flat(name, value)


def _flat(name: str, value: Any) -> Iterator[tuple[str, str]]:
    """A value, and the values in it by their paths."""
    if isinstance(value, Mapping):
        for inner, item in value.items():
            yield from _flat(f"{name}.{inner}", item)
    elif isinstance(value, str):
        yield name, value
    else:
        yield name, json.dumps(value, ensure_ascii=False)


def _all_facts(record: JobRecord) -> dict[tuple[str, str], str]:
    facts = {(group, name): text for group, found in job_facts(record).items() for name, text in found.items()}
    facts["result", "status"] = record.status
    if record.status.is_terminal and record.duration is not None:
        facts["result", "duration"] = duration_text(record.duration)
    if record.reason_message and record.status.is_failure:
        facts["result", "reason"] = record.reason_message
    for metric in record.latest_metrics:
        if metric.name and metric.value is not None:
            facts["result", f"metric {metric.name}"] = f"{metric.value:g}"
    return facts


def _same_in_both(text: str | None, record: JobRecord) -> str | None:
    """The text, without what is different in every job."""
    if text and record.training_job_name:
        text = folder_pattern(record.training_job_name).sub("…", text)
    return text.replace(record.training_job_id, "…") if text and record.training_job_id else text


def _hyperparameters(first: JobRecord, second: JobRecord) -> list[Difference]:
    """Those that differ. Values of secrets are compared, and shown as masks."""
    rows = [{name: text or "" for name, text in one.hyperparameter_values.items()} for one in (first, second)]
    pairs = [*zip(rows, (first, second), strict=True)]
    alike = [{name: _same_in_both(text, record) for name, text in row.items()} for row, record in pairs]
    ours, theirs = map(mask_hyperparameters, rows)
    return [
        Difference("hyperparameters", name, ours.get(name), theirs.get(name))
        for name in compare_hyperparameters(alike).differing
    ]


def _environments(first: JobRecord, second: JobRecord) -> list[Difference]:
    """Variables that both have, with different values."""
    ours, theirs = first.environments or {}, second.environments or {}
    return [
        Difference("environments", name, "one value", "another value")
        for name in ours
        if name in theirs and ours[name] != theirs[name]
    ]
