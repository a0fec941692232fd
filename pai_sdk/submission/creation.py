"""Creates a job exactly once, even when responses are lost.

The states of a create are drawn in docs/contributing/submission.md.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pai_sdk.backend.base import Backend, Plan
from pai_sdk.errors import ApiError, ConflictError, ConnectionFailedError, PaiError, RepeatedRequestError
from pai_sdk.schemas.request import SUBMISSION_LABEL
from pai_sdk.submission.key import has_key
from pai_sdk.submission.ledger import Submission

__all__ = ["Creation", "SubmissionPolicy"]

logger = logging.getLogger(__name__)

_MAX_CREATES = 10  # where the retry policy sets no limit
_ANNOUNCED_PAUSE_S = 2.0  # a search whose pauses are this long is announced by a warning


@dataclass(frozen=True)
class SubmissionPolicy:
    """The limits of the search for the job of an unconfirmed create.

    The lists of a cloud may lag behind. A search that ends too early makes a second job, which costs money; one
    that ends late costs a minute, and only after a lost response.

    Attributes:
        search_s: the shortest search in seconds; it is longer after a create that took longer.
        first_pause_s: the first pause between two looks at the list, in seconds; the next ones are longer.
        max_pause_s: the longest pause.
        repeat_s: an unconfirmed create is repeated once in any case, and again within this time after the first.
    """

    search_s: float = 60.0
    first_pause_s: float = 0.2
    max_pause_s: float = 5.0
    repeat_s: float = 180.0


class Creation:
    """The creates of one submission, and the searches for its job.

    If it is not known whether a create has arrived, the job is searched for by the submission label before the
    request is sent again. If a repeated create has made a second job, that one is stopped, with a warning.

    Args:
        plan: its request has a submission label.
        backend: runs the job.
        submission: what earlier attempts left open; kept up to date for the next one.
        policy: the pauses.
        progress: show bars.
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
        """Create the job, or find the one that an earlier create has made.

        Returns:
            The job's id.

        Raises:
            ApiError: the service refused the job.
            ConnectionFailedError: it is not known whether the job was created; the message names the label.
        """
        if self._submission.unconfirmed and (job_id := self._found(self._search)):
            return job_id
        begun_s = self._retry.clock()
        count = 0
        while True:
            count += 1
            before = self._submission.unconfirmed
            # Another process may submit the same key just now: of two jobs, the first one is kept.
            may_be_second = before is not None or has_key(self._plan.request)
            try:
                job_id = self._create()
            except PaiError as error:
                if not may_be_second and self._submission.unconfirmed is None:
                    raise
                # A conflict is mostly with the job of an earlier create.
                is_open = self._submission.unconfirmed is not before or isinstance(error, ConflictError)
                found = self._found(self._search if is_open else self._look, error)
                if found:
                    return found
                if isinstance(error, ApiError) and not (error.maybe_arrived or error.retryable):
                    raise  # the service refuses the request itself, so an earlier attempt was refused, too
                if not self._may_repeat(error, count, begun_s):
                    raise self._open_end(error) from error
                logger.warning("%s; no job of this submission is listed, so it is sent again", error)
                self._retry.sleep(self._retry.pause_s(count, getattr(error, "retry_after_s", None)))
            else:
                return self._without_surplus(job_id) if may_be_second else job_id

    def _create(self) -> str:
        """Send the request; without a clear response, also after an interrupt, it is noted as unconfirmed."""
        begun_s = self._retry.clock()
        try:
            return self._backend.create(self._plan, progress=self._progress)
        except BaseException as error:
            if not isinstance(error, PaiError) or error.maybe_arrived:
                self._submission.note_unconfirmed(begun_s=begun_s, now_s=self._retry.clock())
            raise

    def _may_repeat(self, error: PaiError, count: int, begun_s: float) -> bool:
        if not error.maybe_arrived:
            return False  # the transport has retried it already
        if isinstance(error, RepeatedRequestError) and not self._backend.dedupes:
            return False  # it has arrived: sending it again could only make a second job
        in_time = count == 1 or self._retry.clock() - begun_s < max(self._policy.repeat_s, self._retry.deadline_s)
        return in_time and count < (self._retry.max_attempts or _MAX_CREATES)

    # ---- the search

    def _found(self, look: Callable[[], list[str]], error: PaiError | None = None) -> str | None:
        """The job of this submission, the first one if there are several; None when there is none.

        Raises:
            ConnectionFailedError: the list cannot be read.
        """
        try:
            found = look()
        except PaiError as unreadable:
            raise self._open_end(error or unreadable) from unreadable
        return self._keep_first(found) if found else None

    def _search(self) -> list[str]:
        """Search the list until the job is there, or the time is over.

        After several unconfirmed creates there may be several jobs, so the whole time is used.
        """
        unconfirmed = self._submission.unconfirmed
        if unconfirmed is None:  # another process may have created it: what it has made is listed already
            return self._look()
        return self._listed(
            until_s=unconfirmed.ended_s + max(self._policy.search_s, unconfirmed.took_s),
            is_enough=lambda found: self._backend.dedupes or (bool(found) and unconfirmed.count == 1),
        )

    def _without_surplus(self, job_id: str) -> str:
        """The job to keep after a repeated create: an earlier one may have made a job meanwhile.

        A list that shows the new job would show the earlier one, too.
        """
        if self._backend.dedupes:
            return job_id
        try:
            until_s = self._retry.clock() + self._policy.search_s
            found = self._listed(until_s=until_s, is_enough=lambda found: job_id in found)
        except PaiError as error:
            logger.warning("%s; there may be a second job like %s; %s", error, job_id, self._how_to_look)
            return job_id
        if job_id not in found:
            logger.warning(
                "job %s is not listed yet; there may be a second one like it; %s", job_id, self._how_to_look
            )
            found.append(job_id)
        return self._keep_first(found)

    def _listed(self, *, until_s: float, is_enough: Callable[[list[str]], bool]) -> list[str]:
        """The jobs of this submission, searched for until they are enough or the time is over.

        Raises:
            PaiError: the list cannot be read, not even at the end.
        """
        found: list[str] = []
        for is_last in self._looks(until_s):
            try:
                found = self._look() or found
            except PaiError as error:
                if is_last or not error.may_pass:
                    raise
                continue
            if is_enough(found):
                break
        return found

    def _looks(self, until_s: float) -> Iterator[bool]:
        """One item for each look at the list, with growing pauses between them; the last one is True."""
        pause_s, is_announced = self._policy.first_pause_s, False
        while (left_s := until_s - self._retry.clock()) > 0:
            yield False
            if pause_s >= _ANNOUNCED_PAUSE_S and not is_announced:
                is_announced = True
                logger.warning("a create request got no response; searching for its job for up to %.0f s", left_s)
            self._retry.sleep(min(pause_s, left_s))
            pause_s = min(2 * pause_s, self._policy.max_pause_s)
        yield True

    def _look(self) -> list[str]:
        return [*self._backend.find(self._plan.request)]

    # ---- several jobs

    def _keep_first(self, ids: list[str]) -> str:
        """The job that was created first; the others are stopped."""
        kept, *surplus = ids
        logger.info("the create request without a response has created job %s", kept)
        for job_id in surplus:
            self._stop(job_id, kept)
        return kept

    def _stop(self, job_id: str, kept: str) -> None:
        what = f"a create request got no response and was repeated; both created a job: {kept} is kept"
        try:
            if self._backend.get(job_id).submission is None:  # only the name is the same
                logger.warning("%s; %s may be the second one: check it, and stop it", what, job_id)
                return
            self._backend.stop(job_id)
            logger.warning("%s, %s was stopped", what, job_id)
        except PaiError as error:
            logger.warning("%s; %s could not be stopped, stop it: %s", what, job_id, error)

    @property
    def _how_to_look(self) -> str:
        return f"look for jobs with the label {SUBMISSION_LABEL}={self._label}"

    def _open_end(self, error: PaiError) -> ConnectionFailedError:
        return ConnectionFailedError(
            f"{error}; the job may have been created nevertheless. "
            f"Look for one with the label {SUBMISSION_LABEL}={self._label} before you submit it again",
            endpoint=self._backend.endpoint,
            maybe_arrived=True,
        )
