"""The job contract: what user code finds inside an instance, with every executor (DESIGN.md).

This module does not know how an instance is started. The contract owns the PAI_* variables that it sets: a request
whose `environments` has one of them is refused. All other variables of the user win over defaults.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from pai_sdk._core.files import replace_file
from pai_sdk._host.agent.distributed import Instance, name_instances
from pai_sdk._host.agent.sandbox import Sandbox, output_channels
from pai_sdk._host.execution.base import Environment, LaunchSpec, Limits, Mounts
from pai_sdk._host.execution.roles import (
    has_roles,
    mount_path_problems,
    role_instances,
    role_problems,
    start_conditions,
)
from pai_sdk._wire.dlc.names import JOB_PREFIX, is_job_id
from pai_sdk._wire.masking import public_request
from pai_sdk._wire.pai.hyperparameters import user_args
from pai_sdk._wire.pai.names import variable_name
from pai_sdk.errors import InvalidInputError, Problem

if TYPE_CHECKING:
    from pai_sdk._wire.pai.request import TrainingJobRequest
    from pai_sdk._wire.pai.spec import HyperParameter

DEFAULT_JOB_TYPE = "PyTorchJob"
_MAX_VARIABLE_BYTES = 128 * 1024  # MAX_ARG_STRLEN of Linux: `name=value` and its final NUL

_MEMORY = re.compile(r"(\d+(?:\.\d+)?)\s*(|[kmgt])i?b?", re.IGNORECASE)
_MAX_MEMORY_BYTES = 1 << 60
_UNITS = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def launch_spec(
    root: Path, job_id: str, request: TrainingJobRequest, *, mounts: Mounts | None = None
) -> LaunchSpec:
    """Creates the folders and the configuration files of a job; returns the spec that an executor starts."""
    spec = request.algorithm_spec
    if spec is None or not spec.command:
        raise InvalidInputError([Problem("algorithm_spec.command", "is required: there is nothing to run")])
    sandbox, mounts = Sandbox(root.resolve()), mounts or Mounts()
    sandbox.create(request)
    for channel, path in mounts.inputs.items():
        # The mount point of a file must be a file.
        if path.is_file():
            (sandbox.input_dir(channel) / path.name).touch()
    write_config(sandbox, request)
    if problems := [*role_problems(request), *mount_path_problems(request)]:
        raise InvalidInputError(problems)
    members, files = instances(job_id, request), input_files(sandbox, request)
    programs = [
        tuple(each.algorithm_spec.command) if each.algorithm_spec else () for each in request.role_requests
    ]
    return LaunchSpec(
        sandbox,
        job_id,
        request,
        members,
        tuple(environment(job_id, request, instance, input_files=files) for instance in members),
        tuple(spec.command),
        mounts,
        Limits(max_running_seconds(request), memory_limit_bytes(request)),
        tuple(programs[member.group] for member in members) if request.roles else (),
    )


def instances(job_id: str, request: TrainingJobRequest) -> tuple[Instance, ...]:
    """Returns the instances of a job in rank order."""
    if has_roles(job_id, request):
        return role_instances(job_id, job_type(request), request)
    return name_instances(job_id, job_type(request), request.instance_count)


def job_description(spec: LaunchSpec, *, grace_s: float) -> dict[str, Any]:
    """Returns what a host needs to run a job as processes, as plain JSON; see `agent.supervising`."""
    request = spec.request
    is_grouped = has_roles(spec.job_id, request)
    return {
        "job_id": spec.job_id,
        "job_type": job_type(request),
        "image": request.algorithm_spec.image if request.algorithm_spec else None,
        "command": list(spec.command),
        "instances": [
            {"instance": asdict(instance), **asdict(environment), **_role_description(spec, instance)}
            for instance, environment in zip(spec.instances, spec.environments, strict=True)
        ],
        "mounts": [{"path": mount.path, "access": mount.access} for mount in request.mounts or ()],
        "hosts": [instance.name for instance in spec.instances] if is_grouped else [],
        "roles": [instance.role for instance in spec.instances] if is_grouped else [],
        "nproc_per_node": gpus(request) or 1,
        "memory_limit_bytes": spec.limits.memory_bytes,
        "max_running_s": spec.limits.max_running_s,
        "grace_s": grace_s,
        "python_requirements": list(request.python_requirements or ()),
    }


def _role_description(spec: LaunchSpec, instance: Instance) -> dict[str, Any]:
    """Returns how an instance differs from those of other roles; empty for a job without roles."""
    if not spec.request.roles:
        return {}
    request = spec.request.role_requests[instance.group]
    return {
        "command": list(spec.commands[instance.rank]),
        "waits_for": start_conditions(spec.request, spec.instances, instance),
        "memory_limit_bytes": memory_limit_bytes(request),
        "nproc_per_node": gpus(request) or 1,
        "gpus": gpus(request),
    }


def cpus(request: TrainingJobRequest) -> float | None:
    """Returns the CPUs of each instance (`InstanceSpec.CPU`); None if the request sets none."""
    spec = request.compute_resource.instance_spec
    text = spec.cpu if spec else None
    try:
        return float(text) if text else None
    except ValueError as error:
        problem = Problem("instance_spec.cpu", f"{text!r} is not a number of CPUs", "write 4 or 0.5")
        raise InvalidInputError([problem]) from error


def gpus(request: TrainingJobRequest) -> int:
    """Returns the GPUs of each instance (`InstanceSpec.GPU`); 0 if the request sets none."""
    spec = request.compute_resource.instance_spec
    return int(spec.gpu) if spec and spec.gpu and spec.gpu.isdecimal() else 0


def job_type(request: TrainingJobRequest) -> str:
    """Returns the job type, which decides how instances are named and how they find each other."""
    return request.algorithm_spec.job_type if request.algorithm_spec else DEFAULT_JOB_TYPE


def max_running_seconds(request: TrainingJobRequest) -> float | None:
    """Returns the time limit of the job in seconds, or None for no limit."""
    scheduler = request.scheduler
    if scheduler is None:
        return None
    return scheduler.max_running_time_in_seconds or (scheduler.max_running_time_in_minutes or 0) * 60 or None


def memory_limit_bytes(request: TrainingJobRequest) -> int | None:
    """Returns the memory limit of each instance (`InstanceSpec.Memory`), or None for no limit."""
    spec = request.compute_resource.instance_spec
    if spec is None or not spec.memory:
        return None
    try:
        return parse_bytes(spec.memory) or None
    except ValueError as error:
        problem = Problem("instance_spec.memory", str(error), "write 8, 8GiB or 512MiB")
        raise InvalidInputError([problem]) from error


def input_files(sandbox: Sandbox, request: TrainingJobRequest) -> dict[str, str]:
    """Returns, for each channel whose URI is an existing file, the file's name."""
    file_names = {}
    for channel in request.input_channels:
        uri = channel.input_uri or ""
        name = uri.rpartition("/")[2]
        if uri.startswith("file:"):
            name = Path(unquote(name)).name
        if name and (sandbox.input_dir(channel.name) / name).is_file():
            file_names[channel.name] = name
    return file_names


