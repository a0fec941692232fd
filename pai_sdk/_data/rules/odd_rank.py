"""Which rank is where no other rank is, by stacks, step counters and CPU."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pai_sdk._data.rules.signals import BUSY_CORES
from pai_sdk._data.stacks.frames import Frame
from pai_sdk._data.stacks.grouping import group_stacks, odd_ranks
from pai_sdk._data.stacks.processes import ProcessStack

_SPINNING_CORES = 0.8
_MAX_FRAMES = 12


def ranks_of(processes: Iterable[ProcessStack]) -> list[ProcessStack]:
    """Returns the training processes, without launchers and loaders."""
    return [process for process in processes if process.kind == "rank" and process.rank is not None]


def odd_by_stacks(processes: Sequence[ProcessStack]) -> ProcessStack | None:
    """Returns the only rank that differs from all others; None if there is none, or more than one."""
    odd = odd_ranks(processes)
    if len(odd) != 1:
        return None
    return next((process for process in ranks_of(processes) if process.rank == odd[0]), None)


def all_wait(before: Sequence[ProcessStack], now: Sequence[ProcessStack]) -> bool:
    """Returns whether all ranks wait for others, at the same lines in two samples."""
    ranks = ranks_of(now)
    is_waiting = len(ranks) > 1 and all(process.is_in_collective for process in ranks)
    return is_waiting and _signatures(before) == _signatures(now)


def is_unchanged(rank: int | None, before: Sequence[ProcessStack], now: Sequence[ProcessStack]) -> bool:
    """Returns whether a rank is at the same lines in two samples."""
    first, second = _signatures(before), _signatures(now)
    return rank in first and first[rank] == second.get(rank)


def _signatures(processes: Sequence[ProcessStack]) -> dict[int | None, object]:
    return {process.rank: process.signature for process in ranks_of(processes)}


def odd_by_steps(steps: Mapping[str, int]) -> str | None:
    """Returns the only instance that is behind all others."""
    if len(steps) < 2:
        return None
    min_step = min(steps.values())
    behind = [name for name, step in steps.items() if step == min_step]
    return behind[0] if len(behind) == 1 else None


def odd_by_cpu(cores: Mapping[str, float]) -> str | None:
    """Returns the only idle instance of a job whose others spin, as those that wait in NCCL and MPI do."""
    idle = [name for name, used in cores.items() if used < BUSY_CORES]
    spins = all(used >= _SPINNING_CORES for name, used in cores.items() if name not in idle)
    return idle[0] if len(idle) == 1 and len(cores) >= 3 and spins else None


def stack_rows(processes: Sequence[ProcessStack]) -> list[dict[str, object]]:
    """Returns equal stacks once, as JSON: the ranks, and the innermost frames first."""
    groups = group_stacks(processes)
    if not groups:  # a job of one instance has no ranks
        return [_row([process]) for process in processes if process.frames]
    return [{**_row(group.processes), "is_odd": group.is_odd} for group in groups]


def _row(processes: Sequence[ProcessStack]) -> dict[str, object]:
    return {
        "ranks": [process.rank for process in processes if process.rank is not None],
        "instances": sorted({process.instance for process in processes}),
        "frames": [_text(frame) for frame in reversed(processes[0].frames[-_MAX_FRAMES:])],
    }


def position_of(process: ProcessStack | None) -> str:
    """Returns where the code of the user is; empty if it is unknown."""
    frame = None if process is None else process.user_frame
    return "" if frame is None else f", in {frame.function} ({frame.file.rpartition('/')[2]}:{frame.line})"


def _text(frame: Frame) -> str:
    return f"{frame.function} ({frame.file}:{frame.line})"
