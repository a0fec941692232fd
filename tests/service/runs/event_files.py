"""Event files for the tests of runs, and a reader of event streams."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests

from pai_sdk._data.run.events.writer import EventWriter

__all__ = ["StreamMessage", "messages_of", "write_points"]


def write_points(
    folder: Path, tags: Mapping[str, Sequence[float]], *, first_step: int = 0, source: str = "", wall: float = 1e9
) -> None:
    """Write a file with the values of each tag at consecutive steps."""
    with EventWriter(folder, source=source) as writer:
        for at in range(max(map(len, tags.values()))):
            values = {tag: points[at] for tag, points in tags.items() if at < len(points)}
            writer.scalars(values, first_step + at, wall_time=wall + at)


@dataclass(frozen=True)
class StreamMessage:
    """A message of an event stream."""

    event: str
    data: dict[str, Any]
    id: str


def messages_of(answer: requests.Response) -> Iterator[StreamMessage]:
    """The messages of a stream, as a browser has them: those without an id keep the last one."""
    event, data, last_id = "", "", ""
    for line in answer.iter_lines(chunk_size=1):
        text = line.decode()
        if not text and data:
            yield StreamMessage(event, json.loads(data), last_id)
            event, data = "", ""
        name, _, value = text.partition(": ")
        if name == "event":
            event = value
        elif name == "data":
            data = value
        elif name == "id":
            last_id = value
