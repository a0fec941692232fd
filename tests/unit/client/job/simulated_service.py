"""One job on a service that is made up, from its first request to its last, on made-up time.

It answers in the place of the transport: as Alibaba Cloud's does (pages by number, nothing held back, nothing said
of a log's end), or as the service of this package. The first behaves unlike the second: it has ETags of its own,
refuses a log that is not there yet with codes of its own, and is late with the lines that tell why a job failed.
What goes wrong on the way, and when, is drawn from a seed.
"""

from __future__ import annotations

import random
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from email.utils import formatdate
from operator import itemgetter
from typing import Any

from pai_sdk._client.api.job_logs import JobLogs
from pai_sdk._client.api.responses import ApiResponse as Answer
from pai_sdk._client.api.responses import api_error
from pai_sdk._client.api.training_jobs import TrainingJobs
from pai_sdk._wire.pai.record import ErrorInfo, JobRecord, LogPage
from pai_sdk.errors import ConnectionFailedError, InvalidResponseError, PaiError
from tests.support.fake_backend import FakeBackend
from tests.support.simulated_time import SimulatedTime

__all__ = ["Instance", "SimulatedBackend", "SimulatedService", "draw"]

JOB = "train1"
NOT_YET = [("TRAINING_JOB_INSTANCE_NOT_FOUND", 404), ("LogStoreNotExist", 404), ("InvalidInstance.NotReady", 400)]
_at = itemgetter(0)
_EPOCH = 1_767_225_607  # the beginning of simulated time, for those who tell the time
TRACEBACK = ["Traceback (most recent call last):", '  File "train.py", line 3', "ValueError: no column 'age'"]


@dataclass
class Instance:
    """One worker: when the service lists it, when it has a log, and which line can be seen from when on.

    That the job has ended may be known before it is listed.
    """

    name: str
    listed_at: float = 0.0
    log_from: float = 0.0
    lines: list[tuple[float, str]] = field(default_factory=list)
    ends_as: str = "Succeed"
    refused_with: tuple[str, int] = NOT_YET[0]  # before the log is there

    def seen_at(self, moment: float, begin: float = float("-inf"), end: float = float("inf")) -> range:
        """The lines that can be seen, of those within two times; all are in the order of their times."""
        first = bisect_left(self.lines, begin, key=_at)
        behind = min(bisect_right(self.lines, moment, key=_at), bisect_left(self.lines, end, key=_at))
        return range(first, max(first, behind))

    def texts(self, seen: range) -> list[str]:
        return [self.lines[number][1] for number in seen]


