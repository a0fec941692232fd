"""The logs of jobs of DLC by line numbers."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from pai_sdk._client.api.dlc_jobs import DlcJobs
from pai_sdk._client.backend.dlc.line_spool import LineSpool
from pai_sdk._client.backend.dlc.records import word_of
from pai_sdk._client.backend.dlc.windows import PodWindows
from pai_sdk._wire.dlc.logs import PodLogQuery
from pai_sdk._wire.dlc.records import JobDetail, Pod
from pai_sdk._wire.dlc.status import has_command_ended
from pai_sdk._wire.dlc.times import seconds_of, wire_time
from pai_sdk._wire.pai.record import LogPage
from pai_sdk.errors import NotFoundError

_MAX_LOGS = 64  # of which lines are stored; another one replaces the one that was read longest ago
_BEFORE_THE_JOB_S = 600  # clocks of pods may differ from that of the service
_LATE_PODS = 2  # of a restarted instance: the last pod, and the one before, whose last lines may be late
_LATE_S = 120.0  # earlier pods are read, too, for so long after they were replaced
_CHECK_PODS_S = 15.0

GetDetail = Callable[[str, float], JobDetail]
"""Returns a job; it may be as old as the seconds of the second argument."""


class DlcLogs:
    """Reads logs with GetPodLogs, addressed by line. Thread-safe.

    The lines of an instance are those of its pods, one after the other: a restarted pod has the same id, and
    another uid. A line that was read keeps its number as long as this object lives. Another process that reads the
    log from its beginning counts the same lines in the same order, except for lines that were listed late.
    """

    def __init__(self, jobs: DlcJobs, get_detail: GetDetail, clock: Callable[[], float] = time.time) -> None:
        self._jobs = jobs
        self._get_detail = get_detail
        self._clock = clock
        self._lock = threading.Lock()  # guards the dictionary; each log has a lock of its own
        self._logs: OrderedDict[tuple[str, str], _InstanceLog] = OrderedDict()

    def read(self, job_id: str, instance: str, *, start: int, limit: int, wait_s: float = 0.0) -> LogPage:
        """Reads lines from number `start` on, at most `limit`; the service has no long polls."""
        lines, is_end = self._log_of(job_id, instance).read(start, limit)
        return LogPage(lines, complete=is_end)

    def _log_of(self, job_id: str, instance: str) -> _InstanceLog:
        with self._lock:
            key = (job_id, instance)
            if key not in self._logs:
                # Without a reference to this object: a cycle would keep the sockets of a dropped session open.
                self._logs[key] = _InstanceLog(
                    partial(_pods_of, self._get_detail, job_id, instance),
                    partial(_windows, self._jobs, self._get_detail, self._clock, job_id, instance),
                    self._clock,
                )
                self._remove_oldest()
            self._logs.move_to_end(key)
            return self._logs[key]

    def _remove_oldest(self) -> None:
        for key in [*self._logs][:-1]:
            if len(self._logs) <= _MAX_LOGS:
                return
            # One that is being read stays.
            if self._logs[key].close(blocking=False):
                del self._logs[key]

    def close(self) -> None:
        """Removes all lines."""
        with self._lock:
            logs, self._logs = [*self._logs.values()], OrderedDict()
        for log in logs:
            log.close()


def _pods_of(get_detail: GetDetail, job_id: str, instance: str, max_age_s: float) -> list[Pod]:
    """Returns the pods that an instance had, the oldest first."""
    job = get_detail(job_id, max_age_s)
    pod = next((pod for pod in job.pods if pod.pod_id == instance), None)
    if pod is None:
        # Services may keep the log of a pod that they no longer list.
        return [Pod(pod_id=instance)] if has_command_ended(word_of(job)) else []
    former = sorted(pod.history_pods, key=lambda each: seconds_of(each.gmt_create_time) or 0.0)
    return [*former, pod]


def _windows(
    jobs: DlcJobs,
    get_detail: GetDetail,
    clock: Callable[[], float],
    job_id: str,
    instance: str,
    uid: str | None,
    last: _LastRead,
) -> PodWindows:
    created_s = seconds_of(get_detail(job_id, float("inf")).gmt_create_time)
    start_s = 0 if created_s is None else max(0, int(created_s) - _BEFORE_THE_JOB_S)
    return PodWindows(partial(_fetch, jobs, job_id, instance, uid, last), start_s, clock)


def _fetch(
    jobs: DlcJobs,
    job_id: str,
    instance: str,
    uid: str | None,
    last: _LastRead,
    start_s: int,
    end_s: int | None,
    max_lines: int,
) -> list[str]:
    query = PodLogQuery(max_lines=max_lines, start_time=wire_time(start_s), end_time=wire_time(end_s), pod_uid=uid)
    logs, is_end = jobs.pod_logs_and_end(job_id, instance, query)
    last.is_end = is_end and end_s is None and len(logs.logs) < max_lines
    # A service that ignores the uid returns the lines of another pod.
    is_other = uid is not None and logs.pod_uid not in (None, uid)
    return [] if is_other else logs.logs


@dataclass
class _LastRead:
    """What the last response has said, whichever pod it was of."""

    is_end: bool = False  # the service says that no line will follow


class _InstanceLog:
    """The log of one instance: its lines so far, and the position in the log of each of its pods."""

    def __init__(
        self,
        pods_of: Callable[[float], Sequence[Pod]],
        windows_of: Callable[[str | None, _LastRead], PodWindows],
        clock: Callable[[], float],
    ) -> None:
        self._pods_of = pods_of
        self._windows_of = windows_of
        self._clock = clock
        self._last = _LastRead()
        self._lock = threading.Lock()
        self._lines: LineSpool | None = LineSpool()  # None after `close`
        self._pods: dict[str | None, PodWindows] = {}  # by uid, the oldest first
        self._replaced_s: dict[str | None, float] = {}  # when each of them but the last one was replaced

    def read(self, start: int, limit: int) -> tuple[tuple[str, ...], bool]:
        """Returns lines from number `start` on, and whether none follow; reads those that are not there yet."""
        with self._lock:
            if self._lines is None:  # its place was needed: the log is read from its beginning
                self._lines, self._pods, self._replaced_s = LineSpool(), {}, {}
            while self._lines.count <= start:
                new = self._next_lines()
                if not new:
                    break
                self._lines.append(new)
            lines = self._lines.lines(start, limit)
            return lines, self._last.is_end and start + len(lines) >= self._lines.count

    def _read_pods(self) -> list[PodWindows]:
        """Returns the pods that may have more lines, the oldest first."""
        since_s, last = self._clock() - _LATE_S, [*self._pods][-_LATE_PODS:]
        return [windows for uid, windows in self._pods.items() if uid in last or self._replaced_s[uid] >= since_s]

    def _next_lines(self) -> list[str]:
        while True:
            for windows in self._read_pods():
                if new := self._new_lines_of(windows):
                    return new
            # A pod that was replaced writes no lines, so the pods are checked only where there are none.
            if not self._add_next_pod():
                return []

    def _new_lines_of(self, windows: PodWindows) -> list[str]:
        try:
            return windows.read()
        except NotFoundError:
            if len(self._pods) == 1 and not windows.has_lines:
                raise  # there is no log yet, or no longer
            return []  # the log of a former pod has been removed

    def _add_next_pod(self) -> bool:
        """Adds the next pod of the instance; returns False if there is none."""
        for pod in self._pods_of(_CHECK_PODS_S):
            # Without a uid, the service returns the log of the pods that are read already.
            is_new = not self._pods if pod.pod_uid is None else pod.pod_uid not in self._pods
            if is_new and None not in self._pods:
                if self._pods:
                    self._replaced_s[[*self._pods][-1]] = seconds_of(pod.gmt_create_time) or self._clock()
                self._pods[pod.pod_uid] = self._windows_of(pod.pod_uid, self._last)
                return True
        return False

    def close(self, *, blocking: bool = True) -> bool:
        """Removes the lines; returns False if another thread reads them."""
        if not self._lock.acquire(blocking=blocking):
            return False
        try:
            if self._lines is not None:
                self._lines.close()
                self._lines = None
            return True
        finally:
            self._lock.release()
