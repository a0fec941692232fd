"""Roles of a job on executors: names and ranks of the instances, what starts first, and what is awaited."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

from pai_sdk._host.agent.distributed import Instance, takes_part
from pai_sdk._wire.dlc.names import is_job_id, pods_of
from pai_sdk._wire.pai.request import TrainingJobRequest
from pai_sdk._wire.pai.roles import Role, StartAfter
from pai_sdk.errors import Problem


def role_instances(job_id: str, job_type: str, request: TrainingJobRequest) -> tuple[Instance, ...]:
    """Returns the instances of a job with roles in rank order, with the names of the pods of DLC."""
    roles = request.roles or [Role(name="Worker", count=request.instance_count)]
    pods = pods_of(job_id, job_type, [(role.name, role.count) for role in roles])
    # A stable sort: ranks of the others are consecutive, and the first of them is the master.
    pods.sort(key=lambda pod: not takes_part(pod.type))
    return tuple(
        Instance(
            pod.name,
            pod.type,
            rank,
            pod.index,
            group=pod.spec,
            is_awaited=is_awaited(roles[pod.spec]),
            can_fail_job=roles[pod.spec].counts_for_success is not False,
        )
        for rank, pod in enumerate(pods)
    )


def has_roles(job_id: str, request: TrainingJobRequest) -> bool:
    """Returns whether instances have roles: those of the request, or those that every job of DLC has."""
    return bool(request.roles) or is_job_id(job_id)


def has_unlike_instances(request: TrainingJobRequest) -> bool:
    """Returns whether a job needs an executor for roles; False if its roles differ by their names alone."""
    plain = request.model_copy(update={"roles": None})
    return any(
        bool(role.start_after) or not is_awaited(role) or _differs(each, plain)
        for role, each in zip(request.roles or (), request.role_requests, strict=bool(request.roles))
    )


def _differs(role: TrainingJobRequest, job: TrainingJobRequest) -> bool:
    size = role.compute_resource.instance_spec != job.compute_resource.instance_spec
    return size or role.algorithm_spec != job.algorithm_spec


def is_awaited(role: Role) -> bool:
    """Returns whether a job does not succeed before the instances of a role have ended."""
    if role.counts_for_success is None:
        return takes_part(role.name.lower())
    return role.counts_for_success


def role_problems(request: TrainingJobRequest) -> list[Problem]:
    """Returns what no executor of this package can do with the roles of a job."""
    roles, problems = request.roles or [], []
    for role in roles:
        where = f"roles[{role.name!r}]"
        if role.restart_policy not in (None, "Never"):
            hint = "leave it out, and use max_retries: it starts all instances again"
            message = f"{role.restart_policy!r} is not supported: single instances are not restarted"
            problems.append(Problem(f"{where}.restart_policy", message, hint))
        for other in role.start_after or ():
            problems += _start_problems(where, other, roles)
    if roles and not any(map(is_awaited, roles)):
        problems.append(Problem("roles", "no role counts for the success of the job", "let one count"))
    return problems


def _start_problems(where: str, after: StartAfter, roles: Sequence[Role]) -> Iterator[Problem]:
    if after.phase is not None and after.phase.lower() != "running":
        message = f"{after.phase!r} is not supported"
        yield Problem(f"{where}.start_after.phase", message, "use 'Running', or leave it out")
    count = next((role.count for role in roles if role.name.lower() == after.role.lower()), 0)
    if not 0 <= (after.min_count or 0) <= count:
        message = f"{after.min_count} instances of {after.role} never run; it has {count}"
        yield Problem(f"{where}.start_after.min_count", message, "use a smaller number")


def start_conditions(
    request: TrainingJobRequest, members: Sequence[Instance], instance: Instance
) -> list[tuple[list[str], int]]:
    """Returns what an instance waits for: instances, and how many of them must have started."""
    if not request.roles:
        return []
    groups = {role.name.lower(): group for group, role in enumerate(request.roles)}
    conditions = []
    for after in request.roles[instance.group].start_after or ():
        names = [member.name for member in members if member.group == groups[after.role.lower()]]
        conditions.append((names, len(names) if after.min_count is None else after.min_count))
    return conditions


# The system of the instance, and what the job contract owns; `/ml/input/config` and the like are filled by it.
_RESERVED = ("/bin", "/dev", "/etc", "/lib", "/lib64", "/ml/input/config", "/ml/input/credential", "/ml/output")
_RESERVED_TREES = ("/dev", "/proc", "/run/pai-sdk", "/sys", "/usr", "/sbin")


def mount_path_problems(request: TrainingJobRequest) -> Iterator[Problem]:
    """Yields the mounts at paths that an instance needs itself."""
    for mount in request.mounts or ():
        path = PurePosixPath(mount.path)
        is_above = any(PurePosixPath(reserved).is_relative_to(path) for reserved in (*_RESERVED, *_RESERVED_TREES))
        if is_above or any(path.is_relative_to(reserved) for reserved in _RESERVED_TREES):
            message = "hides files that every instance needs"
            yield Problem(f"mounts[{mount.path!r}]", message, "use a folder such as /mnt/data")
