"""A tunnel by ordinary requests, behind proxies without WebSockets: POST sends frames, GET waits for some."""

from __future__ import annotations

import secrets
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress

from pai_sdk._client.api.transport import Transport
from pai_sdk._host.agent.tunnel.frames import MAX_FRAME_BYTES
from pai_sdk._wire.tunnels import MESSAGE_NUMBER
from pai_sdk.errors import ApiError, ConnectionFailedError, InvalidResponseError, PaiError

_ACTION = "ConnectTrainingJobInstance"
_PATH = "/api/v1/trainingjobs/{training_job_id}/instances/{instance}/tunnel/sessions/{session}"
_LENGTH_BYTES = 4
_MAX_MESSAGE_BYTES = 256 << 10
_READ_TIMEOUT_S = 35.0  # the service responds to a poll after 20 seconds at the latest
_CLOSE_TIMEOUT_S = 2.0
_MAX_ATTEMPTS = 4
_PAUSE_S = 0.2


class PolledTransport:
    """Sends and receives frames by numbered messages, so that a request without a response can be repeated."""

    def __init__(self, transport: Transport, job_id: str, instance: str) -> None:
        self._transport = transport
        self._ids = {"training_job_id": job_id, "instance": instance, "session": secrets.token_hex(16)}
        self._sending = threading.Lock()
        self._num_sent = 0
        self._num_polled = 0
        self._frames: deque[bytes] = deque()  # used by the receiver only
        self._is_closed = threading.Event()
        self.close_code: int | None = None  # of WebSockets; here the next dial receives the refusal
        self.close_reason = ""

    def __repr__(self) -> str:
        return f"<PolledTransport to {self._ids['instance']}>"

    def open(self) -> None:
        """Opens the session; raises the errors of the service, and ConnectionFailedError."""
        self._exchange("POST", 0, b"")
        self._num_sent = 1

    def send(self, frame: bytes) -> None:
        """Sends a frame; raises ConnectionError after the end."""
        self.send_many((frame,))

    def send_many(self, frames: Sequence[bytes]) -> None:
        """Sends frames in their order, as few messages."""
        with self._sending:
            for message in _messages(frames):
                self._request("POST", self._num_sent, message)
                self._num_sent += 1

    def receive(self, timeout_s: float | None) -> bytes:
        """Returns the next frame; raises TimeoutError, or ConnectionError at the end."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not self._frames:
            if deadline is not None and time.monotonic() > deadline:
                raise TimeoutError("no frame arrived in time")
            message = self._request("GET", self._num_polled, None)
            self._num_polled += 1
            self._frames.extend(_frames(message))
        return self._frames.popleft()

    def close(self) -> None:
        """Ends the session; a poll that waits returns later, and its frames are discarded."""
        if not self._is_closed.is_set():
            self._is_closed.set()
            with suppress(PaiError):
                self._exchange("DELETE", None, None, timeout_s=_CLOSE_TIMEOUT_S)

    def _request(self, method: str, number: int, data: bytes | None) -> bytes:
        """Sends a request, and again with its number if it has no response."""
        for attempt in range(_MAX_ATTEMPTS):
            if self._is_closed.wait(_PAUSE_S * attempt):
                break
            try:
                return self._exchange(method, number, data)
            except ApiError as error:
                raise ConnectionError(f"the session of the tunnel has ended: {error}") from error
            except (ConnectionFailedError, InvalidResponseError) as error:
                failure = error
                if not error.retryable:
                    break
        else:
            raise ConnectionError(str(failure)) from failure
        raise ConnectionError("the session of the tunnel was closed")

    def _exchange(
        self, method: str, number: int | None, data: bytes | None, *, timeout_s: float = _READ_TIMEOUT_S
    ) -> bytes:
        query = {} if number is None else {MESSAGE_NUMBER: str(number)}
        return self._transport.exchange(
            _ACTION, method, _PATH, self._ids, query, data=data, read_timeout_s=timeout_s
        )


def _messages(frames: Sequence[bytes]) -> Iterator[bytes]:
    """Yields messages of frames, each behind its length."""
    message = bytearray()
    for frame in frames:
        if message and len(message) + _LENGTH_BYTES + len(frame) > _MAX_MESSAGE_BYTES:
            yield bytes(message)
            message.clear()
        message += len(frame).to_bytes(_LENGTH_BYTES, "big") + frame
    if message:
        yield bytes(message)


def _frames(message: bytes) -> Iterator[bytes]:
    """Yields the frames of a message; raises ConnectionError if it is malformed."""
    position = 0
    while position < len(message):
        start = position + _LENGTH_BYTES
        size = int.from_bytes(message[position:start], "big")
        position = start + size
        if size > MAX_FRAME_BYTES or position > len(message):
            raise ConnectionError("the service sent a malformed message")
        yield message[start:position]
