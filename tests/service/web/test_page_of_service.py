"""The page of a service: signing in, the API as its scripts use it, and attacks on both."""

from __future__ import annotations

import http.client
import shlex
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import requests

from pai_sdk._client.api.transport import Acs3Auth
from pai_sdk._core.config.credentials import static_credentials
from pai_sdk._core.version import __version__
from pai_sdk._service.services.tickets import Tickets
from pai_sdk._service.settings import ForeignCloud
from tests.service.fakes import ScriptedExecutor
from tests.service.services import Client, job_body, keep_to_a_quiet_port, running_service
from tests.service.web.browsing import Answer, ask_as_browser, code_in, headers_of_page, sign_in
from tests.support.waiting import PATIENCE_S


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    folder = tmp_path_factory.mktemp("page") / "data"
    with running_service(folder, ScriptedExecutor(), names=("train.example", "https://tls.example")) as found:
        yield found


@pytest.fixture(scope="module")
def job_id(client: Client) -> str:
    job_id = client.create(job_body())
    client.until(job_id, "Running")
    return job_id


@pytest.fixture
def page(client: Client) -> dict[str, str]:
    return signed_in(client)


def port_of(client: Client) -> int:
    port = urlsplit(client.info.endpoint).port
    assert port is not None
    return port


def new_link(client: Client, body: Any = None) -> str:
    answer = client.call("POST", "/pagelinks", body=body)
    assert answer.status_code == 200, answer.text
    link: str = answer.json()["Url"]
    return link


def signed_request(client: Client, method: str, path: str, host: str = "") -> requests.PreparedRequest:
    """A request as a client sends it that knows the service by another name and port."""
    own = urlsplit(client.info.endpoint).netloc
    request = requests.Request(method, f"http://{host or own}/api/v1{path}").prepare()
    key = static_credentials(client.info.access_key_id, client.info.access_key_secret)
    Acs3Auth(key, "Any", "2022-01-12")(request)
    request.url = f"{client.info.endpoint}/api/v1{path}"
    return request


def signed_in(client: Client) -> dict[str, str]:
    return sign_in(port_of(client), new_link(client))


def ask(client: Client, method: str, path: str, body: Any = None, **headers: str) -> Answer:
    return ask_as_browser(port_of(client), method, path, body, **headers)


def send(client: Client, page: dict[str, str], method: str, path: str, body: Any = None, **changes: str) -> Answer:
    """A request of a script of the page, with changes to its headers."""
    return ask(client, method, path, body, **headers_of_page(port_of(client), **{**page, **changes}))


# ---- what the page does


def test_a_link_signs_one_browser_in(client: Client) -> None:
    link = new_link(client)
    assert link.startswith(f"{client.info.endpoint}/ui/#code=")
    page = sign_in(port_of(client), link)
    assert send(client, page, "GET", "/api/v1/runs").status == 200
    again = send(client, {}, "POST", "/ui/session", {"code": code_in(link)})
    assert (again.status, again.json["Code"]) == (403, "CodeNotValid")
    assert again.json["Command"] == f"pai-sdk ui --data {shlex.quote(str(client.info.data_dir))}"
    assert again.json["Command"] in again.json["Message"]


def test_a_link_may_lead_to_a_job(client: Client, job_id: str) -> None:
    link = new_link(client, {"JobId": job_id})
    assert link.endswith(f"&run={job_id}")
    sign_in(port_of(client), link)
    assert client.call("POST", "/pagelinks", body={"JobId": "nothing"}).status_code == 404
    assert client.call("POST", "/pagelinks", body={"Other": 1}).status_code == 400
    assert client.call("POST", "/pagelinks").json()["Url"].startswith("http://")


def test_the_page_uses_each_action_of_the_service(client: Client, page: dict[str, str]) -> None:
    created = send(client, page, "POST", "/api/v1/trainingjobs", job_body())
    assert created.status == 200
    job = f"/api/v1/trainingjobs/{created.json['TrainingJobId']}"
    assert send(client, page, "GET", job).json["Status"]
    assert send(client, page, "GET", "/api/v1/runs").status == 200
    assert send(client, page, "PUT", f"{job}/stop", {}).status == 200
    client.until(created.json["TrainingJobId"])
    assert send(client, page, "DELETE", job).status == 200
    assert send(client, page, "GET", job).status == 404


