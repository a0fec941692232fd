"""Makes the error of a failed job: reason, instance, traceback or last lines, and the next commands."""

from __future__ import annotations

import json
import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

from pai_sdk.backend.base import Backend
from pai_sdk.base.retry import one_attempt
from pai_sdk.display.base import visible_text
from pai_sdk.display.commands import next_commands
from pai_sdk.errors import JobFailed, PaiError
from pai_sdk.job.follow import Follower, FollowPolicy, LogFault
from pai_sdk.job.log_reasons import find_traceback, shows_reason
from pai_sdk.schemas.record import ErrorInfo, JobRecord, LogPage
from pai_sdk.schemas.status import JobStatus

logger = logging.getLogger(__name__)

_TAIL_LINES = 200
_WITHIN_S = 15.0  # the longest time to read the last lines; the failure is known already
_AS_IT_IS = FollowPolicy(quiet_s=0, failed_quiet_s=0)
_SHOWN_LINES = 14
_SHOWN_WIDTH = 200
_EXIT_CODES = {
    126: " (the command is not executable)",
    127: " (the command was not found)",
    137: " (killed: out of memory, most of the time)",
    139: " (segmentation fault)",
    143: " (ended by SIGTERM)",
}


def job_failure(
    backend: Backend, record: JobRecord, policy: FollowPolicy | None = None, *, waited_s: float | None = None
) -> JobFailed:
    """Collect the backend's data about a failure. Unavailable data is left out; the error is always made.

    Args:
        backend: where the job ran.
        record: how it ended.
        policy: the times of reading its last lines, for a job that has just ended and whose log may lag behind. By
            default the log is read once.
        waited_s: seconds already spent waiting for the log after the end; the message reports them.
    """
    info = _error_info_or_none(backend, record.training_job_id)
    instance, exit_code = _where(info)
    instance = instance or _first_failed(record)
    tail, gave_up = _tail(backend, record, instance, policy or _AS_IT_IS)
    if gave_up and policy is not None:
        waited_s = policy.failed_quiet_s
    traceback = find_traceback(tail)
    message = record.reason_message or (info.message if info else None) or ""
    return JobFailed(
        _text(
            record,
            instance=instance,
            exit_code=exit_code,
            message=message,
            log_tail=tail,
            traceback=traceback,
            waited_s=None if shows_reason(tail) else waited_s,
        ),
        job_id=record.training_job_id,
        status=record.status,
        instance=instance,
        exit_code=exit_code,
        reason_code=record.reason_code or (info.code if info else None),
        reason_message=message or None,
        log_tail=tail,
        traceback=traceback,
    )


def _error_info_or_none(backend: Backend, job_id: str) -> ErrorInfo | None:
    try:
        return backend.error_info(job_id)
    except PaiError as fault:
        logger.warning("job %s failed, and its error info cannot be read: %s", job_id, fault)
        return None


def _where(info: ErrorInfo | None) -> tuple[str | None, int | None]:
    """Instance and exit code, which our own service puts into the error info's free part."""
    try:
        found = json.loads(info.additional_info or "{}") if info else {}
    except ValueError:
        return None, None
    if not isinstance(found, dict):
        return None, None
    instance, exit_code = found.get("Instance"), found.get("ExitCode")
    return (
        instance if isinstance(instance, str) else None,
        exit_code if isinstance(exit_code, int) else None,
    )


def _first_failed(record: JobRecord) -> str | None:
    failed = [i.name for i in record.instances if i.name and i.status and JobStatus(i.status).is_failure]
    return failed[0] if failed else None


def _tail(
    backend: Backend, record: JobRecord, instance: str | None, policy: FollowPolicy
) -> tuple[list[str], bool]:
    """The last lines of the instance that failed; where that is not known, of one with a traceback, or of all.

    Returns:
        The lines, and whether the wait for a reason among them was given up.
    """
    job_id = record.training_job_id
    within = replace(policy, patience_s=_WITHIN_S, retry=replace(policy.retry, deadline_s=_WITHIN_S))
    names = [instance] if instance else record.instance_names
    tails: dict[str, deque[str]] = {name: deque(maxlen=_TAIL_LINES) for name in names}
    try:
        start = {name: _first_of_tail(backend, job_id, name, within) for name in names}
        follower = Follower(backend, job_id, lambda _: names, start, within)
        try:
            for update in follower.updates(deadline=within.schedule.now() + _WITHIN_S + within.failed_quiet_s):
                if isinstance(update, LogFault):
                    _cannot_be_read(job_id, update.error)
                elif not isinstance(update, JobRecord):
                    tails[update[0].instance].extend(line.text for line in update)
        finally:
            follower.close()
        gave_up = follower.gave_up
    except PaiError as fault:
        _cannot_be_read(job_id, fault)
        gave_up = False
    telling = next((lines for lines in tails.values() if find_traceback(lines)), None)
    return [*(telling or chain.from_iterable(tails.values()))][-_TAIL_LINES:], gave_up


def _first_of_tail(backend: Backend, job_id: str, instance: str, policy: FollowPolicy) -> int:
    def count() -> LogPage:
        with one_attempt():  # the retries are those of the policy, and not those of the backend on top of them
            return backend.read_log(job_id, instance, start=0, limit=1)

    first = policy.retry.call(count, is_transient=lambda error: isinstance(error, PaiError) and error.may_pass)
    return max(0, (first.total or 0) - _TAIL_LINES)


def _cannot_be_read(job_id: str, fault: PaiError) -> None:
    logger.warning("job %s failed, and its log cannot be read: %s", job_id, fault)


def _text(
    record: JobRecord,
    *,
    instance: str | None,
    exit_code: int | None,
    message: str,
    log_tail: Sequence[str],
    traceback: str,
    waited_s: float | None,
) -> str:
    job_id = record.training_job_id
    named = f"{record.training_job_name} ({job_id})" if record.training_job_name else job_id
    lines = [f"job {named} {record.status}: {message or record.reason_code or 'the service gives no reason'}"]
    if record.status.is_unknown_end:
        lines.append("  this version does not know that status; the service gives it a time at which it ended")
    facts = []
    if instance:
        facts.append(f"instance {instance.removeprefix(job_id + '-')}")
    if exit_code is not None:
        # A service that names its reason knows better than a list of what such a code mostly means.
        meaning = "" if record.reason_code else _EXIT_CODES.get(exit_code, "")
        facts.append(f"exit code {exit_code}{meaning}")
    if record.reason_code:
        facts.append(f"reason {record.reason_code}")
    if facts:
        lines.append("  " + ", ".join(facts))
    excerpt = traceback.splitlines() if traceback else list(log_tail)
    if excerpt:
        lines.append("  the traceback in its log:" if traceback else "  its last lines:")
        if len(excerpt) > _SHOWN_LINES:
            excerpt = (
                [*excerpt[:1], "  …", *excerpt[-(_SHOWN_LINES - 2) :]] if traceback else excerpt[-_SHOWN_LINES:]
            )
        lines += [f"    {visible_text(line)[:_SHOWN_WIDTH]}" for line in excerpt]
    if waited_s is not None:
        lines.append(f"  no reason came into its log within {waited_s:g} s after the end; more may come later")
    lines.append(f"  the whole log: {next_commands(record)[0]}")
    if record.training_job_url:
        lines.append(f"  console: {record.training_job_url}")
    return "\n".join(lines)
