"""Checks a CreateJob or UpdateJob as the cloud does: before it is sent, and in a service that receives it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from pai_sdk._wire.body import read_body
from pai_sdk._wire.dlc.checking.mounts import mount_problems
from pai_sdk._wire.dlc.checking.problems import BodyProblem, choice_problem
from pai_sdk._wire.dlc.checking.roles import role_problems
from pai_sdk._wire.dlc.checking.tags import tag_problems
from pai_sdk._wire.dlc.job_specs import JobSpec
from pai_sdk._wire.dlc.jobs import JobUpdate, NewJob
from pai_sdk._wire.dlc.limits import MAX_BODY_BYTES, MAX_ENVS, PRIORITIES
from pai_sdk._wire.dlc.names import JOB_TYPES, display_name_problem, job_type_for
from pai_sdk._wire.dlc.resources.tags import Tag

__all__ = ["CAUTION", "body_bytes", "caution_problems", "job_problems", "update_problems"]

CAUTION = "Caution"
"""The code of what the cloud may accept, and this package does not send."""

_ACCESSIBILITIES = ("PUBLIC", "PRIVATE")
_SYSTEM_FOLDER = "/ml/input/config"


def body_bytes(body: Mapping[str, Any]) -> int:
    """Returns the size of a body as compact JSON in UTF-8."""
    return len(json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode(errors="surrogatepass"))


def job_problems(body: Mapping[str, Any]) -> list[BodyProblem]:
    """Returns all that the cloud refuses in a CreateJob; unknown fields are no problem.

    A body with a TemplateId may lack what its template has. A service merges both before it checks them.
    """
    job, unread = read_body(NewJob, body)
    problems = [BodyProblem(each.where, each.what, each.hint) for each in unread]
    if (size := body_bytes(body)) > MAX_BODY_BYTES:
        problems.append(BodyProblem("body", f"has {size:,} bytes; {MAX_BODY_BYTES:,} are allowed"))
    for check in (_required, _top_level, role_problems, mount_problems, _environment_problems, _vpc_problems):
        problems += check(job)
    # A value that could not be read is not also missing.
    paths = {each.where for each in unread}
    unique = dict.fromkeys(problems[: len(unread)])
    unique |= dict.fromkeys(each for each in problems if each.where not in paths)
    return [each for each in unique if job.template_id is None or not _is_of_a_template(each)]


def _is_of_a_template(problem: BodyProblem) -> bool:
    return problem.what == "is required" or problem.what.endswith("must be present")


def _required(job: NewJob) -> Iterator[BodyProblem]:
    for where, value in (
        ("DisplayName", job.display_name),
        ("JobType", job.job_type),
        ("JobSpecs", job.job_specs),
        ("UserCommand", job.user_command),
    ):
        if not value:
            yield BodyProblem(where, "is required")


def _top_level(job: NewJob) -> Iterator[BodyProblem]:
    if job.display_name is not None and (problem := display_name_problem(job.display_name)):
        yield BodyProblem("DisplayName", problem)
    if job.job_type is not None and job.job_type not in JOB_TYPES:
        meant = job_type_for(job.job_type)
        hint = f"write {meant}" if meant else f"available: {', '.join(JOB_TYPES)}"
        yield BodyProblem("JobType", f"unknown value {job.job_type!r}", hint)
    yield from _priority_problem(job.priority)
    if job.job_max_running_time_minutes is not None and job.job_max_running_time_minutes < 0:
        yield BodyProblem("JobMaxRunningTimeMinutes", f"{job.job_max_running_time_minutes} is less than 0")
    yield from choice_problem("Accessibility", job.accessibility, _ACCESSIBILITIES)
    yield from choice_problem("SuccessPolicy", job.success_policy, ("AllWorkers", "ChiefWorker", "Partial"))
    if job.settings is not None:
        policy = job.settings.job_reserved_policy
        yield from choice_problem("Settings.JobReservedPolicy", policy, ("Always", "OnFailure", "OnSucceed"))


def _priority_problem(priority: int | None) -> Iterator[BodyProblem]:
    if priority is not None and priority not in PRIORITIES:
        yield BodyProblem("Priority", f"{priority} is not between {PRIORITIES[0]} and {PRIORITIES[-1]}")


def _environment_problems(job: NewJob) -> Iterator[BodyProblem]:
    for name in job.envs:
        if not name or "=" in name or "\0" in name:
            yield BodyProblem("Envs", f"{name!r} is not the name of a variable")
    for index, each in enumerate(job.custom_envs):
        if each.key is None:
            yield BodyProblem(f"CustomEnvs[{index}].Key", "is required")


def _vpc_problems(job: NewJob) -> Iterator[BodyProblem]:
    if job.user_vpc is None:
        return
    if job.user_vpc.vpc_id is None:
        yield BodyProblem("UserVpc.VpcId", "is required")
    yield from choice_problem("UserVpc.DefaultRoute", job.user_vpc.default_route, ("eth0", "eth1"))


def update_problems(body: Mapping[str, Any]) -> list[BodyProblem]:
    """Returns what is wrong with an UpdateJob."""
    update, unread = read_body(JobUpdate, body)
    problems = [BodyProblem(each.where, each.what, each.hint) for each in unread]
    problems += _priority_problem(update.priority)
    problems += choice_problem("Accessibility", update.accessibility, _ACCESSIBILITIES)
    for index, spec in enumerate(update.job_specs):
        problems += _count_problems(f"JobSpecs[{index}]", spec)
    return problems


def _count_problems(where: str, spec: JobSpec) -> Iterator[BodyProblem]:
    if spec.type is None:
        yield BodyProblem(f"{where}.Type", "is required")
    if spec.pod_count is not None and spec.pod_count < 0:
        yield BodyProblem(f"{where}.PodCount", f"{spec.pod_count} is less than 0")


# ---- what a client does not send, although the cloud may accept it ------------------------------------------


def caution_problems(body: Mapping[str, Any]) -> list[BodyProblem]:
    """Returns what would have no effect or another one than its reader expects, or is above an uncertain limit."""
    job, _ = read_body(NewJob, body)
    problems = [*_ineffective(job), *_uncertain(job)]
    if job.settings is not None:
        tags = [Tag(key=key, value=value) for key, value in job.settings.tags.items()]
        problems += tag_problems("Settings.Tags", tags)
    return [BodyProblem(each.where, each.what, each.hint, CAUTION) for each in problems]


def _ineffective(job: NewJob) -> Iterator[BodyProblem]:
    has_quota = bool(job.resource_id) or any(spec.quota_id for spec in job.job_specs)
    if job.priority is not None and not has_quota:
        yield BodyProblem("Priority", "has no effect without a quota", "give ResourceId too")
    if job.success_policy == "ChiefWorker" and job.job_type != "TFJob":
        yield BodyProblem("SuccessPolicy", "ChiefWorker has an effect in a TFJob only")
    for where, is_set in (
        ("ElasticSpec", job.elastic_spec is not None),
        ("DebuggerConfigContent", job.debugger_config_content is not None),
    ):
        if is_set:
            yield BodyProblem(where, "has no effect", "leave it out")


def _uncertain(job: NewJob) -> Iterator[BodyProblem]:
    if job.workspace_id is None:
        yield BodyProblem("WorkspaceId", "is required", "the default workspace would be used")
    if (count := len({*job.envs} | {each.key for each in job.custom_envs})) > MAX_ENVS:
        yield BodyProblem("Envs", f"has {count} variables; {MAX_ENVS} are certain")
    if job.job_max_running_time_minutes == 0:
        yield BodyProblem("JobMaxRunningTimeMinutes", "0 may be refused", "leave it out for no limit")
    if job.thirdparty_libs and job.thirdparty_lib_dir is not None:
        yield BodyProblem("ThirdpartyLibDir", "conflicts with ThirdpartyLibs", "give only one of them")
    vpc = job.user_vpc
    if vpc is not None and vpc.switch_id is not None and not vpc.extended_cidrs:
        yield BodyProblem("UserVpc.ExtendedCIDRs", "is needed with a SwitchId", "give all CIDR blocks of the VPC")
    for index, source in enumerate(job.data_sources):
        if f"{source.mount_path}/".startswith(f"{_SYSTEM_FOLDER}/"):
            yield BodyProblem(f"DataSources[{index}].MountPath", f"{_SYSTEM_FOLDER} is used by the system")
