"""Starts the functions of a tunnel in the container of an instance, as processes that enter it."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from pai_sdk._host.agent.tunnel.job_view import InstanceView
from pai_sdk._host.agent.tunnel.pumps import start
from pai_sdk._host.agent.tunnel.spawner import Child, Spawner
from pai_sdk._host.execution.docker.tunnel.instance_container import InstanceContainer
from pai_sdk.errors import TunnelRefusedError

_MODULE = "pai_sdk._host.execution.docker.tunnel.function_process"
_FIRST_NUMBER = 16


class _ContainerView(InstanceView):
    """The first process of a container, which need not be one of this user."""

    def leader(self, instance: str) -> int:
        """Returns the process."""
        return self._recent[""]


class ContainerSpawner(Spawner):
    """Starts a process for each function of one container; `process` is this process, their ancestor."""

    def __init__(self, container: InstanceContainer, umask: int) -> None:
        self.process = os.getpid()
        self.view = _ContainerView(0, container.instance, {"": container.process or 0})
        self._container = container
        self._umask = umask

    def start(
        self, request: Mapping[str, Any], descriptors: Sequence[int], on_exit: Callable[[], None] = lambda: None
    ) -> Child:
        """Starts a process and returns when it has its id; the caller closes the descriptors.

        Raises:
            TunnelRefusedError: it could not be started.
        """
        child = Child(on_exit)
        reader, writer = os.pipe()
        stdin, stdout, stderr, events = descriptors
        # Above the numbers that the module uses.
        numbers = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, _FIRST_NUMBER) for descriptor in (reader, events)]
        os.close(reader)
        try:
            process = subprocess.Popen(
                [sys.executable, "-m", _MODULE, str(self._container.process), *map(str, numbers)],
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                pass_fds=numbers,
                cwd="/",
                start_new_session=True,
            )
        except OSError as error:
            os.close(writer)
            raise TunnelRefusedError("NotStarted", f"no process could be started: {error}") from error
        finally:
            for number in numbers:
                os.close(number)
        child.on_start(process.pid)
        variables = {**self._container.job_variables, **request["variables"]}
        content = {
            **request,
            "variables": variables,
            "umask": self._umask,
            "instance": self._container.instance,
        }
        start(_wait, process, child)
        with suppress(OSError), os.fdopen(writer, "wb") as file:
            file.write(json.dumps(content).encode() + b"\n")
        return child


def _wait(process: subprocess.Popen[bytes], child: Child) -> None:
    code = process.wait()
    child.on_exit({"signal": -code} if code < 0 else {"code": code})
