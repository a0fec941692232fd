"""Running a command in the container of an instance, and what its containers use."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from typing import Any

from pai_sdk.errors import EngineNotFoundError
from pai_sdk.execution.docker.containers import JobContainers
from pai_sdk.execution.docker.engine import Engine, find_engine
from pai_sdk.schemas.record import InstanceUsage

__all__ = ["ContainerEntry", "find_container_entry", "usage_of_job"]

# The variables of the job are not in the engine's records; `instance.sh` reads them from the same file.
_ENTER = """
_env=$(command -v env) || _env=env
_shared=$PAI_SDK_SHARED
. "$_shared/$0.env"
if [ -e "$_shared/requirements.txt" ]; then
    unset PYTHONNOUSERSITE
    export PYTHONUSERBASE="$_shared/python"
    export PATH="$_shared/python/bin:$_shared/python/target/bin:$PATH"
    export PYTHONPATH="$_shared/python/target${PYTHONPATH:+:$PYTHONPATH}"
fi
unset PAI_SDK_SHARED PAI_SDK_LOG
cd "$PAI_WORKING_DIR" && exec "$@"
"""
# The engine closes a terminal's stream when these keys are typed, and Ctrl-P Ctrl-Q where none are given, which
# shells and editors use. It cannot be switched off, so this is a sequence that nobody types.
_DETACH_KEYS = ",".join(["ctrl-@", "ctrl-^", "ctrl-_", "ctrl-]"] * 4)
_PIECE_BYTES = 1 << 16
_MOST_ASKED_AT_ONCE = 16


class ContainerEntry:
    """A way into an instance.

    Args:
        engine: the engine; closed by its owner.
        container: docker-py's.
    """

    def __init__(self, engine: Engine, container: Any) -> None:
        self._engine = engine
        self._container = container

    def run(self, command: Sequence[str]) -> int:
        """Run a command with the terminal and the streams of this process.

        Args:
            command: the program and its arguments.

        Returns:
            Its exit code, as a shell gives it.
        """
        from docker.utils.socket import frames_iter

        has_terminal = sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()
        words = ["/bin/sh", "-c", _ENTER, self._container.name, *command]
        terminal = {"TERM": os.environ["TERM"]} if has_terminal and os.environ.get("TERM") else None
        api = self._engine.client.api
        made = api.exec_create(
            self._container.id,
            words,
            stdin=True,
            tty=has_terminal,
            environment=terminal,
            detach_keys=_DETACH_KEYS if has_terminal else None,
        )
        stream = api.exec_start(made["Id"], tty=has_terminal, socket=True)
        connection = getattr(stream, "_sock", stream)
        with _raw_terminal(api, made["Id"]) if has_terminal else nullcontext():
            threading.Thread(target=_send_stdin, args=(connection,), name="stdin", daemon=True).start()
            for number, piece in frames_iter(connection, has_terminal):
                target = sys.stderr if number == 2 else sys.stdout
                target.buffer.write(piece)
                target.flush()
        connection.close()
        return int(api.exec_inspect(made["Id"])["ExitCode"])


def find_container_entry(job_id: str, instance: str, engine: Engine | None = None) -> ContainerEntry | None:
    """The way into an instance, if it is a running container of the engine of this machine.

    Args:
        job_id: its job.
        instance: its full name.
        engine: the engine; found if not given.
    """
    try:
        found = engine or find_engine()
        for container in JobContainers(lambda: found).of(job_id):
            if container.name == instance and container.status == "running":
                return ContainerEntry(found, container)
    except EngineNotFoundError:
        pass
    return None


def usage_of_job(engine: Engine, job_id: str) -> list[InstanceUsage]:
    """What the running containers of a job use, by the engine; it measures each for a second."""
    running = [one for one in JobContainers(lambda: engine).of(job_id) if one.status == "running"]
    with ThreadPoolExecutor(min(_MOST_ASKED_AT_ONCE, len(running) or 1)) as pool:
        found = pool.map(lambda one: _usage(one.name, one.stats(stream=False)), running)
        return sorted(found, key=lambda usage: usage.instance)


def _usage(instance: str, stats: dict[str, Any]) -> InstanceUsage:
    """The figures of `docker stats`, in percent of the machine's cores and of the memory that there is.

    Example:
        >>> _usage("local-1-master-0", {
        ...     "cpu_stats": {"cpu_usage": {"total_usage": 300}, "system_cpu_usage": 2000},
        ...     "precpu_stats": {"cpu_usage": {"total_usage": 100}, "system_cpu_usage": 1000},
        ...     "memory_stats": {"usage": 96, "limit": 400, "stats": {"inactive_file": 16}}}).cpu_percent
        20.0
    """
    now, before = stats.get("cpu_stats") or {}, stats.get("precpu_stats") or {}
    used = _of(now, "cpu_usage", "total_usage") - _of(before, "cpu_usage", "total_usage")
    passed = _of(now, "system_cpu_usage") - _of(before, "system_cpu_usage")
    memory = stats.get("memory_stats") or {}
    kept = _of(memory, "stats", "inactive_file") or _of(memory, "stats", "total_inactive_file")
    held, limit = max(0, _of(memory, "usage") - kept), _of(memory, "limit")
    return InstanceUsage(
        instance,
        cpu_percent=100 * used / passed if passed > 0 else None,
        memory_percent=100 * held / limit if limit else None,
        memory_bytes=held if memory else None,
    )


def _of(values: dict[str, Any], *names: str) -> int:
    found: Any = values
    for name in names:
        found = (found or {}).get(name)
    return int(found or 0)


def _send_stdin(connection: Any) -> None:
    """Send stdin to its end."""
    with suppress(OSError, ValueError):  # the command has ended
        while piece := os.read(sys.stdin.fileno(), _PIECE_BYTES):
            connection.sendall(piece)
        connection.shutdown(socket.SHUT_WR)


@contextmanager
def _raw_terminal(api: Any, exec_id: str) -> Iterator[None]:
    """Within it, each key goes to the command, Ctrl-C too, and the command knows the size of the window."""
    import termios
    import tty

    def resize(*_: object) -> None:
        size = os.get_terminal_size()
        with suppress(Exception):  # the command may have ended
            api.exec_resize(exec_id, height=size.lines, width=size.columns)

    before = termios.tcgetattr(sys.stdin)
    handler = signal.signal(signal.SIGWINCH, resize)
    try:
        tty.setraw(sys.stdin)
        resize()
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
        signal.signal(signal.SIGWINCH, handler)
