"""Explains why a job of the service failed: cause, advice, traceback, last lines."""

from __future__ import annotations

import re

from pai_sdk._core.reasons import split_advice
from pai_sdk._data.logs.advice import log_advice
from pai_sdk._data.logs.headline import cause_in, headline
from pai_sdk._data.logs.tracebacks import find_traceback, shortened
from pai_sdk._service.services.context import ServiceContext
from pai_sdk._service.services.runs.list_responses import plain
from pai_sdk._service.state.models import Job
from pai_sdk._service.wire_errors import WireError
from pai_sdk._wire.requests import RecordedRequest
from pai_sdk._wire.run_jobs import JobFailure

_TAIL_LINES = 400
_TAIL_LINES_IN_RESPONSE = 40
_MAX_TRACEBACK = 20_000
_DECORATION = re.compile(r"\x1b\[[0-9;:?]*[A-Za-z]|^\[[^\]]*\]: ?")  # colours, and the prefix of a rank


def job_failure(context: ServiceContext, job: Job) -> JobFailure:
    """Returns the reason of a failure: the exception in the log of the job, else the reason that was recorded."""
    try:
        page = context.logs.open(job, job.failed_instance).page(-_TAIL_LINES, _TAIL_LINES)
        lines = [line.text for line in page.lines()]
    except WireError:  # the job has no log
        lines = []
    traceback = find_traceback(lines)
    cause = cause_in(traceback, lines)
    message, advice_of_reason = split_advice(job.reason_message or "")
    title, explanation = headline(cause, job.reason_code, message, job.failed_instance, job.exit_code)
    if not explanation and title == message:
        title, separator, explanation = message.partition(". ")
        title += separator.strip()
    advice = log_advice(cause, lines, RecordedRequest.model_validate(job.request), message)
    return JobFailure(
        cause=title,
        explanation=" ".join(filter(None, (explanation, "" if title == cause else cause))),
        advice=sentence(advice) or advice_of_reason,
        code=job.reason_code,
        exit_code=job.exit_code,
        instance=job.failed_instance,
        last_lines=_without_traceback(lines, traceback)[-_TAIL_LINES_IN_RESPONSE:],
        traceback=(traceback if len(traceback) <= _MAX_TRACEBACK else _shortened(traceback)) or None,
    )


def sentence(advice: str) -> str:
    """Returns advice as a sentence; a question stays one."""
    return f"{advice[:1].upper()}{advice[1:]}{'.' if advice and advice[-1] != '?' else ''}"


def _without_traceback(lines: list[str], traceback: str) -> list[str]:
    """Returns the last lines of a log without those of its traceback, which is sent once."""
    repeated = {line.strip() for line in traceback.splitlines()} - {""}
    remaining = [line for line in lines if _DECORATION.sub("", line).strip() not in repeated]
    while remaining and not remaining[-1].strip():
        remaining.pop()
    return remaining


def _shortened(traceback: str) -> str:
    return "\n".join(plain(line) for line in shortened(traceback))