def test_what_the_service_tells_of_itself(client: Client, page: dict[str, str]) -> None:
    about = send(client, page, "GET", "/ui/about").json
    assert (about["kind"], about["version"]) == ("service", __version__)
    assert shlex.split(about["command"]) == ["pai-sdk", "ui", "--data", str(client.info.data_dir)]
    assert {"stop", "rerun", "delete"} <= set(about["can"])
    assert about["place"].startswith("service on ")
    assert ask(client, "GET", "/ui/about").status == 401


def test_a_job_names_its_page(client: Client, job_id: str) -> None:
    expected = f"{client.info.endpoint}/ui/#run={job_id}"
    assert client.get(f"/trainingjobs/{job_id}")["TrainingJobUrl"] == expected
    assert client.get("/trainingjobs", TrainingJobId=job_id)["TrainingJobs"][0]["TrainingJobUrl"] == expected
    changed = client.call("POST", "/trainingjobs/changes", body={"Known": {job_id: ""}}).json()
    assert changed["TrainingJobs"][0]["TrainingJobUrl"] == expected


@pytest.mark.parametrize(
    ("host", "begins"),
    [
        ("localhost:9000", "http://localhost:9000/ui/#"),  # through a tunnel
        ("train.example:80", "http://train.example:80/ui/#"),
        ("tls.example", "https://tls.example/ui/#"),
        ("evil.example", "{endpoint}/ui/#"),
    ],
)
def test_links_have_the_name_that_the_client_uses(client: Client, job_id: str, host: str, begins: str) -> None:
    expected = begins.format(endpoint=client.info.endpoint)
    link = client.session.send(signed_request(client, "POST", "/pagelinks", host), timeout=PATIENCE_S).json()
    assert link["Url"].startswith(expected)
    asked = signed_request(client, "GET", f"/trainingjobs/{job_id}", host)
    job = client.session.send(asked, timeout=PATIENCE_S).json()
    assert job["TrainingJobUrl"] == f"{expected}run={job_id}"


def test_a_page_stays_signed_in_after_the_service_was_started_again(tmp_path: Path) -> None:
    keep_to_a_quiet_port(tmp_path)
    with running_service(tmp_path, ScriptedExecutor()) as first:
        page = signed_in(first)
    with running_service(tmp_path, ScriptedExecutor()) as second:
        assert port_of(second) == port_of(first)
        assert send(second, page, "GET", "/api/v1/runs").status == 200


def test_a_foreign_cloud_has_no_page(start: Callable[..., Any]) -> None:
    with start(ScriptedExecutor(), foreign=ForeignCloud()) as client:
        assert client.call("POST", "/pagelinks").status_code == 404
        assert ask(client, "GET", "/ui/").status == 403  # an object of the bucket `ui`
        job = client.get(f"/trainingjobs/{client.create(job_body())}")
        assert job["TrainingJobUrl"] is None


def test_the_store_keeps_objects_whose_keys_begin_like_the_page(client: Client) -> None:
    client.bucket().put_object("ui/index.html", b"an object")
    assert client.bucket().get_object("ui/index.html").read() == b"an object"
    host = f"{client.info.bucket}.localhost:{port_of(client)}"
    assert ask(client, "GET", "/ui/index.html", Host=host).status == 403  # of the store: it is not signed


