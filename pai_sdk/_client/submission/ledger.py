"""The submissions of this process: keys, the jobs of plans, and the unconfirmed creates of earlier attempts.

A plan is a value without state. The ledger has one entry for each plan that was submitted, for as long as
the plan exists; it is shared by all sessions, since a plan becomes one job whichever session submits it.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from pai_sdk._client.backend.base import Plan, SubmissionId
from pai_sdk._wire.pai.compute import ComputeResource
from pai_sdk._wire.pai.request import IDEMPOTENCY_LABEL, SUBMISSION_LABEL, TrainingJobRequest
from pai_sdk.errors import InvalidInputError, Problem

_KEY = re.compile(r"[\w][\w.:/@+-]{0,127}")


def with_key(request: TrainingJobRequest, key: str) -> TrainingJobRequest:
    """Returns the request with the label of an idempotency key: all requests with that key are one submission."""
    if not isinstance(key, str) or not _KEY.fullmatch(key):
        hint = "letters, digits and '_.:/@+-', maximum 128, such as 'nightly-2026-11-22'"
        raise InvalidInputError([Problem("", "is not a valid key", hint)])
    digest = hashlib.sha256(key.encode()).hexdigest()[:32]
    return request.with_label(SUBMISSION_LABEL, digest).with_label(IDEMPOTENCY_LABEL, key)


def has_key(request: TrainingJobRequest) -> bool:
    """Returns True if the request has an idempotency key: other plans can be the same submission."""
    return request.label(IDEMPOTENCY_LABEL) is not None


@dataclass(frozen=True)
class UnconfirmedCreate:
    """Create requests of a submission that may have arrived, although no response came."""

    count: int
    abandoned_s: float  # monotonic time at which the last of them was abandoned
    duration_s: float  # of the last of them


@dataclass
class Submission:
    """The submission of one plan by this process. The holder of `lock` reads and writes the fields."""

    job_id: str | None = None  # None until the create is confirmed
    unconfirmed: UnconfirmedCreate | None = None  # the job is searched for before another create is sent
    untried_fallbacks: tuple[ComputeResource, ...] = ()  # not requested when the job was created
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add_unconfirmed(self, *, started_s: float, now_s: float) -> None:
        """Records a create that was abandoned now."""
        count = self.unconfirmed.count if self.unconfirmed else 0
        self.unconfirmed = UnconfirmedCreate(count + 1, now_s, now_s - started_s)


# Weak: an entry goes with the last plan of its submission, so that long-running processes do not collect them.
_submissions: WeakKeyDictionary[SubmissionId, Submission] = WeakKeyDictionary()
# Held for a look-up only, so that submissions of different plans run at the same time. The lock of a submission is
# held during the upload and the create: of two threads with one plan, the second one finds the job of the first.
_submissions_lock = threading.Lock()


@contextmanager
def submission_of(plan: Plan) -> Iterator[Submission]:
    """Locks the submission of a plan: other threads that submit the same plan wait for the end of the block."""
    with _submissions_lock:
        submission = _submissions.setdefault(plan.submission, Submission())
    with submission.lock:
        yield submission


def untried_fallbacks(plan: Plan) -> tuple[ComputeResource, ...]:
    """Returns the resources that were not requested when the job of a plan was created."""
    with submission_of(plan) as submission:
        return submission.untried_fallbacks
