"""Decides when the log of an instance is read again, and when it is complete."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from pai_sdk._client.job.follow.polling import FIRST_PAUSE_S, FollowPolicy, PollState, may_appear_later
from pai_sdk._wire.pai.record import JobRecord, LogPage
from pai_sdk._wire.pai.status import JobStatus
from pai_sdk.errors import PaiError

# Not in a line of metrics, such as "val_error: 0.25".
_REASON = re.compile(
    r"^\s*(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt)(?::\s|\s*$)"
    r"|^.{0,80}\b(?i:fatal|panic|error)\b\s*[:\]](?!\s*[-+.\d])"
    r"|(?i:\bsegmentation fault|\bcore dumped|\bbus error|\billegal instruction|\bout of memory"
    r"|\bcommand not found|: not found$|\bno such file or directory|\bpermission denied|^\s*killed\s*$)"
)
_LINE_START = 500  # characters of a line that are searched


def shows_reason(lines: Iterable[str]) -> bool:
    """Returns whether the last lines of a log show why a program failed: an exception, an error, a crash."""
    # A traceback without its last line shows no reason yet: that line is still to come.
    return any(_REASON.search(line[:_LINE_START]) for line in lines)


PAGE_LINES = 10_000
REASON_LINES = 50
_BATCH_DELAY_S = 0.02  # lines that are printed faster than this are read by one request


@dataclass
class LogReader:
    """The reading of one instance's log."""

    instance: str
    next_line: int
    poll: PollState
    quiet_since: float | None = None
    lines_at: float | None = None  # when the last lines arrived
    line_s: float = 0.0  # average seconds between the lines of the last page
    last: deque[str] = field(default_factory=lambda: deque(maxlen=REASON_LINES))
    generation: int = 0  # of the scheduled step; steps of an older generation do nothing
    is_paused: bool = False


class PageRead(NamedTuple):
    """A page of a log, and how it was requested."""

    page: LogPage
    requested_at: float
    wait_s: float  # requested for a long poll; 0 without
    has_waited: bool  # the service has held the response


class ReadPace:
    """The pace at which the logs of one job are read, by the time between lines and since the end of the job.

    It makes no requests and has no lock: the follower calls it with its own lock held, but for `read_of` and
    `may_appear_later`, for which a stale value costs one more request.
    """

    def __init__(self, policy: FollowPolicy) -> None:
        self.ended_at: float | None = None  # of the job
        self.gave_up = False  # a log was considered complete although it shows no reason
        self._policy = policy
        self._now = policy.schedule.now
        self._supports_long_polls = True  # until the backend shows that it does not support long polls

    @property
    def has_ended(self) -> bool:
        """Returns whether the job has finished."""
        return self.ended_at is not None

    def may_appear_later(self, error: PaiError) -> bool:
        """Returns whether the log may appear later: some services list an instance before its log exists."""
        max_delay_s = max(self._policy.quiet_s, self._policy.failed_quiet_s)
        is_early = self.ended_at is None or self._now() - self.ended_at < max_delay_s
        return is_early and may_appear_later(error)

    def read_of(self, page: LogPage, requested_at: float, wait_s: float) -> PageRead:
        """Returns a page that has just arrived, with its request; records if the backend supports long polls."""
        if page.lines and wait_s > 0:
            self._supports_long_polls = page.waited
        is_late = self._now() - requested_at > min(FIRST_PAUSE_S, self._policy.pause_s)
        return PageRead(page, requested_at, wait_s, page.waited and is_late)

    def record_lines(self, reader: LogReader, count: int) -> None:
        """Records that lines have arrived."""
        now = self._now()
        if reader.lines_at is not None:
            reader.line_s = (now - reader.lines_at) / count
        reader.lines_at, reader.quiet_since = now, None

    def next_read_delay_s(
        self, reader: LogReader, read: PageRead, record: JobRecord | None, readers: Collection[LogReader]
    ) -> float | None:
        """Returns seconds until the next read of the instance; None when its log is complete.

        `record` is the last snapshot of the job, `readers` are those of all its instances.
        """
        page = read.page
        if page.complete:
            return None
        has_more = page.total is not None and reader.next_line < page.total  # a service may grant short pages
        if read.has_waited or len(page.lines) >= PAGE_LINES or (page.lines and has_more):
            return 0.0
        if not self.has_ended:
            return self._running_delay_s(reader, read, record)
        if reader.quiet_since is None:
            reader.quiet_since = self._now()
        # Compared with the time of the request, not of the response: a slow response shows an older log.
        quiet_s = self._required_quiet_s(reader, record, readers)
        needed_s = max(quiet_s, self._policy.failed_quiet_s) if has_more else quiet_s  # lines may be late
        if page.unsure:  # the service may hide lines, and they are being searched for
            needed_s = max(needed_s, self._policy.patience_s)
        if not page.lines and read.requested_at - reader.quiet_since >= needed_s:
            self.gave_up |= quiet_s > self._policy.quiet_s
            return None
        if page.unsure:
            return min(FIRST_PAUSE_S, self._policy.pause_s)
        return min(self._policy.pause_s, self._policy.quiet_s / 3)

    def _running_delay_s(self, reader: LogReader, read: PageRead, record: JobRecord | None) -> float:
        page = read.page
        if page.waited and page.lines and read.wait_s > 0:
            return _BATCH_DELAY_S
        is_cheap = self._supports_long_polls and (record is None or record.source.lists_all)
        # An instance that prints one line a second is read once a second.
        next_line_in_s = 0.0 if reader.lines_at is None else reader.lines_at + reader.line_s - self._now()
        pause_s = reader.poll.pause_s(has_news=bool(page.lines), is_cheap=is_cheap, expected_s=next_line_in_s)
        return max(pause_s, record.source.log_pause_s if record is not None else 0.0)

    def _required_quiet_s(
        self, reader: LogReader, record: JobRecord | None, readers: Collection[LogReader]
    ) -> float:
        """Returns for how long the log must be quiet after the end; longer for a failure without a reason."""
        if record is None or not (record.status == JobStatus.FAILED or record.status.is_unknown_end):
            return self._policy.quiet_s
        instances = record.instances
        failed_names = {item.name for item in instances if item.status and JobStatus(item.status).is_failure}
        # Without the instances' statuses, the reason may be in any log.
        suspects = [other for other in readers if other.instance in failed_names or not failed_names]
        if reader not in suspects or any(shows_reason(suspect.last) for suspect in suspects):
            return self._policy.quiet_s
        return max(self._policy.quiet_s, self._policy.failed_quiet_s)
