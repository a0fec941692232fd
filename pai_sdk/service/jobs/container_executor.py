"""Containers for the jobs of a service."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from pai_sdk.agent.instance_logs import InstanceLogs
from pai_sdk.agent.sandbox import Sandbox
from pai_sdk.execution.base import ExecutionState
from pai_sdk.execution.docker.executor import DockerExecutor
from pai_sdk.execution.docker.options import LocalOptions

__all__ = ["ContainerExecutor"]


class ContainerExecutor(DockerExecutor):
    """Containers for the jobs of a service: its clients do not choose whose rights and which network they have.

    Args:
        pip_cache: a folder for pip's downloads, kept from job to job.
        is_closing: whether the service ends, and a pull under way is to be given up.
    """

    def __init__(self, *, pip_cache: Path, is_closing: Callable[[], bool]) -> None:
        super().__init__(pip_cache=pip_cache, is_closing=is_closing, options=LocalOptions())
        self._logs: dict[Path, InstanceLogs] = {}

    def state(self, root: Path) -> ExecutionState:
        """What is known now; on the way it is noted how long the logs are, which no container does."""
        state = super().state(root)
        if state.phase != "absent":
            logs = self._logs.setdefault(root, _logs_of(root, state))
            logs.sample(time.time())
        if state.phase == "ended":
            self._logs.pop(root, None)
        return state


def _logs_of(root: Path, state: ExecutionState) -> InstanceLogs:
    return InstanceLogs(Sandbox(root), [instance.name for instance in state.instances])
