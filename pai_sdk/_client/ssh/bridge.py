"""Joins one SSH channel, which lives in the event loop, with one stream of a tunnel, which blocks in threads.

Each direction has a thread and a bounded queue. A queue that is full stops its source: the thread that reads the
stream waits, and the channel is paused, so that OpenSSH stops sending.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, Protocol, TypeAlias, TypeVar

import asyncssh

from pai_sdk._host.agent.tunnel.streams import Stream

_logger = logging.getLogger(__name__)

_MAX_OUTPUT_BYTES = 256 * 1024  # between the thread and the event loop; the channel has a buffer of its own
_MAX_INPUT_BYTES = 512 * 1024
_RESUME_INPUT_BYTES = 128 * 1024
_CHUNK_BYTES = 64 * 1024  # of one write to the stream
_CLOSE_CHECK_S = 1.0
_MAX_DRAIN_S = 60.0

Channel: TypeAlias = "asyncssh.SSHServerChannel[bytes] | asyncssh.SSHTCPChannel[bytes]"
_Result = TypeVar("_Result")


class StreamTunnel(Protocol):
    """A tunnel into an instance: `Tunnel`, or one with a connection to a service."""

    def open(self, kind: str, **parameters: Any) -> Stream:
        """Opens a stream."""
        ...

    def accept(self, timeout_s: float | None) -> Stream:
        """Returns the next stream that the instance opens; raises TimeoutError without one."""
        ...

    def close(self) -> None:
        """Ends the tunnel."""
        ...


def run_in_thread(function: Callable[[], _Result], name: str) -> Future[_Result]:
    """Runs a function in a daemon thread of its own: no pool whose workers could all be blocked."""
    future: Future[_Result] = Future()

    def run() -> None:
        if not future.set_running_or_notify_cancel():
            return
        try:
            future.set_result(function())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return future


class ChannelOutput:
    """Runs actions on a channel in the event loop, in the order in which a thread adds them.

    `add` may be called by threads, all else by the event loop. The lock guards all fields; no action runs while it
    is locked.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._changed = threading.Condition()
        self._actions: deque[Callable[[], object]] = deque()
        self._num_bytes = 0
        self._is_scheduled = False
        self._is_paused = False
        self._is_closed = False

    def add(self, action: Callable[[], object], num_bytes: int = 0) -> bool:
        """Adds an action; waits while the client does not read. Returns False if the channel is closed."""
        with self._changed:
            while (self._is_paused or self._num_bytes >= _MAX_OUTPUT_BYTES) and not self._is_closed:
                self._changed.wait()
            if self._is_closed:
                return False
            self._actions.append(action)
            self._num_bytes += num_bytes
            if self._is_scheduled:
                return True
            self._is_scheduled = True
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._run_actions)
        return True

    def _run_actions(self) -> None:
        with self._changed:
            actions = [*self._actions]
            self._actions.clear()
            self._num_bytes = 0
            self._is_scheduled = False
            self._changed.notify_all()
        for action in actions:
            try:
                action()
            except OSError:  # the client has closed the channel
                self.close()
            except Exception:  # one that leaves a callback would close the connection, with all its channels
                _logger.debug("an SSH channel", exc_info=True)
                self.close()

    def set_paused(self, is_paused: bool) -> None:
        """Stops or resumes the thread that adds actions."""
        with self._changed:
            self._is_paused = is_paused
            self._changed.notify_all()

    def close(self) -> None:
        """Drops what is queued and releases the thread."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()


class ChannelInput:
    """Queues what a channel receives for the thread that writes it to the stream."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._channel: Channel | None = None
        self._changed = threading.Condition()
        self._chunks: deque[bytes] = deque()
        self._num_bytes = 0
        self._is_paused = False
        self._is_finished = False
        self._is_closed = False

    def attach(self, channel: Channel) -> None:
        """Sets the channel to pause."""
        self._channel = channel

    def feed(self, data: bytes) -> None:
        """Queues data; pauses the channel when much is queued."""
        with self._changed:
            self._chunks.append(data)
            self._num_bytes += len(data)
            must_pause = self._num_bytes > _MAX_INPUT_BYTES and not self._is_paused
            self._is_paused = self._is_paused or must_pause
            self._changed.notify()
        if must_pause and self._channel is not None:
            self._channel.pause_reading()

    def finish(self) -> None:
        """Marks the end of the input."""
        with self._changed:
            self._is_finished = True
            self._changed.notify()

    def close(self) -> None:
        """Drops what is queued and releases the thread."""
        with self._changed:
            self._is_closed = True
            self._chunks.clear()
            self._changed.notify()

    @property
    def is_paused(self) -> bool:
        """Returns whether the channel waits for the stream."""
        with self._changed:
            return self._is_paused

    def take(self) -> bytes | None:
        """Waits for data and returns up to a chunk; None at the end or after `close`."""
        with self._changed:
            while not self._chunks and not self._is_finished and not self._is_closed:
                self._changed.wait()
            if not self._chunks:
                return None
            data = self._chunks.popleft()
            if self._chunks and len(data) + len(self._chunks[0]) <= _CHUNK_BYTES:
                joined = [data]
                size = len(data)
                while self._chunks and size + len(self._chunks[0]) <= _CHUNK_BYTES:
                    size += len(self._chunks[0])
                    joined.append(self._chunks.popleft())
                data = b"".join(joined)
            self._num_bytes -= len(data)
            can_resume = self._is_paused and self._num_bytes < _RESUME_INPUT_BYTES
            if can_resume:
                self._is_paused = False
        if can_resume:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._resume)
        return data

    def _resume(self) -> None:
        if self._channel is not None and not self.is_paused:
            self._channel.resume_reading()


