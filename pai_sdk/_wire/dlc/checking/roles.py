"""Checks the roles of a CreateJob."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from pai_sdk._wire.dlc.checking.problems import BodyProblem, choice_problem
from pai_sdk._wire.dlc.job_specs import JobSpec, ResourceConfig, SpotSpec
from pai_sdk._wire.dlc.jobs import NewJob
from pai_sdk._wire.dlc.names import ROLE_TYPES, SINGLE_ROLES, canonical_role

__all__ = ["RESTART_POLICIES", "role_problems"]

RESTART_POLICIES = ("Always", "Never", "OnFailure", "ExitCode")
_SPOT_STRATEGY = "SpotWithPriceLimit"
_COUNT = re.compile(r"\d+(\.\d+)?m?")
_SIZE = re.compile(r"\d+(\.\d+)? *([KMGTP]i?)?B?", re.IGNORECASE)


def role_problems(job: NewJob) -> Iterator[BodyProblem]:
    """Yields the problems of each role, and of all together."""
    for index, spec in enumerate(job.job_specs):
        where = f"JobSpecs[{index}]"
        yield from _type_problems(where, job.job_type, spec)
        yield from _pod_problems(where, spec)
        yield from _resource_problems(where, job, spec)
    yield from _common_problems(job.job_specs)


def _type_problems(where: str, job_type: str | None, spec: JobSpec) -> Iterator[BodyProblem]:
    if spec.type is None:
        yield BodyProblem(f"{where}.Type", "is required", "such as Worker")
        return
    role = canonical_role(job_type or "", spec.type)
    if role is None:
        names = ", ".join(ROLE_TYPES[job_type or ""])
        yield BodyProblem(f"{where}.Type", f"{job_type} has no role {spec.type!r}", f"available: {names}")
    if role in SINGLE_ROLES and (spec.pod_count or 1) > 1:
        yield BodyProblem(f"{where}.PodCount", f"there can be one {role} only, not {spec.pod_count}")


def _pod_problems(where: str, spec: JobSpec) -> Iterator[BodyProblem]:
    if spec.pod_count is not None and spec.pod_count < 0:
        yield BodyProblem(f"{where}.PodCount", f"{spec.pod_count} is less than 0")
    if spec.image is None:
        yield BodyProblem(f"{where}.Image", f"Image of JobSpec({spec.type}) must be present")
    yield from choice_problem(f"{where}.RestartPolicy", spec.restart_policy, RESTART_POLICIES)
    if spec.service_spec is not None:
        mode = spec.service_spec.service_mode
        yield from choice_problem(f"{where}.ServiceSpec.ServiceMode", mode, ("PerRole", "PerPod"))
    if spec.spot_spec is not None:
        yield from _spot_problems(f"{where}.SpotSpec", spec.spot_spec)


def _spot_problems(where: str, spot: SpotSpec) -> Iterator[BodyProblem]:
    if spot.spot_strategy is None:
        yield BodyProblem(f"{where}.SpotStrategy", "is required", _SPOT_STRATEGY)
    yield from choice_problem(f"{where}.SpotStrategy", spot.spot_strategy, (_SPOT_STRATEGY,))
    if spot.spot_discount_limit is not None and spot.spot_price_limit is not None:
        yield BodyProblem(where, "has SpotDiscountLimit and SpotPriceLimit", "give only one of them")
    if spot.spot_discount_limit is not None and not 0 <= spot.spot_discount_limit <= 1:
        yield BodyProblem(f"{where}.SpotDiscountLimit", f"{spot.spot_discount_limit} is not between 0 and 1")


def _resource_problems(where: str, job: NewJob, spec: JobSpec) -> Iterator[BodyProblem]:
    if spec.ecs_spec is not None and spec.resource_config is not None:
        yield BodyProblem(where, f"JobSpec({spec.type}) has EcsSpec and ResourceConfig", "give only one of them")
    elif job.resource_id or spec.quota_id:
        if spec.ecs_spec is not None:
            hint = "leave it out, or leave out ResourceId for public resources"
            yield BodyProblem(
                f"{where}.EcsSpec", f"EcsSpec of JobSpec({spec.type}) is not allowed in a quota", hint
            )
        elif spec.resource_config is None:
            yield BodyProblem(f"{where}.ResourceConfig", f"ResourceConfig of JobSpec({spec.type}) must be present")
    elif spec.ecs_spec is None and not spec.elastic_spot_specs:
        hint = "ResourceConfig needs the ResourceId of a quota" if spec.resource_config else ""
        yield BodyProblem(f"{where}.EcsSpec", f"EcsSpec of JobSpec({spec.type}) must be present", hint)
    if spec.resource_config is not None:
        yield from _amount_problems(f"{where}.ResourceConfig", spec.resource_config)


def _amount_problems(where: str, config: ResourceConfig) -> Iterator[BodyProblem]:
    for name, value in (("CPU", config.cpu), ("GPU", config.gpu)):
        if value is not None and not _COUNT.fullmatch(value):
            yield BodyProblem(f"{where}.{name}", f"{value!r} is not a number", "such as '8'")
    for name, value in (("Memory", config.memory), ("SharedMemory", config.shared_memory)):
        if value is not None and not _SIZE.fullmatch(value):
            yield BodyProblem(f"{where}.{name}", f"{value!r} is not a size", "such as '32Gi'")


def _common_problems(specs: Sequence[JobSpec]) -> Iterator[BodyProblem]:
    if specs and all(spec.pod_count == 0 for spec in specs):
        yield BodyProblem("JobSpecs", "have no pod", "give one role a PodCount of 1 or more")
    indices: dict[str, int] = {}
    for index, spec in enumerate(specs):
        if spec.type is None:
            continue
        first = indices.setdefault(spec.type.lower(), index)
        if first != index:
            yield BodyProblem(f"JobSpecs[{index}].Type", f"{spec.type!r} is the role of JobSpecs[{first}] too")
    chiefs = [index for index, spec in enumerate(specs) if spec.is_chief_role]
    for index in chiefs[1:]:
        yield BodyProblem(f"JobSpecs[{index}].IsChief", f"JobSpecs[{chiefs[0]}] is the chief; there can be one")
    yield from _startup_problems(specs, indices)


def _startup_problems(specs: Sequence[JobSpec], indices: dict[str, int]) -> Iterator[BodyProblem]:
    """Yields dependencies on roles that do not exist, and roles that can never start."""
    waiting: dict[int, set[int]] = {}
    for index, spec in enumerate(specs):
        waiting[index] = set()
        for number, dependency in enumerate(spec.startup_dependencies):
            where = f"JobSpecs[{index}].StartupDependencies[{number}].Type"
            target = indices.get((dependency.type or "").lower())
            if target is None:
                yield BodyProblem(where, f"there is no role {dependency.type!r}")
            else:
                waiting[index].add(target)
    while ready := [index for index, targets in waiting.items() if not targets & waiting.keys()]:
        for index in ready:
            del waiting[index]
    for index in waiting:
        message = f"JobSpec({specs[index].type}) waits for a role that waits for it"
        yield BodyProblem(f"JobSpecs[{index}].StartupDependencies", message)
