"""What is written down of a running job, so that any process can tell how it stands: the files in `root/state`.

    job.json      what the supervisor is to do; 0600, since the job's environment may hold secrets
    state.json    what has become of it; replaced as a whole at each change
    stop.json     that, and why, it should stop; the first wish stays
    spare         reserved space for the last state, used when the disk is full
    lock          locked (flock) for as long as anything of the job may be alive
    control       a pipe that wakes the supervisor up
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
from pathlib import Path
from typing import Any

from pai_sdk.agent.reasons import REASON_SUPERVISOR_LOST, supervisor_lost_message
from pai_sdk.base.files import is_locked, publish_once, replace_file, take_lock

__all__ = ["DISK_IS_FULL", "Journal", "lost"]

DISK_IS_FULL = (errno.ENOSPC, errno.EDQUOT)
"""What the system says then."""

_SPARE_BYTES = 64 * 1024


class Journal:
    """The state files of one job.

    Example:
        >>> Journal(Path("/srv/jobs/train1/state")).read_state() is None
        True
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "supervisor.log"
        self._job = folder / "job.json"
        self._state = folder / "state.json"
        self._stop = folder / "stop.json"
        self._spare = folder / "spare"
        self._lock = folder / "lock"
        self._control = folder / "control"

    # ---- the job and its state ----

    def write_job(self, job: dict[str, Any]) -> None:
        """Write what the supervisor is to do."""
        replace_file(self._job, json.dumps(job))

    def read_job(self) -> dict[str, Any] | None:
        """What the supervisor is to do; None when that was withdrawn."""
        try:
            job: dict[str, Any] = json.loads(self._job.read_bytes())
        except FileNotFoundError:
            return None
        return job

    def forget_job(self) -> None:
        """Take back what `write_job` wrote: nothing was started, or all of it is gone."""
        self._job.unlink(missing_ok=True)

    def withdraw_job(self, *, patience_s: float) -> bool:
        """Let a supervisor that is just coming up find nothing to do; one that has begun is left alone.

        Returns:
            Whether that is settled: False when one holds the lock and still has not begun.
        """
        if not self.folder.exists():
            return True
        with self.locked(patience_s=patience_s) as lock:
            if lock is None:
                return self._state.exists()
            if not self._state.exists():
                self._job.unlink(missing_ok=True)
            return True

    def keep_room(self) -> None:
        """Reserve some space, so that a full disk cannot keep the end from being written."""
        self._spare.write_bytes(bytes(_SPARE_BYTES))

    def write_state(self, state: dict[str, Any]) -> None:
        """Replace the state as a whole: a reader sees the old one or the new one."""
        try:
            replace_file(self._state, json.dumps(state))
        except OSError as error:
            if error.errno not in DISK_IS_FULL or not self._spare.exists():
                raise
            self._spare.unlink()
            replace_file(self._state, json.dumps(state))

    def read_state(self) -> dict[str, Any] | None:
        """The last state written, or None for a job that was never started."""
        try:
            state: dict[str, Any] = json.loads(self._state.read_bytes())
        except FileNotFoundError:
            return None
        except ValueError:  # the machine went down in the middle of it
            return {"phase": "preparing", "instances": []}
        return state

    def current_state(self) -> dict[str, Any] | None:
        """The state now: as `read_state`, but a job without a supervisor has ended as lost."""
        state = self.read_state()
        if state is None or state["phase"] == "ended" or self.is_locked():
            return state
        # Between the two looks the supervisor may have written the end and gone.
        state = self.read_state()
        if state is None or state["phase"] == "ended":
            return state
        return lost(state, ended_at=self._state.stat().st_mtime)

    # ---- the lock ----

    @contextmanager
    def locked(self, *, patience_s: float = 5.0) -> Iterator[int | None]:
        """Hold the lock, which forked children hold too until the last of them is gone.

        Gives None where another supervisor has it. Readers take it for a moment to look at it, hence the patience.
        """
        lock = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            yield lock if self._acquire(lock, patience_s) else None
        finally:
            os.close(lock)  # not unlocked: forked children keep it

    def is_locked(self) -> bool:
        """Whether a supervisor, or the guardian that cleans up after it, is alive."""
        return is_locked(self._lock)

    def _acquire(self, lock: int, patience_s: float) -> bool:
        deadline = time.monotonic() + patience_s
        while not take_lock(lock, waits=False):
            if self._state.exists() or time.monotonic() > deadline:
                return False
            time.sleep(0.005)
        return True

    # ---- the wish to stop ----

    def ask_to_stop(self, reason_code: str, reason_message: str) -> None:
        """Write down that the job should stop, and wake the supervisor up."""
        if not self._stop.exists():
            publish_once(self._stop, json.dumps({"reason_code": reason_code, "reason_message": reason_message}))
        try:
            control = os.open(self._control, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            if error.errno in (
                errno.ENOENT,
                errno.ENXIO,
            ):  # no reader: the supervisor has not begun yet, or has ended
                return
            raise
        try:
            with suppress(BlockingIOError):  # full: it is being woken up already
                os.write(control, b"s")
        finally:
            os.close(control)

    def stop_wish(self) -> tuple[str, str] | None:
        """Reason code and sentence of the wish to stop, or None."""
        try:
            wish = json.loads(self._stop.read_bytes())
        except FileNotFoundError:
            return None
        return wish["reason_code"], wish["reason_message"]

    def open_control(self) -> int:
        """The end of the pipe that becomes readable when there is a wish."""
        with suppress(FileExistsError):
            os.mkfifo(self._control, 0o600)
        # Opened for both, so that it never reads as closed after the first writer has gone.
        return os.open(self._control, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)


def lost(state: dict[str, Any], *, ended_at: float) -> dict[str, Any]:
    """The end of a job whose supervisor is gone."""
    instances = [
        {**instance, "status": "Failed"} if instance["status"] in ("Pending", "Running") else instance
        for instance in state["instances"]
    ]
    return {
        **state,
        "phase": "ended",
        "ended_at": ended_at,
        "succeeded": False,
        "instances": instances,
        "reason_code": REASON_SUPERVISOR_LOST,
        "reason_message": supervisor_lost_message(),
    }
