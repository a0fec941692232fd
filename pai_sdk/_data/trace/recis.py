"""The names of RecIS' `trace_to_odps_hook`, for code that uses them.

`add_to_trace`, `get_trace_map` and `clear_trace_map` are in `hook.py`.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ParamSpec, TypeVar

from pai_sdk._core.config.credentials import Credentials
from pai_sdk._core.names.hints import wrong_value
from pai_sdk._data.trace.hook import TraceHook
from pai_sdk._data.trace.odps import OdpsSink
from pai_sdk._data.trace.trace_writer import TraceWriter
from pai_sdk.errors import InvalidInputError, Problem, TraceError

_P = ParamSpec("_P")
_R = TypeVar("_R")
_MIB = 1 << 20


def retry(retry_count: int, interval: float) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Returns a decorator that calls a function again when it raises.

    Rows need none: the writer retries the calls of its sink.

    Args:
        retry_count: the total number of calls; the last error is raised.
        interval: pause between two calls, in seconds.

    Raises:
        InvalidInputError: `retry_count` is smaller than 1, or `interval` than 0.

    Example:
        >>> @retry(retry_count=3, interval=0.1)
        ... def answer() -> int:
        ...     return 42
        >>> answer()
        42
    """
    problems = []
    if not isinstance(retry_count, int) or retry_count < 1:
        problems.append(wrong_value("retry_count", retry_count, "an integer (minimum 1)"))
    if not isinstance(interval, int | float) or not interval >= 0:
        problems.append(wrong_value("interval", interval, "a number of seconds (minimum 0)"))
    if problems:
        raise InvalidInputError(problems)

    def decorated(function: Callable[_P, _R]) -> Callable[_P, _R]:
        @functools.wraps(function)
        def repeated(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            for _ in range(retry_count - 1):
                try:
                    return function(*args, **kwargs)
                except Exception:
                    time.sleep(interval)
            return function(*args, **kwargs)

        return repeated

    return decorated


class TraceToOdpsHook(TraceHook):
    """The hook of RecIS, with its names and arguments: writes traced values into a table of MaxCompute.

    Args:
        config: `access_id`, `access_key`, `project`, `end_point` and `table_name`; `partition` where the table has
            one.
        fields: names of the columns.
        types: types of the columns, as MaxCompute names them.
        worker_num: the number of sending threads.
        size_threshold: memory of a block, in bytes.
        when: the steps to write: those of `train`, of `eval`, or `both`.

    Attributes:
        queue: accepts steps: `hook.queue.put({"loss": losses})`.
        writer_num: `worker_num`.
        writers: one a worker, with the attributes of RecIS' `TraceWriter`.

    Raises:
        InvalidInputError: keys of `config` are missing, or a type is wrong; also a KeyError where RecIS raises
            one.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        fields: Sequence[str],
        types: Sequence[str],
        worker_num: int = 1,
        size_threshold: int = 50 * _MIB,
        *,
        when: str = "train",
    ) -> None:
        needed = ("access_id", "access_key", "project", "end_point", "table_name")
        if missing := [name for name in needed if not config.get(name)]:
            raise _MissingKeys([Problem(f"config[{name!r}]", "is required") for name in missing])
        if len(fields) != len(types):
            message = f"has {len(types)} items, but there are {len(fields)} fields"
            raise InvalidInputError([Problem("types", message)])
        sink = OdpsSink(
            config["table_name"],
            project=config["project"],
            endpoint=config["end_point"],
            partition=config.get("partition"),
            credentials=Credentials(config["access_id"], config["access_key"]),
            run_column=None,
        )
        columns = dict(zip(fields, types, strict=True))
        writer = TraceWriter(columns, sink, workers=worker_num, block_bytes=size_threshold)
        super().__init__(writer, when=when)
        self.table_name = str(config["table_name"])
        self.partition = config.get("partition")
        self.fields, self.types = list(fields), list(types)
        self.size_threshold = size_threshold
        self.writer_num = worker_num
        self.queue = StepQueue(writer, worker_num)
        self.writers = [RecisWriter(self, number) for number in range(worker_num)]

    @property
    def write_count(self) -> int:
        """Rows that are visible in the table."""
        return self.writer.stats().rows_committed

    @property
    def buffered_size(self) -> int:
        """The memory of the rows that the table does not have yet, in bytes."""
        return self.writer.stats().waiting_bytes

    def after_step(self, is_train: bool = True, *args: Any, **kwargs: Any) -> None:
        """Calls `TraceHook.after_step`; the error of a failed writer is also a ValueError, as in RecIS."""
        try:
            super().after_step(is_train, *args, **kwargs)
        except TraceError as error:
            raise _WriterFailed(
                f"TraceToOdpsHook: {error}", rows_fed=error.rows_fed, rows_committed=error.rows_committed
            ) from error.__cause__ or error


class StepQueue:
    """The queue of steps in RecIS. The rows of a step are copied at once, so it is always empty."""

    def __init__(self, writer: TraceWriter, maxsize: int) -> None:
        self._writer = writer
        self.maxsize = maxsize  # the number of steps that wait in RecIS

    def put(self, step: Mapping[str, Any] | None, block: bool = True, timeout: float | None = None) -> None:
        """Writes a step. Blocks while too many rows wait for the table. None, RecIS' end mark, has no effect."""
        if step is not None:
            self._writer.write(step)

    def qsize(self) -> int:
        """Returns 0: no step waits in the queue."""
        return 0

    def empty(self) -> bool:
        """Returns True: no step waits in the queue."""
        return True

    def full(self) -> bool:
        """Returns False: no step waits in the queue."""
        return False


class RecisWriter:
    """One of a hook's writers, with the attributes of RecIS. All are threads of one `TraceWriter`."""

    def __init__(self, hook: TraceToOdpsHook, number: int) -> None:
        self._writer = hook.writer
        self.queue = hook.queue
        self.write_id = number  # the first writer, 0, has the figures of all, so that sums are right
        self.table_name, self.partition = hook.table_name, hook.partition
        self.fields, self.types = hook.fields, hook.types
        self.size_threshold = hook.size_threshold  # of a block, in bytes

    @property
    def write_count(self) -> int:
        """Rows that are visible in the table."""
        return self._writer.stats().rows_committed if self.write_id == 0 else 0

    @property
    def buffered_size(self) -> int:
        """The memory of the rows that the table does not have yet, in bytes."""
        return self._writer.stats().waiting_bytes if self.write_id == 0 else 0

    @property
    def buffer(self) -> list[dict[str, list[Any]]]:
        """The rows that wait for a full block, as a step."""
        rows = self._writer.unsent() if self.write_id == 0 else {}
        return [rows] if any(rows.values()) else []

    def is_alive(self) -> bool:
        """Returns True if the writer accepts rows."""
        return self._writer.is_usable

    def write(self, data: Mapping[str, Any]) -> None:
        """Writes a step."""
        self._writer.write(data)

    def flush(self, force: bool = False) -> None:
        """Waits until all rows so far are visible."""
        self._writer.flush()


class _WriterFailed(TraceError, ValueError):
    """A block could not be stored."""


class _MissingKeys(InvalidInputError, KeyError):
    """Keys of a configuration are missing."""
