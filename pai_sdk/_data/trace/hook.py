"""Collects values within a step of a training loop, and writes them at the step's end.

    trace("loss", losses)        copied at once, into each hook that has the column
    hook.after_step()            writes the step's columns
    hook.end()                   returns when all rows are stored

The names of RecIS (`add_to_trace`, `get_trace_map`, `clear_trace_map`, `TraceToOdpsHook`) work as well.

A value goes to the hooks that were created in this context (thread or task), else to all hooks of the process.
Hooks of one context form a group. Where two groups have the column, `trace` raises, since it must not guess the
group of the rows. `steps.py` assigns a value to a step.
"""

from __future__ import annotations

import logging
import sys
import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from types import TracebackType
from typing import Any, TypeVar

from pai_sdk._core.names.hints import name_hint, wrong_type
from pai_sdk._data.trace.items import as_numpy
from pai_sdk._data.trace.steps import Steps, current_giver
from pai_sdk._data.trace.trace_writer import CLOSE_S, TraceWriter
from pai_sdk.errors import InvalidInputError, PaiError, Problem, TraceError

logger = logging.getLogger(__name__)

_Batch = TypeVar("_Batch")
_WHEN = ("train", "eval", "both")


class _Group:
    """The state that hooks of one context share: the map of their step."""

    def __init__(self) -> None:
        self.step: dict[str, Any] = {}


# The group of this thread or task. A helper thread has none, and gets that of a hook with `bound`.
_group: ContextVar[_Group | None] = ContextVar("trace_group", default=None)
# Hooks that have not ended. Threads share the list without a lock: append, remove and tuple() are atomic.
_active: list[weakref.ref[TraceHook]] = []


