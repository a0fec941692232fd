"""Mounts, limits, user and variables of a job's container. Pure functions, without calls to an engine."""

from __future__ import annotations

import itertools
import os
import re
import shlex
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pai_sdk._host.agent.sandbox import Sandbox
from pai_sdk._host.execution.base import Mounts
from pai_sdk._host.execution.contract import parse_bytes
from pai_sdk._host.execution.docker.options import LocalOptions
from pai_sdk.errors import InvalidInputError, Problem

if TYPE_CHECKING:
    from pai_sdk._host.agent.distributed import Instance
    from pai_sdk._host.execution.docker.requirements_cache import CachedRequirements
    from pai_sdk._wire.pai.request import TrainingJobRequest
    from pai_sdk._wire.pai.roles import Mount

LABEL_JOB = "pai-sdk.job"
"""The job's id, on each of its containers and networks."""

LABEL_INSTANCE = "pai-sdk.instance"
LABEL_FOLDER = "pai-sdk.folder"
LABEL_OWNER = "pai-sdk.owner"
LABEL_REQUIREMENTS = "pai-sdk.requirements"
"""The folder with installed requirements that is mounted into a container."""

SHARED_DIR = "/run/pai-sdk"
"""The path of the job's shared folder inside its containers."""

_STOP_MARGIN_S = 5  # after the grace period `instance.sh` kills the remaining processes and writes the exit code

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_OWNED_BY_SHELLS = re.compile(
    r"BASH.*|_.*|IFS|UID|EUID|PPID|GROUPS|SHELLOPTS|LINENO|OPTIND|RANDOM|SRANDOM|SECONDS|EPOCH.*|FUNCNAME|DIRSTACK"
    r"|PIPESTATUS"
)
"""Variables that are read-only in a shell, have a special meaning there, or are used by `instance.sh`."""


@dataclass(frozen=True)
class ContainerLimits:
    """The limits of one instance; None means no limit."""

    nano_cpus: int | None = None  # billionths of a CPU
    memory_bytes: int | None = None  # of all processes together; swap is not added
    shared_memory_bytes: int | None = None  # the size of /dev/shm
    gpu_ids: tuple[tuple[str, ...], ...] = ()  # the GPUs of each instance, in rank order
    gpu_count: int = 0  # where no ids are selected; -1 means all

    @classmethod
    def of(cls, request: TrainingJobRequest, options: LocalOptions) -> ContainerLimits:
        """Returns the limits that a request sets; refuses malformed amounts and GPUs that cannot be divided."""
        problems: list[Problem] = []
        spec = request.compute_resource.instance_spec

        def amount(text: str | None, where: str) -> int | None:
            try:
                return parse_bytes(text) if text else None
            except ValueError:
                problems.append(Problem(where, f"{text!r} is not an amount of memory", "write 8, 8GiB or 512MiB"))
                return None

        cpu = spec.cpu if spec else None
        nano_cpus = None
        if cpu:
            try:
                nano_cpus = int(float(cpu) * 1e9)
            except ValueError:
                problems.append(Problem("instance_spec.cpu", f"{cpu!r} is not a number of CPUs", "write 4 or 0.5"))
        shared = options.shared_memory or (spec.shared_memory if spec else None)
        limits = cls(
            nano_cpus,
            amount(spec.memory if spec else None, "instance_spec.memory"),
            amount(shared, "instance_spec.shared_memory"),
            *_gpus(request, options, problems),
        )
        if problems:
            raise InvalidInputError(problems)
        return limits


def _gpus(
    request: TrainingJobRequest, options: LocalOptions, problems: list[Problem]
) -> tuple[tuple[tuple[str, ...], ...], int]:
    """Returns the GPUs of each instance by id, or their number; -1 means all."""
    count, spec = request.instance_count, request.compute_resource.instance_spec
    if options.gpu_ids:
        if len(options.gpu_ids) % count:
            message = f"{len(options.gpu_ids)} GPUs cannot be divided among {count} instances"
            problems.append(Problem("gpu_ids", message, "give each instance the same number"))
            return (), 0
        each = len(options.gpu_ids) // count
        return tuple(tuple(options.gpu_ids[at : at + each]) for at in range(0, len(options.gpu_ids), each)), 0
    text = spec.gpu if spec else None
    if text:
        if not text.isdecimal():
            problems.append(Problem("instance_spec.gpu", f"{text!r} is not a number of GPUs"))
            return (), 0
        requested = int(text)
        if count > 1 and requested:
            # Without ids the engine would give all instances the same GPUs.
            ids = [str(number) for number in range(requested * count)]
            return tuple(tuple(ids[at : at + requested]) for at in range(0, len(ids), requested)), 0
        return (), requested
    if request.compute_resource.ecs_spec == "local_gpu":
        if count > 1:
            hint = "set the number for each: instance_spec={'gpu': '1'}"
            problems.append(Problem("instance_type", f"'local_gpu' with {count} instances", hint))
        return (), -1
    return (), 0


