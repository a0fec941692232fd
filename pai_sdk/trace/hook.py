"""Collects values within a step of a training loop, and writes them at the step's end.

    trace("loss", losses)        copied at once, into each hook that has the column
    hook.after_step()            writes the step's columns
    hook.end()                   returns when all rows are stored

The names of RecIS (`add_to_trace`, `get_trace_map`, `clear_trace_map`, `TraceToOdpsHook`) work as well.

Which hooks take a value: those that were made in this context (thread or task), else all hooks of the process.
Hooks of one context form a group. Where two groups have the column, `trace` raises: it must not guess whose rows
they are. Which step a value belongs to is decided in `steps.py`.
"""

from __future__ import annotations

import logging
import sys
import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import Any, TypeVar

from pai_sdk.base.hints import is_of_type, name_hint
from pai_sdk.errors import InvalidInputError, PaiError, Problem, TraceError
from pai_sdk.trace.columns import as_numpy
from pai_sdk.trace.steps import Steps, giver_here
from pai_sdk.trace.trace_writer import CLOSE_S, TraceWriter

__all__ = ["TraceHook", "add_to_trace", "clear_trace_map", "get_trace_map", "trace"]

logger = logging.getLogger(__name__)

_Batch = TypeVar("_Batch")
_WHEN = ("train", "eval", "both")


class _Group:
    """Hooks of one context share it; it has the map of their step."""

    def __init__(self) -> None:
        self.step: dict[str, Any] = {}


_group: ContextVar[_Group | None] = ContextVar("trace_group", default=None)
# Hooks that have not ended. Threads share the list without a lock: appending, removing and copying are atomic.
_active: list[weakref.ref[TraceHook]] = []


