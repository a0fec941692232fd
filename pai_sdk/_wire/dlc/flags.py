"""The flags of the command `dlc`, and the fields of a `NewJob` that they set. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

__all__ = [
    "CREATE_FLAGS",
    "EVERY_ROLE",
    "FORMER_KINDS",
    "FORMER_NAMES",
    "GET_FLAGS",
    "GLOBAL_FLAGS",
    "POD_FIELDS",
    "ROLES",
    "STOP_FLAGS",
    "SUBMIT_FLAGS",
    "VENDOR_FLAGS",
    "WINDOW_FLAGS",
    "Flag",
    "Kind",
    "RoleFlags",
    "put_field",
]

Kind = Literal["text", "boolean", "number", "size", "list", "packages", "pairs", "data_sets", "mounts"]

EVERY_ROLE: Final = "*"


@dataclass(frozen=True)
class Flag:
    """A flag of a command.

    Attributes:
        name: without its two dashes.
        help: one line.
        kind: what its value is. All but the first four are separated by commas; such a flag may be repeated.
        short: its letter, if it has one.
        refusal: why this flag of the original command cannot be used, and what to use instead.
        field: the path of the field that it sets, in Python's names: of a `NewJob`, or of a `JobSpec`.
        role: the type of the role that has the field; empty for a field of the job.
    """

    name: str
    help: str = ""
    kind: Kind = "text"
    short: str = ""
    refusal: str = ""
    field: str = ""
    role: str = ""

    @property
    def is_repeatable(self) -> bool:
        """Returns whether several values are joined; of other flags the last one counts."""
        return self.kind in ("list", "packages", "pairs", "data_sets", "mounts")


@dataclass(frozen=True)
class RoleFlags:
    """A role that flags describe.

    Attributes:
        type: its name in a request.
        prefix: of the flags of its pods: `worker` in `worker_image`.
        count: the flag with the number of its pods; of the chief, whether there is one.
    """

    type: str
    prefix: str
    count: str


def put_field(target: dict[str, Any], path: str, value: Any) -> None:
    """Sets a field of a body; a list is added to the one that is there.

    Example:
        >>> body = {}
        >>> put_field(body, "user_vpc.vpc_id", "vpc-1")
        >>> body
        {'user_vpc': {'vpc_id': 'vpc-1'}}
    """
    *above, name = path.split(".")
    for step in above:
        target = target.setdefault(step, {})
    target[name] = [*target.get(name, ()), *value] if isinstance(value, list) else value


GLOBAL_FLAGS: Final = (
    Flag("access_id", "id of the access key", short="a"),
    Flag("access_key", "secret of the access key", short="k"),
    Flag("endpoint", "host of DLC", short="e"),
    Flag("region", "region, such as cn-hangzhou", short="r"),
    Flag("protocol", "https or http"),
    Flag("config", "file that `dlc config` wrote; ~/.dlc/config otherwise", short="c"),
    Flag("ignore_local_config", "do not read ~/.dlc/config", "boolean"),
    Flag("output", "table (as the original) or json", short="o"),
    Flag("help", "show the flags", "boolean", short="h"),
)
"""Flags of every command, before or after its name."""

# ---- dlc submit ---------------------------------------------------------------------------------------------

ROLES: Final = (
    RoleFlags("Chief", "chief", "chief"),
    RoleFlags("Master", "master", "masters"),
    RoleFlags("Head", "head", "heads"),
    RoleFlags("PS", "ps", "ps"),
    RoleFlags("Worker", "worker", "workers"),
    RoleFlags("Evaluator", "evaluator", "evaluators"),
    RoleFlags("GraphLearn", "graphlearn", "graphlearns"),
)

_POD_FLAGS = (
    Flag("image", "the image", field="image"),
    Flag("spec", "the instance type, on public resources", field="ecs_spec"),
    Flag("cpu", "CPUs, in a quota", field="resource_config.cpu"),
    Flag("gpu", "GPUs, in a quota", field="resource_config.gpu"),
    Flag("gpu_type", "the type of the GPUs", field="resource_config.gpu_type"),
    Flag("memory", "memory such as 32Gi; Gi without a unit", "size", field="resource_config.memory"),
    Flag(
        "shared_memory",
        "shared memory such as 16Gi; Gi without a unit",
        "size",
        field="resource_config.shared_memory",
    ),
)

_IS_E_OF_TWO = "it means the endpoint in one place and variables in another; write --envs or --endpoint"

_JOB_FLAGS = (
    Flag("name", "name of the job", short="n", field="display_name"),
    Flag("command", "the command to run in each pod", field="user_command"),
    Flag("job_file", "file with lines key=value; takes precedence over flags"),
    Flag("workspace_id", "workspace; that of the settings otherwise", short="w", field="workspace_id"),
    Flag("resource_id", "quota; public resources without it", field="resource_id"),
    Flag("priority", "1 (lowest) to 9, in a quota", "number", field="priority"),
    Flag("envs", "variables: k=v,k2=v2", "pairs", field="envs"),
    Flag("tags", "tags: k=v,k2=v2", "pairs", field="settings.tags"),
    Flag("data_sources", "data sets: d-a,d-b:version:/path", "data_sets", field="data_sources"),
    Flag(
        "data_source_uris",
        "mounts: oss://bucket.endpoint/folder/::/mnt/data,…",
        "mounts",
        field="data_sources",
    ),
    Flag("code_source", "id of a registered repository", field="code_source.code_source_id"),
    Flag("code_branch", "its branch", field="code_source.branch"),
    Flag("code_commit", "its commit; takes precedence over the branch", field="code_source.commit"),
    Flag("thirdparty_libs", "packages for pip: numpy==2.1,pandas", "packages", field="thirdparty_libs"),
    Flag("thirdparty_lib_dir", "folder with a requirements.txt", field="thirdparty_lib_dir"),
    Flag("vpc_id", "VPC", field="user_vpc.vpc_id"),
    Flag("switch_id", "switch of the VPC", field="user_vpc.switch_id"),
    Flag("security_group_id", "security group of the VPC", field="user_vpc.security_group_id"),
    Flag("extended_cidrs", "CIDR blocks of the VPC", "list", field="user_vpc.extended_cidrs"),
    Flag("default_route", "eth0 or eth1", field="user_vpc.default_route"),
    Flag(
        "job_max_running_time_minutes",
        "the job is stopped after these minutes; 0 is no limit",
        "number",
        field="job_max_running_time_minutes",
    ),
    Flag("running_timeout", "the same in seconds", "number"),
    Flag(
        "job_reserved_minutes",
        "keep the pods after the end of the command",
        "number",
        field="settings.job_reserved_minutes",
    ),
    Flag("job_reserved_policy", "when: Always, OnFailure, OnSucceed", field="settings.job_reserved_policy"),
    Flag("oversold_type", "whether idle resources of others are used", field="settings.oversold_type"),
    Flag("driver", "version of the GPU driver", field="settings.driver"),
    Flag("success_policy", "AllWorkers or ChiefWorker", field="success_policy"),
    Flag("advanced_settings", "k=v,k2=v2", "pairs", field="settings.advanced_settings"),
    Flag("image_repo_username", "user of a private registry", field="image_config.username", role=EVERY_ROLE),
    Flag("image_repo_password", "password of a private registry", field="image_config.password", role=EVERY_ROLE),
    Flag(
        "aimaster_enable",
        "monitor errors by an AIMaster",
        "boolean",
        field="settings.enable_error_monitoring_in_aimaster",
    ),
    Flag("aimaster_args", "its arguments", field="settings.error_monitoring_args"),
    Flag("interactive", "wait until the job has finished", "boolean"),
    Flag("exit_code_on_stopped", "exit code of --interactive for a stopped job", "number"),
    Flag("dry_run", "print the request, and send nothing (not in the original)", "boolean"),
    Flag("enable_priority_preemption", kind="boolean", refusal="CreateJob has no field for it"),
    Flag(
        "enable_preemptible_job",
        kind="boolean",
        refusal="CreateJob has no field for it; use Estimator(spot_spec=…)",
    ),
    Flag("e", short="e", refusal=_IS_E_OF_TWO),
)


def _flags_of(role: RoleFlags) -> list[Flag]:
    kind: Kind = "boolean" if role.type == "Chief" else "number"
    count = Flag(role.count, f"number of pods of the role {role.type}", kind, field="pod_count", role=role.type)
    pods = (
        Flag(f"{role.prefix}_{flag.name}", flag.help, flag.kind, field=flag.field, role=role.type)
        for flag in _POD_FLAGS
    )
    return [count, *pods]


SUBMIT_FLAGS: Final = (*_JOB_FLAGS, *(flag for role in ROLES for flag in _flags_of(role)))
"""The flags of `dlc submit`."""

FORMER_NAMES: Final = {
    "kind": "",
    "worker_count": "workers",
    "master_count": "masters",
    "ps_count": "ps",
    "params_file": "job_file",
}
"""Flags of the older `dlc create job`, and those that replace them; the first one is the type of the job."""

FORMER_KINDS: Final = {"batchjob": "PyTorchJob"}
"""Kinds of `dlc create job` that are no types of jobs."""

CREATE_FLAGS: Final = (
    *SUBMIT_FLAGS,
    *(Flag(name, f"--{new}" if new else "the type of the job") for name, new in FORMER_NAMES.items()),
)
"""The flags of `dlc create job`: those of `submit` under former names too."""

# ---- pai dlc job submit -------------------------------------------------------------------------------------

POD_FIELDS: Final = {"count": "pod_count", **{flag.name: flag.field for flag in _POD_FLAGS}}
"""What `--role` of the vendor's command takes, and the fields of a `JobSpec`."""

