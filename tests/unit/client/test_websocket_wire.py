"""The connection below a WebSocket of a tunnel: what closes it does not lend its number to another file."""

from __future__ import annotations

import os
import socket

import pytest

from pai_sdk._client.tunnel.websocket import _Wire


def test_a_connection_that_is_closed_while_a_thread_waits_retains_its_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours, theirs = socket.socketpair()
    number, others = ours.fileno(), list[int]()
    wire = _Wire(ours)

    def wait(for_write: bool, deadline: float | None) -> None:
        wire.close()
        others.extend(os.pipe())

    monkeypatch.setattr(wire, "_wait", wait)
    with theirs:
        assert wire.read(None) == b""
    assert number not in others
    assert ours.fileno() == -1
    with pytest.raises(ConnectionError):
        wire.read(None)
    for descriptor in others:
        os.close(descriptor)
