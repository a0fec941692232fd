"""MindInsight's data manager over `RunManager`, under its names: code that was written for it continues to work.

Unlike the original, both caches have all train jobs, and all points of each train job
(`list_tensors(..., sample=1000)` returns fewer). A failed load is retried by the next one, and a deleted train job
stays deleted until its files change.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pai_sdk._data.run.watch.manager import RunManager
from pai_sdk._data.run.watch.records import RunBrief
from pai_sdk.alipai.mindinsight.train_jobs import (
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
    check_int,
    run_updaters,
)
from pai_sdk.errors import PaiError, RunNotFoundError

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
    """The train jobs of a manager as cache items; an item exists as long as its train job.

    Lock order: `_update_lock`, then `_lock`. Updaters are called without either.
    """

    def __init__(self, base_dir: str) -> None:
        self._base_dir = base_dir
        self._manager: RunManager | None = None
        self._version = -1
        self._jobs: dict[str, CachedTrainJob] = {}
        self._lock = threading.Lock()  # guards the three above; never held during file access
        # One thread at a time reads the runs of the manager, so that an older version never replaces a newer one.
        self._update_lock = threading.Lock()

    @property
    def size(self) -> int:
        """The number of train jobs."""
        return len(self.get_train_jobs())

    def get_train_jobs(self) -> dict[str, CachedTrainJob]:
        """Returns all train jobs by their ids, as a copy."""
        self.update_cache()
        with self._lock:
            return dict(self._jobs)

    def get_train_job(self, train_id: str) -> CachedTrainJob:
        """Returns one train job.

        Raises:
            TrainJobNotExistError: there is none with this id.
        """
        job = self.get_train_jobs().get(train_id)
        if job is None:
            raise TrainJobNotExistError(run_id=train_id)
        return job

    def cache_train_job(self, train_id: str) -> bool:
        """Marks a train job as used; returns whether it has to be loaded first: always False.

        Raises:
            TrainJobNotExistError: there is none with this id.
        """
        self.get_train_job(train_id).update_access_time()
        return False

    def delete_train_job(self, train_id: str) -> None:
        """Removes a train job until its files change. An unknown id is ignored."""
        if self._manager is not None:
            try:
                self._manager.delete(run_id_of(train_id))
            except RunNotFoundError:
                return
            self.update_cache()

    def has_content(self) -> bool:
        """Returns True if there are train jobs."""
        return bool(self.get_train_jobs())

    def update_cache(self) -> None:
        """Updates the train jobs from the manager: adds, removes and refreshes them."""
        with self._update_lock:
            with self._lock:
                manager, version, before = self._manager, self._version, self._jobs
            if manager is None or manager.state.version == version:
                return
            # Without `_lock`, since `_basic` accesses files.
            page = manager.runs(sort="id", limit=100_000)
            jobs: dict[str, CachedTrainJob] = {}
            for brief in page.runs:
                train_id = train_id_of(brief.id)
                job = before.get(train_id) or CachedTrainJob(self._basic(brief))
                if job.get("version", raise_exception=False) != brief.version:
                    self._refresh(job, brief)
                jobs[train_id] = job
            with self._lock:
                if manager is not self._manager:  # `use` has replaced it meanwhile: these runs are of the old one
                    return
                self._version, self._jobs = page.version, jobs
        self._updated(jobs.values())  # without locks, since updaters are code of users

    def use(self, manager: RunManager | None) -> None:
        """Switches to the train jobs of another manager."""
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
        """Handles changes; called without a lock, with all train jobs."""


class BriefCacheManager(_Cache):
    """All train jobs on the disk, each with the content that the registered updaters add."""

    def __init__(self, base_dir: str) -> None:
        super().__init__(base_dir)
        self._updaters: dict[str, BaseCacheItemUpdater] = {}

    def register_cache_item_updater(self, updater: BaseCacheItemUpdater) -> None:
        """Registers an updater for each train job; it replaces an updater of the same class."""
        with self._lock:
            self._updaters[type(updater).__qualname__] = updater
            self._version = -1

    def loaded(self) -> None:
        """Calls the updaters after each load, also those that have failed before."""
        with self._lock:  # an unknown version, so that `update_cache` calls the updaters again
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
        detail = {
            "loader_id": brief.id,
            "name": train_id_of(brief.id),
            "path": job.basic_info.summary_dir,
            "latest_update_time": brief.updated_at,
            "tag_mapping": {plugin: sorted(names) for plugin, names in sorted(tags.items())},
        }
        job.set(DATAVISUAL, detail)


class _LoadingManager(RunManager):
    """A manager that calls `loaded` at the end of each pass, in its background thread."""

    loaded: Callable[[], None]

    def _pass(self, is_requested: bool) -> bool:
        has_more = super()._pass(is_requested)
        if not has_more:
            self.loaded()
        return has_more


class DataManager:
    """The train jobs below a folder.

    Args:
        summary_base_dir: the folder; links in its path are resolved.

    Example:
        >>> import tempfile
        >>> from pai_sdk.runs import EventWriter
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
        self._lock = threading.Lock()  # guards the replacement of `_manager`
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
        """The state of the load: `INVALID` when it is done without train jobs."""
        state = None if self._manager is None else self._manager.state
        if state is None or state.status == "INIT":
            return DataManagerStatus.INIT
        if state.status == "LOADING":
            return DataManagerStatus.LOADING
        return DataManagerStatus.DONE if state.runs else DataManagerStatus.INVALID

    @property
    def error(self) -> str:
        """The reason why the last load failed; empty when it succeeded."""
        return "" if self._manager is None else self._manager.state.error

    # ---- loading --------------------------------------------------------------------------------------------

    def start_load_data(self, reload_interval: int = 3, max_threads_count: int = 15) -> None:
        """Starts to load in the background.

        Args:
            reload_interval: the pause between two loads, in seconds; 0 to load once.
            max_threads_count: the number of reading threads.

        Raises:
            ParamValueError: an argument is not a whole number, or too small.
        """
        check_int("reload_interval", reload_interval, minimum=0)
        check_int("max_threads_count", max_threads_count, minimum=1)
        self._threads = max_threads_count
        self._use(reload_interval)

    def reload_data(self) -> None:
        """Loads once more, in the background. Concurrent requests share one load."""
        if self._manager is None:
            self._use(0)
            return
        try:
            self._manager.refresh(timeout_s=0)
        except TimeoutError:  # the load is requested, and this call does not wait for it
            return

    def wait(self, timeout_s: float = 60.0) -> None:
        """Waits until all current files are loaded.

        Raises:
            TimeoutError: loading takes longer than `timeout_s` seconds.
            SummaryLogIsLoading: loading was not started.
        """
        if self._manager is None:
            raise SummaryLogIsLoading(_NOT_STARTED)
        self._manager.refresh(timeout_s)

    def close(self) -> None:
        """Stops the background thread."""
        self._brief_cache.use(None)
        self._detail_cache.use(None)
        with self._lock:
            manager, self._manager = self._manager, None
        if manager is not None:  # outside of the lock, since `close` waits for the background thread
            manager.close()

    def _use(self, interval: int) -> None:
        self.close()
        manager = _LoadingManager(self._base_dir, refresh_s=interval, threads=self._threads)
        manager.loaded = self._brief_cache.loaded
        with self._lock:
            self._manager = manager
        self._brief_cache.use(manager)
        self._detail_cache.use(manager)
        manager.start()  # last, since the first pass calls `loaded` of the cache

    def _started(self) -> RunManager:
        manager = self._manager
        if manager is None or manager.state.status == "INIT":
            raise SummaryLogIsLoading(_NOT_STARTED)
        return manager

    # ---- train jobs -----------------------------------------------------------------------------------------

    def register_brief_cache_item_updater(self, updater: BaseCacheItemUpdater) -> None:
        """Registers an updater for the train jobs of the brief cache: called with each load, before each query."""
        self._brief_cache.register_cache_item_updater(updater)

    def get_brief_cache(self) -> BriefCacheManager:
        """Returns the cache of all train jobs."""
        return self._brief_cache

    def get_brief_train_job(self, train_id: str) -> CachedTrainJob:
        """Returns a train job of the brief cache.

        Raises:
            TrainJobNotExistError: there is none with this id.
        """
        self._started()
        return self._brief_cache.get_train_job(train_id)

    def get_train_job(self, train_id: str) -> CachedTrainJob | None:
        """Returns a train job with its tags under the key `datavisual`; None while it is not loaded.

        Raises:
            TrainJobNotExistError: there is none with this id.
            SummaryLogIsLoading: loading has not started.
        """
        self._started()
        job = self._detail_cache.get_train_job(train_id)
        job.update_access_time()
        return None if job.cache_status is CacheStatus.CACHING else job

    def get_train_job_by_plugin(self, train_id: str, plugin_name: str) -> dict[str, Any] | None:
        """Returns id, name and sorted tags of a train job; None while it is not loaded.

        Raises:
            TrainJobNotExistError: there is none with this id.
        """
        job = self.get_train_job(train_id)
        if job is None:
            return None
        detail: Mapping[str, Any] = job.get(DATAVISUAL)
        return {"id": train_id, "name": detail["name"], "tags": detail["tag_mapping"].get(plugin_name, [])}

    def list_train_jobs(self, offset: int = 0, limit: int = 10) -> dict[str, Any]:
        """Returns one page of the train jobs, the newest first, and the number of all train jobs."""
        check_int("offset", offset, minimum=0)
        check_int("limit", limit, minimum=1)
        self._started()
        jobs = [job.basic_info for job in self._brief_cache.get_train_jobs().values()]
        jobs.sort(key=lambda job: (-(job.update_time or 0.0), job.train_id))
        # `offset` counts pages, as in MindInsight.
        return {"total": len(jobs), "train_jobs": jobs[offset * limit : (offset + 1) * limit]}

    def cache_train_job(self, train_id: str) -> None:
        """Loads the points of a train job into memory, in the background.

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
        """Removes a train job until its files change.

        Raises:
            NotImplementedError: with `only_delete_from_cache=False`; files are never deleted.
        """
        if not only_delete_from_cache:
            raise NotImplementedError("Delete from both cache and disk is not supported.")
        self._started()
        self._detail_cache.delete_train_job(train_id)
        self._brief_cache.update_cache()

    def list_tensors(self, train_id: str, tag: str, sample: int | None = None) -> list[TensorEvent]:
        """Returns all values of a tag, in the order of the steps; empty while the train job is not loaded.

        Args:
            train_id: of the train job.
            tag: as `get_train_job_by_plugin` returns it, or without its suffix, the plugin.
            sample: return about so many points, among them the first, last, smallest and largest one.

        Raises:
            TrainJobNotExistError: there is none with this id.
            ParamValueError: the train job has no such tag.
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
            read_values = {"text": run.text, "histogram": run.histograms}.get(tags[name].kind)
            read_values = run.tensors if tags[name].has_tensors else read_values
            return [TensorEvent(*entry) for entry in read_values(name)] if read_values is not None else []
        series = run.scalars(name) if sample is None else run.scalars(name).downsample(sample)
        columns = (series.wall.tolist(), series.step.tolist(), series.value.tolist())
        return [TensorEvent(*values) for values in zip(*columns, strict=True)]


def train_id_of(run_id: str) -> str:
    """Returns the id of the train job of a run: `./name`; `./` for the run `.`."""
    return "./" if run_id == "." else f"./{run_id}"


def run_id_of(train_id: str) -> str:
    """Returns the id of the run of a train job."""
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


def _profiler(folder: str) -> str | None:
    path = Path(folder, "profiler")
    return str(path) if path.is_dir() else None
