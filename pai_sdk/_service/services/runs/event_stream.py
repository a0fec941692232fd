"""The event stream of a client (server-sent events), with one cursor for all its topics.

Every 250 ms a thread polls the topics of the stream. The messages are sent in chunks of 1 MiB; the last message
has the cursor. A client that reconnects sends its cursor (`Last-Event-ID`), and the stream continues there.
Nothing is queued for a client: while it does not read, its topics are not polled.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

from pai_sdk._service.services.budgets import Work
from pai_sdk._service.services.runs.cursors import Position, join_cursor, read_cursor
from pai_sdk._service.services.runs.source import RunSource
from pai_sdk._service.services.runs.topics import (
    LogTopic,
    Message,
    PointsTopic,
    RunsTopic,
    Topic,
    count_points,
)

_CHUNK_BYTES = 1 << 20
_CLOSE_S = 5.0
_RECONNECT_MS = 1000


class EventStream:
    """The topics that one client follows, from the cursor of an earlier stream. Not thread-safe."""

    def __init__(
        self, source: RunSource, topics: Sequence[tuple[str, list[str]]], cursor: str, work: Work
    ) -> None:
        positions = read_cursor(cursor, [name for name, _ in topics])
        self._source, manager = source, source.manager
        points = sum(count_points(manager, *parts[1:]) for _, parts in topics if parts[0] == "scalars")
        work.hold(points, "points in the memory of this stream")
        self._runs = RunsTopic(manager, positions.get(RunsTopic.name))
        is_followed = any(parts[0] == RunsTopic.name for _, parts in topics)
        # Subscribed before the topics read: a change in between is reported twice rather than lost.
        self._changes = manager.subscribe(since=self._runs.since if is_followed else None)
        self._topics: list[Topic] = [
            self._topic(source, name, parts, positions.get(name)) for name, parts in topics
        ]
        self._messages: Iterator[Message] | None = None  # of a poll that is not completely sent
        self._pending: Message | None = None  # sent with the next one, or with the cursor if it is the last one

    def _topic(self, source: RunSource, name: str, parts: Sequence[str], resume_from: Position | None) -> Topic:
        kind, *more = parts
        if kind == RunsTopic.name:
            return self._runs
        if kind == "log":
            return LogTopic(name, source, more[0], more[1] if len(more) > 1 else None, resume_from)
        return PointsTopic(name, source.manager, more[0], more[1], resume_from)

    @property
    def cursor(self) -> str:
        """Returns the cursor at which a later stream continues."""
        return join_cursor({topic.name: topic.position for topic in self._topics})

    @property
    def has_more(self) -> bool:
        """Returns True if the next chunk is available without a poll."""
        return self._messages is not None

    def next_chunk(self) -> bytes:
        """Returns the next messages, about 1 MiB in the format of the stream; empty if there are none."""
        if self._messages is None:
            _ = self._source.manager  # each access restarts the idle timeout of the manager
            change = self._changes.get(timeout_s=0)
            self._messages = (message for topic in self._topics for message in topic.poll(change))
        chunks: list[bytes] = []
        remaining_bytes = _CHUNK_BYTES
        for message in self._messages:
            if self._pending is not None:
                chunks.append(_wire(self._pending))
                remaining_bytes -= len(chunks[-1])
            self._pending = message
            if remaining_bytes <= 0:
                return b"".join(chunks)
        if self._pending is not None:
            # Only the last message has the cursor: a client that is disconnected before it receives all of them
            # again.
            chunks.append(_wire(self._pending, self.cursor))
        self._messages = self._pending = None
        return b"".join(chunks)

    def close(self) -> None:
        """Unsubscribes from changes."""
        self._changes.close()


async def stream_events(stream: EventStream, runs: RunSource, work: Work) -> AsyncIterator[bytes]:
    """Yields the messages of a stream until it ends."""
    clock = asyncio.get_running_loop().time
    # The stream ends some seconds before the limit of the request, so that it ends between two messages.
    ends_at, quiet_since = clock() + min(runs.max_stream_s, work.remaining_s - _CLOSE_S), clock()
    try:
        yield f"retry: {_RECONNECT_MS}\n\n".encode() + _wire(Message("ready", {}), stream.cursor)
        while not runs.is_closing and clock() < ends_at:
            if chunk := await work.run(stream.next_chunk):
                yield chunk
                quiet_since = clock()
            elif clock() - quiet_since >= runs.pace.comment_s:
                yield b":\n\n"  # a comment: proxies close idle connections
                quiet_since = clock()
            if not stream.has_more:
                await asyncio.sleep(min(runs.pace.batch_s, max(0.0, ends_at - clock())))
    finally:
        stream.close()


def _wire(message: Message, cursor: str = "") -> bytes:
    data: Any = json.dumps(message.data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    name = f"id: {cursor}\n" if cursor else ""
    return f"{name}event: {message.event}\ndata: {data}\n\n".encode(errors="replace")
