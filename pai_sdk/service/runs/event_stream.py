"""The one event stream of a client (server-sent events), with one cursor for everything on it.

Every 250 ms the topics of the stream are asked for what is new, in a thread; the messages are sent in pieces of a
megabyte, with one cursor behind the last of them. A client that was away gives its cursor back (`Last-Event-ID`)
and gets the rest. Nothing is queued for a client: while it does not read, nothing is asked.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Response
from starlette.responses import StreamingResponse

from pai_sdk.service.budgets import EVENTS, BudgetedRoute, Work, WorkOf, within
from pai_sdk.service.runs.cursors import Position, join_cursor, read_cursor
from pai_sdk.service.runs.source import RunsOf, RunSource
from pai_sdk.service.runs.topics import LogTopic, Message, PointsTopic, RunsTopic, Topic, count_points, read_topics

__all__ = ["EventStream", "router"]

router = APIRouter(prefix="/api/v1", route_class=BudgetedRoute)

_BATCH_S = 0.25
_PIECE_BYTES = 1 << 20
_TO_END_S = 5.0
_COMMENT_S = 15.0
_RECONNECT_MS = 1000
_MEDIA_TYPE = "text/event-stream"
_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


class EventStream:
    """The topics that one client follows. Used by one thread at a time.

    Args:
        source: the runs.
        topics: names and parts, from `read_topics`.
        cursor: of an earlier stream with these topics, or some of them; empty for a new one.
        work: the request.

    Raises:
        WireError: there is no such run, or there are too many points to be followed.
    """

    def __init__(
        self, source: RunSource, topics: Sequence[tuple[str, list[str]]], cursor: str, work: Work
    ) -> None:
        known = read_cursor(cursor, [name for name, _ in topics])
        self._source, manager = source, source.manager
        points = sum(count_points(manager, *parts[1:]) for _, parts in topics if parts[0] == "scalars")
        work.hold(points, "points in the memory of this stream")
        self._runs = RunsTopic(manager, known.get(RunsTopic.name))
        is_followed = any(parts[0] == RunsTopic.name for _, parts in topics)
        self._changes = manager.subscribe(since=self._runs.since if is_followed else None)
        self._topics: list[Topic] = [self._topic(source, name, parts, known.get(name)) for name, parts in topics]
        self._messages: Iterator[Message] | None = None  # of a look that has not come to its end
        self._held: Message | None = None  # the last of them so far: it may be the last of all

    def _topic(self, source: RunSource, name: str, parts: Sequence[str], known: Position | None) -> Topic:
        kind, *more = parts
        if kind == RunsTopic.name:
            return self._runs
        if kind == "log":
            return LogTopic(name, source, more[0], more[1] if len(more) > 1 else None, known)
        return PointsTopic(name, source.manager, more[0], more[1], known)

    @property
    def cursor(self) -> str:
        """The cursor at which a later stream continues."""
        return join_cursor({topic.name: topic.position for topic in self._topics})

    @property
    def has_more(self) -> bool:
        """True if the next piece is there already."""
        return self._messages is not None

    def piece(self) -> bytes:
        """The next messages as they are sent, about a megabyte; nothing when there is nothing new."""
        if self._messages is None:
            _ = self._source.manager  # it is kept, as long as it is asked for
            change = self._changes.get(timeout_s=0)
            self._messages = (message for topic in self._topics for message in topic.look(change))
        found: list[bytes] = []
        left_bytes = _PIECE_BYTES
        for message in self._messages:
            if self._held is not None:
                found.append(_wire(self._held))
                left_bytes -= len(found[-1])
            self._held = message
            if left_bytes <= 0:
                return b"".join(found)
        if self._held is not None:
            # Only the last one has the cursor: a client that is cut off before gets all of them again.
            found.append(_wire(self._held, self.cursor))
        self._messages = self._held = None
        return b"".join(found)

    def close(self) -> None:
        """End it."""
        self._changes.close()


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
    """One stream of what is new (server-sent events), at most four times a second.

    The first message is `ready`. `runs` has the ids of changed and removed runs. `scalars` has points of a metric:
    `first` is the index of the first of them, and a client drops what it has from there on. `rewrite` comes before
    it when a training has gone back in steps. `log` has lines with their instances and times, `first` is
    the number of the first. `reset` says that a source is another one than before: fetch it again.
    `resync` says the same of the list of runs.

    Each message has an id, the cursor. A stream that begins with `Last-Event-ID`, or `cursor`, goes on behind it
    without loss and without repetition. The service ends a stream after a while; its client connects again.
    """
    stream = await work.run(EventStream, runs, read_topics(topics), last_event_id or cursor, work)
    return StreamingResponse(_sent(stream, runs, work), media_type=_MEDIA_TYPE, headers=_HEADERS)


async def _sent(stream: EventStream, runs: RunSource, work: Work) -> AsyncIterator[bytes]:
    clock = asyncio.get_running_loop().time
    ends_at, quiet_since = clock() + min(runs.longest_stream_s, work.left_s - _TO_END_S), clock()
    try:
        yield f"retry: {_RECONNECT_MS}\n\n".encode() + _wire(Message("ready", {}), stream.cursor)
        while not runs.is_closing and clock() < ends_at:
            if piece := await work.run(stream.piece):
                yield piece
                quiet_since = clock()
            elif clock() - quiet_since >= _COMMENT_S:
                yield b":\n\n"
                quiet_since = clock()
            if not stream.has_more:
                await asyncio.sleep(min(_BATCH_S, max(0.0, ends_at - clock())))
    finally:
        stream.close()


def _wire(message: Message, cursor: str = "") -> bytes:
    data: Any = json.dumps(message.data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    name = f"id: {cursor}\n" if cursor else ""
    return f"{name}event: {message.event}\ndata: {data}\n\n".encode(errors="replace")
