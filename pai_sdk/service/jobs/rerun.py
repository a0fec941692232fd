"""A job like an earlier one, with changes: the fields that a form shows, and the request that is made of them."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from pai_sdk._wire.masking import public_fields
from pai_sdk._wire.requests import RecordedCompute, RecordedRequest, RecordedScheduler, RecordedSpec
from pai_sdk.schemas.job_names import folder_pattern, new_suffix, without_suffix
from pai_sdk.schemas.record import ChannelUri, KeyValue, NameValue
from pai_sdk.schemas.request import IDEMPOTENCY_LABEL, SUBMISSION_LABEL
from pai_sdk.schemas.secret_values import MASK
from pai_sdk.service.jobs.reading import join_problems
from pai_sdk.service.wire_errors import invalid_parameter

__all__ = ["LABELS_OF_ONE_JOB", "RerunChanges", "changed_request", "form_fields"]

LABELS_OF_ONE_JOB = (SUBMISSION_LABEL, IDEMPOTENCY_LABEL)
"""Labels that no other job may have."""

_LONGEST_NAME = 120
_OF_REGISTERED = ("algorithm_name", "algorithm_version", "algorithm_provider")


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


def form_fields(request: RecordedRequest) -> dict[str, Any]:
    """Returns the fields that a re-run can change, with their values; secrets are masked.

    Example:
        >>> fields = form_fields(RecordedRequest.model_validate({"TrainingJobName": "fit-3f2a9c",
        ...     "HyperParameters": [{"Name": "lr", "Value": "0.1"}], "Environments": {"TOKEN": "abc"}}))
        >>> fields["name"], fields["hyperparameters"], fields["environment"]
        ('fit', {'lr': '0.1'}, {'TOKEN': '******'})
    """
    public = RecordedRequest.model_validate(public_fields(request.to_wire()))
    spec, resource = public.algorithm_spec, public.compute_resource or RecordedCompute()
    fields: dict[str, Any] = {"name": without_suffix(public.training_job_name or "")}
    if spec is not None:
        fields |= {"image": spec.image, "command": _command_text(spec.command)}
    if resource.ecs_spec:
        fields["instance_type"] = resource.ecs_spec
    fields["instance_count"] = resource.num_instances
    fields["hyperparameters"] = public.hyperparameter_values
    fields["labels"] = _labels(public)
    fields["environment"] = dict(public.environments or {})
    fields["max_runtime_s"] = public.scheduler.max_running_time_in_seconds if public.scheduler else None
    return fields


def changed_request(request: RecordedRequest, changes: RerunChanges, token: str) -> RecordedRequest:
    """Returns the request of a new job: an earlier one with changes, a name and output folders of its own.

    A masked value that comes back keeps the value of the earlier job. A registered algorithm is named again,
    unless its image or command is changed.

    Args:
        request: of the earlier job.
        changes: to its fields.
        token: the same one makes the same job only once.

    Raises:
        WireError: with all that cannot be changed.

    Example:
        >>> before = RecordedRequest.model_validate({"TrainingJobName": "fit-3f2a9c",
        ...     "OutputChannels": [{"Name": "model", "OutputUri": "oss://b/fit-3f2a9c/model/"}]})
        >>> new = changed_request(before, RerunChanges(name="fit"), "once")
        >>> new.output_channels[0].uri.replace(new.training_job_name, "NAME")
        'oss://b/NAME/model/'
    """
    fields = form_fields(request)
    given = {name: value for name, value in changes.given().items() if value != fields.get(name)}
    _refuse(given, fields)
    name = f"{given.get('name') or fields['name'][:_LONGEST_NAME]}-{new_suffix()}"
    labels = _unmasked(given.get("labels", fields["labels"]), fields["labels"], _labels(request))
    update: dict[str, Any] = {
        "training_job_name": name,
        "labels": [KeyValue(key=key, value=value) for key, value in labels.items()],
        "compute_resource": _resource(request.compute_resource or RecordedCompute(), given),
        "output_channels": [
            _elsewhere(channel, request.training_job_name or "job", name) for channel in request.output_channels
        ],
        **_algorithm(request, given),
    }
    if "hyperparameters" in given:
        values = _unmasked(given["hyperparameters"], fields["hyperparameters"], request.hyperparameter_values)
        update["hyperparameters"] = [NameValue(name=key, value=value) for key, value in values.items()]
    if "environment" in given:
        variables = request.environments or {}
        update["environments"] = {
            key: variables[key] if value == MASK else value for key, value in given["environment"].items()
        }
    if "max_runtime_s" in given:
        limit = {"max_running_time_in_seconds": given["max_runtime_s"]}
        update["scheduler"] = (request.scheduler or RecordedScheduler()).model_copy(update=limit)
    submission = hashlib.sha256(token.encode()).hexdigest()[:32]
    return request.model_copy(update=update).with_label(SUBMISSION_LABEL, submission)


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
        raise invalid_parameter(join_problems(problems))


def _algorithm(request: RecordedRequest, given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the changed fields: the new job has a spec of its own, or a registered algorithm, never both."""
    if request.algorithm_name and not given.keys() & {"image", "command"}:
        return {"algorithm_spec": None}
    update: dict[str, Any] = {}
    if "image" in given:
        update["image"] = given["image"]
    if "command" in given:
        update["command"] = ["sh", "-c", given["command"]]
    spec = request.algorithm_spec or (RecordedSpec() if update else None)
    return {"algorithm_spec": spec and spec.model_copy(update=update), **dict.fromkeys(_OF_REGISTERED)}


def _labels(request: RecordedRequest) -> dict[str, str | None]:
    return {str(label.key): label.value for label in request.labels if label.key not in LABELS_OF_ONE_JOB}


def _unmasked(
    values: Mapping[str, Any], displayed: Mapping[str, Any], stored: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns the values; one that is as it was displayed, perhaps with a mask, is that of the earlier job."""
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


def _elsewhere(channel: ChannelUri, before: str, after: str) -> ChannelUri:
    """Returns the output channel with a URI that does not overwrite what the earlier job has written."""
    if channel.output_uri is None:
        return channel
    pattern = folder_pattern(before)
    scheme, separator, path = channel.output_uri.partition("://")
    parts = path.split("/")
    renamed = [after if number and pattern.fullmatch(part) else part for number, part in enumerate(parts)]
    if renamed == parts:
        renamed = [*(parts[:-1] if parts[-1] == "" else parts), after, ""]
    return channel.model_copy(update={"output_uri": f"{scheme}{separator}{'/'.join(renamed)}"})


def _command_text(command: Sequence[str]) -> str:
    return command[2] if command[:2] == ["sh", "-c"] and len(command) == 3 else shlex.join(command)
