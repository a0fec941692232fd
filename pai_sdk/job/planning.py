"""From parameters to a plan: hashing and checking, but neither network nor upload."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pai_sdk.backend.base import Backend, Plan, Upload
from pai_sdk.code.package import package_code
from pai_sdk.errors import InvalidInputError
from pai_sdk.job import channels, parts
from pai_sdk.job.channels import InputSource, OutputTarget
from pai_sdk.job.command import check_entry
from pai_sdk.job.compute import ExperimentConfig, Settings, UserVpcConfig
from pai_sdk.job.kinds import check_texts, mapping_or_empty, with_right_kinds
from pai_sdk.job.parameters import Description, JobParameters
from pai_sdk.job.problems import Problems
from pai_sdk.job.request import TrainingJobRequest
from pai_sdk.job.spec import AlgorithmSpec, Channel, CodeDir
from pai_sdk.session import Session
from pai_sdk.storage.uri import is_remote_uri, remote_uri_problems

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
) -> Plan:
    """The request and the uploads of one job.

    Raises:
        InvalidInputError: with everything that is wrong.
    """
    problems = Problems()
    parameters = with_right_kinds(parameters, problems)
    inputs, outputs = mapping_or_empty(inputs, "inputs", problems), mapping_or_empty(outputs, "outputs", problems)
    backend = session.backend_for(parameters.instance_type)
    described = parameters.describe()
    if parameters.output_path is not None:
        problems.found += remote_uri_problems(parameters.output_path, "output_path")
    name = parts.job_name(parameters.base_job_name or type(parameters).__name__.lower(), problems)
    command = parts.command_parts(described.command, problems)
    code_dir, code_uploads, keep = _code(parameters, described, command, backend, problems)
    filled, input_uploads = channels.input_channels(inputs, described.input_channels, backend, problems)
    placed = _placed(described, outputs, problems)
    fields = {
        **_values(parameters, described, problems),
        "training_job_name": name,
        "workspace_id": session.settings.workspace_id,
        "input_channels": filled,
        "output_channels": channels.output_channels(
            placed,
            described.output_channels,
            lambda channel: _default_output(parameters.output_path, name, channel, backend),
            problems,
        ),
    }
    with problems.under("image_uri"):
        fields["algorithm_spec"] = AlgorithmSpec(
            image=described.image,
            command=command,
            job_type=parameters.job_type,
            code_dir=code_dir,
            input_channels=_definitions(described.input_channels, inputs),
            output_channels=_definitions(described.output_channels, placed),
            metric_definitions=parts.metrics(described.metric_definitions, problems),
        )
    problems.raise_if_any()
    with problems.under("request"):
        request = TrainingJobRequest(**fields)
        check_texts(request.to_wire(), "")
        return Plan(request, (*code_uploads, *input_uploads), keep)
    raise InvalidInputError(problems.found)


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
    for where, wire_name, model in _MODELS:
        with problems.under(where):
            value = getattr(parameters, where)
            values[wire_name] = None if value is None else model.model_validate(value)
    return values


def _code(
    parameters: JobParameters, described: Description, command: Sequence[str], backend: Backend, problems: Problems
) -> tuple[CodeDir | None, list[Upload], object]:
    """The code folder's place, what has to be uploaded there, and what must live until that is done."""
    source = parameters.source_dir
    keep: object = None
    with problems.under("git_config" if described.git_config is not None else "source_dir"):
        if described.git_config is not None:
            from pai_sdk.code.git import checkout

            root, keep = checkout(described.git_config, None if source is None else Path(source))
        elif source is None:
            return None, [], None
        elif isinstance(source, str) and is_remote_uri(source):
            return backend.code_dir(_as_code_folder(source)), [], None
        else:
            root = Path(source).expanduser()
        tree = package_code(root, allow_secrets=parameters.allow_secrets)
        with problems.under("command"):
            check_entry(command, tree, source)
        uri = backend.place(tree, "code")
        return backend.code_dir(uri), [Upload(tree, uri)], keep
    return None, [], None


def _as_code_folder(uri: str) -> str:
    """Code is a folder; only what is named like a file, such as an archive, is one."""
    return uri if uri.endswith("/") or "." in uri.rpartition("/")[2] else f"{uri}/"


def _placed(
    described: Description, outputs: Mapping[str, OutputTarget], problems: Problems
) -> dict[str, OutputTarget]:
    """The outputs that were given a place, by the call or by a parameter, but not by both."""
    placed = dict(outputs)
    for channel, (parameter, uri) in described.placed_outputs.items():
        if channel in placed:
            problems.add(parameter, f"contradicts outputs[{channel!r}]", "give one of them")
        wrong = remote_uri_problems(uri, parameter)
        problems.found += wrong
        if not wrong:
            placed[channel] = uri
    return placed


def _default_output(output_path: str | None, name: str, channel: str, backend: Backend) -> str:
    if output_path is None:
        return backend.default_output(name, channel)
    return f"{output_path.rstrip('/')}/{name}/{channel}/"


def _definitions(defined: Sequence[Channel], given: Mapping[str, object]) -> list[Channel]:
    """The channels of the algorithm: those defined, and one for every further one this job is given."""
    known = {channel.name for channel in defined}
    return [*defined, *(Channel(name=name, required=False) for name in given if name not in known)]
