"""What keys that were revoked, removed users and other strangers try."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import oss2
import pytest
import requests

from pai_sdk._client.api.transport import Acs3Auth
from pai_sdk._core.config.credentials import static_credentials
from pai_sdk._service.identity.principal import Principal
from pai_sdk._service.identity.rate import KeyRates
from pai_sdk._service.services.jobs.changes import Subscription
from pai_sdk._service.web.browser_guard import BrowserGuard
from pai_sdk._service.web.browser_keys import BrowserKeys
from pai_sdk._service.web.host_names import HostNames
from pai_sdk._service.wire_errors import WireError
from tests.service.fakes import ScriptedExecutor
from tests.service.identity.test_two_users import user
from tests.service.services import Client, job_body
from tests.service.web.browsing import ask_as_browser, headers_of_page, sign_in
from tests.support.waiting import PATIENCE_S, until


@pytest.fixture
def operator(start: Callable[..., Any]) -> Iterator[Client]:
    with start(ScriptedExecutor()) as client:
        yield client


def auth_of(client: Client) -> Acs3Auth:
    key = static_credentials(client.info.access_key_id, client.info.access_key_secret)
    return Acs3Auth(key, "Any", "2022-01-12")


def revoke(operator: Client, client: Client, name: str) -> None:
    answer = operator.call("DELETE", f"/users/{name}/keys/{client.info.access_key_id}")
    assert answer.status_code == 200, answer.text


def test_an_open_stream_ends_with_its_key(operator: Client) -> None:
    alice = user(operator, "alice")
    other = operator.call("POST", "/users/alice/keys").json()
    url = f"{alice.info.endpoint}/api/v1/events"
    with requests.get(
        url, params={"topics": "runs"}, auth=auth_of(alice), stream=True, timeout=PATIENCE_S
    ) as open_:
        lines = open_.iter_lines()
        while b"ready" not in next(lines):
            pass
        revoke(operator, alice, "alice")
        later = Client(
            replace(alice.info, access_key_id=other["AccessKeyId"], access_key_secret=other["AccessKeySecret"])
        )
        job_id = later.create(job_body())
        assert not any(job_id in line.decode() for line in lines)  # and they end
    again = requests.get(url, auth=auth_of(alice), timeout=PATIENCE_S)
    assert again.status_code == 403


def test_a_held_response_does_not_come_after_the_revoke(operator: Client, held: set[Subscription]) -> None:
    alice = user(operator, "alice")
    job_id = alice.create(job_body())
    alice.until(job_id, "Running")
    known = alice.call("GET", f"/trainingjobs/{job_id}").headers["ETag"]
    path, headers = f"/trainingjobs/{job_id}", {"If-None-Match": known, "Prefer": "wait=20"}
    with ThreadPoolExecutor(1) as pool:
        held.clear()
        waiting = pool.submit(alice.call, "GET", path, headers=headers)
        until(lambda: held)
        revoke(operator, alice, "alice")
        operator.call("POST", f"{path}/labels", body={"Labels": [{"Key": "news", "Value": "secret"}]})
        answer = waiting.result(PATIENCE_S)
    assert answer.status_code == 403, answer.text
    assert answer.json()["Code"] == "InvalidAccessKeyId.NotFound"


def test_a_page_and_its_downloads_end_with_the_key(start: Callable[..., Any]) -> None:
    with start() as operator:
        check_page_of_a_removed_user(operator)


def check_page_of_a_removed_user(operator: Client) -> None:
    alice = user(operator, "alice")
    job_id = alice.create(job_body("echo hi"))
    alice.until(job_id, "Succeed")
    port = urlsplit(alice.info.endpoint).port or 0
    page = sign_in(port, alice.call("POST", "/pagelinks").json()["Url"])
    link = alice.call("POST", "/pagelinks").json()["Url"]
    name, *_ = (one["name"] for one in alice.get(f"/runs/{job_id}/files?path=logs")["entries"])
    wanted = {"path": f"logs/{name}"}
    ticket, later = (alice.call("POST", f"/runs/{job_id}/downloads", body=wanted).json()["url"] for _ in "12")
    assert ask_as_browser(port, "GET", ticket).status == 200
    operator.call("DELETE", "/users/alice")
    assert ask_as_browser(port, "GET", "/api/v1/runs", **page).status == 401
    assert ask_as_browser(port, "GET", later).status == 403
    late = sign_in(port, link)
    assert ask_as_browser(port, "GET", "/api/v1/runs", **late).status == 401


def test_a_name_is_not_given_again(operator: Client) -> None:
    alice = user(operator, "alice")
    job_id = alice.create(job_body())
    alice.bucket().put_object("secret", b"x")
    operator.call("DELETE", "/users/alice")
    answer = operator.call("POST", "/users", body={"Name": "alice"})
    assert (answer.status_code, "alice" in answer.json()["Message"]) == (409, True)
    assert [one["Name"] for one in operator.get("/users")["Users"]] == []
    carol = user(operator, "carol", "admin")
    assert carol.get(f"/trainingjobs/{job_id}")["TrainingJobId"] == job_id
    assert carol.call("PUT", f"/trainingjobs/{job_id}/stop").status_code == 200


def test_a_bucket_that_someone_prepared_is_not_given_to_a_new_user(operator: Client) -> None:
    alice = user(operator, "alice")
    info = alice.info
    prepared = oss2.Bucket(
        oss2.AuthV4(info.access_key_id, info.access_key_secret),
        info.oss_endpoint,
        f"{operator.info.bucket}-bob",
        region=info.region_id,
    )
    prepared.create_bucket()
    prepared.put_object("code/train.py", b"steal()")
    answer = operator.call("POST", "/users", body={"Name": "bob"})
    assert (answer.status_code, answer.json()["Code"]) == (409, "BUCKET_EXISTS")
    assert [one["Name"] for one in operator.get("/users")["Users"]] == ["alice"]


@pytest.mark.parametrize(
    "name",
    [
        "",
        "Alice",
        "ALICE",
        "-a",
        "1a",
        "a_b",
        "a.b",
        "a/b",
        "../a",
        "a b",
        "a\n",
        "аlice",
        "a" * 33,
        "operator\0",
        "a-",
        "local",
    ],
)
def test_strange_names_of_users_are_refused(operator: Client, name: str) -> None:
    assert operator.call("POST", "/users", body={"Name": name}).status_code == 400
    assert operator.get("/users")["Users"] == []


def test_two_keys_made_at_once_both_work_and_one_revoke_leaves_the_other(operator: Client) -> None:
    user(operator, "alice")
    with ThreadPoolExecutor(8) as pool:
        made = [one.json() for one in pool.map(lambda _: operator.call("POST", "/users/alice/keys"), range(8))]
    assert len({one["AccessKeyId"] for one in made}) == 8
    clients = [
        Client(replace(operator.info, access_key_id=one["AccessKeyId"], access_key_secret=one["AccessKeySecret"]))
        for one in made
    ]
    assert {one.call("GET", "/trainingjobs").status_code for one in clients} == {200}
    revoke(operator, clients[0], "alice")
    assert [one.call("GET", "/trainingjobs").status_code for one in clients] == [403] + 7 * [200]


def test_one_user_is_created_once(operator: Client) -> None:
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: operator.call("POST", "/users", body={"Name": "alice"}), range(8)))
    assert sorted(one.status_code for one in answers) == [200] + 7 * [409], [one.text for one in answers]
    assert len(operator.get("/users")["Users"]) == 1


def test_a_request_of_a_user_is_not_accepted_again(operator: Client) -> None:
    alice = user(operator, "alice")
    prepared = requests.Request("GET", f"{alice.info.endpoint}/api/v1/trainingjobs", auth=auth_of(alice)).prepare()
    with requests.Session() as session:
        assert session.send(prepared, timeout=PATIENCE_S).status_code == 200
        again = session.send(prepared, timeout=PATIENCE_S)
    assert (again.status_code, again.json()["Code"]) == (403, "SignatureNonceUsed")


def test_a_key_of_one_user_with_the_secret_of_another_opens_nothing(operator: Client) -> None:
    alice, bob = user(operator, "alice"), user(operator, "bob")
    mixed = Client(replace(alice.info, access_key_secret=bob.info.access_key_secret))
    assert mixed.call("GET", "/trainingjobs").status_code == 403
    assert mixed.call("GET", "/users").status_code == 403


def test_each_key_has_a_rate_of_its_own(start: Callable[..., Any]) -> None:
    with start(ScriptedExecutor(), requests_per_s=5.0) as operator:
        alice, bob = user(operator, "alice"), user(operator, "bob")
        statuses = [alice.call("GET", "/trainingjobs").status_code for _ in range(60)]
        assert statuses[0] == 200
        assert 429 in statuses
        assert bob.call("GET", "/trainingjobs").status_code == 200


def test_the_last_administrator_can_go_since_the_service_has_its_own_key(operator: Client) -> None:
    carol = user(operator, "carol", "admin")
    assert carol.call("DELETE", "/users/carol").status_code == 200
    assert carol.call("GET", "/users").status_code == 403
    assert user(operator, "dora", "admin").get("/users")["TotalCount"] == 1


def test_secrets_of_keys_are_in_no_response_log_or_file(
    start: Callable[..., Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    with start(ScriptedExecutor(), data_dir=tmp_path / "data") as operator:
        alice = user(operator, "alice")
        alice.create(job_body())
        alice.call("GET", "/users")
        shown = f"{operator.get('/users')} {operator.get('/users/alice')} {operator.get('/audit')}"
    secret = alice.info.access_key_secret
    assert secret not in shown
    assert secret not in caplog.text
    for file in (tmp_path / "data").rglob("*"):
        if file.is_file():
            assert secret.encode() not in file.read_bytes(), file


def test_a_job_has_no_key_of_the_service_or_of_its_user(start: Callable[..., Any]) -> None:
    with start() as operator:
        alice = user(operator, "alice")
        job_id = alice.create(job_body("env; cat /proc/self/environ"))
        alice.until(job_id, "Succeed")
        log = "\n".join(alice.get(f"/trainingjobs/{job_id}/logs", PageSize=1000)["Logs"])
    assert "PAI_" in log
    for client in (operator, alice):
        assert client.info.access_key_secret not in log
        assert client.info.access_key_id not in log


def test_a_change_of_rights_is_seen_by_requests_at_the_same_time(operator: Client) -> None:
    alice = user(operator, "alice")
    ended, faults = threading.Event(), []

    def ask() -> None:
        while not ended.is_set():
            answer = alice.call("GET", "/trainingjobs")
            if answer.status_code not in (200, 403):
                faults.append(answer.text)

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for right in 5 * ("read", "submit"):
        operator.call("PUT", "/users/alice", body={"Right": right})
        status = alice.call("POST", "/trainingjobs", body=job_body()).status_code
        assert status == (403 if right == "read" else 200)
    ended.set()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert faults == []


def test_of_who_is_not_signed_in_the_audit_log_has_failed_sign_ins_only(operator: Client) -> None:
    user(operator, "alice")
    before = operator.get("/audit")["Entries"]
    port = urlsplit(operator.info.endpoint).port or 0
    for _ in range(5):
        guessed = ask_as_browser(port, "POST", "/ui/session", {"code": "guessed"}, **headers_of_page(port))
        assert guessed.status == 403
        unsigned = requests.post(f"{operator.info.endpoint}/api/v1/trainingjobs", json={}, timeout=PATIENCE_S)
        assert unsigned.status_code == 401
    entries = operator.get("/audit")["Entries"]
    assert entries[5:] == before
    assert {(one["User"], one["Path"], one["Status"]) for one in entries[:5]} == {("-", "/ui/session", 403)}


def test_a_job_says_whose_it_is(operator: Client) -> None:
    alice = user(operator, "alice")
    jobs = {alice.create(job_body()): "alice", operator.create(job_body()): "local"}
    listed = operator.get("/trainingjobs")["TrainingJobs"]
    assert {one["TrainingJobId"]: one["UserId"] for one in listed} == jobs


class AnyKey:
    """A key ring in which each key has a user of its own."""

    def secret(self, key_id: str) -> str | None:
        return None

    def principal(self, key_id: str) -> Principal | None:
        return Principal(key_id.lower(), key_id, "read")

    def expired_at(self, key_id: str) -> float | None:
        return None


def test_one_page_does_not_use_up_the_requests_of_others() -> None:
    rates = KeyRates(1.0)
    guard = BrowserGuard(
        keys := BrowserKeys(),
        port=80,
        names=HostNames([]),
        rates=rates,
        users=AnyKey(),
    )

    def ask(key_id: str) -> str:
        cookie, key = keys.exchange(keys.new_code(key_id)) or ("", "")
        headers = {"host": "127.0.0.1:80", "sec-fetch-site": "same-origin", "x-pai-ui": key}
        headers["cookie"] = f"pai-ui-80={cookie}"
        scope = {"method": "GET", "path": "/api/v1/runs"}
        try:
            guard.admit({**scope, "headers": [(name.encode(), text.encode()) for name, text in headers.items()]})
        except WireError as error:
            return error.code
        return ""

    assert "Throttling.User" in [ask("ALICE") for _ in range(20)]
    assert ask("BOB") == ""


@pytest.mark.parametrize("name", ["compare", "changes", "downloads"])
def test_a_user_by_the_name_of_an_action_is_in_the_audit_log(operator: Client, name: str) -> None:
    assert operator.call("POST", "/users", body={"Name": name, "Right": "submit"}).status_code == 200
    assert operator.call("PUT", f"/users/{name}", body={"Right": "admin"}).status_code == 200
    assert operator.call("DELETE", f"/users/{name}").status_code == 200
    noted = [(one["Method"], one["Path"]) for one in operator.get("/audit")["Entries"]]
    assert noted[:2] == [("DELETE", f"/api/v1/users/{name}"), ("PUT", f"/api/v1/users/{name}")]


def test_a_comparison_is_no_change_in_the_audit_log(operator: Client) -> None:
    assert operator.call("POST", "/compare", body={"runs": []}).status_code != 404
    assert not [one for one in operator.get("/audit")["Entries"] if one["Path"] == "/api/v1/compare"]
