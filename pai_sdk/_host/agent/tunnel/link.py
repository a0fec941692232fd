"""A link whose frames survive lost connections: each arrives once, in order, or the link ends with an error.

    send ──▶ unsent ──writer──▶ transport ──reader──▶ on_frame
                 └─▶ unacknowledged ◀── ACK ─┘

Both ends count the frames that have arrived. A frame is retained by its sender until the peer acknowledges it, and
the peer does so when the frame is in the memory of its process, which a lost connection does not end. After a new
connection both ends report their counts, and the other frames are sent again. Each connection of a session has a
greater epoch than the ones before, so that an old one cannot write after a new one has joined.

Standard library only.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import cast

from pai_sdk._host.agent.tunnel import frames
from pai_sdk._host.agent.tunnel.frames import ProtocolError
from pai_sdk._host.agent.tunnel.transports import BatchTransport, SocketTransport, Transport
from pai_sdk.errors import PaiError, TunnelClosedError, TunnelRefusedError

__all__ = ["BatchTransport", "ProtocolError", "ResumableLink", "SocketTransport", "Transport"]

HANDSHAKE_S = 20.0
_WINDOW_BYTES = 4 << 20  # sent or to be sent, and not acknowledged
# Frames that do not wait for the window. An honest peer causes few; one that never reads could cause any number.
_MAX_BYTES = _WINDOW_BYTES + (8 << 20)
_FRAME_OVERHEAD_BYTES = 64  # of an object in memory
_ACK_BYTES = 512 * 1024
_ACK_FRAMES = 64
_BATCH_BYTES = 512 * 1024
_BATCH_FRAMES = 64
_MIN_PAUSE_S, _MAX_PAUSE_S = 0.05, 5.0
_LAST_DIAL_S = 2.5


class _Outbox:
    """Numbered frames: those that the peer has not acknowledged, and those that were not sent."""

    def __init__(self) -> None:
        self._unacknowledged: deque[bytes] = deque()
        self._unsent: deque[bytes] = deque()
        self._acknowledged = 0  # the number of the last acknowledged frame
        self._last = 0
        self.size_bytes = 0

    def __bool__(self) -> bool:
        return bool(self._unsent)

    def add(self, parts: Sequence[bytes | memoryview]) -> None:
        """Adds a frame, from the parts of its inner frame."""
        self._last += 1
        frame = frames.numbered(self._last, *parts)
        self._unsent.append(frame)
        self.size_bytes += len(frame) + _FRAME_OVERHEAD_BYTES

    def next_batch(self) -> list[bytes]:
        """Returns frames to send now, which are retained."""
        batch: list[bytes] = []
        size = 0
        while self._unsent and size < _BATCH_BYTES and len(batch) < _BATCH_FRAMES:
            frame = self._unsent.popleft()
            self._unacknowledged.append(frame)
            batch.append(frame)
            size += len(frame)
        return batch

    def acknowledge(self, number: int) -> None:
        """Forgets the frames up to this number."""
        if number > self._acknowledged + len(self._unacknowledged):
            raise ProtocolError("an acknowledgement of a frame that was not sent")
        while self._acknowledged < number:
            self._acknowledged += 1
            self.size_bytes -= len(self._unacknowledged.popleft()) + _FRAME_OVERHEAD_BYTES

    def rewind(self, received: int) -> None:
        """Prepares for a new connection to a peer that has received this many frames."""
        if received < self._acknowledged:
            raise ProtocolError("a count that is lower than an earlier one")
        self.acknowledge(received)
        self._unsent.extendleft(reversed(self._unacknowledged))
        self._unacknowledged.clear()


class _Link:
    """One end of a session.

    States: connected ⇄ detached ──▶ ended. The client's end dials again while it is detached; the server's end
    waits for `join`.

    Locks: `_delivery` makes the delivery of a frame and its count one step, and a join waits for it. `_lock`,
    which is acquired after `_delivery` where both are, guards everything else. `_work` wakes the writer, `_space`
    those that wait for the window or the end.

    Attributes:
        session: the random identity of the session; whoever knows it can join.
        rejoin_s: seconds for which a detached link waits.
        ping_s: a frame is sent at least this often.
        silence_s: a connection without a frame for this long is closed.
        explain: returns the error with which a link ends that the peer, or a refused connection, has ended.
    """

    def __init__(self, session: str = "", *, rejoin_s: float = 120.0) -> None:
        self.session = session or os.urandom(16).hex()
        self.rejoin_s = rejoin_s
        self.ping_s, self.silence_s = 20.0, 60.0
        self._delivery = threading.Lock()
        self._lock = threading.Lock()
        self._work, self._space = threading.Condition(self._lock), threading.Condition(self._lock)
        self._transport: Transport | None = None
        self._sends_batches = False
        self._detached_at = time.monotonic()
        self._epoch = 0
        self._outbox = _Outbox()
        self._replies: deque[bytes] = deque()  # unnumbered frames for the current connection
        self._received = self._acked = 0
        self._received_bytes = 0  # since the last acknowledgement
        self._is_sending = False  # the writer has a batch that has not left
        self._is_closing = False
        self._error: Exception | None = None
        self.explain: Callable[[Exception], Exception] = _same
        self._on_frame: Callable[[memoryview], None] = _ignore
        self._on_end: Callable[[Exception], None] = _ignore

    @property
    def is_ended(self) -> bool:
        """Returns whether the session has ended."""
        return self._error is not None

    @property
    def is_expired(self) -> bool:
        """Returns whether the link has been detached for too long."""
        with self._lock:
            return self._transport is None and time.monotonic() - self._detached_at > self.rejoin_s

    def start(self, on_frame: Callable[[memoryview], None], on_end: Callable[[Exception], None]) -> None:
        """Starts the writer; see `ResumableLink.start`."""
        self._on_frame, self._on_end = on_frame, on_end
        threading.Thread(target=self._write, name="tunnel-writer", daemon=True).start()

    def send(self, *parts: bytes | memoryview, waits: bool = True) -> None:
        """Sends an inner frame; with `waits`, only once there is space in the window.

        Raises:
            TunnelClosedError: the link has ended.
        """
        with self._lock:
            while waits and self._error is None and self._outbox.size_bytes > _WINDOW_BYTES:
                self._space.wait()
            if self._error is not None:
                raise closed_error(self._error)
            self._outbox.add(parts)
            is_full = self._outbox.size_bytes > _MAX_BYTES
            self._work.notify()
        if is_full:
            self.end(ProtocolError("the peer does not read, but causes responses"))

    def join(self, transport: Transport, epoch: int, received: int) -> None:
        """Continues the server's end with a new connection, whose peer has received this many frames."""
        with self._delivery, self._lock:
            if self._error is not None:
                raise TunnelRefusedError("SessionUnknown", "the session has ended")
            if epoch <= self._epoch:
                raise TunnelRefusedError("Replaced", "a newer connection of this session has joined")
            self._epoch = epoch
            former = self._transport
            self._attach(transport, received)
            self._replies.append(frames.with_json(frames.WELCOME, {"received": self._received}))
        if former is not None:
            former.close()

    def serve(self, transport: Transport) -> None:
        """Receives the frames of a connection that has joined, until it is lost or replaced."""
        try:
            self._read(transport)
        finally:
            self._detach(transport)

    def close(self, reason: TunnelClosedError | None = None, *, flush_s: float = 5.0) -> None:
        """Ends the session, after the frames that were sent have left; the peer gets the reason."""
        deadline = time.monotonic() + flush_s
        content = {"code": reason.code, "message": reason.message} if reason is not None else {}
        with self._lock:
            while self._error is None and self._transport is not None and (self._outbox or self._is_sending):
                if not self._space.wait(max(0.0, deadline - time.monotonic())):
                    break
            self._replies.append(frames.with_json(frames.BYE, content))
            # The peer closes the connection when it gets this; that is no loss.
            self._is_closing = True
            self._work.notify()
            while self._error is None and self._transport is not None and (self._replies or self._is_sending):
                if not self._space.wait(max(0.0, deadline - time.monotonic())):
                    break
        self.end(reason or TunnelClosedError("Closed", "the tunnel was closed"))

    def end(self, error: Exception) -> None:
        """Ends the session; the first error is the reason."""
        with self._lock:
            if self._error is not None:
                return
            self._error = error
            transport, self._transport = self._transport, None
            self._outbox = _Outbox()
            self._work.notify_all()
            self._space.notify_all()
        if transport is not None:
            transport.close()
        on_end = self._on_end
        # A cycle of references would close the files of the callbacks in any order.
        self._on_frame, self._on_end = _ignore, _ignore
        on_end(error)

    # ---- connections ----

    def _attach(self, transport: Transport, received: int) -> None:
        self._outbox.rewind(received)
        self._transport = transport
        self._sends_batches = isinstance(transport, BatchTransport)
        self._replies.clear()
        self._acked = self._received
        self._received_bytes = 0
        self._work.notify()
        self._space.notify_all()

    def _detach(self, transport: Transport) -> None:
        transport.close()
        with self._lock:
            if self._transport is transport:
                self._transport = None
                self._detached_at = time.monotonic()
                # `close` waits no longer.
                self._space.notify_all()

    # ---- the reader ----

    def _read(self, transport: Transport) -> None:
        """Receives frames; returns when another connection has joined or the session has ended."""
        while self._transport is transport:
            frame = transport.receive(self.silence_s)
            kind = frames.kind_of(frame)
            if kind == frames.NUMBERED:
                self._deliver(transport, frame)
            elif kind == frames.ACK:
                with self._lock:
                    if self._transport is transport:
                        self._outbox.acknowledge(frames.number_of(frame))
                        self._space.notify_all()
            elif kind == frames.PING:
                with self._lock:
                    # One is enough: a peer that sends many and reads none would fill the memory.
                    if not self._replies:
                        self._replies.append(frames.simple(frames.PONG))
                        self._work.notify()
            elif kind == frames.BYE:
                content = frames.json_of(frame[1:])
                message = str(content.get("message", "the other end has closed the tunnel"))
                self.end(self.explain(TunnelClosedError(str(content.get("code", "Ended")), message)))
            elif kind == frames.REFUSED:
                self.end(refused_error(frame[1:]))
            elif kind != frames.PONG:
                raise ProtocolError("a frame that does not belong here")

    def _deliver(self, transport: Transport, frame: bytes) -> None:
        number = frames.number_of(frame)
        with self._delivery:
            if self._transport is not transport or number <= self._received:
                return
            if number != self._received + 1:
                raise ProtocolError("a frame is missing")
            self._received = number
            try:
                self._on_frame(frames.inner_of(frame))
            except ProtocolError as error:
                # It would arrive again with the next connection.
                failure: ProtocolError | None = error
            else:
                failure = None
        if failure is not None:
            self.end(failure)
            return
        self._received_bytes += len(frame)
        if self._received_bytes >= _ACK_BYTES or number - self._acked >= _ACK_FRAMES:
            with self._lock:
                self._work.notify()

    # ---- the writer ----

    def _write(self) -> None:
        while True:
            with self._lock:
                batch = self._next_batch()
                transport = self._transport
                self._is_sending = True
            if transport is None:
                # The link has ended.
                return
            try:
                if self._sends_batches:
                    cast(BatchTransport, transport).send_many(batch)
                else:
                    for frame in batch:
                        transport.send(frame)
            except Exception:
                # Its reader gets an error too, and decides what follows.
                with self._lock:
                    if self._transport is transport:
                        self._transport = None
                        self._detached_at = time.monotonic()
                        self._space.notify_all()
                with suppress(Exception):
                    transport.close()
            with self._lock:
                self._is_sending = False
                if not self._outbox and not self._replies:
                    self._space.notify_all()

    def _next_batch(self) -> list[bytes]:
        """Waits for something to send; returns nothing after the end. Called with the lock."""
        next_ping = time.monotonic() + self.ping_s
        while self._error is None:
            now = time.monotonic()
            if self._transport is None:
                self._work.wait()
                next_ping = time.monotonic() + self.ping_s
                continue
            received = self._received
            is_ack_due = self._received_bytes >= _ACK_BYTES or received - self._acked >= _ACK_FRAMES
            is_ping_due = now >= next_ping
            if self._outbox or self._replies or is_ack_due or is_ping_due:
                batch = [*self._replies]
                self._replies.clear()
                # Not with each batch: the service relays every frame, and a large one costs little more than this.
                if is_ack_due or (is_ping_due and received > self._acked):
                    self._acked, self._received_bytes = received, 0
                    batch.append(frames.ack(received))
                batch += self._outbox.next_batch()
                return batch or [frames.simple(frames.PING)]
            self._work.wait(next_ping - now)
        return []


