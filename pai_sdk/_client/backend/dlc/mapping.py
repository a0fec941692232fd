"""From the request of a training job to the body of CreateJob. docs/dlc-jobs.md has the table."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pai_sdk._client.backend.dlc.job_folder import ML
from pai_sdk._client.backend.dlc.options import DlcMount, DlcOptions
from pai_sdk._client.backend.dlc.prefix import with_prefix
from pai_sdk._wire.body import received
from pai_sdk._wire.dlc.checks import caution_problems, job_problems
from pai_sdk._wire.dlc.field_names import PYTHON_NAMES
from pai_sdk._wire.dlc.job_specs import (
    AssignNodeSpec,
    ElasticSpotSpec,
    ImageConfig,
    JobSpec,
    ResourceConfig,
    SpotSpec,
    StartupDependency,
)
from pai_sdk._wire.dlc.jobs import NewJob
from pai_sdk._wire.dlc.limits import MAX_ENVS
from pai_sdk._wire.dlc.settings import JobSettings
from pai_sdk._wire.dlc.sources import CodeSource, DataSource, UserVpc
from pai_sdk._wire.dlc.uris import with_endpoint
from pai_sdk._wire.pai.compute import InstanceSpec
from pai_sdk._wire.pai.request import ACCESSIBILITY_LABEL, SUBMISSION_LABEL, TrainingJobRequest
from pai_sdk._wire.pai.roles import Role
from pai_sdk._wire.pai.secret_values import is_secret_name
from pai_sdk._wire.pai.spec import InputChannel, OssLocation
from pai_sdk.errors import Problem

SUBMISSION, COMMAND, HYPERPARAMETERS, METRICS = (
    "PAI_SDK_SUBMISSION",
    "PAI_SDK_COMMAND",
    "PAI_SDK_HPS",
    "PAI_SDK_METRICS",
)
"""Variables of a job from which its record is read back."""

RECORD_VARIABLES = (SUBMISSION, COMMAND, HYPERPARAMETERS, METRICS)
_MAX_RECORDED = 4096  # characters of such a variable: all parameters of a job share 64 KiB
_PLACEHOLDER = "${secret:"
_APPENDED = ("tensorboard", "trace")  # outputs to whose files jobs append
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGTP]i?)?B?", re.IGNORECASE)
_DATA_SOURCE = re.compile(r"DataSources\[(\d+)\]\.?(\w*)")
# Fields of a data source that options call otherwise.
_MOUNT_FIELDS = {
    "mount_path": "path",
    "data_source_id": "dataset_id",
    "data_source_version": "version",
    "mount_access": "access",
}
# Where a problem of the body is, in the words of submitters; the first match counts.
_PARAMETERS = (
    ("DisplayName", "job_name"),
    ("JobType", "job_type"),
    ("JobSpecs[0].EcsSpec", "instance_type"),
    ("JobSpecs[0].PodCount", "instance_count"),
    ("JobSpecs[0].ResourceConfig", "instance_spec"),
    ("JobSpecs[0].SpotSpec", "spot_spec"),
    ("JobSpecs[0].Image", "image_uri"),
    ("Priority", "priority"),
    ("JobMaxRunningTimeMinutes", "max_run_time"),
    ("Envs", "environments"),
    ("UserVpc", "user_vpc_config"),
    ("Settings.Tags", "labels"),
    ("Settings", "settings"),
    ("SuccessPolicy", "dlc.success_policy"),
)


@dataclass(frozen=True)
class Layout:
    """What the plan of a job decides beside its request."""

    endpoint: str | None = None  # in URIs of OSS; None for services of this package, which have one storage
    job_folder: str = ""  # URI
    file_names: Mapping[str, str] = field(default_factory=dict)  # input channel to the name of its file
    moved: frozenset[str] = frozenset()  # variables of the user that are in the job folder
    code_has_requirements: bool = False
    prefix_installs: bool = False  # the requirements


@dataclass(frozen=True)
class Rendering:
    """Renders requests as bodies of CreateJob."""

    options: DlcOptions
    layout: Layout

    def __call__(self, request: TrainingJobRequest) -> dict[str, Any]:
        """Returns the exact body."""
        return body_of(request, self.options, self.layout).to_wire()


def body_of(request: TrainingJobRequest, options: DlcOptions, layout: Layout) -> NewJob:
    """Returns the body for a request without problems, see `request_problems`."""
    spec = request.algorithm_spec
    requirements = request.python_requirements or []
    scheduler = request.scheduler
    seconds = scheduler.max_running_time_in_seconds if scheduler else None
    minutes = scheduler.max_running_time_in_minutes if scheduler else None
    fields: dict[str, Any] = {
        "display_name": request.training_job_name,
        "job_type": spec.job_type if spec else None,
        "job_specs": [*_job_specs(request, options)],
        "user_command": with_prefix(spec.command) if spec else None,
        "workspace_id": request.workspace_id,
        "resource_id": request.compute_resource.resource_id,
        "priority": _priority(request),
        "description": request.training_job_description,
        "accessibility": options.accessibility or request.label(ACCESSIBILITY_LABEL),
        "data_sources": [*_data_sources(request, options, layout)],
        "code_source": _code_source(options),
        "envs": _variables(request, layout),
        "job_max_running_time_minutes": (math.ceil(seconds / 60) if seconds else minutes) or None,
        "settings": _settings(request, options),
        "success_policy": options.success_policy,
        "user_vpc": None
        if request.user_vpc is None
        else UserVpc(**request.user_vpc.model_dump(exclude_none=True)),
    }
    if not layout.prefix_installs:
        fields["thirdparty_libs"] = requirements or None
        fields["thirdparty_lib_dir"] = f"{ML}/code" if layout.code_has_requirements else None
    return NewJob(**{name: value for name, value in fields.items() if value is not None})


def _priority(request: TrainingJobRequest) -> int | None:
    if request.priority is not None or request.settings is None:
        return request.priority
    return request.settings.priority


# ---- roles


def _job_specs(request: TrainingJobRequest, options: DlcOptions) -> Iterator[JobSpec]:
    for role in request.roles or _like_roles(request):
        fields: dict[str, Any] = {
            "type": role.name,
            "pod_count": role.count,
            "image": role.image or (request.algorithm_spec.image if request.algorithm_spec else None),
            "image_config": _image_config(options),
            "user_command": with_prefix(role.command) if role.command else None,
            "restart_policy": role.restart_policy or options.restart_policy,
            "is_chief": role.is_chief,
            "consider_in_success_policy": role.counts_for_success,
            "assign_node_spec": _nodes(request, options),
            **_resources(request, role, options),
        }
        if role.start_after:
            fields["startup_dependencies"] = [
                StartupDependency(type=each.role, on_phase=each.phase, min_replicas=each.min_count)
                for each in role.start_after
            ]
        yield JobSpec(**{name: value for name, value in fields.items() if value is not None})


def _like_roles(request: TrainingJobRequest) -> list[Role]:
    """Returns the roles of a job of like instances; the first worker of most kinds of jobs becomes its master."""
    count = request.instance_count
    if request.algorithm_spec is None or request.algorithm_spec.job_type != "RayJob":
        return [Role(name="Worker", count=count)]
    head = Role(name="Head")
    return [head, Role(name="Worker", count=count - 1)] if count > 1 else [head]


def _resources(request: TrainingJobRequest, role: Role, options: DlcOptions) -> dict[str, Any]:
    compute = request.compute_resource
    ecs_spec = role.ecs_spec or (compute.ecs_spec if role.instance_spec is None else None)
    size = role.instance_spec or (compute.instance_spec if role.ecs_spec is None else None)
    fields: dict[str, Any] = {
        "ecs_spec": ecs_spec,
        "resource_config": None if size is None else _resource_config(size),
    }
    if compute.spot_spec is not None or options.spot_price_per_minute is not None:
        discount = compute.spot_spec.spot_discount_limit if compute.spot_spec else None
        limits = {"spot_discount_limit": discount, "spot_price_limit": options.spot_price_per_minute}
        set_limits = {name: value for name, value in limits.items() if value is not None}
        fields["spot_spec"] = SpotSpec(spot_strategy="SpotWithPriceLimit", **set_limits)
    if options.elastic_spot:
        fields["elastic_spot_specs"] = [
            ElasticSpotSpec(
                instance_type=each.instance_type,
                spot_strategy="SpotWithPriceLimit",
                spot_discount_limit=each.discount_percent,
                spot_price_limit=each.price_per_hour,
            )
            for each in options.elastic_spot
        ]
    return fields


def _resource_config(spec: InstanceSpec) -> ResourceConfig:
    fields = {
        "cpu": spec.cpu,
        "gpu": spec.gpu,
        "gpu_type": spec.gpu_type,
        "memory": _size(spec.memory),
        "shared_memory": _size(spec.shared_memory),
    }
    return ResourceConfig(**{name: value for name, value in fields.items() if value is not None})


def _size(text: str | None) -> str | None:
    """Returns an amount as the API writes it, `32Gi`; without a unit it is in GiB, as in PAI's InstanceSpec."""
    match = _SIZE.fullmatch(text.strip()) if text else None
    if match is None:
        return text
    unit = match[2] or "Gi"
    return match[1] + unit[0].upper() + unit[1:].lower()


