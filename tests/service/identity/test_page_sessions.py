"""Every route of the API, asked for by a signed-in browser: which ones it may call, and that others refuse it."""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import requests

from pai_sdk._service.identity.page_sessions import EndedPageSessions
from pai_sdk._service.state.database import Database
from pai_sdk._wire.pai.request import ACCESSIBILITY_LABEL
from tests.service import postgres
from tests.service.fakes import ScriptedExecutor
from tests.service.identity.test_two_users import user
from tests.service.identity.test_users import DatabaseIsAway, away
from tests.service.services import Client, job_body
from tests.service.two_services import free_port
from tests.service.web.browsing import Answer, ask_as_browser, headers_of_page, sign_in
from tests.support.waiting import PATIENCE_S

# All that a page session can change, and reads with POST. A new route is closed until somebody puts it here.
OPEN_CHANGES = {
    "POST /api/v1/trainingjobs",
    "PUT /api/v1/trainingjobs/{job_id}/stop",
    "DELETE /api/v1/trainingjobs/{job_id}",
    "POST /api/v1/runs/{run_id}/rerun",
    "POST /api/v1/runs/{run_id}/stop",
    "DELETE /api/v1/runs/{run_id}",
    "POST /api/v1/schedules/{schedule_id}/pause",
    "POST /api/v1/schedules/{schedule_id}/resume",
    "PATCH /api/v1/runs/{run_id}/annotations",
    "PUT /api/v1/views/{name}",
    "DELETE /api/v1/views/{name}",
    "POST /api/v1/trainingjobs/changes",
    "POST /api/v1/compare",
    "POST /api/v1/hparams/diff",
    "POST /api/v1/runs/{run_id}/downloads",
}
SESSION = "/sessions/{session_id}"
CLOSED_READS = {
    "GET /api/v1/tokens",
    "GET /api/v1/users",
    "GET /api/v1/users/{name}",
    "GET /api/v1/users/{name}/quota",
    *(f"GET /api/v1/trainingjobs/{{job_id}}/instances/{{instance}}/tunnel{rest}" for rest in ("", SESSION)),
}


def routes(client: Client) -> list[tuple[str, str]]:
    paths = requests.get(f"{client.info.endpoint}/openapi.json", timeout=PATIENCE_S).json()["paths"]
    return [(method.upper(), path) for path, methods in paths.items() for method in methods]


def port_of(client: Client) -> int:
    return int(urlsplit(client.info.endpoint).port or 0)


def page_of(client: Client) -> dict[str, str]:
    """The headers of a browser that is signed in for the key of a client."""
    return sign_in(port_of(client), client.call("POST", "/pagelinks").json()["Url"])


def send(client: Client, page: dict[str, str], method: str, path: str, body: Any = None) -> Answer:
    return ask_as_browser(port_of(client), method, path, body, **headers_of_page(port_of(client), **page))


@pytest.fixture(scope="module")
def page(operator: Client) -> dict[str, str]:
    return page_of(operator)


