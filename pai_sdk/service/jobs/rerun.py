"""A job like an earlier one, with changes: the fields that a form shows, and the request that is made of them."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from pai_sdk.execution.contract import public_fields
from pai_sdk.schemas.job_names import folder_pattern, new_ending, without_ending
from pai_sdk.schemas.request import IDEMPOTENCY_LABEL, SUBMISSION_LABEL
from pai_sdk.schemas.secret_values import MASK
from pai_sdk.service.jobs.reading import in_one_message
from pai_sdk.service.wire_errors import invalid_parameter

__all__ = ["LABELS_OF_ONE_JOB", "RerunChanges", "changed_request", "form_fields"]

LABELS_OF_ONE_JOB = (SUBMISSION_LABEL, IDEMPOTENCY_LABEL)
"""Labels that no other job may have."""

_LONGEST_NAME = 120
_PAIRS = {"hyperparameters": ("HyperParameters", "Name"), "labels": ("Labels", "Key")}
_OF_REGISTERED = ("AlgorithmName", "AlgorithmVersion", "AlgorithmProvider")


def _as_text(value: Any) -> str:
    """A value of a form as the text that a request has."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    raise ValueError("a text or a number is needed")


_Texts = dict[str, Annotated[str, BeforeValidator(_as_text, json_schema_input_type=str | float | bool)]]


class RerunChanges(BaseModel):
    """The fields of a form that are other than in the earlier job; a dictionary replaces the whole one."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field("", min_length=1, max_length=_LONGEST_NAME)
    image: str = Field("", min_length=1)
    command: str = Field("", min_length=1)
    instance_type: str = Field("", min_length=1)
    instance_count: int = Field(1, ge=1)
    hyperparameters: _Texts = Field(default_factory=dict)
    environment: _Texts = Field(default_factory=dict)
    labels: _Texts = Field(default_factory=dict)
    max_runtime_s: int | None = Field(None, ge=1, description="Null for no limit.")

    def given(self) -> dict[str, Any]:
        """The fields that were given, by name."""
        return {name: getattr(self, name) for name in sorted(self.model_fields_set)}


def form_fields(request: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that a re-run can change, with their values; secrets are masked.

    Args:
        request: of the earlier job, as it is on the wire.

    Example:
        >>> fields = form_fields({"TrainingJobName": "fit-3f2a9c", "ComputeResource": {"EcsSpec": "ecs.c6.large"},
        ...     "HyperParameters": [{"Name": "lr", "Value": "0.1"}], "Environments": {"TOKEN": "abc"}})
        >>> fields["name"], fields["hyperparameters"], fields["environment"]
        ('fit', {'lr': '0.1'}, {'TOKEN': '******'})
    """
    shown = public_fields(request)
    spec, resource = shown.get("AlgorithmSpec") or {}, shown.get("ComputeResource") or {}
    found: dict[str, Any] = {"name": without_ending(str(shown.get("TrainingJobName") or ""))}
    if spec:
        found |= {"image": spec.get("Image"), "command": _command_text(spec.get("Command"))}
    if resource.get("EcsSpec"):
        found["instance_type"] = resource["EcsSpec"]
    found["instance_count"] = _count(resource)
    for name, (field, key) in _PAIRS.items():
        pairs = {str(one[key]): one.get("Value") for one in shown.get(field) or []}
        found[name] = {key: value for key, value in pairs.items() if key not in LABELS_OF_ONE_JOB}
    found["environment"] = dict(shown.get("Environments") or {})
    found["max_runtime_s"] = (shown.get("Scheduler") or {}).get("MaxRunningTimeInSeconds")
    return found