def _image_config(options: DlcOptions) -> ImageConfig | None:
    fields = {
        "docker_registry": options.image_registry,
        "username": options.image_username,
        "password": options.image_password,
    }
    present = {name: value for name, value in fields.items() if value is not None}
    return ImageConfig(**present) if present else None


def _nodes(request: TrainingJobRequest, options: DlcOptions) -> AssignNodeSpec | None:
    if options.node_names or options.avoid_nodes:
        names = {"node_names": options.node_names, "anti_affinity_node_names": options.avoid_nodes}
        node_lists = {name: ",".join(nodes) for name, nodes in names.items() if nodes}
        return AssignNodeSpec(enable_assign_node=True, **node_lists)
    spec = request.assign_node_spec
    return None if spec is None else AssignNodeSpec(**spec.model_dump(exclude_none=True))


# ---- mounts


def _data_sources(request: TrainingJobRequest, options: DlcOptions, layout: Layout) -> Iterator[DataSource]:
    code = request.effective_code_dir
    if code is not None and isinstance(code.location_value, OssLocation):
        location = code.location_value
        host = f"{location.bucket}.{layout.endpoint}" if layout.endpoint else location.bucket
        yield mount_of(f"oss://{host}/{location.key}", f"{ML}/code", layout)
    yield mount_of(layout.job_folder, f"{ML}/job", layout)
    for channel in request.input_channels:
        path = f"{ML}/input/data/{channel.name}"
        uri = input_folder(channel, layout)
        if uri is not None:
            yield mount_of(uri, path, layout, options=channel.options, role_arn=channel.role_arn)
        else:
            yield _dataset(channel.dataset_id, channel.version_name, path, "RO", channel.options, channel.role_arn)
    for output in request.output_channels:
        path = f"{ML}/output/{output.name}"
        if output.output_uri is not None:
            yield mount_of(output.output_uri, path, layout, access="RW", role_arn=output.role_arn)
        else:
            yield _dataset(output.dataset_id, output.version_name, path, "RW", None, output.role_arn)
    for mount in request.mounts or ():
        yield mount_of(mount.uri, mount.path, layout, access=mount.access, options=mount.options)
    for extra in options.mounts:
        yield _extra_mount(extra, layout)


