"""From parameters to a plan: hashing and checking, but neither network nor upload."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pai_sdk.backend.base import Backend, Plan, Upload
from pai_sdk.base.paths import expanded
from pai_sdk.code.package import package_code
from pai_sdk.errors import InvalidInputError
from pai_sdk.experiment import Experiment
from pai_sdk.schemas.compute import ExperimentConfig, Settings, UserVpcConfig
from pai_sdk.schemas.request import SUBMISSION_LABEL, TrainingJobRequest
from pai_sdk.schemas.spec import AlgorithmSpec, Channel, CodeDir
from pai_sdk.session import Session
from pai_sdk.storage.uri import OssUri, is_remote_uri, remote_uri_problems
from pai_sdk.submit import channels
from pai_sdk.submit import request_fields as parts
from pai_sdk.submit.channels import InputSource, OutputTarget
from pai_sdk.submit.command import check_entry
from pai_sdk.submit.local_inputs import seen_as_inputs, seen_as_outputs, seen_as_place
from pai_sdk.submit.parameter_types import check_texts, mapping_or_empty, with_right_kinds
from pai_sdk.submit.parameters import Description, JobParameters
from pai_sdk.submit.problems import Problems

__all__ = ["make_plan"]

# Parameters that are a model of their own: the user's name, the request's name, the model.
_MODELS = (
    ("settings", "settings", Settings),
    ("experiment_config", "experiment_config", ExperimentConfig),
    ("user_vpc_config", "user_vpc", UserVpcConfig),
)


def make_plan(
    parameters: JobParameters,
    session: Session,
    inputs: Mapping[str, InputSource] | None,
    outputs: Mapping[str, OutputTarget] | None,
    job_name: str | None = None,
) -> Plan:
    """The request and the uploads of one job; the request bears the label of its one submission.

    Raises:
        InvalidInputError: with everything that is wrong.
    """
    problems = Problems()
    parameters = with_right_kinds(parameters, problems)
    inputs, outputs = mapping_or_empty(inputs, "inputs", problems), mapping_or_empty(outputs, "outputs", problems)
    backend = session.backend_for(parameters.instance_type)
    described = _described(parameters, problems)
    algorithm = described.algorithm
    inputs, outputs = seen_as_inputs(inputs, backend), seen_as_outputs(outputs, backend)
    output_path = _checked_place(parameters.output_path, "output_path", backend, problems)
    name = parts.job_name(job_name, parameters.base_job_name or parts.base_of(type(parameters)), problems)
    command = parts.command_parts(described.command, problems) if algorithm is None else algorithm.command
    code_dir, code_uploads, keep = _code(described, command, backend, problems)
    region_id = session.settings.region_id
    filled, input_uploads = channels.input_channels(
        inputs, described.input_channels, backend, problems, region_id=region_id
    )
    placed = _placed(described, outputs, backend, problems)
    fields = {
        **_values(parameters, described, problems),
        "training_job_name": name,
        "workspace_id": session.settings.workspace_id,
        "input_channels": filled,
        "output_channels": channels.output_channels(
            placed,
            described.output_channels,
            lambda channel: _default_output(output_path, name, channel, backend),
            problems,
            region_id=region_id,
        ),
    }
    if algorithm is not None:
        given = _definitions([], inputs), _definitions([], placed)
        fields |= algorithm.fields(code_dir, *given, problems)
    else:
        with problems.under("algorithm_spec"):
            fields["algorithm_spec"] = AlgorithmSpec.model_validate(
                {
                    "image": described.image,
                    "command": command,
                    "job_type": described.job_type,
                    "code_dir": code_dir,
                    "input_channels": _definitions(described.input_channels, inputs),
                    "output_channels": _definitions(described.output_channels, placed),
                    "metric_definitions": parts.metrics(described.metric_definitions, problems),
                }
            )
    problems.raise_if_any()
    with problems.under("request"):
        request = TrainingJobRequest.model_validate(fields)
        check_texts(request.to_wire(), "")
        request = request.with_label(SUBMISSION_LABEL, uuid.uuid4().hex)
        return Plan(request, (*code_uploads, *input_uploads), keep)
    raise InvalidInputError(problems.found)


def _described(parameters: JobParameters, problems: Problems) -> Description:
    """What the kind of job has to say. What it cannot find out is noted, and the rest is checked all the same."""
    try:
        described = parameters.describe()
    except InvalidInputError as error:
        problems.found += error.problems
        # What is not known may have an instance type to offer; that none was given is no second problem.
        if parameters.instance_type is None and parameters.instance_spec is None:
            parameters.instance_type = "-"
        return Description("-", "-")
    if described.algorithm is not None and parameters.instance_type is None and parameters.instance_spec is None:
        parameters.instance_type = described.algorithm.usual_instance_type
    return described


def _values(parameters: JobParameters, described: Description, problems: Problems) -> dict[str, Any]:
    """The fields that each come from parameters of their own."""
    values: dict[str, Any] = {
        "training_job_description": parameters.description,
        "compute_resource": parts.compute_resource(
            instance_type=parameters.instance_type,
            instance_count=parameters.instance_count,
            instance_spec=parameters.instance_spec,
            resource_id=parameters.resource_id,
            resource_type=parameters.resource_type,
            spot_spec=parameters.spot_spec,
            problems=problems,
        ),
        "hyperparameters": parts.hyperparameters(
            described.hyperparameters, described.hyperparameters_are, problems
        ),
        "environments": parts.environment(parameters.environments, problems),
        "python_requirements": parts.requirement_list(parameters.requirements, problems),
        "labels": parts.labels(parameters.labels, problems),
        "scheduler": parts.scheduler(parameters.max_run_time, problems),
        "priority": parameters.priority,
        "role_arn": parameters.role_arn,
    }
    if described.algorithm is not None:
        values["hyperparameters"] = described.algorithm.hyperparameters(
            values["hyperparameters"], described.hyperparameters_are, problems
        )
        described.algorithm.check_instances(parameters.instance_type, parameters.instance_count, problems)
    for where, wire_name, model in _MODELS:
        with problems.under(where):
            value = getattr(parameters, where)
            if isinstance(value, Experiment):
                value = value.config
            values[wire_name] = None if value is None else model.model_validate(value)
    settings = values.get("settings")
    if settings is not None and settings.priority not in (None, parameters.priority or settings.priority):
        problems.add(
            "priority", f"contradicts settings.priority, which is {settings.priority}", "give one of them"
        )
    return values


def _code(
    described: Description, command: Sequence[str], backend: Backend, problems: Problems
) -> tuple[CodeDir | None, list[Upload], object]:
    """The code folder's place, what has to be uploaded there, and what must live until that is done."""
    source = described.source_dir
    keep: object = None
    with problems.under("git_config" if described.git_config is not None else "source_dir"):
        if described.git_config is not None:
            from pai_sdk.code.git import checkout

            root, keep = checkout(described.git_config, None if source is None else Path(source))
        elif source is None:
            return None, [], None
        elif isinstance(source, str) and is_remote_uri(source):
            OssUri.parse(source)  # nothing else can hold code
            return backend.code_dir(_as_code_folder(source)), [], None
        else:
            root = expanded(source)
        tree = package_code(root, allow_secrets=described.allow_secrets, cloned=keep is not None)
        with problems.under("command"):
            check_entry(command, tree, source)
        uri = backend.place(tree, "code")
        return backend.code_dir(uri), [Upload(tree, uri)], keep
    return None, [], None


