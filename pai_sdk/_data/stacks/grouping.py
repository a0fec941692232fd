"""Groups equal stacks of ranks, and names the ranks whose stack differs from that of all others.

A rank of a job that hangs is rarely the one that waits: the others wait for it in a collective operation. Stacks
are compared up to the first frame of such an operation, since its root and its leaves run other lines of it. Of
frames without a known name, the first caller that all ranks share decides: below it, branches are compared by the
function that they wait in.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pai_sdk._data.stacks.frames import Frame
from pai_sdk._data.stacks.processes import ProcessStack

_Key = tuple[object, ...]


@dataclass(frozen=True)
class StackGroup:
    """Ranks of one role with equal stacks.

    Attributes:
        processes: the processes of the ranks, by rank.
        is_odd: whether these ranks differ, while the others agree.
    """

    processes: tuple[ProcessStack, ...]
    is_odd: bool = False

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks, in order."""
        return tuple(process.rank for process in self.processes if process.rank is not None)

    @property
    def frames(self) -> tuple[Frame, ...]:
        """The stack of the first of these ranks, the outermost call first."""
        return self.processes[0].frames

    @property
    def user_frame(self) -> Frame | None:
        """The last frame of user code."""
        return self.processes[0].user_frame

    @property
    def is_in_collective(self) -> bool:
        """Whether these ranks wait in an operation of all ranks."""
        return self.processes[0].is_in_collective

    @property
    def is_in_debugger(self) -> bool:
        """Whether one of these ranks waits in a debugger."""
        return any(process.is_in_debugger for process in self.processes)

    @property
    def is_noticeable(self) -> bool:
        """Whether the group comes first: an odd one, or one in a debugger."""
        return self.is_odd or self.is_in_debugger


def group_stacks(processes: Iterable[ProcessStack]) -> list[StackGroup]:
    """Returns ranks with equal stacks once: odd ranks first, then the largest groups."""
    groups = []
    for members in _by_role(processes):
        odd = set(_odd_of_role(members))
        keyed: dict[_Key, list[ProcessStack]] = {}
        for process in members:
            keyed.setdefault((process.rank in odd, *_key(process)), []).append(process)
        groups += [StackGroup(tuple(group), key[0] is True) for key, group in keyed.items()]
    return sorted(groups, key=lambda group: (not group.is_noticeable, -len(group.processes), group.ranks))


def odd_ranks(processes: Iterable[ProcessStack]) -> tuple[int, ...]:
    """Returns the ranks whose stack differs while all others agree; empty if no group stands out.

    Only processes of the kind `rank` count, and only ranks of one role are compared. A rank in a debugger is no
    odd rank. This says nothing about time: a rank that evaluates a model has the same picture. So compare two
    reads (`ProcessStack.signature`) and the CPU time of the odd rank.
    """
    return tuple(sorted(rank for members in _by_role(processes) for rank in _odd_of_role(members)))


def _by_role(processes: Iterable[ProcessStack]) -> list[list[ProcessStack]]:
    roles: dict[str, dict[int, ProcessStack]] = {}
    for process in processes:
        if process.kind == "rank" and process.rank is not None:
            roles.setdefault(process.role, {}).setdefault(process.rank, process)
    return [[ranks[rank] for rank in sorted(ranks)] for ranks in roles.values()]


def _odd_of_role(members: Sequence[ProcessStack]) -> list[int]:
    stopped = [process for process in members if process.is_stopped]
    moving = [process for process in members if not process.is_stopped]
    # A stopped process holds up all others, whatever its stack.
    if stopped and len(stopped) <= len(moving):
        return _ranks(stopped)
    debugged = [process for process in members if process.is_in_debugger]
    # A stack that could not be read says nothing, unless none could.
    members = [process for process in members if process.frames] or members
    if debugged or len(members) < 2:
        return []
    waiting = [process for process in members if process.is_in_collective]
    awaited = [process for process in members if not process.is_in_collective]
    if waiting and awaited:
        # The waiting ranks agree if most of them are in one operation.
        largest = max(_branches(waiting), key=len)
        is_agreed = 2 * len(largest) > len(waiting) and len(awaited) <= len(waiting)
        return _ranks(awaited) if is_agreed else []
    branches = _branches(members)
    largest = max(branches, key=len)
    if 2 * len(largest) <= len(members) or not _agree(largest):
        return []
    return _ranks(process for process in members if process not in largest)


def _branches(members: Sequence[ProcessStack]) -> list[list[ProcessStack]]:
    """Returns the members by their next call below the last caller that all share; equal leaves are one branch."""
    keys = [_key(process) for process in members]
    shared = 0
    while all(len(key) > shared for key in keys) and len({key[shared] for key in keys}) == 1:
        shared += 1
    branches: dict[object, list[ProcessStack]] = {}
    for process, key in zip(members, keys, strict=True):
        branches.setdefault(key[shared] if len(key) > shared else None, []).append(process)
    merged: list[list[ProcessStack]] = []
    for branch in branches.values():
        same = next((other for other in merged if _has_same_leaf(other[0], branch[0])), None)
        if same is None:
            merged.append(branch)
        else:
            same += branch
    return merged


def _agree(members: Sequence[ProcessStack]) -> bool:
    first = members[0]
    return all(_key(process) == _key(first) or _has_same_leaf(process, first) for process in members)


def _has_same_leaf(left: ProcessStack, right: ProcessStack) -> bool:
    """Returns whether both wait in one function: the root of a hand-written collective has other lines there."""
    if left.is_in_collective or right.is_in_collective or not left.frames or not right.frames:
        return False
    return left.frames[-1][:2] == right.frames[-1][:2] and left.frames[-1].is_user


def _key(process: ProcessStack) -> _Key:
    """Returns what is compared: the frames up to a collective operation, of which only the function counts."""
    if not process.frames:
        return (process.program, process.state, process.wchan, process.syscall)
    key: list[object] = [process.is_stopped]
    for frame in process.frames:
        if frame.is_collective:
            key.append((frame.function, frame.file))
            break
        # Addresses of functions without a name differ from process to process.
        if not frame.is_native:
            key.append(frame)
    return tuple(key)


def _ranks(processes: Iterable[ProcessStack]) -> list[int]:
    return [process.rank for process in processes if process.rank is not None]
