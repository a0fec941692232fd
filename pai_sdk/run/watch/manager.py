"""Watches any number of runs while they grow: a brief of each, and the points of those that are looked at.

    prefixes ──scan──> RunEntry (files, reader) ──publish──> Snapshot (briefs) ──> runs(), compare(), subscribe()

Threads and locks: one background thread (`Poller`) scans and reads; it reads in a pool when there is much to read.
Queries look at the last snapshot, so they never wait for a file, unless they ask for points that are not in
memory.

| lock | held | for |
|---|---|---|
| `RunEntry.lock` | by who reads the files of that run | one reader a run |
| in `RunSnapshots` | while a snapshot is made, which needs no I/O | one snapshot after the other |
| in `Poller` | for moments | begin and end of a pass |

No thread waits for the first one while it holds one of the others.

Needs numpy, from the extras `watch` and `service`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pai_sdk.base.extras import missing_extra
from pai_sdk.errors import InvalidInputError, Problem
from pai_sdk.run.store.run_store import RunStore
from pai_sdk.run.watch.hparams_diff import hparams_diff
from pai_sdk.run.watch.names import usual_tags
from pai_sdk.run.watch.poller import Poller
from pai_sdk.run.watch.query import chosen, page_of
from pai_sdk.run.watch.records import HparamsDiff, ManagerState, RunPage, RunRecord
from pai_sdk.run.watch.snapshot import Subscription
from pai_sdk.storage.base import Store
from pai_sdk.storage.store import open_store

if TYPE_CHECKING:
    import pandas as pd

    from pai_sdk.run.plots.buckets import Band, Comparison, XAxis
    from pai_sdk.run.watch.refresh import RunRefresh
    from pai_sdk.run.watch.table import RunTable
    from pai_sdk.run.watch.watched_run import WatchedRun

__all__ = ["RunManager"]

_CLOSE_S = 10.0
_LOADED_S = 600.0


class RunManager:
    """Watches the runs below some folders, and tells about them while they grow.

    A run is a folder with event files, of any program that writes for TensorBoard or MindSpore. Its id is the path
    of that folder below the prefix, without a `tensorboard` at its end. What was appended to a file is read from
    where the last reading ended. All points are kept; down-sampling is for `compare` and drawing.

    Args:
        prefixes: folders: local paths, URIs (`oss://bucket/runs`), run stores, or stores of `pai_sdk.storage`.
            They need not exist yet.
        records: gives what is known about runs from elsewhere, such as the status of their jobs; called in each
            pass.
        refresh_s: the time between two passes in seconds; 0 for passes by `refresh()` only.
        memory_bytes: what the points of all runs may take. Those that were not asked for the longest are dropped,
            and read again when they are needed; what the list of runs shows stays.
        threads: that read files at the same time.
        session: whose keys `oss://` takes; the default session without it.
        opener: opens the folder that a record names; by default as prefixes are opened.

    Raises:
        MissingExtraError: numpy is not installed.
        InvalidInputError: an argument cannot be used; all problems at once.

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
        self._poller = Poller(self._pass, refresh_s, "run-manager")

    def __repr__(self) -> str:
        state = self.state
        return f"<RunManager {state.status}, {state.runs} runs>"

    def __enter__(self) -> RunManager:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- its life -------------------------------------------------------------------------------------------

    def start(self) -> RunManager:
        """Begin to watch, in a background thread; returns the manager itself."""
        self._poller.start()
        return self

    def refresh(self, timeout_s: float = _LOADED_S) -> ManagerState:
        """Look at all files now, and wait until that is done; what failed is tried again.

        Returns:
            The state, which has an error when a prefix cannot be listed. A run that cannot be read has its own.

        Raises:
            TimeoutError: it takes longer; it goes on in the background.
        """
        return self._state_after(self._poller.run(timeout_s), timeout_s)

    def wait_until_settled(self, since: float, timeout_s: float) -> bool:
        """Wait for a pass that began at `since` or later and has read all that the finished runs have.

        Files that grow, and prefixes that are read for the first time, are not waited for.

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
        """Start if that was not done, and wait for the first pass; returns and raises as `refresh`."""
        self.start()
        return self._state_after(self._poller.wait(timeout_s), timeout_s)

    @property
    def state(self) -> ManagerState:
        """The progress of the manager, and why the last pass failed."""
        return self._refresh.current_state()

    @property
    def refresh_s(self) -> float:
        """The time between two passes in seconds; it may be set at any time, such as when no client watches."""
        return self._poller.every_s

    @refresh_s.setter
    def refresh_s(self, seconds: float) -> None:
        self._poller.every_s = seconds

    def close(self, deadline_s: float = _CLOSE_S) -> None:
        """End the background thread, and all subscriptions. Known runs can still be read.

        Raises:
            TimeoutError: a file was still being read after `deadline_s` seconds. No data is lost.
        """
        self._refresh.is_closed = True
        self._refresh.snapshots.close()
        if not self._poller.close(deadline_s):
            raise TimeoutError(f"a run is still being read after {deadline_s:g} s; no data is lost")

    def _pass(self, is_asked: bool) -> bool:
        """One pass, in the background thread; a subclass adds to it. True if more is to be read at once."""
        return self._refresh.run(is_asked)

    def _state_after(self, is_done: bool, timeout_s: float) -> ManagerState:
        if not is_done:
            why = (
                "the manager was closed"
                if self._refresh.is_closed
                else f"not all runs are read after {timeout_s:g} s"
            )
            raise TimeoutError(f"{why}; {self.state.runs} runs are known")
        return self.state

    # ---- questions ------------------------------------------------------------------------------------------

    def runs(
        self,
        filter: str = "",
        sort: str = "-updated",
        limit: int = 100,
        cursor: str | None = None,
        tags: Iterable[str] | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> RunPage:
        """The briefs of runs, a page at a time.

        Args:
            filter: conditions with spaces between them, all of which must hold: `status=Running loss<0.3`.
            sort: `id`, `name`, `created`, `updated`, `status`, `hparams.NAME` or `metrics.TAG`; `-` reverses. Runs
                without the value are at the end.
            limit: the most runs of the page.
            cursor: the `next` of the page before.
            tags: the tags that the briefs shall have; None for all.
            labels: the labels that the runs must have.

        Raises:
            InvalidInputError: an argument cannot be used; it says where.
        """
        return page_of(self._refresh.snapshots.now, filter, sort, limit, cursor, tags, labels)

    def run(self, run_id: str) -> WatchedRun:
        """One run.

        Raises:
            RunNotFoundError: there is none with this id.
        """
        from pai_sdk.run.watch.watched_run import WatchedRun

        self._refresh.known(run_id)
        return WatchedRun(self._refresh, run_id)

    def compare(
        self,
        runs: str | Iterable[str],
        tag: str,
        x: XAxis = "step",
        start: float | None = None,
        end: float | None = None,
        buckets: int = 250,
        smooth: float = 0.0,
        group_by: str | Sequence[str] = (),
        band: Band | None = None,
        half_life: float | None = None,
    ) -> Comparison:
        """One metric of many runs, as curves over one x axis. Runs without the metric are left out.

        A view with at most two points a bucket has all points; otherwise each curve has the least, the largest and
        the last value of each bucket, so no extreme is lost.

        Args:
            runs: ids, one id, or a filter.
            tag: the metric.
            x: what the x axis is: `step`, `relative_step`, `relative_time` or `wall`.
            start: the least x of the view; None for that of the data.
            end: the largest x, likewise.
            buckets: the most buckets that are wanted.
            smooth: the weight of TensorBoard's smoothing, from 0 to less than 1. It is over all points.
            group_by: hyperparameters, or keys as in a filter: the runs that are equal in all of them give one
                curve.
            band: what is shown around the curve of a group: `std`, `range` or `quantile`.
            half_life: smooth by distance instead: a value counts half as much after so many units of x.

        Raises:
            InvalidInputError: an argument cannot be used, or there is no run with one of the ids.
            StorageError: files had to be read again, which failed.
        """
        from pai_sdk.run.watch.compare import compare

        keys = [group_by] if isinstance(group_by, str) else list(group_by)
        return compare(
            self._refresh,
            chosen(self._refresh.snapshots.now, runs),
            tag,
            x=x,
            start=start,
            end=end,
            buckets=buckets,
            smooth=smooth,
            half_life=half_life,
            group_by=keys,
            band=band,
        )

    def hparams_diff(self, runs: str | Iterable[str] = "", metric: str | None = None) -> HparamsDiff:
        """The hyperparameters in which runs differ, those first that explain most of a metric.

        Args:
            runs: ids, one id, or a filter; all runs by default.
            metric: to rank them by, as in a filter: `loss`, `eval/acc.max`.

        Raises:
            InvalidInputError: the filter cannot be read, or there is no run with one of the ids.
        """
        return hparams_diff(chosen(self._refresh.snapshots.now, runs), metric)

    def to_pandas(self, runs: str | Iterable[str] = "", tags: Sequence[str] | None = None) -> pd.DataFrame:
        """A data frame with a row a run, and its id as index.

        The columns have the names of sort keys: `status`, `created`, `hparams.lr`, `labels.team`, `metrics.loss`
        (the last value), `metrics.loss.min`, `metrics.loss.max`.

        Args:
            runs: ids, one id, or a filter; all runs by default.
            tags: the metrics that are wanted; all by default.

        Raises:
            MissingExtraError: pandas is not installed.
            InvalidInputError: the filter cannot be read, or there is no run with one of the ids.
        """
        from pai_sdk.run.watch.compare import table_of

        return table_of(chosen(self._refresh.snapshots.now, runs), tags)

    def table(
        self,
        filter: str = "",
        sort: str = "-updated",
        limit: int = 50,
        tags: Sequence[str] = (),
        *,
        with_curves: bool = True,
    ) -> RunTable:
        """Runs as a table, which shows itself in a notebook: status, age, what differs, metrics, a small curve.

        Args:
            filter: conditions, as in `runs`.
            sort: likewise.
            limit: the most runs.
            tags: the metrics; those that most runs have, by default.
            with_curves: draw the course of the first metric, whose points are read if they are not in memory.

        Raises:
            InvalidInputError: an argument cannot be used; it says where.
            StorageError: files had to be read again, which failed.
        """
        from pai_sdk.run.watch.table import RunTable

        page = self.runs(filter, sort, limit)
        shown = tuple(tags) or usual_tags(page.runs)
        curves = (
            self.compare([run.id for run in page.runs], shown[0], buckets=60) if with_curves and shown else None
        )
        return RunTable(page.runs, shown, page.total, curves)

    def delete(self, run_id: str) -> None:
        """Forget a run here; its files stay. It comes back when its files change.

        Raises:
            RunNotFoundError: there is none with this id.
        """
        self._refresh.known(run_id)
        self._refresh.delete(run_id)

    def subscribe(self, since: int | None = None) -> Subscription:
        """The changes of runs from now on, or since a version, as an iterator that waits for them."""
        return Subscription(self._refresh.snapshots, since)


def _run_refresh() -> type[RunRefresh]:
    """Imports the reader of event files; `import pai_sdk` must not need numpy."""
    try:
        from pai_sdk.run.watch.refresh import RunRefresh
    except ModuleNotFoundError as error:
        if error.name != "numpy":
            raise
        raise missing_extra("watching runs needs numpy", "watch") from error
    return RunRefresh


def _check(refresh_s: object, memory_bytes: object, threads: object) -> None:
    problems = []
    if isinstance(refresh_s, bool) or not isinstance(refresh_s, (int, float)) or not 0 <= refresh_s < 1e6:
        problems.append(Problem("refresh_s", f"is {refresh_s!r}", "seconds from 0; 0 only refreshes when asked"))
    if isinstance(memory_bytes, bool) or not isinstance(memory_bytes, int) or memory_bytes < 0:
        problems.append(Problem("memory_bytes", f"is {memory_bytes!r}", "a whole number of bytes from 0"))
    if isinstance(threads, bool) or not isinstance(threads, int) or threads < 1:
        problems.append(Problem("threads", f"is {threads!r}", "a whole number from 1"))
    if problems:
        raise InvalidInputError(problems)


def _opened(prefix: str | Path | RunStore | Store, session: Any) -> Store:
    if isinstance(prefix, RunStore):
        return prefix.open_runs()
    if isinstance(prefix, (str, Path)):
        return open_store(prefix, session)
    if isinstance(prefix, Store):
        return prefix
    hint = "give a path, a URI, a RunStore, or a store of pai_sdk.storage"
    raise InvalidInputError([Problem("prefixes", f"{prefix!r} is no folder", hint)])
