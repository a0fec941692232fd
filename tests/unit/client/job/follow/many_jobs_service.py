"""Many jobs on a made-up service, on made-up time. It answers in the place of the transport.

As the service of this package it announces `changes` and holds answers back. As another one it is unlike that: its
list has few fields, no ETag and 100 entries a page at most, lags behind, leaves new jobs out, gives jobs twice or
not at all while they move between its pages, and gives a page again that it has given. A seed decides.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pai_sdk._client.api.responses import ApiResponse as Answer
from pai_sdk._client.api.responses import api_error
from pai_sdk._client.api.training_jobs import TrainingJobs
from pai_sdk._client.backend.base import JobChanges
from pai_sdk._client.backend.service import ServiceBackend
from pai_sdk._client.job.training_job import TrainingJob
from pai_sdk._wire.pai.record import ErrorInfo, JobRecord, LogPage
from pai_sdk._wire.pai.wire import wire_time
from pai_sdk.errors import ConnectionFailedError, PaiError
from tests.support.fake_backend import FakeBackend
from tests.support.simulated_time import SimulatedTime

NOW_S = 1.7e9


@dataclass
class MadeUpJob:
    """A job: when it was created, when it enters each status, and how it ends."""

    id: str
    created_at: float = -10.0
    begins_at: float = 5.0
    ends_at: float = 60.0
    ends_as: str = "Succeed"
    deleted_at: float = float("inf")
    is_ours: bool = True  # of the user who waits
    listed_late_s: float = 0.0

    def status(self, moment: float) -> str:
        if moment >= self.ends_at:
            return self.ends_as
        return "Running" if moment >= self.begins_at else "Submitted"

    def changed_at(self, moment: float) -> float:
        return max(
            at for at in (self.created_at, self.begins_at, self.ends_at) if at <= max(moment, self.created_at)
        )


@dataclass
class ManyJobsService:
    """The service; stands in for the transport.

    Attributes:
        lag_s: the list shows the jobs as they were so long ago.
        shuffled: the share of pages before which a few jobs move to other places.
        repeats: the share of pages that are the one before again.
        counts: whether the list says how many jobs there are.
        tells_times: whether an entry has the time of its last change.
        faults: the share of requests that fail.
        refuses_list: the key may not list jobs.
    """

    clock: SimulatedTime
    dice: random.Random
    jobs: list[MadeUpJob]
    offers_changes: bool = False
    lag_s: float = 0.0
    shuffled: float = 0.0
    repeats: float = 0.0
    counts: bool = True
    tells_times: bool = True
    faults: float = 0.0
    refuses_list: bool = False
    stale_get_s: float = 0.0
    largest_page: int = 100
    asked: list[tuple[float, str, str]] = field(default_factory=list)
    on_call: Callable[[], None] = lambda: None
    _last_page: list[dict[str, Any]] = field(default_factory=list)

    timeout_s = (5.0, 30.0)

    def call(
        self, action: str, method: str, path: str, params: Any = None, query: Any = None, **more: Any
    ) -> Answer:
        self.asked.append((self.clock.time, action, (params or {}).get("training_job_id", "")))
        self.clock.time += self.dice.uniform(0.005, 0.05)
        self.on_call()
        if self.dice.random() < self.faults:
            raise self.dice.choice(FAULTS)()
        if action == "ListTrainingJobs":
            return self._list(query)
        if action == "ListTrainingJobChanges":
            return self._changes(more["body"]["Known"], more.get("headers") or {})
        if action == "GetTrainingJobErrorInfo":
            return Answer({"ErrorInfo": {"Code": "NonZeroExit", "Message": "it broke"}})
        assert action == "GetTrainingJob"
        return self._get(params["training_job_id"])

    def _there(self, job: MadeUpJob) -> bool:
        return job.created_at <= self.clock.time < job.deleted_at

    def _get(self, job_id: str) -> Answer:
        job = next(one for one in self.jobs if one.id == job_id)
        if not self._there(job):
            raise api_error("no such job", code="TRAINING_JOB_NOT_FOUND", status_code=404, request_id="r")
        moment = self.clock.time - self.dice.choice([0.0, self.stale_get_s])
        headers = {"ETag": self._etag(job), "x-pai-offers": "wait, all-instances, changes"}
        return Answer(self._whole(job, moment), headers=headers if self.offers_changes else {})

    def _whole(self, job: MadeUpJob, moment: float) -> dict[str, Any]:
        status = job.status(moment)
        return {
            **self._entry(job, moment),
            "GmtModifiedTime": wire_time(NOW_S + job.changed_at(moment)),
            "Instances": [{"Name": f"{job.id}-master-0", "Status": status}] if status != "Submitted" else [],
            "OutputChannels": [{"Name": "model", "OutputUri": f"oss://b/{job.id}/model/"}],
            "ReasonMessage": "it broke" if status == "Failed" else None,
        }

    def _entry(self, job: MadeUpJob, moment: float) -> dict[str, Any]:
        shown = {
            "TrainingJobId": job.id,
            "TrainingJobName": f"name of {job.id}",
            "Status": job.status(moment),
            "GmtCreateTime": wire_time(NOW_S + job.created_at),
            "Duration": int(moment),
        }
        if self.tells_times:
            shown["GmtModifiedTime"] = wire_time(NOW_S + job.changed_at(moment))
        return shown

    def _list(self, query: Mapping[str, Any]) -> Answer:
        if self.refuses_list:
            raise api_error("not for you", code="NoPermission", status_code=403, request_id="r")
        assert query["StartTime"], "without it, a service shows the last 7 days only"
        moment = self.clock.time - self.lag_s
        there = [job for job in self.jobs if self._there(job) and job.created_at + job.listed_late_s <= moment]
        there = [job for job in there if (wire_time(NOW_S + job.created_at) or "") >= query["StartTime"][:19]]
        there.sort(key=lambda job: job.created_at, reverse=True)
        if self.dice.random() < self.shuffled:
            for _ in range(5 if there else 0):
                there.insert(self.dice.randrange(len(there)), there.pop(self.dice.randrange(len(there))))
        size = min(query["PageSize"], self.largest_page)
        start = (query["PageNumber"] - 1) * size
        page = [self._entry(job, moment) for job in there[start : start + size]]
        if start and self.dice.random() < self.repeats:
            page = self._last_page
        self._last_page = page
        headers = {"x-pai-offers": "changes"} if self.offers_changes else {}
        total = {"TotalCount": str(len(there))} if self.counts else {}
        return Answer({"TrainingJobs": page, **total}, headers=headers)

    def _etag(self, job: MadeUpJob) -> str:
        return f'"{job.status(self.clock.time)}"'

    def _changes(self, known: Mapping[str, str], headers: Mapping[str, str]) -> Answer:
        assert self.offers_changes
        by_id = {job.id: job for job in self.jobs}

        def news() -> list[MadeUpJob]:
            return [
                by_id[one]
                for one, tag in known.items()
                if self._there(by_id[one]) and self._etag(by_id[one]) != tag
            ]

        missing = [one for one in known if not self._there(by_id[one])]
        until = self.clock.time + float(headers.get("Prefer", "wait=0").partition("wait=")[2])
        while not news() and not missing and self.clock.time < until:
            self.clock.time = min(until, self.clock.time + 0.1)
        found = news()
        return Answer(
            {
                "TrainingJobs": [self._whole(job, self.clock.time) for job in found],
                "ETags": {job.id: self._etag(job) for job in found},
                "Missing": missing,
            },
            headers={"x-pai-offers": "wait, all-instances, changes"},
        )

    # ---- what was asked

    def rate(self, begin: float, end: float) -> float:
        """Requests a second in that time."""
        return sum(begin <= at < end for at, _, _ in self.asked) / (end - begin)

    def gets(self) -> Counter[str]:
        return Counter(job_id for _, action, job_id in self.asked if action == "GetTrainingJob")


class ManyJobsBackend(FakeBackend):
    """What the service is asked, as the real backend asks it; the rest is made up."""

    def __init__(self, service: ManyJobsService) -> None:
        super().__init__()
        self.service = service
        self._jobs = TrainingJobs(service)  # type: ignore[arg-type]
        self._settings = Settings()

    changes = ServiceBackend.changes  # type: ignore[assignment]

    def get(self, job_id: str, *, changed_from: JobRecord | None = None, wait_s: float = 0.0) -> JobRecord:
        return self._jobs.get(job_id, changed_from=changed_from, wait_s=wait_s)

    def error_info(self, job_id: str) -> ErrorInfo | None:
        return self._jobs.error_info(job_id)

    def read_log(self, job_id: str, instance: str, *, start: int, limit: int, wait_s: float = 0.0) -> LogPage:
        return LogPage((), complete=True, total=0)

    def stop(self, job_id: str) -> None:
        self.calls.append(f"stop {job_id}")
        job = next(one for one in self.service.jobs if one.id == job_id)
        job.ends_at, job.ends_as = self.service.clock.time + 0.5, "Terminated"

    def handles(self) -> list[TrainingJob]:
        return [TrainingJob(job.id, self) for job in self.service.jobs if job.is_ours]


class Settings:
    workspace_id = "1"


def made_up_jobs(count: int, dice: random.Random, *, others: int = 0, until: float = 600.0) -> Iterator[MadeUpJob]:
    """Jobs that end at different times, and those of other users among them."""
    for number in range(count + others):
        begins_at = dice.uniform(1, until / 4)
        yield MadeUpJob(
            f"train{number:05}",
            created_at=-dice.uniform(10, 3 * 7 * 24 * 3600),  # also before the window of a list
            begins_at=begins_at,
            ends_at=begins_at + dice.uniform(1, until * 3 / 4),
            ends_as=dice.choice(["Succeed", "Succeed", "Failed", "Terminated"]),
            is_ours=number < count,
        )


def _throttled() -> PaiError:
    return api_error("slow", code="Throttling.User", status_code=429, request_id="r", retry_after_s=2.0)


def _reset() -> PaiError:
    return ConnectionFailedError("reset", endpoint="made-up")


FAULTS = (_throttled, _reset)

__all__ = ["JobChanges", "MadeUpJob", "ManyJobsBackend", "ManyJobsService", "made_up_jobs"]
