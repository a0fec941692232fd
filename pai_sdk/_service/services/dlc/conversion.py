"""Converts the body of CreateJob to the request of a training job, which the rest of the service works with."""

from __future__ import annotations

import json
import posixpath
import shlex
from collections.abc import Iterator, Sequence

from pydantic import ValidationError

from pai_sdk._host.agent.requirement_lists import PIP_INSTALL_SCRIPT
from pai_sdk._wire.dlc.job_specs import JobSpec, ResourceConfig, StartupDependency
from pai_sdk._wire.dlc.jobs import NewJob
from pai_sdk._wire.dlc.names import canonical_role
from pai_sdk._wire.dlc.uris import without_endpoint
from pai_sdk._wire.pai.compute import ComputeResource, InstanceSpec, SchedulerConfig, Settings
from pai_sdk._wire.pai.job_retries import RETRY_TAGS
from pai_sdk._wire.pai.request import ACCESSIBILITY_LABEL, TrainingJobRequest
from pai_sdk._wire.pai.roles import Mount, Role, StartAfter
from pai_sdk._wire.pai.spec import AlgorithmSpec, Label, MetricDefinition
from pai_sdk._wire.requests import RecordedMetric
from pai_sdk.errors import Problem

METRICS_VARIABLE = "PAI_SDK_METRICS"
"""The variable with the metrics that are read from the log, as JSON: DLC has no field for them."""

_RUNNABLE = ("PyTorchJob", "TFJob", "XGBoostJob", "OneFlowJob", "ElasticBatchJob")
# Nothing public says how the cloud starts their roles, so a job that runs here could do something else there.
_UNKNOWN_START = ("MPIJob", "SlurmJob")
_CHIEFS = ("chief", "master")
_MOUNTABLE = ("oss://",)

_INSTALL = shlex.quote(PIP_INSTALL_SCRIPT)
# Commands of public scripts say `source`, which dash, the sh of Debian and Ubuntu, does not know.
_IN_BASH = 'if command -v bash >/dev/null 2>&1; then exec bash -c "$0"; else exec sh -c "$0"; fi'


def training_request(job: NewJob, mounts: Sequence[Mount]) -> TrainingJobRequest:
    """Returns the request that runs a job of DLC; `mounts` are its data sources and its code, resolved.

    Raises InvalidInputError with values that a training job cannot have.
    """
    specs = [spec for spec in job.job_specs if spec.pod_count != 0]
    first, is_plain = specs[0], _is_plain(specs)
    limit_min = job.job_max_running_time_minutes
    return TrainingJobRequest(
        training_job_name=job.display_name or "",
        workspace_id=job.workspace_id,
        training_job_description=job.description,
        algorithm_spec=AlgorithmSpec(
            image=first.image or "",
            command=_command(job, (first.user_command if is_plain else None) or job.user_command or ""),
            job_type=job.job_type or "",
            metric_definitions=[*_metrics(variables(job).get(METRICS_VARIABLE, ""))],
        ),
        compute_resource=_compute(job, first, sum(_count(spec) for spec in specs)),
        environments=variables(job) or None,
        python_requirements=job.thirdparty_libs or None,
        labels=[Label(key=key, value=value) for key, value in labels_of(job).items()],
        priority=job.priority,
        roles=None if is_plain else [_role(job, spec, first) for spec in specs],
        mounts=[*mounts] or None,
        settings=_settings(job),
        scheduler=SchedulerConfig(max_running_time_in_seconds=60 * limit_min) if limit_min else None,
    )


def unrunnable_problems(job: NewJob) -> Iterator[Problem]:
    """Yields what the cloud can run, and this service cannot."""
    if job.job_type is not None and job.job_type not in _RUNNABLE:
        yield Problem("JobType", _refusal(job.job_type), f"these can: {', '.join(_RUNNABLE)}")
    for index, source in enumerate(job.data_sources):
        if source.uri is not None:
            yield from mount_problems(f"DataSources[{index}].Uri", source.uri)


def _refusal(job_type: str) -> str:
    """Returns why this service runs no jobs of a type."""
    if job_type == "RayJob":
        return "RayJob cannot run here: this service starts no Ray cluster for a job"
    if job_type in _UNKNOWN_START:
        return f"{job_type} cannot run here: how its roles are started is not public"
    return f"{job_type} cannot run here"


def mount_problems(where: str, uri: str) -> Iterator[Problem]:
    """Yields why this service cannot mount a URI."""
    if not uri.startswith(_MOUNTABLE):
        scheme = uri.partition("://")[0]
        yield Problem(where, f"{scheme}:// cannot be mounted by this service", "use oss://")