def environment(
    job_id: str, request: TrainingJobRequest, instance: Instance, *, input_files: Mapping[str, str]
) -> Environment:
    """Returns the variables of one instance, from contract and user, for any location of its folders."""
    problems: list[Problem] = []
    contract_variables = {
        "PAI_TRAINING_JOB_ID": job_id,
        "PAI_INSTANCE_NAME": instance.name,
        "PAI_HPS": json.dumps(_values(request.hyperparameters), ensure_ascii=False),
        "PAI_USER_ARGS": user_args(request.hyperparameters, problems),
    }
    paths = {"PAI_WORKING_DIR": "usercode", "PAI_CONFIG_DIR": "input/config"}
    uris = [*(c.input_uri for c in request.input_channels), *(c.output_uri for c in request.output_channels)]
    if any((uri or "").startswith("odps://") for uri in uris):
        paths["PAI_ODPS_CREDENTIAL"] = "input/credential/odps.json"
    inputs = [c.name for c in request.input_channels]
    outputs = output_channels(request)
    for variables, prefix, kind, values in (
        (contract_variables, "PAI_HPS_", "hyperparameter", [(h.name, h.value) for h in request.hyperparameters]),
        (paths, "PAI_INPUT_", "input channel", [(n, _join("input/data", n, input_files.get(n))) for n in inputs]),
        (paths, "PAI_OUTPUT_", "output channel", [(n, _join("output", n)) for n in outputs]),
    ):
        variables.update(_variables(prefix, kind, values, problems))
    user_variables = request.environments or {}
    if job_id.startswith(JOB_PREFIX):
        # Jobs of DLC have no contract: their clients set the same variables, with paths of their own mounts.
        for variables in (contract_variables, paths):
            for name in user_variables.keys() & variables.keys():
                del variables[name]
    problems += [
        Problem(f"environments[{name!r}]", "is set by the job contract itself", "choose another name")
        for name in user_variables
        if name in contract_variables or name in paths
    ]
    dlc_variables = {"DLC_JOB_ID": job_id, "JOB_NAME": job_id} if is_job_id(job_id) else {}
    combined = Environment({**dlc_variables, **user_variables, **contract_variables}, paths)
    problems += _unfit(combined.at("/ml"))
    if problems:
        raise InvalidInputError(problems)
    return combined