@dataclass(frozen=True)
class ContainerMounts(Mounts):
    """The files of this machine that are mounted into a job's containers besides the sandbox."""

    pip_cache: Path | None = None  # pip's downloads, shared by all jobs
    # installed, or a folder that the first instance fills, for later jobs too
    requirements: CachedRequirements | None = None
    requested: Sequence[Mount] = ()

    def prepare(self, sandbox: Sandbox, instances: Sequence[Instance]) -> None:
        """Creates the log files, which are mounted one by one."""
        logs = sandbox.shared_dir / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        for instance in instances:
            sandbox.log_file(instance.name).touch()
            (logs / sandbox.log_file(instance.name).name).touch()

    def arguments(self, sandbox: Sandbox, instance: Instance) -> list[dict[str, Any]]:
        """Returns the mounts for the engine, which refuses a missing source and does not create it."""
        log = sandbox.log_file(instance.name)
        mounts = [
            _bind(sandbox.ml, "/ml"),
            _bind(sandbox.ml / "input", "/ml/input", read_only=True),
            # Mounted one by one: an image can declare any of them as a volume, which would hide its content.
            _bind(sandbox.usercode, "/ml/usercode"),
            _bind(sandbox.ml / "output", "/ml/output"),
            _bind(sandbox.shared_dir, SHARED_DIR),
            # Only the instance's own log, as a file: no container can replace a log by another file, which a
            # reader of the logs would then read or write.
            _bind(log, f"{SHARED_DIR}/logs/{log.name}"),
        ]
        for channel, path in self.inputs.items():
            target = f"/ml/input/data/{channel}" + (f"/{path.name}" if path.is_file() else "")
            mounts.append(_bind(path, target, read_only=True))
        # The engine refuses two mounts at one path, and a request may have its own at that of a default channel.
        replaced = {mount.path for mount in self.requested}
        mounts += [
            _bind(path, target)
            for channel, path in self.all_outputs(sandbox).items()
            if (target := f"/ml/output/{channel}") not in replaced
        ]
        mounts += [
            _bind(self.folders.get(number, sandbox.mount_dir(number)), mount.path, read_only=mount.access == "RO")
            for number, mount in enumerate(self.requested)
        ]
        if self.pip_cache:
            mounts.append(_bind(self.pip_cache, f"{SHARED_DIR}/pip-cache"))
        if self.requirements:
            is_read_only = self.requirements.is_complete or instance.rank != 0
            mounts.append(_bind(self.requirements.folder, f"{SHARED_DIR}/requirements", read_only=is_read_only))
        return mounts

    @property
    def labels(self) -> dict[str, str]:
        """Returns the label that marks a requirements folder as in use."""
        return {LABEL_REQUIREMENTS: str(self.requirements.folder)} if self.requirements else {}

    def all_outputs(self, sandbox: Sandbox) -> dict[str, Path]:
        """Returns each output channel's folder, on this machine or in the sandbox."""
        sandbox_dirs = {path.name: path for path in sorted((sandbox.ml / "output").glob("*")) if path.is_dir()}
        return {**sandbox_dirs, **self.outputs}


def _bind(source: Path, target: str, *, read_only: bool = False) -> dict[str, Any]:
    return {"Type": "bind", "Source": str(source), "Target": target, "ReadOnly": read_only}


