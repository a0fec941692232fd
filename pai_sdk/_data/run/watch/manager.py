"""Watches any number of runs while they grow: a brief of each, and the points of requested ones.

    prefixes ──scan──> RunEntry (files, reader) ──publish──> Snapshot (briefs) ──> runs(), compare(), subscribe()

Threads and locks: one background thread (`Poller`) scans and reads; it reads in a pool when there is much to read.
Queries read the last snapshot, so they never wait for a file, unless they request points that are not in
memory.

| lock | held | for |
|---|---|---|
| `RunEntry.lock` | by the thread that reads the files of that run | one reader for each run |
| in `RunSnapshots` | while a snapshot is created, which needs no I/O | one snapshot after the other |
| in `Poller` | for moments | start and end of a pass |

No thread waits for `RunEntry.lock` while it holds one of the other locks.

Needs numpy, from the extras `watch` and `service`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pai_sdk._core.extras import missing_extra
from pai_sdk._core.names.hints import wrong_value
from pai_sdk._data.run.plots.curve_view import Band, CurveView, XAxis
from pai_sdk._data.run.store.run_store import RunStore
from pai_sdk._data.run.watch.hparams_diff import hparams_diff
from pai_sdk._data.run.watch.names import usual_tags
from pai_sdk._data.run.watch.poller import Poller
from pai_sdk._data.run.watch.query import page_of, select_runs
from pai_sdk._data.run.watch.records import HparamsDiff, ManagerState, RunPage, RunRecord, RunReference
from pai_sdk._data.run.watch.snapshot import Snapshot, Subscription
from pai_sdk._data.storage.base import Store
from pai_sdk._data.storage.store import open_store
from pai_sdk.errors import InvalidInputError, Problem

if TYPE_CHECKING:
    import pandas as pd

    from pai_sdk._data.run.plots.figures import Comparison
    from pai_sdk._data.run.watch.refresh import RunRefresh
    from pai_sdk._data.run.watch.table import RunTable
    from pai_sdk._data.run.watch.watched_run import WatchedRun

_CLOSE_S = 10.0
_LOADED_S = 600.0


class RunManager:
    """Watches the runs below some folders, and reports on them while they grow.

    A run is a folder with event files, of any program that writes for TensorBoard or MindSpore. Its id is the path
    of that folder below the prefix, without a `tensorboard` at its end. New data of a file is read from the
    end of the previous read. All points are stored; down-sampling is for `compare` and drawing.

    Args:
        prefixes: folders: local paths, URIs (`oss://bucket/runs`), run stores, or stores of `pai_sdk.storage`.
            They need not exist yet.
        records: returns data about runs from another source, such as the status of their jobs; called in each
            pass.
        refresh_s: the time between two passes in seconds; 0 for passes by `refresh()` only.
        memory_bytes: the limit for the points of all runs. The least recently requested ones are dropped,
            and read again when they are needed; the data of the list of runs stays.
        threads: the number of threads that read files at the same time.
        session: the session whose keys are used for `oss://`; the default session if None.
        opener: opens the folder that a record names; by default, folders are opened like prefixes.

    Raises:
        MissingExtraError: numpy is not installed.
        InvalidInputError: an argument is invalid; it has all problems.

    Example:
        >>> from pathlib import Path
        >>> from pai_sdk import ReportSession
        >>> for name, rate in (("slow", 0.01), ("fast", 0.1)):
        ...     with ReportSession(Path("runs", name)) as session:
        ...         for step in range(3):
        ...             session.report({"loss": 1 - rate * step}, step)
        >>> with RunManager("runs") as manager:
        ...     manager.refresh().status, [run.id for run in manager.runs(sort="metrics.loss").runs]
        ('DONE', ['fast', 'slow'])
    """

    def __init__(
        self,
        *prefixes: str | Path | RunStore | Store,
        records: Callable[[], Iterable[RunRecord]] | None = None,
        refresh_s: float = 0.5,
        memory_bytes: int = 512 << 20,
        threads: int = 8,
        session: Any = None,
        opener: Callable[[str], Store] | None = None,
    ) -> None:
        _check(refresh_s, memory_bytes, threads)
        opened = [_opened(prefix, session) for prefix in prefixes]
        self._refresh = _run_refresh()(
            opened, records, opener or (lambda uri: open_store(uri, session)), memory_bytes, threads
        )
        self._data = self._refresh.data
        self._poller = Poller(self._pass, refresh_s, "run-manager")

    def __repr__(self) -> str:
        state = self.state
        return f"<RunManager {state.status}, {state.runs} runs>"

    def __enter__(self) -> RunManager:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- life cycle -----------------------------------------------------------------------------------------

    def start(self) -> RunManager:
        """Start to watch, in a background thread; returns the manager itself."""
        self._poller.start()
        return self

    def refresh(self, timeout_s: float = _LOADED_S) -> ManagerState:
        """Check all files now, and wait until that is done; failed reads are tried again.

        Returns:
            The state, with an error when a prefix cannot be listed. An unreadable run has an error of its own.

        Raises:
            TimeoutError: it takes longer; the refresh continues in the background.
        """
        return self._state_after(self._poller.run(timeout_s), timeout_s)

    def wait_until_settled(self, since: float, timeout_s: float) -> bool:
        """Wait for a pass that started at `since` or later and has read all data of the finished runs.

        It does not wait for growing files, nor for prefixes that are read for the first time.

        Args:
            since: on the monotonic clock, such as the time at which a job finished.
            timeout_s: in seconds.

        Returns:
            False if it takes longer.
        """
        if self._refresh.settled_at >= since:
            return True
        return self._poller.run_until(lambda: self._refresh.settled_at >= since, timeout_s)

    def wait_until_loaded(self, timeout_s: float = _LOADED_S) -> ManagerState:
        """Start if necessary, and wait for the first pass; returns and raises as `refresh`."""
        self.start()
        return self._state_after(self._poller.wait(timeout_s), timeout_s)

    @property
    def state(self) -> ManagerState:
        """The progress of the manager, and the error of the last pass."""
        now, points_bytes = self._data.snapshots.now, self._data.points_bytes
        return replace(self._refresh.state, version=now.version, runs=len(now.briefs), points_bytes=points_bytes)

    @property
    def refresh_s(self) -> float:
        """The time between two passes in seconds; can be set at any time, such as when no client watches."""
        return self._poller.every_s

    @refresh_s.setter
    def refresh_s(self, seconds: float) -> None:
        self._poller.every_s = seconds

    def close(self, deadline_s: float = _CLOSE_S) -> None:
        """End the background thread, and all subscriptions. Listed runs can still be read.

        Raises:
            TimeoutError: a file was still being read after `deadline_s` seconds. No data is lost.
        """
        self._refresh.is_closed = True
        self._data.snapshots.close()
        if not self._poller.close(deadline_s):
            raise TimeoutError(f"a run is still being read after {deadline_s:g} s; no data is lost")

    def _pass(self, is_requested: bool) -> bool:
        """Runs one pass, in the background thread; subclasses extend it. Returns True to run again at once."""
        return self._refresh.run(is_requested)

    def _state_after(self, is_done: bool, timeout_s: float) -> ManagerState:
        if not is_done:
            reason = (
                "the manager was closed"
                if self._refresh.is_closed
                else f"not all runs were read after {timeout_s:g} s"
            )
            raise TimeoutError(f"{reason}; {self.state.runs} runs are known")
        return self.state

    def _load_first(self) -> None:
        """Starts a manager that was never started, and waits for the first pass."""
        # Otherwise all its queries would return that there are no runs.
        if not self._poller.was_started:
            self.wait_until_loaded()

    @property
    def _snapshot(self) -> Snapshot:
        self._load_first()
        return self._data.snapshots.now

    # ---- queries --------------------------------------------------------------------------------------------

    def runs(
        self,
        filter: str = "",
        sort: str = "-updated",
        limit: int = 100,
        cursor: str | None = None,
        tags: Iterable[str] | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> RunPage:
        """Returns a page of the briefs of runs.

        Args:
            filter: conditions with spaces between them, all of which must hold: `status=Running loss<0.3`.
            sort: `id`, `name`, `created`, `updated`, `status`, `hparams.NAME` or `metrics.TAG`; `-` reverses. Runs
                without the value are at the end.
            limit: the maximum number of runs of the page.
            cursor: the `next` of the previous page.
            tags: the tags that the briefs should have; None for all.
            labels: the labels that the runs must have.

        Raises:
            InvalidInputError: an argument is invalid.
        """
        return page_of(self._snapshot, filter, sort, limit, cursor, tags, labels)

    def run(self, run_id: str) -> WatchedRun:
        """Returns one run.

        Raises:
            RunNotFoundError: there is none with this id.
        """
        from pai_sdk._data.run.watch.watched_run import WatchedRun

        self._load_first()
        self._data.get_brief(run_id)
        return WatchedRun(self._data, run_id)

    def compare(
        self,
        runs: str | Iterable[str | RunReference],
        tag: str,
        x: XAxis | str = "step",
        start: float | None = None,
        end: float | None = None,
        buckets: int = 250,
        smooth: float = 0.0,
        group_by: str | Sequence[str] = (),
        band: Band | None = None,
        half_life: float | None = None,
    ) -> Comparison:
        """Returns one metric of many runs, as curves over one x axis. Runs without the metric are left out.

        A view with at most two points in a bucket has all points; otherwise each curve has the minimum, the
        maximum and the last value of each bucket, so no extreme is lost.

        Args:
            runs: ids or jobs, one id, or a filter.
            tag: the metric.
            x: the quantity of the x axis: `step`, `relative_step`, `relative_time`, `wall`, or `metric:TAG`:
                the value of another metric at the same step. Points whose step has none are left out.
            start: the minimum x of the view; None for that of the data.
            end: the maximum x of the view; None for that of the data.
            buckets: the maximum number of buckets.
            smooth: the weight of TensorBoard's smoothing, from 0 to less than 1, over all points.
            group_by: hyperparameters, or keys as in a filter: the runs that are equal in all of them give one
                curve.
            band: the band around the curve of a group: `std`, `range` or `quantile`.
            half_life: smooth by distance instead: the weight of a value halves after this many units of x.

        Raises:
            InvalidInputError: an argument is invalid, or there is no run with one of the ids.
            StorageError: files had to be read again, which failed.
        """
        from pai_sdk._data.run.watch.compare import compare

        keys = [group_by] if isinstance(group_by, str) else list(group_by)
        view = CurveView(x, start, end, buckets, smooth, half_life)
        return compare(self._data, select_runs(self._snapshot, runs), tag, view, keys, band)

    def hparams_diff(
        self, runs: str | Iterable[str | RunReference] = "", metric: str | None = None
    ) -> HparamsDiff:
        """Returns the hyperparameters in which runs differ, those first that explain most of a metric.

        Args:
            runs: ids or jobs, one id, or a filter; all runs by default.
            metric: to rank them by, as in a filter: `loss`, `eval/acc.max`.

        Raises:
            InvalidInputError: the filter is invalid, or there is no run with one of the ids.
        """
        return hparams_diff(select_runs(self._snapshot, runs), metric)

    def to_pandas(
        self, runs: str | Iterable[str | RunReference] = "", tags: Sequence[str] | None = None
    ) -> pd.DataFrame:
        """Returns a data frame with a row for each run, and the ids as index.

        The columns have the names of sort keys: `status`, `created`, `hparams.lr`, `labels.team`, `metrics.loss`
        (the last value), `metrics.loss.min`, `metrics.loss.max`.

        Args:
            runs: ids or jobs, one id, or a filter; all runs by default.
            tags: the selected metrics; all by default.

        Raises:
            MissingExtraError: pandas is not installed.
            InvalidInputError: the filter is invalid, or there is no run with one of the ids.
        """
        from pai_sdk._data.run.watch.compare import table_of

        return table_of(select_runs(self._snapshot, runs), tags)

    def table(
        self,
        filter: str = "",
        sort: str = "-updated",
        limit: int = 50,
        tags: Sequence[str] = (),
        *,
        with_curves: bool = True,
    ) -> RunTable:
        """Returns a table of runs, which notebooks display: status, age, hyperparameters that differ, metrics.

        Args:
            filter: conditions, as in `runs`.
            sort: the key to sort by, as in `runs`.
            limit: the maximum number of runs.
            tags: the metrics; those that most runs have, by default.
            with_curves: draw the course of the first metric, whose points are read if they are not in memory.

        Raises:
            InvalidInputError: an argument is invalid.
            StorageError: files had to be read again, which failed.
        """
        from pai_sdk._data.run.watch.table import RunTable

        page = self.runs(filter, sort, limit)
        metrics = tuple(tags) or usual_tags(page.runs)
        curves = (
            self.compare([run.id for run in page.runs], metrics[0], buckets=60)
            if with_curves and metrics
            else None
        )
        return RunTable(page.runs, metrics, page.total, curves)

    def delete(self, run_id: str) -> None:
        """Remove a run from the manager; the files stay. The run is listed again when its files change.

        Raises:
            RunNotFoundError: there is none with this id.
        """
        self._data.get_brief(run_id)
        self._data.delete(run_id)

    def subscribe(self, since: int | None = None) -> Subscription:
        """Returns the changes of runs from now on, or since a version, as an iterator that waits for them."""
        return Subscription(self._data.snapshots, since)


def _run_refresh() -> type[RunRefresh]:
    """Imports the reader of event files; `import pai_sdk` must not need numpy."""
    try:
        from pai_sdk._data.run.watch.refresh import RunRefresh
    except ModuleNotFoundError as error:
        if error.name != "numpy":
            raise
        raise missing_extra("watching runs needs numpy", "watch") from error
    return RunRefresh


def _check(refresh_s: object, memory_bytes: object, threads: object) -> None:
    problems = []
    if isinstance(refresh_s, bool) or not isinstance(refresh_s, (int, float)) or not 0 <= refresh_s < 1e6:
        problems.append(wrong_value("refresh_s", refresh_s, "a number of seconds (minimum 0: only refresh())"))
    if isinstance(memory_bytes, bool) or not isinstance(memory_bytes, int) or memory_bytes < 0:
        problems.append(wrong_value("memory_bytes", memory_bytes, "an integer (minimum 0)"))
    if isinstance(threads, bool) or not isinstance(threads, int) or threads < 1:
        problems.append(wrong_value("threads", threads, "an integer (minimum 1)"))
    if problems:
        raise InvalidInputError(problems)


def _opened(prefix: str | Path | RunStore | Store, session: Any) -> Store:
    if isinstance(prefix, RunStore):
        return prefix.open_runs()
    if isinstance(prefix, (str, Path)):
        return open_store(prefix, session)
    if isinstance(prefix, Store):
        return prefix
    hint = "give a path, a URI, a RunStore, or a store of pai_sdk._data.storage"
    raise InvalidInputError([Problem("prefixes", f"{prefix!r} is not a folder", hint)])
