"""The container of an instance, and its first process if that is visible on this machine."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pai_sdk._host.agent.processes import descendants
from pai_sdk._host.agent.tunnel.job_view import variables_of
from pai_sdk._host.execution.docker.containers import JobContainers
from pai_sdk._host.execution.docker.engine import Engine
from pai_sdk._host.execution.docker.tunnel.namespaces import is_first_process


@dataclass(frozen=True)
class InstanceContainer:
    """A running container; `process` is its first process, None if the engine is in another machine."""

    engine: Engine
    id: str
    instance: str
    process: int | None

    @classmethod
    def find(cls, engine: Engine, job_id: str, instance: str) -> InstanceContainer | None:
        """Returns the container of an instance, by its full name; None if it does not run."""
        for container in JobContainers(lambda: engine).of(job_id):
            if container.name == instance and container.status == "running":
                return cls(engine, str(container.id), instance, _first_process(container.attrs, instance))
        return None

    def inspect(self) -> dict[str, Any]:
        """Returns the engine's record of the container."""
        return dict(self.engine.client.api.inspect_container(self.id))

    @property
    def is_open_to_root(self) -> bool:
        """Returns whether this process may enter the namespaces of the container."""
        return self.process is not None and os.geteuid() == 0

    @property
    def is_running(self) -> bool:
        """Returns whether its first process is there, as far as that is visible here."""
        # By more than its id, which another process may have by now.
        return self.process is None or is_first_process(Path(f"/proc/{self.process}"), self.instance)

    @property
    def job_variables(self) -> dict[str, str]:
        """Returns the variables of the job's command, as far as its processes are visible and running."""
        variable = f"PAI_INSTANCE_NAME={self.instance}".encode()
        for process in descendants(self.process) if self.process is not None else ():
            with suppress(OSError):
                if variable in Path(f"/proc/{process}/environ").read_bytes().split(b"\0"):
                    return variables_of(process)
        return {}

    def has_process(self, process: int) -> bool:
        """Returns whether a process of this machine runs in the container."""
        with suppress(OSError):
            space = Path(f"/proc/{process}/ns/pid").readlink()
            return self.process is not None and space == Path(f"/proc/{self.process}/ns/pid").readlink()
        return False


def _first_process(attributes: dict[str, Any], instance: str) -> int | None:
    """Returns the first process of a container, if this machine has it."""
    # An engine in a virtual machine has process ids of its own, which other processes may have here.
    with suppress(KeyError, TypeError):
        process = int(attributes["State"]["Pid"])
        if process and is_first_process(Path(f"/proc/{process}"), instance):
            return process
    return None
