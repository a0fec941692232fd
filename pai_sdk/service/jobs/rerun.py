"""A job like an earlier one, with changes: the fields that a form shows, and the request that is made of them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

from pai_sdk.execution.contract import public_fields
from pai_sdk.schemas.job_names import folder_pattern, new_ending, without_ending
from pai_sdk.schemas.request import IDEMPOTENCY_LABEL, SUBMISSION_LABEL
from pai_sdk.schemas.secret_values import MASK
from pai_sdk.service.wire_errors import invalid_parameter

__all__ = ["changed_request", "form_fields"]

_OF_ONE_JOB = (SUBMISSION_LABEL, IDEMPOTENCY_LABEL)
_LONGEST_NAME = 120
_PAIRS = {"hyperparameters": ("HyperParameters", "Name"), "labels": ("Labels", "Key")}


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
        found[name] = {key: value for key, value in pairs.items() if key not in _OF_ONE_JOB}
    found["environment"] = dict(shown.get("Environments") or {})
    found["max_runtime_s"] = (shown.get("Scheduler") or {}).get("MaxRunningTimeInSeconds")
    return found


def changed_request(request: Mapping[str, Any], changes: Mapping[str, Any], token: str) -> dict[str, Any]:
    """The request of a new job: that of an earlier one with changes, a name and output folders of its own.

    A masked value that comes back keeps the value of the earlier job.

    Args:
        request: of the earlier job, as it is on the wire.
        changes: some of the fields of `form_fields`; a dictionary replaces the whole one.
        token: the same one makes the same job only once.

    Raises:
        WireError: with all that cannot be changed.

    Example:
        >>> before = {"TrainingJobName": "fit-3f2a9c", "HyperParameters": [{"Name": "lr", "Value": "0.1"}],
        ...     "OutputChannels": [{"Name": "model", "OutputUri": "oss://b/fit-3f2a9c/model/"}]}
        >>> made = changed_request(before, {"hyperparameters": {"lr": "0.2"}}, "once")
        >>> made["HyperParameters"], made["OutputChannels"][0]["OutputUri"] != "oss://b/fit-3f2a9c/model/"
        ([{'Name': 'lr', 'Value': '0.2'}], True)
    """
    fields = form_fields(request)
    _refuse(changes, fields)
    made = {name: value for name, value in request.items() if name not in ("Labels", "TrainingJobName")}
    before = str(request.get("TrainingJobName") or "job")
    base = str(changes.get("name") or fields["name"])[:_LONGEST_NAME]
    made["TrainingJobName"] = name = f"{base}-{new_ending()}"
    labels = {**fields["labels"], **_stored(request, "labels")} if "labels" not in changes else changes["labels"]
    made["Labels"] = _kept(request, "labels", labels)
    made["Labels"].append({"Key": SUBMISSION_LABEL, "Value": hashlib.sha256(token.encode()).hexdigest()[:32]})
    if "hyperparameters" in changes:
        made["HyperParameters"] = _kept(request, "hyperparameters", changes["hyperparameters"])
    if "environment" in changes:
        stored = request.get("Environments") or {}
        given = changes["environment"]
        made["Environments"] = {key: stored.get(key, one) if one == MASK else one for key, one in given.items()}
    spec = dict(made.get("AlgorithmSpec") or {})
    if "image" in changes:
        spec["Image"] = changes["image"]
    if "command" in changes:
        spec["Command"] = ["sh", "-c", changes["command"]]
    if spec:
        made["AlgorithmSpec"] = spec
    made["ComputeResource"] = _resource(request.get("ComputeResource") or {}, changes)
    if changes.get("max_runtime_s") is not None:
        scheduler = made.get("Scheduler") or {}
        made["Scheduler"] = {**scheduler, "MaxRunningTimeInSeconds": changes["max_runtime_s"]}
    made["OutputChannels"] = [_elsewhere(one, before, name) for one in request.get("OutputChannels") or []]
    return made


def _refuse(changes: Mapping[str, Any], fields: Mapping[str, Any]) -> None:
    problems = [f"{name[:60]}: cannot be changed for this job" for name in changes if name not in fields]
    for name in ("hyperparameters", "labels", "environment"):
        for key, value in (changes.get(name) or {}).items():
            if not isinstance(value, str | int | float):
                problems.append(f"{name}.{str(key)[:60]}: is {value!r}; a text or a number is needed")
    for key, value in (changes.get("environment") or {}).items():
        if value == MASK and key not in (fields.get("environment") or {}):
            problems.append(f"environment.{str(key)[:60]}: is masked, and the earlier job has no such variable")
    if problems:
        raise invalid_parameter("; ".join(problems))


def _stored(request: Mapping[str, Any], name: str) -> dict[str, Any]:
    field, key = _PAIRS[name]
    pairs = {str(one[key]): one.get("Value") for one in request.get(field) or []}
    return {key: value for key, value in pairs.items() if key not in _OF_ONE_JOB}


def _kept(request: Mapping[str, Any], name: str, given: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Pairs as they are on the wire; one whose value is shown with a mask has that of the earlier job."""
    key_name, stored = _PAIRS[name][1], _stored(request, name)
    shown = form_fields(request)[name]
    return [
        {key_name: key, "Value": stored[key] if key in stored and shown.get(key) == value else str(value)}
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
    words = command if isinstance(command, list) else [command or ""]
    return " ".join(word if re.fullmatch(r"[\w./:=@%+-]+", word) else f"'{word}'" for word in map(str, words))


def _count(resource: Mapping[str, Any]) -> int:
    return int(resource.get("EcsCount") or resource.get("InstanceCount") or 1)
