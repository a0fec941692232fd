"""The debuggers that ranks of a job wait in: lists them, joins one by a terminal, describes one for an editor."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from codecs import getincrementaldecoder
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from pai_sdk._core.terminal_text import visible_text
from pai_sdk.errors import InvalidInputError, PaiError, Problem, TunnelError, TunnelRefusedError

_MAX_TUNNELS = 32
_MAX_NAMES = 8  # processes that a message names
_CHUNK_BYTES = 1 << 16
# Lines to the debugger: its commands, see `debugger_terminal`.
_END_OF_INPUT = b"EOF\n"
DEFAULT_CODE_DIR = "/ml/usercode"


class _Stream(Protocol):
    @property
    def result(self) -> Mapping[str, Any]: ...

    def read(self) -> bytes: ...

    def write(self, data: bytes, /) -> None: ...

    def close(self) -> None: ...


class TunnelToDebugger(Protocol):
    """A tunnel into one instance."""

    def open(self, kind: str, **parameters: Any) -> _Stream:
        """Opens a stream."""
        ...

    def __enter__(self) -> TunnelToDebugger: ...

    def __exit__(self, *exc: object) -> None: ...


Connect = Callable[[str], TunnelToDebugger]


@dataclass(frozen=True)
class WaitingProcess:
    """A process that waits in a debugger, or is debugged."""

    instance: str
    rank: int
    pid: int
    kind: str  # `terminal` or `debugpy`
    state: str  # `waiting` or `joined`
    file: str
    function: str
    line: int
    socket: str  # of a terminal, in the view of the instance
    port: int  # of debugpy, on loopback in the view of the instance
    deadline: float | None
    working_dir: str

    @classmethod
    def parse(cls, values: Mapping[str, Any], instance: str) -> WaitingProcess | None:
        """Returns a process from the response of an instance; None for a response without one."""
        numbers = [values.get(name) for name in ("rank", "pid")]
        if not all(isinstance(number, int) for number in numbers):
            return None
        kind, state, file, function = (str(values.get(n) or "") for n in ("kind", "state", "file", "function"))
        line, port, deadline = (values.get(name) for name in ("line", "port", "deadline"))
        return cls(
            instance,
            int(values["rank"]),
            int(values["pid"]),
            kind,
            state,
            file,
            function,
            line if isinstance(line, int) else 0,
            str(values.get("socket") or ""),
            port if isinstance(port, int) else 0,
            float(deadline) if isinstance(deadline, int | float) else None,
            str(values.get("working_dir") or DEFAULT_CODE_DIR),
        )

    def __str__(self) -> str:
        file = self.file.replace("\\", "/").rpartition("/")[2]
        # Names come from the job, and could control the terminal.
        return visible_text(f"rank {self.rank} in {self.function} ({file}:{self.line})")


def waiting_processes(instances: Sequence[str], connect: Connect) -> list[WaitingProcess]:
    """Returns the processes of instances that wait in a debugger, by rank.

    Raises:
        PaiError: no instance could be reached.
    """

    def list_instance(instance: str) -> list[WaitingProcess] | PaiError:
        try:
            with connect(instance) as tunnel:
                stream = tunnel.open("debuggers")
                sessions = stream.result.get("sessions")
                stream.close()
        except PaiError as error:
            return error
        values = sessions if isinstance(sessions, list) else []
        parsed = (WaitingProcess.parse(each, instance) for each in values if isinstance(each, Mapping))
        return [process for process in parsed if process is not None]

    with ThreadPoolExecutor(min(_MAX_TUNNELS, len(instances)), thread_name_prefix="pai-debug") as pool:
        results = [*pool.map(list_instance, instances)]
    errors = [result for result in results if isinstance(result, PaiError)]
    if len(errors) == len(results):
        raise errors[0]
    processes = [process for result in results if isinstance(result, list) for process in result]
    return sorted(processes, key=lambda process: (process.rank, process.pid))


def select_process(
    processes: Sequence[WaitingProcess], *, rank: int | None, instance: str | None = None
) -> WaitingProcess | None:
    """Returns the process that is to be debugged; None as long as there is none.

    Raises:
        InvalidInputError: several wait, and none of them was selected.
    """
    candidates = [
        process
        for process in processes
        if (rank is None or process.rank == rank) and (instance is None or process.instance == instance)
    ]
    # Of several processes of a rank, the first one: the others are its children.
    if len({process.rank for process in candidates}) > 1:
        problem = f"several ranks wait: {_names(candidates)}"
        raise InvalidInputError([Problem("JOB", problem, "give one of them, as JOB:RANK")])
    return next((process for process in candidates if process.state == "waiting"), next(iter(candidates), None))


def wait_for_process(
    list_processes: Callable[[], list[WaitingProcess]],
    *,
    rank: int | None,
    instance: str | None,
    timeout_s: float,
    poll_s: float = 1.0,
    on_wait: Callable[[], object] = lambda: None,
) -> WaitingProcess:
    """Waits until a process is in a debugger; `on_wait` is called once if there is none yet.

    Raises:
        InvalidInputError: there was none in time.
    """
    deadline = time.monotonic() + timeout_s
    processes = list_processes()
    process = select_process(processes, rank=rank, instance=instance)
    if process is None and timeout_s > 0:
        on_wait()
    while process is None:
        if time.monotonic() >= deadline:
            subject = "no rank waits" if rank is None else f"rank {rank} does not wait"
            hint = "submit it with debugger='terminal' (or 'debugpy'), and call breakpoint() in its code"
            if processes:
                hint = f"waiting: {_names(processes)}"
            raise InvalidInputError([Problem("JOB", f"{subject} in a debugger", hint)])
        time.sleep(min(poll_s, max(0.0, deadline - time.monotonic())))
        processes = list_processes()
        process = select_process(processes, rank=rank, instance=instance)
    return process


def _names(processes: Sequence[WaitingProcess]) -> str:
    return ", ".join(map(str, processes[:_MAX_NAMES])) + (", …" if len(processes) > _MAX_NAMES else "")


def join_terminal(
    tunnel: TunnelToDebugger,
    process: WaitingProcess,
    *,
    read: Callable[[], bytes] | None = None,
    write: Callable[[bytes], object] | None = None,
) -> None:
    """Joins the debugger of a process with the terminal of this process, until the debugger detaches.

    Ctrl-D detaches, and the program goes on. Ctrl-C raises KeyboardInterrupt; the program then waits for another
    client.
    """
    read = read or _read_stdin
    write = write or _StdoutWriter().write
    try:
        stream = tunnel.open("socket", path=process.socket)
    except TunnelRefusedError as error:
        if error.code not in ("NotFound", "ConnectionRefused"):
            raise
        raise InvalidInputError([Problem("JOB", f"{process} waits no longer: {error.message}")]) from error

    def send() -> None:
        with suppress(TunnelError, OSError, ValueError):
            while data := read():
                stream.write(data)
            stream.write(_END_OF_INPUT)

    # A daemon, since nothing interrupts its read of the terminal.
    threading.Thread(target=send, name="pai-debug-input", daemon=True).start()
    try:
        while data := stream.read():
            write(data)
    finally:
        stream.close()


def launch_json(process: WaitingProcess, *, port: int, local_folder: str) -> str:
    """Returns the `launch.json` of VS Code that attaches to a process behind a local port."""
    configuration = {
        "name": f"rank {process.rank} of {process.instance}",
        "type": "debugpy",
        "request": "attach",
        "connect": {"host": "127.0.0.1", "port": port},
        "pathMappings": [{"localRoot": local_folder, "remoteRoot": process.working_dir}],
        "justMyCode": True,
    }
    return json.dumps({"version": "0.2.0", "configurations": [configuration]}, indent=2)


def _read_stdin() -> bytes:
    # Not by `sys.stdin`, whose lock a thread that waits would still have when Python exits.
    return os.read(sys.stdin.fileno(), _CHUNK_BYTES)


class _StdoutWriter:
    """Writes bytes as text: stdout may be an object of a notebook or a test."""

    def __init__(self) -> None:
        self._decoder = getincrementaldecoder("utf-8")("replace")

    def write(self, data: bytes) -> None:
        """Writes a chunk, which may end within a character."""
        sys.stdout.write(self._decoder.decode(data))
        sys.stdout.flush()
