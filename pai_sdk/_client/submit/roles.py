"""Roles of a job as users describe them: groups of instances that differ in command, image or size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from pai_sdk._client.submit import request_fields
from pai_sdk._client.submit.problems import Problems
from pai_sdk._core.names.hints import name_hint
from pai_sdk._wire.pai import roles as wire
from pai_sdk._wire.pai.compute import InstanceSpec

if TYPE_CHECKING:
    from pai_sdk._client.submit.parameters import JobParameters


@dataclass(frozen=True, kw_only=True)
class Role:
    """Instances of a job that are alike, and differ from those of other roles. None means what the job has.

    Not on Alibaba Cloud's API of training jobs.

    Attributes:
        instance_count: how many instances have this role.
        command: what they run.
        image_uri: their image.
        instance_type: their type of public instances.
        instance_spec: the size of each.
        counts_for_success: False if the job can succeed without them, and whatever their exit code is. By default
            a job waits for all roles but parameter servers and evaluators, and fails with any.
        is_chief: whether this role is the chief.
        start_after: roles whose instances run before those of this one are started.
        restart_policy: `Never`; executors of this package know no other.

    Example:
        >>> Role(instance_count=2, command="python train.py").instance_count
        2
    """

    instance_count: int = 1
    command: str | Sequence[str] | None = None
    image_uri: str | None = None
    instance_type: str | None = None
    instance_spec: InstanceSpec | Mapping[str, Any] | None = None
    counts_for_success: bool | None = None
    is_chief: bool | None = None
    start_after: str | Sequence[str] | None = None
    restart_policy: str | None = None


def wire_roles(parameters: JobParameters, problems: Problems) -> list[wire.Role] | None:
    """Returns the roles of a request; None for a job of like instances."""
    if parameters.roles is None:
        return None
    if parameters.instance_count != 1:
        problems.add("instance_count", "contradicts roles", "give each role its instance_count instead")
    converted = [_wire_role(name, value, problems) for name, value in parameters.roles.items()]
    roles = [role for role in converted if role is not None]
    if len(roles) == len(converted):
        for problem in wire.role_problems(roles):
            problems.add("roles", problem)
    return roles


def _wire_role(name: Any, value: Any, problems: Problems) -> wire.Role | None:
    where = f"roles[{name!r}]"
    names = [field.name for field in fields(Role)]
    if not isinstance(value, Role):
        if not isinstance(value, Mapping):
            problems.add(where, "is no role", f"a Role, or a dict of {', '.join(names)}")
            return None
        unknown = [str(key) for key in value if key not in names]
        for key in unknown:
            problems.add(f"{where}.{key}", "is not known", name_hint(key, names))
        if unknown:
            return None
        value = Role(**value)
    count = value.instance_count
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        problems.add(f"{where}.instance_count", f"{count!r} is not a number of instances", "1 or more")
        return None
    after = [value.start_after] if isinstance(value.start_after, str) else value.start_after
    values = {
        "name": name,
        "count": count,
        "image": value.image_uri,
        "command": None if value.command is None else request_fields.command_list(value.command, problems),
        "ecs_spec": value.instance_type,
        "instance_spec": value.instance_spec,
        "restart_policy": value.restart_policy,
        "is_chief": value.is_chief,
        "counts_for_success": value.counts_for_success,
        "start_after": None if after is None else [{"role": role} for role in after],
    }
    with problems.under(where):
        return wire.Role.model_validate({name: each for name, each in values.items() if each is not None})
    return None
