"""Jobs of Ray itself, by the REST interface of its dashboard."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any
from urllib.request import ProxyHandler, Request, build_opener

from tests.support.waiting import until

__all__ = ["RayJobs"]

_open_url = build_opener(ProxyHandler({})).open
_ENDED = ("SUCCEEDED", "FAILED", "STOPPED")


@dataclass(frozen=True)
class RayJobs:
    """The interface.

    Attributes:
        url: of the dashboard.
    """

    url: str

    def submit(self, command: str, *, cpus: float) -> str:
        """Start a job that waits for CPUs; gives its id."""
        body = {"entrypoint": command, "entrypoint_num_cpus": cpus}
        return str(self._ask("", body)["submission_id"])

    def wait(self, job: str, *, within_s: float) -> None:
        """Wait until a job has succeeded."""
        until(lambda: self.status(job) in _ENDED, f"the end of {job}", within_s=within_s, pause_s=0.05)
        assert self.status(job) == "SUCCEEDED", self._ask(job)

    def status(self, job: str) -> str:
        """One of Ray's words for it."""
        return str(self._ask(job)["status"])

    def log(self, job: str) -> str:
        """What it has printed."""
        return str(self._ask(f"{job}/logs")["logs"])

    def ended(self) -> int:
        """How many submitted jobs have ended; drivers, such as one of a client, are listed beside them."""
        return sum(job["type"] == "SUBMISSION" and job["status"] in _ENDED for job in self._ask(""))

    def _ask(self, path: str, body: dict[str, Any] | None = None) -> Any:
        data = json.dumps(body).encode() if body is not None else None
        request = Request(f"{self.url}/api/jobs/{path}", data, {"Content-Type": "application/json"})
        with _open_url(request, timeout=300) as answer:
            return json.load(answer)
