"""Converts the flags of `dlc submit` to the body of CreateJob."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

from pai_sdk._wire.dlc.checks import caution_problems, job_problems
from pai_sdk._wire.dlc.job_specs import ImageConfig, JobSpec, ResourceConfig
from pai_sdk._wire.dlc.jobs import NewJob
from pai_sdk._wire.dlc.names import ROLE_TYPES, canonical_role
from pai_sdk._wire.dlc.settings import JobSettings
from pai_sdk._wire.dlc.sources import CodeSource, DataSource, UserVpc
from pai_sdk.cli.dlc.flags import Arguments
from pai_sdk.cli.dlc.submit_flags import POD_FLAGS, ROLES, Role
from pai_sdk.errors import Problem

_NUMBER = re.compile(r"\d+(\.\d+)?")
# A comma separates URIs only before the next scheme.
_NEXT_URI = re.compile(r",(?=\s*[A-Za-z][A-Za-z0-9+.-]*://)")

# Paths in problems of a body, and the flags behind them.
_FLAGS = {
    "DisplayName": "name",
    "UserCommand": "command",
    "JobSpecs": "workers",
    "WorkspaceId": "workspace_id",
    "ResourceId": "resource_id",
    "Priority": "priority",
    "Envs": "envs",
    "Settings.Tags": "tags",
    "DataSources": "data_sources",
    "CodeSource": "code_source",
    "UserVpc.VpcId": "vpc_id",
    "UserVpc.DefaultRoute": "default_route",
    "UserVpc.ExtendedCIDRs": "extended_cidrs",
    "ThirdpartyLibDir": "thirdparty_lib_dir",
    "JobMaxRunningTimeMinutes": "job_max_running_time_minutes",
    "SuccessPolicy": "success_policy",
    "Settings.JobReservedPolicy": "job_reserved_policy",
}
_POD_FIELDS = {
    "Image": "image",
    "EcsSpec": "spec",
    "ResourceConfig": "cpu",
    "ResourceConfig.CPU": "cpu",
    "ResourceConfig.GPU": "gpu",
    "ResourceConfig.Memory": "memory",
    "ResourceConfig.SharedMemory": "shared_memory",
}


def new_job(
    arguments: Arguments, job_type: str, *, workspace_id: str | None
) -> tuple[dict[str, Any], list[Problem]]:
    """Returns the body of CreateJob and warnings.

    Args:
        arguments: those of the command; problems are added to them.
        job_type: as in the API: `PyTorchJob`.
        workspace_id: that of the settings, where no flag says it.
    """
    job = NewJob(
        display_name=arguments.text("name"),
        job_type=job_type,
        job_specs=_job_specs(arguments, job_type),
        user_command=arguments.text("command"),
        workspace_id=arguments.text("workspace_id") or workspace_id,
        resource_id=arguments.text("resource_id"),
        priority=arguments.number("priority"),
        envs=arguments.pairs("envs"),
        data_sources=[*_data_sets(arguments), *_mounts(arguments)],
        code_source=_code_source(arguments),
        job_max_running_time_minutes=_max_minutes(arguments),
        settings=_settings(arguments),
        success_policy=arguments.text("success_policy"),
        thirdparty_lib_dir=arguments.text("thirdparty_lib_dir"),
        thirdparty_libs=_packages(arguments),
        user_vpc=_vpc(arguments),
    )
    body = job.to_wire()
    arguments.problems += (_by_flag(each, job) for each in job_problems(body))
    return body, [_by_flag(each, job) for each in caution_problems(body)]


def _job_specs(arguments: Arguments, job_type: str) -> list[JobSpec]:
    """Returns the roles with pods, in the order of the table."""
    specs = []
    for role in ROLES:
        names = [role.count, *(f"{role.prefix}_{name}" for name in POD_FLAGS)]
        used = [name for name in names if name in arguments]
        if not used:
            continue
        if canonical_role(job_type, role.type) is None:
            roles = ", ".join(ROLE_TYPES[job_type])
            arguments.problems += (
                Problem(f"--{name}", f"{job_type} has no role {role.type}", f"there is: {roles}") for name in used
            )
            continue
        count = _count(arguments, role)
        if count != 0:
            specs.append(_job_spec(arguments, role, count))
    return specs


def _count(arguments: Arguments, role: Role) -> int:
    """Returns the number of pods of a role: 1 where only the other flags of the role are given."""
    if role.count not in arguments:
        return 1
    if role.type == "Chief":
        return int(arguments.boolean(role.count))
    count = arguments.number(role.count)
    return 1 if count is None else count


def _job_spec(arguments: Arguments, role: Role, count: int) -> JobSpec:
    values = {name: arguments.text(f"{role.prefix}_{name}") for name in POD_FLAGS}
    resources = ResourceConfig(
        cpu=values["cpu"],
        gpu=values["gpu"],
        gpu_type=values["gpu_type"],
        memory=_size(values["memory"]),
        shared_memory=_size(values["shared_memory"]),
    )
    registry = ImageConfig(
        username=arguments.text("image_repo_username"), password=arguments.text("image_repo_password")
    )
    return JobSpec(
        type=role.type,
        pod_count=count,
        image=values["image"],
        ecs_spec=values["spec"],
        resource_config=resources if resources.to_wire() else None,
        image_config=registry if registry.to_wire() else None,
    )


def _size(text: str | None) -> str | None:
    """Returns a size with its unit; the unit of sizes without one is Gi."""
    return f"{text}Gi" if text is not None and _NUMBER.fullmatch(text) else text


def _data_sets(arguments: Arguments) -> Iterator[DataSource]:
    """Yields the data sets of `d-a,d-b:version:/path`."""
    for text in arguments.items("data_sources"):
        identifier, *more = text.split(":", 2)
        path = more.pop() if more and more[-1].startswith("/") else None
        if not identifier or len(more) > 1:
            problem = Problem(
                "--data_sources", f"{text!r} is no data set", "write ID, ID:VERSION or ID:VERSION:/PATH"
            )
            arguments.problems.append(problem)
            continue
        version = more[0] if more else None
        yield DataSource(data_source_id=identifier, data_source_version=version or None, mount_path=path)


def _mounts(arguments: Arguments) -> Iterator[DataSource]:
    """Yields the mounts of `URI::PATH,URI::PATH`."""
    for value in arguments.values.get("data_source_uris", ()):
        for text in _NEXT_URI.split(value):
            uri, separator, path = text.strip().rpartition("::")
            if separator:
                yield DataSource(uri=uri, mount_path=path or None)
            elif text.strip():
                arguments.problems.append(
                    Problem("--data_source_uris", f"{text!r} has no mount path", "URI::/PATH")
                )


def _code_source(arguments: Arguments) -> CodeSource | None:
    source = CodeSource(
        code_source_id=arguments.text("code_source"),
        branch=arguments.text("code_branch"),
        commit=arguments.text("code_commit"),
    )
    return source if source.to_wire() else None


def _packages(arguments: Arguments) -> list[str]:
    """Returns the packages; a comma in front of a comparison belongs to a version: `numpy>=1,<3`."""
    packages: list[str] = []
    for item in arguments.items("thirdparty_libs"):
        if packages and item[0] in "<>=!~":
            packages[-1] += f",{item}"
        else:
            packages.append(item)
    return packages


def _vpc(arguments: Arguments) -> UserVpc | None:
    vpc = UserVpc(
        vpc_id=arguments.text("vpc_id"),
        switch_id=arguments.text("switch_id"),
        security_group_id=arguments.text("security_group_id"),
        default_route=arguments.text("default_route"),
        extended_cidrs=arguments.items("extended_cidrs"),
    )
    return vpc if vpc.to_wire() else None


def _settings(arguments: Arguments) -> JobSettings | None:
    settings = JobSettings(
        advanced_settings=arguments.pairs("advanced_settings"),
        driver=arguments.text("driver"),
        enable_error_monitoring_in_aimaster=arguments.boolean("aimaster_enable") or None,
        error_monitoring_args=arguments.text("aimaster_args"),
        job_reserved_minutes=arguments.number("job_reserved_minutes"),
        job_reserved_policy=arguments.text("job_reserved_policy"),
        oversold_type=arguments.text("oversold_type"),
        tags=arguments.pairs("tags"),
    )
    return settings if settings.to_wire() else None


def _max_minutes(arguments: Arguments) -> int | None:
    """Returns the limit of the running time; 0 means none, and is left out, because the cloud may refuse it."""
    minutes = arguments.number("job_max_running_time_minutes")
    if minutes is None:
        seconds = arguments.number("running_timeout")
        minutes = None if seconds is None else math.ceil(seconds / 60)
    return minutes or None


def _by_flag(problem: Problem, job: NewJob) -> Problem:
    """Returns a problem of the body as one of the flag behind it."""
    match = re.fullmatch(r"JobSpecs\[(\d+)\](?:\.(.+))?", problem.where)
    if match:
        type_ = job.job_specs[int(match[1])].type
        role = next(each for each in ROLES if each.type == type_)
        name = _POD_FIELDS.get(match[2] or "")
        return Problem(f"--{role.prefix}_{name}" if name else f"--{role.count}", problem.what, problem.hint)
    path = re.sub(r"\[\d+\].*", "", problem.where)
    if path == "DataSources" and job.data_sources:
        source = job.data_sources[int(re.findall(r"\[(\d+)\]", problem.where)[0])]
        return Problem("--data_source_uris" if source.uri else "--data_sources", problem.what, problem.hint)
    flag = _FLAGS.get(path) or _FLAGS.get(path.rpartition(".")[0])
    return Problem(f"--{flag}", problem.what, problem.hint) if flag else problem
