"""The request of a job as names and texts in groups, and the differences of two jobs."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from pai_sdk.display.base import duration_text
from pai_sdk.execution.contract import public_fields
from pai_sdk.schemas.hyperparameters import compare_hyperparameters, mask_hyperparameters
from pai_sdk.schemas.job_names import folder_pattern
from pai_sdk.schemas.record import JobRecord
from pai_sdk.schemas.recorded import recorded_fields
from pai_sdk.schemas.request import SUBMISSION_LABEL

__all__ = ["Difference", "Facts", "command_text", "differences", "job_facts"]

Facts: TypeAlias = dict[str, dict[str, str]]
"""Group to name to text. Secrets are masked."""

# The groups, in the order in which they are shown.
_GROUPS = ("code", "resources", "hyperparameters", "inputs", "outputs", "environments", "labels", "settings")
_ORDER = (*_GROUPS, "result")
_TEXTS = {
    "TrainingJobDescription": ("settings", "description"),
    "AlgorithmName": ("code", "algorithm"),
    "AlgorithmVersion": ("code", "algorithm version"),
    "AlgorithmProvider": ("code", "algorithm provider"),
    "Priority": ("settings", "priority"),
    "RoleArn": ("settings", "role"),
}
_SPEC_TEXTS = {"Image": "image", "JobType": "job type"}
_RESOURCE_TEXTS = {
    "EcsSpec": "type",
    "EcsCount": "count",
    "InstanceCount": "count",
    "ResourceId": "quota",
    "UseSpotInstance": "spot",
}
_ELSEWHERE = frozenset(
    {"TrainingJobName", "WorkspaceId", "AlgorithmSpec", "CodeDir", "ComputeResource", "HyperParameters", "Labels"}
    | {"InputChannels", "OutputChannels", "Environments", "PythonRequirements"}
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
    fields = public_fields(recorded_fields(record))
    facts: Facts = {group: {} for group in _GROUPS}
    spec = fields.get("AlgorithmSpec") or {}
    for name, shown in _SPEC_TEXTS.items():
        if spec.get(name):
            facts["code"][shown] = str(spec[name])
    if spec.get("Command"):
        facts["code"]["command"] = command_text(spec["Command"])
    if code := fields.get("CodeDir") or spec.get("CodeDir"):
        facts["code"]["source"] = _code_text(code)
    if requirements := fields.get("PythonRequirements"):
        facts["code"]["requirements"] = ", ".join(requirements)
    for metric in spec.get("MetricDefinitions") or ():
        facts["code"][f"metric {metric.get('Name')}"] = str(metric.get("Regex"))
    _add_resource(facts["resources"], fields.get("ComputeResource") or {})
    facts["hyperparameters"] = _pairs(fields.get("HyperParameters"), "Name", ("Value",))
    facts["inputs"] = _pairs(fields.get("InputChannels"), "Name", ("InputUri", "DatasetId"))
    facts["outputs"] = _pairs(fields.get("OutputChannels"), "Name", ("OutputUri", "DatasetId"))
    facts["environments"] = {name: str(value) for name, value in (fields.get("Environments") or {}).items()}
    facts["labels"] = _pairs(fields.get("Labels"), "Key", ("Value",))
    facts["labels"].pop(SUBMISSION_LABEL, None)
    for name, value in fields.items():
        if name in _TEXTS:
            group, shown = _TEXTS[name]
            facts[group][shown] = str(value)
        elif name not in _ELSEWHERE:
            facts["settings"].update(_flat(name, value))
    return {group: found for group, found in facts.items() if found}


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


def _code_text(code: Mapping[str, Any]) -> str:
    where = code.get("LocationValue") or {}
    if where.get("Bucket"):
        # The endpoint is left out: that of the embedded service changes, and the code does not.
        return f"oss://{where['Bucket']}/{where.get('Key') or ''}"
    return str(where.get("Path") or json.dumps(where, ensure_ascii=False))


def _add_resource(facts: dict[str, str], resource: Mapping[str, Any]) -> None:
    for name, value in resource.items():
        if name in _RESOURCE_TEXTS:
            facts[_RESOURCE_TEXTS[name]] = str(value)
        else:
            facts.update(_flat(name, value))


def _pairs(given: Sequence[Mapping[str, Any]] | None, key: str, values: Sequence[str]) -> dict[str, str]:
    """Name to text, of a list of objects."""
    return {
        str(each.get(key)): next((str(each[name]) for name in values if each.get(name) is not None), "")
        for each in given or ()
    }


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
