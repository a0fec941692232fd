"""Converts the body of CreateJob to the request of a training job, which the rest of the service works with."""

from __future__ import annotations

import json
import posixpath
import shlex
from collections.abc import Iterator, Sequence
from typing import Any

from pai_sdk._wire.dlc.job_specs import JobSpec, ResourceConfig
from pai_sdk._wire.dlc.jobs import NewJob
from pai_sdk._wire.dlc.names import canonical_role
from pai_sdk._wire.dlc.uris import without_endpoint
from pai_sdk._wire.pai.request import ACCESSIBILITY_LABEL
from pai_sdk.errors import Problem

METRICS_VARIABLE = "PAI_SDK_METRICS"
"""The variable with the metrics that are read from the log, as JSON: DLC has no field for them."""

_RUNNABLE = ("PyTorchJob", "TFJob", "XGBoostJob", "OneFlowJob", "ElasticBatchJob")
_CHIEFS = ("chief", "master")
_MOUNTABLE = ("oss://",)

# Commands of public scripts say `source`, which dash, the sh of Debian and Ubuntu, does not know.
_IN_BASH = 'if command -v bash >/dev/null 2>&1; then exec bash -c "$0"; else exec sh -c "$0"; fi'


def training_request(job: NewJob, mounts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Returns the body of CreateTrainingJob that runs a job of DLC; `mounts` are its data sources, resolved."""
    specs = [spec for spec in job.job_specs if spec.pod_count != 0]
    first, is_plain = specs[0], _is_plain(specs)
    fields: dict[str, Any] = {
        "TrainingJobName": job.display_name,
        "WorkspaceId": job.workspace_id,
        "TrainingJobDescription": job.description,
        "AlgorithmSpec": {
            "Image": first.image,
            "Command": _command(job, (first.user_command if is_plain else None) or job.user_command or ""),
            "JobType": job.job_type,
            "MetricDefinitions": [*_metrics(variables(job).get(METRICS_VARIABLE, ""))],
        },
        "ComputeResource": _compute(job, first, sum(_count(spec) for spec in specs)),
        "Environments": variables(job),
        "PythonRequirements": job.thirdparty_libs,
        "Labels": [{"Key": key, "Value": value} for key, value in labels_of(job).items()],
        "Priority": job.priority,
        "Roles": [] if is_plain else [_role(job, spec, first) for spec in specs],
        "Mounts": [*mounts],
    }
    if job.job_max_running_time_minutes:
        fields["Scheduler"] = {"MaxRunningTimeInSeconds": 60 * job.job_max_running_time_minutes}
    return {name: value for name, value in fields.items() if value not in (None, [], {})}


def unrunnable_problems(job: NewJob) -> Iterator[Problem]:
    """Yields what the cloud can run, and this service cannot."""
    if job.job_type is not None and job.job_type not in _RUNNABLE:
        yield Problem("JobType", f"{job.job_type} cannot run here", f"these can: {', '.join(_RUNNABLE)}")
    if job.code_source is not None:
        hint = "copy the code to a bucket of this service, and mount it with DataSources"
        yield Problem("CodeSource", "this service clones no repositories", hint)
    for index, source in enumerate(job.data_sources):
        if source.uri is not None:
            yield from mount_problems(f"DataSources[{index}].Uri", source.uri)


def mount_problems(where: str, uri: str) -> Iterator[Problem]:
    """Yields why this service cannot mount a URI."""
    if not uri.startswith(_MOUNTABLE):
        scheme = uri.partition("://")[0]
        yield Problem(where, f"{scheme}:// cannot be mounted by this service", "use oss://")


def mount(path: str, uri: str, access: str | None, options: str | None) -> dict[str, Any]:
    """Returns a mount of a request; the endpoint in a URI is left out, whether the cloud's or this service's."""
    fields = {"Path": path, "Uri": without_endpoint(uri), "Access": access or "RO", "Options": options}
    return {name: value for name, value in fields.items() if value is not None}


def variables(job: NewJob) -> dict[str, str]:
    """Returns the variables of a job, of both fields."""
    return {**job.envs, **{each.key or "": each.value or "" for each in job.custom_envs}}


def labels_of(job: NewJob) -> dict[str, str]:
    """Returns the labels of the training job: the tags, and who may see it."""
    tags = dict(job.settings.tags) if job.settings is not None else {}
    return {**tags, ACCESSIBILITY_LABEL: job.accessibility} if job.accessibility else tags


def _command(job: NewJob, text: str) -> list[str]:
    return ["sh", "-c", _IN_BASH, _install(job.thirdparty_lib_dir) + text]


def _install(folder: str | None) -> str:
    """Returns the lines that install the libraries of a folder, as the start script of DLC does."""
    if folder is None:
        return ""
    path = shlex.quote(posixpath.join(folder, "requirements.txt"))
    missing = shlex.quote(f"WARN: {folder}/requirements.txt not found, skip installing requirements.")
    return f"if [ -f {path} ]; then python -m pip install -r {path} || exit $?; else echo {missing}; fi\n"


def _metrics(text: str) -> Iterator[dict[str, str]]:
    """Yields the metrics of a variable; nothing for text of another form, since the variable is any user's."""
    try:
        metrics = json.loads(text)
    except (ValueError, RecursionError):
        return
    for metric in metrics if isinstance(metrics, list) else ():
        if (
            isinstance(metric, dict)
            and isinstance(metric.get("Name"), str)
            and isinstance(metric.get("Regex"), str)
        ):
            yield {"Name": metric["Name"], "Regex": metric["Regex"]}


def _compute(job: NewJob, first: JobSpec, count: int) -> dict[str, Any]:
    if first.resource_config is None:
        return {"EcsSpec": first.ecs_spec or "local", "EcsCount": count}
    quota = job.resource_id or first.quota_id
    return {
        "InstanceSpec": _instance_spec(first.resource_config),
        "InstanceCount": count,
        **({"ResourceId": quota} if quota else {}),
    }


def _instance_spec(config: ResourceConfig) -> dict[str, str]:
    names = ("CPU", "GPU", "GPUType", "Memory", "SharedMemory")
    wire = config.to_wire()
    return {name: wire[name] for name in names if name in wire}


def _count(spec: JobSpec) -> int:
    return 1 if spec.pod_count is None else spec.pod_count


def _is_plain(specs: Sequence[JobSpec]) -> bool:
    """Returns whether a job has workers alone, which executors without roles can run too."""
    first = specs[0]
    is_counted = first.consider_in_success_policy is not False
    is_worker = (first.type or "").lower() == "worker"
    return len(specs) == 1 and is_worker and is_counted and first.restart_policy in (None, "Never")


def _role(job: NewJob, spec: JobSpec, first: JobSpec) -> dict[str, Any]:
    """Returns a role; image and command only where they are not those of the job."""
    fields: dict[str, Any] = {
        "Name": canonical_role(job.job_type or "", spec.type or "") or spec.type,
        "Count": _count(spec),
        "Image": spec.image if spec.image != first.image else None,
        "Command": _command(job, spec.user_command) if spec.user_command else None,
        "EcsSpec": spec.ecs_spec,
        "InstanceSpec": _instance_spec(spec.resource_config) if spec.resource_config else None,
        "RestartPolicy": spec.restart_policy,
        "IsChief": spec.is_chief_role or None,
        "CountsForSuccess": _counts_for_success(job, spec),
        "StartAfter": [
            {
                "Role": each.type,
                "Phase": each.on_phase,
                "MinCount": int(each.min_replicas)
                if each.min_replicas and each.min_replicas.isdecimal()
                else None,
            }
            for each in spec.startup_dependencies
        ],
    }
    return {name: value for name, value in fields.items() if value not in (None, [])}


def _counts_for_success(job: NewJob, spec: JobSpec) -> bool | None:
    """Returns whether the job needs the success of a role; None leaves it to the type of the job."""
    if job.success_policy != "ChiefWorker":
        return spec.consider_in_success_policy
    return _is_chief(spec) if any(map(_is_chief, job.job_specs)) else None


def _is_chief(spec: JobSpec) -> bool:
    return spec.is_chief_role or (spec.type or "").lower() in _CHIEFS
