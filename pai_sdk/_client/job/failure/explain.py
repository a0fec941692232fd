"""Builds the error of a failed job: root cause, reason, instance, tracebacks or last lines, next commands."""

from __future__ import annotations

import logging
import re
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import chain

from pai_sdk._client.backend.base import Backend
from pai_sdk._client.display.base import short_instance
from pai_sdk._client.display.commands import next_commands, page_url
from pai_sdk._client.job.follow.follower import Follower, LogError, Update
from pai_sdk._client.job.follow.polling import FollowPolicy
from pai_sdk._client.job.follow.read_pace import shows_reason
from pai_sdk._client.job.follow.updates import ask
from pai_sdk._core.reasons import split_advice
from pai_sdk._core.terminal_text import visible_text
from pai_sdk._data.logs.advice import log_advice
from pai_sdk._data.logs.headline import cause_in, headline
from pai_sdk._data.logs.tracebacks import find_traceback, is_launcher_error, root_cause, shortened
from pai_sdk._wire.pai.record import ErrorInfo, FailedInstance, JobRecord
from pai_sdk._wire.pai.status import JobStatus
from pai_sdk.errors import JobFailed, JobStopped, PaiError

logger = logging.getLogger(__name__)

_READ_LINES = 400  # three tracebacks of a large framework
_TAIL_LINES = 200  # that the error keeps
_READ_TIMEOUT_S = 15.0  # the longest time to read the last lines; the failure is known already
_READ_ONCE = FollowPolicy(quiet_s=0, failed_quiet_s=0)
_EXCERPT_LINES = 14  # of a log without a traceback
_LAUNCHER_LINES = 5  # lines before the traceback of a launcher
_MAX_WIDTH = 200
_MAX_CAUSES = 8
_EXIT_CODES = {
    126: " (the command is not executable)",
    127: " (the command was not found)",
    137: " (killed, usually because memory ran out)",
    139: " (segmentation fault)",
    143: " (ended by SIGTERM)",
}
# Errors of an instance that are the consequence of another one's failure.
_CONSEQUENCE = re.compile(
    r"(?:ConnectionResetError|ConnectionRefusedError|BrokenPipeError|EOFError)\b|.*DistBackendError|.*\bpeer\b"
)


@dataclass
class _Tail:
    """The last lines of the most informative log."""

    lines: list[str]
    instance: str | None = None  # None if the job has one instance, or for lines of several
    # The root causes in the logs of the other instances.
    other_causes: Mapping[str, str] = field(default_factory=dict)
    gave_up: bool = False  # the log was waited for, and shows no reason
    is_printed: bool = False  # the user has just seen the lines


def job_failure(
    backend: Backend,
    record: JobRecord,
    policy: FollowPolicy | None = None,
    *,
    waited_s: float | None = None,
    is_log_printed: bool = False,
) -> JobFailed:
    """Builds the error of a failed job; data that cannot be read is left out.

    `policy` is for a job that has just ended and whose log may lag behind; without it, the log is read once.
    `waited_s` were already spent waiting for the log after the end; the message reports them. Where the log of the
    only instance was printed, the message does not repeat its end.
    """
    info = _error_info_or_none(backend, record.training_job_id)
    reading = _Reading(record, info, policy)
    tail = reading.read(backend)
    tail.is_printed = is_log_printed and len(record.instance_names) <= 1
    return _failure(record, info, tail, policy.failed_quiet_s if tail.gave_up and policy is not None else waited_s)


async def job_failure_async(backend: Backend, record: JobRecord, policy: FollowPolicy) -> JobFailed:
    """Builds the error of a failed job for an asyncio program; no thread waits."""
    job_id = record.training_job_id
    info = await ask(lambda: _error_info_or_none(backend, job_id), backend.endpoint, policy)
    tail = await _Reading(record, info, policy).read_async(backend)
    return _failure(record, info, tail, policy.failed_quiet_s if tail.gave_up else None)


def brief_failure(record: JobRecord) -> JobFailed:
    """Builds the error of a failed job from its record alone, without a request."""
    return _failure(record, None, _Tail([]), None)


