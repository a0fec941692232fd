"""Creates a job exactly once, even when responses are lost."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pai_sdk.api.training_jobs import TrainingJobs
from pai_sdk.errors import (
    ApiError,
    ConflictError,
    ConnectionFailedError,
    PaiError,
    RepeatedRequestError,
)
from pai_sdk.schemas.doubt import Doubt
from pai_sdk.schemas.record import JobRecord
from pai_sdk.schemas.request import SUBMISSION_LABEL, TrainingJobRequest

_log = logging.getLogger(__name__)

_MOST_CREATES = 10  # where the retry policy sets no limit

_TOLD_PAUSE_S = 2.0  # a longer search is announced by a warning


@dataclass(frozen=True)
class SubmissionPolicy:
    """How long a create and the search for its job may take.

    A cloud may need a minute for a create, and its lists may lag behind. A search that ends too early makes a
    second job, which costs money; one that ends late costs a minute, and only after a fault.

    Attributes:
        answer_s: how long the response to a create may take, in seconds.
        search_s: how long the list is searched for the job of an unanswered create at least, in seconds; longer
            if that create took longer.
        first_pause_s: the first pause between two searches, in seconds; the next ones are longer.
        longest_pause_s: the longest pause.
        most_s: an unanswered create is repeated once in any case, and again within this time after the first.
    """

    answer_s: float = 120.0
    search_s: float = 60.0
    first_pause_s: float = 0.2
    longest_pause_s: float = 5.0
    most_s: float = 180.0


def create(
    jobs: TrainingJobs,
    request: TrainingJobRequest,
    *,
    doubt: Doubt | None = None,
    policy: SubmissionPolicy = SubmissionPolicy(),
) -> str:
    """Create exactly one job, even when responses are lost.

    The request has a label of this submission. If it is not known whether the request has arrived, the job is
    looked up by the label before the request is sent again. If a repeated create has made a second job, that one
    is stopped, with a warning.

    Args:
        jobs: the API.
        request: the job; it gets the label if it has none.
        doubt: what an earlier attempt of this submission left open; kept up to date for the next one.
        policy: the timeouts and pauses.

    Returns:
        The job's id.

    Raises:
        ApiError: the service refused the job.
        ConnectionFailedError: it is not known whether the job was created; the message has the label to look for.
    """
    doubt = doubt or Doubt()
    if not any(label.key == SUBMISSION_LABEL for label in request.labels):
        request = request.with_label(SUBMISSION_LABEL, doubt.label)
    return _Submission(jobs, request, doubt, policy).run()


class _Submission:
    """One submission, through all its creates."""

    def __init__(
        self, jobs: TrainingJobs, request: TrainingJobRequest, doubt: Doubt, policy: SubmissionPolicy
    ) -> None:
        self._jobs = jobs
        self._request = request
        self._doubt = doubt
        self._policy = policy
        self._retry = jobs.transport.retry
        self._label = next(each.value for each in request.labels if each.key == SUBMISSION_LABEL)

    def run(self) -> str:
        if self._doubt.creates and (job_id := self._found(self._search)):
            return job_id
        begun_s = self._retry.clock()
        count = 0
        while True:
            count += 1
            before = self._doubt.creates
            try:
                job_id = self._create()
            except PaiError as error:
                if not self._doubt.creates:
                    raise
                # A conflict is mostly with the job of an earlier create.
                is_open = self._doubt.creates > before or isinstance(error, ConflictError)
                found = self._found(self._search if is_open else self._look, error)
                if found:
                    return found
                if isinstance(error, ApiError) and not (error.maybe_arrived or error.retryable):
                    raise  # the service refuses the request itself, so an earlier attempt was refused, too
                if not self._may_repeat(error, count, begun_s):
                    raise self._open_end(error) from error
                _log.warning("%s; no job of this submission is listed, so it is sent again", error)
                self._retry.sleep(self._retry.pause_s(count, getattr(error, "retry_after_s", None)))
            else:
                return self._without_surplus(job_id) if before else job_id

    def _create(self) -> str:
        """Send the request; without a clear response, also after an interrupt, it is recorded as a doubt."""
        begun_s = self._retry.clock()
        try:
            return self._jobs.create_once(self._request.to_wire(), answer_s=self._policy.answer_s)
        except BaseException as error:
            if not isinstance(error, PaiError) or error.maybe_arrived:
                self._doubt.add(begun_s=begun_s, now_s=self._retry.clock())
            raise

    def _may_repeat(self, error: PaiError, count: int, begun_s: float) -> bool:
        if not error.maybe_arrived:
            return False  # the transport has retried it already
        if isinstance(error, RepeatedRequestError) and not self._dedupes:
            return False  # it has arrived: sending it again could only make a second job
        in_time = count == 1 or self._retry.clock() - begun_s < max(self._policy.most_s, self._retry.deadline_s)
        return in_time and count < (self._retry.max_attempts or _MOST_CREATES)

    # ---- looking

    @property
    def _dedupes(self) -> bool:
        """Whether the service has announced that it detects a repeated create of one submission."""
        return "submission-dedupe" in self._jobs.transport.offers

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

        After several unanswered creates there may be several jobs, so the whole time is used.
        """
        return self._listed(
            until_s=self._doubt.since_s + max(self._policy.search_s, self._doubt.away_s),
            is_enough=lambda found: self._dedupes or (bool(found) and self._doubt.creates == 1),
        )

    def _without_surplus(self, job_id: str) -> str:
        """The job to keep after a repeated create: an earlier one may have made a job meanwhile.

        A list that shows the new job would show the earlier one, too.
        """
        if self._dedupes:
            return job_id
        try:
            until_s = self._retry.clock() + self._policy.search_s
            found = self._listed(until_s=until_s, is_enough=lambda found: job_id in found)
        except PaiError as error:
            _log.warning("%s; there may be a second job like %s; %s", error, job_id, self._how_to_look)
            return job_id
        if job_id not in found:
            _log.warning(
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
        """One item for each search, with growing pauses between them; the last one is True."""
        pause_s, is_told = self._policy.first_pause_s, False
        while (left_s := until_s - self._retry.clock()) > 0:
            yield False
            if pause_s >= _TOLD_PAUSE_S and not is_told:
                is_told = True
                _log.warning("looking for the job of an unanswered create, for up to %.0f s", left_s)
            self._retry.sleep(min(pause_s, left_s))
            pause_s = min(2 * pause_s, self._policy.longest_pause_s)
        yield True

    def _look(self) -> list[str]:
        """The ids of this submission's jobs that are listed now, the oldest first."""
        # The service's default window of 7 days is enough for a new job.
        wanted = {SUBMISSION_LABEL: self._label}
        listed = self._jobs.list(labels=wanted, workspace_id=self._request.workspace_id, start_time=None)
        return [record.training_job_id for record in listed if self._is_ours(record)][::-1]

    def _is_ours(self, record: JobRecord) -> bool:
        if not record.labels:  # not every list has labels, and several jobs may have one name
            if record.training_job_name != self._request.training_job_name:
                return False
            record = self._jobs.get(record.training_job_id)
        return self._label_of(record) in (self._label, None)

    @staticmethod
    def _label_of(record: JobRecord) -> str | None:
        """The label of the submission that a job shows; None when it shows no labels at all."""
        labels = {label.key: label.value for label in record.labels}
        return labels.get(SUBMISSION_LABEL, "") if labels else None

    # ---- several jobs

    def _keep_first(self, ids: list[str]) -> str:
        """The job that was created first; the others are stopped."""
        kept, *surplus = ids
        _log.info("the job of the unanswered create is %s", kept)
        for job_id in surplus:
            self._stop(job_id, kept)
        return kept

    def _stop(self, job_id: str, kept: str) -> None:
        what = f"a create without a response was repeated, and both made a job: {kept} is kept"
        try:
            if self._label_of(self._jobs.get(job_id)) is None:  # only the name is the same
                _log.warning("%s; %s looks like a second one: stop it if it is", what, job_id)
                return
            self._jobs.stop(job_id)
            _log.warning("%s, %s was stopped", what, job_id)
        except PaiError as error:
            _log.warning("%s; %s could not be stopped, stop it: %s", what, job_id, error)

    @property
    def _how_to_look(self) -> str:
        return f"look for jobs with the label {SUBMISSION_LABEL}={self._label}"

    def _open_end(self, error: PaiError) -> ConnectionFailedError:
        return ConnectionFailedError(
            f"{error}; the job may have been created all the same. "
            f"Look for one with the label {SUBMISSION_LABEL}={self._label} before you submit it again",
            endpoint=self._jobs.transport.endpoint,
            maybe_arrived=True,
        )
