"""Every route of the API, with a wrong key, with the key of someone else, and with a key that may only read."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
import requests

from pai_sdk._client.api.transport import Acs3Auth
from pai_sdk._core.config.credentials import static_credentials
from pai_sdk._service.http.access import is_open_to_pages, required_right
from pai_sdk._service.routes.dlc.routers import ROUTERS
from pai_sdk._wire.dlc.names import is_job_id as is_dlc_id
from tests.service.dlc.dlc_client import DlcClient, dlc_body
from tests.service.identity.test_two_users import user
from tests.service.services import Client, job_body
from tests.support.waiting import PATIENCE_S

MARK = "zebra-of-alice"
TOO_LONG = {"/api/v1/events"}  # a stream without an end
OF_DLC = {(method, route.path) for router in ROUTERS for route in router.routes for method in route.methods}


@pytest.fixture(scope="module")
def alice(operator: Client) -> Client:
    return user(operator, "alice")


@pytest.fixture(scope="module")
def job_id(alice: Client) -> str:
    hyperparameters = [{"Name": "lr", "Value": MARK}]
    labels = [{"Key": "animal", "Value": MARK}]
    job_id = alice.create(
        job_body(f"echo {MARK}", TrainingJobName=MARK, HyperParameters=hyperparameters, Labels=labels)
    )
    alice.until(job_id, "Running")
    return job_id


@pytest.fixture(scope="module")
def dlc_id(alice: Client) -> str:
    dlc = DlcClient(alice.info)
    settings = {"Tags": {"animal": MARK}}
    job_id = dlc.create(dlc_body(f"echo {MARK}; sleep 600", DisplayName=MARK, Settings=settings, Envs={"X": MARK}))
    dlc.until(job_id, "Running")
    return job_id


@pytest.fixture(scope="module")
def schedule_id(alice: Client) -> str:
    new = {"Name": MARK, "Cron": "0 0 29 2 *", "Request": job_body(TrainingJobName=MARK)}
    return str(alice.call("POST", "/schedules", body=new).json()["ScheduleId"])


def routes(client: Client) -> list[tuple[str, str]]:
    description = requests.get(f"{client.info.endpoint}/openapi.json", timeout=PATIENCE_S).json()
    found = [(method.upper(), path) for path, methods in description["paths"].items() for method in methods]
    assert len(found) > 60
    found.append(("GET", "/api/v1/tokens"))  # of DLC: the description has the action of training jobs
    return [(method, path) for method, path in found if path.startswith("/api/v1/") and path not in TOO_LONG]


def bodies(method: str, job_id: str) -> list[Any]:
    if method == "GET":
        return [None]
    return [
        {},
        {"Known": {job_id: ""}},
        {"runs": [job_id], "tags": ["loss"]},
        {"runs": [job_id]},
        {"JobId": job_id},
        {"changes": {}, "token": "a-long-token"},
        {"path": "logs"},
        {"Enabled": False},
        {"star": True, "note": "of another user", "archived": True},
        {"fields": "q=a", "shared": True},
        {"Priority": 3, "Description": "of another user"},
        {"ResourceType": "Job", "ResourceId": [job_id], "Tag": [{"Key": "animal", "Value": "none"}]},
    ]


def call(
    client: Client, method: str, path: str, job_id: str, body: Any, schedule_id: str = "alice"
) -> requests.Response:
    filled = re.sub(r"\{(job_id|run_id)(:path)?\}", job_id, path).replace("{schedule_id}", schedule_id)
    filled = filled.replace("{pod_id}", f"{job_id}-master-0")
    filled = re.sub(r"\{\w+(:path)?\}", "alice", filled)
    query = {"with": job_id} if method == "GET" else {}
    if is_dlc_id(job_id) and (method, path) in OF_DLC:
        named = {"ResourceType": "Job", "ResourceId": f'["{job_id}"]', "All": "true"}
        named |= {"TargetType": "job", "TargetId": job_id}
        return DlcClient(client.info).call(method, filled, body, **query, **named)
    return client.call(method, filled.removeprefix("/api/v1"), body=body, **query)


def of_jobs(client: Client, job_id: str, dlc_id: str) -> list[tuple[str, str, str]]:
    """All routes, each with a job that it is for: those of DLC with one of DLC."""
    return [(*route, dlc_id if route in OF_DLC else job_id) for route in routes(client)]


def stable(found: Any) -> Any:
    """A response without what is another one each time."""
    if isinstance(found, dict):
        changing = ("RequestId", "requestId", "Duration")
        return {name: stable(value) for name, value in found.items() if name not in changing}
    return [stable(one) for one in found] if isinstance(found, list) else found


def state(operator: Client) -> Any:
    return [
        stable(operator.get(path))
        for path in (
            *("/trainingjobs", "/models", "/experiments", "/algorithms", "/schedules"),
            *("/users", "/users/alice/quota"),
        )
    ] + [stable(DlcClient(operator.info).do("ListJobs"))]


@pytest.mark.parametrize(
    ("method", "path", "right", "is_open"),
    [
        ("GET", "/api/v1/runs", "read", True),
        ("DELETE", "/api/v1/trainingjobs/{job_id}", "submit", True),
        ("POST", "/api/v1/schedules", "submit", False),
        ("POST", "/api/v1/users/{name}/keys", "admin", False),
    ],
)
def test_a_route_needs_a_right_and_may_be_closed_to_pages(
    method: str, path: str, right: str, is_open: bool
) -> None:
    assert (required_right(method, path), is_open_to_pages(method, path)) == (right, is_open)


def test_the_key_of_someone_else_shows_and_changes_nothing(
    operator: Client, job_id: str, dlc_id: str, schedule_id: str
) -> None:
    bob = user(operator, "bob")
    before = seen_by_operator(operator, job_id, dlc_id)
    for method, path, one in of_jobs(operator, job_id, dlc_id):
        for body in bodies(method, one):
            answer = call(bob, method, path, one, body, schedule_id)
            assert answer.status_code < 500, (method, path, body, answer.text)
            assert MARK not in answer.text, (method, path, body)
            if one == dlc_id and "{job_id}" in path:
                assert (answer.status_code, answer.json()["Code"]) == (404, "NotFound"), (method, path, body)
    assert seen_by_operator(operator, job_id, dlc_id) == before


def seen_by_operator(operator: Client, job_id: str, dlc_id: str) -> Any:
    of_dlc = DlcClient(operator.info).do("GetJob", ids={"job_id": dlc_id})
    of_dlc = {name: value for name, value in of_dlc.items() if name != "Pods"}  # they have durations
    return stable([operator.get(f"/trainingjobs/{job_id}"), operator.get("/schedules"), of_dlc])


def test_the_owner_gets_what_others_do_not(alice: Client, dlc_id: str) -> None:
    """The routes of DLC are found by the calls of these tests: a 404 for others has a reason."""
    for method, path in routes(alice):
        if method == "GET" and (method, path) in OF_DLC and path.startswith("/api/v1/jobs"):
            answer = call(alice, method, path, dlc_id, None)
            assert answer.status_code in (200, 400) or "signal" in path or "sanity" in path, (path, answer.text)


def test_a_stream_has_no_log_and_no_curve_of_someone_else(operator: Client, job_id: str) -> None:
    bob = user(operator, "dave")
    assert bob.call("GET", "/events", topics=f"log:{job_id}").status_code == 404
    with bob.session.get(
        f"{bob.info.endpoint}/api/v1/events",
        params={"topics": f"runs,scalars:{job_id}:loss"},
        auth=Acs3Auth(static_credentials(bob.info.access_key_id, bob.info.access_key_secret), "Any", "2022-01-12"),
        stream=True,
        timeout=PATIENCE_S,
    ) as answer:
        assert answer.status_code == 200
        operator.call("POST", f"/trainingjobs/{job_id}/labels", body={"Labels": [{"Key": "new", "Value": "x"}]})
        mine = bob.create(job_body())
        lines = (line.decode() for line in answer.iter_lines())
        seen = []
        for line in lines:
            seen.append(line)
            if mine in line:
                break
    assert job_id not in "".join(line for line in seen if line.startswith("data"))


def test_a_key_that_may_only_read_changes_nothing(operator: Client, job_id: str, dlc_id: str) -> None:
    reader = user(operator, "carol", "read")
    before = state(operator)
    for method, path, one in of_jobs(operator, job_id, dlc_id):
        for body in bodies(method, one):
            answer = call(reader, method, path, one, body)
            assert answer.status_code < 500, (method, path, body, answer.text)
            if required_right(method, path.replace("{run_id}", "{run_id:path}")) != "read":
                assert answer.status_code in (403, 404, 405), (method, path, body, answer.text)
    assert state(operator) == before


def test_a_key_that_is_not_known_opens_nothing(operator: Client, job_id: str, dlc_id: str) -> None:
    info = replace(operator.info, access_key_id="LTAIunknown")
    wrong = replace(operator.info, access_key_secret="wrong")
    for method, path, one in of_jobs(operator, job_id, dlc_id):
        for stranger in (Client(info), Client(wrong)):
            answer = call(stranger, method, path, one, None if method == "GET" else {})
            assert answer.status_code == 403, (method, path)
            assert MARK not in answer.text
