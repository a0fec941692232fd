"""What Slurm knows of our jobs: asked once for all, in the background, and only while a job is looked at."""

from __future__ import annotations

import logging
import os
import re
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pai_sdk.agent.sandbox import Sandbox
from pai_sdk.errors import PaiError
from pai_sdk.execution.slurm.commands import SlurmAway, SlurmRefused, run

__all__ = ["QueuedJob", "SlurmQueue", "cancel", "entries", "name_of"]

logger = logging.getLogger(__name__)

_PREFIX = "pai-"
_NUMBER = re.compile("[0-9]+([_+].*)?")
_STATE = re.compile("[A-Z][A-Z_]*")
_FIELDS = ("JobID", "State", "PreemptTime", "Reason", "Name", "WorkDir")
_PENDING = frozenset(
    {"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT"}
)
# A state that is in neither list is one of a job that has not ended: RUNNING, COMPLETING, SUSPENDED, STOPPED,
# SIGNALING, STAGE_OUT, RESIZING, and what other releases of Slurm have.
_OVER = frozenset(
    {
        "BOOT_FAIL",
        "CANCELLED",
        "COMPLETED",
        "DEADLINE",
        "FAILED",
        "NODE_FAIL",
        "OUT_OF_MEMORY",
        "PREEMPTED",
        "REVOKED",
        "TIMEOUT",
    }
)


@dataclass(frozen=True)
class QueuedJob:
    """One Slurm job.

    Attributes:
        number: its number.
        state: a word of Slurm, such as `PENDING`.
        is_preempted: whether it has to make room for another job.
        reason: why it is in this state, in a word of Slurm.
        job_id: our job.
        root: the folder of that job.
        attempt: which attempt at it, from 1.
    """

    number: str
    state: str
    is_preempted: bool
    reason: str
    job_id: str
    root: Path
    attempt: int = 1

    @property
    def is_over(self) -> bool:
        """Return whether none of its processes is left, as far as Slurm knows."""
        return self.state in _OVER

    @property
    def is_pending(self) -> bool:
        """Return whether it waits for nodes."""
        return self.state in _PENDING


def name_of(job_id: str, attempt: int) -> str:
    """The name of the Slurm job of an attempt at a job.

    Example:
        >>> name_of("train1", 1), name_of("train1", 2)
        ('pai-train1', 'pai-train1.2')
    """
    return f"{_PREFIX}{job_id}" if attempt == 1 else f"{_PREFIX}{job_id}.{attempt}"


def entries(*, root: Path | None = None) -> list[QueuedJob]:
    """Ask Slurm for the jobs of this user that are ours; Slurm forgets a job some minutes after its end.

    Args:
        root: only for the last attempt at the job in this folder.

    Raises:
        SlurmAway: it does not respond, or what it says cannot be understood.
        SlurmRefused: it does not say.
    """
    fields = ",".join(f"{name}:|" for name in _FIELDS)
    wanted = [] if root is None else [f"--name={name_of(root.name, Sandbox(root).attempt)}"]
    printed = run(
        ["squeue", "--noheader", "--states=all", f"--user={os.geteuid()}", *wanted, f"--Format={fields}"]
    )
    found = []
    for line in printed.splitlines():
        parts = line.split("|", len(_FIELDS) - 1)
        if f"|{_PREFIX}" not in line:  # a job of the same user that is not ours: an array, or with any name
            continue
        if len(parts) != len(_FIELDS) or not (_NUMBER.fullmatch(parts[0]) and _STATE.fullmatch(parts[1])):
            raise SlurmAway(f"squeue printed what cannot be understood: {line[:200]!r}")
        number, state, preempted, reason, name, folder = parts
        if name.startswith(_PREFIX) and number.isdecimal():  # the others are parts of an array of the user's own
            its_root = Path(folder.rstrip().removesuffix("|"))
            if root is not None and its_root != root:
                continue
            has_time = preempted.strip() not in ("", "N/A", "None", "Unknown")
            job_id, _, attempt = name.removeprefix(_PREFIX).partition(".")
            count = int(attempt) if attempt.isdecimal() else 1
            found.append(QueuedJob(number, state, has_time, reason, job_id, its_root, count))
    return found


