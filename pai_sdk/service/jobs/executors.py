"""What runs the jobs of a service: plain processes, or containers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

from pai_sdk.execution.base import Executor
from pai_sdk.execution.process.executor import ProcessExecutor
from pai_sdk.service.settings import ServiceSettings
from pai_sdk.service.state.folder import DataFolder

__all__ = ["open_executor"]


def open_executor(
    settings: ServiceSettings, folder: DataFolder, stack: ExitStack, *, is_closing: Callable[[], bool]
) -> Executor:
    """The executor that a service was set up with.

    Args:
        settings: of the service.
        folder: of the service.
        stack: closes it.
        is_closing: whether the service ends.

    Raises:
        EngineNotFoundError: the jobs are to be containers, and no engine answers.
    """
    cache = folder.root / "cache"
    if settings.executor == "process":
        return ProcessExecutor(cache)
    # The client of the engine takes a tenth of the time that a service needs to start.
    from pai_sdk.service.jobs.container_executor import ContainerExecutor

    executor = ContainerExecutor(pip_cache=cache / "pip", is_closing=is_closing)
    stack.callback(executor.close)
    executor.connect()
    return executor
