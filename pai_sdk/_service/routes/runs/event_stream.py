"""The route of the event stream of a client (server-sent events)."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header, Query, Response
from starlette.responses import StreamingResponse

from pai_sdk._service.services.budgets import EVENTS, BudgetedRoute, WorkOf, within
from pai_sdk._service.services.runs.event_stream import EventStream, stream_events
from pai_sdk._service.services.runs.source import RunsOf
from pai_sdk._service.services.runs.topics import RunsTopic, read_topics

router = APIRouter(prefix="/api/v1", route_class=BudgetedRoute)

_MEDIA_TYPE = "text/event-stream"
_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


@router.get("/events", response_class=StreamingResponse, responses={200: {"content": {_MEDIA_TYPE: {}}}})
@within(EVENTS)
async def follow_events(
    runs: RunsOf,
    work: WorkOf,
    topics: Annotated[
        str, Query(description="runs, scalars:RUN:TAG, log:RUN, log:RUN:INSTANCE, with commas.", max_length=16_384)
    ] = RunsTopic.name,
    cursor: Annotated[
        str, Query(description="As the header Last-Event-ID, which takes precedence.", max_length=16_384)
    ] = "",
    last_event_id: Annotated[str, Header()] = "",
) -> Response:
    """Follow changes as server-sent events, at most four times a second.

    The first message is `ready`. `runs` has the ids of changed and removed runs. `scalars` has points of a metric:
    `first` is the index of the first point, and a client drops its points from this index on. `rewrite` precedes
    it if a training has gone back in steps. `log` has lines with their instances and times; `first` is the number
    of the first line. `reset` means that a source was replaced: fetch it again. `resync` means that the list of
    runs must be fetched again.

    The id of a message is the cursor. A stream with `Last-Event-ID`, or `cursor`, continues there without loss and
    without repetition. The service ends a stream after a time; its client reconnects.
    """
    stream = await work.run(EventStream, runs, read_topics(topics), last_event_id or cursor, work)
    return StreamingResponse(stream_events(stream, runs, work), media_type=_MEDIA_TYPE, headers=_HEADERS)