class SlurmQueue:
    """The last response of Slurm, which is asked in the background: no caller waits for it.

    Args:
        every_s: how often Slurm is asked at most.
    """

    def __init__(self, *, every_s: float = 2.0) -> None:
        self._every_s = every_s
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="slurm")
        self._lock = threading.Lock()
        self._asking: Future[None] | None = None
        self._asked_at = 0.0
        self._answers = 0
        # By folder: a service that was made of a backup has jobs with the same ids.
        self._known: dict[Path, list[QueuedJob]] = {}
        self._seen_at: dict[Path, int] = {}  # how many responses there were when it was last known or new
        self._problem = ""

    def close(self) -> None:
        """Ask no more."""
        self._worker.shutdown(wait=False, cancel_futures=True)

    def find(self, root: Path) -> list[QueuedJob] | None:
        """The Slurm jobs of the last attempt at a job, those that are not over first; None while not known.

        An empty list means that two responses in a row did not have the job, both since this process asks for it.
        """
        with self._lock:
            self._ask_if_due()
            attempt = Sandbox(root).attempt
            found = [entry for entry in self._known.get(root, ()) if entry.attempt == attempt]
            if found:
                self._seen_at[root] = self._answers
                return sorted(found, key=lambda entry: (entry.is_over, -int(entry.number)))
            # The first response may be older than the job, and the one after it may have been on its way.
            return [] if self._answers - self._seen_at.setdefault(root, self._answers) > 2 else None

    def forget(self, root: Path) -> None:
        """This job is not looked at any more, or it has a new Slurm job."""
        with self._lock:
            self._seen_at.pop(root, None)
            self._known.pop(root, None)

    def cancel(self, root: Path) -> None:
        """Cancel the Slurm jobs of the job in a folder, in the background."""
        self._worker.submit(_quietly_cancel, root)

    def _ask_if_due(self) -> None:
        is_asking = self._asking is not None and not self._asking.done()
        if not is_asking and time.monotonic() - self._asked_at >= self._every_s:
            self._asked_at = time.monotonic()
            self._asking = self._worker.submit(self._ask)

    def _ask(self) -> None:
        try:
            found = entries()
        except PaiError as error:
            if str(error) != self._problem:
                self._problem = str(error)
                logger.warning("Slurm does not respond; jobs are left as they are: %s", error)
            return
        if self._problem:
            self._problem = ""
            logger.info("Slurm responds again")
        known: dict[Path, list[QueuedJob]] = {}
        for entry in found:
            known.setdefault(entry.root, []).append(entry)
        with self._lock:
            self._known = known
            self._answers += 1
            self._asked_at = time.monotonic()


def cancel(entry: QueuedJob, *, kills: bool = False) -> None:
    """Cancel a Slurm job.

    Args:
        entry: as Slurm has just told of it: a controller that lost its state gives numbers to other jobs.
        kills: without a grace period.

    Raises:
        SlurmAway: it is not known whether it was cancelled.
    """
    one = [f"--name={name_of(entry.job_id, entry.attempt)}", entry.number]
    with suppress(SlurmRefused):  # it waits for its nodes, so there is nothing to be killed; or it has just ended
        if kills:  # the steps: with --full, Slurm 22.05 cancels the job instead, and kills after its KillWait
            run(["scancel", "--signal=KILL", *one])
    with suppress(SlurmRefused):
        run(["scancel", *one])


def _quietly_cancel(root: Path) -> None:
    try:
        for entry in entries(root=root):
            if not entry.is_over:
                cancel(entry)
    except PaiError as error:
        logger.warning("the Slurm job of %s could not be cancelled: %s", root.name, error)
