"""Many small pieces of work on a few threads, with never more in flight than the threads can use."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from functools import partial
from typing import TypeVar

from pai_sdk.storage.faults import is_about_all, may_be_about_all

__all__ = ["TransferPool"]

T = TypeVar("T")

_SPARE = 4  # pieces that wait, so that no thread does
_PATIENT_FAILURES = 2  # large files fail one after the other, each after a minute of retries


class TransferPool:
    """Runs the pieces of a transfer; a file that fails is noted, and the others go on.

    When as many files as there are threads failed one after the other, none succeeded in between, and the reason
    may be the store or the key (no answer, 503, 403), the transfer ends: `gave_up` is set, and what has not begun
    is not begun. From the second such failure on, calls are tried once only. Where the first failure tells that
    all others will fail as well, for the endpoint, the bucket or the key, the transfer ends with it, and it is
    raised at the end: it is not about files.

    Args:
        workers: threads.

    Attributes:
        failures: the files that failed, each with its error.
        gave_up: whether the rest was not tried.
        stopped: set when the caller is interrupted, for the pieces that are under way.
    """

    def __init__(self, workers: int = 16) -> None:
        self.failures: dict[str, Exception] = {}
        self.gave_up = False
        self.stopped = threading.Event()
        self._workers = workers
        self._executor = ThreadPoolExecutor(workers, thread_name_prefix="pai-transfer")
        self._room = threading.BoundedSemaphore(workers + _SPARE)
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
        except BaseException:  # an interrupt, while we wait for the last ones
            self.stopped.set()
            self._executor.shutdown(wait=True, cancel_futures=True)
            raise
        if kind is None and self._about_all is not None:
            raise self._about_all

    def may_retry(self) -> bool:
        """Whether a call that fails is worth a pause and another attempt."""
        return not self.gave_up and self._failed_in_a_row < _PATIENT_FAILURES

    @property
    def why_not_all(self) -> str:
        """The end of a message about the failures: why there are files that were not tried, if there are any."""
        return "; none succeeded any more, so the rest was not tried" if self.gave_up else ""

    def submit(self, function: Callable[[], T]) -> Future[T]:
        """Run a piece on a thread; waits here while enough are in flight."""
        self._room.acquire()
        try:
            future = self._executor.submit(function)
        except BaseException:
            self._room.release()
            raise
        future.add_done_callback(lambda _: self._room.release())
        return future

    def run_all(self, pieces: Iterable[Callable[[], T]]) -> list[T]:
        """Run pieces that belong together; returns when none of them is running any more.

        Raises:
            Exception: the first error in their order; pieces that had not begun then are not begun.
        """
        futures: list[Future[T]] = []
        failed = threading.Event()
        try:
            for piece in pieces:
                futures.append(self.submit(partial(_or_tell, piece, failed)))
                if failed.is_set():
                    break
            wait(futures, return_when=FIRST_EXCEPTION)
        except Exception:  # a piece that could not be made, as of a file that vanished, stops this one only
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
        """Run the whole work for one file on a thread; its error is kept under the file's name."""
        self.submit(lambda: self.run_file(name, function))

    def run_file(self, name: str, function: Callable[[], None]) -> None:
        """Do the work for one file here; its error is kept under the file's name."""
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


def _or_tell(piece: Callable[[], T], failed: threading.Event) -> T:
    try:
        return piece()
    except BaseException:
        failed.set()
        raise