VENDOR_FLAGS: Final = (
    Flag("name", "name of the job", field="display_name"),
    Flag("image", "the image of the workers", field="image", role="Worker"),
    Flag("command", "the command to run in each pod", field="user_command"),
    Flag("job-type", "PyTorchJob otherwise", field="job_type"),
    Flag("workspace-id", "workspace; that of the settings otherwise", field="workspace_id"),
    Flag("resource-id", "quota; public resources without it", field="resource_id"),
    Flag("worker-spec", "the instance type of the workers, on public resources", field="ecs_spec", role="Worker"),
    Flag("worker-count", "number of workers; 1 otherwise", "number", field="pod_count", role="Worker"),
    *(
        Flag(name, f"{name} of a worker, in a quota", field=POD_FIELDS[name.replace("-", "_")], role="Worker")
        for name in ("cpu", "memory", "gpu", "gpu-type", "shared-memory")
    ),
    Flag("role", "NAME:count=2,gpu=8,image=…; may be repeated"),
    Flag("body-json", "@FILE with the body of CreateJob, in JSON or YAML, or the body itself"),
    Flag("override", "PATH=VALUE: a field of the body; may be repeated"),
    Flag("override-string", "PATH=TEXT"),
    Flag("override-unset", "PATH"),
    Flag("dry-run", "print the request, and send nothing", "boolean"),
)
"""The flags of `job submit` of the vendor's command `pai dlc`."""

