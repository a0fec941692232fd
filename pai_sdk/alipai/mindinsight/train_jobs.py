"""Train jobs under the names of MindInsight's data manager; `event_data` fills them."""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import Enum
from typing import Any

from pai_sdk.errors import InvalidInputError, PaiError, Problem, RunNotFoundError

__all__ = [
    "BaseCacheItemUpdater",
    "CacheStatus",
    "CachedTrainJob",
    "DataManagerStatus",
    "ParamValueError",
    "SummaryLogIsLoading",
    "TrainJob",
    "TrainJobDetailNotInCacheError",
    "TrainJobNotExistError",
    "_BasicTrainJob",
    "check_int",
    "run_updaters",
]

logger = logging.getLogger(__name__)


class CacheStatus(Enum):
    """Whether the points of a train job are in memory."""

    NOT_IN_CACHE = "NOT_IN_CACHE"
    CACHING = "CACHING"
    CACHED = "CACHED"
    FAILED = "FAILED"


class DataManagerStatus(Enum):
    """The state of a data manager; `INVALID` when there are no train jobs."""

    INIT = "INIT"
    LOADING = "LOADING"
    DONE = "DONE"
    INVALID = "INVALID"


class ParamValueError(InvalidInputError):
    """A parameter has an invalid value."""

    def __init__(self, message: str) -> None:
        super().__init__([Problem("", message)])
        self.args = (message,)


def check_int(name: str, value: object, minimum: int) -> None:
    """Raises ParamValueError for a value that is not a whole number, or too small."""
    if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
        raise ParamValueError(f"{name} should be a whole number from {minimum}, not {value!r}.")


class TrainJobNotExistError(RunNotFoundError):
    """There is no such train job."""

    def __init__(self, message: str = "Can not find the train job in data manager.", *, run_id: str = "") -> None:
        super().__init__(message, run_id=run_id)


class TrainJobDetailNotInCacheError(PaiError):
    """The detail of a train job was requested, and only its brief is in the cache."""


class SummaryLogIsLoading(PaiError):
    """Data was requested before the first load has started."""


@dataclass(frozen=True, eq=False)
class _BasicTrainJob:
    """The properties of a train job that do not change."""

    train_id: str  # `./name`
    abs_summary_base_dir: str  # the folder of all train jobs
    abs_summary_dir: str  # the folder of the train job
    create_time: float | None  # when it started, in seconds since 1970
    update_time: float | None  # when one of its files was last changed, in seconds since 1970
    profiler_dir: str | None = None  # the folder of profiles, if there is one

    @property
    def summary_base_dir(self) -> str:
        """The folder of all train jobs."""
        return self.abs_summary_base_dir

    @property
    def summary_dir(self) -> str:
        """The folder of the train job."""
        return self.abs_summary_dir


