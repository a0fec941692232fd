"""A thread pool for transfers with a bounded queue."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from functools import partial
from typing import TypeVar

from pai_sdk.storage.shared_failures import is_about_all, may_be_about_all

__all__ = ["TransferPool"]

T = TypeVar("T")

_SPARE = 4  # queued tasks, so that no thread is idle
_PATIENT_FAILURES = 2  # large files fail one after the other, each after a minute of retries


class TransferPool:
    """Runs the tasks of a transfer; a file that fails is recorded, and the others go on.

    The transfer ends early in two cases, and remaining files are skipped (`gave_up` is set):

    - As many files as there are threads failed in a row, by errors that may be due to the store or the key (no
      response, 503, 403). From the second such failure on, calls are not retried.
    - One failure means that all others would fail as well: the endpoint, the bucket or the key is wrong. This
      error is raised at the end instead of a list of files.

    Args:
        workers: threads.

    Attributes:
        failures: the files that failed, each with its error.
        gave_up: whether the remaining files were skipped.
        stopped: set when the caller is interrupted; running tasks watch it.
    """

    def __init__(self, workers: int = 16) -> None:
        self.failures: dict[str, Exception] = {}
        self.gave_up = False
        self.stopped = threading.Event()
        self._workers = workers
        self._executor = ThreadPoolExecutor(workers, thread_name_prefix="pai-transfer")
        self._slots = threading.BoundedSemaphore(workers + _SPARE)
        self._lock = threading.Lock()
        self._failed_in_a_row = 0
        self._about_all: Exception | None = None

    def __enter__(self) -> TransferPool:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is not None:
                self.stopped.set()
            self._executor.shutdown(wait=True, cancel_futures=kind is not None)
        except BaseException:  # interrupted while waiting for the last tasks
            self.stopped.set()
            self._executor.shutdown(wait=True, cancel_futures=True)
            raise
        if kind is None and self._about_all is not None:
            raise self._about_all

    def may_retry(self) -> bool:
        """Whether a call that failed may be retried."""
        return not self.gave_up and self._failed_in_a_row < _PATIENT_FAILURES

    @property
    def why_not_all(self) -> str:
        """The end of a message about the failures: why files were skipped, if any were."""
        return "; all recent ones failed, so the remaining files were skipped" if self.gave_up else ""

    def submit(self, function: Callable[[], T]) -> Future[T]:
        """Run a task on a thread; blocks while the queue is full."""
        self._slots.acquire()
        try:
            future = self._executor.submit(function)
        except BaseException:
            self._slots.release()
            raise
        future.add_done_callback(lambda _: self._slots.release())
        return future

    def run_all(self, pieces: Iterable[Callable[[], T]]) -> list[T]:
        """Run tasks that belong together, such as the parts of one file; returns when all have ended.

        Raises:
            Exception: the first error in their order; tasks that have not begun by then are dropped.
        """
        futures: list[Future[T]] = []
        failed = threading.Event()
        try:
            for piece in pieces:
                futures.append(self.submit(partial(_or_set, piece, failed)))
                if failed.is_set():
                    break
            wait(futures, return_when=FIRST_EXCEPTION)
        except Exception:  # a task that cannot be made, as of a deleted file, fails this file only
            raise
        except BaseException:
            self.stopped.set()
            raise
        finally:
            for future in futures:
                future.cancel()
            wait(futures)
        errors = [future.exception() for future in futures if not future.cancelled()]
        for error in errors:
            if error is not None:
                raise error
        return [future.result() for future in futures]

    def submit_file(self, name: str, function: Callable[[], None]) -> None:
        """Transfer one file on a thread; its error is kept under the file's name."""
        self.submit(lambda: self.run_file(name, function))

    def run_file(self, name: str, function: Callable[[], None]) -> None:
        """Transfer one file in the calling thread; its error is kept under the file's name."""
        if self.gave_up:
            return
        try:
            function()
        except Exception as error:
            self._failed(name, error)
        else:
            with self._lock:
                self._failed_in_a_row = 0

    def _failed(self, name: str, error: Exception) -> None:
        with self._lock:
            self.failures[name] = error
            self._failed_in_a_row = self._failed_in_a_row + 1 if may_be_about_all(error) else 0
            if is_about_all(error):
                self._about_all = self._about_all or error
            dead = self._about_all is not None or self._failed_in_a_row >= self._workers
            self.gave_up = self.gave_up or dead


def _or_set(piece: Callable[[], T], failed: threading.Event) -> T:
    try:
        return piece()
    except BaseException:
        failed.set()
        raise