class ResumableLink(_Link):
    """One end of a session; the client's end, which `connect` returns, dials again while it is detached."""

    def __init__(self, session: str = "", *, rejoin_s: float = 120.0) -> None:
        super().__init__(session, rejoin_s=rejoin_s)
        self._dial: Callable[[], Transport] | None = None
        self._has_joined = False
        self._is_leaving = False

    @classmethod
    def connect(cls, dial: Callable[[], Transport], rejoin_s: float = 120.0) -> ResumableLink:
        """Joins a server as a new session; `dial` is called again after each lost connection.

        Raises:
            TunnelRefusedError: the server refused the session, sent something else, or nothing in time.
            OSError: `dial` failed; other errors of it are raised as well.
        """
        link = cls(rejoin_s=rejoin_s)
        link._dial = dial
        first = dial()
        try:
            link._greet(first)
        except TimeoutError as error:
            # A connection that was lost later is opened again for longer, since that has a session to lose.
            first.close()
            message = f"the instance did not respond in {HANDSHAKE_S:g} seconds"
            raise TunnelRefusedError("Timeout", message) from error
        except OSError:
            first.close()
            link._detached_at = time.monotonic()
            link._dial_again()
        except BaseException:
            first.close()
            raise
        return link

    def start(self, on_frame: Callable[[memoryview], None], on_end: Callable[[Exception], None]) -> None:
        """Starts the threads.

        Args:
            on_frame: called with each inner frame, by one thread at a time; it must not block.
            on_end: called once.
        """
        super().start(on_frame, on_end)
        if self._dial is not None:
            threading.Thread(target=self._read_and_rejoin, name="tunnel-reader", daemon=True).start()

    def close(self, reason: TunnelClosedError | None = None, *, flush_s: float = 5.0) -> None:
        """Ends the session; a detached client dials once more, so that the server need not wait for it."""
        with self._lock:
            if self._dial is not None and self._transport is None:
                self._is_leaving = True
                self._space.notify_all()
                self._space.wait_for(lambda: self._transport or self._error, _LAST_DIAL_S)
        super().close(reason, flush_s=flush_s)

    def _greet(self, transport: Transport) -> None:
        """Joins the server with a new connection."""
        self._epoch += 1
        content = {
            "session": self.session,
            "epoch": self._epoch,
            "received": self._received,
            "new": not self._has_joined,
        }
        transport.send(frames.with_json(frames.HELLO, content))
        try:
            frame = transport.receive(HANDSHAKE_S)
            kind = frames.kind_of(frame)
            if kind == frames.REFUSED:
                raise refused_error(frame[1:])
            received = frames.json_of(frame[1:]).get("received") if kind == frames.WELCOME else None
            if type(received) is not int:
                raise ProtocolError("no count of frames")
            with self._lock:
                if self._error is None:
                    self._attach(transport, received)
            if self._error is not None:
                # Closed in the meantime, which the server cannot know.
                transport.send(frames.with_json(frames.BYE, {}))
                raise closed_error(self._error)
        except ProtocolError as error:
            # No lost connection: the next one would be the same.
            message = f"the instance sent an invalid response to the greeting: {error}"
            raise TunnelRefusedError("InvalidResponse", message) from error
        self._has_joined = True

    def _read_and_rejoin(self) -> None:
        try:
            while True:
                transport = self._transport
                if transport is not None:
                    try:
                        self._read(transport)
                    except Exception as error:
                        if not _can_pass(error) and not self._is_closing:
                            raise
                    finally:
                        self._detach(transport)
                if self._error is not None or self._is_closing:
                    return
                self._dial_again()
        except Exception as error:
            self.end(self.explain(error))
        finally:
            self._dial = None

    def _dial_again(self) -> None:
        """Dials until the server has accepted a connection, for as long as the server waits."""
        assert self._dial is not None  # noqa: S101 - of the client's end only
        pause_s = _MIN_PAUSE_S
        while True:
            transport, is_last = None, self._is_leaving
            try:
                transport = self._dial()
                self._greet(transport)
            except BaseException as error:
                if transport is not None:
                    transport.close()
                is_last = is_last or time.monotonic() - self._detached_at + pause_s > self.rejoin_s
                if self._error is not None or self._is_closing or not _can_pass(error) or is_last:
                    raise
                with self._lock:
                    self._space.wait_for(lambda: self._error is not None or self._is_leaving, pause_s)
                pause_s = min(2 * pause_s, _MAX_PAUSE_S)
            else:
                return


def closed_error(error: Exception) -> TunnelClosedError:
    """Returns the error that users of an ended link get."""
    if isinstance(error, TunnelClosedError):
        return TunnelClosedError(error.code, error.message)
    code = getattr(error, "code", "") if isinstance(error, PaiError) else ""
    failure = TunnelClosedError(str(code) or "ConnectionLost", f"the tunnel has ended: {error}")
    failure.__cause__ = error
    return failure


def refused_error(body: bytes | memoryview) -> TunnelRefusedError:
    """Returns the error in the body of a frame."""
    content = frames.json_of(body)
    return TunnelRefusedError(str(content.get("code", "Refused")), str(content.get("message", "")))


def _ignore(_: object) -> None:
    """Does nothing."""


def _same(error: Exception) -> Exception:
    return error


def _can_pass(error: BaseException) -> bool:
    """Returns whether another connection may succeed."""
    return isinstance(error, OSError) or (isinstance(error, PaiError) and error.may_pass)
