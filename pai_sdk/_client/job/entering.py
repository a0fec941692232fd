"""What a user does in the running instances of a job: programs, shells, ports and files."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

from pai_sdk._client.backend.base import Backend
from pai_sdk._client.job.debugging import WaitingProcess, wait_for_process, waiting_processes
from pai_sdk._client.job.follow.stream import select_instances
from pai_sdk._client.job.stacks import JobStacks, read_stacks
from pai_sdk._client.tunnel.attempts import Attempt
from pai_sdk._client.tunnel.copying import Copied, check_remote_path, copy_from, copy_to
from pai_sdk._client.tunnel.forwarding import PortForward, parse_ports
from pai_sdk._client.tunnel.opening import JobTunnel
from pai_sdk._client.tunnel.outputs import RankedOutput
from pai_sdk._client.tunnel.programs import Streams, run_program, sink_of
from pai_sdk._client.tunnel.terminal import has_terminal
from pai_sdk._core.terminal_text import visible_text
from pai_sdk._wire.pai.record import JobRecord
from pai_sdk._wire.pai.status import JobStatus
from pai_sdk.errors import InvalidInputError, PaiError, Problem

_log = logging.getLogger(__name__)

SHELL = ("sh", "-c", "if command -v bash >/dev/null; then exec bash; else exec sh; fi")
"""Starts the best shell of an image."""

_MAX_TUNNELS = 32  # opened at once; a user of a service may have 128
_POLL_S = 0.2
_COMPLETE_POLL_S = 10.0  # between two lists of the debuggers of all instances
_NOT_REACHED = 255  # in place of the exit code of an instance that could not be entered, as for ssh


@dataclass(frozen=True)
class ExecResult:
    r"""What a program in one instance has written, and its exit code.

    Attributes:
        instance: the full name of the instance.
        exit_code: the exit code; 128 and the number of a signal that ended the program.
        stdout: what it has written to its standard output.
        stderr: what it has written to its standard error.

    Example:
        >>> ExecResult("train1-master-0", 0, b"42\n").text
        '42\n'
    """

    instance: str
    exit_code: int
    stdout: bytes = b""
    stderr: bytes = b""

    @property
    def text(self) -> str:
        """The standard output as a string; bytes that are not UTF-8 are replaced."""
        return self.stdout.decode("utf-8", errors="replace")


class EnteredJob:
    """The running instances of a job. Each method opens a tunnel, and closes it at its end."""

    def __init__(self, backend: Backend, record: JobRecord) -> None:
        names = record.instance_names
        if record.status != JobStatus.RUNNING or not names:
            job_id = record.training_job_id
            reason = f"job {job_id} is {record.status}, and only a running job can be entered"
            hint = f"the reason: pai-sdk why {job_id}"
            if record.status.is_terminal:
                hint = f"its outputs: pai-sdk download {job_id}"
            raise InvalidInputError([Problem("JOB", reason, hint)])
        self._backend = backend
        self._job_id = record.training_job_id
        self._names = names
        self._attempt = Attempt(lambda: backend.get(record.training_job_id), record)

    def connect(self, instance: str | int | None = None) -> JobTunnel:
        """Opens a tunnel into an instance: its rank, its suffix (`worker-1`) or its full name."""
        tunnel = self._backend.connect_tunnel(self._job_id, self.instance_name(instance))
        tunnel.explain_end(self._attempt.explain)
        return tunnel

    def exec(
        self,
        command: Sequence[str],
        instance: str | int | None,
        *,
        input: bytes | str | None = None,
        capture: bool = False,
    ) -> int | ExecResult:
        """Runs a program in an instance; returns its exit code, or with `capture` its output too."""
        argv, data = _checked(command), _checked_input(input)
        with self.connect(instance) as tunnel:
            if capture:
                return _captured(tunnel, argv, data)
            streams = Streams(
                sink_of(sys.stdout),
                sink_of(sys.stderr),
                data,
                reads_stdin=data is None,
                terminal=data is None and has_terminal(),
            )
            return run_program(tunnel, argv, streams)

    def exec_all(
        self,
        command: Sequence[str],
        *,
        input: bytes | str | None = None,
        capture: bool = False,
    ) -> int | list[ExecResult]:
        """Runs a program in all instances; returns the highest exit code, or with `capture` each result."""
        argv, data = _checked(command), _checked_input(input)
        if capture:
            return [*self._in_each(lambda tunnel, _: _captured(tunnel, argv, data), lambda _: None)]
        output = RankedOutput(len(self._names), sink_of(sys.stdout), sink_of(sys.stderr))

        def run(tunnel: JobTunnel, rank: int) -> int:
            sinks = output.sink(rank, is_error=False), output.sink(rank, is_error=True)
            return run_program(tunnel, argv, Streams(*sinks, data))

        def report(rank: int, error: PaiError) -> int:
            output.sink(rank, is_error=True)(f"pai-sdk: {error}\n".encode())
            return _NOT_REACHED

        try:
            return max(int(code) for code in self._in_each(run, lambda _: output.release(), report))
        finally:
            output.close()

    def shell(self, instance: str | int | None) -> int:
        """Runs a shell with the terminal of this process, or with its stdin if that is no terminal."""
        result = self.exec(SHELL, instance)
        return result if isinstance(result, int) else result.exit_code

    def forward(self, ports: Any, instance: str | int | None, **options: Any) -> PortForward:
        """Opens port forwards; the result closes them."""
        parsed, name = parse_ports(ports, reverse=bool(options.get("reverse"))), self.instance_name(instance)

        def connect(record: JobRecord) -> JobTunnel:
            # A failure leaves the attempt as it is.
            entered = EnteredJob(self._backend, record)
            tunnel = entered.connect(name)
            self._attempt = entered._attempt
            return tunnel

        def reenter(error: PaiError, is_closed: threading.Event) -> JobTunnel:
            return self._attempt.enter_next(error, connect, is_closed)

        return PortForward(self.connect(name), parsed, reenter=reenter, **options)

    def stacks(self, instance: str | int | None, *, native: bool, timeout_s: float) -> JobStacks:
        """Reads the stacks of one instance or of all."""
        names = self._names if instance is None else [self.instance_name(instance)]
        return read_stacks(self._job_id, names, self.connect, native=native, timeout_s=timeout_s)

    def wait_for_debugger(
        self, *, rank: int | None, instance: str | None, timeout_s: float, on_wait: Callable[[], object]
    ) -> WaitingProcess:
        """Waits until a rank waits in a debugger."""
        name = None if instance is None else self.instance_name(instance)
        names = self._names if name is None else [name]
        # Usually each instance has one rank. All are asked at times, since torchrun may start several.
        likely = [self._names[rank]] if rank is not None and rank < len(self._names) > 1 else []
        next_complete_at = 0.0

        def list_processes() -> list[WaitingProcess]:
            nonlocal next_complete_at
            processes = waiting_processes(likely, self.connect) if likely else []
            if any(process.rank == rank for process in processes):
                return processes
            if likely and time.monotonic() < next_complete_at:
                return processes
            next_complete_at = time.monotonic() + _COMPLETE_POLL_S
            return waiting_processes(names, self.connect)

        return wait_for_process(
            list_processes,
            rank=rank,
            instance=name,
            timeout_s=timeout_s,
            on_wait=on_wait,
        )

    def copy_from(
        self, path: str, target: str | Path, instance: str | int | None, *, progress: bool = True
    ) -> Copied:
        """Copies a file or a folder of an instance to this machine."""
        check_remote_path(path)
        with self.connect(instance) as tunnel:
            return _logged(copy_from(tunnel, path, target, progress=progress))

    def copy_to(
        self, source: str | Path, path: str, instance: str | int | None, *, progress: bool = True
    ) -> Copied:
        """Copies a local file or folder into an instance."""
        check_remote_path(path)
        with self.connect(instance) as tunnel:
            return _logged(copy_to(tunnel, source, path, progress=progress))

    def instance_name(self, instance: str | int | None) -> str:
        """Returns the full name of an instance; raises InvalidInputError if the job does not have it."""
        if isinstance(instance, bool) or not (instance is None or isinstance(instance, int | str)):
            problem = f"{instance!r} is not an instance"
            raise InvalidInputError([Problem("instance", problem, "give a rank (0) or a name ('worker-1')")])
        if isinstance(instance, int) or (instance or "").isdecimal():
            rank = int(instance or 0)
            if not 0 <= rank < len(self._names):
                problem, hint = f"{rank} is no rank of this job", f"its ranks are 0 to {len(self._names) - 1}"
                raise InvalidInputError([Problem("instance", problem, hint)])
            return self._names[rank]
        return select_instances(instance or None, self._job_id, self._names)[0]

    def _in_each(
        self,
        run: Callable[[JobTunnel, int], Any],
        on_poll: Callable[[int], object],
        on_error: Callable[[int, PaiError], Any] | None = None,
    ) -> Iterator[Any]:
        """Yields the result of each rank, in their order, once all have finished."""
        tunnels = _Tunnels()

        def enter(rank: int) -> Any:
            try:
                with self.connect(rank) as tunnel:
                    tunnels.add(tunnel)
                    return run(tunnel, rank)
            except PaiError as error:
                if on_error is None or tunnels.is_abandoned:
                    raise
                return on_error(rank, error)

        pool = ThreadPoolExecutor(min(_MAX_TUNNELS, len(self._names)), thread_name_prefix="pai-exec")
        try:
            futures = [pool.submit(enter, rank) for rank in range(len(self._names))]
            pending = {*futures}
            while pending:
                pending = wait(pending, _POLL_S, FIRST_COMPLETED).not_done
                on_poll(len(pending))
        finally:
            # After an interrupt, the programs end with their tunnels.
            tunnels.abandon()
            pool.shutdown(cancel_futures=True)
        yield from (future.result() for future in futures)


class _Tunnels:
    """The open tunnels of a command in all instances."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tunnels: list[JobTunnel] = []
        self.is_abandoned = False

    def add(self, tunnel: JobTunnel) -> None:
        """Adds a tunnel; ends it at once after `abandon`."""
        with self._lock:
            self._tunnels.append(tunnel)
            is_abandoned = self.is_abandoned
        if is_abandoned:
            tunnel.abandon()

    def abandon(self) -> None:
        """Ends all tunnels in a few seconds."""
        with self._lock:
            self.is_abandoned = True
            threads = [threading.Thread(target=tunnel.abandon) for tunnel in self._tunnels]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def _captured(tunnel: JobTunnel, argv: Sequence[str], data: bytes | None) -> ExecResult:
    stdout, stderr = BytesIO(), BytesIO()
    code = run_program(tunnel, argv, Streams(stdout.write, stderr.write, data, has_notices=False))
    return ExecResult(tunnel.instance, code, stdout.getvalue(), stderr.getvalue())


def _logged(copied: Copied) -> Copied:
    for path, reason in copied.skipped.items():
        # Names come from the job, and could control the terminal.
        _log.warning("not copied: %s: %s", visible_text(path), visible_text(reason))
    return copied


def _checked(command: Sequence[str]) -> list[str]:
    if isinstance(command, str) or not command or not all(isinstance(each, str) for each in command):
        message = f"{command!r} is not a list of a program and its arguments"
        raise InvalidInputError([Problem("command", message, "give a list: ['sh', '-c', 'echo hello']")])
    return [*command]


def _checked_input(data: Any) -> bytes | None:
    if data is None or isinstance(data, bytes | str):
        return data.encode() if isinstance(data, str) else data
    raise InvalidInputError([Problem("input", f"{type(data).__name__} is neither bytes nor a string")])
