"""The jobs that a backend lists: an iterator that a notebook displays as a table."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice

from pai_sdk._client.display.job_listing import job_table_html
from pai_sdk._client.job.training_job import TrainingJob

_MAX_ROWS = 50


class JobList(Iterator[TrainingJob]):
    """Jobs, the newest first, in pages; in a notebook a table of the next 50, which the iteration still yields."""

    def __init__(self, jobs: Iterator[TrainingJob]) -> None:
        self._jobs = jobs
        self._fetched: deque[TrainingJob] = deque()  # displayed in a table, and not yet yielded

    def __next__(self) -> TrainingJob:
        return self._fetched.popleft() if self._fetched else next(self._jobs)

    def __repr__(self) -> str:
        return "<JobList; iterate over it>"

    def _repr_html_(self) -> str:
        self._fetched.extend(islice(self._jobs, max(0, _MAX_ROWS + 1 - len(self._fetched))))
        records = [job.record for job in islice(self._fetched, _MAX_ROWS)]
        has_more = len(self._fetched) > _MAX_ROWS
        return job_table_html(records, below="and more; iterate over the list for all" if has_more else "")
