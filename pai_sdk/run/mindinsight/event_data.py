"""The names of MindInsight's data manager over `RunManager`: code that was written for them goes on working.

What the original lost is kept here: all train jobs are in both caches, however many there are, and all points of
each (`list_tensors(..., sample=1000)` takes fewer). A failed load is a state that the next one ends, and a deleted
train job stays deleted until its files change.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pai_sdk.errors import PaiError, RunNotFoundError
from pai_sdk.run.mindinsight.train_jobs import (
    BaseCacheItemUpdater,
    CachedTrainJob,
    CacheStatus,
    DataManagerStatus,
    ParamValueError,
    SummaryLogIsLoading,
    TrainJob,
    TrainJobDetailNotInCacheError,
    TrainJobNotExistError,
    _BasicTrainJob,
    run_updaters,
)
from pai_sdk.run.watch.manager import RunManager
from pai_sdk.run.watch.records import RunBrief

__all__ = [
    "BaseCacheItemUpdater",
    "BriefCacheManager",
    "CacheStatus",
    "CachedTrainJob",
    "DataManager",
    "DataManagerStatus",
    "DetailCacheManager",
    "ParamValueError",
    "SummaryLogIsLoading",
    "TensorEvent",
    "TrainJob",
    "TrainJobDetailNotInCacheError",
    "TrainJobNotExistError",
]

DATAVISUAL = "datavisual"
_PLUGINS = {"scalar": "scalar", "histogram": "histogram", "tensor": "tensor", "image": "image", "graph": "graph"}
_NOT_IN_CACHE = "Can not find the given train job in cache."
_NOT_STARTED = "Summary log is loading. Please try again, after start_load_data()."
_NO_DATA = "Can not find any data in this train job by given tag."


class TensorEvent(NamedTuple):
    """One value of a tag."""

    wall_time: float
    step: int
    value: Any


class _Cache:
    """The train jobs of a manager as items with a content of their own, which stays while the train job does."""

    def __init__(self, base_dir: str) -> None:
        self._base_dir = base_dir
        self._manager: RunManager | None = None
        self._version = -1
        self._jobs: dict[str, CachedTrainJob] = {}
        self._lock = threading.Lock()  # of the three above; held for moments, never while a file is looked at
        self._turn = threading.Lock()  # one thread at a time takes what the manager has found

    @property
    def size(self) -> int:
        """The number of train jobs."""
        return len(self.get_train_jobs())

    def get_train_jobs(self) -> dict[str, CachedTrainJob]:
        """All train jobs by their ids, as a copy."""
        self.update_cache()
        with self._lock:
            return dict(self._jobs)

    def get_train_job(self, train_id: str) -> CachedTrainJob:
        """One train job.

        Raises:
            TrainJobNotExistError: there is none with this id.
        """
        job = self.get_train_jobs().get(train_id)
        if job is None:
            raise TrainJobNotExistError(run_id=train_id)
        return job

    def cache_train_job(self, train_id: str) -> bool:
        """Use a train job; returns whether it has to be loaded for that.

        Raises:
            TrainJobNotExistError: there is none with this id.
        """
        self.get_train_job(train_id).update_access_time()
        return False

    def delete_train_job(self, train_id: str) -> None:
        """Forget a train job; it comes back when its files change. An unknown one is no error."""
        if self._manager is not None:
            try:
                self._manager.delete(run_id_of(train_id))
            except RunNotFoundError:
                return
            self.update_cache()

    def has_content(self) -> bool:
        """True if there are train jobs."""
        return bool(self.get_train_jobs())

    def update_cache(self) -> None:
        """Take what the manager has found: new train jobs, gone ones, changed facts."""
        with self._turn:
            with self._lock:
                manager, known, before = self._manager, self._version, self._jobs
            if manager is None or manager.state.version == known:
                return
            page = manager.runs(sort="id", limit=100_000)
            jobs: dict[str, CachedTrainJob] = {}
            for brief in page.runs:
                train_id = train_id_of(brief.id)
                job = before.get(train_id) or CachedTrainJob(self._basic(brief))
                if job.get("version", raise_exception=False) != brief.version:
                    self._refresh(job, brief)
                jobs[train_id] = job
            with self._lock:
                if manager is not self._manager:
                    return
                self._version, self._jobs = page.version, jobs
        self._updated(jobs.values())

    def use(self, manager: RunManager | None) -> None:
        """Take the train jobs of another manager from now on."""
        with self._lock:
            self._manager, self._version, self._jobs = manager, -1, {}

    def _basic(self, brief: RunBrief) -> _BasicTrainJob:
        folder = os.path.normpath(os.path.join(self._base_dir, brief.id))  # noqa: PTH118 - "." and names
        return _BasicTrainJob(
            train_id_of(brief.id), self._base_dir, folder, brief.created_at, brief.updated_at, _profiler(folder)
        )

    def _refresh(self, job: CachedTrainJob, brief: RunBrief) -> None:
        job.basic_info = self._basic(brief)
        job.error = brief.error
        job.set("version", brief.version)
        if brief.error:
            job.cache_status = CacheStatus.FAILED
        elif brief.is_loading and not brief.tags:
            job.cache_status = CacheStatus.CACHING
        else:
            job.cache_status = CacheStatus.CACHED

    def _updated(self, jobs: Iterable[CachedTrainJob]) -> None:
        """Called without a lock, with all train jobs, after some of them have changed."""


class BriefCacheManager(_Cache):
    """All train jobs on the disk, each with what the registered updaters add."""

    def __init__(self, base_dir: str) -> None:
        super().__init__(base_dir)
        self._updaters: dict[str, BaseCacheItemUpdater] = {}

    def register_cache_item_updater(self, updater: BaseCacheItemUpdater) -> None:
        """Let an updater add to each train job; of one class, the last one that was registered counts."""
        with self._lock:
            self._updaters[type(updater).__qualname__] = updater
            self._version = -1

    def loaded(self) -> None:
        """Called after each load: the updaters do their part, also those that have failed before."""
        with self._lock:
            self._version = -1
        self.update_cache()

    def _updated(self, jobs: Iterable[CachedTrainJob]) -> None:
        with self._lock:
            updaters = list(self._updaters.values())
        run_updaters(updaters, jobs)


class DetailCacheManager(_Cache):
    """All train jobs with their tags."""

    def _refresh(self, job: CachedTrainJob, brief: RunBrief) -> None:
        super()._refresh(job, brief)
        tags: dict[str, list[str]] = {}
        for tag, summary in brief.tags.items():
            tags.setdefault(_PLUGINS.get(summary.kind, summary.kind), []).append(f"{tag}/{summary.kind}")
        facts = {
            "loader_id": brief.id,
            "name": train_id_of(brief.id),
            "path": job.basic_info.summary_dir,
            "latest_update_time": brief.updated_at,
            "tag_mapping": {plugin: sorted(names) for plugin, names in sorted(tags.items())},
        }
        job.set(DATAVISUAL, facts)


class _LoadingManager(RunManager):
    """A manager that calls something at the end of each pass, in its background thread."""

    loaded: Callable[[], None]

    def _pass(self, is_asked: bool) -> bool:
        has_more = super()._pass(is_asked)
        if not has_more:
            self.loaded()
        return has_more


class DataManager:
    """The train jobs below a folder.

    Args:
        summary_base_dir: the folder; links in its path are resolved.

    Example:
        >>> import tempfile
        >>> from pai_sdk.run.events.writer import EventWriter
        >>> with tempfile.TemporaryDirectory() as folder, DataManager(folder) as data:
        ...     with EventWriter(f"{folder}/a") as writer:
        ...         writer.scalars({"loss": 0.5}, step=1)
        ...     data.start_load_data(reload_interval=0)
        ...     data.wait(60)
        ...     data.get_train_job_by_plugin("./a", "scalar")["tags"]
        ...     data.list_tensors("./a", "loss/scalar")[0].value
        ['loss/scalar']
        0.5
    """

    def __init__(self, summary_base_dir: str | Path) -> None:
        self._base_dir = os.path.realpath(summary_base_dir)
        self._manager: RunManager | None = None
        self._threads = 15
        self._lock = threading.Lock()  # of the three below, while one manager takes the place of another
        self._brief_cache = BriefCacheManager(self._base_dir)
        self._detail_cache = DetailCacheManager(self._base_dir)

    def __enter__(self) -> DataManager:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def summary_base_dir(self) -> str:
        """The folder of all train jobs."""
        return self._base_dir

    @property
    def status(self) -> DataManagerStatus:
        """Its state."""
        state = None if self._manager is None else self._manager.state
        if state is None or state.status == "INIT":
            return DataManagerStatus.INIT
        if state.status == "LOADING":
            return DataManagerStatus.LOADING
        return DataManagerStatus.DONE if state.runs else DataManagerStatus.INVALID

    @property
    def error(self) -> str:
        """The reason for which the last load failed; empty when it did not."""
        return "" if self._manager is None else self._manager.state.error

    # ---- loading --------------------------------------------------------------------------------------------

    def start_load_data(self, reload_interval: int = 3, max_threads_count: int = 15) -> None:
        """Begin to load in the background.

        Args:
            reload_interval: the pause between two loads, in seconds; 0 to load once.
            max_threads_count: how many threads read.

        Raises:
            ParamValueError: one of them is no whole number, or too small.
        """
        _check_int("reload_interval", reload_interval, least=0)
        _check_int("max_threads_count", max_threads_count, least=1)
        self._threads = max_threads_count
        self._use(reload_interval)

    def reload_data(self) -> None:
        """Load once more, in the background. Several requests at a time are one."""
        if self._manager is None:
            self._use(0)
            return
        try:
            self._manager.refresh(timeout_s=0)
        except TimeoutError:  # it is asked for; no thread waits here
            return

    def wait(self, timeout_s: float = 60.0) -> None:
        """Wait until everything is loaded that is there now.

        Raises:
            TimeoutError: that takes longer.
            SummaryLogIsLoading: loading was not started.
        """
        if self._manager is None:
            raise SummaryLogIsLoading(_NOT_STARTED)
        self._manager.refresh(timeout_s)

    def close(self) -> None:
        """End the background thread."""
        self._brief_cache.use(None)
        self._detail_cache.use(None)
        with self._lock:
            manager, self._manager = self._manager, None
        if manager is not None:
            manager.close()

    def _use(self, interval: int) -> None:
        self.close()
        manager = _LoadingManager(self._base_dir, refresh_s=interval, threads=self._threads)
        manager.loaded = self._brief_cache.loaded
        with self._lock:
            self._manager = manager
        self._brief_cache.use(manager)
        self._detail_cache.use(manager)
        manager.start()

    def _started(self) -> RunManager:
        manager = self._manager
        if manager is None or manager.state.status == "INIT":
            raise SummaryLogIsLoading(_NOT_STARTED)
        return manager

    # ---- train jobs -----------------------------------------------------------------------------------------

    def register_brief_cache_item_updater(self, updater: BaseCacheItemUpdater) -> None:
        """Let an updater add to each train job of the brief cache, with each load and before each query."""
        self._brief_cache.register_cache_item_updater(updater)

    def get_brief_cache(self) -> BriefCacheManager:
        """The cache of all train jobs."""
        return self._brief_cache

    def get_brief_train_job(self, train_id: str) -> CachedTrainJob:
        """A train job as the brief cache has it.

        Raises:
            TrainJobNotExistError: there is none with this id.
        """
        self._started()
        return self._brief_cache.get_train_job(train_id)

    def get_train_job(self, train_id: str) -> CachedTrainJob | None:
        """A train job with its tags under the key `datavisual`; None while it is not loaded.

        Raises:
            TrainJobNotExistError: there is none with this id.
            SummaryLogIsLoading: loading has not begun.
        """
        self._started()
        job = self._detail_cache.get_train_job(train_id)
        job.update_access_time()
        return None if job.cache_status is CacheStatus.CACHING else job

    def get_train_job_by_plugin(self, train_id: str, plugin_name: str) -> dict[str, Any] | None:
        """Id, name and sorted tags of a train job; None while it is not loaded.

        Raises:
            TrainJobNotExistError: there is none with this id.
        """
        job = self.get_train_job(train_id)
        if job is None:
            return None
        facts: Mapping[str, Any] = job.get(DATAVISUAL)
        return {"id": train_id, "name": facts["name"], "tags": facts["tag_mapping"].get(plugin_name, [])}

    def list_train_jobs(self, offset: int = 0, limit: int = 10) -> dict[str, Any]:
        """Some of the train jobs, the newest first, and how many there are."""
        _check_int("offset", offset, least=0)
        _check_int("limit", limit, least=1)
        self._started()
        jobs = [job.basic_info for job in self._brief_cache.get_train_jobs().values()]
        jobs.sort(key=lambda job: (-(job.update_time or 0.0), job.train_id))
        return {"total": len(jobs), "train_jobs": jobs[offset * limit : (offset + 1) * limit]}

    def cache_train_job(self, train_id: str) -> None:
        """Have the points of a train job in memory; they are read in the background when they are not.

        Raises:
            TrainJobNotExistError: there is none with this id.
        """
        manager = self._started()
        job = self._detail_cache.get_train_job(train_id)
        self._brief_cache.cache_train_job(train_id)
        job.update_access_time()
        if job.cache_status is not CacheStatus.CACHING:
            thread = threading.Thread(target=_load, args=(manager, job), name="cache-train-job", daemon=True)
            thread.start()

    def delete_train_job(self, train_id: str, only_delete_from_cache: bool = True) -> None:
        """Forget a train job until its files change.

        Raises:
            NotImplementedError: with `only_delete_from_cache=False`; files are never deleted here.
        """
        if not only_delete_from_cache:
            raise NotImplementedError("Delete from both cache and disk is not supported.")
        self._started()
        self._detail_cache.delete_train_job(train_id)
        self._brief_cache.update_cache()

    def list_tensors(self, train_id: str, tag: str, sample: int | None = None) -> list[TensorEvent]:
        """All values of a tag, in the order of the steps; empty while the train job is not loaded.

        Args:
            train_id: of the train job.
            tag: as `get_train_job_by_plugin` gives it, or without the plugin behind it.
            sample: take about so many of the points, with the first, last, least and largest one.

        Raises:
            TrainJobNotExistError: there is none with this id.
            ParamValueError: it has no such tag.
        """
        manager = self._started()
        try:
            job = self.get_train_job(train_id)
            run = manager.run(run_id_of(train_id))
            tags = run.tags()
        except RunNotFoundError as error:
            raise TrainJobNotExistError(_NOT_IN_CACHE, run_id=train_id) from error
        if job is None:
            return []
        plain, _, plugin = tag.rpartition("/")
        name = plain if plain in tags and tags[plain].kind == plugin else tag
        if name not in tags:
            raise ParamValueError(_NO_DATA)
        if tags[name].kind != "scalar":
            others = {"text": run.text, "histogram": run.histograms}.get(tags[name].kind)
            others = run.tensors if tags[name].has_tensors else others
            return [TensorEvent(*one) for one in others(name)] if others is not None else []
        series = run.scalars(name) if sample is None else run.scalars(name).downsample(sample)
        columns = (series.wall.tolist(), series.step.tolist(), series.value.tolist())
        return [TensorEvent(*values) for values in zip(*columns, strict=True)]


def train_id_of(run_id: str) -> str:
    """The id of a train job: `./name`.

    Example:
        >>> train_id_of("a/b"), train_id_of("."), run_id_of("./a/b"), run_id_of("./")
        ('./a/b', './', 'a/b', '.')
    """
    return "./" if run_id == "." else f"./{run_id}"


def run_id_of(train_id: str) -> str:
    """The id of the run of a train job."""
    return train_id.removeprefix("./") or "."


def _load(manager: RunManager, job: CachedTrainJob) -> None:
    job.cache_status = CacheStatus.CACHING
    try:
        run = manager.run(run_id_of(job.basic_info.train_id))
        tag = next((name for name, summary in run.tags().items() if summary.kind == "scalar"), None)
        if tag is not None:
            run.scalars(tag)
        job.cache_status = CacheStatus.CACHED
    except PaiError as error:
        job.error, job.cache_status = str(error), CacheStatus.FAILED


def _check_int(name: str, value: object, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ParamValueError(f"{name} should be a whole number from {least}, not {value!r}.")


def _profiler(folder: str) -> str | None:
    path = Path(folder, "profiler")
    return str(path) if path.is_dir() else None
