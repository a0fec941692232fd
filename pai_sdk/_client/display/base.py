"""The protocol of a job's display; the text and the output of a cell that all displays use."""

from __future__ import annotations

import time
from typing import Any, Protocol

from pai_sdk._data.rules.rules import RULE_CODES
from pai_sdk._wire.pai.record import JobRecord, LogLine
from pai_sdk._wire.pai.status import JobStatus
from pai_sdk._wire.pai.wire import seconds_of


class Display(Protocol):
    """Displays a job while a program waits for it. Order of calls: `submitted`, changes, `ended` or `detached`."""

    def submitted(self, record: JobRecord) -> None:
        """Called when the job exists."""
        ...

    def changed(self, record: JobRecord) -> None:
        """Called with a new snapshot."""
        ...

    def line(self, line: LogLine) -> None:
        """Called with a line of the log."""
        ...

    def notice(self, text: str) -> None:
        """Called with a notice that does not end the wait, such as an unreachable log."""
        ...

    def detached(self, record: JobRecord) -> None:
        """Called when the wait is over and the job is still running."""
        ...

    def ended(self, record: JobRecord) -> None:
        """Called when the job has finished, with any outcome."""
        ...


class Silent:
    """A display without output."""

    def _nothing(self, _: object) -> None:
        """Shows nothing."""

    submitted = changed = line = notice = detached = ended = _nothing


def short_instance(job_id: str, instance: str) -> str:
    """Returns the name without the id of the job: `master-0` of `train129f212o89d-master-0`."""
    return instance.removeprefix(f"{job_id}-")


def duration_text(seconds: float) -> str:
    """Formats a duration: `4s`, `3m12s`, `2h02m`."""
    total = int(seconds)
    if total < 60:
        return f"{total}s"
    if total < 3600:
        return f"{total // 60}m{total % 60:02d}s"
    return f"{total // 3600}h{total % 3600 // 60:02d}m"


def elapsed_s(record: JobRecord) -> float | None:
    """Returns the seconds since the job was created, or its duration; None if the service reports neither."""
    if record.status.is_terminal and record.duration is not None:
        return float(record.duration)
    created = seconds_of(record.gmt_create_time)
    return None if created is None else max(0.0, time.time() - created)


def finding_text(record: JobRecord) -> str:
    """Returns what a rule of the service detects in a running job; empty if there is nothing."""
    # A service of Alibaba Cloud may give a running job another reason.
    is_open = record.status == JobStatus.RUNNING and record.reason_code in RULE_CODES
    return f"{record.reason_code}: {record.reason_message}" if is_open else ""


class CellOutput:
    """One output of the cell in which it was displayed first."""

    def __init__(self) -> None:
        self._handle: Any = None  # IPython's DisplayHandle, which has no types

    def show(self, content: object) -> None:
        """Displays a value, in place of the previous one."""
        from IPython.display import display

        if self._handle is None:
            self._handle = display(content, display_id=True)  # type: ignore[no-untyped-call]
        else:
            self._handle.update(content)

    def show_html(self, html: str) -> None:
        """Displays HTML, in place of the previous content."""
        from IPython.display import HTML

        self.show(HTML(html))  # type: ignore[no-untyped-call]
