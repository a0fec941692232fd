"""Re-runs of jobs: the fields of the form, and the request of the new job."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from pai_sdk._service.services.jobs.reading import join_problems
from pai_sdk._service.wire_errors import invalid_parameter
from pai_sdk._wire.masking import public_fields
from pai_sdk._wire.pai.job_names import folder_pattern, name_of_copy, new_suffix, without_suffix
from pai_sdk._wire.pai.names import PACKAGE_PREFIX
from pai_sdk._wire.pai.record import ChannelUri, KeyValue, NameValue
from pai_sdk._wire.pai.request import IDEMPOTENCY_LABEL, SUBMISSION_LABEL
from pai_sdk._wire.pai.secret_values import MASK
from pai_sdk._wire.requests import RecordedCompute, RecordedRequest, RecordedScheduler, RecordedSpec

JOB_SPECIFIC_LABELS = (SUBMISSION_LABEL, IDEMPOTENCY_LABEL)
"""Labels that identify one job, and are not copied to others."""

_MAX_NAME_LENGTH = 120
_ALGORITHM_FIELDS = ("algorithm_name", "algorithm_version", "algorithm_provider")


def _as_text(value: Any) -> str:
    """Converts a value of the form to the string of a request."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    raise ValueError("expected a string or a number")


_StringMap = dict[str, Annotated[str, BeforeValidator(_as_text, json_schema_input_type=str | float | bool)]]


class RerunChanges(BaseModel):
    """The changed fields of the form; a dictionary replaces the complete one of the earlier job."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field("", min_length=1, max_length=_MAX_NAME_LENGTH)
    image: str = Field("", min_length=1)
    command: str = Field("", min_length=1)
    instance_type: str = Field("", min_length=1)
    instance_count: int = Field(1, ge=1)
    hyperparameters: _StringMap = Field(default_factory=dict)
    environment: _StringMap = Field(default_factory=dict)
    labels: _StringMap = Field(default_factory=dict)
    max_runtime_s: int | None = Field(None, ge=1, description="Null for no limit.")

    def values_set(self) -> dict[str, Any]:
        """Returns the fields that were set, by name."""
        return {name: getattr(self, name) for name in sorted(self.model_fields_set)}


def form_fields(request: RecordedRequest) -> dict[str, Any]:
    """Returns the fields that a re-run can change, with their values; secrets are masked."""
    public = RecordedRequest.model_validate(public_fields(request.to_wire()))
    spec, resource = public.algorithm_spec, public.compute_resource or RecordedCompute()
    fields: dict[str, Any] = {"name": without_suffix(public.training_job_name or "")}
    if spec is not None:
        fields |= {"image": spec.image, "command": command_text(spec.command)}
    if resource.ecs_spec:
        fields["instance_type"] = resource.ecs_spec
    fields["instance_count"] = resource.num_instances
    fields["hyperparameters"] = public.hyperparameter_values
    fields["labels"] = _labels(public)
    fields["environment"] = dict(public.environments or {})
    fields["max_runtime_s"] = public.scheduler.max_running_time_in_seconds if public.scheduler else None
    return fields


def changed_request(request: RecordedRequest, changes: RerunChanges, token: str) -> RecordedRequest:
    """Returns the request of a new job: an earlier one with changes, a new name and new output folders.

    A masked value means the value of the earlier job. A registered algorithm stays a reference, unless its image
    or command is changed. Raises WireError with all fields that cannot be changed.
    """
    fields = form_fields(request)
    updates = {name: value for name, value in changes.values_set().items() if value != fields.get(name)}
    _refuse(updates, fields)
    name = _new_name(updates, fields)
    labels = _unmasked(updates.get("labels", fields["labels"]), fields["labels"], _labels(request))
    update: dict[str, Any] = {
        "training_job_name": name,
        "labels": [KeyValue(key=key, value=value) for key, value in labels.items()],
        "compute_resource": _resource(request.compute_resource or RecordedCompute(), updates),
        "output_channels": [
            _with_new_folder(channel, request.training_job_name or "job", name)
            for channel in request.output_channels
        ],
        **_algorithm(request, updates),
    }
    if "hyperparameters" in updates:
        values = _unmasked(updates["hyperparameters"], fields["hyperparameters"], request.hyperparameter_values)
        update["hyperparameters"] = [NameValue(name=key, value=value) for key, value in values.items()]
    if "environment" in updates:
        variables = request.environments or {}
        update["environments"] = {
            key: variables[key] if value == MASK else value for key, value in updates["environment"].items()
        }
    if "max_runtime_s" in updates:
        limit = {"max_running_time_in_seconds": updates["max_runtime_s"]}
        update["scheduler"] = (request.scheduler or RecordedScheduler()).model_copy(update=limit)
    # Derived from the token of the request: a repeated request creates one job.
    submission = hashlib.sha256(token.encode()).hexdigest()[:32]
    return request.model_copy(update=update).with_label(SUBMISSION_LABEL, submission)


def _refuse(updates: Mapping[str, Any], fields: Mapping[str, Any]) -> None:
    problems = [f"{name}: cannot be changed for this job" for name in updates if name not in fields]
    if MASK in updates.get("command", ""):
        problems.append("command: has a masked value; write the value itself")
    for name in ("hyperparameters", "environment", "labels"):
        before = fields.get(name) or {}
        problems += [
            f"{name}.{key[:60]}: is masked, and the earlier job has no such value"
            for key, value in updates.get(name, {}).items()
            if value == MASK and before.get(key) != MASK
        ]
    if problems:
        raise invalid_parameter(join_problems(problems))


def _new_name(updates: Mapping[str, Any], fields: Mapping[str, Any]) -> str:
    """Returns the name of the new job: the one of the form, or that of the earlier job with the new values."""
    if "hyperparameters" in updates and "name" not in updates:
        return name_of_copy(fields["name"], fields["hyperparameters"], updates["hyperparameters"])
    return f"{updates.get('name') or fields['name'][:_MAX_NAME_LENGTH]}-{new_suffix()}"


def _algorithm(request: RecordedRequest, updates: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the changed fields: the new job has either a spec or a registered algorithm."""
    if request.algorithm_name and not updates.keys() & {"image", "command"}:
        return {"algorithm_spec": None}
    update: dict[str, Any] = {}
    if "image" in updates:
        update["image"] = updates["image"]
    if "command" in updates:
        before = request.algorithm_spec.command if request.algorithm_spec else []
        prefix = PACKAGE_PREFIX if len(before) == 3 and before[2].startswith(PACKAGE_PREFIX) else ""
        update["command"] = ["sh", "-c", prefix + updates["command"]]
    spec = request.algorithm_spec or (RecordedSpec() if update else None)
    return {"algorithm_spec": spec and spec.model_copy(update=update), **dict.fromkeys(_ALGORITHM_FIELDS)}


