"""Pages of the points of a job's metrics, read from the event files in its folder.

Jobs that finished before points were stored in event files only have them in the table `metrics`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import select

from pai_sdk._data.run.events.attempts import Attempt, oldest_first, replacements, start_order
from pai_sdk._data.run.events.points import END_OF_TIME_S, JobPoints, Part
from pai_sdk._host.agent.sandbox import Sandbox
from pai_sdk._host.execution.job_metrics import open_points
from pai_sdk._service.services.jobs.job_table import Jobs, latest_metrics_of
from pai_sdk._service.state.folder import DataFolder
from pai_sdk._service.state.models import LatestMetric, Metric
from pai_sdk._wire.pai.request import TrainingJobRequest
from pai_sdk._wire.training_jobs import metric_row

if TYPE_CHECKING:
    import numpy.typing as npt

_MAX_CACHED_POINTS = 2_000_000  # of all jobs, without the current page; a point takes about 30 bytes


class PointsQuery(NamedTuple):
    """The points of a page; times are in seconds since 1970, an empty name means all metrics."""

    name: str = ""
    start: float | None = None
    end: float | None = None
    is_descending: bool = False
    offset: int = 0
    limit: int = 100


class MetricPages:
    """The points of jobs, sorted by time. Thread-safe: a lock is held while a page is created."""

    def __init__(self, jobs: Jobs, folder: DataFolder) -> None:
        self._jobs, self._folder = jobs, folder
        self._lock = threading.Lock()
        # LRU cache by job and metric: the last entry is the newest.
        self._tables: dict[tuple[str, str], _Table] = {}

    def page(
        self, job_id: str, query: PointsQuery, hold: Callable[[int], None]
    ) -> tuple[int, list[dict[str, Any]]]:
        """Returns the number of points, and the points of one page in the format of the REST API.

        `hold` is called with the number of points in memory, and raises if there are too many.
        """
        with self._lock:
            key = job_id, query.name
            # Popped and inserted again: this moves it to the end. It is also dropped if reading raises.
            table = self._tables.pop(key, None) or self._new_table(job_id, query.name)
            # An event file was replaced, for example by a new attempt: all points are read again.
            if not table.read_on(hold):
                table = self._new_table(job_id, query.name)
                table.read_on(hold)
            self._tables[key] = table
            remaining = _MAX_CACHED_POINTS - len(table)
            # From the newest to the oldest table, without the current one.
            for other in list(self._tables)[-2::-1]:
                remaining -= len(self._tables[other])
                if remaining < 0:
                    del self._tables[other]
            return table.page(query)

    def latest(self, job_id: str, names: Sequence[str]) -> list[LatestMetric]:
        """Returns the last values of some metrics of a job; those of all metrics without names."""
        with self._jobs.database.read() as session:
            metrics = latest_metrics_of(session, [job_id]).get(job_id, [])
        return [metric for metric in metrics if not names or metric.name in names]

    def _new_table(self, job_id: str, name: str) -> _Table:
        # The table has the points of jobs that finished before schema version 5; others are in event files.
        old = select(Metric).where(Metric.job_id == job_id, *([Metric.name == name] if name else []))
        parts: dict[tuple[str, str, bool], Part] = {}
        with self._jobs.database.read() as session:
            for point in session.scalars(old.order_by(Metric.number)):
                source = point.name, point.instance or "", point.step is None
                part = parts.setdefault(source, Part(*source, "", [], [], []))
                part.wall.append(point.timestamp)
                part.step.append(point.number if point.step is None else point.step)
                part.value.append(point.value)
        if parts:
            return _Table(name, parts.values(), None)
        request = TrainingJobRequest.model_validate(self._jobs.get(job_id).request)
        return _Table(name, (), open_points(job_id, request, Sandbox(self._folder.job_dir(job_id))))


class _Table:
    """The points of one job, or of one metric of it."""

    def __init__(self, name: str, parts: Iterable[Part], reader: JobPoints | None) -> None:
        self._name, self._reader = name, reader
        self._epoch = reader.epoch if reader else 0
        self._sources: dict[tuple[str, str, bool, int], int] = {}  # metric, instance, is from the log, rank
        self._files: dict[str, int] = {}
        # Time, file, step, source and value of each point; sorted by the first three.
        self._columns: tuple[npt.NDArray[Any], ...] = ()
        self._counting: tuple[npt.NDArray[Any], ...] = ()  # without points that a restart has replaced
        self._add(parts, lambda _: None)

    def __len__(self) -> int:
        return len(self._columns[0]) if self._columns else 0

    def read_on(self, hold: Callable[[int], None]) -> bool:
        """Adds new points; returns False if they do not continue the existing ones."""
        if self._reader is not None:
            self._add(self._reader.read_on(), hold)
        return self._reader is None or self._reader.epoch == self._epoch

    def _add(self, parts: Iterable[Part], hold: Callable[[int], None]) -> None:
        import numpy as np

        added, count = [self._columns] if self._columns else [], len(self)
        for part in parts:
            if len(part.wall) and self._name in ("", part.name):
                count += len(part.wall)
                hold(count)
                added.append(self._columns_of(part))
        if count > len(self):
            columns = [np.concatenate(column) for column in zip(*added, strict=True)]
            # lexsort sorts by its last key first: time, then file, then step.
            order = np.lexsort(columns[2::-1])
            self._columns = tuple(column[order] for column in columns)
            is_counting = self._are_counting() if len(self._files) > 1 else None
            self._counting = (
                self._columns
                if is_counting is None or is_counting.all()
                else tuple(column[is_counting] for column in self._columns)
            )

    def _are_counting(self) -> npt.NDArray[Any]:
        """Returns a mask of the points that later files of the same source have not replaced."""
        import numpy as np

        _, file, step, source, _ = self._columns
        is_counting = np.ones(len(step), bool)
        starts = [start_order(path) for path in self._files]
        order = np.lexsort((step, file, source))
        ends = np.flatnonzero((np.diff(source[order]) != 0) | (np.diff(file[order]) != 0)) + 1
        by_source: dict[int, list[npt.NDArray[Any]]] = {}
        for rows in np.split(order, ends):
            by_source.setdefault(int(source[rows[0]]), []).append(rows)
        for groups in by_source.values():
            if len(groups) < 2:
                continue
            attempts = [Attempt(starts[int(file[rows[0]])], None, step[rows]) for rows in groups]
            arrangement = oldest_first(attempts)
            steps = [attempts[number].steps for number in arrangement]
            for number, replacement in zip(arrangement, replacements(steps), strict=True):
                rows = groups[number]
                if replacement.limit is not None:
                    is_counting[rows[step[rows] >= replacement.limit]] = False
                for newer in replacement.replaced_by:
                    is_counting[rows[np.isin(step[rows], steps[newer])]] = False
        return is_counting

    def _columns_of(self, part: Part) -> tuple[npt.NDArray[Any], ...]:
        import numpy as np

        source = self._sources.setdefault(part.source, len(self._sources))
        file = self._files.setdefault(part.path, len(self._files))
        wall, count = np.asarray(part.wall, np.float64), len(part.wall)
        return (
            np.where((wall >= 0) & (wall < END_OF_TIME_S), wall, 0.0),  # a job can write any time
            np.full(count, file, np.int16),
            np.asarray(part.step, np.int64),
            np.full(count, source, np.int32),
            np.asarray(part.value, np.float64),
        )

    def page(self, query: PointsQuery) -> tuple[int, list[dict[str, Any]]]:
        """Returns the number of matching points, and those of the page."""
        import numpy as np

        if not self._counting:
            return 0, []
        wall = self._counting[0]
        start = 0 if query.start is None else int(np.searchsorted(wall, query.start, "left"))
        end = len(wall) if query.end is None else int(np.searchsorted(wall, query.end, "right"))
        total = max(0, end - start)
        first, last = min(query.offset, total), min(query.offset + query.limit, total)
        if query.is_descending:
            return total, list(self._rows(start + total - last, start + total - first))[::-1]
        return total, list(self._rows(start + first, start + last))

    def _rows(self, start: int, end: int) -> Iterator[dict[str, Any]]:
        sources = list(self._sources)
        columns = (column[start:end].tolist() for column in self._counting)
        for wall, _, step, source, value in zip(*columns, strict=True):
            name, instance, is_from_log, rank = sources[source]
            yield metric_row(name, wall, value, step=None if is_from_log else step, rank=rank, instance=instance)