# ---- attacks-----------


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "0.0.0.0", "localhost.", ""])
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/ui/"),
        ("HEAD", "/ui/"),
        ("GET", "/ui/assets/app.js"),
        ("GET", "/ui/download/ticket"),
        ("POST", "/ui/session"),
        ("GET", "/api/v1/runs"),
        ("OPTIONS", "/api/v1/runs"),
        ("GET", "/api/v1/events?topics=runs"),
        ("POST", "/api/v1/trainingjobs"),
        ("PUT", "/api/v1/trainingjobs/{job}/stop"),
        ("DELETE", "/api/v1/trainingjobs/{job}"),
    ],
)
def test_a_foreign_host_is_refused_on_every_method(
    client: Client, page: dict[str, str], job_id: str, method: str, path: str, host: str
) -> None:
    body = {} if method in ("POST", "PUT") else None
    answer = send(client, page, method, path.format(job=job_id), body, Host=host or " ")
    assert answer.status == 403
    assert method == "HEAD" or answer.json["Code"] == "HostNotAllowed"
    assert client.get(f"/trainingjobs/{job_id}")["Status"] == "Running"


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example",
        "http://localhost:3000",
        "https://127.0.0.1:{port}",
        "evil://127.0.0.1:{port}",
        "http://127.0.0.1:{port}.evil.example",
        "null",
    ],
)
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/api/v1/runs"),
        ("GET", "/api/v1/events?topics=runs"),
        ("POST", "/api/v1/trainingjobs"),
        ("PUT", "/api/v1/trainingjobs/{job}/stop"),
        ("DELETE", "/api/v1/trainingjobs/{job}"),
        ("POST", "/ui/session"),
    ],
)
def test_a_foreign_origin_is_refused(
    client: Client, page: dict[str, str], job_id: str, method: str, path: str, origin: str
) -> None:
    body = None if method == "GET" else {"code": code_in(new_link(client))}
    answer = send(client, page, method, path.format(job=job_id), body, Origin=origin.format(port=port_of(client)))
    assert (answer.status, answer.json["Code"]) == (403, "OriginNotAllowed")
    assert client.get(f"/trainingjobs/{job_id}")["Status"] == "Running"


def test_a_name_behind_https_has_its_own_origin_and_a_secure_cookie(client: Client) -> None:
    def log_in(**changes: str) -> Answer:
        code = code_in(new_link(client))
        return send(client, {}, "POST", "/ui/session", {"code": code}, **changes)

    secure = log_in(Host="tls.example", Origin="https://tls.example")
    assert (secure.status, "; secure" in secure.headers["set-cookie"].lower()) == (200, True)
    assert log_in(Host="tls.example", Origin="http://tls.example").status == 403
    plain = log_in(Host="train.example:80", Origin="http://train.example:80")
    assert (plain.status, "; secure" in plain.headers["set-cookie"].lower()) == (200, False)
    assert log_in(Host="train.example:80", Origin="https://train.example:80").status == 403


@pytest.mark.parametrize(
    "changes",
    [
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
        {"Origin": "", "Sec_Fetch_Site": ""},
        {"Content_Type": "text/plain"},
        {"Content_Type": "application/x-www-form-urlencoded"},
        {"Content_Type": ""},
    ],
)
def test_a_change_must_come_from_a_script_of_the_page(
    client: Client, page: dict[str, str], job_id: str, changes: dict[str, str]
) -> None:
    for method, path in (("PUT", "/stop"), ("DELETE", "")):
        answer = send(client, page, method, f"/api/v1/trainingjobs/{job_id}{path}", {}, **changes)
        assert (answer.status, answer.json["Code"]) == (403, "OriginNotAllowed")
    assert client.get(f"/trainingjobs/{job_id}")["Status"] == "Running"


def test_the_cookie_alone_lets_nothing_in(client: Client, page: dict[str, str], job_id: str) -> None:
    """A page of another server on this machine can make the browser send the cookie, not the key."""
    cookie = {"Cookie": page["Cookie"]}
    for method, path in (("GET", "/api/v1/runs"), ("PUT", f"/api/v1/trainingjobs/{job_id}/stop")):
        without = ask(client, method, path, {}, **headers_of_page(port_of(client), X_PAI_UI="", **cookie))
        assert without.status in (401, 403)
        assert send(client, page, method, path, {}, X_PAI_UI="made-up").status == 401
        assert send(client, page, method, path, {}, Cookie="").status == 401
    assert client.get(f"/trainingjobs/{job_id}")["Status"] == "Running"


def test_the_cookie_and_the_key_of_another_service_are_none_here(
    client: Client, page: dict[str, str], tmp_path: Path
) -> None:
    with running_service(tmp_path / "other", ScriptedExecutor()) as other:
        foreign = signed_in(other)
        assert send(other, foreign, "GET", "/api/v1/runs").status == 200
    renamed = foreign["Cookie"].replace(f"pai-ui-{port_of(other)}", f"pai-ui-{port_of(client)}")
    for wrong in (
        foreign,
        {**foreign, "Cookie": renamed},
        {**page, "X_PAI_UI": foreign["X_PAI_UI"]},
        {**page, "Cookie": f"{foreign['Cookie']}; {renamed}"},
    ):
        assert send(client, wrong, "GET", "/api/v1/runs").status == 401
    both = {**page, "Cookie": f"{foreign['Cookie']}; {page['Cookie']}"}  # as a browser sends them
    assert send(client, both, "GET", "/api/v1/runs").status == 200


