"""The executor's folder of a job, `root/state`: any process can read the state of the job from it.

    job.json      what is to be done; 0600, since the job's environment may hold secrets
    state.json    the state; replaced whole at each change
    stop          the stop request; the first one stays
    spare         reserved space for the last state, used when the disk is full
    lock          locked (flock) while any process of the job may be alive; for containers, while a process starts
                  the job, writes its end or removes them
    control       a pipe that wakes the supervisor
    supervisor.log

Standard library only.
"""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from pai_sdk._core.files import is_locked, replace_file, take_lock
from pai_sdk._core.reasons import REASON_SUPERVISOR_LOST, supervisor_lost_message
from pai_sdk._host.agent.protocol import DISK_IS_FULL, ExecutionRecord, ExecutionState

_STATE = "state.json"
_SPARE_BYTES = 64 * 1024


class Journal(ExecutionRecord):
    """The state files of one job."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        # Locked while a process works on the job.
        self.lock = path / "lock"
        # Of the supervisor.
        self.log = path / "supervisor.log"
        self._job = path / "job.json"
        self._state = path / _STATE
        self._spare = path / "spare"
        self._control = path / "control"

    # ---- the job and its state ----

    def write_job(self, job: dict[str, Any]) -> None:
        """Writes `job.json`."""
        replace_file(self._job, json.dumps(job))

    def read_job(self) -> dict[str, Any] | None:
        """Returns the description of the job; None if it was withdrawn."""
        try:
            job: dict[str, Any] = json.loads(self._job.read_bytes())
        except FileNotFoundError:
            return None
        return job

    def forget_job(self) -> None:
        """Removes `job.json`, because nothing was started or all of it has finished."""
        self._job.unlink(missing_ok=True)

    def withdraw_job(self, *, patience_s: float) -> bool:
        """Removes `job.json` of a job that has not started; returns False if a supervisor still has the lock."""
        if not self.path.exists():
            return True
        with self.locked(patience_s=patience_s) as lock:
            if lock is None:
                return self._state.exists()
            if not self._state.exists():
                # A supervisor that starts late has nothing to do then.
                self.forget_job()
            return True

    def reserve_space(self) -> None:
        """Reserves space for `write_state`, so that the last state can be written on a full disk."""
        self._spare.write_bytes(bytes(_SPARE_BYTES))

    def write_state(self, state: ExecutionState) -> None:
        """Replaces the state; readers see the old one or the new one."""
        try:
            replace_file(self._state, state.to_json())
        except OSError as error:
            if error.errno not in DISK_IS_FULL or not self._spare.exists():
                raise
            # Frees the reserved 64 KiB, which the state then uses.
            self._spare.unlink()
            replace_file(self._state, state.to_json())

    def read_state(self) -> ExecutionState | None:
        """Returns the last written state; None for a job that was never started."""
        try:
            return ExecutionState.parse(self._read(_STATE)[0])
        except FileNotFoundError:
            return None
        except ValueError:
            # Truncated by a crash of the machine.
            return ExecutionState("preparing")

    def state(self) -> ExecutionState | None:
        """Returns the current state; a job without a supervisor and without an end counts as lost."""
        state = self.read_state()
        if state is None or state.phase == "ended" or self.is_locked():
            return state
        # Read again: the supervisor may have written the end and released the lock between the two looks.
        state = self.read_state()
        if state is None or state.phase == "ended":
            return state
        return lost(state, ended_at=self._state.stat().st_mtime)

    # ---- the lock ----

    @contextmanager
    def locked(self, *, patience_s: float = 5.0) -> Iterator[int | None]:
        """Holds the lock, also in forked children until the last of them exits; yields None if it is in use."""
        # Tried for a while, because `is_locked` of another process holds it for a moment.
        lock = os.open(self.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            yield lock if self._acquire(lock, patience_s) else None
        finally:
            # Closed without an unlock, which would release the lock of the forked children too.
            os.close(lock)

    def is_locked(self) -> bool:
        """Returns True if a supervisor, or the guardian that cleans up after it, is alive."""
        return is_locked(self.lock)

    def _acquire(self, lock: int, patience_s: float) -> bool:
        deadline = time.monotonic() + patience_s
        # Polled: a blocking flock would wait for a supervisor that runs for days.
        while not take_lock(lock, waits=False):
            if self._state.exists() or time.monotonic() > deadline:
                return False
            time.sleep(0.005)
        return True

    # ---- the stop request ----

    def request_stop(self, reason_code: str, reason_message: str) -> None:
        """Requests the end of the job, and wakes the supervisor."""
        # The file comes before the wake-up: the supervisor reads it as soon as it is woken.
        super().request_stop(reason_code, reason_message)
        try:
            control = os.open(self._control, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            # No supervisor reads yet, or any more.
            if error.errno in (errno.ENOENT, errno.ENXIO):
                return
            raise
        try:
            # The pipe is full, so the supervisor is about to wake.
            with suppress(BlockingIOError):
                os.write(control, b"s")
        finally:
            os.close(control)

    def open_control(self) -> int:
        """Returns the end of a pipe that becomes readable with a stop request."""
        with suppress(FileExistsError):
            os.mkfifo(self._control, 0o600)
        # Opened for writing too: otherwise the pipe would read as closed after the first writer has closed it.
        return os.open(self._control, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)


def lost(state: ExecutionState, *, ended_at: float) -> ExecutionState:
    """Returns the final state of a job whose supervisor has died."""
    return replace(
        state,
        phase="ended",
        ended_at=ended_at,
        succeeded=False,
        instances=tuple(
            replace(instance, status="Failed") if instance.status in ("Pending", "Running") else instance
            for instance in state.instances
        ),
        reason_code=REASON_SUPERVISOR_LOST,
        reason_message=supervisor_lost_message(),
    )