def write_config(sandbox: Sandbox, request: TrainingJobRequest) -> None:
    """Writes `hyperparameters.json` and `training-job.json` into the sandbox."""
    _write_json(sandbox.config_dir / "hyperparameters.json", _values(request.hyperparameters))
    _write_json(sandbox.config_dir / "training-job.json", public_request(request))


# ---- values -----------------------------------------------------------------------------------------------


def _values(hyperparameters: Iterable[HyperParameter]) -> dict[str, str]:
    return {parameter.name: parameter.value for parameter in hyperparameters}


# ---- variables --------------------------------------------------------------------------------------------


def _join(*parts: str | None) -> str:
    return "/".join(part for part in parts if part)


def _variables(
    prefix: str, kind: str, values: Sequence[tuple[str, str]], problems: list[Problem]
) -> dict[str, str]:
    """Returns one variable for each name; reports names that map to one variable."""
    variables: dict[str, str] = {}
    names: dict[str, list[str]] = {}
    for name, value in values:
        variable = prefix + variable_name(name)
        names.setdefault(variable, []).append(name)
        variables[variable] = value
    problems += [
        Problem(
            ", ".join(f"{kind} {name!r}" for name in clashing),
            f"would all be the variable {variable}",
            "rename all but one",
        )
        for variable, clashing in names.items()
        if len(clashing) > 1
    ]
    return variables


def _unfit(variables: Mapping[str, str]) -> list[Problem]:
    """Returns the values that an operating system refuses in an environment."""
    problems = []
    for name, value in variables.items():
        try:
            size_bytes = len(f"{name}={value}".encode()) + 1
        except UnicodeEncodeError:
            problems.append(Problem(f"variable {name!r}", "is not valid unicode", "remove lone surrogates"))
            continue
        if not name or "=" in name or "\0" in name:
            problems.append(Problem(f"variable {name!r}", "is not a valid name", "use letters, digits, '_'"))
        elif "\0" in value:
            problems.append(Problem(f"variable {name}", "contains a NUL character", "remove it"))
        elif size_bytes > _MAX_VARIABLE_BYTES:
            problems.append(
                Problem(
                    f"variable {name}",
                    f"has {size_bytes} bytes; the operating system accepts {_MAX_VARIABLE_BYTES}",
                    "pass large values in an input channel",
                )
            )
    return problems


def _write_json(path: Path, value: Any) -> None:
    replace_file(path, json.dumps(value, ensure_ascii=False, indent=2) + "\n", mode=0o666)


def parse_bytes(text: str) -> int:
    """Parses an amount of memory into bytes. A bare number is in GiB, as in PAI's InstanceSpec."""
    match = _MEMORY.fullmatch(text.strip())
    if not match:
        raise ValueError(f"{text[:60]!r} is not an amount of memory")
    size_bytes = float(match[1]) * _UNITS[match[2].lower() or "g"]
    if size_bytes >= _MAX_MEMORY_BYTES:
        raise ValueError(f"{text[:60]!r} is more memory than any machine can have")
    return int(size_bytes)
