"""A service that speaks DLC, for the command line: each read of a job takes it a step further."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from pai_sdk._wire.dlc.names import pods_of
from tests.unit.client.api.scripted_server import Asked, Reply, ScriptedServer

WALK = ("Creating", "Queuing", "EnvPreparing", "Running", "Running", "Succeeded")
_JOB = re.compile(r"/api/v1/jobs/(dlc\w+)(?:/(stop|events)|/pods/([\w-]+)/(logs|events))?")


@dataclass
class FakeJob:
    """A job: what was sent, and the statuses that it still has before it."""

    id: str
    body: dict[str, Any]
    walk: list[str]

    @property
    def status(self) -> str:
        return self.walk[0]

    def advance(self) -> None:
        if len(self.walk) > 1:
            self.walk.pop(0)

    def item(self) -> dict[str, Any]:
        return {
            **self.body,
            "JobId": self.id,
            "Status": self.status,
            "GmtCreateTime": "2026-11-28T00:00:00Z",
            "Duration": 1,
            "ReasonCode": "",
        }

    def pods(self) -> list[dict[str, Any]]:
        roles = [(spec["Type"], spec["PodCount"]) for spec in self.body["JobSpecs"]]
        return [
            {"PodId": pod.name, "Type": pod.type, "Ip": f"10.0.0.{pod.rank + 1}", "Status": self.status}
            for pod in pods_of(self.id, self.body["JobType"], roles)
        ]


@dataclass
class FakeDlc:
    """The service. `walks` has the statuses of jobs by their names; others have `WALK`."""

    server: ScriptedServer
    walks: dict[str, list[tuple[str, ...]]] = field(default_factory=dict)
    jobs: list[FakeJob] = field(default_factory=list)
    stopped: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.server.answer = self.answer

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [job.body for job in self.jobs]

    def answer(self, asked: Asked) -> Reply:
        if asked.path == "/api/v1/jobs":
            return self._create(asked.json) if asked.method == "POST" else self._list(asked.query)
        if asked.path == "/api/v1/ecsspecs":
            return Reply({"EcsSpecs": [{"InstanceType": "ecs.c6.large"}], "TotalCount": 1})
        match = _JOB.fullmatch(asked.path)
        job = next((job for job in self.jobs if match and job.id == match[1]), None)
        if match is None or job is None:
            return Reply({"Code": "NotFound", "Message": "the job does not exist", "RequestId": "R"}, 404)
        if match[2] == "stop":
            return self._stop(job)
        if match[3]:
            known = match[3] in [pod["PodId"] for pod in job.pods()]
            return (
                Reply({"Logs": [f"log of {match[3]}"]})
                if known
                else Reply({"Code": "NotFound", "Message": "no pod"}, 404)
            )
        job.advance()
        return Reply({**job.item(), "Pods": job.pods(), "RequestId": "R"})

    def _create(self, body: dict[str, Any]) -> Reply:
        walks = self.walks.get(body["DisplayName"], [])
        walk = walks.pop(0) if walks else WALK
        self.jobs.append(FakeJob(f"dlc{len(self.jobs):013}", body, [*walk]))
        return Reply({"JobId": self.jobs[-1].id, "RequestId": "R"})

    def _list(self, query: dict[str, str]) -> Reply:
        size, number = int(query.get("PageSize", 10)), int(query.get("PageNumber", 1))
        assert size <= 100
        matching = [
            job.item()
            for job in reversed(self.jobs)
            if query.get("DisplayName", "").lower() in job.body["DisplayName"].lower()
            and query.get("Status", job.status) == job.status
            and query.get("WorkspaceId", job.body.get("WorkspaceId")) == job.body.get("WorkspaceId")
        ]
        for job in self.jobs:
            job.advance()
        return Reply({"Jobs": matching[(number - 1) * size : number * size], "TotalCount": len(matching)})

    def _stop(self, job: FakeJob) -> Reply:
        if job.status in ("Succeeded", "Failed", "Stopped"):
            message = f"Job can't be stopped, because it is {job.status}"
            return Reply({"Code": "BadRequest", "Message": message, "RequestId": "R"}, 400)
        self.stopped.append(job.id)
        job.walk = ["Stopped"]
        return Reply({"JobId": job.id, "RequestId": "R"})