def input_folder(channel: InputChannel, layout: Layout) -> str | None:
    """Returns the URI of the folder to mount for an input; None for a data set."""
    uri = channel.input_uri
    if uri is None:
        return None
    if channel.name in layout.file_names:
        return uri.rpartition("/")[0] + "/"
    return uri if uri.endswith("/") else f"{uri}/"


def mount_of(
    uri: str,
    path: str,
    layout: Layout,
    *,
    access: str = "RO",
    options: str | None = None,
    role_arn: str | None = None,
) -> DataSource:
    """Returns the mount of a folder."""
    fields = {
        "uri": with_endpoint(uri, layout.endpoint) if layout.endpoint else uri,
        "mount_path": path,
        "mount_access": access,
        "options": options,
        "role_arn": role_arn,
    }
    return DataSource(**{name: value for name, value in fields.items() if value is not None})


def _dataset(
    dataset_id: str | None,
    version: str | None,
    path: str | None,
    access: str,
    options: str | None,
    role: str | None,
) -> DataSource:
    fields = {
        "data_source_id": dataset_id,
        "data_source_version": version,
        "mount_path": path,
        "mount_access": access,
        "options": options,
        "role_arn": role,
    }
    return DataSource(**{name: value for name, value in fields.items() if value is not None})


def _extra_mount(mount: DlcMount, layout: Layout) -> DataSource:
    if mount.uri is not None:
        source = mount_of(
            mount.uri,
            mount.path or "",
            layout,
            access=mount.access,
            options=mount.options,
            role_arn=mount.role_arn,
        )
    else:
        source = _dataset(mount.dataset_id, mount.version, mount.path, mount.access, mount.options, mount.role_arn)
    if mount.enable_cache is None:
        return source
    return DataSource(**source.model_dump(exclude_unset=True), enable_cache=mount.enable_cache)