class TraceHook:
    """Writes the values that `trace` collects in each step.

    `trace` reaches the hook from every thread and task of the process. Hooks that were created in different
    threads are separate: `trace` in such a thread reaches the hook that was created there. Several hooks of one
    thread each accept the columns of their schema. If two threads end the steps of two such hooks, each hook gets
    the values of its own thread.

    Args:
        writer: receives the rows. The hook closes it in `end`.
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
        self._start()

    def _start(self) -> None:
        self._steps = Steps(self.writer.schema.names, allows_missing=self.writer.missing == "null")
        self._late_error: PaiError | None = None  # from a `break` out of `steps`; the next call raises it
        self.group = _current_group()
        self._ref = weakref.ref(self, _deactivate)  # weak, so that a hook that is dropped leaves the list
        _active.append(self._ref)

    def __getstate__(self) -> dict[str, Any]:
        # A pickled hook becomes a new hook with a new writer: values and rows stay in this process.
        excluded = ("_steps", "_late_error", "group", "_ref")
        return {name: value for name, value in vars(self).items() if name not in excluded}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        vars(self).update(state)
        self._start()

    def __enter__(self) -> TraceHook:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.end()
            return
        _deactivate(self._ref)  # the values of the failed step are dropped
        self.writer.__exit__(kind, error, trace)

    def trace(self, name: str, values: Any) -> None:
        """Adds the values of one column to this step; errors as for `trace`.

        Raises:
            TraceError: the hook has ended, or belongs to another process.
        """
        if not self.has_column(name):
            raise InvalidInputError([_no_such_column(name, self.writer.schema.names)])
        self.add_copied(name, _copied(name, values))

    def add_copied(self, name: str, values: Any) -> None:
        """Adds values of one column that the caller does not change afterwards."""
        self.writer.check_process()
        if self.has_ended:
            raise TraceError("the hook is closed; it accepts no more values")
        giver = current_giver()
        # A thread that ends the steps of a sibling only gives values for that sibling, see `steps`.
        is_foreign = not self._steps.has_loop(giver) and any(
            hook._steps.has_loop(giver) for hook in self._siblings()
        )
        if self._steps.add(name, values, is_foreign=is_foreign):
            _warn_twice(name)

    def _siblings(self) -> list[TraceHook]:
        """Returns the other hooks of the group that have some of the columns."""
        return [
            hook
            for hook in _live()
            if hook is not self
            and hook.group is self.group
            and any(map(self.has_column, hook.writer.schema.names))
        ]

    def has_column(self, name: str) -> bool:
        """Returns True if the writer's schema has the column."""
        return name in self.writer.schema.names

    @contextmanager
    def bound(self) -> Iterator[TraceHook]:
        """Lets `trace` in this thread or task reach the hooks of the thread that created this hook.

        For helper threads, where several trainings run in threads of one process.
        """
        before = _group.set(self.group)
        try:
            yield self
        finally:
            _group.reset(before)

    def after_step(self, is_train: bool = True, *args: Any, **kwargs: Any) -> None:
        """Writes the step's columns, unless `when` leaves the step out, or it has none.

        The step has the values of this thread or task, and those of threads that have never called this method.

        Raises:
            InvalidInputError: the columns do not fit the schema or each other.
            TraceError: an earlier block could not be stored, or the hook has ended.
        """
        late, self._late_error = self._late_error, None
        if late is not None:
            raise late
        self.writer.check_usable()
        if self.has_ended:  # another thread has called `end`, which waits for the writer
            raise TraceError("the hook is closed; it writes no more steps")
        self._write(self._finished_steps(is_written=self._writes(is_train)), is_train)

    def discard_step(self) -> dict[str, Any]:
        """Drops the step's columns without writing them; returns them."""
        return {name: values for step in self._finished_steps(is_written=False) for name, values in step.items()}

    def _writes(self, is_train: bool) -> bool:
        return self.when in ("both", "train" if is_train else "eval")

    def _write(self, steps: Iterable[dict[str, Any]], is_train: bool) -> None:
        failed: InvalidInputError | None = None
        for step in steps if self._writes(is_train) else ():
            try:
                self.writer.write(step)
            except InvalidInputError as error:  # the steps of other threads are written nevertheless
                failed = failed or error
        if failed is not None:
            raise failed

    def _finished_steps(self, *, is_written: bool) -> list[dict[str, Any]]:
        """Returns the steps that end now; removes values that no other hook waits for from the map."""
        giver, siblings = current_giver(), self._siblings()
        # If a thread that did not create the hooks ends the steps of this one, another thread may end those of the
        # siblings. Until each sibling has such a thread, values of unknown threads can belong to the siblings.
        waits = not self._steps.is_maker(giver) and not all(hook._steps.has_loop() for hook in siblings)
        steps = self._steps.end_step(is_written=is_written, waits=waits)
        # This thread ends the steps of this hook, so siblings drop its values, unless it ends their steps, too.
        for hook in siblings:
            if not hook._steps.has_loop(giver):
                hook._steps.disown(giver)
        # Columns for which another hook of the group waits stay in the map.
        waiting = {name for hook in _live() if hook.group is self.group for name in hook._steps.waiting()}
        gone = {name for step in steps for name in step} - waiting
        step = dict(self.group.step)  # a copy in one atomic call: other threads can add to it
        self.group.step = {name: values for name, values in step.items() if name not in gone}
        return steps

    def end(self, is_train: bool = True, *args: Any, deadline_s: float = CLOSE_S, **kwargs: Any) -> None:
        """Stores all rows, and closes the writer. Any thread can call it.

        Values that were traced after the last `after_step` are written as a step, too.

        Args:
            is_train: the kind of such a step.
            *args: not used.
            deadline_s: the maximum time to wait, in seconds.
            **kwargs: not used.

        Raises:
            InvalidInputError: such values are not a complete step. All other rows are stored.
            TraceError: some rows are not stored; the message says how many and why.
        """
        failure = self._finish(is_train, deadline_s)
        if failure is not None and sys.exc_info()[1] is None:
            raise failure
        if failure is not None:  # within an `except` or `finally`: the error of the training is raised
            logger.error("the last step was not written: %s", failure)

    def _finish(self, is_train: bool, deadline_s: float) -> PaiError | None:
        """Ends the hook; returns an error of the last step. An error of the sink is raised."""
        _deactivate(self._ref)  # first, so that no other thread adds values to this hook
        failure, self._late_error = self._late_error, None
        try:
            self._write_leftover(is_train)
        except PaiError as error:
            failure = failure or error
        self.writer.close(deadline_s)
        return failure

    def _write_leftover(self, is_train: bool) -> None:
        """Writes the values that were traced after the last `after_step`."""
        steps = self._steps.drain()
        if steps:
            done = (
                "end() writes them as a step" if self._writes(is_train) else f"when={self.when!r} leaves them out"
            )
            logger.warning("values were traced after the last after_step(); %s", done)
            self._write(steps, is_train)

    @property
    def has_ended(self) -> bool:
        """Returns True if `end` was called."""
        return self._ref not in _active

    def check_alive(self) -> bool:
        """Returns True if the writer accepts rows."""
        return self.writer.is_usable

    def steps(self, batches: Iterable[_Batch]) -> Iterator[_Batch]:
        """Iterates over batches: each pass of the loop's body is a step; after the last one, `end` is called.

        An exception in the body, or a `break`, ends the hook too; the step counts if it has all columns. Python
        drops errors at that moment: they are logged, and raised by the next call of the hook.
        """
        # Registers this thread before the first value: its values must not count as those of a helper.
        self._steps.enter_loop()
        try:
            for batch in batches:
                yield batch
                self.after_step()
        except GeneratorExit:  # a `break` or an exception in the loop's body, which this generator does not get
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

    # A training loop of RecIS calls these methods of every hook.

    def before_train(self, *args: Any, **kwargs: Any) -> None:
        """Does nothing."""

    after_train = before_evaluate = after_evaluate = before_epoch = after_epoch = before_step = before_train


