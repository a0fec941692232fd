"""Tunnels by ordinary requests, for clients behind a proxy that refuses WebSockets.

A client opens a session with the first of its numbered messages, sends further ones, and receives others by long
polls. A message is some frames, each behind its length in 4 bytes. The service retains one message of each
direction: a request whose response was lost can be repeated with its number. A session that is lost all the same,
for example with a restart of the service, is replaced by another one: both ends of the tunnel resume there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import ExitStack, suppress

from pai_sdk._service.identity.principal import Principal
from pai_sdk._service.services.jobs.tunnels import MAX_FRAME_BYTES, FrameStream, Tunnels
from pai_sdk._service.wire_errors import WireError, invalid_parameter

MAX_MESSAGE_BYTES = 256 << 10
"""The largest message, in both directions; proxies refuse bodies of a mebibyte."""

POLL_S = 20.0
"""How long a poll waits for a frame: proxies close a connection without traffic after 60 seconds."""

_LENGTH_BYTES = 4
_FULL_BYTES = MAX_MESSAGE_BYTES - MAX_FRAME_BYTES - _LENGTH_BYTES  # more than that has no room for any other frame
_WRITE_S = 30.0  # for the frames of one message
_UNKNOWN = "There is no such session of a tunnel; open another one with a message of number 0."


class TunnelSession:
    """One tunnel, between the requests of its client and a running instance. Used in the event loop only."""

    def __init__(
        self,
        job_id: str,
        principal: Principal,
        stream: FrameStream,
        tunnels: Tunnels,
        refusal: Callable[[Principal], WireError | None],
    ) -> None:
        self.user = principal.user
        self.job_id = job_id
        self._principal = principal
        self._stream = stream
        self._tunnels = tunnels
        self._refusal_of = refusal
        self._sending = asyncio.Lock()
        self._next_sent = 0
        self._polling = asyncio.Lock()
        self._next_polled = 0
        self._last_message = b""
        self._frames = bytearray()  # for the next message to the client
        self._changed = asyncio.Condition()
        self._refusal: WireError | None = None  # of requests after the end of the session
        self.is_closed = False  # by its client
        self._requests, self._used_at = 0, asyncio.get_running_loop().time()

    async def run(self) -> None:
        """Receives frames from the instance until the tunnel ends, or its client sends no more requests."""
        work = self._receive(), self._watch_rights(), self._watch_job(), self._watch_client()
        tasks = [*map(asyncio.create_task, work)]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            self._refusal = self._refusal or done.pop().result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._stream.close()
            async with self._changed:
                self._changed.notify_all()

    async def send(self, number: int, message: bytes) -> None:
        """Sends the frames of a message to the instance, once for each number."""
        frames = _frames_of(message)
        with self._in_use():
            async with self._sending:
                if number == self._next_sent - 1:
                    return  # the response to the first request was lost
                if number != self._next_sent:
                    raise _out_of_order(number, self._next_sent)
                self._check_open()
                self._next_sent += 1
                try:
                    for frame in frames:
                        await self._stream.write(frame, _WRITE_S)
                except OSError as error:
                    self._refusal = await self._ending()
                    raise self._refusal from error

    async def poll(self, number: int) -> bytes:
        """Waits for frames of the instance; returns a message with them, or an empty one after some seconds.

        A number confirms all messages before it.
        """
        with self._in_use():
            async with self._polling:
                if number == self._next_polled - 1:
                    return self._last_message
                if number != self._next_polled:
                    raise _out_of_order(number, self._next_polled)
                async with self._changed:
                    waiting = self._changed.wait_for(lambda: self._frames or self._refusal)
                    with suppress(TimeoutError, asyncio.TimeoutError):
                        await asyncio.wait_for(waiting, POLL_S)
                    if not self._frames:
                        self._check_open()
                    self._last_message, self._frames = bytes(self._frames), bytearray()
                    self._next_polled += 1
                    self._changed.notify_all()
                return self._last_message

    def end(self) -> None:
        """Ends the session for its client."""
        self.is_closed = True
        self._refusal = self._refusal or WireError(404, "TunnelSessionNotFound", _UNKNOWN)
        self._stream.close()

    def _check_open(self) -> None:
        if self._refusal is not None:
            raise self._refusal

    def _in_use(self) -> ExitStack:
        """Counts a request during the block."""
        stack = ExitStack()
        self._requests += 1

        def finish() -> None:
            self._requests -= 1
            self._used_at = asyncio.get_running_loop().time()

        stack.callback(finish)
        return stack

    async def _receive(self) -> WireError:
        while (frame := await self._stream.read()) is not None:
            async with self._changed:
                await self._changed.wait_for(lambda: len(self._frames) <= _FULL_BYTES)
                self._frames += len(frame).to_bytes(_LENGTH_BYTES, "big") + frame
                self._changed.notify_all()
        return await self._ending()

    async def _ending(self) -> WireError:
        """Returns the refusal of later requests, after the instance has closed the connection."""
        has_ended = await self._tunnels.has_ended(self.job_id)
        if self._tunnels.is_stopping:
            return _stopping()
        if has_ended:
            return WireError(409, "JobNotRunning", f"Job {self.job_id} has ended.")
        message = "The instance cannot be reached at the moment; open another session."
        return WireError(503, "InstanceNotReady", message, retry_after_s=1)

    async def _watch_rights(self) -> WireError:
        while (refusal := self._refusal_of(self._principal)) is None:
            await asyncio.sleep(self._tunnels.limits.check_rights_s)
        return refusal

    async def _watch_job(self) -> WireError:
        await self._tunnels.until_end(self.job_id)
        if self._tunnels.is_stopping:
            return _stopping()
        return WireError(409, "JobNotRunning", f"Job {self.job_id} has ended.")

    async def _watch_client(self) -> WireError:
        clock, limit_s = asyncio.get_running_loop().time, self._tunnels.limits.idle_session_s
        while self._requests or clock() - self._used_at < limit_s:
            await asyncio.sleep(min(1.0, limit_s / 4))
        return WireError(404, "TunnelSessionNotFound", _UNKNOWN)


class TunnelSessions:
    """The sessions of a service, by job, instance and id. Used in the event loop only."""

    def __init__(self, tunnels: Tunnels, refusal: Callable[[Principal], WireError | None]) -> None:
        self._tunnels = tunnels
        self._refusal_of = refusal
        self._sessions: dict[tuple[str, str, str], TunnelSession] = {}
        self._tasks: dict[tuple[str, str, str], asyncio.Task[None]] = {}

    async def open(self, job_id: str, instance: str, session_id: str, principal: Principal) -> bool:
        """Opens a session; returns False if it is open already."""
        key = job_id, instance, session_id
        if key in self._sessions:
            self.get(*key, principal)
            return False
        if len(self._sessions) >= 2 * self._tunnels.limits.total:  # most of them have ended, and wait for a poll
            raise WireError(503, "ServiceBusy", "This service has too many sessions of tunnels.", retry_after_s=1)
        with ExitStack() as stack:
            stack.enter_context(self._tunnels.slot(principal.user))
            stream = await self._tunnels.connect(job_id, instance)
            if key in self._sessions:  # the same request was sent twice
                stream.close()
                self.get(*key, principal)
                return False
            session = TunnelSession(job_id, principal, stream, self._tunnels, self._refusal_of)
            self._sessions[key] = session
            self._tasks[key] = asyncio.create_task(self._run(key, session, stack.pop_all()))
        return True

    def get(self, job_id: str, instance: str, session_id: str, principal: Principal) -> TunnelSession:
        """Returns a session of a user."""
        session = self._sessions.get((job_id, instance, session_id))
        if session is None or session.user != principal.user:
            raise WireError(404, "TunnelSessionNotFound", _UNKNOWN)
        return session

    async def _run(self, key: tuple[str, str, str], session: TunnelSession, slot: ExitStack) -> None:
        try:
            with slot:
                await session.run()
            # Its client learns from the next request why it has ended, and receives the last frames.
            if not session.is_closed:
                await asyncio.sleep(self._tunnels.limits.idle_session_s)
        finally:
            del self._sessions[key], self._tasks[key]


def _frames_of(message: bytes) -> list[bytes]:
    """Returns the frames of a message; raises `WireError` if one is incomplete or too large."""
    frames, position = [], 0
    while position < len(message):
        start = position + _LENGTH_BYTES
        size_bytes = int.from_bytes(message[position:start], "big")
        position = start + size_bytes
        if size_bytes > MAX_FRAME_BYTES or position > len(message):
            raise invalid_parameter("The body is not a list of frames, each behind its length in 4 bytes.")
        frames.append(message[start:position])
    return frames


def _out_of_order(number: int, expected: int) -> WireError:
    message = f"Number: {number} does not follow; the next message has the number {expected}."
    return WireError(409, "TunnelOutOfOrder", message)


def _stopping() -> WireError:
    return WireError(503, "ServiceUnavailable", "The service stops; open another session.", retry_after_s=1)
