"""What a job was asked to do, as names and texts in groups: for people who look at one job, or compare two."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from pai_sdk.execution.contract import public_fields
from pai_sdk.schemas.record import JobRecord
from pai_sdk.schemas.recorded import recorded_fields
from pai_sdk.schemas.request import SUBMISSION_LABEL

__all__ = ["Facts", "command_text", "job_facts"]

Facts: TypeAlias = dict[str, dict[str, str]]
"""Group to name to text. Secrets are masked."""

# The groups, in the order in which they are shown.
_GROUPS = ("code", "resources", "hyperparameters", "inputs", "outputs", "environments", "labels", "settings")
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
