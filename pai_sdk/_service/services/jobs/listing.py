"""Selects and sorts the jobs of a list."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from sqlalchemy import ColumnElement, Select, Text, cast, func, select
from sqlalchemy.orm import InstrumentedAttribute, Session

from pai_sdk._service.identity.principal import Principal
from pai_sdk._service.identity.visibility import visible_jobs
from pai_sdk._service.state.dlc_models import DlcJobRow
from pai_sdk._service.state.models import Job, JobAlgorithm, JobLabel
from pai_sdk._service.wire_errors import invalid_parameter
from pai_sdk._wire.pai.status import STATUSES

_DEFAULT_WINDOW_S = 7 * 24 * 3600
_PART_BYTES = 1 << 20  # requests in memory at once: as Python objects they take six times as much
_MAX_LABELS = 100  # each is a condition, and databases limit the depth of expressions (SQLite: 1,000)
_ORDERS: dict[str, InstrumentedAttribute[Any]] = {
    "GmtCreateTime": Job.created_at,
    "GmtModifiedTime": Job.modified_at,
    "TrainingJobName": Job.name,
    "TrainingJobId": Job.id,
    "Status": Job.status,
}


_SIZE = func.length(cast(Job.request, Text)).label("size")


@dataclass(frozen=True)
class JobQuery:
    """The query of ListTrainingJobs for the jobs that `principal` can see. None and empty mean: any."""

    principal: Principal
    status: str | None = None
    name: str | None = None
    job_id: str | None = None
    workspace_id: str | None = None
    algorithm_name: str | None = None
    algorithm_provider: str | None = None
    is_temp_algo: bool | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    started_at: float | None = None
    ended_at: float | None = None
    sort_by: str = "GmtCreateTime"
    descending: bool = True
    page_number: int = 1
    page_size: int = 10


def find_jobs(session: Session, query: JobQuery) -> tuple[dict[str, int], int]:
    """Returns the ids of a page of jobs, each with the bytes of its request, and the total number of jobs."""
    if query.status and query.status not in STATUSES:
        raise invalid_parameter(f"Status: {query.status[:60]!r} is not one of {', '.join(STATUSES)}.")
    if query.sort_by not in _ORDERS:
        raise invalid_parameter(f"SortBy: {query.sort_by[:60]!r} is not one of {', '.join(_ORDERS)}.")
    total = session.scalar(_filtered(select(func.count()).select_from(Job), query)) or 0
    columns = (_ORDERS[query.sort_by], Job.number)
    page = (
        _filtered(select(Job.id, _SIZE), query)
        .order_by(*(column.desc() if query.descending else column.asc() for column in columns))
        .limit(query.page_size)
        .offset((query.page_number - 1) * query.page_size)
    )
    return {row.id: row.size for row in session.execute(page)}, total


def sizes_bytes(session: Session, job_ids: Collection[str]) -> dict[str, int]:
    """Returns the sizes of the requests of jobs, in the order of their creation."""
    rows = session.execute(select(Job.id, _SIZE).where(Job.id.in_(job_ids)).order_by(Job.number))
    return {row.id: row.size for row in rows}


def jobs_in_parts(session: Session, sizes: Mapping[str, int]) -> Iterator[list[Job]]:
    """Yields jobs in the order of these ids, in parts; earlier parts are removed from the session."""
    part: list[str] = []
    remaining_bytes = _PART_BYTES
    # The empty id at the end yields the last part.
    for job_id, size in [*sizes.items(), ("", _PART_BYTES)]:
        if part and (remaining_bytes < size or not job_id):
            jobs = {job.id: job for job in session.scalars(select(Job).where(Job.id.in_(part)))}
            yield [jobs[each] for each in part if each in jobs]
            session.expunge_all()
            part, remaining_bytes = [], _PART_BYTES
        part.append(job_id)
        remaining_bytes -= size


def read_labels(text: str | None) -> dict[str, str]:
    """Parses the parameter `Labels`: a JSON object, or a JSON array of `{Key, Value}`."""
    if not text:
        return {}
    try:
        value = json.loads(text)
        if isinstance(value, list):
            value = {label["Key"]: label["Value"] for label in value}
        labels = {str(key): str(label) for key, label in value.items()}
        if len(labels) > _MAX_LABELS:
            raise invalid_parameter(f"Labels: has {len(labels)} labels; {_MAX_LABELS} can be asked for at once.")
        for text in chain(labels, labels.values()):
            text.encode()
            if "\0" in text:
                raise ValueError("no database takes a NUL")
        return labels
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise invalid_parameter('Labels: is not a JSON object such as {"team":"search"}.') from error


def _filtered(selection: Select[Any], query: JobQuery) -> Select[Any]:
    # Jobs of the API of DLC are no training jobs.
    is_training_job = Job.number.not_in(select(DlcJobRow.number))
    conditions: list[ColumnElement[bool]] = [visible_jobs(query.principal), is_training_job]
    if query.job_id:
        conditions.append(Job.id == query.job_id)
    if query.status:
        conditions.append(Job.status == query.status)
    if query.workspace_id:
        conditions.append(Job.workspace_id == query.workspace_id)
    if query.name:
        conditions.append(Job.name.contains(query.name, autoescape=True))
    conditions += _algorithm_conditions(query)
    for key, value in query.labels.items():
        labelled = select(JobLabel.job_id).where(JobLabel.key == key, JobLabel.value == value)
        conditions.append(Job.id.in_(labelled))
    started_at = query.started_at
    # Only the last seven days, like in Alibaba Cloud's service.
    if started_at is None and not query.job_id:
        started_at = time.time() - _DEFAULT_WINDOW_S
    if started_at is not None:
        conditions.append(Job.created_at >= started_at)
    if query.ended_at is not None:
        conditions.append(Job.created_at <= query.ended_at)
    return selection.where(*conditions)


def _algorithm_conditions(query: JobQuery) -> Iterator[ColumnElement[bool]]:
    registered = select(JobAlgorithm.job_id)
    if query.algorithm_name:
        yield Job.id.in_(registered.where(JobAlgorithm.name == query.algorithm_name))
    if query.algorithm_provider:
        yield Job.id.in_(registered.where(JobAlgorithm.provider == query.algorithm_provider))
    if query.is_temp_algo is not None:
        yield Job.id.not_in(registered) if query.is_temp_algo else Job.id.in_(registered)