def mount(path: str, uri: str, access: str | None, options: str | None) -> Mount:
    """Returns a mount of a request; the endpoint in a URI is left out, whether the cloud's or this service's."""
    return Mount(path=path, uri=without_endpoint(uri), access="RW" if access == "RW" else "RO", options=options)


def variables(job: NewJob) -> dict[str, str]:
    """Returns the variables of a job, of both fields."""
    return {**job.envs, **{each.key or "": each.value or "" for each in job.custom_envs}}


def labels_of(job: NewJob) -> dict[str, str]:
    """Returns the labels of the training job: the tags, and who may see it."""
    tags = dict(job.settings.tags) if job.settings is not None else {}
    return {**tags, ACCESSIBILITY_LABEL: job.accessibility} if job.accessibility else tags


def _settings(job: NewJob) -> Settings | None:
    """Returns the settings that start a job again after an interruption; DLC has no fields for them."""
    tags = job.settings.tags if job.settings is not None else {}
    of_retries = {key: value for key, value in tags.items() if key in RETRY_TAGS}
    return Settings(tags=of_retries) if of_retries else None


def _command(job: NewJob, text: str) -> list[str]:
    return ["sh", "-c", _IN_BASH, _install(job.thirdparty_lib_dir) + text]


def _install(folder: str | None) -> str:
    """Returns the lines that install the libraries of a folder, as the start script of DLC does."""
    if folder is None:
        return ""
    path = shlex.quote(posixpath.join(folder, "requirements.txt"))
    missing = shlex.quote(f"WARN: {folder}/requirements.txt not found, skip installing requirements.")
    return f"if [ -f {path} ]; then python -c {_INSTALL} -r {path} || exit $?; else echo {missing}; fi\n"


def _metrics(text: str) -> Iterator[MetricDefinition]:
    """Yields the metrics of a variable; nothing for text of another form, since the variable is any user's."""
    try:
        metrics = json.loads(text)
    except (ValueError, RecursionError):
        return
    for each in metrics if isinstance(metrics, list) else ():
        try:
            metric = RecordedMetric.model_validate(each)
        except ValidationError:
            continue
        if metric.name is not None and metric.regex is not None:
            yield MetricDefinition(name=metric.name, regex=metric.regex)


def _compute(job: NewJob, first: JobSpec, count: int) -> ComputeResource:
    if first.resource_config is None:
        return ComputeResource(ecs_spec=first.ecs_spec or "local", ecs_count=count)
    return ComputeResource(
        instance_spec=_instance_spec(first.resource_config),
        instance_count=count,
        resource_id=job.resource_id or first.quota_id,
    )


def _instance_spec(config: ResourceConfig) -> InstanceSpec:
    return InstanceSpec(
        cpu=config.cpu,
        gpu=config.gpu,
        gpu_type=config.gpu_type,
        memory=config.memory,
        shared_memory=config.shared_memory,
    )


def _count(spec: JobSpec) -> int:
    return 1 if spec.pod_count is None else spec.pod_count


def _is_plain(specs: Sequence[JobSpec]) -> bool:
    """Returns whether a job has workers alone, which executors without roles can run too."""
    first = specs[0]
    is_counted = first.consider_in_success_policy is not False
    is_worker = (first.type or "").lower() == "worker"
    return len(specs) == 1 and is_worker and is_counted and first.restart_policy in (None, "Never")


def _role(job: NewJob, spec: JobSpec, first: JobSpec) -> Role:
    """Returns a role; image and command only where they are not those of the job."""
    return Role.model_validate(
        {
            "name": canonical_role(job.job_type or "", spec.type or "") or spec.type,
            "count": _count(spec),
            "image": spec.image if spec.image != first.image else None,
            "command": _command(job, spec.user_command) if spec.user_command else None,
            "ecs_spec": spec.ecs_spec,
            "instance_spec": _instance_spec(spec.resource_config) if spec.resource_config else None,
            "restart_policy": spec.restart_policy,
            "is_chief": spec.is_chief_role or None,
            "counts_for_success": _counts_for_success(job, spec),
            "start_after": [*map(_start_after, spec.startup_dependencies)] or None,
        }
    )


def _start_after(dependency: StartupDependency) -> StartAfter:
    count = dependency.min_replicas or ""
    min_count = int(count) if count.isdecimal() else None
    return StartAfter(role=dependency.type or "", phase=dependency.on_phase, min_count=min_count)


def _counts_for_success(job: NewJob, spec: JobSpec) -> bool | None:
    """Returns whether the job needs the success of a role; None leaves it to the type of the job."""
    if job.success_policy != "ChiefWorker":
        return spec.consider_in_success_policy
    return _is_chief(spec) if any(map(_is_chief, job.job_specs)) else None


def _is_chief(spec: JobSpec) -> bool:
    return spec.is_chief_role or (spec.type or "").lower() in _CHIEFS
