"""The executors by name: those of this package, and those of installed packages."""

from __future__ import annotations

from pkgutil import resolve_name

from pai_sdk.errors import InvalidInputError, Problem
from pai_sdk.execution.base import Executor, ExecutorSetup

__all__ = ["EXECUTORS", "executor_names", "open_executor"]

EXECUTORS = {
    "process": "pai_sdk.execution.process.executor:ProcessExecutor",
    "docker": "pai_sdk.execution.docker.executor:DockerExecutor",
    "ray": "pai_sdk.execution.ray.executor:RayExecutor",
    "slurm": "pai_sdk.execution.slurm.executor:SlurmExecutor",
}
"""Name to class, which is imported when it is opened: Docker's client takes a tenth of the start of a service."""

_GROUP = "pai_sdk.executors"


def executor_names() -> list[str]:
    """All names: those of this package first, then those of entry points of the group `pai_sdk.executors`."""
    return [*EXECUTORS, *sorted(_of_others().keys() - EXECUTORS.keys())]


def open_executor(name: str, setup: ExecutorSetup) -> Executor:
    """Open an executor for a service, which closes it.

    Args:
        name: one of `executor_names`.
        setup: what the service gives it.

    Raises:
        InvalidInputError: there is no executor of that name.
        PaiError: it cannot run jobs here, for example because no Docker engine responds.
    """
    target = EXECUTORS.get(name) or _of_others().get(name)
    if target is None:
        raise InvalidInputError(
            [Problem("executor", f"{name!r} is not known", f"one of {', '.join(executor_names())}")]
        )
    opened: Executor = resolve_name(target).open(setup)
    return opened


def _of_others() -> dict[str, str]:
    from importlib.metadata import entry_points  # takes 30 ms, for executors of other packages only

    return {entry.name: entry.value for entry in entry_points(group=_GROUP)}
