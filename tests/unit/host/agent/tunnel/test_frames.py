"""Frames: what is malformed is refused by one error."""

from __future__ import annotations

import random

import pytest

from pai_sdk._host.agent.tunnel import frames
from pai_sdk._host.agent.tunnel.frames import ProtocolError


def test_a_numbered_frame_is_read_as_written() -> None:
    frame = frames.numbered(7, frames.inner(frames.DATA, 3, b"\0"), b"content")
    assert frames.kind_of(frame) == frames.NUMBERED
    assert frames.number_of(frame) == 7
    kind, stream, body = frames.split_inner(frames.inner_of(frame))
    assert (kind, stream, bytes(body)) == (frames.DATA, 3, b"\0content")


def test_the_largest_payload_fits() -> None:
    frame = frames.numbered(1, frames.inner(frames.DATA, 1, b"\0"), bytes(frames.MAX_DATA_BYTES))
    assert len(frame) == frames.MAX_FRAME_BYTES
    assert frames.kind_of(frame) == frames.NUMBERED


@pytest.mark.parametrize(
    "frame",
    [b"", b"\0", b"\x0a", b"\xff" * 20, b"\4" + bytes(frames.MAX_FRAME_BYTES)],
    ids=["empty", "zero", "unknown", "random", "large"],
)
def test_what_is_no_frame(frame: bytes) -> None:
    with pytest.raises(ProtocolError):
        frames.kind_of(frame)


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"1", b"\xff", b"{" * 9000, b"[" * 60000, b'{"a":1}' + b" " * frames.MAX_JSON_BYTES],
    ids=["empty", "list", "number", "no text", "open", "deep", "large"],
)
def test_what_is_no_object(body: bytes) -> None:
    with pytest.raises(ProtocolError):
        frames.json_of(body)


def test_random_bytes_raise_nothing_else() -> None:
    chance = random.Random(40)
    for _ in range(10_000):
        frame = chance.randbytes(chance.randrange(30))
        try:
            frames.kind_of(frame)
            frames.number_of(frame)
            _, _, body = frames.split_inner(frames.inner_of(frame))
            frames.credit_of(body)
        except ProtocolError:
            pass


def test_what_does_not_fit_into_a_frame() -> None:
    with pytest.raises(ValueError, match="do not fit"):
        frames.to_json({"argv": ["x" * frames.MAX_JSON_BYTES]})