@dataclass
class SimulatedService:
    """What the service has and does; stands in for the transport."""

    clock: SimulatedTime
    dice: random.Random
    is_ours: bool
    instances: list[Instance]
    ends_at: float
    ends_as: str = "Succeed"
    largest_page: int = 1000
    fault_rate: float = 0.0
    stale_s: float = 0.0  # some answers are as old as this
    count_is_ahead: bool = False  # TotalCount knows of lines that cannot be read yet
    count_lag_s: float = 0.0  # TotalCount is as old as this
    count_is_cut: bool = False  # TotalCount is never more than `most_lines`
    most_lines: int = 10**9  # of a log that pages give; beyond, they are empty, or refused
    refuses_deep_pages: bool = False
    refuses_across: bool = False  # also pages of which only the end is beyond
    has_etags: bool = False
    tells_transitions: bool = False
    out_of_reach: list[tuple[float, float, Callable[[], PaiError]]] = field(default_factory=list)
    deleted_at: float = float("inf")
    asked: list[tuple[float, str]] = field(default_factory=list)

    timeout_s = (5.0, 30.0)

    def call(self, action: str, method: str, path: str, params: Any, query: Any = None, **more: Any) -> Answer:
        self.asked.append((self.clock.time, action))
        self.clock.time += self.dice.uniform(0.005, 0.05)
        self._maybe_fail()
        headers: Mapping[str, str] = more.get("headers") or {}
        assert self.is_ours or "Prefer" not in headers, "it has not shown that it knows preferences"
        if action == "GetTrainingJob":
            return self._job(headers)
        if action == "ListTrainingJobLogs":
            return self._log(query, headers)
        assert action == "GetTrainingJobErrorInfo"
        return Answer({"ErrorInfo": {"Code": "NonZeroExit", "Message": "it broke"}, **self._request_id()})

    # ---- what goes wrong

    def _maybe_fail(self) -> None:
        now = self.clock.time
        if now >= self.deleted_at:
            raise api_error("no such job", code="TRAINING_JOB_NOT_FOUND", status_code=404, request_id="r")
        for begin, end, fault in self.out_of_reach:
            if begin <= now < end:
                self.clock.time += self.dice.choice([0, 1, 30])  # what the transport's own attempts take
                raise fault()
        if self.dice.random() < self.fault_rate:
            raise self.dice.choice(FAULTS)()

    # ---- what it answers

    def _request_id(self) -> dict[str, str]:
        return {"RequestId": f"{self.dice.getrandbits(64):x}"}

    def _moment(self) -> float:
        return self.clock.time - self.dice.choice([0.0, self.stale_s])

    def _job(self, headers: Mapping[str, str]) -> Answer:
        if self.is_ours and headers.get("If-None-Match") == self._etag():
            self._hold(headers, lambda: self._etag() != headers["If-None-Match"])
            if self._etag() == headers["If-None-Match"]:
                return Answer({}, 304)
        moment = self.clock.time if self.is_ours else self._moment()
        has_ended = moment >= self.ends_at
        listed = [one for one in self.instances if one.listed_at <= moment]
        content = {
            "TrainingJobId": JOB,
            "TrainingJobName": "made-up",
            "Status": self.ends_as if has_ended else "Running" if listed else "Creating",
            "ComputeResource": {"InstanceCount": len(self.instances)},
            "Instances": [{"Name": one.name, "Status": one.ends_as if has_ended else "Running"} for one in listed],
            **self._request_id(),
        }
        if self.tells_transitions:
            end = {"EndTime": str(self.ends_at)} if has_ended else {}
            said = [{"Status": "Running", **end}, {"Status": self.ends_as, **end}]
            content["StatusTransitions"] = said[: 1 + has_ended]
        if self.is_ours:
            return Answer(content, headers={"ETag": self._etag(), "x-pai-offers": "wait, all-instances"})
        etags = {"ETag": f"W/{content['Status']}-{len(listed)}"} if self.has_etags else {}
        if etags and headers.get("If-None-Match") == etags["ETag"]:
            return Answer({}, 304, etags)
        return Answer({**content, "Duration": int(moment), "GmtModifiedTime": str(int(moment))}, headers=etags)

    def _etag(self) -> str:
        now = self.clock.time
        return f"{now >= self.ends_at}{[one.name for one in self.instances if one.listed_at <= now]}"

    def _log(self, query: Mapping[str, Any], headers: Mapping[str, str]) -> Answer:
        instance = next(one for one in self.instances if one.name == query["InstanceId"])
        if self.clock.time < instance.log_from:
            code, status = instance.refused_with
            raise api_error("no log yet", code=code, status_code=status, request_id="r")
        return self._log_by_line(instance, query, headers) if self.is_ours else self._log_by_page(instance, query)

    def _log_by_page(self, instance: Instance, query: Mapping[str, Any]) -> Answer:
        size = min(query["PageSize"], self.largest_page)
        start = (query["PageNumber"] - 1) * size
        deepest = start + size - 1 if self.refuses_across else start
        if deepest >= self.most_lines and self.refuses_deep_pages:
            raise api_error("too deep", code="InvalidParameter", status_code=400, request_id="r")
        window = _time(query.get("StartTime"), float("-inf")), _time(query.get("EndTime"), float("inf"))
        lines = instance.seen_at(self._moment(), *window)[: self.most_lines]
        counted_at = self.clock.time + (2.0 if self.count_is_ahead else 0.0) - self.count_lag_s
        total = len(instance.seen_at(counted_at, *window))
        total = min(total, self.most_lines) if self.count_is_cut else total
        date = {"Date": formatdate(_EPOCH + self.clock.time, usegmt=True)}
        page = {
            "Logs": instance.texts(lines[start : start + size]),
            "TotalCount": str(total),
            **self._request_id(),
        }
        return Answer(page, headers=date)

    def _log_by_line(self, instance: Instance, query: Mapping[str, Any], headers: Mapping[str, str]) -> Answer:
        prefer = headers.get("Prefer", "")
        start = (query["PageNumber"] - 1) * query["PageSize"]
        if "first-line=" in prefer:
            start = int(prefer.partition("first-line=")[2])

        def is_over() -> bool:
            return self.clock.time >= self.ends_at and len(instance.seen_at(self.clock.time)) == len(
                instance.lines
            )

        self._hold(headers, lambda: len(instance.seen_at(self.clock.time)) > start or is_over())
        lines = instance.seen_at(self.clock.time)
        page = instance.texts(lines[start : start + query["PageSize"]])
        headers = {"x-pai-offers": "wait, first-line", "x-pai-log-instance": instance.name}
        if is_over() and start + len(page) == len(lines):
            headers["x-pai-log-complete"] = "true"
        if self.dice.random() < self.fault_rate / 3:  # a proxy gives what another had asked for
            start, page = start + 7, page[7:]
        headers["x-pai-log-first-line"] = str(start)
        return Answer({"Logs": page, "TotalCount": str(len(lines)), **self._request_id()}, headers=headers)

    def _hold(self, headers: Mapping[str, str], is_there: Callable[[], bool]) -> None:
        wait = headers.get("Prefer", "").partition("wait=")[2].partition(",")[0]
        until = self.clock.time + (0.0 if self.dice.random() < self.fault_rate else float(wait or 0))
        while not is_there() and self.clock.time < until:
            self.clock.time += 0.1