class CachedTrainJob:
    """A train job in a cache: basic properties, status, and values by keys. Safe to use from several threads.

    Example:
        >>> job = CachedTrainJob(_BasicTrainJob("./a", "/runs", "/runs/a", None, None))
        >>> job.set("lineage", {"lr": 0.1})
        >>> job.get("lineage"), job.get("other", raise_exception=False)
        ({'lr': 0.1}, None)
    """

    def __init__(self, basic_info: _BasicTrainJob) -> None:
        self.basic_info = basic_info
        self.cache_status = CacheStatus.NOT_IN_CACHE
        self.error = ""
        self._last_access_time = 0.0
        self._content: dict[str, Any] = {}
        self._locks: dict[str, threading.RLock] = {}
        self._updates: dict[str, tuple[BaseCacheItemUpdater, object]] = {}
        self._lock = threading.Lock()  # guards the three above; not held while an updater runs

    def claim_update(self, updater: BaseCacheItemUpdater) -> bool:
        """Returns True if the caller has to call an updater for this version."""
        name = type(updater).__qualname__
        # Marked as called before the call: of two threads, one calls the updater. After a failure,
        # `forget_update` removes the mark.
        with self._lock:
            last, version = self._updates.get(name, (None, None))
            now = self._content.get("version")
            if last is updater and version == now:
                return False
            self._updates[name] = updater, now
            return True

    def forget_update(self, updater: BaseCacheItemUpdater) -> None:
        """Has a failed updater called again."""
        with self._lock:
            self._updates.pop(type(updater).__qualname__, None)

    @property
    def last_access_time(self) -> float:
        """When the train job was last used, in seconds since 1970; 0 when it never was."""
        return self._last_access_time

    def update_access_time(self) -> None:
        """Sets the time of the last use to now."""
        self._last_access_time = time.time()

    def set(self, key: str, value: Any) -> None:
        """Stores a value under a key."""
        with self._lock:
            self._content[key] = value

    def get(self, key: str, raise_exception: bool = True) -> Any:
        """Returns the value of a key.

        Raises:
            ParamValueError: there is none, and `raise_exception` is not False.
        """
        with self._lock:
            if key not in self._content and raise_exception:
                raise ParamValueError(f"Invalid cache key {key!r}.")
            return self._content.get(key)

    def delete(self, key: str, raise_exception: bool = True) -> None:
        """Removes the value of a key; raises as `get`."""
        with self._lock:
            if key not in self._content and raise_exception:
                raise ParamValueError(f"Invalid cache key {key!r}.")
            self._content.pop(key, None)

    def lock_key(self, key: str) -> AbstractContextManager[bool]:
        """Returns the lock of one key, for updates in several steps."""
        with self._lock:
            return self._locks.setdefault(key, threading.RLock())


class TrainJob:
    """A train job with its items of both caches."""

    def __init__(self, brief_train_job: CachedTrainJob, detail_train_job: CachedTrainJob | None = None) -> None:
        self._brief = brief_train_job
        self._detail = detail_train_job

    def has_detail(self) -> bool:
        """Returns True if the detail is in memory."""
        return self._detail is not None

    def get_detail(self, key: str) -> Any:
        """Returns the value of a key of the detail.

        Raises:
            TrainJobDetailNotInCacheError: there is no detail.
        """
        if self._detail is None:
            raise TrainJobDetailNotInCacheError(f"Detail of {self._brief.basic_info.train_id} is not in cache.")
        return self._detail.get(key)

    def get_brief(self, key: str) -> Any:
        """Returns the value of a key of the brief; None without one."""
        return self._brief.get(key, raise_exception=False)

    def get_basic_info(self) -> _BasicTrainJob:
        """Returns the basic properties."""
        return self._brief.basic_info

    @property
    def cache_status(self) -> CacheStatus:
        """Whether the points are in memory."""
        return self._brief.cache_status if self._detail is None else self._detail.cache_status


class BaseCacheItemUpdater(ABC):
    """Adds content to the train jobs of the brief cache."""

    @abstractmethod
    def update_item(self, cache_item: CachedTrainJob) -> None:
        """Adds content to one train job; called again when the train job has changed.

        Exceptions are logged, do not affect other updaters and train jobs, and are retried with the next load.
        """


def run_updaters(updaters: Collection[BaseCacheItemUpdater], jobs: Iterable[CachedTrainJob]) -> None:
    """Calls each updater for each train job, once for a version. Safe to call from several threads."""
    failures: dict[str, list[tuple[str, Exception]]] = {}
    for job in jobs:
        for updater in updaters:
            if not job.claim_update(updater):
                continue
            try:
                updater.update_item(job)
            except BaseException as error:  # also Ctrl-C, after which the updater has to run again
                job.forget_update(updater)
                if not isinstance(error, Exception):
                    raise
                failures.setdefault(type(updater).__qualname__, []).append((job.basic_info.train_id, error))
    for name, failed in failures.items():
        train_id, first = failed[0]
        logger.warning("%s failed for %d train jobs, first for %s", name, len(failed), train_id, exc_info=first)
