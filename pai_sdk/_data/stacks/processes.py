"""The processes of a job as `agent.stacks` reports them: state, use of CPU, and the stacks of their threads."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, cast

from pai_sdk._data.stacks.frames import Frame

Kind = Literal["rank", "launcher", "child", "other"]
_KINDS = ("rank", "launcher", "child", "other")
# Roles whose processes run another program than the workers, or wait by design.
_SEPARATE_ROLE = re.compile(r"-(ps|evaluator|scheduler|launcher|tensorboard|driver|head)-\d+$")


@dataclass(frozen=True)
class ThreadStack:
    """The stack of one thread, the outermost call first."""

    id: int
    name: str = ""
    frames: tuple[Frame, ...] = ()
    is_active: bool = False
    has_gil: bool = False


@dataclass(frozen=True)
class ProcessStack:
    """One process of a job.

    Attributes:
        pid: process id on its host.
        parent_pid: process id of its parent.
        rank: number among all processes of the job; None for launchers, and for processes without one.
        instance: full name of the instance.
        kind: `rank` for the training process of a rank, `child` for processes below it, such as workers of a data
            loader, `launcher` for `torchrun` and its like, `other` for shells and programs beside them.
        program: the name of the program and its script.
        state: the state of the kernel: `R` running, `S` sleeping, `D` in uninterruptible I/O, `T` stopped, …
        cpu_s: CPU time since its start.
        cpu_percent: use of CPU while the stacks were read, in percent of a core; None if it was not measured.
        wchan: kernel function in which it waits; empty if unknown.
        syscall: name or number of its system call; empty if unknown.
        threads: stacks of its threads, the main thread first; empty if the process is no Python program, or if it
            cannot be read.
        is_moving: whether two reads, one after the other, had different stacks.
        problem: why there is no stack; empty if there is one.
    """

    pid: int
    parent_pid: int = 0
    rank: int | None = None
    instance: str = ""
    kind: Kind = "other"
    program: str = ""
    state: str = ""
    cpu_s: float = 0.0
    cpu_percent: float | None = None
    wchan: str = ""
    syscall: str = ""
    threads: tuple[ThreadStack, ...] = ()
    is_moving: bool = False
    problem: str = ""

    @property
    def frames(self) -> tuple[Frame, ...]:
        """The stack of the main thread, the outermost call first; empty without one."""
        return self.threads[0].frames if self.threads else ()

    @property
    def user_frame(self) -> Frame | None:
        """The last frame of user code in the main thread; None without one."""
        return last_user_frame(self.frames)

    @property
    def is_stopped(self) -> bool:
        """Whether a signal or a tracer has stopped the process."""
        return self.state in ("T", "t")

    @property
    def is_in_collective(self) -> bool:
        """Whether the main thread waits in an operation of all ranks."""
        return not self.is_stopped and any(frame.is_collective for frame in self.frames)

    @property
    def is_in_debugger(self) -> bool:
        """Whether a thread waits in a debugger, or for its client."""
        return any(frame.is_debugger for thread in self.threads for frame in thread.frames)

    @property
    def role(self) -> str:
        """The role whose processes are compared: parameter servers and evaluators are apart from workers."""
        match = _SEPARATE_ROLE.search(self.instance)
        return match[1] if match else "worker"

    @property
    def signature(self) -> tuple[object, ...]:
        """A value that is equal for two reads of a process that has not moved in between."""
        return (self.pid, self.is_stopped, self.frames or (self.wchan, self.syscall))

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields for JSON; `parse_processes` reads them."""
        values = asdict(self)
        for thread, stack in zip(values["threads"], self.threads, strict=True):
            thread["frames"] = [frame._asdict() for frame in stack.frames]
        return {**values, "threads": list(values["threads"])}


def last_user_frame(frames: Iterable[Frame]) -> Frame | None:
    """Returns the last frame of user code, before collective operations; None without user code."""
    last = None
    for frame in frames:
        if frame.is_collective:
            return last or (frame if frame.is_user else None)
        if frame.is_user:
            last = frame
    return last


def parse_processes(content: Mapping[str, Any], *, instance: str = "") -> list[ProcessStack]:
    """Returns the processes of a response of an agent; what has no valid form is left out."""
    processes = content.get("processes")
    entries = [entry for entry in processes if isinstance(entry, Mapping)] if isinstance(processes, list) else []
    return [_process(entry, instance) for entry in entries if isinstance(entry.get("pid"), int)]


def _process(entry: Mapping[str, Any], instance: str) -> ProcessStack:
    rank, percent = entry.get("rank"), entry.get("cpu_percent")
    kind = entry.get("kind")
    threads = entry.get("threads")
    return ProcessStack(
        pid=entry["pid"],
        parent_pid=_integer(entry.get("parent_pid")),
        rank=rank if isinstance(rank, int) else None,
        instance=str(entry.get("instance") or instance),
        kind=cast("Kind", kind) if kind in _KINDS else "other",
        program=str(entry.get("program") or ""),
        state=str(entry.get("state") or ""),
        cpu_s=float(_number(entry.get("cpu_s")) or 0.0),
        cpu_percent=_number(percent),
        wchan=str(entry.get("wchan") or ""),
        syscall=str(entry.get("syscall") or ""),
        threads=tuple(_thread(each) for each in threads if isinstance(each, Mapping))
        if isinstance(threads, list)
        else (),
        is_moving=entry.get("is_moving") is True,
        problem=str(entry.get("problem") or ""),
    )


def _thread(entry: Mapping[str, Any]) -> ThreadStack:
    frames = entry.get("frames")
    return ThreadStack(
        _integer(entry.get("id")),
        str(entry.get("name") or ""),
        tuple(Frame.parse(frame) for frame in frames if isinstance(frame, Mapping))
        if isinstance(frames, list)
        else (),
        entry.get("is_active") is True,
        entry.get("has_gil") is True,
    )


def _integer(value: object) -> int:
    return value if isinstance(value, int) else 0


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
