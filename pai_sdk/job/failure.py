"""Why a job failed, on one screen: the reason, where it happened, the traceback or the last lines, what next."""

from __future__ import annotations

import json
import logging
import re
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain

from pai_sdk.backend.base import Backend
from pai_sdk.display.base import visible_text
from pai_sdk.display.commands import next_commands
from pai_sdk.errors import JobFailed, PaiError
from pai_sdk.job.logs import FollowPolicy, LogStream
from pai_sdk.job.patience import may_pass
from pai_sdk.job.record import ErrorInfo, JobRecord, LogLine, LogPage
from pai_sdk.job.status import JobStatus
from pai_sdk.retry import one_attempt

__all__ = ["find_traceback", "job_failure"]

logger = logging.getLogger(__name__)

_TAIL_LINES = 200
_WITHIN_S = 15.0  # so long the last lines of an instance are waited for; the failure is known already
_SHOWN_LINES = 14
_SHOWN_WIDTH = 200
_EXIT_CODES = {
    126: " (the command is not executable)",
    127: " (the command was not found)",
    137: " (killed: out of memory, most of the time)",
    139: " (segmentation fault)",
    143: " (ended by SIGTERM)",
}
_TRACEBACK_START = "Traceback (most recent call last):"
_EXCEPTION_LINE = re.compile(r"^[A-Za-z_][\w.]*(: .*)?$")


def job_failure(backend: Backend, record: JobRecord, policy: FollowPolicy | None = None) -> JobFailed:
    """Gather what the backend knows of a failure. What cannot be had is left out; the failure itself never is.

    Args:
        backend: where the job ran.
        record: how it ended.
        policy: how patiently to look for its last lines; for one who has just seen the end, which may be ahead of
            the log. By default they are taken as they are.
    """
    info = _error_info_or_none(backend, record.training_job_id)
    instance, exit_code = _where(info)
    instance = instance or _first_failed(record)
    tail = _tail(backend, record, instance, policy or FollowPolicy(quiet_s=0))
    traceback = find_traceback(tail)
    message = record.reason_message or (info.message if info else None) or ""
    return JobFailed(
        _text(record, instance=instance, exit_code=exit_code, message=message, log_tail=tail, traceback=traceback),
        job_id=record.training_job_id,
        status=record.status,
        instance=instance,
        exit_code=exit_code,
        reason_code=record.reason_code or (info.code if info else None),
        reason_message=message or None,
        log_tail=tail,
        traceback=traceback,
    )


def find_traceback(lines: Iterable[str]) -> str:
    r"""The last Python traceback in a log's last lines, or an empty text.

    Example:
        >>> find_traceback(["ok", "Traceback (most recent call last):", "  File 'a.py', line 1", "KeyError: 3"])
        "Traceback (most recent call last):\n  File 'a.py', line 1\nKeyError: 3"
    """
    lines = [*lines]
    starts = [number for number, line in enumerate(lines) if line.strip() == _TRACEBACK_START]
    if not starts:
        return ""
    found = [lines[starts[-1]].strip()]
    for line in lines[starts[-1] + 1 :]:
        found.append(line)
        if not line.startswith(" ") and _EXCEPTION_LINE.match(line):
            break
    return "\n".join(found)


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


def _tail(backend: Backend, record: JobRecord, instance: str | None, policy: FollowPolicy) -> list[str]:
    """The last lines of the instance that failed; where that is not known, of one with a traceback, or of all."""
    job_id = record.training_job_id
    within = replace(policy, patience_s=_WITHIN_S, retry=replace(policy.retry, deadline_s=_WITHIN_S))
    tails: dict[str, deque[str]] = {}
    try:
        for name in [instance] if instance else record.instance_names:
            tails[name] = _tail_of(backend, job_id, name, within)
    except PaiError as fault:
        logger.warning("job %s failed, and its log cannot be read: %s", job_id, fault)
    telling = next((lines for lines in tails.values() if find_traceback(lines)), None)
    return [*(telling or chain.from_iterable(tails.values()))][-_TAIL_LINES:]


def _tail_of(backend: Backend, job_id: str, instance: str, policy: FollowPolicy) -> deque[str]:
    def count() -> LogPage:
        with one_attempt():  # the retries are those of the policy, and not those of the backend on top of them
            return backend.read_log(job_id, instance, start=0, limit=1)

    first = policy.retry.call(count, is_transient=may_pass)
    start = {instance: max(0, (first.total or 0) - _TAIL_LINES)}
    stream = LogStream(backend, job_id, follow=True, instance=instance, start=start, policy=policy)
    tail: deque[str] = deque(maxlen=_TAIL_LINES)
    for update in stream.updates(deadline=policy.schedule.now() + _WITHIN_S):
        if isinstance(update, LogLine):
            tail.append(update.text)
    return tail


def _text(
    record: JobRecord,
    *,
    instance: str | None,
    exit_code: int | None,
    message: str,
    log_tail: Sequence[str],
    traceback: str,
) -> str:
    job_id = record.training_job_id
    named = f"{record.training_job_name} ({job_id})" if record.training_job_name else job_id
    lines = [f"job {named} {record.status}: {message or record.reason_code or 'the service gives no reason'}"]
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
    lines.append(f"  the whole log: {next_commands(record)[0]}")
    if record.training_job_url:
        lines.append(f"  console: {record.training_job_url}")
    return "\n".join(lines)
