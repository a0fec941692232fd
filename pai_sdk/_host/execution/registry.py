"""Executors by name: built-in ones, and entry points of installed packages."""

from __future__ import annotations

from pkgutil import resolve_name

from pai_sdk._host.execution.base import Executor, ExecutorSetup
from pai_sdk.errors import InvalidInputError, Problem

EXECUTORS = {
    "process": "pai_sdk._host.execution.process.executor:ProcessExecutor",
    "docker": "pai_sdk._host.execution.docker.executor:DockerExecutor",
    "ray": "pai_sdk._host.execution.ray.executor:RayExecutor",
    "slurm": "pai_sdk._host.execution.slurm.executor:SlurmExecutor",
}
"""Name to class. The class is imported when it is opened: docker-py takes a tenth of a service's start time."""

_GROUP = "pai_sdk.executors"


def executor_names() -> list[str]:
    """Returns all names: built-in ones first, then those of entry points in the group `pai_sdk.executors`."""
    return [*EXECUTORS, *sorted(_entry_points().keys() - EXECUTORS.keys())]


def open_executor(name: str, setup: ExecutorSetup) -> Executor:
    """Opens an executor for a service, which closes it; fails if it cannot run jobs on this machine."""
    target = EXECUTORS.get(name) or _entry_points().get(name)
    if target is None:
        raise InvalidInputError(
            [Problem("executor", f"unknown value {name!r}", f"one of {', '.join(executor_names())}")]
        )
    opened: Executor = resolve_name(target).open(setup)
    return opened


def _entry_points() -> dict[str, str]:
    # Takes 30 ms, needed only for executors of other packages.
    from importlib.metadata import entry_points

    return {entry.name: entry.value for entry in entry_points(group=_GROUP)}