class TraceHook:
    """Writes what `trace` collects in each step.

    `trace` reaches the hook from every thread and task of the process. Hooks that were made in different threads
    are kept apart: `trace` in such a thread reaches the hook that was made there. Several hooks of one thread each
    take the columns that they have. If two threads end the steps of two such hooks, each hook gets the values of
    its own thread.

    Args:
        writer: takes the rows. The hook closes it in `end`.
        when: the steps to write: those of training, of evaluation, or both.

    Raises:
        InvalidInputError: `when` is none of the three.

    Example:
        >>> import tempfile
        >>> from pai_sdk.trace import ParquetSink, read_trace
        >>> folder = tempfile.mkdtemp()
        >>> hook = TraceHook(TraceWriter({"loss": "double"}, ParquetSink(folder)))
        >>> for batch in hook.steps([[1.0, 2.0], [3.0]]):
        ...     trace("loss", batch)
        >>> read_trace(folder).to_arrow()["loss"].to_pylist()
        [1.0, 2.0, 3.0]
    """

    def __init__(self, writer: TraceWriter, *, when: str = "train") -> None:
        if when not in _WHEN:
            raise InvalidInputError([Problem("when", f"{when!r} is not supported", "'train', 'eval' or 'both'")])
        self.writer = writer
        self.when = when
        self._begin()

    def _begin(self) -> None:
        self._steps = Steps(self.writer.schema.names, may_miss=self.writer.missing == "null")
        self._late_error: PaiError | None = None
        self._group = _own_group()
        self._ref = weakref.ref(self, _deactivate)
        _active.append(self._ref)

    def __getstate__(self) -> dict[str, Any]:
        # In another process it is a new hook with a new writer: values and rows stay where they are.
        own = ("_steps", "_late_error", "_group", "_ref")
        return {name: value for name, value in vars(self).items() if name not in own}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        vars(self).update(state)
        self._begin()

    def __enter__(self) -> TraceHook:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.end()
            return
        _deactivate(self._ref)
        self.writer.__exit__(kind, error, trace)

    def trace(self, name: str, values: Any) -> None:
        """Take the values of one column for this step; errors as for `trace`.

        Raises:
            TraceError: the hook has ended, or belongs to another process.
        """
        if not self.has_column(name):
            raise InvalidInputError([_no_such_column(name, self.writer.schema.names)])
        self._take(name, _copied(name, values))

    def _take(self, name: str, values: Any) -> None:
        self.writer.check_process()
        if self.has_ended:
            raise TraceError("the hook has ended; it takes no more values")
        giver = giver_here()
        is_foreign = not self._steps.has_loop(giver) and any(
            hook._steps.has_loop(giver) for hook in self._siblings()
        )
        if self._steps.add(name, values, is_foreign=is_foreign):
            _warn_twice(name)

    def _is_of_siblings(self, giver: Any) -> bool:
        return any(hook._steps.has_loop(giver) for hook in self._siblings())

    def _siblings(self) -> list[TraceHook]:
        """Returns the other hooks of this one's group that have some of its columns."""
        return [
            hook
            for hook in _live()
            if hook is not self
            and hook._group is self._group
            and any(map(self.has_column, hook.writer.schema.names))
        ]

    def has_column(self, name: str) -> bool:
        """True if the writer's schema has it."""
        return name in self.writer.schema.names

    @contextmanager
    def bound(self) -> Iterator[TraceHook]:
        """Within it, `trace` in this thread or task reaches the hooks of the thread that made this one.

        For helpers of a training, where several trainings run in threads of one process.
        """
        before = _group.set(self._group)
        try:
            yield self
        finally:
            _group.reset(before)

    def after_step(self, is_train: bool = True, *args: Any, **kwargs: Any) -> None:
        """Write the step's columns, unless the step is of the kind that is left out, or has none.

        It takes what this thread or task gave, and what threads gave that have never called it.

        Raises:
            InvalidInputError: the columns do not fit the schema or each other.
            TraceError: an earlier block could not be stored, or the hook has ended.
        """
        late, self._late_error = self._late_error, None
        if late is not None:
            raise late
        self.writer.check_usable()
        if self.has_ended:  # by another thread, whose `end` waits for the writer
            raise TraceError("the hook has ended; it writes no more steps")
        self._write(self._taken(is_kept=self._writes(is_train)), is_train)

    def discard_step(self) -> dict[str, Any]:
        """Forget the step's columns without writing them; returns them."""
        return {name: values for step in self._taken(is_kept=False) for name, values in step.items()}

    def _writes(self, is_train: bool) -> bool:
        return self.when in ("both", "train" if is_train else "eval")

    def _write(self, steps: Iterable[dict[str, Any]], is_train: bool) -> None:
        failed: InvalidInputError | None = None
        for step in steps if self._writes(is_train) else ():
            try:
                self.writer.write(step)
            except InvalidInputError as error:  # the steps of other threads count all the same
                failed = failed or error
        if failed is not None:
            raise failed

    def _taken(self, *, is_kept: bool) -> list[dict[str, Any]]:
        """The steps that end now. What no other hook of the group waits for leaves the map."""
        giver, siblings = giver_here(), self._siblings()
        # A thread that did not make the hooks ends the steps of this one. Until another one ends those of the
        # others, the values of unknown threads may be theirs.
        waits = not self._steps.is_maker(giver) and not all(hook._steps.has_loop() for hook in siblings)
        steps = self._steps.take(is_kept=is_kept, waits=waits)
        for hook in siblings:
            if not hook._steps.has_loop(giver):
                hook._steps.disown(giver)
        waiting = {name for hook in _live() if hook._group is self._group for name in hook._steps.waiting()}
        gone = {name for step in steps for name in step} - waiting
        step = dict(self._group.step)  # at once: other threads may add to it
        self._group.step = {name: values for name, values in step.items() if name not in gone}
        return steps

    def end(self, is_train: bool = True, *args: Any, deadline_s: float = CLOSE_S, **kwargs: Any) -> None:
        """Store all rows, and end the writer. It may be called in any thread.

        Values that were given after the last `after_step` are written as a step, too.

        Args:
            is_train: the kind of such a step.
            *args: not used.
            deadline_s: longest time to wait, in seconds.
            **kwargs: not used.

        Raises:
            InvalidInputError: such values are not a whole step. All other rows are stored.
            TraceError: some rows are not stored; it says how many and why.
        """
        left = self._finish(is_train, deadline_s)
        if left is not None and sys.exc_info()[1] is None:
            raise left
        if left is not None:  # a training that failed within a step: its error is the one to see
            logger.error("the last step was not written: %s", left)

    def _finish(self, is_train: bool, deadline_s: float) -> PaiError | None:
        """End the hook; the error of values that are not stored, other than for the sink's failure."""
        _deactivate(self._ref)
        left, self._late_error = self._late_error, None
        try:
            self._write_rest(is_train)
        except PaiError as error:
            left = left or error
        self.writer.close(deadline_s)
        return left

    def _write_rest(self, is_train: bool) -> None:
        """Write what was given after the last `after_step`."""
        steps = self._steps.rest()
        if steps:
            done = (
                "end() writes them as a step" if self._writes(is_train) else f"when={self.when!r} leaves them out"
            )
            logger.warning("values were traced after the last after_step(); %s", done)
            self._write(steps, is_train)

    @property
    def has_ended(self) -> bool:
        """True if `end` was called."""
        return self._ref not in _active

    def check_alive(self) -> bool:
        """True if the writer takes rows."""
        return self.writer.is_usable

    def steps(self, batches: Iterable[_Batch]) -> Iterator[_Batch]:
        """Go through batches: each pass of the loop's body is a step; after the last one, `end` is called.

        An exception in the body, or a `break`, ends the hook too; the step counts if it has all columns. Python
        drops errors at that moment: they are logged, and raised by the next call of the hook.
        """
        self._steps.enter_loop()
        try:
            for batch in batches:
                yield batch
                self.after_step()
        except GeneratorExit:
            try:
                self._late_error = self._finish(True, CLOSE_S)
            except PaiError as error:
                self._late_error = error
            if self._late_error is not None:
                logger.error("%s", self._late_error)
            raise
        except BaseException:
            self.__exit__(*sys.exc_info())
            raise
        self.end()

    # A training loop of RecIS calls these for every hook. There is nothing to do in them.

    def before_train(self, *args: Any, **kwargs: Any) -> None:
        """Does nothing."""

    after_train = before_evaluate = after_evaluate = before_epoch = after_epoch = before_step = before_train


