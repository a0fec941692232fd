"""Runs a command in the container of an instance, and measures what its containers use."""

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

from pai_sdk._host.execution.docker.containers import JobContainers
from pai_sdk._host.execution.docker.engine import Engine, find_engine
from pai_sdk._wire.pai.record import InstanceUsage
from pai_sdk.errors import EngineNotFoundError

# The variables of the job are not in the engine's records but in a file, which `instance.sh` reads too.
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
# The engine detaches the terminal when these keys are typed. Its default, Ctrl-P Ctrl-Q, is used by shells and
# editors, and it cannot be disabled, so this is a sequence that is never typed by accident.
_DETACH_KEYS = ",".join(["ctrl-@", "ctrl-^", "ctrl-_", "ctrl-]"] * 4)
_CHUNK_BYTES = 1 << 16
_MAX_STATS_THREADS = 16


class ContainerEntry:
    """Enters an instance; the engine is closed by its owner."""

    def __init__(self, engine: Engine, container: Any) -> None:
        self._engine = engine
        self._container = container

    def run(self, command: Sequence[str]) -> int:
        """Runs a command with the terminal and streams of this process; returns the exit code as a shell does."""
        from docker.utils.socket import frames_iter

        has_terminal = sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()
        argv = ["/bin/sh", "-c", _ENTER, self._container.name, *command]
        terminal = {"TERM": os.environ["TERM"]} if has_terminal and os.environ.get("TERM") else None
        api = self._engine.client.api
        execution = api.exec_create(
            self._container.id,
            argv,
            stdin=True,
            tty=has_terminal,
            environment=terminal,
            detach_keys=_DETACH_KEYS if has_terminal else None,
        )
        stream = api.exec_start(execution["Id"], tty=has_terminal, socket=True)
        connection = getattr(stream, "_sock", stream)
        with _raw_terminal(api, execution["Id"]) if has_terminal else nullcontext():
            # A daemon, because a read of stdin cannot be interrupted when the command exits.
            threading.Thread(target=_send_stdin, args=(connection,), name="stdin", daemon=True).start()
            # With a terminal the engine sends plain bytes, without one frames of stdout and stderr.
            for number, chunk in frames_iter(connection, has_terminal):
                target = sys.stderr if number == 2 else sys.stdout
                target.buffer.write(chunk)
                target.flush()
        connection.close()
        return int(api.exec_inspect(execution["Id"])["ExitCode"])


def find_container_entry(job_id: str, instance: str, engine: Engine | None = None) -> ContainerEntry | None:
    """Returns the entry into an instance, by its full name, if its container runs on this machine."""
    try:
        active_engine = engine or find_engine()
        for container in JobContainers(lambda: active_engine).of(job_id):
            if container.name == instance and container.status == "running":
                return ContainerEntry(active_engine, container)
    except EngineNotFoundError:
        pass
    return None


def usage_of_job(engine: Engine, job_id: str) -> list[InstanceUsage]:
    """Returns what the running containers of a job use; the engine measures each for a second."""
    running = [
        container for container in JobContainers(lambda: engine).of(job_id) if container.status == "running"
    ]
    with ThreadPoolExecutor(min(_MAX_STATS_THREADS, len(running) or 1)) as pool:
        usages = pool.map(lambda each: _usage(each.name, each.stats(stream=False)), running)
        return sorted(usages, key=lambda usage: usage.instance)


def _usage(instance: str, stats: dict[str, Any]) -> InstanceUsage:
    """Returns the figures of `docker stats`, in percent of the machine's cores and of the available memory."""
    now, before = stats.get("cpu_stats") or {}, stats.get("precpu_stats") or {}
    cpu_time = _get_int(now, "cpu_usage", "total_usage") - _get_int(before, "cpu_usage", "total_usage")
    system_time = _get_int(now, "system_cpu_usage") - _get_int(before, "system_cpu_usage")
    memory = stats.get("memory_stats") or {}
    # As `docker stats` does: reclaimable page cache does not count. Its name differs between cgroup v2 and
    # v1.
    cache_bytes = _get_int(memory, "stats", "inactive_file") or _get_int(memory, "stats", "total_inactive_file")
    used_bytes, limit = max(0, _get_int(memory, "usage") - cache_bytes), _get_int(memory, "limit")
    return InstanceUsage(
        instance,
        cpu_percent=100 * cpu_time / system_time if system_time > 0 else None,
        memory_percent=100 * used_bytes / limit if limit else None,
        memory_bytes=used_bytes if memory else None,
    )


def _get_int(values: dict[str, Any], *names: str) -> int:
    value: Any = values
    for name in names:
        value = (value or {}).get(name)
    return int(value or 0)


def _send_stdin(connection: Any) -> None:
    # The command has exited, or stdin is closed.
    with suppress(OSError, ValueError):
        while chunk := os.read(sys.stdin.fileno(), _CHUNK_BYTES):
            connection.sendall(chunk)
        # Closes only the command's stdin; its output continues.
        connection.shutdown(socket.SHUT_WR)


@contextmanager
def _raw_terminal(api: Any, exec_id: str) -> Iterator[None]:
    """Passes every key to the command, also Ctrl-C, and keeps it informed of the window size."""
    import termios
    import tty

    def resize(*_: object) -> None:
        size = os.get_terminal_size()
        # The command may have ended.
        with suppress(Exception):
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
