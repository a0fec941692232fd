"""The DLC that is unlike ours, over HTTP: it also renames words, writes null for lists, and breaks connections.

Time is simulated and shared with the client, so a job of an hour takes a second, and a seed is one run.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pai_sdk._client.backend.base import Plan
from pai_sdk._client.backend.connection import Connection
from pai_sdk._client.backend.dlc.backend import DlcBackend
from pai_sdk._core.config.credentials import static_credentials
from pai_sdk._core.config.settings import load_settings
from pai_sdk._core.retry import RetryPolicy
from pai_sdk._wire.dlc.jobs import JobQuery, JobUpdate
from pai_sdk._wire.dlc.logs import PodLogQuery
from pai_sdk._wire.dlc.times import wire_time
from pai_sdk.errors import ApiError
from tests.support.odd_dlc import START_S, FakeDlc, FakePod, Habits
from tests.support.simulated_time import SimulatedTime
from tests.unit.client.api.scripted_server import Asked, Reply, Reset, ScriptedServer, Step

__all__ = ["OddDlc", "OddHabits", "OddRun", "odd_dlc"]

_PATH = re.compile(r"/api/v1/jobs(?:/(?P<job>\w+))?(?:/pods/(?P<pod>[\w-]+))?(?:/(?P<word>\w+))?")
_ENDS = ("Succeeded", "Failed", "Stopped")
_END_TIMES = {"Succeeded": "GmtSuccessedTime", "Failed": "GmtFailedTime", "Stopped": "GmtStoppedTime"}
_NUMBERS = frozenset({"Duration", "Priority", "PodCount", "JobMaxRunningTimeMinutes"})


@dataclass
class OddHabits:
    """What the body of a response is like, and how connections end."""

    null_lists: bool = False
    numbers_as_text: bool = False
    has_total: bool = True
    renamed_codes: bool = False
    renamed_statuses: bool = False
    breaks: float = 0.0  # how often a connection breaks, or a gateway answers
    lists_grow: bool = False  # other jobs are created while a list is read
    lists_shrink: bool = False  # others are deleted
    page_size: int = 100  # the longest page
    pods_vanish: bool = False  # from the job after its end
    logs_vanish_s: float = 1e9  # so long after the end
    late_creates: bool = False  # one is carried out after its connection broke

    @classmethod
    def of(cls, seed: int) -> OddHabits:
        """Habits by chance."""
        chance = random.Random(f"http {seed}")
        return cls(
            null_lists=chance.random() < 0.5,
            numbers_as_text=chance.random() < 0.5,
            has_total=chance.random() < 0.7,
            renamed_codes=chance.random() < 0.5,
            renamed_statuses=chance.random() < 0.4,
            breaks=chance.choice([0.0, 0.05, 0.15]),
            lists_grow=chance.random() < 0.5,
            lists_shrink=chance.random() < 0.5,
            page_size=chance.choice([3, 20, 100]),
            pods_vanish=chance.random() < 0.4,
            logs_vanish_s=chance.choice([1e9, 120.0]),
            late_creates=chance.random() < 0.3,
        )


class OddDlc(FakeDlc):
    """The fake on a clock that others share; its jobs go through the statuses of a script."""

    def __init__(self, clock: SimulatedTime, habits: Habits, odd: OddHabits, seed: int) -> None:
        self.time = clock
        super().__init__(habits, seed)
        self.odd = odd
        self.scripts: dict[str, list[tuple[float, str]]] = {}  # by job: from when on it has which status
        self.late: list[tuple[float, dict[str, Any]]] = []  # creates that are under way

    @property
    def now_s(self) -> float:
        """Returns the time of the shared clock."""
        return START_S + self.time.time

    @now_s.setter
    def now_s(self, value: float) -> None:
        self.time.time = value - START_S

    def end_of(self, job_id: str) -> float:
        """Returns when a job ends."""
        return next((at for at, status in self.scripts.get(job_id, ()) if status in _ENDS), float("inf"))

    def max_age_s(self) -> float:
        """Returns how old the state of a log is at most: after the end of its job nothing is very late."""
        has_ended = any(self.end_of(job_id) <= self.now_s for job_id in self.scripts)
        return min(self.habits.stale_s, 3.0) if has_ended else self.habits.stale_s

    def advance(self) -> None:
        """Does what has become due."""
        due = [each for each in self.late if each[0] <= self.now_s]
        self.late = [each for each in self.late if each not in due]
        for _, body in due:
            self.add(body)
        for job_id, script in self.scripts.items():
            job = self.jobs.get(job_id)
            shown_s = self.now_s - self.chance.choice([0.0, self.habits.stale_s])
            for at, status in script:
                if job is not None and at <= shown_s:
                    job["Status"] = status
                    if status in _ENDS:
                        job["GmtFinishTime"] = job[_END_TIMES[status]] = wire_time(at)


class OddServer:
    """The requests of HTTP, and the bodies of their answers."""

    def __init__(self, dlc: OddDlc) -> None:
        self.dlc = dlc
        self.creates = 0

    def answer(self, asked: Asked) -> Step:
        """Answers a request; may lose the answer after the effect."""
        odd, chance = self.dlc.odd, self.dlc.chance
        self.dlc.advance()
        is_create = (asked.method, asked.path) == ("POST", "/api/v1/jobs")
        if is_create:
            return self._create(asked)
        if chance.random() < odd.breaks:
            return self._broken()
        try:
            body = self._body(asked)
        except ApiError as error:
            return self._refusal(error)
        except ConnectionError:
            return Reset
        if chance.random() < odd.breaks / 2:
            return Reset  # after the effect
        return Reply(self._odd(body), cut=7 if chance.random() < odd.breaks / 4 else 0)

    def _broken(self) -> Step:
        """Returns what a gateway answers, or a connection that breaks, before the request has an effect."""
        html = Reply(b"<html>bad gateway</html>", 502, {"Content-Type": "text/html"})
        busy = Reply({"Code": "ServerBusy", "Message": "try again"}, 503, {"Retry-After": "1"})
        return self.dlc.chance.choice([Reset, html, busy, Reply(b"", 500), Reply(b"", 200)])

    def _create(self, asked: Asked) -> Step:
        chance, habits = self.dlc.chance, self.dlc.habits
        self.dlc.now_s += habits.request_s * chance.random()
        if chance.random() < self.dlc.odd.breaks / 2:  # refused before any effect, and clearly
            return Reply({"Code": "Throttling", "Message": "slow down"}, 429, {"Retry-After": "1"})
        self.creates += 1
        is_lost = chance.random() < habits.lost
        if is_lost and self.dlc.odd.late_creates:
            self.dlc.late.append((self.dlc.now_s + chance.uniform(0, 5), asked.json))
            return self._lost()
        job_id = self.dlc.add(asked.json)
        return self._lost() if is_lost else Reply({"JobId": job_id, "RequestId": "r"}, cut=0)

    def _lost(self) -> Step:
        """Returns an answer that does not tell the id of the new job."""
        html = Reply(b"<html>gateway timeout</html>", 504, {"Content-Type": "text/html"})
        internal = Reply({"Code": "InternalError", "Message": "lost"}, 500)
        cut = Reply({"JobId": "dlc0123456789abc", "RequestId": "r"}, cut=20)
        return self.dlc.chance.choice([Reset, html, internal, cut, Reply(b"", 200), Reply({"RequestId": "r"})])

    def _body(self, asked: Asked) -> dict[str, Any]:
        match = _PATH.fullmatch(asked.path)
        assert match is not None, asked.path
        job_id, pod_id, word = match["job"], match["pod"], match["word"]
        if job_id is None:
            return self._list(asked.query)
        if pod_id is not None and word == "logs":
            return self._logs(job_id, pod_id, asked.query)
        if word == "events":
            events = self.dlc.pod_events(job_id, pod_id) if pod_id else self.dlc.events(job_id)
            return {"Events": [*events]}
        if word == "stop":
            self.dlc.stop(job_id)
        elif asked.method == "DELETE":
            self.dlc.delete(job_id)
        elif asked.method == "PUT":
            self.dlc.update(job_id, JobUpdate.model_validate(asked.json))
        else:
            job = self.dlc.get(job_id).to_wire()
            if self.dlc.odd.pods_vanish and job["Status"] in _ENDS:
                job["Pods"] = []
            return job
        return {"JobId": job_id}

    def _list(self, query: dict[str, str]) -> dict[str, Any]:
        asked = JobQuery.from_query({name: query[name] for name in query if not name.startswith("Page")})
        size = min(int(query["PageSize"]), self.dlc.odd.page_size)
        name = query.get("DisplayName", "other")
        if self.dlc.odd.lists_grow and self.dlc.chance.random() < 0.5 and len(self.dlc.jobs) < 60:
            self.dlc.add({"DisplayName": name, "Envs": {"A": "b"}, "Tag": "other"})
        if self.dlc.odd.lists_shrink and self.dlc.chance.random() < 0.3:
            self._remove_other()
        page = self.dlc.list_page(int(query["PageNumber"]), asked, page_size=size)
        total = {"TotalCount": page.total} if self.dlc.odd.has_total else {}
        return {"Jobs": [item.to_wire() for item in page.items], **total}

    def _remove_other(self) -> None:
        others = [job_id for job_id, job in self.dlc.jobs.items() if job.get("Tag") == "other"]
        if others:
            del self.dlc.jobs[self.dlc.chance.choice(others)]

    def _logs(self, job_id: str, pod_id: str, query: dict[str, str]) -> dict[str, Any]:
        if self.dlc.now_s > self.dlc.end_of(job_id) + self.dlc.odd.logs_vanish_s:
            if self.dlc.chance.random() < 0.5:
                raise ApiError("gone", code="LogNotFound", status_code=404, request_id="r")
            return {"Logs": []}
        return self.dlc.pod_logs(job_id, pod_id, PodLogQuery.from_query(query)).to_wire()

    # ---- words and values

    def _refusal(self, error: ApiError) -> Reply:
        code = error.code or "Unknown"
        if self.dlc.odd.renamed_codes:
            code = f"PAI.{code}.V2"
        return Reply({"Code": code, "Message": str(error), "RequestId": "r"}, error.status_code or 400)

    def _odd(self, value: Any, key: str = "") -> Any:
        odd = self.dlc.odd
        if isinstance(value, dict):
            return {name: self._odd(item, name) for name, item in value.items()}
        if isinstance(value, list):
            return None if not value and odd.null_lists else [self._odd(item, key) for item in value]
        if odd.numbers_as_text and (key in _NUMBERS or key == "TotalCount") and isinstance(value, int):
            return str(value)
        if odd.renamed_statuses and key == "Status":
            return {"Succeeded": "Completed", "Failed": "Broken", "Running": "Executing"}.get(value, value)
        return value


class _WithoutFiles(DlcBackend):
    """Submits jobs without uploads: the files are not of interest."""

    def upload(self, plan: Plan, *, progress: bool = True) -> None:
        return


@dataclass
class OddRun:
    """A service of a seed, and a client of it."""

    dlc: OddDlc
    server: OddServer
    http: ScriptedServer
    clock: SimulatedTime
    backend: DlcBackend

    @property
    def sleep(self) -> Callable[[float], None]:
        """Returns what lets time pass."""
        return self.clock.sleep

    def add_pod(self, pod_id: str, pod: FakePod) -> None:
        """Adds a pod of an instance."""
        self.dlc.pods.setdefault(pod_id, []).append(pod)


@contextmanager
def odd_dlc(seed: int) -> Iterator[OddRun]:
    """Starts the service of a seed."""
    clock = SimulatedTime()
    dlc = OddDlc(clock, Habits.of(seed), OddHabits.of(seed), seed)
    server, http = OddServer(dlc), ScriptedServer()
    http.answer = server.answer
    settings = load_settings(
        {"region_id": "cn-test", "workspace_id": "1", "oss_bucket_name": "models", "endpoint": http.endpoint},
        environ={},
    )
    retry = RetryPolicy(max_attempts=4, sleep=clock.sleep, clock=clock.now)
    connection = Connection(settings, static_credentials("LTAI-example", "a-secret"), retry)
    backend = _WithoutFiles(connection, clock=dlc.clock)
    try:
        yield OddRun(dlc, server, http, clock, backend)
    finally:
        backend.close()
        http.close()
