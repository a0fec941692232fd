"""The stacks of all ranks of a job: read at once, equal ones once, the odd rank first."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from html import escape
from typing import Any, Protocol

from pai_sdk._core.terminal_text import visible_text
from pai_sdk._data.stacks.frames import Frame
from pai_sdk._data.stacks.grouping import StackGroup, group_stacks, odd_ranks
from pai_sdk._data.stacks.processes import ProcessStack, parse_processes
from pai_sdk.errors import PaiError, TunnelClosedError

READ_TIMEOUT_S = 60.0
_MAX_TUNNELS = 32  # at once; a user of a service may have 64
_SLACK_S = 60.0  # for connections, and for a lost one to come back
_MAX_BYTES = 64 << 20
_MAX_CHILDREN = 6  # that are printed for a rank
_MAX_FRAMES = 40
_STATES = {"D": "waits for a disk", "T": "stopped by a signal", "t": "stopped by a debugger", "Z": "has exited"}


class _Stream(Protocol):
    def read(self) -> bytes: ...

    def close(self) -> None: ...


class TunnelToInstance(Protocol):
    """A tunnel into one instance."""

    def open(self, kind: str, **parameters: Any) -> _Stream:
        """Opens a stream."""
        ...

    def abandon(self) -> None:
        """Ends the tunnel at once."""
        ...

    def __enter__(self) -> TunnelToInstance: ...

    def __exit__(self, *exc: object) -> None: ...


@dataclass(frozen=True)
class JobStacks:
    """What the processes of a job do at this moment; it prints as text, and as a card in a notebook.

    Attributes:
        job_id: the job's id.
        processes: all processes, with state, use of CPU, and the stack of each thread.
        problems: instances that could not be read, by name, with the reason.

    Example:
        >>> def find_hanging_ranks(job: TrainingJob) -> tuple[int, ...]:
        ...     return job.stacks().odd_ranks
    """

    job_id: str
    processes: tuple[ProcessStack, ...]
    problems: Mapping[str, str] = field(default_factory=dict)

    @property
    def groups(self) -> list[StackGroup]:
        """Ranks with equal stacks: odd ones first, then the largest group."""
        return group_stacks(self.processes)

    @property
    def odd_ranks(self) -> tuple[int, ...]:
        """The ranks whose stack differs while all others agree, such as those that the others wait for."""
        return odd_ranks(self.processes)

    def to_dict(self) -> dict[str, Any]:
        """Returns all of it as values for JSON."""
        return {
            "job_id": self.job_id,
            "odd_ranks": [*self.odd_ranks],
            "groups": [
                {
                    "ranks": [*group.ranks],
                    "is_odd": group.is_odd,
                    "is_in_collective": group.is_in_collective,
                    "is_in_debugger": group.is_in_debugger,
                    "user_frame": group.user_frame._asdict() if group.user_frame else None,
                }
                for group in self.groups
            ],
            "processes": [process.to_dict() for process in self.processes],
            "problems": dict(self.problems),
        }

    def __repr__(self) -> str:
        # Names and problems come from the job, and could control the terminal.
        return "\n".join(visible_text(line) for text in self._lines() for line in text.split("\n"))

    def _repr_html_(self) -> str:
        parts = []
        for group in self.groups:
            title, *lines = self._lines_of(group)
            is_open = " open" if group.is_noticeable or len(self.groups) == 1 else ""
            content = "<br>".join(escape(line).replace(" ", "&nbsp;") for line in lines)
            parts.append(f"<details{is_open}><summary>{escape(title)}</summary><code>{content}</code></details>")
        remaining = "".join(f"<div>{escape(line)}</div>" for line in self._remaining_lines())
        return f"<div><b>{escape(self._title())}</b>{''.join(parts)}{remaining}</div>"

    def _title(self) -> str:
        count = len({process.rank for process in self.processes if process.kind == "rank"})
        return f"{self.job_id}: the stacks of {count} rank{'' if count == 1 else 's'}"

    def _lines(self) -> Iterator[str]:
        yield self._title()
        for group in self.groups:
            yield ""
            yield from self._lines_of(group)
        if remaining := [*self._remaining_lines()]:
            yield ""
            yield from remaining

    def _lines_of(self, group: StackGroup) -> Iterator[str]:
        first = group.processes[0]
        yield f"{_ranks_text(group.ranks)}: {_group_text(group)}"
        yield f"  {first.program}, {_process_text(group.processes)}"
        if first.problem:
            yield f"  no stack: {first.problem}"
        yield from _frame_lines(first.frames, group.user_frame)
        if not group.is_noticeable and len(self.groups) > 1:
            return
        for thread in first.threads[1:]:
            if thread.frames:
                yield f"  thread {thread.name or thread.id}: {thread.frames[-1]}"
        children = [each for each in self.processes if each.kind == "child" and each.rank == first.rank]
        for child in children[:_MAX_CHILDREN]:
            frame = child.user_frame or (child.frames[-1] if child.frames else None)
            where = f": {frame}" if frame else ""
            yield f"  child {child.pid} {child.program}, {_process_text([child])}{where}"
        if len(children) > _MAX_CHILDREN:
            yield f"  and {len(children) - _MAX_CHILDREN} more children"

    def _remaining_lines(self) -> Iterator[str]:
        for process in self.processes:
            if process.kind == "rank" and process.rank is None:
                where = f": {process.user_frame}" if process.user_frame else ""
                yield f"{process.instance}: {process.program}, {_process_text([process])}{where}"
        for instance, problem in self.problems.items():
            yield f"{instance} could not be read: {problem}"


def read_stacks(
    job_id: str,
    instances: Sequence[str],
    connect: Callable[[str], TunnelToInstance],
    *,
    native: bool = False,
    timeout_s: float = READ_TIMEOUT_S,
) -> JobStacks:
    """Reads the stacks of instances at once; those that cannot be read are `problems`.

    Raises:
        PaiError: no instance could be read.
    """
    errors: dict[str, PaiError] = {}
    processes: dict[str, list[ProcessStack]] = {}
    with ExitStack() as tunnels:

        def read(instance: str) -> None:
            try:
                with connect(instance) as tunnel:
                    tunnels.callback(tunnel.abandon)
                    processes[instance] = _read_instance(tunnel, instance, native=native, timeout_s=timeout_s)
            except PaiError as error:
                errors[instance] = error

        # Its threads are waited for, so tunnels are ended first after a deadline or an interrupt.
        pool = ThreadPoolExecutor(min(_MAX_TUNNELS, len(instances)), thread_name_prefix="pai-stacks")
        try:
            futures = [pool.submit(read, instance) for instance in instances]
            pending = wait(futures, timeout_s + _SLACK_S).not_done
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            tunnels.close()
    for future in futures:
        if future not in pending:
            future.result()
    missing = [name for name in instances if name not in processes and name not in errors]
    errors.update({name: TunnelClosedError("Timeout", "the instance did not respond in time") for name in missing})
    if not processes:
        raise next(iter(errors.values()))
    return JobStacks(
        job_id,
        tuple(process for name in instances for process in processes.get(name, ())),
        {name: str(errors[name]) for name in instances if name in errors},
    )


def _read_instance(
    tunnel: TunnelToInstance, instance: str, *, native: bool, timeout_s: float
) -> list[ProcessStack]:
    stream = tunnel.open("stacks", native=native, timeout_s=timeout_s)
    content = bytearray()
    try:
        while data := stream.read():
            content += data
            if len(content) > _MAX_BYTES:
                raise TunnelClosedError("InvalidResponse", "the stacks of the instance are too large")
    finally:
        stream.close()
    try:
        values = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise TunnelClosedError("InvalidResponse", "the instance has sent no stacks") from error
    processes = parse_processes(values if isinstance(values, dict) else {}, instance=instance)
    # An instance reports its own processes only, whatever it says.
    return [replace(process, instance=instance) for process in processes]


def _group_text(group: StackGroup) -> str:
    first, place = group.processes[0], group.user_frame
    where = f"in {place}" if place else first.program
    if group.is_in_debugger:
        return f"waiting in a debugger, {where}"
    if first.is_stopped:
        return f"{_STATES[first.state]}, {where}"
    if group.is_odd:
        return f"different from all others, {where}"
    return f"waiting for other ranks, {where}" if group.is_in_collective else where


def _process_text(processes: Sequence[ProcessStack]) -> str:
    percents = [each.cpu_percent for each in processes if each.cpu_percent is not None]
    parts = [_STATES.get(processes[0].state, "")]
    if percents:
        low, high = (f"{value:.0f}" for value in (min(percents), max(percents)))
        parts.append(f"{low} % CPU" if low == high else f"{low} to {high} % CPU")
    if any(each.is_moving for each in processes):
        parts.append("moving")
    elif processes[0].syscall or processes[0].wchan:
        parts.append(f"in {processes[0].syscall or processes[0].wchan}")
    return ", ".join(part for part in parts if part) or "no values of the kernel"


def _frame_lines(frames: Sequence[Frame], user_frame: Frame | None) -> Iterator[str]:
    omitted = len(frames) - _MAX_FRAMES
    if omitted > 0:
        yield f"    … {omitted} frames …"
    for frame in frames[max(0, omitted) :]:
        yield f"  {'>' if frame == user_frame else ' '} {frame}"


def _ranks_text(ranks: Iterable[int]) -> str:
    """Returns ranks as text: `ranks 0-3, 7`."""
    spans: list[list[int]] = []
    for rank in sorted(ranks):
        if spans and rank == spans[-1][1] + 1:
            spans[-1][1] = rank
        else:
            spans.append([rank, rank])
    text = ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)
    return f"rank {text}" if len(spans) == 1 and spans[0][0] == spans[0][1] else f"ranks {text}"