# ---- other commands ------------------------------------------------------------------------------------------

WINDOW_FLAGS: Final = (
    Flag("max_events_num", "number of lines or events; 2000 otherwise", "number"),
    Flag("start_time", "the first moment: 2026-11-28T05:00:00Z; UTC without a zone"),
    Flag("end_time", "the last moment"),
    Flag("workspace_id", "not needed: ids are unique", short="w"),
)
GET_FLAGS: Final = (
    *WINDOW_FLAGS,
    Flag("display_name", "jobs with this text in their name", short="n"),
    Flag("display_name_regex", "jobs whose name has a match of this regular expression"),
    Flag("job_type", "such as PyTorchJob"),
    Flag("status", "such as Running; several with commas", "list"),
    Flag("resource_id", "jobs of a quota"),
    Flag("page_num", "from 1", "number"),
    Flag("page_size", "any number; 10 otherwise", "number"),
    Flag("show_detail", "a list as JSON", "boolean"),
    Flag("events", "with the events of the job", "boolean"),
    Flag("events_only", "only the events of the job", "boolean"),
    Flag("accelerator_type", "of `get specs`: CPU or GPU"),
    Flag("resource_type", "of `get specs`: ECS or Lingjun"),
    Flag("instance_types", "of `get specs`: names with commas"),
)
STOP_FLAGS: Final = (
    Flag("force", "do not ask", "boolean", short="f"),
    Flag("quiet", "print nothing on success", "boolean"),
    Flag("workspace_id", "not needed: ids are unique", short="w"),
)
