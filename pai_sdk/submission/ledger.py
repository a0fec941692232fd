"""The submissions of this process: whether a plan has become a job, and what an earlier attempt left open.

A plan is a value and remembers nothing. The ledger has one entry for each plan that was submitted, for as long as
the plan exists; it is shared by all sessions, since a plan becomes one job whichever session submits it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from pai_sdk.backend.base import Plan, SubmissionId
from pai_sdk.schemas.compute import ComputeResource

__all__ = ["Submission", "UnconfirmedCreate", "submission_of", "untried_fallbacks"]


@dataclass(frozen=True)
class UnconfirmedCreate:
    """Create requests of a submission that may have arrived, although no response came.

    Attributes:
        count: how many there were.
        ended_s: monotonic time in seconds at which the last of them was given up.
        took_s: how long the last of them had been under way, in seconds.
    """

    count: int
    ended_s: float
    took_s: float


@dataclass
class Submission:
    """The submission of one plan, as far as this process knows it.

    Attributes:
        job_id: the job, once it is known.
        unconfirmed: creates without a response; the job is searched for before another one is sent.
        untried_fallbacks: resources that were not asked for when the job was created.
    """

    job_id: str | None = None
    unconfirmed: UnconfirmedCreate | None = None
    untried_fallbacks: tuple[ComputeResource, ...] = ()
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def note_unconfirmed(self, *, begun_s: float, now_s: float) -> None:
        """Note a create that was given up now."""
        count = self.unconfirmed.count if self.unconfirmed else 0
        self.unconfirmed = UnconfirmedCreate(count + 1, now_s, now_s - begun_s)


_submissions: WeakKeyDictionary[SubmissionId, Submission] = WeakKeyDictionary()
_submissions_lock = threading.Lock()  # held for a look-up only; the lock of a submission for as long as it is sent


@contextmanager
def submission_of(plan: Plan) -> Iterator[Submission]:
    """The submission of a plan. Other threads that submit the same plan wait until the block ends."""
    with _submissions_lock:
        submission = _submissions.setdefault(plan.submission, Submission())
    with submission._lock:
        yield submission


def untried_fallbacks(plan: Plan) -> tuple[ComputeResource, ...]:
    """The resources that were not asked for when the job of a plan was created."""
    with submission_of(plan) as submission:
        return submission.untried_fallbacks
