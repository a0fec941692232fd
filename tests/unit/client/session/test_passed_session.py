"""The session that is passed is the one that is used, for all that a job needs; and how it asks."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from pai_sdk import (
    AlgorithmEstimator,
    Estimator,
    Processor,
    Session,
    TrainingJob,
    setup_default_session,
)
from pai_sdk._client.submit.submitter import JobSubmitter
from pai_sdk._data.storage.oss import http as oss_http
from tests.unit.client.api.scripted_server import Asked, Reply, ScriptedServer, oss_listing

OSS = {"ETag": '"x"', "x-oss-request-id": "r", "Last-Modified": "Sat, 21 Nov 2026 00:00:00 GMT"}
SPEC = {"Image": "img", "Command": ["true"], "InputChannels": [{"Name": "data"}], "OutputChannels": []}


class Service(ScriptedServer):
    """PAI and OSS in one, where every job succeeds at once."""

    def __init__(self) -> None:
        super().__init__()
        self.jobs: list[dict[str, Any]] = []
        self.answer = self._answer

    def session(self, workspace_id: str) -> dict[str, Any]:
        """What leads a session here."""
        return {
            "region_id": "local",
            "workspace_id": workspace_id,
            "oss_bucket_name": "models",
            "endpoint": self.endpoint,
            "oss_endpoint": self.endpoint,
            "access_key_id": "LTAI-example",
            "access_key_secret": "a-secret",
        }

    @property
    def workspaces(self) -> list[str]:
        """Where the jobs were created."""
        return [job["WorkspaceId"] for job in self.jobs]

    def _answer(self, asked: Asked) -> Reply:
        kind, _, rest = asked.path.removeprefix("/api/v1/").partition("/")
        if kind == "algorithms":
            return self._algorithm(rest)
        if "list-type" in asked.query:
            return oss_listing({})
        if kind != "trainingjobs":
            return Reply(b"", 200 if asked.method == "PUT" else 404, OSS)
        if asked.method == "POST" and not rest:
            self.jobs.append({**asked.json, "TrainingJobId": f"train{len(self.jobs)}", "Status": "Succeed"})
            return Reply({"TrainingJobId": self.jobs[-1]["TrainingJobId"]})
        if not rest:
            page = self.jobs[(int(asked.query["PageNumber"]) - 1) * 100 :][:100]
            return Reply({"TrainingJobs": page, "TotalCount": len(self.jobs)})
        job_id, _, part = rest.partition("/")
        if part:
            return Reply({})
        job = next(job for job in self.jobs if job["TrainingJobId"] == job_id)
        return Reply(job, headers={"x-pai-offers": "all-instances"})

    @staticmethod
    def _algorithm(rest: str) -> Reply:
        if not rest:
            found = [{"AlgorithmId": "algo-1", "AlgorithmName": "digits"}]
            return Reply({"Algorithms": found, "TotalCount": 1})
        if rest.endswith("/versions"):
            return Reply({"AlgorithmVersions": [{"AlgorithmVersion": "v1"}], "TotalCount": 1})
        return Reply({"AlgorithmSpec": SPEC})


@pytest.fixture
def mine() -> Iterator[Service]:
    service = Service()
    yield service
    service.close()


@pytest.fixture
def default(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    """Where the default session leads."""
    monkeypatch.setattr("pai_sdk._client.session.default._default", None)
    service = Service()
    setup_default_session(**service.session("of-the-default"))
    yield service
    service.close()


def estimator(**common: Any) -> JobSubmitter:
    return Estimator("img", "python train.py", instance_type="x", **common)


def processor(**common: Any) -> JobSubmitter:
    return Processor("img", "python train.py", instance_type="x", **common)


def algorithm_estimator(**common: Any) -> JobSubmitter:
    return AlgorithmEstimator("digits", instance_type="x", **common)


SUBMITTERS = [estimator, processor, algorithm_estimator]


def used_to_the_full(make: Callable[..., JobSubmitter], folder: Path, **common: Any) -> None:
    """Code and data uploaded, the job submitted, waited for with its log, and looked at from all sides."""
    (folder / "src").mkdir()
    (folder / "src" / "train.py").write_text("print(1)")
    submitter = make(**common) if make is algorithm_estimator else make(source_dir=folder / "src", **common)
    run = getattr(submitter, "fit", None) or submitter.run  # type: ignore[attr-defined]
    job = run({"data": folder / "src"})
    submitter.wait(60, all_jobs=True)
    assert submitter.get_outputs_data() == job.outputs
    assert (job.error_info(), [*job.metrics()], job.events()) == (None, [], [])
    job.update_labels({"a": "b"})
    job.stop()
    job.delete()


@pytest.mark.parametrize("make", SUBMITTERS)
def test_all_goes_through_the_session_that_was_passed(
    make: Callable[..., JobSubmitter], mine: Service, default: Service, tmp_path: Path
) -> None:
    with Session(**mine.session("7")) as passed:
        used_to_the_full(make, tmp_path, session=passed)
        assert [job.id for job in TrainingJob.list(session=passed)] == ["train0"]
        assert TrainingJob.get("train0", session=passed).name == mine.jobs[0]["TrainingJobName"]
    assert mine.workspaces == ["7"]
    assert {asked.method for asked in mine.asked if not asked.path.startswith("/api/")} >= {"PUT"}
    assert default.asked == []


@pytest.mark.parametrize("make", SUBMITTERS)
def test_without_one_it_is_the_default(
    make: Callable[..., JobSubmitter], default: Service, tmp_path: Path
) -> None:
    used_to_the_full(make, tmp_path)
    assert [job.id for job in TrainingJob.list()] == ["train0"]
    assert TrainingJob.get("train0").name == default.jobs[0]["TrainingJobName"]
    assert default.workspaces == ["of-the-default"]


def test_another_default_does_not_move_a_submitter(mine: Service, default: Service) -> None:
    """Its jobs would be looked for where they are not."""
    submitter = estimator()
    submitter.submit(submitter.plan(), show_logs=False)
    setup_default_session(**mine.session("7"))
    submitter.wait(60)
    submitter.submit(submitter.plan(), wait=True, show_logs=False)
    assert default.workspaces == ["of-the-default"] * 2
    assert mine.asked == []


def test_a_list_asks_once_for_each_page_whatever_is_looked_at(mine: Service) -> None:
    mine.jobs = [{"TrainingJobId": f"train{n}", "Status": "Succeed", "WorkspaceId": "7"} for n in range(250)]
    with Session(**mine.session("7")) as passed:
        found = TrainingJob.list(session=passed)
        assert "train0" in found._repr_html_()
        seen = [(job.name, job.status, job.labels, job.outputs, repr(job)) for job in found]
    assert len(seen) == 250
    assert len(mine.asked) == 3


def test_what_a_list_is_narrowed_by_reaches_the_service(mine: Service) -> None:
    with Session(**mine.session("7")) as passed:
        assert [*TrainingJob.list(status="Failed", name="digits", labels={"a": "b"}, session=passed)] == []
    query = mine.asked[0].query
    assert (query["Status"], query["TrainingJobName"], query["WorkspaceId"]) == ("Failed", "digits", "7")
    assert json.loads(query["Labels"]) == {"a": "b"}


def longest_wait_s(connected: socket.socket) -> float | None:
    """How long one call of a socket may wait, by the limit of Python, or else by those of the system."""
    if connected.gettimeout() is not None:
        return connected.gettimeout()
    size = struct.calcsize("@ll")
    limits = [
        struct.unpack("@ll", connected.getsockopt(socket.SOL_SOCKET, option, size))
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO)
    ]
    return max(seconds + part / 1e6 for seconds, part in limits) if all(any(one) for one in limits) else None


@pytest.mark.parametrize("make", SUBMITTERS)
def test_each_request_has_an_end(
    make: Callable[..., JobSubmitter], mine: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a limit, the wait for a silent host would never end."""
    timeouts: list[Any] = []  # one a request
    to_connect: list[Any] = []  # one a connection, of requests or of the short path
    connect = oss_http.HTTPConnection.connect
    send_by_requests = requests.Session.send
    send_by_short_path = oss_http._Connection.send

    def connected(self: Any) -> None:
        to_connect.append(self.timeout)
        connect(self)

    def by_requests(self: Any, request: Any, **settings: Any) -> Any:
        timeouts.append(settings.get("timeout"))
        return send_by_requests(self, request, **settings)

    def by_short_path(self: Any, *sent: Any) -> None:
        timeouts.append(longest_wait_s(self._socket))
        send_by_short_path(self, *sent)

    monkeypatch.setattr(oss_http.HTTPConnection, "connect", connected)
    monkeypatch.setattr(requests.Session, "send", by_requests)
    monkeypatch.setattr(oss_http._Connection, "send", by_short_path)
    with Session(**mine.session("7")) as passed:
        used_to_the_full(make, tmp_path, session=passed)
    assert len(timeouts) >= len(mine.asked) > 5
    assert any(not isinstance(timeout, tuple) for timeout in timeouts), "no request took the short path"
    assert to_connect
    seconds = [each for timeout in timeouts for each in (timeout if isinstance(timeout, tuple) else (timeout,))]
    assert all(each is not None and 0 < each <= 120 for each in [*seconds, *to_connect]), (seconds, to_connect)
