"""Creates a job exactly once, even when responses are lost.

The states of a create are drawn in docs/contributing/submission.md.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pai_sdk._client.backend.base import Backend, Plan
from pai_sdk._client.submission.ledger import Submission, has_key
from pai_sdk._wire.pai.request import SUBMISSION_LABEL
from pai_sdk.errors import ApiError, ConflictError, ConnectionFailedError, PaiError, RepeatedRequestError

logger = logging.getLogger(__name__)

_MAX_CREATES = 10  # where the retry policy sets no limit
_ANNOUNCED_PAUSE_S = 2.0  # a search whose pauses are this long is announced by a warning


@dataclass(frozen=True)
class SubmissionPolicy:
    """The limits of the search for the job of an unconfirmed create."""

    # The lists of a cloud may lag behind. A search that stops too early causes a second job, which costs money;
    # one that stops late costs a minute, and only after a lost response. After a create that took longer, the
    # search is longer.
    search_s: float = 60.0
    # The pause between two polls of the list doubles up to `max_pause_s`.
    first_pause_s: float = 0.2
    max_pause_s: float = 5.0
    # An unconfirmed create is repeated once in any case, and again within this time after the first.
    repeat_s: float = 180.0


class Creation:
    """The creates of one submission, and the searches for its job.

    While a create is unconfirmed, the job is searched for by the submission label before the request is sent
    again. If a repeated create has created a second job, that one is stopped, with a warning. The plan has a
    submission label; `submission` has the unconfirmed creates of earlier attempts, and is updated.
    """

    def __init__(
        self, plan: Plan, backend: Backend, submission: Submission, policy: SubmissionPolicy, *, progress: bool
    ) -> None:
        self._plan = plan
        self._backend = backend
        self._submission = submission
        self._policy = policy
        self._progress = progress
        self._retry = backend.retry
        self._label = plan.request.label(SUBMISSION_LABEL)

    def run(self) -> str:
        """Creates the job, or finds the one of an earlier create; returns its id.

        A `ConnectionFailedError` means that it is unknown whether the job exists; the message names the label.
        """
        if self._submission.unconfirmed and (job_id := self._existing_job(self._search)):
            return job_id
        started_s = self._retry.clock()
        count = 0
        while True:
            count += 1
            before = self._submission.unconfirmed
            # Race: another process can submit the same key at the same time. The first job in the list wins.
            may_be_second = before is not None or has_key(self._plan.request)
            try:
                job_id = self._create()
            except PaiError as error:
                if not may_be_second and self._submission.unconfirmed is None:
                    raise
                # A conflict is mostly with the job of an earlier create.
                is_open = self._submission.unconfirmed is not before or isinstance(error, ConflictError)
                existing = self._existing_job(self._search if is_open else self._list_jobs, error)
                if existing:
                    return existing
                if isinstance(error, ApiError) and not (error.maybe_arrived or error.retryable):
                    raise  # the service refuses the request itself, so an earlier attempt was refused, too
                if not self._can_repeat(error, count, started_s):
                    raise self._unconfirmed_error(error) from error
                logger.warning("%s; no job of this submission is listed, so it is sent again", error)
                self._retry.sleep(self._retry.pause_s(count, getattr(error, "retry_after_s", None)))
            else:
                return self._without_surplus(job_id) if may_be_second else job_id

    def _create(self) -> str:
        """Sends the request; without a clear response, also after an interrupt, it is recorded as unconfirmed."""
        started_s = self._retry.clock()
        try:
            return self._backend.create(self._plan, progress=self._progress)
        except BaseException as error:
            if not isinstance(error, PaiError) or error.maybe_arrived:
                self._submission.add_unconfirmed(started_s=started_s, now_s=self._retry.clock())
            raise

    def _can_repeat(self, error: PaiError, count: int, started_s: float) -> bool:
        if not error.maybe_arrived:
            return False  # the transport has retried it already
        if not self._backend.capabilities.repeats_creates:
            return False  # the caller decides, knowing the label
        if isinstance(error, RepeatedRequestError) and not self._backend.dedupes:
            return False  # it has arrived: sending it again could only make a second job
        in_time = count == 1 or self._retry.clock() - started_s < max(
            self._policy.repeat_s, self._retry.deadline_s
        )
        return in_time and count < (self._retry.max_attempts or _MAX_CREATES)

    # ---- the search

    def _existing_job(self, query: Callable[[], list[str]], error: PaiError | None = None) -> str | None:
        """Returns the job of this submission, the first one if there are several; None when there is none."""
        try:
            job_ids = query()
        except PaiError as unreadable:
            raise self._unconfirmed_error(error or unreadable) from unreadable
        return self._keep_first(job_ids) if job_ids else None

    def _search(self) -> list[str]:
        """Searches the list until it has the job, or until the time limit."""
        unconfirmed = self._submission.unconfirmed
        if unconfirmed is None:  # a job of another process is listed already
            return self._list_jobs()
        return self._poll_list(
            until_s=unconfirmed.abandoned_s + max(self._policy.search_s, unconfirmed.duration_s),
            # After several unconfirmed creates there can be several jobs, so the search uses all of its time.
            is_enough=lambda job_ids: self._backend.dedupes or (bool(job_ids) and unconfirmed.count == 1),
        )

    def _without_surplus(self, job_id: str) -> str:
        """Returns the job to keep after a repeated create: an earlier create can have created a job, too."""
        if self._backend.dedupes:
            return job_id
        try:
            until_s = self._retry.clock() + self._policy.search_s
            # A list with the new job also has the earlier one.
            job_ids = self._poll_list(until_s=until_s, is_enough=lambda job_ids: job_id in job_ids)
        except PaiError as error:
            logger.warning("%s; there may be a second job like %s; %s", error, job_id, self._search_hint)
            return job_id
        if job_id not in job_ids:
            logger.warning(
                "job %s is not listed yet; there may be a second one like it; %s", job_id, self._search_hint
            )
            job_ids.append(job_id)
        return self._keep_first(job_ids)

    def _poll_list(self, *, until_s: float, is_enough: Callable[[list[str]], bool]) -> list[str]:
        """Polls the list for jobs of this submission until they are enough, or until the time limit."""
        job_ids: list[str] = []
        for is_last in self._polls(until_s):
            try:
                job_ids = self._list_jobs() or job_ids
            except PaiError as error:
                # Permanent, or still there at the end: the caller cannot know whether the job exists.
                if is_last or not error.may_pass:
                    raise
                continue
            if is_enough(job_ids):
                break
        return job_ids

    def _polls(self, until_s: float) -> Iterator[bool]:
        """Yields once for each poll of the list, with growing pauses between them; the last item is True."""
        pause_s, is_announced = self._policy.first_pause_s, False
        while (remaining_s := until_s - self._retry.clock()) > 0:
            yield False
            if pause_s >= _ANNOUNCED_PAUSE_S and not is_announced:
                is_announced = True
                logger.warning(
                    "a create request got no response; searching for its job for up to %.0f s", remaining_s
                )
            self._retry.sleep(min(pause_s, remaining_s))
            pause_s = min(2 * pause_s, self._policy.max_pause_s)
        yield True

    def _list_jobs(self) -> list[str]:
        return [*self._backend.find(self._plan.request)]

    # ---- several jobs

    def _keep_first(self, ids: list[str]) -> str:
        """Returns the job that was created first, and stops the others."""
        first, *surplus = ids
        logger.info("the create request without a response has created job %s", first)
        for job_id in surplus:
            self._stop(job_id, first)
        return first

    def _stop(self, job_id: str, first: str) -> None:
        message = f"a create request got no response and was repeated; both created a job: {first} is kept"
        try:
            if self._backend.get(job_id).submission is None:  # only the name is the same
                logger.warning("%s; %s may be the second one: check it, and stop it", message, job_id)
                return
            self._backend.stop(job_id)
            logger.warning("%s, %s was stopped", message, job_id)
        except PaiError as error:
            logger.warning("%s; %s could not be stopped, stop it: %s", message, job_id, error)

    @property
    def _search_hint(self) -> str:
        return f"look for jobs with the label {SUBMISSION_LABEL}={self._label}"

    def _unconfirmed_error(self, error: PaiError) -> ConnectionFailedError:
        return ConnectionFailedError(
            f"{error}; the job may have been created nevertheless. "
            f"Look for one with the label {SUBMISSION_LABEL}={self._label} before you submit it again",
            endpoint=self._backend.endpoint,
            maybe_arrived=True,
        )