def test_which_routes_are_open_to_a_signed_in_browser(operator: Client, page: dict[str, str]) -> None:
    user(operator, "alice")
    found = routes(operator)
    assert {*OPEN_CHANGES, *CLOSED_READS} <= {f"{method} {path}" for method, path in found}
    for method, path in found:
        name = f"{method} {path}"
        is_open = name in OPEN_CHANGES or (method == "GET" and name not in CLOSED_READS)
        filled = re.sub(r"\{\w+\}", "alice", path)
        answer = send(operator, page, method, filled, None if method == "GET" else {})
        is_refused = answer.status == 403 and answer.json["Code"] == "NotForPages"
        assert is_refused is not is_open, (name, answer)


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/users", {"Name": "mallory", "Right": "admin"}),
        ("PUT", "/users/bob", {"Right": "admin"}),
        ("DELETE", "/users/bob", {}),
        ("POST", "/users/bob/keys", {}),
        ("PUT", "/users/bob/quota", {"RunningJobs": 1}),
        ("POST", "/workspaces", {"WorkspaceName": "evil"}),
        ("POST", "/workspaces/1/members", {"Members": [{"UserId": "bob", "Roles": ["PAI.WorkspaceAdmin"]}]}),
        ("DELETE", "/workspaces/1/members?MemberIds=bob", {}),
        ("POST", "/schedules", {"Name": "for-ever", "Cron": "* * * * *", "Request": job_body()}),
        ("PUT", "/schedules/schedule000000000000", {"Cron": "* * * * *", "Enabled": True}),
        ("DELETE", "/schedules/schedule000000000000", {}),
        ("GET", "/tokens", None),
        ("POST", "/pagelinks", {}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_sign_in_does_not_become_a_key_or_a_right(
    operator: Client, page: dict[str, str], method: str, path: str, body: Any
) -> None:
    if "bob" not in {one["Name"] for one in operator.get("/users")["Users"]}:
        user(operator, "bob", "read")

    def state() -> list[Any]:
        shown = operator.get("/users"), operator.get("/workspaces"), operator.get("/schedules")
        return [{name: value for name, value in one.items() if name != "RequestId"} for one in shown]

    before = state()
    answer = send(operator, page, method, f"/api/v1{path}", body)
    assert (answer.status, answer.json["Code"]) == (403, "NotForPages")
    assert state() == before
    newest = operator.get("/audit", PageSize="1")["Entries"][0]
    assert (newest["Method"], newest["Status"]) == (method, 403)


def test_a_page_offers_only_what_its_user_may_do(operator: Client) -> None:
    changes = {"stop", "rerun", "delete"}
    for right, expected in (("read", set()), ("submit", changes), ("admin", {*changes, "others", "admin"})):
        of_user = user(operator, f"{right}er", right)
        about = send(of_user, page_of(of_user), "GET", "/ui/about").json
        assert {*changes, "others", "admin"} & {*about["can"]} == expected, right
        assert (about["user"], about["right"], about["workspaces"]) == (f"{right}er", right, ["local"])
        assert "files" in about["can"]
    about = send(operator, page_of(operator), "GET", "/ui/about").json
    assert (about["user"], about["right"]) == ("", "admin")


def test_a_job_says_whose_it_is_and_what_each_user_may_do_with_it(operator: Client) -> None:
    ann, lead, reader = (user(operator, *of) for of in (("ann", "submit"), ("lead", "submit"), ("eve", "read")))
    body = {"Members": [{"UserId": "lead", "Roles": ["PAI.WorkspaceAdmin"]}]}
    assert operator.call("POST", "/workspaces/1/members", body=body).status_code == 200
    job_id = ann.create(job_body(Labels=[{"Key": ACCESSIBILITY_LABEL, "Value": "PUBLIC"}]))
    bob = user(operator, "bobby")
    all_changes = ["annotate", "delete", "rerun", "stop"]
    for client, expected in (
        *((each, all_changes) for each in (ann, lead, operator)),
        (bob, ["rerun"]),
        (reader, []),
    ):
        found = client.get(f"/runs/{job_id}/job")
        assert (found["owner"], sorted(found["can"])) == ("ann", expected)
    assert "others" in send(lead, page_of(lead), "GET", "/ui/about").json["can"]
    found = ann.get(f"/runs/{job_id}/job")
    ann.until(job_id, "Running")
    instances = ann.get(f"/runs/{job_id}/job")["instances"]
    assert [each["node"] for each in instances] == [socket.gethostname()]
    assert found["sub_status"] == ""


def test_a_browser_signs_out(operator: Client) -> None:
    page = page_of(operator)
    foreign = send(operator, {**page, "Origin": "http://evil.example"}, "DELETE", "/ui/session", {})
    assert (foreign.status, "set-cookie" in foreign.headers) == (403, False)
    answer = send(operator, page, "DELETE", "/ui/session", {})
    name = page["Cookie"].partition("=")[0]
    assert answer.status == 200
    assert answer.headers["set-cookie"].startswith(f'{name}="";')
    assert "max-age=0" in answer.headers["set-cookie"].lower()
    assert send(operator, {"X_PAI_UI": page["X_PAI_UI"]}, "GET", "/ui/about").status == 401


def test_a_sign_out_ends_copies_of_cookie_and_key(operator: Client) -> None:
    worker = user(operator, "out")
    page, other = page_of(worker), page_of(worker)
    job_id = worker.create(job_body())
    ticket = send(operator, page, "POST", f"/api/v1/runs/{job_id}/downloads", {"kind": "log"}).json["url"]
    url, headers = f"{worker.info.endpoint}/api/v1/events?topics=runs", headers_of_page(port_of(worker), **page)
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    with requests.get(url, headers=names, stream=True, timeout=PATIENCE_S) as open_:
        lines = open_.iter_lines()
        while b"ready" not in next(lines):
            pass
        assert send(operator, page, "DELETE", "/ui/session", {}).status == 200
        later = worker.create(job_body())
        assert not any(later in line.decode() for line in lines)  # and they end
    for method, path, body in (
        ("GET", "/ui/about", None),
        ("GET", "/api/v1/runs", None),
        ("DELETE", "/ui/session", {}),
        ("PUT", f"/api/v1/trainingjobs/{job_id}/stop", {}),
    ):
        answer = send(operator, page, method, path, body)
        assert (answer.status, answer.json["Code"]) == (401, "MissingAuthorization"), path
    assert ask_as_browser(port_of(worker), "GET", ticket).status == 401
    assert send(operator, other, "GET", "/ui/about").json["user"] == "out"  # another browser of the same user
    assert worker.call("GET", "/trainingjobs").status_code == 200
    entry = next(one for one in operator.get("/audit", User="out")["Entries"] if one["Path"] == "/ui/session")
    assert (entry["Method"], entry["Status"]) == ("DELETE", 200)


def test_a_sign_out_outlives_the_process(start: Callable[..., Any]) -> None:
    """The secret of cookies is that of the service and its port; a standby on another machine has both."""
    port = free_port()
    with start(ScriptedExecutor(), port=port) as operator:
        out, stays = page_of(operator), page_of(operator)
        assert send(operator, out, "DELETE", "/ui/session", {}).status == 200
    with start(ScriptedExecutor(), port=port) as operator:
        assert send(operator, stays, "GET", "/ui/about").status == 200
        assert send(operator, out, "GET", "/ui/about").status == 401


def test_ended_sign_ins_are_kept_until_their_cookies_expire(tmp_path: Path) -> None:
    now = [1_800_000_000.0]
    with closing(Database.in_file(tmp_path / "jobs.db")) as database:
        first = EndedPageSessions(database, now=lambda: now[0])
        first.add("one", now[0] + 60)
        assert "one" in EndedPageSessions(database)  # of another process
        now[0] += 61
        first.add("two", now[0] + 60)
        first.add("two", now[0] + 60)  # two tabs at once
        assert ("one" in first, "two" in first) == (False, True)
        later = EndedPageSessions(database)
        assert ("one" in later, "two" in later) == (False, True)


def test_a_sign_out_holds_though_the_database_is_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(Database.in_file(tmp_path / "jobs.db")) as database:
        ended = EndedPageSessions(database)
        with monkeypatch.context() as patched:
            patched.setattr(database, "write", away)
            with pytest.raises(DatabaseIsAway):
                ended.add("one", time.time() + 60)
        assert "one" in ended


def test_administrators_see_the_state_of_the_service_on_their_page(operator: Client) -> None:
    boss, worker = user(operator, "boss", "admin"), user(operator, "worker")
    assert operator.call("PUT", "/users/worker/quota", body={"CPUs": 4, "QueuedJobs": 9}).status_code == 200
    body = job_body("sleep 600", ComputeResource={"ResourceId": "q", "InstanceSpec": {"CPU": "1"}})
    worker.until(worker.create(body), "Running")
    page = page_of(boss)

    found = send(operator, page, "GET", "/api/v1/administration").json
    shown = {one["name"]: one for one in found["users"]}
    key = shown["worker"]["keys"][0]
    assert (shown["boss"]["right"], key["id"]) == ("admin", worker.info.access_key_id)
    assert key["created_at"] <= key["changed_at"]  # it has submitted a job
    assert shown["worker"]["quota"] == {"cpus": 4, "gpus": None, "running": None, "queued": 9}
    assert shown["worker"]["used"] == {"cpus": 1, "gpus": 0, "running": 1, "queued": 0}
    assert found["workspaces"][0]["members"]["worker"] == "submit"
    assert (found["process"]["pid"], found["process"]["lease"] is None) == (os.getpid(), not postgres.is_used())
    assert 0 < found["disk"]["free_bytes"] < found["disk"]["total_bytes"]
    assert worker.info.access_key_secret not in str(found)
    parts = send(operator, page, "GET", "/api/v1/administration/disk").json["parts"]
    assert {"objects", "logs"} <= {part["kind"] for part in parts}
    entries = send(operator, page, "GET", "/api/v1/audit?User=worker&Action=post%20/api/v1/training").json[
        "Entries"
    ]
    assert [(one["Method"], one["Status"]) for one in entries] == [("POST", 200)]
    assert send(operator, page, "GET", "/api/v1/audit?Action=100%25").json["Entries"] == []

    for path in ("/administration", "/administration/disk", "/audit"):
        for answer in (send(operator, page_of(worker), "GET", f"/api/v1{path}"), worker.call("GET", path)):
            status = answer.status if isinstance(answer, Answer) else answer.status_code
            assert status == 403, path