def _failure(record: JobRecord, info: ErrorInfo | None, tail: _Tail, waited_s: float | None) -> JobFailed:
    instance, exit_code = _instance_and_exit_code(info)
    failure = JobFailed(
        "",
        job_id=record.training_job_id,
        status=record.status,
        instance=instance or _first_failed(record),
        exit_code=exit_code,
        reason_code=record.reason_code or (info.code if info else None),
        reason_message=record.reason_message or (info.message if info else None) or None,
        log_tail=tail.lines[-_TAIL_LINES:],
        traceback=find_traceback(tail.lines),
    )
    failure.args = (_text(record, failure, tail, None if shows_reason(tail.lines) else waited_s),)
    return failure


def stopped_error(record: JobRecord) -> JobStopped:
    """Builds the error of a job that was stopped."""
    job_id = record.training_job_id
    reason = f": {record.reason_message}" if record.reason_message else ""
    text = f"job {record.training_job_name or job_id} ({job_id}) was stopped{reason}"
    return JobStopped(text, job_id=job_id, reason_code=record.reason_code)


def _error_info_or_none(backend: Backend, job_id: str) -> ErrorInfo | None:
    try:
        return backend.error_info(job_id)
    except PaiError as error:
        logger.warning("job %s failed, and its error info cannot be read: %s", job_id, error)
        return None


def _instance_and_exit_code(info: ErrorInfo | None) -> tuple[str | None, int | None]:
    """Returns the instance and the exit code, which services of pai-sdk put into `AdditionalInfo`."""
    try:
        failed = FailedInstance.model_validate_json((info and info.additional_info) or "{}")
    except ValueError:  # another service has other text there
        return None, None
    return failed.instance, failed.exit_code


def _first_failed(record: JobRecord) -> str | None:
    failed = [i.name for i in record.instances if i.name and i.status and JobStatus(i.status).is_failure]
    return failed[0] if failed else None


class _Reading:
    """Reads the last lines of the failed instance, or of all instances if it is not known which one failed."""

    def __init__(self, record: JobRecord, info: ErrorInfo | None, policy: FollowPolicy | None) -> None:
        policy = policy or _READ_ONCE
        instance = _instance_and_exit_code(info)[0] or _first_failed(record)
        self._job_id = record.training_job_id
        self._bounded_policy = replace(
            policy, patience_s=_READ_TIMEOUT_S, retry=replace(policy.retry, deadline_s=_READ_TIMEOUT_S)
        )
        self._names = [instance] if instance else record.instance_names
        self._tails: dict[str, deque[str]] = {name: deque(maxlen=_READ_LINES) for name in self._names}

    def read(self, backend: Backend) -> _Tail:
        """Reads the last lines, as far as they are readable."""
        with closing(self._follower(backend)) as follower:
            try:
                for update in follower.updates(deadline=self._bounded_policy.schedule.now() + self._timeout_s):
                    self._process_update(update)
            except PaiError as error:
                _log_unreadable(self._job_id, error)
        return self._tail(gave_up=follower.gave_up)

    async def read_async(self, backend: Backend) -> _Tail:
        """Reads the last lines in an asyncio program."""
        import asyncio  # for weight: an asyncio program has it

        with closing(self._follower(backend)) as follower:
            try:
                await asyncio.wait_for(self._process_all(follower), self._timeout_s)
            except PaiError as error:
                _log_unreadable(self._job_id, error)
            except (TimeoutError, asyncio.TimeoutError):
                pass  # the lines that arrived so far are used
        return self._tail(gave_up=follower.gave_up)

    @property
    def _timeout_s(self) -> float:
        return _READ_TIMEOUT_S + self._bounded_policy.failed_quiet_s

    def _follower(self, backend: Backend) -> Follower:
        last_lines = dict.fromkeys(self._names, -_READ_LINES)
        return Follower(backend, self._job_id, lambda _: self._names, last_lines, self._bounded_policy)

    async def _process_all(self, follower: Follower) -> None:
        async for update in follower.updates_async():
            self._process_update(update)

    def _process_update(self, update: Update) -> None:
        if isinstance(update, LogError):
            _log_unreadable(self._job_id, update.error)
        elif not isinstance(update, JobRecord):
            self._tails[update[0].instance].extend(line.text for line in update)

    def _tail(self, *, gave_up: bool) -> _Tail:
        """Returns the log whose traceback shows the root cause; all logs if none has a traceback."""
        tails = self._tails
        causes = {
            name: root_cause(traceback) for name, lines in tails.items() if (traceback := find_traceback(lines))
        }
        if not causes:
            return _Tail([*chain.from_iterable(tails.values())][-_READ_LINES:], gave_up=gave_up)
        # When one instance fails, the others report lost connections: these are consequences, not causes.
        first = min(causes, key=lambda name: bool(_CONSEQUENCE.match(causes[name])))
        other_causes = {name: cause for name, cause in causes.items() if name != first}
        return _Tail([*tails[first]], first if len(self._names) > 1 else None, other_causes, gave_up)


