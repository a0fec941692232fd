"""Collects values within a step of a training loop, and writes them at the step's end.

    trace("loss", losses)        copied at once, into each hook of this context that has the column
    hook.after_step()            writes the step's columns
    hook.end()                   returns when all rows are stored

The names of RecIS (`add_to_trace`, `get_trace_map`, `clear_trace_map`, `TraceToOdpsHook`) work as well.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any, TypeVar

from pai_sdk.base.hints import is_of_type, name_hint
from pai_sdk.errors import InvalidInputError, Problem
from pai_sdk.trace.columns import as_numpy
from pai_sdk.trace.trace_writer import TraceWriter

__all__ = ["TraceHook", "add_to_trace", "clear_trace_map", "get_trace_map", "trace"]

logger = logging.getLogger(__name__)

_Batch = TypeVar("_Batch")
_WHEN = ("train", "eval", "both")

# The hooks that were made in this context (thread or task), and the values of the current step without a hook.
_hooks: ContextVar[tuple[TraceHook, ...]] = ContextVar("trace_hooks", default=())
_map: ContextVar[dict[str, Any] | None] = ContextVar("trace_map", default=None)


class TraceHook:
    """Writes what `trace` collects in each step.

    A hook belongs to the thread that made it: `trace` finds it there. Elsewhere, call `hook.trace`. Several hooks
    in one thread each take the columns that they have.

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
            raise InvalidInputError([Problem("when", f"{when!r} is no choice", "'train', 'eval' or 'both'")])
        self.writer = writer
        self.when = when
        self._step: dict[str, Any] = {}
        _hooks.set((*_hooks.get(), self))

    def trace(self, name: str, values: Any) -> None:
        """Take the values of one column for this step; errors as for `trace`."""
        self._take(name, _copied(name, values))

    def _take(self, name: str, values: Any) -> None:
        if name in self._step:
            _warn_twice(name)
        self._step[name] = values

    def has_column(self, name: str) -> bool:
        """Whether the writer's schema has it."""
        return name in self.writer.schema.names

    def after_step(self, is_train: bool = True, *args: Any, **kwargs: Any) -> None:
        """Write the step's columns, unless the step is of the kind that is left out, or has none.

        Raises:
            InvalidInputError: the columns do not fit the schema or each other.
            TraceError: an earlier block could not be stored.
        """
        step = self.discard_step()
        if step and self.when in ("both", "train" if is_train else "eval"):
            self.writer.write(step)

    def discard_step(self) -> dict[str, Any]:
        """Forget the step's columns without writing them; returns them."""
        step, self._step = self._step, {}
        _forget(step)
        return step

    def end(self, is_train: bool = True, *args: Any, **kwargs: Any) -> None:
        """Store all rows, and end the writer.

        Raises:
            TraceError: some rows are not stored; it says how many and why.
        """
        _hooks.set(tuple(hook for hook in _hooks.get() if hook is not self))
        self.writer.close()

    def check_alive(self) -> bool:
        """Whether the writer takes rows."""
        return self.writer.is_usable

    def steps(self, batches: Iterable[_Batch]) -> Iterator[_Batch]:
        """Go through batches: each pass of the loop's body is a step; after the last one, `end` is called.

        An exception in the body, or a `break`, ends the hook too.
        """
        try:
            for batch in batches:
                yield batch
                self.after_step()
        finally:
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
        InvalidInputError: the values are of another type, or no hook of this thread has such a column.
    """
    copied = _copied(name, values)
    hooks = _hooks.get()
    takers = [hook for hook in hooks if hook.has_column(name)]
    if hooks and not takers:
        known = {column for hook in hooks for column in hook.writer.schema.names}
        raise InvalidInputError([Problem(f"trace {name!r}", "no hook has such a column", name_hint(name, known))])
    step = get_trace_map()
    if name in step and not takers:
        _warn_twice(name)
    for hook in takers:
        hook._take(name, copied)
    step[name] = copied


add_to_trace = trace


def get_trace_map() -> dict[str, Any]:
    """The values of the current step in this thread: name to array or list."""
    found = _map.get()
    if found is None:
        found = clear_trace_map()
    return found


def clear_trace_map() -> dict[str, Any]:
    """Begin with a new, empty map, which is returned. The one before stays as it is."""
    made: dict[str, Any] = {}
    _map.set(made)
    return made


def _forget(step: Mapping[str, Any]) -> None:
    """A step was taken by one hook: what no other hook waits for leaves the map."""
    waiting = {name for hook in _hooks.get() for name in hook._step}
    kept = {name: values for name, values in get_trace_map().items() if name not in step or name in waiting}
    clear_trace_map().update(kept)


def _warn_twice(name: str) -> None:
    logger.warning("trace %r was given twice in one step; the last values count", name)


def _copied(name: str, values: Any) -> Any:
    """The values in memory of their own.

    Raises:
        InvalidInputError: they are neither a tensor nor an array nor a list.
    """
    try:
        array = as_numpy(values)
    except TypeError:
        hint = "give a tensor, a numpy array or a list"
        raise InvalidInputError([Problem(f"trace {name!r}", is_of_type(values), hint)]) from None
    return list(values) if array is None else array.copy()