class SimulatedBackend(FakeBackend):
    """The real reading of jobs and logs, on a service that is made up."""

    def __init__(self, service: SimulatedService) -> None:
        super().__init__()
        self.jobs, self.logs = TrainingJobs(service), JobLogs(service)  # type: ignore[arg-type]

    def get(self, job_id: str, *, changed_from: JobRecord | None = None, wait_s: float = 0.0) -> JobRecord:
        return self.jobs.get(job_id, changed_from=changed_from, wait_s=wait_s)

    def read_log(self, job_id: str, instance: str, *, start: int, limit: int, wait_s: float = 0.0) -> LogPage:
        return self.logs.read(job_id, instance, start=start, limit=limit, wait_s=wait_s)

    def error_info(self, job_id: str) -> ErrorInfo | None:
        return self.jobs.error_info(job_id)


def draw(seed: int, clock: SimulatedTime) -> SimulatedService:
    """A job of a few minutes, and how well its service does."""
    dice = random.Random(seed)
    is_ours = seed % 2 == 0
    ends_at = dice.choice([0.5, 5.0, 60.0, 200.0])
    names = ["master-0", *(f"worker-{number}" for number in range(dice.randrange(3)))]
    fails = dice.random() < 0.3
    service = SimulatedService(
        clock,
        dice,
        is_ours,
        [_instance(dice, f"{JOB}-{name}", ends_at, is_ours=is_ours) for name in names],
        ends_at + dice.choice([0.0, 0.0, 5.0, 40.0]),  # the status may be behind the logs
        ends_as="Failed" if fails else "Succeed",
        largest_page=dice.choice([20, 100, 1000]),
        fault_rate=dice.choice([0.0, 0.1, 0.3]),
        stale_s=dice.choice([0.0, 1.0]),
        count_is_ahead=dice.random() < 0.3,
        has_etags=dice.random() < 0.5,
    )
    if fails:
        broken = dice.choice(service.instances)
        broken.ends_as = "Failed"
        late_s = 1.0 if is_ours else dice.choice([1.0, 7.0, 12.0])
        broken.lines += [(max(service.ends_at, broken.lines[-1][0]) + late_s, text) for text in TRACEBACK]
    if not is_ours and seed % 3 == 0:
        late = dice.choice(service.instances)
        late.listed_at = service.ends_at + dice.uniform(0, 2)
        late.log_from = late.listed_at + dice.choice([0.0, 1.5])
    if dice.random() < 0.3:
        begin = dice.uniform(0, ends_at)
        service.out_of_reach = [(begin, begin + dice.choice([20.0, 400.0]), dice.choice(FAULTS))]
    # In pages of 20 lines, and with faults, the search for later lines takes minutes.
    if not is_ours and ends_at >= 60 and service.largest_page > 20 and dice.random() < 0.5:
        service.most_lines, service.refuses_deep_pages = 1000, dice.random() < 0.5
    return service


def _instance(dice: random.Random, name: str, ends_at: float, *, is_ours: bool) -> Instance:
    listed_at = dice.uniform(0, ends_at) if dice.random() < 0.5 else 0.0
    made = Instance(name, listed_at, listed_at + dice.choice([0.0, 0.0, 2.0]))
    if not is_ours:
        made.log_from = min(listed_at + dice.choice([0.0, 2.0, 100.0]), max(made.log_from, ends_at))
        made.refused_with = dice.choice(NOT_YET)
    # Where nothing tells the end of a log, lines that come late come one soon after the other.
    late_s = 0.0 if is_ours else dice.choice([0.0, 1.5, 3.5])
    moments = sorted(dice.uniform(listed_at, ends_at) for _ in range(dice.choice([0, 1, 50, 2500])))
    texts = (dice.choice(["again", "", f"line {number}"]) for number in range(len(moments)))
    made.lines = [(moment + late_s, text) for moment, text in zip(moments, texts, strict=True)]
    made.lines.append((ends_at + late_s, f"{name} has said all"))
    return made


def _time(text: str | None, default: float) -> float:
    """A time of a query on the simulated clock."""
    return default if text is None else datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() - _EPOCH


def _key_is_old() -> PaiError:
    return api_error("it is old", code="InvalidSecurityToken.Expired", status_code=400, request_id="r")


def _html() -> PaiError:
    return InvalidResponseError("HTML instead of JSON", status_code=502, body="<html>")


def _reset() -> PaiError:
    return ConnectionFailedError("reset", endpoint="made-up")


def _throttled() -> PaiError:
    return api_error("slow", code="Throttling.User", status_code=429, request_id="r", retry_after_s=2.0)


def _broken() -> PaiError:
    return api_error("oops", code="InternalError", status_code=500, request_id="r")


FAULTS = (_key_is_old, _html, _reset, _throttled, _broken)