def _log_unreadable(job_id: str, error: PaiError) -> None:
    logger.warning("job %s failed, and its log cannot be read: %s", job_id, error)


def _text(record: JobRecord, failure: JobFailed, tail: _Tail, waited_s: float | None) -> str:
    job_id = record.training_job_id
    job_title = f"{record.training_job_name} ({job_id})" if record.training_job_name else job_id
    cause = cause_in(failure.traceback, tail.lines)
    reason = failure.reason_message or ""
    title, message = headline(cause, failure.reason_code, reason, failure.instance, failure.exit_code)
    lines = [f"job {job_title} {record.status}: {visible_text(title)[:_MAX_WIDTH] if title == cause else title}"]
    if message:
        lines.append(f"  {message}")
    if record.status.is_unknown_end:
        lines.append(
            "  this version of pai_sdk does not know this status; the job has an end time, so it has finished"
        )
    if not split_advice(reason)[1] and (hint := log_advice(cause, tail.lines, record, reason)):
        lines.append(f"  {visible_text(hint)}")
    if details := _details(record, failure):
        lines.append("  " + ", ".join(details))
    lines += _excerpt(job_id, failure, tail)
    if waited_s is not None:
        lines.append(
            f"  no reason appeared in its log within {waited_s:g} s after it finished; more lines may arrive later"
        )
    lines.append(f"  the whole log: {next_commands(record)[0]}")
    if (page := page_url(record)) is not None:
        lines.append(f"  its page: {page}")
    return "\n".join(lines)


def _details(record: JobRecord, failure: JobFailed) -> list[str]:
    details = []
    if failure.instance:
        details.append(f"instance {short_instance(failure.job_id, failure.instance)}")
    if failure.exit_code is not None:
        # A reason from the service is more exact than the usual meaning of the code.
        meaning = "" if record.reason_code else _EXIT_CODES.get(failure.exit_code, "")
        details.append(f"exit code {failure.exit_code}{meaning}")
    if record.reason_code:
        details.append(f"reason {record.reason_code}")
    return details


def _excerpt(job_id: str, failure: JobFailed, tail: _Tail) -> list[str]:
    """Returns the tracebacks or the last lines, and the root causes of other instances."""
    log_title = f"the log of {short_instance(job_id, tail.instance)}" if tail.instance else "its log"
    if failure.traceback:
        title, excerpt = f"the traceback in {log_title}:", shortened(failure.traceback)
    else:
        title, excerpt = "its last lines:", tail.lines[-_EXCERPT_LINES:]
    if not excerpt or tail.is_printed:
        return []
    causes = [
        f"  in the log of {short_instance(job_id, name)}: {cause}" for name, cause in tail.other_causes.items()
    ]
    return [
        *_lines_before_traceback(failure.traceback, tail.lines),
        f"  {title}",
        *_indented(excerpt),
        *(visible_text(other)[: _MAX_WIDTH + 4] for other in causes[:_MAX_CAUSES]),
    ]


def _lines_before_traceback(traceback: str, lines: Sequence[str]) -> list[str]:
    """Returns the lines before the traceback of a launcher, which the failed program itself printed."""
    if not is_launcher_error(root_cause(traceback)):
        return []
    first_line = traceback.partition("\n")[0]
    at = next((number for number in range(len(lines) - 1, -1, -1) if lines[number] == first_line), 0)
    before = lines[max(0, at - _LAUNCHER_LINES) : at]
    return (
        ["  the lines before the traceback, from the program that was started:", *_indented(before)]
        if before
        else []
    )


def _indented(lines: Iterable[str]) -> list[str]:
    return [f"    {visible_text(line)[:_MAX_WIDTH]}".rstrip() for line in lines]
