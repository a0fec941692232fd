"""Real services on free ports, and a client that signs."""

from __future__ import annotations

import itertools
import os
import socket
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import oss2
import requests

from pai_sdk import Session
from pai_sdk._client.api.transport import Acs3Auth
from pai_sdk._core.config.credentials import static_credentials
from pai_sdk._host.execution.base import Executor
from pai_sdk._service.server import Service
from pai_sdk._service.settings import ServiceInfo, ServiceSettings
from pai_sdk._service.state.folder import DataFolder
from tests.service.postgres import url_for
from tests.support.waiting import PATIENCE_S

HELD_S = 10 * PATIENCE_S  # an answer that is held for so long comes only if there is news: its client gives up
TERMINAL = ("Succeed", "Failed", "Terminated", "InitializeFailed", "CreateFailed")


@dataclass
class Client:
    """Signs like the library, but shows the bare answers."""

    info: ServiceInfo
    session: requests.Session = field(default_factory=requests.Session)
    timeout_s: float = PATIENCE_S

    def call(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        headers: dict[str, str] | None = None,
        **query: Any,
    ) -> requests.Response:
        key = static_credentials(self.info.access_key_id, self.info.access_key_secret)
        return self.session.request(
            method,
            f"{self.info.endpoint}/api/v1{path}",
            params=query,
            json=body,
            headers=headers,
            auth=Acs3Auth(key, "Any", "2022-01-12"),
            timeout=self.timeout_s,
        )

    def get(self, path: str, **query: Any) -> dict[str, Any]:
        answer = self.call("GET", path, **query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def find(self, path: str, **query: Any) -> dict[str, Any]:
        """What is there; empty while it is not: runs are listed a moment after their jobs are created."""
        answer = self.call("GET", path, **query)
        assert answer.status_code in (200, 404), answer.text
        return answer.json() if answer.status_code == 200 else {}

    def create(self, body: dict[str, Any]) -> str:
        answer = self.call("POST", "/trainingjobs", body=body)
        assert answer.status_code == 200, answer.text
        return answer.json()["TrainingJobId"]

    def clear(self, name: str) -> None:
        """Delete the jobs of that name, which an earlier try of the same test has left on a shared service."""
        for job in self.get("/trainingjobs", TrainingJobName=name, PageSize=100)["TrainingJobs"]:
            if job["TrainingJobName"] == name:
                self.call("PUT", f"/trainingjobs/{job['TrainingJobId']}/stop")
                self.until(job["TrainingJobId"])
                self.call("DELETE", f"/trainingjobs/{job['TrainingJobId']}")

    def until(self, job_id: str, *statuses: str, timeout_s: float = PATIENCE_S) -> dict[str, Any]:
        """Wait for a status as clients do: the service holds its answer until there is news."""
        etag, job, deadline = "", dict[str, Any](), time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            headers = {"If-None-Match": etag, "Prefer": "wait=5"}
            answer = self.call("GET", f"/trainingjobs/{job_id}", headers=headers)
            if answer.status_code == 304:
                continue
            assert answer.status_code == 200, answer.text
            etag, job = answer.headers["ETag"], answer.json()
            if job["Status"] in (statuses or TERMINAL):
                return job
        raise AssertionError(f"{job_id} is {job.get('Status')}: {job.get('ReasonMessage')}")

    def log(self, job_id: str, **query: Any) -> list[str]:
        return self.get(f"/trainingjobs/{job_id}/logs", PageSize=10_000, **query)["Logs"]

    def bucket(self) -> oss2.Bucket:
        auth = oss2.AuthV4(self.info.access_key_id, self.info.access_key_secret)
        return oss2.Bucket(auth, self.info.oss_endpoint, self.info.bucket, region=self.info.region_id)


def job_body(command: str = "true", **fields: Any) -> dict[str, Any]:
    """The smallest job, with what a test adds to it."""
    body: dict[str, Any] = {
        "TrainingJobName": "test",
        "AlgorithmSpec": {"Image": "none", "Command": ["sh", "-c", command]},
        "ComputeResource": {"EcsSpec": "local", "EcsCount": 1},
    }
    spec = fields.pop("AlgorithmSpec", {})
    body["AlgorithmSpec"].update(spec)
    return {**body, **fields}


@contextmanager
def running_service(data_dir: Path, executor: Executor | str | None = None, **settings: Any) -> Iterator[Client]:
    """A service in a thread of this process; on PostgreSQL, when the tests are to run on it."""
    if isinstance(executor, str):
        settings["executor"], executor = executor, None
    settings.setdefault("database_url", url_for(data_dir))
    service = Service(ServiceSettings(data_dir=data_dir, **settings), executor)
    ready, found, faults = threading.Event(), [], []

    def run() -> None:
        try:
            service.run(on_ready=lambda info: (found.append(info), ready.set()))
        except BaseException as error:
            faults.append(error)
            ready.set()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        assert ready.wait(PATIENCE_S)
        if faults:
            raise faults[0]
        client = Client(found[0])
        yield client
        client.session.close()
    finally:
        service.stop()
        thread.join(PATIENCE_S)
        assert not thread.is_alive(), _stacks()


def _stacks() -> str:
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    stacks = sys._current_frames().items()
    return "\n".join(f"{names.get(key)}\n{''.join(traceback.format_stack(frame))}" for key, frame in stacks)


def keep_to_a_quiet_port(root: Path) -> int:
    """Let the service on a new folder begin with a port that no other process gets by chance while it is down."""
    # The processes of one run of the tests have ids that follow each other: each begins at ports of its own.
    quiet = itertools.count(20_000 + os.getpid() * 37 % 10_000)
    while True:
        try:
            with socket.create_server(("127.0.0.1", port := next(quiet))):
                break
        except OSError:
            continue
    url = f"http://127.0.0.1:{port}"
    info = ServiceInfo(url, url, "local", "1", "pai-local", "LTAIquiet", "the-secret", data_dir=root)
    with DataFolder(root) as folder:
        folder.save(info)
    return port


def session_on(info: ServiceInfo) -> Session:
    """A session of the library, with a service and its key."""
    return Session(
        info.region_id,
        info.workspace_id,
        oss_bucket_name=info.bucket,
        oss_endpoint=info.oss_endpoint,
        endpoint=info.endpoint,
        aiworkspace_endpoint=info.endpoint,
        credentials=static_credentials(info.access_key_id, info.access_key_secret),
    )
