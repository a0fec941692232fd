"""Tunnels into the instances of running jobs, as far as the service knows them: connections that transport frames.

The service relays frames and does not read them. Both ends of a tunnel number its content and resume after a lost
connection, so nothing is lost when the service restarts.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property, partial
from pathlib import Path
from typing import Protocol

import anyio
import anyio.to_thread

from pai_sdk._host.execution.base import ExecutionState
from pai_sdk._host.execution.node_connections import NOT_REACHABLE
from pai_sdk._service.identity.principal import OPERATOR
from pai_sdk._service.services.jobs.job_table import Jobs
from pai_sdk._service.services.jobs.log_reader import instance_names
from pai_sdk._service.settings import TunnelLimits
from pai_sdk._service.state.models import Job
from pai_sdk._service.wire_errors import WireError
from pai_sdk._wire.pai.status import JobStatus
from pai_sdk.errors import PaiError, TunnelRefusedError

logger = logging.getLogger(__name__)

MAX_FRAME_BYTES = 128 << 10
"""The largest frame that is relayed."""

FIRST_INSTANCE = "first"
"""The name of the instance with rank 0, of any job."""

_LENGTH_BYTES = 4
_READ_AHEAD_BYTES = 2 * MAX_FRAME_BYTES  # twice that is in memory at most
_CONNECTING_THREADS, _CHECKING_THREADS = 16, 4
_FLUSH_S = 5.0  # how long the last frames to an instance may take
_END_POLL_S = 0.1
# Of refusals that no later attempt changes; the second one is that of a job which an earlier release has started.
_PERMANENT = (NOT_REACHABLE, "NotSupported")
_NOT_SUPPORTED = "The executor of this service offers no tunnels into running jobs."
_NOT_READY = "Instance {} of job {} cannot be reached yet: {}. Try again."
_RETRY_AFTER_S = 1


class TunnelExecutor(Protocol):
    """An executor, as far as tunnels use it."""

    def connect_tunnel(self, root: Path, instance: str) -> socket.socket:
        """Connects to a running instance of a job; raises `PaiError` or `OSError` if it cannot be reached."""
        ...

    def state(self, root: Path) -> ExecutionState:
        """Returns the current state of a job."""
        ...


class FrameStream:
    """Frames over a connected socket, each behind its length in 4 bytes. Used in the event loop only."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def of(cls, connection: socket.socket) -> FrameStream:
        """Returns the stream of a socket, which it closes in the end."""
        try:
            return cls(*await asyncio.open_connection(sock=connection, limit=_READ_AHEAD_BYTES))
        except BaseException:
            connection.close()
            raise

    async def read(self) -> bytes | None:
        """Reads a frame; None at the end, and after a frame that is too large or incomplete."""
        try:
            size_bytes = int.from_bytes(await self._reader.readexactly(_LENGTH_BYTES), "big")
            if size_bytes > MAX_FRAME_BYTES:
                logger.warning("a job has sent a frame of %d bytes; its tunnel is closed", size_bytes)
                return None
            return await self._reader.readexactly(size_bytes)
        except (asyncio.IncompleteReadError, OSError):
            return None

    async def write(self, frame: bytes, timeout_s: float) -> None:
        """Writes a frame.

        Raises:
            OSError: the connection was lost, or the job has read nothing for `timeout_s`.
        """
        self._writer.writelines((len(frame).to_bytes(_LENGTH_BYTES, "big"), frame))
        if not self._writer.transport.get_write_buffer_size():
            # Does not wait, and costs no timer.
            await self._writer.drain()
            return
        try:
            await asyncio.wait_for(self._writer.drain(), timeout_s)
        except (TimeoutError, asyncio.TimeoutError) as error:
            raise OSError("the job does not read") from error

    def close(self) -> None:
        """Closes the connection after the written frames were sent, or after some seconds."""
        with suppress(RuntimeError, OSError):
            self._writer.close()
        asyncio.get_running_loop().call_later(_FLUSH_S, self._writer.transport.abort)


