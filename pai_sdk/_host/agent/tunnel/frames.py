"""The frames of a tunnel, as bytes.

    outer    u8 type, body                        one message of a WebSocket, or length-prefixed on a socket
      HELLO     JSON {session, epoch, received, new}    the client joins
      WELCOME   JSON {received}                         the server has accepted
      REFUSED   JSON {code, message}                    the server has not; it closes the connection
      NUMBERED  u64 number, inner frame                 retained by its sender until it is acknowledged
      ACK       u64 number                              all frames up to this one have arrived
      BYE       JSON {code, message} or {}              the session has ended
      PING, PONG
      SELECT    JSON {instance}                         from an executor, before HELLO: the instance to enter
    inner    u8 type, u32 stream, body
      OPEN      JSON {kind, …}     OPENED  JSON      REFUSAL  JSON {code, message}
      DATA      u8 channel, bytes  EVENT   JSON      EXIT     JSON {code} or {signal}
      CREDIT    u8 window, u32     END     (no more data)     CLOSE   (the stream has ended)

Standard library only. Whatever is malformed raises `ProtocolError`.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any

HELLO, WELCOME, REFUSED, NUMBERED, ACK, PING, PONG, BYE, SELECT = range(1, 10)
OPEN, OPENED, REFUSAL, DATA, EVENT, EXIT, CREDIT, END, CLOSE = range(1, 10)

STDOUT, STDERR = 0, 1
"""Channels of DATA. Everything but a program's errors is on channel 0."""

MAX_DATA_BYTES = 112 * 1024
"""The payload of one frame. Each frame costs all processes on its way much more time than its bytes do."""

_NUMBERED = struct.Struct(">BQ")
_INNER = struct.Struct(">BI")
_CREDIT = struct.Struct(">BI")
_DATA_HEADER_BYTES = _NUMBERED.size + _INNER.size + 1

MAX_FRAME_BYTES = MAX_DATA_BYTES + _DATA_HEADER_BYTES
"""The size of the largest outer frame."""

MAX_JSON_BYTES = 64 * 1024


class ProtocolError(ConnectionError):
    """The peer sent bytes that are no frame, or a frame that it must not send."""


def simple(kind: int) -> bytes:
    """Returns an outer frame without a body."""
    return bytes((kind,))


def with_json(kind: int, content: Mapping[str, Any]) -> bytes:
    """Returns an outer frame with a JSON body."""
    return bytes((kind,)) + to_json(content)


def ack(number: int) -> bytes:
    """Returns the acknowledgement of all frames up to this number."""
    return _NUMBERED.pack(ACK, number)


def numbered(number: int, *parts: bytes | memoryview) -> bytes:
    """Returns a NUMBERED frame from the parts of its inner frame."""
    return b"".join((_NUMBERED.pack(NUMBERED, number), *parts))


def inner(kind: int, stream: int, body: bytes = b"") -> bytes:
    """Returns an inner frame, or the start of one whose data follow as another part."""
    return _INNER.pack(kind, stream) + body


def credit(stream: int, window: int, size: int) -> bytes:
    """Returns the inner frame that permits the peer to send more bytes of a window: 0 for data, 1 for events."""
    return _INNER.pack(CREDIT, stream) + _CREDIT.pack(window, size)


def kind_of(frame: bytes) -> int:
    """Returns the type of an outer frame.

    Raises:
        ProtocolError: it is empty, too large or of an unknown type.
    """
    if not frame or len(frame) > MAX_FRAME_BYTES or not HELLO <= frame[0] <= SELECT:
        raise ProtocolError("not a frame")
    return frame[0]


def number_of(frame: bytes) -> int:
    """Returns the number of a NUMBERED or ACK frame."""
    if len(frame) < _NUMBERED.size:
        raise ProtocolError("a frame without a number")
    number: int = _NUMBERED.unpack_from(frame)[1]
    return number


def inner_of(frame: bytes) -> memoryview:
    """Returns the inner frame of a NUMBERED one, without a copy."""
    return memoryview(frame)[_NUMBERED.size :]


def split_inner(frame: memoryview) -> tuple[int, int, memoryview]:
    """Returns type, stream and body of an inner frame."""
    if len(frame) < _INNER.size:
        raise ProtocolError("a truncated inner frame")
    kind, stream = _INNER.unpack_from(frame)
    if not OPEN <= kind <= CLOSE:
        raise ProtocolError("an inner frame of an unknown type")
    return kind, stream, frame[_INNER.size :]


def credit_of(body: memoryview) -> tuple[int, int]:
    """Returns window and bytes of a CREDIT frame."""
    if len(body) != _CREDIT.size:
        raise ProtocolError("not a credit")
    window, size = _CREDIT.unpack(body)
    if window > 1:
        raise ProtocolError("credit for an unknown window")
    return window, size


def json_of(body: bytes | memoryview) -> dict[str, Any]:
    """Returns the JSON object in the body of a frame."""
    data = bytes(body)
    if len(data) > MAX_JSON_BYTES:
        raise ProtocolError("a JSON body that is too large")
    try:
        # Deeply nested values exhaust the stack of the parser.
        content = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ProtocolError("not JSON") from error
    if not isinstance(content, dict):
        raise ProtocolError("not a JSON object")
    return content


def to_json(content: Mapping[str, Any]) -> bytes:
    """Returns a JSON body.

    Raises:
        ValueError: it would not fit into one frame.
    """
    data = json.dumps(content, separators=(",", ":")).encode()
    if len(data) > MAX_JSON_BYTES:
        raise ValueError(f"{len(data)} bytes do not fit into one frame of a tunnel")
    return data
