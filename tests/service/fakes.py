"""An executor whose jobs do what a test says, and when it says so."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from pathlib import Path

from pai_sdk._core.reasons import exit_reason
from pai_sdk._host.agent.sandbox import Sandbox
from pai_sdk._host.execution.base import ExecutionState, Executor, ExecutorCapabilities, InstanceState, LaunchSpec
from pai_sdk._host.execution.job_folder import JobFolder


class ScriptedExecutor(Executor):
    """Keeps its states in memory; `running` tells which jobs were begun and have not been ended."""

    capabilities = ExecutorCapabilities(uses_images=False, hosts="here")

    def __init__(self) -> None:
        self._states: dict[Path, ExecutionState] = {}
        self._lock = threading.Lock()
        self.begun: list[str] = []
        self.begun_before_s = 0.0  # so long ago is what begins now
        self.ended_before_s = 0.0

    def start(self, spec: LaunchSpec) -> None:
        root = spec.sandbox.root
        with self._lock:
            if root in self._states:
                return
            self.begun.append(spec.job_id)
            workers = [InstanceState(i.name, i.role, "Running") for i in spec.instances]
            self._states[root] = ExecutionState(
                "running", started_at=time.time() - self.begun_before_s, instances=tuple(workers)
            )

    def withdraw(self, root: Path) -> None:
        pass

    def files(self, root: Path) -> JobFolder:
        return JobFolder(Sandbox(root))

    def remove(self, root: Path) -> None:
        self._states.pop(root, None)

    def sweep(self) -> list[str]:
        return []

    def state(self, root: Path) -> ExecutionState:
        return self._states.get(root, ExecutionState("absent"))

    def forget(self) -> None:
        """Know of no job any more, as if none had been begun."""
        with self._lock:
            self._states.clear()

    def stop(self, root: Path, *, reason_code: str, reason_message: str) -> None:
        if root in self._states:
            self._end(root, "Terminated", succeeded=False, reason_code=reason_code, reason_message=reason_message)

    @property
    def running(self) -> list[str]:
        with self._lock:
            return [root.name for root, state in self._states.items() if state.phase == "running"]

    def print(self, root: Path, instance: str, text: str) -> None:
        with Sandbox(root).log_file(instance).open("a", encoding="utf-8", newline="") as log:
            log.write(text)

    def succeed(self, root: Path) -> None:
        self._end(root, "Succeed", succeeded=True)

    def fail(self, root: Path, instance: str, exit_code: int) -> None:
        reason_code, reason_message = exit_reason(instance, exit_code)
        self._end(
            root,
            "Failed",
            succeeded=False,
            reason_code=reason_code,
            reason_message=reason_message,
            failed_instance=instance,
            exit_code=exit_code,
        )

    def _end(self, root: Path, status: str, *, exit_code: int = 0, **facts: object) -> None:
        with self._lock:
            state = self._states[root]
            workers = tuple(replace(i, status=status, exit_code=exit_code) for i in state.instances)
            ended = replace(state, phase="ended", ended_at=time.time() - self.ended_before_s, instances=workers)
            self._states[root] = replace(ended, **facts)  # type: ignore[arg-type]
