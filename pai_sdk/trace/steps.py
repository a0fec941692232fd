"""The values that threads and tasks have given for the next steps of one hook.

Each thread and each task collects a part of its own, so that threads which end steps themselves do not mix their
rows. A thread that has never ended a step is a helper of the training loop, such as a thread of an executor: its
values belong to the step that the loop ends.

Several hooks of one thread get the values of all threads. Where a thread ends the steps of one of these hooks, and
another thread those of another one, the first thread's values are foreign to the other hook, and dropped there.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from pai_sdk.errors import TraceError

__all__ = ["Steps", "giver_here"]


class _Giver:
    """A thread that gives values. Not its number, which a later thread gets again."""


class _Here(threading.local):
    def __init__(self) -> None:
        self.giver = _Giver()


@dataclass(slots=True, eq=False)
class _Part:
    """The values of one thread or task for a step."""

    giver: object
    values: dict[str, Any] = field(default_factory=dict)
    is_foreign: bool = False  # its thread ends the steps of another hook
    is_due: bool = False  # of a step that was written without it


_here = _Here()


def giver_here() -> Any:
    """The thread or task that calls."""
    asyncio = sys.modules.get("asyncio")
    if asyncio is not None and asyncio._get_running_loop() is not None:
        return asyncio.current_task() or _here.giver
    return _here.giver


class Steps:
    """The parts of the next steps. Safe for many threads.

    Args:
        names: the columns of a whole step.
        may_miss: whether a step may lack columns.
    """

    def __init__(self, names: Iterable[str], *, may_miss: bool) -> None:
        self._names = frozenset(names)
        self._may_miss = may_miss
        self._lock = threading.Lock()  # guards all below
        self._parts: list[_Part] = []
        self._loops: weakref.WeakSet[Any] = weakref.WeakSet()  # threads and tasks that end steps
        self._robbed: weakref.WeakSet[Any] = weakref.WeakSet()  # those of which another loop took half a step
        self._maker = weakref.ref(giver_here())

    def enter_loop(self) -> None:
        """Record that the caller ends steps."""
        with self._lock:
            self._loops.add(giver_here())

    def has_loop(self, giver: Any = None) -> bool:
        """Return whether a thread or task ends steps here; without an argument, whether any does."""
        with self._lock:
            return bool(self._loops) if giver is None else giver in self._loops

    def is_maker(self, giver: Any) -> bool:
        """Return whether a thread or task made the hook."""
        return giver is self._maker()

    def disown(self, giver: Any) -> None:
        """Mark what a thread gave that ends the steps of another hook, unless it ends steps here, too."""
        with self._lock:
            for part in self._parts:
                part.is_foreign |= part.giver is giver

    def add(self, name: str, values: Any, *, is_foreign: bool = False) -> bool:
        """Add a column to the caller's step; whether it replaces one.

        Args:
            name: the column.
            values: its values.
            is_foreign: whether the caller ends the steps of another hook.
        """
        giver = giver_here()
        with self._lock:
            mine = [part for part in self._parts if part.giver is giver]
            is_twice = bool(mine) and name in mine[-1].values
            is_helper = giver not in self._loops and giver is not self._maker()
            if not mine or (is_twice and is_helper and not is_foreign and self._is_whole(mine[-1])):
                # A helper that gives a column again, after a whole step, has another batch.
                mine.append(_Part(giver))
                self._parts.append(mine[-1])
                is_twice = False
            mine[-1].values[name] = values
            mine[-1].is_foreign |= is_foreign
        return is_twice and not is_foreign

    def take(self, *, is_kept: bool, waits: bool = False) -> list[dict[str, Any]]:
        """The caller's step, and those of helpers.

        A helper's part with all columns is a step. Parts that complete the caller's own step join it. Others wait:
        their threads may be within a step.

        Args:
            is_kept: whether they will be written.
            waits: leave the parts of helpers: one of them may turn out to end the steps of another hook.

        Raises:
            TraceError: a half of the caller's step was taken by another loop.
        """
        giver = giver_here()
        with self._lock:
            if giver in self._robbed:
                self._robbed.discard(giver)
                text = "another thread's after_step() took part of this thread's step; use a hook in each thread"
                raise TraceError(text)
            self._loops.add(giver)
            own: dict[str, Any] = {}
            for part in self._parts:
                if part.giver is giver:
                    own.update(part.values)
            self._parts = [part for part in self._parts if part.giver is not giver]
            self._drop_foreign()
            helpers = [part for part in self._parts if part.giver not in self._loops]
            if waits:
                for part in helpers:
                    part.is_due |= is_kept
                helpers = []
            elif not is_kept:
                helpers = [part for part in helpers if not part.is_due]
            whole = [part for part in helpers if self._is_whole(part)]
            halves = [part for part in helpers if not self._is_whole(part)]
            joined = self._joined(own, halves) if is_kept else []
            alone = [part for part in halves if part not in joined] if self._may_miss or not is_kept else []
            taken = {id(part) for part in (*whole, *joined, *alone)}
            self._parts = [part for part in self._parts if id(part) not in taken]
            for part in (*joined, *alone, *(() if is_kept else whole)):
                self._robbed.add(part.giver)
        return [step for step in (own, *(part.values for part in (*whole, *alone))) if step]

    def _drop_foreign(self) -> None:
        self._parts = [part for part in self._parts if not part.is_foreign or part.giver in self._loops]

    def _joined(self, own: dict[str, Any], halves: list[_Part]) -> list[_Part]:
        """Joins the parts to a step that has none of their columns, if it is whole then."""
        joined, names = [], set(own)
        for part in halves:
            if names < self._names and names.isdisjoint(part.values):
                joined.append(part)
                names |= part.values.keys()
        if not (self._may_miss or self._names <= names):
            return []
        for part in joined:
            own.update(part.values)
        return joined

    def rest(self) -> list[dict[str, Any]]:
        """All that is left, as steps; the last of them may be half a step."""
        with self._lock:
            self._drop_foreign()
            parts, self._parts = self._parts, []
        whole = [part.values for part in parts if self._is_whole(part)]
        halves: list[dict[str, Any]] = []
        for values in [part.values for part in parts if not self._is_whole(part)]:
            if halves and halves[-1].keys().isdisjoint(values):
                halves[-1].update(values)
            else:
                halves.append(values)
        return [*whole, *halves]

    def waiting(self) -> set[str]:
        """The columns that wait for the end of a step."""
        with self._lock:
            return {name for part in self._parts for name in part.values}

    def _is_whole(self, part: _Part) -> bool:
        return self._names <= part.values.keys()
