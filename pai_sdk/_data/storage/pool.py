"""A thread pool for transfers: many threads for small files, few for large ones, and a bounded queue for both."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ALL_COMPLETED, FIRST_EXCEPTION, Future, wait
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, TypeAlias, TypeVar

from pai_sdk._data.storage.permits import Permits
from pai_sdk.errors import (
    CredentialsError,
    PaiError,
    StorageError,
    UnreachableStorageError,
    UntrustedEndpointError,
)

T = TypeVar("T")

SMALL_BYTES = 64 << 10
"""Up to here a file costs round trips rather than bandwidth."""

SMALL_WORKERS = 96
"""Small files at a time: at a distance of 20 ms, one thread moves 30 files a second."""

LARGE_WORKERS = 16
"""Parts of large files at a time; each thread has a chunk of one in memory."""

SKIPPED_SUFFIX = "; all recent ones failed, so the remaining files were skipped"
"""The end of a message about failures, when a pool gave up."""

# While some files are started or completed, which takes round trips, others are sent.
_FILES_IN_PARTS = 4
# Queued tasks keep threads busy.
_SPARE = 4
# Large files fail a few at a time, each after a minute of retries.
_MAX_RETRIED_FAILURES = 2
# The longest delay of a missed Ctrl-C: a wait for a lock does not notice one that comes just as it begins.
_SIGNAL_CHECK_S = 1.0

_FATAL_CODES = frozenset(
    {
        "InvalidAccessKeyId",
        "InvalidSecurityToken",
        "NoSuchBucket",
        "RequestTimeTooSkewed",
        "SecurityTokenExpired",
        "UserDisable",
    }
)
# A key may lack the permission for one object only, so one such refusal proves nothing about the others.
_PERMISSION_CODES = frozenset({"AccessDenied", "SignatureDoesNotMatch"})

_Task: TypeAlias = "tuple[Callable[[], object], Future[Any] | None]"


class TransferPool:
    """Runs the tasks of a transfer; a file that fails is recorded, and the others continue.

    The transfer ends early in two cases, and remaining files are skipped (`gave_up` is set):

    - As many files as there are threads for large files failed in a row, by errors that may be due to the store or
      the key (no response, 503, 403). From the second such failure on, calls are not retried.
    - One failure means that all others would fail as well: the endpoint, the bucket or the key is wrong. This
      error is raised at the end instead of a list of files.
    """

    # None: `SMALL_WORKERS` threads for files of at most `SMALL_BYTES`, `LARGE_WORKERS` for all others.
    def __init__(self, workers: int | None = None) -> None:
        self.failures: dict[str, Exception] = {}
        self.gave_up = False
        # Set when the caller is interrupted; running tasks watch it.
        self.stopped = threading.Event()
        self._large = _Threads(workers or LARGE_WORKERS, spare=_SPARE)
        self._small = self._large if workers else _Threads(SMALL_WORKERS, spare=SMALL_WORKERS)
        self._in_parts = _Threads(min(_FILES_IN_PARTS, workers or LARGE_WORKERS), spare=2)
        # Held while the parts of one file are submitted: side by side, both files would be completed at the end.
        self._submitting = threading.Lock()
        self._max_failures = workers or LARGE_WORKERS
        self._lock = threading.Lock()
        self._failed_in_a_row = 0
        self._fatal: Exception | None = None
        self._permits = Permits()

    def __enter__(self) -> TransferPool:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is not None:
                self.stopped.set()
            self._end(cancel=kind is not None)
        except BaseException:
            # Interrupted while waiting for the last tasks.
            self.stopped.set()
            self._end(cancel=True)
            raise
        if kind is None and self._fatal is not None:
            raise self._fatal

    def _end(self, *, cancel: bool) -> None:
        # First: files in parts submit tasks to the other two.
        self._in_parts.end(cancel=cancel)
        self._small.end(cancel=cancel)
        self._large.end(cancel=cancel)

    def may_retry(self) -> bool:
        """Returns True if a call that failed may be retried."""
        return not self.gave_up and self._failed_in_a_row < _MAX_RETRIED_FAILURES

    def submit(self, function: Callable[[], T]) -> Future[T]:
        """Runs a task on a thread for large files; blocks while the queue is full."""
        future: Future[T] = Future()
        self._large.put((function, future))
        return future

    def run_all(self, tasks: Iterable[Callable[[], T]]) -> list[T]:
        """Runs tasks that belong together, such as the parts of one file; raises the first error in order."""
        futures: list[Future[T]] = []
        failed = threading.Event()
        try:
            with self._submitting:
                for task in tasks:
                    futures.append(self.submit(partial(_set_on_failure, task, failed)))
                    if failed.is_set():
                        break
            _wait_for(futures, return_when=FIRST_EXCEPTION)
        except Exception:
            # A task that cannot be created, as for a deleted file, fails this file only; other errors stop the
            # transfer.
            raise
        except BaseException:
            self.stopped.set()
            raise
        finally:
            for future in futures:
                # Tasks that have not started are dropped; running ones finish before the caller continues.
                future.cancel()
            _wait_for(futures, return_when=ALL_COMPLETED)
        errors = [future.exception() for future in futures if not future.cancelled()]
        for error in errors:
            if error is not None:
                raise error
        return [future.result() for future in futures]

    def submit_file(self, name: str, function: Callable[[], None], *, size_bytes: int = SMALL_BYTES + 1) -> None:
        """Transfers one file on a thread; an error is recorded in `failures`."""
        threads = self._small if size_bytes <= SMALL_BYTES else self._large
        threads.put((partial(self._run_file, name, function), None))

    def permit(self, size_bytes: int) -> AbstractContextManager[None]:
        """Returns a block in which a small file is moved: one thread at a time computes, see `Permits`."""
        # Large files have few threads, so they need no permit.
        return self._permits.hold() if size_bytes <= SMALL_BYTES else nullcontext()

    def submit_file_in_parts(self, name: str, function: Callable[[], None]) -> None:
        """Transfers a file by `run_all`, called by the function; an error is recorded in `failures`."""
        self._in_parts.put((partial(self._run_file, name, function), None))

    def wait_for_files_in_parts(self, on_finished: Callable[[], None]) -> None:
        """Waits until all files in parts have finished; calls `on_finished` after one or more of them."""
        unfinished = self._in_parts.unfinished
        while unfinished:
            unfinished = self._in_parts.wait_for_fewer(unfinished)
            on_finished()

    def _run_file(self, name: str, function: Callable[[], None]) -> None:
        if self.gave_up:
            return
        try:
            function()
        except Exception as error:
            self._record_failure(name, error)
        else:
            # Checked without the lock first: most files succeed, and need no lock.
            if self._failed_in_a_row:
                with self._lock:
                    self._failed_in_a_row = 0

    def _record_failure(self, name: str, error: Exception) -> None:
        with self._lock:
            self.failures[name] = error
            self._failed_in_a_row = self._failed_in_a_row + 1 if might_be_fatal_for_transfer(error) else 0
            if is_fatal_for_transfer(error):
                self._fatal = self._fatal or error
            dead = self._fatal is not None or self._failed_in_a_row >= self._max_failures
            self.gave_up = self.gave_up or dead


class _Threads:
    """Threads that run tasks from a bounded queue.

        put() -- waits in _room while the queue is full --> _tasks --> a thread --> unfinished - 1, wakes put()

    `_room` guards the count of tasks and the list of threads. No task runs while it is held. `_tasks` is a queue
    with a lock of its own, so that an idle thread waits there, and not for `_room`.
    """

    # A `ThreadPoolExecutor` with a semaphore needs 45 µs of processor time for a task, a third of a request's.
    # `spare` is the number of tasks that may wait for a thread; threads start when there are tasks for them.
    def __init__(self, max_threads: int, *, spare: int) -> None:
        self._max_threads = max_threads
        self._full = max_threads + spare
        # A thread that waits for room is woken once for several tasks.
        self._refill = max_threads + spare // 2
        self._tasks: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        self._room = threading.Condition()
        self.unfinished = 0
        self._threads: list[threading.Thread] = []

    def put(self, task: _Task) -> None:
        """Adds a task; blocks while the queue is full."""
        with self._room:
            if self.unfinished >= self._full:
                while not self._room.wait_for(lambda: self.unfinished <= self._refill, _SIGNAL_CHECK_S):
                    pass
            self.unfinished += 1
            if len(self._threads) < min(self._max_threads, self.unfinished):
                thread = threading.Thread(target=self._run, name="pai-transfer", daemon=True)
                # Appended before start(), which may be interrupted after the thread has started; `end` must join
                # it.
                self._threads.append(thread)
                thread.start()
        self._tasks.put(task)

    def wait_for_fewer(self, count: int) -> int:
        """Waits until fewer tasks than `count` are unfinished; returns their number."""
        with self._room:
            while not self._room.wait_for(lambda: self.unfinished < count, _SIGNAL_CHECK_S):
                pass
            return self.unfinished

    def end(self, *, cancel: bool) -> None:
        """Waits until the tasks have finished, then stops the threads."""
        try:
            while cancel:
                task = self._tasks.get_nowait()
                if task is not None and task[1] is not None:
                    task[1].cancel()
        except queue.Empty:
            pass
        # One None for each thread: a thread that gets it returns.
        for _ in self._threads:
            self._tasks.put(None)
        for thread in self._threads:
            while thread.is_alive():
                thread.join(_SIGNAL_CHECK_S)

    def _run(self) -> None:
        while (task := self._tasks.get()) is not None:
            try:
                _finish(*task)
            finally:
                with self._room:
                    self.unfinished -= 1
                    if self.unfinished <= self._refill:
                        self._room.notify_all()


def _wait_for(futures: Sequence[Future[T]], *, return_when: str) -> None:
    """Waits as `wait` does, and notices each Ctrl-C."""
    while True:
        done, unfinished = wait(futures, _SIGNAL_CHECK_S, return_when)
        has_failed = any(not future.cancelled() and future.exception() is not None for future in done)
        if not unfinished or (has_failed and return_when == FIRST_EXCEPTION):
            return


def _finish(function: Callable[[], object], future: Future[Any] | None) -> None:
    if future is None:
        function()
    elif future.set_running_or_notify_cancel():
        try:
            future.set_result(function())
        except BaseException as error:
            future.set_exception(error)


def _set_on_failure(task: Callable[[], T], failed: threading.Event) -> T:
    try:
        return task()
    except BaseException:
        failed.set()
        raise


def is_fatal_for_transfer(error: BaseException) -> bool:
    """Returns True if every other file would fail at once for the same reason."""
    if isinstance(error, UnreachableStorageError | UntrustedEndpointError | CredentialsError):
        return True
    return isinstance(error, StorageError) and error.code in _FATAL_CODES


def might_be_fatal_for_transfer(error: BaseException) -> bool:
    """Returns True if many such errors in a row are due to the store or the key (no response, 503, 403)."""
    if isinstance(error, PaiError) and error.retryable:
        return True
    return isinstance(error, StorageError) and error.code in _PERMISSION_CODES
