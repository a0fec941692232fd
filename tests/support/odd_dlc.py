"""A DLC in memory that is unlike ours: its reads lag, its lists lag, it loses responses, and its codes vary."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pai_sdk._client.api.dlc_jobs import ItemPage
from pai_sdk._client.api.responses import api_error
from pai_sdk._wire.dlc.jobs import JobQuery, JobReference, JobUpdate, NewJob
from pai_sdk._wire.dlc.logs import EventQuery, PodLogQuery, PodLogs
from pai_sdk._wire.dlc.metrics import JobMetrics, JobMetricsQuery
from pai_sdk._wire.dlc.names import new_job_id
from pai_sdk._wire.dlc.records import JobDetail, JobItem
from pai_sdk._wire.dlc.times import seconds_of, wire_time
from pai_sdk.errors import ConnectionFailedError, PaiError

START_S = 1_790_000_000.0


@dataclass
class Habits:
    """What no source says about the service, and what networks do to it."""

    keeps_first: bool = False  # of more lines than MaxLines
    includes_start: bool = True
    includes_end: bool = True
    max_lines: int = 2000  # the most that it returns, whatever is asked
    accepted_lines: int = 1_000_000  # more are refused
    lag_s: float = 0.0  # a line is listed so long after it was written, at most
    stale_s: float = 0.0  # a response shows a state that is as old as this, at most
    names_uid: bool = True
    retention_s: float = 1e9
    faults: float = 0.0  # how often a call fails, from 0 to 1
    lost: float = 0.0  # how often the response of a create is lost
    list_lag_s: float = 0.0  # a job is listed so long after it was created
    details_in_lists: bool = True
    request_s: float = 0.5  # how long a request takes

    @classmethod
    def of(cls, seed: int) -> Habits:
        """Habits by chance."""
        chance = random.Random(seed)
        return cls(
            keeps_first=chance.random() < 0.5,
            includes_start=chance.random() < 0.7,
            includes_end=chance.random() < 0.7,
            lag_s=chance.choice([0.0, 0.0, 5.0, 40.0]),
            stale_s=chance.choice([0.0, 3.0, 20.0]),
            names_uid=chance.random() < 0.7,
            retention_s=chance.choice([1e9, 1200.0]),
            faults=chance.choice([0.0, 0.1]),
            lost=chance.choice([0.0, 0.5, 1.0]),
            list_lag_s=chance.choice([0.0, 10.0, 50.0]),
            details_in_lists=chance.random() < 0.5,
        )


@dataclass
class FakePod:
    """A pod, and its lines with the times at which they are written."""

    uid: str
    created_s: float
    lines: list[tuple[float, float, str]] = field(default_factory=list)  # written, listed, text

    def write(self, lines: Sequence[tuple[float, str]], lag_s: float, chance: random.Random) -> None:
        """Adds lines; each is listed late, in the order in which they were written."""
        listed = max((each[1] for each in self.lines), default=0.0)
        for written, text in lines:
            listed = max(listed, written + chance.uniform(0, lag_s))
            self.lines.append((written, listed, text))


class FakeDlc:
    """The actions of `DlcJobs`, in simulated time."""

    def __init__(self, habits: Habits | None = None, seed: int = 0) -> None:
        self.habits = habits or Habits()
        self.chance = random.Random(seed)
        self.now_s = START_S
        self.jobs: dict[str, dict[str, Any]] = {}
        self.created_s: dict[str, float] = {}
        self.pods: dict[str, list[FakePod]] = {}  # by pod id, the oldest first
        self.calls: list[str] = []
        self.refuses_stop_with: tuple[int, str] = (400, "BadRequest")

    def clock(self) -> float:
        """Returns the time, in seconds since 1970."""
        return self.now_s

    def sleep(self, seconds: float) -> None:
        """Lets time pass."""
        self.now_s += seconds

    def max_age_s(self) -> float:
        """Returns how old the state is that a response shows, at most."""
        return self.habits.stale_s

    def _request(self, name: str) -> None:
        self.calls.append(name)
        self.now_s += self.habits.request_s * self.chance.random()
        if self.chance.random() < self.habits.faults:
            raise self._fault(name)

    def _fault(self, name: str) -> PaiError:
        return self.chance.choice(
            [
                ConnectionFailedError(f"{name}: reset", endpoint="fake", maybe_arrived=False),
                api_error("slow down", code="Throttling.User", status_code=429, request_id="r"),
                api_error("busy", code="ServiceUnavailable", status_code=503, request_id="r"),
            ]
        )

    # ---- jobs

    def create_once(
        self, body: NewJob | Mapping[str, Any], *, response_timeout_s: float | None = None
    ) -> JobReference:
        """Creates a job; the response may be lost."""
        self._request("CreateJob")
        job_id = self.add(body.to_wire() if isinstance(body, NewJob) else dict(body))
        if self.chance.random() < self.habits.lost:
            raise ConnectionFailedError("CreateJob: no response", endpoint="fake", maybe_arrived=True)
        return JobReference(job_id=job_id)

    def add(self, body: dict[str, Any], **state: Any) -> str:
        """Adds a job without a request."""
        job_id = new_job_id()
        self.created_s[job_id] = self.now_s
        self.jobs[job_id] = {
            **body,
            "JobId": job_id,
            "Status": "Creating",
            "GmtCreateTime": wire_time(self.now_s),
            **state,
        }
        return job_id

    def _job(self, job_id: str) -> dict[str, Any]:
        if job_id not in self.jobs:
            raise api_error("no such job", code="NotFound", status_code=404, request_id="r")
        return self.jobs[job_id]

    def get(self, job_id: str) -> JobDetail:
        """Returns a job with the pods that exist."""
        self._request("GetJob")
        job, pods = self._job(job_id), []
        for pod_id, all_pods in self.pods.items():
            existing = [pod for pod in all_pods if pod.created_s <= self.now_s]
            if pod_id.startswith(f"{job_id}-") and existing:
                *former, last = [
                    {
                        "PodId": pod_id,
                        "PodUid": pod.uid,
                        "GmtCreateTime": wire_time(pod.created_s),
                        "Type": "master",
                    }
                    for pod in existing
                ]
                pods.append({**last, "Status": "Running", "HistoryPods": former[::-1]})
        return JobDetail.model_validate({**job, "Pods": pods} if pods else job)

    def list(self, query: JobQuery | None = None, *, page_size: int = 2, skip: int = 0) -> Iterator[JobItem]:
        """Yields jobs, the newest first, by small pages."""
        for number in range(1, 1000):
            page = self.list_page(number, query, page_size=page_size)
            yield from page.items
            if len(page.items) < page_size:
                return

    def list_page(self, number: int, query: JobQuery | None = None, *, page_size: int = 100) -> ItemPage:
        """Returns a page of the jobs that are listed already."""
        self._request("ListJobs")
        query = query or JobQuery()
        since_s = seconds_of(query.start_time) or self.now_s - 7 * 86400
        listed = [
            job
            for job_id, job in reversed(self.jobs.items())
            if self.created_s[job_id] + self.habits.list_lag_s <= self.now_s
            and self.created_s[job_id] >= since_s
            and (query.display_name or "").lower() in str(job.get("DisplayName", "")).lower()
            and query.status in (None, job["Status"])
        ]
        hidden = () if self.habits.details_in_lists else ("Settings", "Envs", "DataSources", "UserCommand")
        items = [
            JobItem.model_validate({key: value for key, value in job.items() if key not in hidden})
            for job in listed
        ]
        return ItemPage(items[page_size * (number - 1) : page_size * number], len(items))

    def update(self, job_id: str, body: JobUpdate) -> None:
        """Changes the priority where the service does so; otherwise it responds with success too."""
        self._request("UpdateJob")
        job = self._job(job_id)
        if job.get("ResourceId") or job["Status"] in ("Creating", "Queuing", "EnvPreparing"):
            job.update(body.to_wire())

    def stop(self, job_id: str) -> None:
        """Stops a job that has not ended."""
        self._request("StopJob")
        job = self._job(job_id)
        if job.get("GmtFinishTime") or job["Status"] in ("Succeeded", "Failed", "Stopped"):
            status, code = self.refuses_stop_with
            message = f"Job can't be stopped, because it is {job['Status']}"
            raise api_error(message, code=code, status_code=status, request_id="r")
        job.update(Status="Stopped", ReasonCode="StoppedByUser", GmtFinishTime=wire_time(self.now_s))

    def delete(self, job_id: str) -> None:
        """Deletes a job."""
        self._request("DeleteJob")
        self._job(job_id)
        del self.jobs[job_id]

    # ---- logs, events, metrics

    def pod_logs_and_end(self, job_id: str, pod_id: str, query: PodLogQuery | None = None) -> tuple[PodLogs, bool]:
        return self.pod_logs(job_id, pod_id, query), False

    def pod_logs(self, job_id: str, pod_id: str, query: PodLogQuery | None = None) -> PodLogs:
        """Returns the lines of a window."""
        self._request("GetPodLogs")
        query = query or PodLogQuery()
        all_pods = [pod for pod in self.pods.get(pod_id, ()) if pod.created_s <= self.now_s]
        pods = [pod for pod in all_pods if query.pod_uid in (None, pod.uid)]
        if not pods:
            raise api_error("no such pod", code="PodNotFound", status_code=404, request_id="r")
        if (query.max_lines or 0) > self.habits.accepted_lines:
            raise api_error("MaxLines", code="InvalidParameter", status_code=400, request_id="r")
        lines = self._window(pods[-1], query)
        limit = min(query.max_lines or 2000, self.habits.max_lines)
        kept = lines[:limit] if self.habits.keeps_first else lines[-limit:]
        return PodLogs(pod_id=pod_id, pod_uid=pods[-1].uid if self.habits.names_uid else None, logs=[*kept])

    def _window(self, pod: FakePod, query: PodLogQuery) -> Sequence[str]:
        state_s = self.now_s - self.chance.uniform(0, self.max_age_s())
        start_s = seconds_of(query.start_time) or self.now_s - 7 * 86400
        end_s = seconds_of(query.end_time) or self.now_s
        start_s = max(start_s, self.now_s - self.habits.retention_s)
        return [
            text
            for written, listed, text in pod.lines
            if listed <= state_s
            and (start_s <= int(written) if self.habits.includes_start else start_s < int(written))
            and (int(written) <= end_s if self.habits.includes_end else int(written) < end_s)
        ]

    def pod_events(self, job_id: str, pod_id: str, query: EventQuery | None = None) -> Sequence[str]:
        """Returns an event."""
        self._request("GetPodEvents")
        return [f"{pod_id} was scheduled"]

    def events(self, job_id: str, query: EventQuery | None = None) -> Sequence[str]:
        """Returns an event."""
        self._request("GetJobEvents")
        return ["the job was queued"]

    def metrics(self, job_id: str, query: JobMetricsQuery) -> JobMetrics:
        """Returns one value for each pod."""
        self._request("GetJobMetrics")
        values = [{"PodId": pod_id, "Metrics": [{"Time": 1, "Value": 12.5}]} for pod_id in self.pods]
        return JobMetrics.model_validate({"PodMetrics": values})
