"""Reads the logs and the events of jobs, in pages."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from sqlalchemy import func, select

from pai_sdk._data.logs.reader import LogReader, LogWindow, StoredPage
from pai_sdk._service.services.context import ServiceContext
from pai_sdk._service.services.jobs.changes import Subscription
from pai_sdk._service.state.models import Event
from pai_sdk._wire.pai.wire import wire_time
from pai_sdk._wire.training_jobs import EventList

# A log that was read is often written soon: the first line of a job, or the lines of one loop.
_FIRST_PAUSE_S, _PAUSE_GROWTH = 0.01, 1.2
_UNFINISHED_LINE_S = 0.5  # an incomplete line, such as a progress bar, is sent after this time


def read_page(
    context: ServiceContext, job_id: str, instance: str | None, start: int, limit: int, window: LogWindow
) -> tuple[StoredPage, LogReader, int]:
    """Returns some lines of a log, its reader, and its size."""
    # The order matters: the job before its log, so that the log of a finished job is complete; the size before the
    # lines, so that the long poll detects a line that is written between the two.
    log = context.logs.open(context.jobs.get(job_id), instance, window)
    size_bytes = log.size_bytes
    page = log.page(start, limit, max_bytes=context.settings.log_page_bytes, has_full_lines=True)
    if page.error is not None and not page.count:
        raise page.error
    return page, log, size_bytes


def line_chunks(
    context: ServiceContext,
    job_id: str,
    name: str | None,
    start: int,
    count: int,
    window: LogWindow,
    page: StoredPage,
) -> Iterator[list[str]]:
    """Yields the lines of a page that is too large for the memory. Lines that were counted never change."""
    end = start + count
    while True:
        yield page.decoded_lines
        start += page.count
        if start >= end:
            return
        # Raises if the job was deleted meanwhile: the response is truncated, which clients detect.
        page, _, _ = read_page(context, job_id, name, start, end - start, window)
        if not page.count:
            raise RuntimeError(f"the log of job {job_id} ends before line {end}, which it had")


async def wait_for_lines(
    news: Subscription, log: LogReader, size_bytes: int, deadline: float, poll_s: float, has_unfinished_line: bool
) -> None:
    """Waits until the log has grown or the job has news; for a moment only if its last line is incomplete.

    `poll_s` is the longest pause between two checks of its size.
    """
    clock = asyncio.get_running_loop().time
    until = min(deadline, clock() + _UNFINISHED_LINE_S) if has_unfinished_line else deadline
    pause_s = min(_FIRST_PAUSE_S, poll_s)
    while clock() < until:
        if await news.wait(min(pause_s, until - clock())) or log.size_bytes != size_bytes:
            return
        pause_s = min(poll_s, pause_s * _PAUSE_GROWTH)


def list_events(
    context: ServiceContext, job_id: str, instance: str | None, window: LogWindow, page_number: int, page_size: int
) -> EventList:
    """Returns a page of the events of a job, or of one of its instances."""
    conditions = [Event.job_id == job_id]
    if instance is not None:
        conditions.append(Event.instance == instance)
    if window.started_at is not None:
        conditions.append(Event.happened_at >= window.started_at)
    if window.ended_at is not None:
        conditions.append(Event.happened_at <= window.ended_at)
    with context.jobs.database.read() as session:
        total = session.scalar(select(func.count()).select_from(Event).where(*conditions)) or 0
        page = select(Event).where(*conditions).order_by(Event.number)
        events = session.scalars(page.limit(page_size).offset((page_number - 1) * page_size)).all()
    lines = [f"{wire_time(event.happened_at)} {event.text}" for event in events]
    return EventList(events=lines, total_count=str(total))
