"""The jobs that a backend lists: a list whose pages are fetched when they are needed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import overload

from pai_sdk._client.backend.base import Backend
from pai_sdk._client.display.job_listing import job_table_html
from pai_sdk._client.job.result_lists import ResultList
from pai_sdk._client.job.training_job import TrainingJob
from pai_sdk._core.names.aliases import Aliased
from pai_sdk._core.short_traceback import short_tracebacks
from pai_sdk.errors import InvalidInputError, NotFoundError, PaiError, Problem

_MAX_ROWS = 50
_MAX_NAMESAKES = 100  # jobs whose names have the name of the searched job as a part
_MAX_PRINTED_IDS = 5


def attach_to_job(id_or_name: str, backend: Backend) -> TrainingJob:
    """Attaches to a job by its id, or by a name that only one job has; InvalidInputError if several have it."""
    try:
        return TrainingJob(id_or_name, backend, record=backend.get(id_or_name))
    except NotFoundError:
        records = []
        with suppress(PaiError):  # the key may have no permission to list jobs
            records = [*islice(backend.list(name=id_or_name), _MAX_NAMESAKES + 1)]
        ids = [each.training_job_id for each in records if each.training_job_name == id_or_name]
        if len(ids) == 1 and len(records) > _MAX_NAMESAKES:
            reason = f"more than {_MAX_NAMESAKES} jobs have {id_or_name!r} in their names"
            raise InvalidInputError([Problem("job_id", reason, f"give the id, such as {ids[0]}")]) from None
        if not ids:
            raise
    if len(ids) > 1:
        id_list = f"{', '.join(ids[:_MAX_PRINTED_IDS])}{' …' if len(ids) > _MAX_PRINTED_IDS else ''}"
        reason = f"{len(ids)} jobs have the name {id_or_name!r}"
        raise InvalidInputError([Problem("job_id", reason, f"give the id of one: {id_list}")])
    return TrainingJob(ids[0], backend, record=backend.get(ids[0]))


@short_tracebacks
class JobList(Aliased, Sequence[TrainingJob]):
    """Jobs, the newest first, fetched in pages as they are needed; printed and in a notebook, a table of 50.

    `len()` and negative indexes fetch all of them. A slice is a list with `stop()`. `next()` has a position of its
    own, so that `next(session.list_jobs())` is the newest job.

    Example:
        >>> def newest_failures(session: Session) -> list[TrainingJob]:
        ...     return session.list_jobs(status="Failed")[:10]
    """

    def __init__(self, jobs: Iterator[TrainingJob]) -> None:
        self._jobs = jobs
        self._fetched: list[TrainingJob] = []
        self._position = 0  # of `next()`

    def __iter__(self) -> Iterator[TrainingJob]:
        position = 0
        while self._fetch(position + 1):
            yield self._fetched[position]
            position += 1

    def __next__(self) -> TrainingJob:
        if not self._fetch(self._position + 1):
            raise StopIteration
        self._position += 1
        return self._fetched[self._position - 1]

    def __len__(self) -> int:
        self._fetch(None)
        return len(self._fetched)

    def __bool__(self) -> bool:
        return self._fetch(1)

    @overload
    def __getitem__(self, index: int) -> TrainingJob: ...
    @overload
    def __getitem__(self, index: slice) -> ResultList[TrainingJob]: ...
    def __getitem__(self, index: int | slice) -> TrainingJob | ResultList[TrainingJob]:
        if isinstance(index, slice):
            limits = (index.start or 0, index.stop if index.stop is not None else -1)
            is_forward = index.step is None or index.step > 0
            self._fetch(max(limits) if is_forward and min(limits) >= 0 else None)
            return ResultList(self._fetched[index])
        if not self._fetch(index + 1 if index >= 0 else None) or -index > len(self._fetched):
            raise IndexError(f"the list has {len(self._fetched)} jobs")
        return self._fetched[index]

    def __repr__(self) -> str:
        has_more = self._fetch(_MAX_ROWS + 1)
        table = repr(ResultList(self._fetched[:_MAX_ROWS]))
        return f"{table}\nand more; iterate over the list for all" if has_more else table

    def _repr_html_(self) -> str:
        has_more = self._fetch(_MAX_ROWS + 1)
        records = [job.record for job in self._fetched[:_MAX_ROWS]]
        return job_table_html(records, below="and more; iterate over the list for all" if has_more else "")

    def _fetch(self, count: int | None) -> bool:
        """Fetches jobs until there are `count`, or all for None; returns False if there are fewer."""
        missing = None if count is None else max(0, count - len(self._fetched))
        self._fetched.extend(islice(self._jobs, missing))
        return count is None or len(self._fetched) >= count
