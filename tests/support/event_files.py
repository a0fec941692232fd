"""Event files as other programs write them, made with TensorBoard's protobufs or by hand."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.scalar.metadata import create_summary_metadata
from tensorboard.util.tensor_util import make_tensor_proto

from pai_sdk._data.run.events.writer import crc32c

__all__ = [
    "event",
    "frame",
    "mindspore_event",
    "record_ends",
    "simple",
    "tensor",
    "version",
    "write_events",
]


def frame(message: bytes) -> bytes:
    """A record of a file."""
    length = struct.pack("<Q", len(message))
    return length + _checksum(length) + message + _checksum(message)


def _checksum(data: bytes) -> bytes:
    crc = crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def version(text: str = "brain.Event:2") -> bytes:
    """The first record of a file."""
    return frame(Event(wall_time=1.0, file_version=text).SerializeToString())


def simple(tag: str, value: float) -> Any:
    """A scalar of TensorBoard's own writer and of PyTorch."""
    return Summary.Value(tag=tag, simple_value=value)


def tensor(tag: str, value: Any, *, plugin: bool = True, dtype: Any = np.float32) -> Any:
    """A scalar of TensorFlow 2."""
    found = Summary.Value(tag=tag, tensor=make_tensor_proto(np.asarray(value, dtype)))
    if plugin:
        found.metadata.CopyFrom(create_summary_metadata("", ""))
    return found


def event(step: int, *values: Any, wall: float = 0.0) -> bytes:
    """A record with some values."""
    message = Event(wall_time=wall or 1000.0 + step, step=step, summary=Summary(value=values))
    return frame(message.SerializeToString())


def _field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    found = b""
    while number > 127:
        found, number = found + bytes([number & 127 | 128]), number >> 7
    return found + bytes([number])


def mindspore_event(step: int, tag: str, value: float | Iterable[tuple[float, float, int]]) -> bytes:
    """A record of MindSpore: a number, or a histogram as left edge, width and count of each bucket."""
    if isinstance(value, (int, float)):
        content = b"\x1d" + struct.pack("<f", value)
    else:
        rows = [
            b"\x09" + struct.pack("<d", a) + b"\x11" + struct.pack("<d", b) + b"\x18" + _varint(c)
            for a, b, c in value
        ]
        content = _field(9, b"".join(_field(1, row) for row in rows))
    summary = _field(5, _field(1, _field(1, tag.encode()) + content))
    return frame(b"\x09" + struct.pack("<d", 1000.0 + step) + b"\x10" + _varint(step) + summary)


def write_events(path: Path, *records: bytes) -> Path:
    """A file of records."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(records))
    return path


def record_ends(content: bytes) -> list[int]:
    """Where the records of a file end."""
    at, ends = 0, []
    while at < len(content):
        at += 16 + struct.unpack_from("<Q", content, at)[0]
        ends.append(at)
    return ends
