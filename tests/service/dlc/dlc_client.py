"""A client of the API of DLC that shows bare responses."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import requests

from pai_sdk._client.api.transport import Acs3Auth
from pai_sdk._core.config.credentials import static_credentials
from pai_sdk._service.settings import ServiceInfo
from pai_sdk._wire.dlc.actions import ACTIONS, API_VERSION
from pai_sdk._wire.dlc.status import TERMINAL
from tests.support.waiting import PATIENCE_S

WORKSPACE_VERSION = "2021-02-04"


@dataclass
class DlcClient:
    """Calls actions by their names, with a key of a service."""

    info: ServiceInfo
    key: tuple[str, str] | None = None

    def call(
        self, method: str, path: str, body: Any = None, *, version: str | None = API_VERSION, **query: Any
    ) -> requests.Response:
        key = static_credentials(*(self.key or (self.info.access_key_id, self.info.access_key_secret)))
        return requests.request(
            method,
            f"{self.info.endpoint}{path}",
            params=query,
            json=body,
            auth=Acs3Auth(key, "Any", version or ""),
            timeout=PATIENCE_S,
        )

    def do(self, action: str, body: Any = None, ids: Mapping[str, str] = {}, **query: Any) -> dict[str, Any]:
        """What an action returns."""
        known = ACTIONS[action]
        answer = self.call(known.method, known.path_of(**ids), body, **query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def refused(
        self, action: str, body: Any = None, ids: Mapping[str, str] = {}, **query: Any
    ) -> tuple[int, str, str]:
        """With which status, code and text an action is refused."""
        known = ACTIONS[action]
        answer = self.call(known.method, known.path_of(**ids), body, **query)
        fields = answer.json()
        assert fields.keys() == {"RequestId", "Code", "Message", "HostId"}, answer.text
        return answer.status_code, fields["Code"], fields["Message"]

    def create(self, body: dict[str, Any]) -> str:
        return str(self.do("CreateJob", body)["JobId"])

    def until(self, job_id: str, *statuses: str) -> dict[str, Any]:
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            job = self.do("GetJob", ids={"job_id": job_id})
            if job["Status"] in (statuses or TERMINAL):
                return job
            time.sleep(0.05)
        raise AssertionError(f"{job_id} is {job['Status']}: {job.get('ReasonMessage')}")


def dlc_body(command: str = "true", **fields: Any) -> dict[str, Any]:
    """The smallest job, with what a test adds to it."""
    return {
        "DisplayName": "test",
        "JobType": "PyTorchJob",
        "JobSpecs": [{"Type": "Worker", "PodCount": 1, "Image": "none", "EcsSpec": "local"}],
        "UserCommand": command,
        **fields,
    }