class Tunnels:
    """The open tunnels of a service. Its coroutines run in the event loop.

    Args:
        jobs: the jobs of the service.
        executor: which connects to instances; None if it offers no tunnels.
        job_dir: returns the folder of a job.
        limits: of the tunnels.
    """

    def __init__(
        self,
        jobs: Jobs,
        executor: TunnelExecutor | None,
        job_dir: Callable[[str], Path],
        limits: TunnelLimits,
    ) -> None:
        self.limits = limits
        self._jobs = jobs
        self._executor = executor
        self._job_dir = job_dir
        self._open_of_user: Counter[str] = Counter()

    # Limiters can only be created inside the running event loop. Two, because connecting may take seconds.
    @cached_property
    def _connecting(self) -> anyio.CapacityLimiter:
        return anyio.CapacityLimiter(_CONNECTING_THREADS)

    @cached_property
    def _checking(self) -> anyio.CapacityLimiter:
        return anyio.CapacityLimiter(_CHECKING_THREADS)

    @property
    def count(self) -> int:
        """Returns the number of open tunnels."""
        # A copy, since a scrape of the metrics is another thread.
        return sum([*self._open_of_user.values()])

    @contextmanager
    def slot(self, user: str) -> Iterator[None]:
        """Counts a tunnel of a user during the block; refuses one too many."""
        if self.count >= self.limits.total:
            message = f"This service has {self.limits.total} open tunnels, which is the maximum; try again later."
            raise WireError(503, "ServiceBusy", message, retry_after_s=_RETRY_AFTER_S)
        # The key of the service stands for several people, and for an embedded service.
        if user != OPERATOR and self._open_of_user[user] >= self.limits.of_user:
            message = f"You have {self.limits.of_user} open tunnels, which is the maximum; close one of them."
            raise WireError(429, "TooManyTunnels", message, retry_after_s=_RETRY_AFTER_S)
        self._open_of_user[user] += 1
        try:
            yield
        finally:
            self._open_of_user[user] -= 1
            if not self._open_of_user[user]:
                del self._open_of_user[user]

    async def connect(self, job_id: str, instance: str) -> FrameStream:
        """Connects to a running instance of a job.

        Raises:
            WireError: 404 for an unknown job or instance, 409 `JobNotRunning`, 503 `InstanceNotReady`.
        """
        if self._executor is None:
            raise WireError(400, "NotSupported", _NOT_SUPPORTED)
        run = anyio.to_thread.run_sync
        name = await run(self._running_instance, job_id, instance, limiter=self._checking)
        attempt = _Attempt(partial(self._executor.connect_tunnel, self._job_dir(job_id), name))
        try:
            with anyio.fail_after(self.limits.connect_s):
                connection = await run(attempt.run, limiter=self._connecting, abandon_on_cancel=True)
        except (TimeoutError, OSError, PaiError) as error:
            attempt.abandon()
            if isinstance(error, TunnelRefusedError) and error.code in _PERMANENT:
                raise WireError(400, "NotSupported", f"Instance {name} cannot be entered: {error}.") from error
            reason = "it does not respond" if isinstance(error, TimeoutError) else str(error).rstrip(".")
            message = _NOT_READY.format(name, job_id, reason)
            raise WireError(503, "InstanceNotReady", message, retry_after_s=_RETRY_AFTER_S) from error
        except BaseException:
            attempt.abandon()
            raise
        return await FrameStream.of(connection)

    async def until_end(self, job_id: str) -> None:
        """Returns once a job has finished, was deleted, or the service stops."""
        with self._jobs.changes.of(job_id) as news:
            while not self._jobs.changes.closed and not await self._in_thread(self._has_finished, job_id):
                await news.wait(self.limits.check_job_s)

    async def has_ended(self, job_id: str) -> bool:
        """Returns whether a job has ended, after its end of a tunnel; waits a moment for its last state."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + self.limits.last_state_s
        while True:
            if await self._in_thread(self._has_exited, job_id):
                return True
            if self.is_stopping or clock() > deadline:
                return False
            await asyncio.sleep(_END_POLL_S)

    @property
    def is_stopping(self) -> bool:
        """Returns whether the service stops."""
        return self._jobs.changes.closed

    async def _in_thread(self, function: Callable[[str], bool], job_id: str) -> bool:
        return await anyio.to_thread.run_sync(function, job_id, limiter=self._checking)

    def _has_finished(self, job_id: str) -> bool:
        try:
            return JobStatus(self._jobs.get(job_id).status).is_terminal
        except WireError:  # it was deleted
            return True

    def _has_exited(self, job_id: str) -> bool:
        """Returns whether a job runs no more; its outputs may be uploaded after that."""
        if self._has_finished(job_id) or self._executor is None:
            return True
        return self._executor.state(self._job_dir(job_id)).phase == "ended"

    def _running_instance(self, job_id: str, instance: str) -> str:
        """Returns the complete name of a running instance."""
        job = self._jobs.get(job_id)
        name = _instance_name(job, instance)
        status = JobStatus(job.status)
        if status != JobStatus.RUNNING:
            reason = "has ended" if status.is_terminal else f"is not running yet, it is {status}"
            raise WireError(409, "JobNotRunning", f"Job {job_id} {reason}.")
        if self._has_exited(job_id):
            raise WireError(409, "JobNotRunning", f"Job {job_id} has ended; its outputs are being saved.")
        for state in job.instances:
            if state["name"] == name and state["status"] not in ("Pending", "Running"):
                raise WireError(409, "JobNotRunning", f"Instance {name} has ended: it is {state['status']}.")
        return name


class _Attempt:
    """One call of `connect_tunnel` in a thread, whose result is closed if nobody waits for it any more."""

    def __init__(self, connect: Callable[[], socket.socket]) -> None:
        self._connect = connect
        self._lock = threading.Lock()
        self._is_abandoned = False
        self._connection: socket.socket | None = None

    def run(self) -> socket.socket:
        """Connects; called in a thread."""
        connection = self._connect()
        with self._lock:
            if self._is_abandoned:
                connection.close()
            self._connection = connection
        return connection

    def abandon(self) -> None:
        """Closes the connection, now or once it exists."""
        with self._lock:
            self._is_abandoned = True
            if self._connection is not None:
                self._connection.close()


def _instance_name(job: Job, instance: str) -> str:
    """Returns the complete name of an instance; `instance` may lack the id of the job."""
    names = instance_names(job)
    if instance in ("", FIRST_INSTANCE):
        return names[0]
    for name in (instance, f"{job.id}-{instance}"):
        if name in names:
            return name
    message = f"Job {job.id} has no instance {instance[:100]!r}; it has {', '.join(names[:5])}."
    raise WireError(404, "TRAINING_JOB_INSTANCE_NOT_FOUND", message)