def changed_request(request: Mapping[str, Any], changes: RerunChanges, token: str) -> dict[str, Any]:
    """The request of a new job: that of an earlier one with changes, a name and output folders of its own.

    A masked value that comes back keeps the value of the earlier job. A registered algorithm is named again,
    unless its image or command is changed.

    Args:
        request: of the earlier job, as it is on the wire.
        changes: to its fields.
        token: the same one makes the same job only once.

    Raises:
        WireError: with all that cannot be changed.

    Example:
        >>> before = {"TrainingJobName": "fit-3f2a9c", "HyperParameters": [{"Name": "lr", "Value": "0.1"}],
        ...     "OutputChannels": [{"Name": "model", "OutputUri": "oss://b/fit-3f2a9c/model/"}]}
        >>> made = changed_request(before, RerunChanges(hyperparameters={"lr": "0.2"}), "once")
        >>> made["HyperParameters"], made["OutputChannels"][0]["OutputUri"] != "oss://b/fit-3f2a9c/model/"
        ([{'Name': 'lr', 'Value': '0.2'}], True)
    """
    fields = form_fields(request)
    given = {name: value for name, value in changes.given().items() if value != fields.get(name)}
    _refuse(given, fields)
    made = dict(request)
    before = str(request.get("TrainingJobName") or "job")
    made["TrainingJobName"] = name = f"{given.get('name') or fields['name'][:_LONGEST_NAME]}-{new_ending()}"
    made["Labels"] = _kept(request, "labels", given.get("labels", fields["labels"]))
    made["Labels"].append({"Key": SUBMISSION_LABEL, "Value": hashlib.sha256(token.encode()).hexdigest()[:32]})
    if "hyperparameters" in given:
        made["HyperParameters"] = _kept(request, "hyperparameters", given["hyperparameters"])
    if "environment" in given:
        stored = request.get("Environments") or {}
        made["Environments"] = {
            key: stored[key] if one == MASK else one for key, one in given["environment"].items()
        }
    _set_algorithm(made, given)
    made["ComputeResource"] = _resource(request.get("ComputeResource") or {}, given)
    if "max_runtime_s" in given:
        scheduler = {**(made.get("Scheduler") or {}), "MaxRunningTimeInSeconds": given["max_runtime_s"]}
        made["Scheduler"] = {name: value for name, value in scheduler.items() if value is not None}
    made["OutputChannels"] = [_elsewhere(one, before, name) for one in request.get("OutputChannels") or []]
    return made


def _refuse(given: Mapping[str, Any], fields: Mapping[str, Any]) -> None:
    problems = [f"{name}: cannot be changed for this job" for name in given if name not in fields]
    if MASK in given.get("command", ""):
        problems.append("command: has a masked value; write the value itself")
    for name in ("hyperparameters", "environment", "labels"):
        before = fields.get(name) or {}
        problems += [
            f"{name}.{key[:60]}: is masked, and the earlier job has no such value"
            for key, value in given.get(name, {}).items()
            if value == MASK and before.get(key) != MASK
        ]
    if problems:
        raise invalid_parameter(in_one_message(problems))


def _set_algorithm(made: dict[str, Any], given: Mapping[str, Any]) -> None:
    """What the new job runs: a spec of its own, or the registered algorithm, never both."""
    if made.get("AlgorithmName") and not given.keys() & {"image", "command"}:
        made.pop("AlgorithmSpec", None)
        return
    for name in _OF_REGISTERED:
        made.pop(name, None)
    spec = dict(made.get("AlgorithmSpec") or {})
    if "image" in given:
        spec["Image"] = given["image"]
    if "command" in given:
        spec["Command"] = ["sh", "-c", given["command"]]
    if spec:
        made["AlgorithmSpec"] = spec


def _stored(request: Mapping[str, Any], name: str) -> dict[str, Any]:
    field, key = _PAIRS[name]
    pairs = {str(one[key]): one.get("Value") for one in request.get(field) or []}
    return {key: value for key, value in pairs.items() if key not in LABELS_OF_ONE_JOB}


def _kept(request: Mapping[str, Any], name: str, given: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Pairs as they are on the wire; one whose value is shown with a mask has that of the earlier job."""
    key_name, stored = _PAIRS[name][1], _stored(request, name)
    shown = form_fields(request)[name]
    return [
        {key_name: key, "Value": stored[key] if key in stored and shown.get(key) == value else value}
        for key, value in given.items()
    ]


def _resource(before: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    made = dict(before)
    if "instance_type" in changes:
        made["EcsSpec"] = changes["instance_type"]
    if "instance_count" in changes:
        made["EcsCount" if "EcsSpec" in made else "InstanceCount"] = changes["instance_count"]
    return made


def _elsewhere(channel: Mapping[str, Any], before: str, after: str) -> dict[str, Any]:
    """An output channel that does not overwrite what the earlier job has written."""
    uri = channel.get("OutputUri")
    if not isinstance(uri, str):
        return dict(channel)
    pattern = folder_pattern(before)
    scheme, separator, path = uri.partition("://")
    parts = path.split("/")
    renamed = [after if number and pattern.fullmatch(part) else part for number, part in enumerate(parts)]
    if renamed == parts:
        renamed = [*(parts[:-1] if parts[-1] == "" else parts), after, ""]
    return {**channel, "OutputUri": f"{scheme}{separator}{'/'.join(renamed)}"}


def _command_text(command: Any) -> str:
    if isinstance(command, list) and command[:2] == ["sh", "-c"] and len(command) == 3:
        return str(command[2])
    return shlex.join(map(str, command)) if isinstance(command, list) else str(command or "")


def _count(resource: Mapping[str, Any]) -> int:
    return int(resource.get("EcsCount") or resource.get("InstanceCount") or 1)