def test_the_page_cannot_make_links_nor_can_a_replayed_signature(client: Client, page: dict[str, str]) -> None:
    refused = send(client, page, "POST", "/api/v1/pagelinks", {})
    assert (refused.status, refused.json["Code"]) == (403, "NotForPages")
    url = f"{client.info.endpoint}/api/v1/pagelinks"
    assert requests.post(url, json={}, timeout=PATIENCE_S).status_code == 401
    signed = signed_request(client, "POST", "/pagelinks")
    first, second = (client.session.send(signed, timeout=PATIENCE_S) for _ in range(2))
    assert (first.status_code, second.status_code) == (200, 403)
    assert second.json()["Code"] == "SignatureNonceUsed"


def test_a_code_expires(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(Tickets.__init__.__kwdefaults__, "life_s", 0.2)
    with running_service(tmp_path / "data", ScriptedExecutor()) as client:
        code = code_in(new_link(client))
        time.sleep(0.3)
        answer = send(client, {}, "POST", "/ui/session", {"code": code})
        assert (answer.status, answer.json["Code"]) == (403, "CodeNotValid")


def test_a_code_is_taken_once_by_browsers_at_the_same_time(client: Client) -> None:
    code, statuses = code_in(new_link(client)), list[int]()

    def exchange() -> None:
        statuses.append(send(client, {}, "POST", "/ui/session", {"code": code}).status)

    threads = [threading.Thread(target=exchange) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert sorted(statuses) == [200] + [403] * 7


def test_every_response_to_a_browser_has_the_safety_headers(
    client: Client, page: dict[str, str], job_id: str
) -> None:
    answers = [
        ask(client, "GET", "/ui/"),
        ask(client, "GET", "/ui"),
        ask(client, "GET", "/ui/nothing"),
        ask(client, "GET", "/ui/assets/nothing.js"),
        ask(client, "GET", "/ui/", Host="evil.example"),
        send(client, {}, "POST", "/ui/session", {"code": "x"}),
        send(client, {}, "POST", "/ui/session", {"code": code_in(new_link(client))}),
        send(client, page, "GET", "/ui/about"),
        send(client, page, "GET", "/api/v1/runs"),
        send(client, page, "GET", "/api/v1/events?topics=runs"),
        send(client, page, "GET", f"/api/v1/trainingjobs/{job_id}"),
        send(client, page, "GET", "/api/v1/nothing"),
        send(client, page, "GET", "/elsewhere"),
    ]
    for answer in answers:
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert "unsafe" not in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"
        assert "access-control-allow-origin" not in answer.headers


def test_no_response_to_a_browser_has_the_access_key(client: Client, page: dict[str, str], job_id: str) -> None:
    secrets = (client.info.access_key_secret, client.info.access_key_id)
    for path in (
        "/ui/",
        "/ui/about",
        "/api/v1/runs",
        f"/api/v1/runs/{job_id}",
        f"/api/v1/trainingjobs/{job_id}",
        "/api/v1/workspaces",
    ):
        answer = send(client, page, "GET", path)
        shown = f"{answer.content!r} {answer.headers}"
        assert not [secret for secret in secrets if secret in shown], path


def test_a_path_of_a_download_needs_no_key_and_an_unknown_ticket_gives_nothing(client: Client) -> None:
    assert ask(client, "GET", "/ui/download/made-up").json["Code"] == "TicketNotValid"
    assert ask(client, "POST", "/ui/download/made-up", {}).status == 403


def test_a_stream_of_events_is_open_to_the_page(client: Client, page: dict[str, str]) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port_of(client), timeout=PATIENCE_S)
    headers = {name.replace("_", "-"): value for name, value in page.items()}
    connection.request("GET", "/api/v1/events?topics=runs", headers=headers)
    answer = connection.getresponse()
    assert (answer.status, answer.getheader("content-type")) == (200, "text/event-stream; charset=utf-8")
    assert answer.readline()
    connection.close()