def _labels(request: RecordedRequest) -> dict[str, str | None]:
    return {str(label.key): label.value for label in request.labels if label.key not in JOB_SPECIFIC_LABELS}


def _unmasked(
    values: Mapping[str, Any], displayed: Mapping[str, Any], stored: Mapping[str, Any]
) -> dict[str, Any]:
    """Replaces values that are unchanged in the form, which may be masked, by those of the earlier job."""
    return {
        key: stored[key] if key in stored and displayed.get(key) == value else value
        for key, value in values.items()
    }


def _resource(before: RecordedCompute, changes: Mapping[str, Any]) -> RecordedCompute:
    update: dict[str, Any] = {}
    if "instance_type" in changes:
        update["ecs_spec"] = changes["instance_type"]
    if "instance_count" in changes:
        is_public = before.ecs_spec is not None or "ecs_spec" in update
        update["ecs_count" if is_public else "instance_count"] = changes["instance_count"]
    return before.model_copy(update=update)


def _with_new_folder(channel: ChannelUri, before: str, after: str) -> ChannelUri:
    """Returns the output channel with a URI that does not overwrite the outputs of the earlier job."""
    if channel.output_uri is None:
        return channel
    pattern = folder_pattern(before)
    scheme, separator, path = channel.output_uri.partition("://")
    parts = path.split("/")
    renamed = [after if number and pattern.fullmatch(part) else part for number, part in enumerate(parts)]
    # No part of the path has the name of the earlier job: the new job gets a subfolder.
    if renamed == parts:
        renamed = [*(parts[:-1] if parts[-1] == "" else parts), after, ""]
    return channel.model_copy(update={"output_uri": f"{scheme}{separator}{'/'.join(renamed)}"})


def command_text(command: Sequence[str]) -> str:
    """Returns a command as text: the script of `sh -c`, or its quoted words; without what the client adds."""
    if command[:2] == ["sh", "-c"] and len(command) == 3:
        return command[2].removeprefix(PACKAGE_PREFIX)
    return shlex.join(command)