def trace(name: str, values: Any) -> None:
    """Adds the values of one column to the current step. They are copied.

    Args:
        name: the column.
        values: a tensor, numpy array or list, with one item per row.

    Raises:
        InvalidInputError: the values are of another type, no hook has such a column, or the hook is ambiguous:
            hooks of several threads have the column, and this thread created none of them.
        TraceError: the hook belongs to another process.
    """
    copied = _copied(name, values)
    hooks = _current_hooks()
    takers = [hook for hook in hooks if hook.has_column(name)]
    if hooks and not takers:
        columns = {column for hook in hooks for column in hook.writer.schema.names}
        raise InvalidInputError([_no_such_column(name, columns)])
    if len({id(hook.group) for hook in takers}) > 1:
        hint = "call hook.trace(), or use `with hook.bound():` in this thread"
        raise InvalidInputError([Problem(f"trace {name!r}", "hooks of several threads have this column", hint)])
    step = takers[0].group.step if takers else get_trace_map()
    if name in step and not takers:
        _warn_twice(name)
    for hook in takers:
        hook.add_copied(name, copied)
    step[name] = copied


def add_to_trace(name: str, tensor: Any = None) -> None:
    """Calls `trace`, under RecIS' name: refuses tuples, and the second argument has a default."""
    if isinstance(tensor, tuple):
        raise InvalidInputError([_not_values(name, tensor)])
    trace(name, tensor)


def get_trace_map() -> dict[str, Any]:
    """Returns the current step of this thread's hooks, or else of the process's: column name to array or list."""
    hooks = _current_hooks()
    return (hooks[0].group if hooks else _current_group()).step


def clear_trace_map() -> dict[str, Any]:
    """Starts a new, empty map of the current step, and returns it. The old map does not change."""
    hooks = _current_hooks()
    group = hooks[0].group if hooks else _current_group()
    group.step = {}
    return group.step


def _current_group() -> _Group:
    group = _group.get()
    if group is None:
        group = _Group()
        _group.set(group)
    return group


def _live() -> list[TraceHook]:
    return [hook for ref in tuple(_active) if (hook := ref()) is not None and not hook.writer.is_closed]


def _current_hooks() -> list[TraceHook]:
    """Returns the hooks that were created in this context, or else all of the process."""
    # A thread without hooks of its own reaches all hooks of the process.
    live, group = _live(), _group.get()
    return [hook for hook in live if hook.group is group] or live


def _deactivate(ref: weakref.ref[TraceHook]) -> None:
    # No check before the removal: two threads may end one hook at the same moment. No lock either: the garbage
    # collector calls this function too, in any thread, so a lock could deadlock.
    with suppress(ValueError):
        _active.remove(ref)


def _no_such_column(name: str, columns: Iterable[str]) -> Problem:
    return Problem(f"trace {name!r}", "no hook has such a column", name_hint(name, columns))


def _warn_twice(name: str) -> None:
    logger.warning("trace %r was given twice in one step; the last values are kept", name)


def _not_values(name: str, values: Any) -> Problem:
    return wrong_type(f"trace {name!r}", values, "a tensor, a numpy array or a list")


def _copied(name: str, values: Any) -> Any:
    """Returns a copy of values, which are a tensor, an array or a list; raises InvalidInputError for others."""
    try:
        array = as_numpy(values)
    except TypeError:
        raise InvalidInputError([_not_values(name, values)]) from None
    return list(values) if array is None else array.copy()
