"""Converts the flags of `dlc submit` to the body of CreateJob."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

from pai_sdk._wire.dlc.checks import caution_problems, job_problems
from pai_sdk._wire.dlc.field_names import python_path
from pai_sdk._wire.dlc.flags import EVERY_ROLE, ROLES, SUBMIT_FLAGS, Flag, put_field
from pai_sdk._wire.dlc.jobs import NewJob
from pai_sdk._wire.dlc.names import ROLE_TYPES, canonical_role
from pai_sdk._wire.dlc.sources import DataSource
from pai_sdk.cli.dlc.flags import Arguments
from pai_sdk.errors import Problem

_NUMBER = re.compile(r"\d+(\.\d+)?")
# A comma separates URIs only before the next scheme.
_NEXT_URI = re.compile(r",(?=\s*[A-Za-z][A-Za-z0-9+.-]*://)")


def new_job(
    arguments: Arguments, job_type: str, *, workspace_id: str | None
) -> tuple[dict[str, Any], list[Problem]]:
    """Returns the body of CreateJob and warnings.

    Args:
        arguments: those of the command; problems are added to them.
        job_type: as in the API: `PyTorchJob`.
        workspace_id: that of the settings, where no flag says it.
    """
    fields = {
        "workspace_id": workspace_id,
        **_fields(arguments),
        "job_type": job_type,
        "job_specs": _job_specs(arguments, job_type),
        "job_max_running_time_minutes": _max_minutes(arguments),
    }
    job = NewJob.model_validate(fields)
    body = job.to_wire()
    arguments.problems += (_by_flag(each, job) for each in job_problems(body))
    return body, [_by_flag(each, job) for each in caution_problems(body)]


def _fields(arguments: Arguments, *roles: str) -> dict[str, Any]:
    """Returns the fields of roles that flags set; without a role, those of the job."""
    fields: dict[str, Any] = {}
    for flag in SUBMIT_FLAGS:
        if not flag.field or flag.name not in arguments or flag.role not in (roles or ("",)):
            continue
        if (value := _value(arguments, flag)) is not None:
            put_field(fields, flag.field, value)
    return fields


def _value(arguments: Arguments, flag: Flag) -> Any:
    """Returns the value of a flag; None for one that sets nothing."""
    match flag.kind:
        case "boolean":
            is_set = arguments.boolean(flag.name)
            return int(is_set) if flag.role else is_set or None  # the number of chiefs
        case "number":
            return arguments.number(flag.name)
        case "size":
            return _size(arguments.text(flag.name))
        case "pairs":
            return arguments.pairs(flag.name)
        case "list":
            return arguments.items(flag.name)
        case "packages":
            return _packages(arguments)
        case "data_sets":
            return [*_data_sets(arguments)]
        case "mounts":
            return [*_mounts(arguments)]
    return arguments.text(flag.name)


def _job_specs(arguments: Arguments, job_type: str) -> list[dict[str, Any]]:
    """Returns the roles with pods, in the order of the table."""
    specs = []
    for role in ROLES:
        used = [flag.name for flag in SUBMIT_FLAGS if flag.role == role.type and flag.name in arguments]
        if not used:
            continue
        if canonical_role(job_type, role.type) is None:
            roles = ", ".join(ROLE_TYPES[job_type])
            arguments.problems += (
                Problem(f"--{name}", f"{job_type} has no role {role.type}", f"available: {roles}") for name in used
            )
            continue
        # One pod where only the other flags of the role are given.
        spec = {"type": role.type, "pod_count": 1, **_fields(arguments, role.type, EVERY_ROLE)}
        if spec["pod_count"] != 0:
            specs.append(spec)
    return specs


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
                "--data_sources", f"{text!r} is not a data set", "write ID, ID:VERSION or ID:VERSION:/PATH"
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


def _packages(arguments: Arguments) -> list[str]:
    """Returns the packages; a comma in front of a comparison belongs to a version: `numpy>=1,<3`."""
    packages: list[str] = []
    for item in arguments.items("thirdparty_libs"):
        if packages and item[0] in "<>=!~":
            packages[-1] += f",{item}"
        else:
            packages.append(item)
    return packages


def _max_minutes(arguments: Arguments) -> int | None:
    """Returns the limit of the running time; 0 means none, and is left out, because the cloud may refuse it."""
    minutes = arguments.number("job_max_running_time_minutes")
    if minutes is None:
        seconds = arguments.number("running_timeout")
        minutes = None if seconds is None else math.ceil(seconds / 60)
    return minutes or None


def _by_flag(problem: Problem, job: NewJob) -> Problem:
    """Returns a problem of the body as one of the flag behind it."""
    flag: str | None
    if match := re.fullmatch(r"JobSpecs\[(\d+)\](?:\.(.+))?", problem.where):
        role = next(each for each in ROLES if each.type == job.job_specs[int(match[1])].type)
        flag = _flag_name(python_path(match[2] or ""), role.type, EVERY_ROLE) or role.count
    elif (match := re.match(r"DataSources\[(\d+)\]", problem.where)) and job.data_sources:
        flag = "data_source_uris" if job.data_sources[int(match[1])].uri else "data_sources"
    else:
        path = python_path(re.sub(r"\[\d+\].*", "", problem.where))
        flag = "workers" if path == "job_specs" else _flag_name(path, "")
    return Problem(f"--{flag}", problem.what, problem.hint) if flag else problem


def _flag_name(path: str, *roles: str) -> str | None:
    """Returns the flag that sets a field, or else a part of it, or else what it is a part of."""
    fields = {flag.field: flag.name for flag in reversed(SUBMIT_FLAGS) if flag.field and flag.role in roles}
    parts = (name for field, name in reversed(fields.items()) if field.startswith(f"{path}."))
    return fields.get(path) or next(parts, None) or fields.get(path.rpartition(".")[0])
