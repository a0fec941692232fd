"""Streams of bytes and events, many over one link, each with a window of its own.

A stream that nobody reads stops its sender and no other stream: each end may send `WINDOW_BYTES`, and more only as
the peer consumes it. Both ends have the same classes; client and server differ in who opens which kinds.

Standard library only.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from pai_sdk._host.agent.tunnel import frames
from pai_sdk._host.agent.tunnel.frames import ProtocolError
from pai_sdk._host.agent.tunnel.link import ResumableLink, closed_error
from pai_sdk.errors import TunnelClosedError, TunnelRefusedError

WINDOW_BYTES = 1 << 20
"""The data on their way in one direction of a stream: payload, and `_OVERHEAD_BYTES` for each frame."""

_DATA, _EVENTS = 0, 1
# Events have their own window, so that a signal does not wait behind data which the program does not read.
_WINDOWS = (WINDOW_BYTES, 128 * 1024)
# Consumed bytes are granted again by few frames; what is left of the window has room for the largest event.
_GRANT_BYTES = (WINDOW_BYTES // 2, 32 * 1024)

MAX_STREAMS = 1024
"""The open streams of a tunnel."""

_OVERHEAD_BYTES = 64
_MIN_WRITE_BYTES = 32 * 1024  # a write waits for this much of the window
_CHANNELS = {frames.STDOUT: "stdout", frames.STDERR: "stderr"}
_CHANNEL_NUMBERS = {name: bytes((number,)) for number, name in _CHANNELS.items()}


class _Windows:
    """How much each end may send, for data and for events. Guarded by the lock of its stream."""

    def __init__(self) -> None:
        self.credit = [*_WINDOWS]
        self._unread = [0, 0]  # received and not consumed
        self._consumed = [0, 0]  # and not yet granted again

    def spend(self, window: int, size: int) -> int:
        """Returns how many of these bytes may be sent now, and counts them; 0 if it is better to wait."""
        # All of an event, and enough of data, so that frames do not get tiny.
        needed = (min(size, _MIN_WRITE_BYTES) if window == _DATA else size) + _OVERHEAD_BYTES
        if self.credit[window] < needed:
            return 0
        size = min(size, self.credit[window] - _OVERHEAD_BYTES)
        self.credit[window] -= size + _OVERHEAD_BYTES
        return size

    def grant(self, window: int, size: int) -> None:
        """Counts the credit that the peer grants."""
        self.credit[window] += size
        if self.credit[window] > _WINDOWS[window]:
            raise ProtocolError("more credit than was used")

    def receive(self, window: int, cost: int) -> None:
        """Counts what the peer has sent."""
        self._unread[window] += cost
        if self._unread[window] + self._consumed[window] > _WINDOWS[window]:
            raise ProtocolError("more data than the window allows")

    def consume(self, window: int, cost: int) -> int:
        """Counts what was consumed; returns the credit to grant, once that is a good part of the window."""
        self._unread[window] -= cost
        self._consumed[window] += cost
        grant = self._consumed[window]
        if grant < _GRANT_BYTES[window]:
            return 0
        self._consumed[window] = 0
        return grant


class Stream:
    """One stream of a tunnel. One thread reads, another one writes, any thread may close.

    `_changed` guards all fields.

    Attributes:
        kind: the kind that it was opened as.
        parameters: what it was opened with.
        result: the peer's response to the opening.
        exit: how the program has ended, `{"code": …}` or `{"signal": …}`, once that is known.
    """

    def __init__(self, tunnel: Tunnel, number: int, kind: str, parameters: Mapping[str, Any]) -> None:
        self.tunnel = tunnel
        self.number = number
        self.kind = kind
        self.parameters = parameters
        self.result: dict[str, Any] = {}
        self.exit: dict[str, Any] | None = None
        self._changed = threading.Condition()
        self._messages: deque[tuple[str, Any, int]] = deque()  # with their share of the window
        self._events: deque[tuple[str, Any, int]] | None = None
        self._windows = _Windows()
        self._is_open = False
        self._has_ended = False  # this end sends no more data
        self._is_closed = False  # by this end
        self._is_peer_closed = False
        self._has_peer_ended = False
        self._error: Exception | None = None

    # ---- reading ----

    def read(self, limit: int = frames.MAX_DATA_BYTES) -> bytes:
        """Returns the next bytes of output or plain data; nothing at the end. Errors and events are skipped.

        Raises:
            TunnelClosedError: the tunnel has ended before the stream.
        """
        while message := self.next_message(limit=limit):
            name, content = message
            if name == "stdout" and content:
                return bytes(content)
            if name in ("end", "exit"):
                with self._changed:
                    # For the next call.
                    self._messages.appendleft((name, content, 0))
                break
        return b""

    def messages(self) -> Iterator[tuple[str, Any]]:
        """Yields `("stdout" or "stderr", bytes)`, `("event", dict)`, and `("exit", dict)` as the last one.

        Raises:
            TunnelClosedError: the tunnel has ended before the stream.
        """
        while message := self.next_message():
            name, content = message
            if name in _CHANNEL_NUMBERS:
                yield name, bytes(content)
            elif name != "end":
                yield name, content
            if name == "exit":
                return

    def next_message(self, *, limit: int = frames.MAX_DATA_BYTES) -> tuple[str, Any] | None:
        """Returns the next message, its data without a copy, or None at the end.

        After the last data there is one `("end", None)`; an exit and events may follow.

        Raises:
            TunnelClosedError: the tunnel has ended before the stream.
        """
        self.confirm()
        with self._changed:
            while not self._messages:
                if self._is_peer_closed or self._is_closed:
                    return None
                if self._error is not None:
                    raise closed_error(self._error)
                self._changed.wait()
            name, content, cost = self._messages.popleft()
            if name in _CHANNEL_NUMBERS and len(content) > limit:
                self._messages.appendleft((name, content[limit:], cost - limit))
                content, cost = content[:limit], limit
        self._consume(_EVENTS if name == "event" else _DATA, cost)
        return name, content

    def separate_events(self) -> None:
        """Makes `next_event` return the events, for a thread that must not wait behind data."""
        with self._changed:
            self._events = deque(each for each in self._messages if each[0] == "event")
            self._messages = deque(each for each in self._messages if each[0] != "event")

    def next_event(self) -> dict[str, Any] | None:
        """Returns the next event after `separate_events`, or None at the end of the stream.

        Raises:
            TunnelClosedError: the tunnel has ended before the stream.
        """
        with self._changed:
            while not self._events:
                if self._is_peer_closed or self._is_closed:
                    return None
                if self._error is not None:
                    raise closed_error(self._error)
                self._changed.wait()
            _, content, cost = self._events.popleft()
        self._consume(_EVENTS, cost)
        event: dict[str, Any] = content
        return event

    def _consume(self, window: int, cost: int) -> None:
        """Permits the peer to send more, once a good part of the window was consumed."""
        with self._changed:
            grant = 0 if self._is_peer_closed else self._windows.consume(window, cost)
        if grant:
            with suppress(TunnelClosedError):
                self.tunnel.send(frames.credit(self.number, window, grant), waits=False)

    def wait_exit(self, timeout_s: float | None = None) -> int:
        """Waits for the end of the program; returns its exit code, or 128 and the number of the signal.

        Its output must be read meanwhile: a program that nobody reads waits.

        Raises:
            TimeoutError: it runs still.
            TunnelClosedError: the tunnel or the stream has ended before the program.
        """
        with self._changed:
            if not self._changed.wait_for(self._has_outcome, timeout_s):
                raise TimeoutError("the program runs still")
            if self.exit is None:
                raise closed_error(self._error or ConnectionError("the stream was closed"))
            return exit_code(self.exit)

    def _has_outcome(self) -> bool:
        return bool(self.exit is not None or self._error or self._is_peer_closed or self._is_closed)

    # ---- writing ----

    def write(self, data: bytes | bytearray | memoryview, *, channel: str = "stdout") -> None:
        """Sends data; waits while the peer does not read.

        Raises:
            BrokenPipeError: the peer or this end has closed the stream.
            TunnelClosedError: the tunnel has ended.
        """
        self.confirm()
        view = memoryview(data).cast("B")
        number = _CHANNEL_NUMBERS[channel]
        while view:
            size = self._reserve(_DATA, min(len(view), frames.MAX_DATA_BYTES))
            self.tunnel.send(frames.inner(frames.DATA, self.number, number), view[:size])
            view = view[size:]

    def send_event(self, event: Mapping[str, Any]) -> None:
        """Sends an event, such as `{"resize": [rows, columns]}` or `{"signal": "INT"}`."""
        self.confirm()
        body = frames.to_json(event)
        self._reserve(_EVENTS, len(body))
        self.tunnel.send(frames.inner(frames.EVENT, self.number, body))

    def send_exit(self, outcome: Mapping[str, Any]) -> None:
        """Sends how the program has ended: `{"code": …}` or `{"signal": …}`."""
        self.tunnel.send(frames.inner(frames.EXIT, self.number, frames.to_json(outcome)))

    def end(self) -> None:
        """Tells the peer that no more data follow; reading continues."""
        self.confirm()
        with self._changed:
            if self._has_ended or self._is_closed or self._is_peer_closed:
                return
            self._has_ended = True
        self.tunnel.send(frames.inner(frames.END, self.number))

    def close(self) -> None:
        """Closes the stream in both directions; what was not read is discarded."""
        with self._changed:
            if self._is_closed:
                return
            self._is_closed = True
            self._messages.clear()
            is_peer_closed = self._is_peer_closed
            self._changed.notify_all()
        if not is_peer_closed:
            with suppress(TunnelClosedError):
                self.tunnel.send(frames.inner(frames.CLOSE, self.number), waits=False)

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _reserve(self, window: int, size: int) -> int:
        """Waits for a share of a window; returns how many bytes may be sent."""
        with self._changed:
            while True:
                if self._is_closed or self._is_peer_closed or (window == _DATA and self._has_ended):
                    raise BrokenPipeError("the stream was closed")
                if self._error is not None:
                    raise closed_error(self._error)
                if permitted := self._windows.spend(window, size):
                    return permitted
                self._changed.wait()

    # ---- the opening ----

    def confirm(self, result: Mapping[str, Any] | None = None) -> None:
        """Accepts a stream that the peer has opened; its first use does so too."""
        if self._is_open:
            # Once set it stays, so most calls need no lock.
            return
        with self._changed:
            if self._is_open or self._is_closed:
                return
            self._is_open = True
        self.tunnel.send(frames.inner(frames.OPENED, self.number, frames.to_json(result or {})))

    def refuse(self, code: str, message: str) -> None:
        """Refuses a stream that the peer has opened."""
        with self._changed:
            if self._is_open or self._is_closed:
                return
            self._is_open = self._is_closed = True
        content = frames.to_json({"code": code, "message": message[:4000]})
        self.tunnel.discard(self)
        self.tunnel.send(frames.inner(frames.REFUSAL, self.number, content))

    @property
    def is_open(self) -> bool:
        """Returns whether the stream was confirmed or refused."""
        return self._is_open

    @property
    def is_peer_closed(self) -> bool:
        """Returns whether the peer has closed the stream, or the tunnel has ended."""
        return self._is_peer_closed or self._error is not None

    def wait_open(self, timeout_s: float) -> None:
        """Waits until the peer has confirmed the stream."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._is_open or self.is_peer_closed, timeout_s):
                raise TunnelRefusedError("Timeout", "the instance did not respond in time")
            if isinstance(self._error, TunnelRefusedError):
                raise self._error
            if self._error is not None:
                raise closed_error(self._error)

    # ---- called by the reader of the link ----

    def on_frame(self, kind: int, body: memoryview) -> None:
        """Handles a frame of the peer."""
        if kind == frames.DATA:
            if not body or body[0] not in _CHANNELS:
                raise ProtocolError("data of an unknown channel")
            self._receive(_CHANNELS[body[0]], body[1:], len(body) - 1 + _OVERHEAD_BYTES)
        elif kind == frames.EVENT:
            self._receive("event", frames.json_of(body), len(body) + _OVERHEAD_BYTES)
        elif kind == frames.CREDIT:
            window, size = frames.credit_of(body)
            with self._changed:
                self._windows.grant(window, size)
                self._changed.notify_all()
        elif kind == frames.END:
            self._receive("end", None, _OVERHEAD_BYTES)
        elif kind == frames.EXIT:
            outcome = frames.json_of(body)
            exit_code(outcome)
            self._receive("exit", outcome, _OVERHEAD_BYTES)
        elif kind == frames.OPENED:
            result = frames.json_of(body)
            with self._changed:
                if self._is_open:
                    raise ProtocolError("a stream that was confirmed twice")
                self.result, self._is_open = result, True
                self._changed.notify_all()

    def on_close(self) -> bool:
        """Handles the peer's CLOSE; returns whether it waits for one of this end."""
        with self._changed:
            # In one step with the flag, since `close` sends none after it.
            is_response_due = not self._is_closed
            self._is_peer_closed = True
            self._changed.notify_all()
            return is_response_due

    def fail(self, error: Exception) -> None:
        """Ends the stream with the tunnel, or because the peer has refused it."""
        with self._changed:
            if self._error is None:
                self._error = error
            self._changed.notify_all()

    def _receive(self, name: str, content: Any, cost: int) -> None:
        with self._changed:
            if self._is_closed:
                return
            if not self._is_open:
                # What nobody has accepted yet has no memory.
                raise ProtocolError("a frame of a stream that was not confirmed")
            if name not in ("end", "exit"):
                self._windows.receive(_EVENTS if name == "event" else _DATA, cost)
            else:
                if self.exit is not None or (name == "end" and self._has_peer_ended):
                    raise ProtocolError("a second end")
                cost = 0
                self._has_peer_ended = True
                self.exit = content
            messages = self._events if name == "event" and self._events is not None else self._messages
            messages.append((name, content, cost))
            self._changed.notify_all()


