"""Pages of the points of a job's metrics, read from the event files in its folder.

Jobs that had ended before their points were in event files only have them in the table `metrics`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import select

from pai_sdk._wire.metrics import metric_row
from pai_sdk.agent.sandbox import Sandbox
from pai_sdk.execution.contract import instances
from pai_sdk.run.events.attempts import Attempt, oldest_first, replacements, start_order
from pai_sdk.run.events.points import END_OF_TIME_S, EventFolder, JobPoints, Part
from pai_sdk.run.report.layout import RunLayout
from pai_sdk.schemas.request import TrainingJobRequest
from pai_sdk.service.jobs.job_table import Jobs
from pai_sdk.service.state.folder import DataFolder
from pai_sdk.service.state.models import Metric

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["MetricPages", "Wanted", "open_points"]

_MOST_KEPT_POINTS = 2_000_000  # of all jobs, beside those of the page under way; one takes about 30 bytes


class Wanted(NamedTuple):
    """Which points a page has.

    Attributes:
        name: of the only metric; empty for all.
        start: the least time, in seconds since 1970.
        end: the largest one.
        is_descending: the newest come first.
        offset: how many come before the page.
        limit: the most that it has.
    """

    name: str = ""
    start: float | None = None
    end: float | None = None
    is_descending: bool = False
    offset: int = 0
    limit: int = 100


def open_points(job_id: str, request: TrainingJobRequest, sandbox: Sandbox) -> JobPoints:
    """Opens the points of a job on this machine."""
    folder = EventFolder(Path(RunLayout(str(sandbox.ml / "output")).tensorboard))
    return JobPoints(folder, [instance.name for instance in instances(job_id, request)])


class MetricPages:
    """The points of jobs, sorted by time. Safe to use from several threads: a lock is held while a page is made.

    Args:
        jobs: the jobs.
        folder: of the service.
    """

    def __init__(self, jobs: Jobs, folder: DataFolder) -> None:
        self._jobs, self._folder = jobs, folder
        self._lock = threading.Lock()
        self._tables: dict[tuple[str, str], _Table] = {}  # by job and metric; the last one was used last

    def page(self, job_id: str, wanted: Wanted, hold: Callable[[int], None]) -> tuple[int, list[dict[str, Any]]]:
        """Returns the number of points, and those of one page as the wire has them.

        Args:
            job_id: which job.
            wanted: which points.
            hold: called with how many points are in memory; raises when they are too many.

        Raises:
            WireError: there is no such job, or it has too many points.
            StorageError: a file cannot be read.
        """
        with self._lock:
            key = job_id, wanted.name
            table = self._tables.pop(key, None) or self._new_table(job_id, wanted.name)
            if not table.read_on(hold):
                table = self._new_table(job_id, wanted.name)
                table.read_on(hold)
            self._tables[key] = table
            left = _MOST_KEPT_POINTS - len(table)
            for other in list(self._tables)[-2::-1]:
                left -= len(self._tables[other])
                if left < 0:
                    del self._tables[other]
            return table.page(wanted)

    def _new_table(self, job_id: str, name: str) -> _Table:
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
        self._sources: dict[tuple[str, str, bool, int], int] = {}  # metric, instance, whether from the log, rank
        self._files: dict[str, int] = {}
        # Of each point time, file, step, source and value; sorted by the first three.
        self._columns: tuple[npt.NDArray[Any], ...] = ()
        self._counting: tuple[npt.NDArray[Any], ...] = ()  # those that a restart has not replaced
        self._add(parts, lambda _: None)

    def __len__(self) -> int:
        return len(self._columns[0]) if self._columns else 0

    def read_on(self, hold: Callable[[int], None]) -> bool:
        """Add what is new; False when that is no continuation of what is here."""
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
            order = np.lexsort(columns[2::-1])
            self._columns = tuple(column[order] for column in columns)
            is_counting = self._are_counting() if len(self._files) > 1 else None
            self._counting = (
                self._columns
                if is_counting is None or is_counting.all()
                else tuple(column[is_counting] for column in self._columns)
            )

    def _are_counting(self) -> npt.NDArray[Any]:
        """Which points later files of their sources have not replaced."""
        import numpy as np

        _, file, step, source, _ = self._columns
        is_counting = np.ones(len(step), bool)
        began = [start_order(path) for path in self._files]
        order = np.lexsort((step, file, source))
        ends = np.flatnonzero((np.diff(source[order]) != 0) | (np.diff(file[order]) != 0)) + 1
        by_source: dict[int, list[npt.NDArray[Any]]] = {}
        for rows in np.split(order, ends):
            by_source.setdefault(int(source[rows[0]]), []).append(rows)
        for groups in by_source.values():
            if len(groups) < 2:
                continue
            attempts = [Attempt(began[int(file[rows[0]])], None, step[rows]) for rows in groups]
            arrangement = oldest_first(attempts)
            steps = [attempts[number].steps for number in arrangement]
            for number, cut in zip(arrangement, replacements(steps), strict=True):
                rows = groups[number]
                if cut.limit is not None:
                    is_counting[rows[step[rows] >= cut.limit]] = False
                for newer in cut.replaced_by:
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

    def page(self, wanted: Wanted) -> tuple[int, list[dict[str, Any]]]:
        """Returns the number of points that are wanted, and those of the page."""
        import numpy as np

        if not self._counting:
            return 0, []
        wall = self._counting[0]
        begin = 0 if wanted.start is None else int(np.searchsorted(wall, wanted.start, "left"))
        end = len(wall) if wanted.end is None else int(np.searchsorted(wall, wanted.end, "right"))
        total = max(0, end - begin)
        first, last = min(wanted.offset, total), min(wanted.offset + wanted.limit, total)
        if wanted.is_descending:
            return total, list(self._rows(begin + total - last, begin + total - first))[::-1]
        return total, list(self._rows(begin + first, begin + last))

    def _rows(self, begin: int, end: int) -> Iterator[dict[str, Any]]:
        sources = list(self._sources)
        columns = (column[begin:end].tolist() for column in self._counting)
        for wall, _, step, source, value in zip(*columns, strict=True):
            name, instance, is_from_log, rank = sources[source]
            yield metric_row(name, wall, value, step=None if is_from_log else step, rank=rank, instance=instance)