def _code_source(options: DlcOptions) -> CodeSource | None:
    code = options.code_source
    if code is None:
        return None
    fields = {
        "code_source_id": code.id,
        "branch": code.branch,
        "commit": code.commit,
        "mount_path": code.path,
        "is_shared_mount_path": code.is_shared,
    }
    return CodeSource(**{name: value for name, value in fields.items() if value is not None})


# ---- variables and settings


def _variables(request: TrainingJobRequest, layout: Layout) -> dict[str, str] | None:
    user = {name: value for name, value in (request.environments or {}).items() if name not in layout.moved}
    return {**user, **recorded_variables(request)} or None


def recorded_variables(request: TrainingJobRequest) -> dict[str, str]:
    """Returns the variables from which the record of the job is read back."""
    variables = {}
    if (key := request.label(SUBMISSION_LABEL)) is not None:
        variables[SUBMISSION] = key
    spec = request.algorithm_spec
    if spec is not None:
        variables[COMMAND] = _compact(spec.command)
        if spec.metric_definitions:
            variables[METRICS] = _compact([each.to_wire() for each in spec.metric_definitions])
    values = {each.name: each.value for each in request.hyperparameters}
    # All members of the workspace can read a variable.
    if values and not any(is_secret_name(name, value) for name, value in values.items()):
        variables[HYPERPARAMETERS] = _compact(values)
    return {name: value for name, value in variables.items() if len(value) <= _MAX_RECORDED}


def moved_variables(request: TrainingJobRequest) -> frozenset[str]:
    """Returns variables of the user for the job folder: those beyond the number that is certain to fit."""
    variables = request.environments or {}
    surplus = len(variables) + len(recorded_variables(request)) - MAX_ENVS
    movable = [
        name
        for name, value in variables.items()
        if not value.startswith(_PLACEHOLDER) and not is_secret_name(name, value)
    ]
    return frozenset(movable[:surplus]) if surplus > 0 else frozenset()


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _settings(request: TrainingJobRequest, options: DlcOptions) -> JobSettings | None:
    requested = request.settings
    wire = requested.model_copy(update={"priority": None, "tags": None}).to_wire() if requested is not None else {}
    settings = JobSettings.model_validate({**wire, **options.settings})
    is_appended = any(output.name in _APPENDED for output in request.output_channels)
    fields = {
        "driver": options.driver,
        "termination_grace_period_seconds": options.grace_period_s,
        "enable_oss_append": True if is_appended and settings.enable_oss_append is None else None,
        "tags": {**((requested and requested.tags) or {}), **{each.key: each.value for each in request.labels}}
        or None,
    }
    settings = settings.model_copy(update={name: value for name, value in fields.items() if value is not None})
    return settings if settings.to_wire() else None


# ---- what cannot be said


def body_problems(body: Mapping[str, Any], mounts: int = 0) -> list[Problem]:
    """Returns what the cloud would refuse or ignore in a body, by the parameters of submitters.

    The last data sources are the `mounts` of the options.
    """
    problems = [*job_problems(body), *caution_problems(body)]
    # The workspace may be one of the settings, which are needed when the job is submitted.
    relevant = [each for each in problems if each.where != "WorkspaceId"]
    first = len(received(NewJob, body).data_sources) - mounts
    return [*dict.fromkeys(Problem(_parameter(each.where, first), each.what, each.hint) for each in relevant)]


def _parameter(where: str, first_mount: int) -> str:
    if (match := _DATA_SOURCE.match(where)) and int(match[1]) >= first_mount:
        name = PYTHON_NAMES.get(match[2], match[2])
        return f"dlc.mounts[{int(match[1]) - first_mount}].{_MOUNT_FIELDS.get(name, name)}".removesuffix(".")
    for prefix, name in _PARAMETERS:
        if where.startswith(prefix):
            return name + where[len(prefix) :]
    return where


def notes_of(request: TrainingJobRequest, layout: Layout) -> Sequence[str]:
    """Returns what may surprise a user who knows training jobs."""
    notes = []
    secrets = [name for name, value in (request.environments or {}).items() if value.startswith(_PLACEHOLDER)]
    if secrets:
        notes.append(f"variables of DLC jobs: members of the workspace can read {', '.join(sorted(secrets))}")
    if request.algorithm_spec is not None and request.algorithm_spec.metric_definitions:
        notes.append("metric_definitions: the service does not evaluate them; pai_sdk does when it reads the log")
    if layout.moved:
        notes.append(f"variables in the job folder, since a job has {MAX_ENVS}: {', '.join(sorted(layout.moved))}")
    return notes