def trace(name: str, values: Any) -> None:
    """Take the values of one column for the current step. They are copied.

    Args:
        name: the column.
        values: a tensor, numpy array or list, with one item a row.

    Raises:
        InvalidInputError: the values are of another type, no hook has such a column, or it is not clear which one
            is meant: hooks of several threads have it, and this thread made none of them.
        TraceError: the hook belongs to another process.
    """
    copied = _copied(name, values)
    hooks = _hooks_here()
    takers = [hook for hook in hooks if hook.has_column(name)]
    if hooks and not takers:
        known = {column for hook in hooks for column in hook.writer.schema.names}
        raise InvalidInputError([_no_such_column(name, known)])
    if len({id(hook._group) for hook in takers}) > 1:
        hint = "call hook.trace(), or use `with hook.bound():` in this thread"
        raise InvalidInputError([Problem(f"trace {name!r}", "hooks of several threads have this column", hint)])
    step = takers[0]._group.step if takers else get_trace_map()
    if name in step and not takers:
        _warn_twice(name)
    for hook in takers:
        hook._take(name, copied)
    step[name] = copied


def add_to_trace(name: str, tensor: Any = None) -> None:
    """The function of RecIS: as `trace`, but it takes no tuples, and its second argument has a default."""
    if isinstance(tensor, tuple):
        raise InvalidInputError([_not_values(name, tensor)])
    trace(name, tensor)


def get_trace_map() -> dict[str, Any]:
    """The values of the current step, of this thread's hooks or else of the process's: name to array or list."""
    hooks = _hooks_here()
    return (hooks[0]._group if hooks else _own_group()).step


def clear_trace_map() -> dict[str, Any]:
    """Begin with a new, empty map, which is returned. The one before stays as it is."""
    hooks = _hooks_here()
    group = hooks[0]._group if hooks else _own_group()
    group.step = {}
    return group.step


def _own_group() -> _Group:
    found = _group.get()
    if found is None:
        found = _Group()
        _group.set(found)
    return found


def _live() -> list[TraceHook]:
    return [hook for ref in tuple(_active) if (hook := ref()) is not None and not hook.writer.is_closed]


def _hooks_here() -> list[TraceHook]:
    """The hooks that were made in this context, or else all of the process."""
    live, own = _live(), _group.get()
    return [hook for hook in live if hook._group is own] or live


def _deactivate(ref: weakref.ref[TraceHook]) -> None:
    if ref in _active:
        _active.remove(ref)


def _no_such_column(name: str, known: Iterable[str]) -> Problem:
    return Problem(f"trace {name!r}", "no hook has such a column", name_hint(name, known))


def _warn_twice(name: str) -> None:
    logger.warning("trace %r was given twice in one step; the last values are kept", name)


def _not_values(name: str, values: Any) -> Problem:
    return Problem(f"trace {name!r}", is_of_type(values), "give a tensor, a numpy array or a list")


def _copied(name: str, values: Any) -> Any:
    """The values in memory of their own.

    Raises:
        InvalidInputError: they are neither a tensor nor an array nor a list.
    """
    try:
        array = as_numpy(values)
    except TypeError:
        raise InvalidInputError([_not_values(name, values)]) from None
    return list(values) if array is None else array.copy()
