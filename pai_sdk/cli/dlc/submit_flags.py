"""The flags of `dlc submit`."""

from __future__ import annotations

from dataclasses import dataclass

from pai_sdk.cli.dlc.flags import Flag


@dataclass(frozen=True)
class Role:
    """A role that flags describe.

    Attributes:
        type: its name in a request.
        prefix: of the flags of its pods: `worker` in `worker_image`.
        count: the flag with the number of its pods; of the chief, whether there is one.
    """

    type: str
    prefix: str
    count: str


ROLES = (
    Role("Chief", "chief", "chief"),
    Role("Master", "master", "masters"),
    Role("Head", "head", "heads"),
    Role("PS", "ps", "ps"),
    Role("Worker", "worker", "workers"),
    Role("Evaluator", "evaluator", "evaluators"),
    Role("GraphLearn", "graphlearn", "graphlearns"),
)

POD_FLAGS = {
    "image": "the image",
    "spec": "the instance type, on public resources",
    "cpu": "CPUs, in a quota",
    "gpu": "GPUs, in a quota",
    "gpu_type": "the type of the GPUs",
    "memory": "memory such as 32Gi; Gi without a unit",
    "shared_memory": "shared memory such as 16Gi; Gi without a unit",
}
"""The flags of the pods of a role, behind its prefix."""

_IS_E_OF_TWO = "it means the endpoint in one place and variables in another; write --envs or --endpoint"

COMMON = (
    Flag("name", "name of the job", short="n"),
    Flag("command", "what runs in each pod"),
    Flag("job_file", "file with lines key=value; it wins over flags"),
    Flag("workspace_id", "workspace; that of the settings otherwise", short="w"),
    Flag("resource_id", "quota; public resources without it"),
    Flag("priority", "1 (lowest) to 9, in a quota", "number"),
    Flag("envs", "variables: k=v,k2=v2", "pairs"),
    Flag("tags", "tags: k=v,k2=v2", "pairs"),
    Flag("data_sources", "data sets: d-a,d-b:version:/path", "list"),
    Flag("data_source_uris", "mounts: oss://bucket.endpoint/folder/::/mnt/data,…", "list"),
    Flag("code_source", "id of a registered repository"),
    Flag("code_branch", "its branch"),
    Flag("code_commit", "its commit; wins over the branch"),
    Flag("thirdparty_libs", "packages for pip: numpy==2.1,pandas", "list"),
    Flag("thirdparty_lib_dir", "folder with a requirements.txt"),
    Flag("vpc_id", "VPC"),
    Flag("switch_id", "switch of the VPC"),
    Flag("security_group_id", "security group of the VPC"),
    Flag("extended_cidrs", "CIDR blocks of the VPC", "list"),
    Flag("default_route", "eth0 or eth1"),
    Flag("job_max_running_time_minutes", "the job is stopped after these minutes; 0 is no limit", "number"),
    Flag("running_timeout", "the same in seconds", "number"),
    Flag("job_reserved_minutes", "keep the pods after the end of the command", "number"),
    Flag("job_reserved_policy", "when: Always, OnFailure, OnSucceed"),
    Flag("oversold_type", "whether idle resources of others are used"),
    Flag("driver", "version of the GPU driver"),
    Flag("success_policy", "AllWorkers or ChiefWorker"),
    Flag("advanced_settings", "k=v,k2=v2", "pairs"),
    Flag("image_repo_username", "user of a private registry"),
    Flag("image_repo_password", "password of a private registry"),
    Flag("aimaster_enable", "monitor errors by an AIMaster", "boolean"),
    Flag("aimaster_args", "its arguments"),
    Flag("interactive", "wait until the job has ended", "boolean"),
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


def role_flags() -> list[Flag]:
    """Returns the flags of all roles."""
    flags = []
    for role in ROLES:
        kind = "boolean" if role.type == "Chief" else "number"
        flags.append(Flag(role.count, f"number of pods of the role {role.type}", kind))  # type: ignore[arg-type]
        flags += [Flag(f"{role.prefix}_{name}", text) for name, text in POD_FLAGS.items()]
    return flags


SUBMIT_FLAGS = (*COMMON, *role_flags())
