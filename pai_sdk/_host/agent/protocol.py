"""The protocol on disk between a job and its executor: a stop request in, the state out. Standard library only.

Any process may ask for the end of a job and read its state, which has the exit code of each instance and the
first instance that failed. `ExecutionRecord` is the interface; format and parsing are the same for all jobs:

    stop        the stop request as JSON; the first one stays. `signal` where a program outside sent an instance
                SIGTERM; empty where the disk was full
    state.json  the `ExecutionState` as JSON, replaced whole

Two classes implement it. `Journal` (agent/journal.py) is the folder of the executor; the supervisor of a job of
processes writes the state there. `SharedFolder` (execution/docker/shared_folder.py) is the folder that containers
write to: there the state is put together from one small file an instance, and nothing that is read is trusted.
"""

from __future__ import annotations

import errno
import json
import os
from abc import ABC, abstractmethod
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

from pai_sdk._core.files import open_file, open_plain, publish_once
from pai_sdk._core.reasons import REASON_STOPPED_BY_USER, REASON_STOPPED_FROM_OUTSIDE

DISK_IS_FULL = (errno.ENOSPC, errno.EDQUOT)
"""The error numbers of a full disk."""

Phase: TypeAlias = Literal["absent", "preparing", "running", "ended"]
"""`absent`: never started here. `preparing`: requirements are being installed. `ended`: no process is left."""

REASON_COMPLETE = "Complete"
"""The reason of a stop request to an instance that its job does not wait for; never the reason of a job."""

_STOP = "stop"
_BY_SIGNAL = "signal"  # written by instance.sh
_NO_REASON = "The job was stopped. The reason could not be saved because the disk was full."


@dataclass(frozen=True)
class Ending:
    """The reason why a job does not succeed (codes: `agent.reasons`). The first one stays."""

    code: str
    message: str
    failed_instance: str | None = None


@dataclass(frozen=True)
class InstanceState:
    """One instance. Its status is a word of PAI: `Pending`, `Running`, `Succeed`, `Failed`, `Terminated`."""

    name: str
    role: str
    status: str = "Pending"
    exit_code: int | None = None
    is_awaited: bool = True  # both as in `Instance`
    can_fail_job: bool = True


@dataclass(frozen=True)
class ExecutionState:
    """The state of a job, as its executor knows it.

    Attributes:
        phase: how far it is.
        started_at, ended_at: seconds since 1970, UTC.
        succeeded: whether all instances ended with 0; None before the end.
        instances: in rank order.
        failed_instance: the first that failed.
        reason_code: why it did not succeed: one of the REASON_* constants of `agent.reasons`.
        reason_message: the same as a sentence for people.

    Example:
        >>> ExecutionState.parse(ExecutionState("preparing").to_json()).phase
        'preparing'
    """

    phase: Phase
    started_at: float | None = None
    ended_at: float | None = None
    succeeded: bool | None = None
    instances: tuple[InstanceState, ...] = ()
    failed_instance: str | None = None
    reason_code: str = ""
    reason_message: str = ""

    def failure(self, *, can_fail_job: bool) -> Ending | None:
        """Returns why a job ends, if this is the state of one of its instances; None if it does not end."""
        has_failed = any(instance.status == "Failed" for instance in self.instances)
        if self.reason_code in ("", REASON_COMPLETE) or (has_failed and not can_fail_job):
            return None
        return Ending(self.reason_code, self.reason_message, self.failed_instance)

    def without_failure(self) -> ExecutionState:
        """Returns the state of an instance that has failed when its job was complete already."""
        instances = tuple(
            replace(instance, status="Terminated" if instance.status == "Failed" else instance.status)
            for instance in self.instances
        )
        return replace(self, instances=instances, reason_code="", reason_message="", failed_instance=None)

    def to_json(self) -> str:
        """Returns the content of `state.json`."""
        return json.dumps(asdict(self))

    @classmethod
    def parse(cls, text: str) -> ExecutionState:
        """Parses the output of `to_json`.

        Raises:
            ValueError: it is not a state, or a part of one.
        """
        content = json.loads(text)
        try:
            return cls(
                **{**content, "instances": tuple(InstanceState(**instance) for instance in content["instances"])}
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"this is not the state of a job: {error}") from error


class StopRequest(NamedTuple):
    """The reason why a job is to be stopped; empty strings if it could not be written or read."""

    reason_code: str = ""
    reason_message: str = ""

    @classmethod
    def parse(cls, text: str) -> StopRequest:
        """Parses a stop request; any content is a request."""
        if text == _BY_SIGNAL:
            return cls(REASON_STOPPED_FROM_OUTSIDE)
        try:
            content = json.loads(text)
            return cls(str(content["reason_code"]), str(content["reason_message"]))
        except (KeyError, RecursionError, TypeError, ValueError):
            return cls()

    @property
    def reported(self) -> tuple[str, str]:
        """Returns reason code and sentence of the end that follows."""
        return self.reason_code or REASON_STOPPED_BY_USER, self.reason_message or _NO_REASON


class ExecutionRecord(ABC):
    """The folder through which a job and its executor communicate. Each file appears with its full content.

    Reading follows no link, waits for no pipe, and is bounded if a subclass sets `_max_bytes`.
    """

    _max_bytes = -1
    _stop_mode = 0o600

    def __init__(self, path: Path) -> None:
        self.path = path

    @abstractmethod
    def state(self) -> ExecutionState | None:
        """Returns the state that the job's processes have written; None for a job that was never started."""

    def request_stop(self, reason_code: str, reason_message: str) -> None:
        """Requests the end of the job; the first request stays."""
        # On a full disk the request has no reason: an empty file needs no space.
        if self.stop_request is not None:
            return
        request = StopRequest(reason_code, reason_message)
        try:
            publish_once(self.path / _STOP, json.dumps(request._asdict()), mode=self._stop_mode)
        except OSError as error:
            if error.errno not in DISK_IS_FULL:
                raise
            with suppress(OSError):
                os.close(open_file(self.path / _STOP, os.O_WRONLY | os.O_CREAT | os.O_EXCL))

    @property
    def stop_request(self) -> StopRequest | None:
        """Returns the first stop request, or None."""
        try:
            return StopRequest.parse(self._read(_STOP)[0])
        except FileNotFoundError:
            return None
        except OSError:
            # Something else than a file, such as a folder or a pipe, counts as a request too.
            return StopRequest()

    def _read(self, name: str) -> tuple[str, float]:
        """Returns the stripped content of a file, and its modification time."""
        with open_plain(self.path / name) as file:
            content = file.read(self._max_bytes)
            return content.decode(errors="replace").strip(), os.fstat(file.fileno()).st_mtime