class Tunnel:
    """The streams of one link.

    `_changed` guards the streams and those that wait to be accepted; `_opening` is acquired before it.

    Args:
        link: the link, which this starts.
        is_server: whether this is the server's end.
        on_end: called once, when the tunnel has ended.

    Attributes:
        instance: at the server's end, the instance that was selected.
        open_timeout_s: how long `open` waits for the peer.
    """

    def __init__(
        self,
        link: ResumableLink,
        *,
        is_server: bool = False,
        instance: str = "",
        on_end: Callable[[Exception], None] = lambda _: None,
    ) -> None:
        self.instance = instance
        self.open_timeout_s = 300.0
        self._link = link
        self._on_end = on_end
        self._opening = threading.Lock()
        self._changed = threading.Condition()
        self._streams: dict[int, Stream] = {}
        self._incoming: deque[Stream] = deque()
        self._peer_parity = 1 if is_server else 0
        self._next_number = 2 if is_server else 1
        self._last_of_peer = 0
        self._error: Exception | None = None
        link.start(self._on_frame, self._on_link_end)

    def open(self, kind: str, **parameters: Any) -> Stream:
        """Opens a stream of a kind that the peer serves.

        Raises:
            TunnelRefusedError: the peer refused it; `code` says why.
            TunnelClosedError: the tunnel has ended.
        """
        try:
            body = frames.to_json({**parameters, "kind": kind})
        except ValueError as error:
            raise TunnelRefusedError("InvalidRequest", str(error)) from error
        # Openings are sent in the order of their numbers.
        with self._opening:
            with self._changed:
                if self._error is not None:
                    raise closed_error(self._error)
                if len(self._streams) >= MAX_STREAMS:
                    raise TunnelRefusedError("TooManyStreams", f"{MAX_STREAMS} streams are open")
                stream = Stream(self, self._next_number, kind, parameters)
                self._streams[stream.number] = stream
                self._next_number += 2
            self._link.send(frames.inner(frames.OPEN, stream.number, body))
        try:
            stream.wait_open(self.open_timeout_s)
        except BaseException:
            stream.close()
            raise
        return stream

    def accept(self, timeout_s: float | None = None) -> Stream:
        """Returns the next stream that the peer has opened; its first use confirms it, or `refuse` it.

        Raises:
            TimeoutError: there is none.
            TunnelClosedError: the tunnel has ended.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self._incoming or self._error, timeout_s):
                raise TimeoutError("the peer has opened no stream")
            if self._incoming:
                return self._incoming.popleft()
            assert self._error is not None  # noqa: S101 - the condition of the wait
            raise closed_error(self._error)

    def close(self, reason: TunnelClosedError | None = None) -> None:
        """Ends the tunnel and all its streams, after what was written has left."""
        self._link.close(reason)

    def __enter__(self) -> Tunnel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def is_ended(self) -> bool:
        """Returns whether the tunnel has ended."""
        return self._error is not None

    def send(self, *parts: bytes | memoryview, waits: bool = True) -> None:
        """Sends an inner frame of a stream."""
        self._link.send(*parts, waits=waits)

    def discard(self, stream: Stream) -> None:
        """Forgets a stream, of which no frame follows."""
        with self._changed:
            self._streams.pop(stream.number, None)

    # ---- called by the threads of the link ----

    def _on_frame(self, frame: memoryview) -> None:
        kind, number, body = frames.split_inner(frame)
        if kind == frames.OPEN:
            self._accept_opening(number, body)
            return
        with self._changed:
            stream = self._streams.get(number)
        if stream is None:
            # Of a stream that this end has forgotten: the peer may have sent it before it knew.
            return
        if kind == frames.REFUSAL:
            if stream.is_open:
                raise ProtocolError("a stream that was confirmed and refused")
            content = frames.json_of(body)
            self.discard(stream)
            stream.fail(TunnelRefusedError(str(content.get("code", "")), str(content.get("message", ""))))
            return
        if kind != frames.CLOSE:
            stream.on_frame(kind, body)
            return
        self.discard(stream)
        if stream.on_close():
            with suppress(TunnelClosedError):
                self._link.send(frames.inner(frames.CLOSE, number), waits=False)

    def _accept_opening(self, number: int, body: memoryview) -> None:
        parameters = frames.json_of(body)
        kind = parameters.pop("kind", None)
        if number % 2 != self._peer_parity or number <= self._last_of_peer or not isinstance(kind, str):
            raise ProtocolError("not an opening")
        self._last_of_peer = number
        stream = Stream(self, number, kind, parameters)
        with self._changed:
            has_room = len(self._streams) < MAX_STREAMS
            if has_room:
                self._streams[number] = stream
                self._incoming.append(stream)
                self._changed.notify_all()
        if not has_room:
            content = frames.to_json({"code": "TooManyStreams", "message": f"{MAX_STREAMS} streams are open"})
            self._link.send(frames.inner(frames.REFUSAL, number, content), waits=False)

    def _on_link_end(self, error: Exception) -> None:
        with self._changed:
            self._error = error
            streams = list(self._streams.values())
            self._streams.clear()
            self._changed.notify_all()
        for stream in streams:
            stream.fail(error)
        self._on_end(error)


def exit_code(outcome: Mapping[str, Any]) -> int:
    """Returns the exit code of a shell for a program that has ended in this way."""
    for name, base in (("code", 0), ("signal", 128)):
        number = outcome.get(name)
        if type(number) is int and 0 <= number <= 255 - base:
            return base + number
    raise ProtocolError("not an exit")