def create_arguments(
    sandbox: Sandbox,
    job_id: str,
    request: TrainingJobRequest,
    instance: Instance,
    *,
    image: str,
    mounts: ContainerMounts,
    limits: ContainerLimits,
    user: str | None,
    network: str | None,
    grace_s: int,
    number: int | None = None,
) -> dict[str, Any]:
    """Returns the arguments of `Engine.start_container` for one instance; `number` counts those of its role."""
    arguments: dict[str, Any] = {
        "image": image,
        "name": instance.name,
        # Host names have at most 63 characters; instance names differ at the end.
        "hostname": instance.name[-63:].lstrip("-"),
        # The image's entrypoint does not run: by the contract, the command does.
        "entrypoint": ["/bin/sh", f"{SHARED_DIR}/instance.sh", instance.name],
        "command": list(request.algorithm_spec.command if request.algorithm_spec else ()),
        "environment": {
            "PAI_SDK_SHARED": SHARED_DIR,
            "PAI_SDK_LOG": str(sandbox.log_file(instance.name)),
        },
        "labels": {**labels(job_id, sandbox), LABEL_INSTANCE: instance.name, **mounts.labels},
        "mounts": mounts.arguments(sandbox, instance),
        "working_dir": "/",
        "user": user,
        "stop_signal": "SIGTERM",
        # `docker stop`, and an engine that shuts down, kill after this time; without it, after 10 seconds.
        "stop_timeout": grace_s + _STOP_MARGIN_S,
        "healthcheck": {"test": ["NONE"]},
        "log_config": {"Type": "json-file", "Config": {"max-size": "1m", "max-file": "1"}},
    }
    if limits.nano_cpus:
        arguments["nano_cpus"] = limits.nano_cpus
    if limits.memory_bytes:
        arguments["mem_limit"] = arguments["memswap_limit"] = limits.memory_bytes
    # The engine's default of 64 MB is too small for the workers of a data loader.
    arguments["shm_size"] = limits.shared_memory_bytes or _default_shared_memory(limits.memory_bytes)
    devices = _device_requests(limits, instance.rank if number is None else number)
    if devices:
        arguments["device_requests"] = devices
    if network:
        arguments["network"] = network
    return arguments


def labels(job_id: str, sandbox: Sandbox) -> dict[str, str]:
    """Returns the labels of all containers and networks of a job."""
    return {LABEL_JOB: job_id, LABEL_FOLDER: str(sandbox.root), LABEL_OWNER: owner()}


def owner() -> str:
    """Returns the owner of jobs: several users and hosts, such as containers, can share one engine."""
    return f"{os.getuid()}@{socket.gethostname()}"


def _default_shared_memory(memory_bytes: int | None) -> int:
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min(memory_bytes or machine, machine) // 2


def role_limits(request: TrainingJobRequest, options: LocalOptions) -> list[ContainerLimits]:
    """Returns the limits of the instances of each role; of the job, if it has no roles."""
    if not request.roles:
        return [ContainerLimits.of(request, options)]
    if options.gpu_ids:
        hint = "leave them out, and set instance_spec={'gpu': …} for each role"
        raise InvalidInputError([Problem("gpu_ids", "cannot be divided among roles", hint)])
    limits = [ContainerLimits.of(role, options) for role in request.role_requests]
    counts = [len(each.gpu_ids[0]) if each.gpu_ids else max(each.gpu_count, 0) for each in limits]
    if sum(role.count for role, gpus in zip(request.roles, counts, strict=True) if gpus) < 2:
        return limits
    # Without ids the engine would give the same GPUs to several instances.
    ids, divided = itertools.count(), []
    for role, gpus, each in zip(request.roles, counts, limits, strict=True):
        gpu_ids = tuple(tuple(str(next(ids)) for _ in range(gpus)) for _ in range(role.count if gpus else 0))
        divided.append(replace(each, gpu_ids=gpu_ids, gpu_count=0) if gpus else each)
    return divided


def _device_requests(limits: ContainerLimits, number: int) -> list[dict[str, Any]]:
    capabilities = [["gpu", "compute", "utility"]]
    if limits.gpu_ids:
        ids = list(limits.gpu_ids[number])
        return [{"Driver": "", "Count": 0, "DeviceIDs": ids, "Capabilities": capabilities, "Options": {}}]
    if limits.gpu_count:
        return [
            {"Driver": "", "Count": limits.gpu_count, "DeviceIDs": [], "Capabilities": capabilities, "Options": {}}
        ]
    return []


def environment_file(variables: Mapping[str, str]) -> str:
    r"""Returns shell text that sets these variables, for a file of mode 0600 instead of the engine's records."""
    settable = {name: value for name, value in variables.items() if _is_settable(name)}
    # A shell cannot set them; `env` passes them, and is put before the command.
    by_env = [shlex.quote(f"{name}={value}") for name, value in variables.items() if not _is_settable(name)]
    lines = [f"export {name}={shlex.quote(value)}\n" for name, value in settable.items()]
    return (f'set -- "$_env" {" ".join(by_env)} "$@"\n' if by_env else "") + "".join(lines)


def _is_settable(name: str) -> bool:
    return bool(_VARIABLE.fullmatch(name)) and not _OWNED_BY_SHELLS.fullmatch(name)


def gpu_share(limits: ContainerLimits) -> int:
    """Returns the GPUs of each instance for NPROC_PER_NODE; 1 if there are none or the number is unknown."""
    return len(limits.gpu_ids[0]) if limits.gpu_ids else max(limits.gpu_count, 1)