def _as_code_folder(uri: str) -> str:
    """Code is a folder; only what is named like a file, such as an archive, is one."""
    return uri if uri.endswith("/") or "." in uri.rpartition("/")[2] else f"{uri}/"


def _placed(
    described: Description, outputs: Mapping[str, OutputTarget], backend: Backend, problems: Problems
) -> dict[str, OutputTarget]:
    """The outputs that were given a place, by the call or by a parameter, but not by both."""
    placed = dict(outputs)
    for channel, (parameter, uri) in described.placed_outputs.items():
        if channel in placed:
            problems.add(parameter, f"contradicts outputs[{channel!r}]", "give one of them")
        place = _checked_place(uri, parameter, backend, problems)
        if place is not None:
            placed.update(seen_as_outputs({channel: place}, backend))
    return placed


def _checked_place(uri: str | None, parameter: str, backend: Backend, problems: Problems) -> str | None:
    """Where outputs go, as a URI; None, with the reason noted, where it cannot be."""
    seen = None if uri is None else seen_as_place(uri, backend)
    if uri is None or seen is not None:
        return seen
    wrong = remote_uri_problems(uri, parameter)
    problems.found += wrong
    return None if wrong else uri


def _default_output(output_path: str | None, name: str, channel: str, backend: Backend) -> str:
    if output_path is None:
        return backend.default_output(name, channel)
    return f"{output_path.rstrip('/')}/{name}/{channel}/"


def _definitions(defined: Sequence[Channel], given: Mapping[str, object]) -> list[Channel]:
    """The channels of the algorithm: those defined, and one for every further one this job is given."""
    known = {channel.name for channel in defined}
    return [*defined, *(Channel(name=name, required=False) for name in given if name not in known)]
