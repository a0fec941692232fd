"""Collects the values of threads and tasks for the next steps of one hook.

Each thread and each task has a part of its own, so that threads that end steps themselves do not mix their rows. A
thread that has never ended a step is a helper of the training loop, such as a thread of an executor: its values
belong to the step that the loop ends.

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


class _Giver:
    """Identifies a thread that gives values. Not its ident, which Python assigns again to a later thread."""


class _ThreadGiver(threading.local):
    def __init__(self) -> None:
        self.giver = _Giver()


@dataclass(slots=True, eq=False)
class _Part:
    """The values of one thread or task for a step."""

    giver: object
    values: dict[str, Any] = field(default_factory=dict)
    is_foreign: bool = False  # the thread ends the steps of another hook
    is_due: bool = False  # a step was written without this part, which waits for the next one


_thread_giver = _ThreadGiver()


def current_giver() -> Any:
    """Returns the calling thread or task."""
    asyncio = sys.modules.get("asyncio")  # without the import, no task can be running
    if asyncio is not None and asyncio._get_running_loop() is not None:
        return asyncio.current_task() or _thread_giver.giver
    return _thread_giver.giver


class Steps:
    """The parts of the next steps of a hook with some columns. Safe to use from several threads."""

    def __init__(self, names: Iterable[str], *, allows_missing: bool) -> None:
        self._names = frozenset(names)
        self._allows_missing = allows_missing
        self._lock = threading.Lock()  # guards all below
        self._parts: list[_Part] = []
        self._loops: weakref.WeakSet[Any] = weakref.WeakSet()  # threads and tasks that end steps
        # Givers whose incomplete step another loop has ended: their next call raises.
        self._preempted: weakref.WeakSet[Any] = weakref.WeakSet()
        self._maker = weakref.ref(current_giver())

    def enter_loop(self) -> None:
        """Records that the caller ends steps."""
        with self._lock:
            self._loops.add(current_giver())

    def has_loop(self, giver: Any = None) -> bool:
        """Returns True when a thread or task ends steps of this hook; without an argument, when any does."""
        with self._lock:
            return bool(self._loops) if giver is None else giver in self._loops

    def is_maker(self, giver: Any) -> bool:
        """Returns True when a thread or task has created the hook."""
        return giver is self._maker()

    def disown(self, giver: Any) -> None:
        """Marks the parts of a thread as foreign, which drops them unless it ends steps of this hook, too."""
        with self._lock:
            for part in self._parts:
                part.is_foreign |= part.giver is giver

    def add(self, name: str, values: Any, *, is_foreign: bool = False) -> bool:
        """Adds a column to the caller's step; returns True when it replaces values."""
        giver = current_giver()
        with self._lock:
            mine = [part for part in self._parts if part.giver is giver]
            is_twice = bool(mine) and name in mine[-1].values
            is_helper = giver not in self._loops and giver is not self._maker()
            if not mine or (is_twice and is_helper and not is_foreign and self._is_complete(mine[-1])):
                # A helper that gives a column again, after a complete step, has started another batch.
                mine.append(_Part(giver))
                self._parts.append(mine[-1])
                is_twice = False
            mine[-1].values[name] = values
            mine[-1].is_foreign |= is_foreign
        return is_twice and not is_foreign

    def end_step(self, *, is_written: bool, waits: bool = False) -> list[dict[str, Any]]:
        """Returns the caller's step, and those of helpers; `is_written=False` drops them.

        A helper's part with all columns is a step. Parts that complete the caller's own step join it. Other parts
        wait: their threads can be within a step. Raises TraceError if another loop has ended the caller's step.
        """
        giver = current_giver()
        with self._lock:  # all of it: another loop must not end the same parts
            if giver in self._preempted:
                self._preempted.discard(giver)
                text = "another thread's after_step() took part of this thread's step; use a hook in each thread"
                raise TraceError(text)
            self._loops.add(giver)
            caller_step: dict[str, Any] = {}
            for part in self._parts:
                if part.giver is giver:
                    caller_step.update(part.values)
            self._parts = [part for part in self._parts if part.giver is not giver]
            self._drop_foreign()
            helpers = [part for part in self._parts if part.giver not in self._loops]
            # One of the helpers can turn out to end the steps of another hook.
            if waits:
                for part in helpers:
                    part.is_due |= is_written
                helpers = []
            elif not is_written:  # parts that are due belong to a step that was written, so they are not dropped
                helpers = [part for part in helpers if not part.is_due]
            complete = [part for part in helpers if self._is_complete(part)]
            halves = [part for part in helpers if not self._is_complete(part)]
            joined = self._joined(caller_step, halves) if is_written else []
            alone = (
                [part for part in halves if part not in joined] if self._allows_missing or not is_written else []
            )
            removed_ids = {id(part) for part in (*complete, *joined, *alone)}
            self._parts = [part for part in self._parts if id(part) not in removed_ids]
            # A thread of these that turns out to end steps itself lacks their values: its next call
            # raises.
            for part in (*joined, *alone, *(() if is_written else complete)):
                self._preempted.add(part.giver)
        return [step for step in (caller_step, *(part.values for part in (*complete, *alone))) if step]

    def _drop_foreign(self) -> None:
        self._parts = [part for part in self._parts if not part.is_foreign or part.giver in self._loops]

    def _joined(self, caller_step: dict[str, Any], halves: list[_Part]) -> list[_Part]:
        """Joins parts with other columns to the caller's step, if that completes it; returns these parts."""
        joined, names = [], set(caller_step)
        for part in halves:
            if names < self._names and names.isdisjoint(part.values):
                joined.append(part)
                names |= part.values.keys()
        if not (self._allows_missing or self._names <= names):
            return []
        for part in joined:
            caller_step.update(part.values)
        return joined

    def drain(self) -> list[dict[str, Any]]:
        """Removes and returns all remaining values, as steps; the last ones can be incomplete."""
        with self._lock:
            self._drop_foreign()
            parts, self._parts = self._parts, []
        complete = [part.values for part in parts if self._is_complete(part)]
        halves: list[dict[str, Any]] = []
        for values in [part.values for part in parts if not self._is_complete(part)]:
            if halves and halves[-1].keys().isdisjoint(values):
                halves[-1].update(values)
            else:
                halves.append(values)
        return [*complete, *halves]

    def waiting(self) -> set[str]:
        """Returns the columns that wait for the end of a step."""
        with self._lock:
            return {name for part in self._parts for name in part.values}

    def _is_complete(self, part: _Part) -> bool:
        return self._names <= part.values.keys()
