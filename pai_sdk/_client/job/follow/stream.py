"""The log of a job as records: every line once, in order per instance, also across errors."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Mapping, Sequence
from contextlib import aclosing, closing
from dataclasses import replace
from datetime import datetime, timezone
from functools import partial

from pai_sdk._client.backend.base import Backend
from pai_sdk._client.job.follow.follower import Follower, LogError, Update
from pai_sdk._client.job.follow.polling import FollowPolicy
from pai_sdk._client.job.follow.read_pace import PAGE_LINES
from pai_sdk._client.job.follow.updates import ask
from pai_sdk._core.names.hints import wrong_type, wrong_value
from pai_sdk._core.short_traceback import short_tracebacks
from pai_sdk._wire.pai.record import JobRecord, LogLine, LogPage
from pai_sdk._wire.pai.wire import seconds_of
from pai_sdk.errors import InvalidInputError, Problem


@short_tracebacks
class LogStream:
    """The lines of a job, as an iterator; with `follow`, until the job has ended and its last line is there.

    `for` and `async for` give the same lines; in the second case no thread waits.

    The stream remembers its place per instance (`cursor`): a new stream that starts there continues without a gap
    or a repeat, in this process or another.

    Example:
        >>> from pai_sdk import TrainingJob
        >>> def errors(job: TrainingJob) -> list[str]:
        ...     return [line.text for line in job.logs() if "ERROR" in line.text]
    """

    def __init__(
        self,
        backend: Backend,
        job_id: str,
        *,
        follow: bool = False,
        instance: str | None = None,
        start: Mapping[str, int] | None = None,
        tail: int | None = None,
        since: datetime | None = None,
        times: bool = False,
        policy: FollowPolicy | None = None,
    ) -> None:
        """Prepare a stream; nothing is read before the first iteration.

        Args:
            backend: who keeps the log.
            job_id: whose log.
            follow: continue until the job has ended, instead of stopping at the last line written so far.
            instance: only this instance's lines; all of them otherwise.
            start: the number of the first line wanted, per instance, by its full name or its ending; 0 where
                it is not in `start`.
            tail: begin with this number of last lines of each instance that is listed now and has no `start`.
            since: begin with the first line of each such instance that was written then or later; in UTC without a
                zone.
            times: read when each line was written, too.
            policy: the polling intervals.
        """
        if tail is not None and (not isinstance(tail, int) or isinstance(tail, bool) or tail < 0):
            raise InvalidInputError([wrong_value("tail", tail, "an integer (minimum 0)")])
        if since is not None and not isinstance(since, datetime):
            raise InvalidInputError([wrong_type("since", since, "a datetime, in UTC or with a zone")])
        if start is not None and not isinstance(start, Mapping):
            expected = "a mapping of instances to line numbers"
            raise InvalidInputError([wrong_type("start", start, expected, "as in `cursor`")])
        wrong = [
            wrong_value(f"start[{name!r}]", line, "an integer (minimum 0)")
            for name, line in (start or {}).items()
            if not isinstance(line, int) or line < 0
        ]
        if wrong:
            raise InvalidInputError(wrong)
        self.cursor: dict[str, int] = dict(start or {})
        self._backend = backend
        self._job_id = job_id
        self._follow = follow
        self._instance = instance
        self._tail = tail
        self._since = since if since is None or since.tzinfo else since.replace(tzinfo=timezone.utc)
        self._times = times
        self._policy = policy or FollowPolicy()

    def __repr__(self) -> str:
        return f"<LogStream of {self._job_id}; for line in stream: print(line.text)>"

    def __iter__(self) -> Iterator[LogLine]:
        for update in self.updates():
            if isinstance(update, LogLine):
                yield update

    def updates(self, *, deadline: float | None = None) -> Iterator[LogLine | JobRecord]:
        """The lines, and between them a snapshot of the job whenever it has changed.

        Args:
            deadline: when to stop following, on the clock of `time.monotonic()`.
        """
        self._find_start()
        with closing(self._source(deadline)) as source:
            for update in source:
                yield from self._deliver(self._timed(update))

    async def __aiter__(self) -> AsyncGenerator[LogLine, None]:
        endpoint = self._backend.endpoint
        if self._tail is not None or self._since is not None:
            await ask(self._find_start, endpoint, self._policy)
        async with aclosing(self._source_async()) as source:
            async for update in source:
                if self._times:
                    update = await ask(partial(self._timed, update), endpoint, self._policy)
                for item in self._deliver(update):
                    if isinstance(item, LogLine):
                        yield item

    def _deliver(self, update: Update) -> Iterator[LogLine | JobRecord]:
        if isinstance(update, LogError):
            raise update.error
        if isinstance(update, JobRecord):
            yield update
            return
        for line in update:
            self.cursor[line.instance] = line.next_number
            yield line

    def _find_start(self) -> None:
        """Sets the cursor of instances without one to the later line of `tail` and `since`."""
        if self._tail is None and self._since is None:
            return
        for instance in self._selected_instances(self._backend.get(self._job_id)):
            if instance not in self.cursor:
                count = self._count(instance)
                first = 0 if self._since is None else self._first_since(instance, count, self._since.timestamp())
                self.cursor[instance] = max(first, 0 if self._tail is None else count - self._tail)
        self._tail = self._since = None

    def _first_since(self, instance: str, count: int, moment: float) -> int:
        """Returns the number of the first line written at `moment` or later, by a binary search."""

        def is_late(number: int) -> bool:
            (time,) = self._times_of(instance, number, 1)
            written = seconds_of(time)
            # None: the time of a line that was just written may not be stored yet.
            return written is None or written >= moment

        return bisect_left(range(count), True, key=is_late)

    def _timed(self, update: Update) -> Update:
        return [*self._with_times(update)] if self._times and isinstance(update, list) else update

    def _with_times(self, lines: Sequence[LogLine]) -> Iterator[LogLine]:
        """Yields consecutive lines of one instance with their times."""
        if not lines:
            return
        first = lines[0]
        for line, time in zip(lines, self._times_of(first.instance, first.number, len(lines)), strict=True):
            yield replace(line, written_at=time)

    def _times_of(self, instance: str, start: int, count: int) -> Sequence[str | None]:
        """Returns the times of lines; None for a line without a time."""
        times = self._backend.line_times(self._job_id, instance, start=start, count=count)
        if times is None:  # the backend does not record the times of lines
            hint = "only services of pai-sdk and local jobs do; read the log without times"
            raise InvalidInputError([Problem("times", "this service does not say when a line was written", hint)])
        return [*times[:count], *[None] * (count - len(times))]

    def _count(self, instance: str) -> int:
        """Returns the current number of lines; the log is read to its end if the service does not report it."""
        page = self._backend.read_log(self._job_id, instance, start=0, limit=1)
        if page.total is not None:
            return page.total
        count = 0
        while page.lines:
            page = self._backend.read_log(self._job_id, instance, start=count, limit=PAGE_LINES)
            count += len(page.lines)
        return count

    def _existing_lines(self) -> Callable[[], Update | None]:
        """Returns a function that returns the job, then the pages of its log, and None at the end."""
        # The state changes only after a successful request, so `ask` can repeat a failed call.
        record: JobRecord | None = None
        unread: deque[str] = deque()

        def read_next() -> Update | None:
            nonlocal record
            if record is None:
                record = self._backend.get(self._job_id)
                unread.extend(self._selected_instances(record))
                return record
            while unread:
                instance = unread[0]
                start = self.cursor.get(instance, 0)
                page = self._backend.read_log(self._job_id, instance, start=start, limit=PAGE_LINES)
                if not page.lines and not page.unsure:
                    unread.popleft()
                if lines := self._lines_of(page, record, instance, start):
                    return lines
            return None

        return read_next

    def _lines_of(self, page: LogPage, record: JobRecord, instance: str, start: int) -> list[LogLine]:
        """Returns the lines of a page; at the end of a finished job, a notice if lines are missing."""
        if page.lines or page.unsure or not record.status.is_terminal:
            return page.numbered(instance, start)
        return page.missing_at_end(instance, start)

    def _source(self, deadline: float | None) -> Generator[Update, None, None]:
        if not self._follow:
            read_next = self._existing_lines()
            while (update := read_next()) is not None:
                yield update
            return
        with closing(self._follower()) as follower:
            yield from follower.updates(deadline=deadline)

    async def _source_async(self) -> AsyncGenerator[Update, None]:
        if not self._follow:
            read_next = self._existing_lines()
            while (update := await ask(read_next, self._backend.endpoint, self._policy)) is not None:
                yield update
            return
        with closing(self._follower()) as follower:
            async for update in follower.updates_async():
                yield update

    def _follower(self) -> Follower:
        return Follower(self._backend, self._job_id, self._selected_instances, self.cursor, self._policy)

    def _selected_instances(self, record: JobRecord) -> list[str]:
        names = record.instance_names
        self._expand_cursor(names)
        # While a job starts, and shortly after its end, an instance may not be listed yet.
        is_list_complete = record.status.is_terminal and not record.may_list_more
        must_exist = bool(names) and (is_list_complete or not self._follow)
        return select_instances(self._instance, self._job_id, names, must_exist=must_exist)

    def _expand_cursor(self, names: list[str]) -> None:
        # Users may name an instance by its suffix; the keys of `cursor` become full names.
        for short_name in [*self.cursor]:
            full = next((name for name in names if name.endswith(f"-{short_name}")), None)
            if full is not None and short_name not in names:
                self.cursor.setdefault(full, self.cursor.pop(short_name))


def select_instances(name: str | None, job_id: str, names: list[str], *, must_exist: bool = True) -> list[str]:
    """Returns the instances with this full name or suffix (`worker-1`), all for None; raises InvalidInputError."""
    matches = [each for each in names if name is None or each == name or each.endswith(f"-{name}")]
    if must_exist and not matches:
        available = ", ".join(each.removeprefix(f"{job_id}-") for each in names)
        message = f"{name!r} is not an instance of this job"
        raise InvalidInputError([Problem("instance", message, f"it has {available}")])
    return matches
