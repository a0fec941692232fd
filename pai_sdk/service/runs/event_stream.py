"""The one event stream of a client (server-sent events), with one cursor for everything on it.

Every 250 ms the topics of the stream are asked for what is new, in a thread; the messages are sent in one piece,
with one cursor behind the last of them. A client that was away gives its cursor back (`Last-Event-ID`) and gets
the rest. Nothing is queued for a client: while it does not read, nothing is asked.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Response
from starlette.concurrency import run_in_threadpool
from starlette.responses import StreamingResponse

from pai_sdk.service.runs.cursors import Position, join_cursor, read_cursor
from pai_sdk.service.runs.run_source import RunsOf, RunSource
from pai_sdk.service.runs.topics import LogTopic, Message, PointsTopic, RunsTopic, Topic, read_topics

__all__ = ["EventStream", "router"]

router = APIRouter(prefix="/api/v1")

_BATCH_S = 0.25
_COMMENT_S = 15.0
_RECONNECT_MS = 1000
_MEDIA_TYPE = "text/event-stream"
_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


class EventStream:
    """What one client follows. Used by one thread at a time.

    Args:
        source: the runs.
        topics: names and parts, from `read_topics`.
        cursor: of an earlier stream with these topics, or some of them; empty for a new one.

    Raises:
        Fault: there is no such run.
    """

    def __init__(self, source: RunSource, topics: Sequence[tuple[str, list[str]]], cursor: str) -> None:
        known = read_cursor(cursor, [name for name, _ in topics])
        self._source, manager = source, source.manager
        self._runs = RunsTopic(manager, known.get(RunsTopic.name))
        is_followed = any(parts[0] == RunsTopic.name for _, parts in topics)
        self._changes = manager.subscribe(since=self._runs.since if is_followed else None)
        self._topics: list[Topic] = [self._topic(source, name, parts, known.get(name)) for name, parts in topics]

    def _topic(self, source: RunSource, name: str, parts: Sequence[str], known: Position | None) -> Topic:
        kind, *more = parts
        if kind == RunsTopic.name:
            return self._runs
        if kind == "log":
            return LogTopic(name, source, more[0], known)
        return PointsTopic(name, source.manager, more[0], more[1], known)

    @property
    def cursor(self) -> str:
        """Where a later stream goes on."""
        return join_cursor({topic.name: topic.position for topic in self._topics})

    def look(self) -> list[Message]:
        """What is new since the last look."""
        _ = self._source.manager  # it is kept, as long as it is asked for
        change = self._changes.get(timeout_s=0)
        return [message for topic in self._topics for message in topic.look(change)]

    def close(self) -> None:
        """End it."""
        self._changes.close()


@router.get("/events", response_class=StreamingResponse, responses={200: {"content": {_MEDIA_TYPE: {}}}})
async def follow_events(
    runs: RunsOf,
    topics: Annotated[
        str, Query(description="runs, scalars:RUN:TAG and log:RUN, joined by commas.", max_length=16_384)
    ] = RunsTopic.name,
    cursor: Annotated[str, Query(description="As Last-Event-ID, which goes before it.", max_length=16_384)] = "",
    last_event_id: Annotated[str, Header()] = "",
) -> Response:
    """One stream of what is new (server-sent events), at most four times a second.

    The first message is `ready`. `runs` has the ids of changed and removed runs. `scalars` has points of a metric:
    `first` is the index of the first of them, and a client drops what it has from there on. `rewrite` comes before
    it when a training has gone back in steps. `log` has lines, `first` is the number of the first. `reset` says
    that a source is another one than before: fetch it again. `resync` says the same of the list of runs.

    Each message has an id, the cursor. A stream that begins with `Last-Event-ID`, or `cursor`, goes on behind it
    without loss and without repetition. The service ends a stream after a while; its client connects again.
    """
    stream = await run_in_threadpool(EventStream, runs, read_topics(topics), last_event_id or cursor)
    return StreamingResponse(_sent(stream, runs), media_type=_MEDIA_TYPE, headers=_HEADERS)


async def _sent(stream: EventStream, runs: RunSource) -> AsyncIterator[bytes]:
    clock = asyncio.get_running_loop().time
    ends_at, quiet_since = clock() + runs.longest_stream_s, clock()
    try:
        yield f"retry: {_RECONNECT_MS}\n\n".encode() + _wire(Message("ready", {}), stream.cursor)
        while not runs.is_closing and clock() < ends_at:
            messages = await run_in_threadpool(stream.look)
            if messages:
                *before, last = messages
                # Only the last one has the cursor: a client that is cut off before gets all of them again.
                yield b"".join([*(_wire(message) for message in before), _wire(last, stream.cursor)])
                quiet_since = clock()
            elif clock() - quiet_since >= _COMMENT_S:
                yield b":\n\n"
                quiet_since = clock()
            await asyncio.sleep(min(_BATCH_S, max(0.0, ends_at - clock())))
    finally:
        stream.close()


def _wire(message: Message, cursor: str = "") -> bytes:
    data: Any = json.dumps(message.data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    name = f"id: {cursor}\n" if cursor else ""
    return f"{name}event: {message.event}\ndata: {data}\n\n".encode(errors="replace")
