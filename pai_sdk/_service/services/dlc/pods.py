"""What the pods of a job have written, what happened to them, and what they use."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable

from sqlalchemy import select

from pai_sdk._data.logs.reader import LogReader, LogWindow
from pai_sdk._service.services.context import ServiceContext
from pai_sdk._service.services.dlc.job_records import (
    attempt_starts,
    dlc_job_with_attempts,
    existing_dlc_job,
    pod_uid,
)
from pai_sdk._service.services.dlc.problems import missing_error, refuse_problems
from pai_sdk._service.services.jobs.log_reader import instance_names
from pai_sdk._service.services.usage import MEASURED, read_usage
from pai_sdk._service.state.models import Event, Job
from pai_sdk._wire.dlc.limits import DEFAULT_MAX_EVENTS, DEFAULT_MAX_LINES, DEFAULT_WINDOW_S, METRICS_WINDOW_S
from pai_sdk._wire.dlc.logs import ContainerInfo, EventQuery, PodLogQuery, PodLogs
from pai_sdk._wire.dlc.metrics import JobMetricsQuery, MetricValue, PodMetric
from pai_sdk._wire.dlc.resources.checks import event_query_problems
from pai_sdk._wire.dlc.times import milliseconds, seconds_of, wire_time
from pai_sdk.errors import Problem

METRICS = (*MEASURED, "NetworkInputRate", "NetworkOutputRate")
"""What GetJobMetrics can be asked for."""

_MAX_LINES = 100_000
_STEP = re.compile(r"([1-9][0-9]{0,5})([smh])")
_SECONDS = {"s": 1, "m": 60, "h": 3600}


def read_logs(
    context: ServiceContext, job_id: str, pod_id: str, query: PodLogQuery, spend: Callable[[int], None]
) -> tuple[PodLogs, bool]:
    """Returns the last lines of a window of time, and whether no line will follow the last one.

    `spend` is called with the bytes of each part.
    """
    limit = DEFAULT_MAX_LINES if query.max_lines is None else query.max_lines
    problems: list[Problem] = []
    if not 1 <= limit <= _MAX_LINES:
        problems.append(Problem("MaxLines", f"{limit} is not between 1 and {_MAX_LINES}"))
    if query.download_to_file:
        problems.append(Problem("DownloadToFile", "is not supported by this service", "leave it out"))
    window = _window(query.start_time, query.end_time, DEFAULT_WINDOW_S, problems)
    refuse_problems(problems)
    job = _job_with_pod(context, job_id, pod_id, query.pod_uid)
    log = context.logs.open(job, pod_id)
    if query.pod_uid is not None:
        window = _of_attempt(window, job, _uids(job, pod_id).index(query.pod_uid) + 1)
    numbers = _lines_in(log, window, job)
    lines: list[str] = []
    start = max(numbers.start, numbers.stop - limit)
    while start < numbers.stop:
        size = context.settings.log_page_bytes
        page = log.page(start, numbers.stop - start, max_bytes=size, has_full_lines=True)
        if not page.count:
            break
        spend(sum(len(block.content) for _, block in page.blocks))
        lines += page.decoded_lines
        start += page.count
    logs = PodLogs(
        job_id=job_id,
        pod_id=pod_id,
        pod_uid=query.pod_uid or pod_uid(pod_id, job.attempt),
        logs=lines,
        container_info=ContainerInfo(main_container="main"),
    )
    return logs, window.ended_at is None and not log.is_open and start >= numbers.stop


def _of_attempt(window: LogWindow, job: Job, attempt: int) -> LogWindow:
    """Returns the part of a window in which an attempt wrote: the attempts of a pod share one log."""
    starts = attempt_starts(job)
    started_at = max(window.started_at or 0.0, starts[attempt - 1]) if attempt > 1 else window.started_at
    if attempt >= len(starts):
        return LogWindow(started_at, window.ended_at)
    ended_at = math.nextafter(starts[attempt], 0)
    return LogWindow(started_at, ended_at if window.ended_at is None else min(ended_at, window.ended_at))


def _lines_in(reader: LogReader, window: LogWindow, job: Job) -> range:
    """Returns the numbers of the lines of one instance in a window, so that adjoining windows share none."""
    reader.page(0, 0)  # reads what was written since
    (log,) = reader.instances
    return log.lines_in(window, LogWindow(job.created_at, job.ended_at), is_open=reader.is_open)


def read_events(context: ServiceContext, job_id: str, pod_id: str | None, query: EventQuery) -> list[str]:
    """Returns the last events of a job, or of one of its pods, the oldest first."""
    problems: list[Problem] = [*event_query_problems(query)]
    window = _window(query.start_time, query.end_time, DEFAULT_WINDOW_S, problems)
    refuse_problems(problems)
    conditions = [Event.job_id == job_id, Event.happened_at >= window.started_at]
    if window.ended_at is not None:
        conditions.append(Event.happened_at <= window.ended_at)
    if pod_id is not None:
        _job_with_pod(context, job_id, pod_id, query.pod_uid)
        conditions.append(Event.instance == pod_id)
    limit = query.max_events_num or DEFAULT_MAX_EVENTS
    with context.jobs.database.read() as session:
        existing_dlc_job(session, job_id)
        newest = select(Event).where(*conditions).order_by(Event.number.desc()).limit(limit)
        events = [*session.scalars(newest)][::-1]
    return [f"{wire_time(event.happened_at)} {event.text}" for event in events]


def read_metrics(context: ServiceContext, job_id: str, query: JobMetricsQuery) -> list[PodMetric]:
    """Returns the values of one metric for each pod, as means of steps of time."""
    problems: list[Problem] = []
    if query.metric_type not in METRICS:
        hint = f"available: {', '.join(METRICS)}"
        problems.append(Problem("MetricType", f"unknown value {(query.metric_type or '')[:60]!r}", hint))
    length = _STEP.fullmatch(query.time_step or "5m")
    if length is None:
        problems.append(
            Problem("TimeStep", f"{(query.time_step or '')[:60]!r} is not a duration", "such as 10s or 5m")
        )
    window = _window(query.start_time, query.end_time, METRICS_WINDOW_S, problems)
    refuse_problems(problems)
    step_s = 300 if length is None else int(length[1]) * _SECONDS[length[2]]
    with context.jobs.database.read() as session:
        job, _ = existing_dlc_job(session, job_id)
    metrics = []
    for log in context.logs.instance_logs(job, None):
        values = read_usage(
            log.path,
            query.metric_type or "",
            start=window.started_at or 0.0,
            end=time.time() if window.ended_at is None else window.ended_at,
            step_s=step_s,
        )
        points = [MetricValue(time=milliseconds(moment), value=round(value, 4)) for moment, value in values]
        metrics.append(PodMetric(pod_id=log.name, metrics=points))
    return metrics


def current_uid(context: ServiceContext, job_id: str, pod_id: str) -> str:
    """Returns the uid of a pod in the last attempt of its job."""
    return pod_uid(pod_id, _job_with_pod(context, job_id, pod_id, None).attempt)


def _job_with_pod(context: ServiceContext, job_id: str, pod_id: str, uid: str | None) -> Job:
    """Returns a job; raises WireError if it has no such pod."""
    with context.jobs.database.read() as session:
        job = dlc_job_with_attempts(session, job_id)
    if pod_id not in instance_names(job) or uid not in (None, *_uids(job, pod_id)):
        raise missing_error("pod", pod_id)
    return job


def _uids(job: Job, pod_id: str) -> list[str]:
    """Returns the uids of a pod, of all attempts."""
    return [pod_uid(pod_id, attempt) for attempt in range(1, job.attempt + 1)]


def _window(start: str | None, end: str | None, default_s: float, problems: list[Problem]) -> LogWindow:
    """Returns a window whose last second is in it; adds to the problems."""
    for where, moment in (("StartTime", start), ("EndTime", end)):
        if moment is not None and seconds_of(moment) is None:
            problems.append(Problem(where, f"{moment[:60]!r} is not a time", "such as 2026-01-31T08:00:00Z"))
    started_at, ended_at = seconds_of(start), seconds_of(end)
    if started_at is None:
        started_at = time.time() - default_s
    return LogWindow(started_at, None if ended_at is None else math.nextafter(ended_at + 1, 0))