class ChannelBridge:
    """Moves bytes between a channel and a stream until both directions have ended or one side is closed.

    The event loop alone sets `_is_closing`; the thread of the output alone sets `_stream`. Each writes its field
    before it reads the other's, so that a stream that is opened while the channel closes is closed by one of them.
    """

    def __init__(self, channel: Channel, name: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._channel = channel
        self._name = name
        self.output = ChannelOutput(self._loop)
        self.input = ChannelInput(self._loop)
        self.input.attach(channel)
        self._stream: Stream | None = None
        self._is_closing = False
        self._loop.call_later(_CLOSE_CHECK_S, self._check_closed)

    def start(self, run: Callable[[], None]) -> None:
        """Starts the thread that opens and reads the stream."""
        threading.Thread(target=run, name=f"{self._name} output", daemon=True).start()

    def use(self, stream: Stream) -> None:
        """Writes the input to a stream from now on; called by the thread of the output."""
        self._stream = stream
        if self._is_closing:
            stream.close()
            return
        threading.Thread(target=self._write_input, args=(stream,), name=f"{self._name} input", daemon=True).start()

    def write(self, data: bytes | memoryview, datatype: int | None = None) -> bool:
        """Sends data to the client, from a thread; returns False if the channel is closed."""
        # The channel copies a memoryview as it copies bytes.
        return self.output.add(partial(self._channel.write, data, datatype), len(data))

    def close(self, *, drain: bool = False) -> None:
        """Releases both threads and closes the stream; called by the event loop when the channel is closed.

        Args:
            drain: write what the client has sent to the stream before it is closed.
        """
        if self._is_closing:
            return
        self._is_closing = True
        self.output.close()
        self.input.finish()
        if drain and self._stream is not None:
            self._loop.call_later(_MAX_DRAIN_S, self._close_stream)
        else:
            self._close_stream()

    def _close_stream(self) -> None:
        self.input.close()
        if self._stream is not None:
            run_in_thread(self._stream.close, f"{self._name} close")

    def _write_input(self, stream: Stream) -> None:
        try:
            while (data := self.input.take()) is not None:
                stream.write(data)
            stream.end()
        except (OSError, ValueError):  # the program has closed its input, or has ended
            self.input.close()
        except Exception:
            _logger.debug("the input of an SSH channel", exc_info=True)
            self.input.close()
        if self._is_closing:
            stream.close()

    def _check_closed(self) -> None:
        # asyncssh reports that the client has closed a channel only after its input was delivered. The end of a
        # program that does not read its input must not wait for that, so the input of a closed channel is dropped.
        if self._is_closing:
            return
        if self._channel.is_closing() and self.input.is_paused:
            self.input.close()
            self._channel.resume_reading()
        self._loop.call_later(_CLOSE_CHECK_S, self._check_closed)


class BridgedSession:
    """What sessions and forwarded connections have in common. asyncssh calls it in the event loop."""

    _bridge: ChannelBridge  # set when asyncssh has opened the channel, before any other call

    def data_received(self, data: bytes, datatype: int | None) -> None:
        """Queues data for the job."""
        self._bridge.input.feed(data)

    def eof_received(self) -> bool:
        """Ends the direction to the job; the other one continues."""
        self._bridge.input.finish()
        return True

    def pause_writing(self) -> None:
        """Stops reading from the job while the client does not read."""
        self._bridge.output.set_paused(True)

    def resume_writing(self) -> None:
        """Reads from the job again."""
        self._bridge.output.set_paused(False)
