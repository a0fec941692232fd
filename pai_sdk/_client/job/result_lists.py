"""Lists that print as tables: the jobs of a wait, and the values of metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING, SupportsIndex, TypeVar, overload

from pai_sdk._client.display.choice import notebook_cell
from pai_sdk._client.display.curves import MetricCurves
from pai_sdk._client.display.job_listing import job_table, job_table_html
from pai_sdk._client.job.stopping import Stoppable, stop_unfinished
from pai_sdk._core.extras import import_pandas
from pai_sdk._core.names.aliases import Aliased
from pai_sdk._core.short_traceback import short_tracebacks
from pai_sdk._core.tables.html import table_html
from pai_sdk._core.tables.table import Cell, Column, Table, text_columns
from pai_sdk._core.tables.terminal import table_text
from pai_sdk._data.run.events.sources import source_label
from pai_sdk._wire.pai.record import JobRecord, MetricPoint

if TYPE_CHECKING:
    import pandas as pd

_MAX_LINES = 40  # of a table as text; of a longer one, both ends are printed
_END_LINES = 10
_MAX_ROWS = 200  # of a table in a notebook


Item = TypeVar("Item", bound=JobRecord | Stoppable)


@short_tracebacks
class ResultList(list[Item]):
    """Jobs, or their snapshots; as the value of a notebook's cell and in a terminal, they are a table.

    Example:
        >>> ResultList([JobRecord.model_validate({"TrainingJobId": "train1", "Status": "Succeed"})])
        job     name  status   time
        train1        Succeed
    """

    def __init__(
        self,
        items: Iterable[Item] = (),
        *,
        displayed_in_cell: int | None = None,
        jobs: Sequence[Stoppable] | None = None,
    ) -> None:
        super().__init__(items)
        self._jobs = jobs  # whose snapshots the items are
        # The cell of a notebook whose live table has already displayed these jobs.
        self._displayed_in_cell = displayed_in_cell

    def stop(self) -> None:
        """Request the stop of all jobs that have not finished; returns before they have.

        Raises:
            PaiError: the first error, after the stop of every job was requested.
        """
        stop_unfinished(self._jobs or [item for item in self if not isinstance(item, JobRecord)])

    @property
    def _records(self) -> list[JobRecord]:
        return [item if isinstance(item, JobRecord) else item.record for item in self]

    def __repr__(self) -> str:
        return table_text(job_table(self._records).shortened(_MAX_LINES, _END_LINES)) if self else "[]"

    def _ipython_display_(self) -> None:
        if self._displayed_in_cell is None or self._displayed_in_cell != notebook_cell():
            raise NotImplementedError  # IPython takes the other representations

    def _repr_html_(self) -> str:
        records = self._records
        more = len(records) - _MAX_ROWS
        below = f"and {more:,} more" if more > 0 else ""
        return job_table_html(records[:_MAX_ROWS], below=below)


class MetricList(Aliased, list[MetricPoint]):
    """The values of a job's metrics, oldest first.

    In a terminal it prints as a table with one row per value, in a notebook it shows one row and curve per metric.

    Example:
        >>> MetricList([MetricPoint(name="loss", step=1, value=0.5), MetricPoint(name="loss", step=2, value=0.25)])
        metric  step  value
        loss       1    0.5
        loss       2   0.25
    """

    def __init__(
        self, points: Iterable[MetricPoint] = (), *, explain_empty: Callable[[], str] | None = None
    ) -> None:
        super().__init__(points)
        # Called when an empty list is displayed, since it makes a request.
        self._explain_empty = explain_empty

    @overload
    def __getitem__(self, index: SupportsIndex) -> MetricPoint: ...
    @overload
    def __getitem__(self, index: slice) -> list[MetricPoint]: ...
    def __getitem__(self, index: SupportsIndex | slice) -> MetricPoint | list[MetricPoint]:
        if not self and not isinstance(index, slice) and self._explain_empty is not None:
            raise IndexError(self._explain_empty())
        return super().__getitem__(index)

    def to_pandas(self) -> pd.DataFrame:
        """A data frame with a row for each value: `name`, `step`, `value`, `time` and `instance`.

        An invalid time is NaT.

        Raises:
            MissingExtraError: pandas is not installed.
        """
        pandas = import_pandas()
        steps = [point.step for point in self]
        # Int64 holds 64 bits; a service may return any integer.
        has_huge = any(step is not None and not -(2**63) <= step < 2**63 for step in steps)
        columns = {
            "name": [point.name for point in self],
            "step": pandas.array(steps, dtype="object" if has_huge else "Int64"),
            "value": pandas.array([point.value for point in self], dtype="float64"),
            "time": pandas.to_datetime(
                [point.timestamp for point in self], utc=True, format="ISO8601", errors="coerce"
            ),
            "instance": [point.instance for point in self],
        }
        return pandas.DataFrame(columns)

    def __repr__(self) -> str:
        if not self:
            return "[]" if self._explain_empty is None else f"[]  # {self._explain_empty()}"
        columns: dict[str, list[object]] = {
            "metric": [point.name or "" for point in self],
            "step": [point.step for point in self],
            "value": [point.value for point in self],
            "time": [(point.timestamp or "").replace("T", " ").rstrip("Z") for point in self],
            "instance": [source_label(point) for point in self],
        }
        if len({*columns["instance"]}) == 1:
            del columns["instance"]
        non_empty = {title: column for title, column in columns.items() if {*column} - {"", None}}
        table = Table(text_columns([*non_empty]), [*zip(*non_empty.values(), strict=True)])
        return table_text(table.shortened(_MAX_LINES, _END_LINES))

    def _repr_html_(self) -> str:
        if not self:
            return f"<i>{escape(self._explain_empty() if self._explain_empty else 'no values')}</i>"
        by_instance: dict[str, MetricCurves] = {}
        for point in self:
            by_instance.setdefault(source_label(point), MetricCurves()).add([point])
        has_several = len(by_instance) > 1
        columns = ["metric", *(["instance"] if has_several else []), "last", "min", "max", "values", ""]
        rows = [
            [
                name,
                *([instance] if has_several else []),
                *(curve.values[-1], min(curve.values), max(curve.values)),
                f"{len(curve.values):,}",
                Cell.of_markup(curve.svg()),
            ]
            for instance, curves in by_instance.items()
            for name, curve in curves.items()
            if curve.values
        ]
        below = f"{len(self):,} value{'' if len(self) == 1 else 's'}; iterate over them, or take .to_pandas()"
        return table_html(Table([*map(Column, columns)], rows[:_MAX_ROWS], caption=below))
