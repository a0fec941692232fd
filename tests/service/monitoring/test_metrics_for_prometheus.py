"""`/metrics`: what Prometheus reads, and who may."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import oss2
import pytest
import requests
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import update
from sqlalchemy.exc import OperationalError
from typer.testing import CliRunner

from pai_sdk._client.api.transport import Acs3Auth
from pai_sdk._core.config.credentials import static_credentials
from pai_sdk._service import server
from pai_sdk._service.monitoring.job_figures import JobFigures
from pai_sdk._service.services.jobs.host_resources import Capacity
from pai_sdk._service.settings import ServiceSettings
from pai_sdk._service.state.database import Database
from pai_sdk._service.state.models import Job, Transition
from pai_sdk.cli.root import app
from tests.service.certificates import Authority
from tests.service.fakes import ScriptedExecutor
from tests.service.services import HELD_S, Client, job_body, running_service
from tests.service.tunnel.tunnelling import TunnelledExecutor, running_job, tunnel
from tests.support.waiting import PATIENCE_S, until

TOKEN = "the-token-of-prometheus"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    folder = tmp_path_factory.mktemp("metrics") / "data"
    with running_service(folder, metrics_token=TOKEN, slots=2, cpus=4, max_hold_s=HELD_S) as found:
        yield found


def ask(client: Client, **headers: str) -> requests.Response:
    return requests.get(f"{client.info.endpoint}/metrics", headers=headers, timeout=PATIENCE_S)


class Figures:
    """What one scrape has read."""

    def __init__(self, client: Client) -> None:
        response = ask(client, Authorization=f"Bearer {TOKEN}")
        assert response.status_code == 200, response.text
        assert response.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        self.text = response.text
        self.families = list(text_string_to_metric_families(response.text))

    def __call__(self, sample: str, **labels: str) -> float:
        """The sum of the samples with these labels."""
        return sum(
            one.value
            for family in self.families
            for one in family.samples
            if one.name == sample and labels.items() <= one.labels.items()
        )

    def routes(self) -> set[str]:
        return {one.labels["route"] for family in self.families for one in family.samples if "route" in one.labels}


# ---- who may read it


def test_only_the_token_and_administrators_read_it(client: Client) -> None:
    nobody = ask(client)
    assert (nobody.status_code, nobody.headers["WWW-Authenticate"]) == (401, "Bearer")
    assert ask(client, Authorization="Bearer wrong").status_code == 401
    assert ask(client, Authorization=f"bearer {TOKEN}").status_code == 200

    name = f"{client.info.endpoint}/metrics"
    own = static_credentials(client.info.access_key_id, client.info.access_key_secret)
    signed = requests.get(name, auth=Acs3Auth(own, "Any", "2022-01-12"), timeout=PATIENCE_S)
    assert signed.status_code == 200
    assert "pai_jobs" in signed.text

    made = client.call("POST", "/users", body={"Name": "reader", "Right": "submit"})
    assert made.status_code == 200, made.text
    key = client.call("POST", "/users/reader/keys").json()
    theirs = static_credentials(key["AccessKeyId"], key["AccessKeySecret"])
    refused = requests.get(name, auth=Acs3Auth(theirs, "Any", "2022-01-12"), timeout=PATIENCE_S)
    assert (refused.status_code, refused.json()["Code"]) == (403, "Forbidden.NoPermission")
    forged = static_credentials(client.info.access_key_id, "another-secret")
    assert requests.get(name, auth=Acs3Auth(forged, "Any", "2022-01-12"), timeout=PATIENCE_S).status_code == 403


def test_without_a_token_only_signed_requests_read_it(start: Callable[..., Any]) -> None:
    with start(ScriptedExecutor()) as client:
        assert ask(client, Authorization="Bearer ").status_code == 401
        assert ask(client, Authorization="Bearer None").status_code == 401


def test_a_bucket_of_that_name_is_a_bucket(client: Client) -> None:
    auth = oss2.AuthV4(client.info.access_key_id, client.info.access_key_secret)
    region = client.info.region_id
    bucket = oss2.Bucket(auth, client.info.oss_endpoint, "metrics", region=region, is_path_style=True)
    bucket.create_bucket()
    assert bucket.list_objects().object_list == []
    bucket.delete_bucket()


def test_an_embedded_service_measures_nothing(start: Callable[..., Any]) -> None:
    with start(ScriptedExecutor(), embedded=True, metrics_token=TOKEN) as client:
        assert ask(client, Authorization=f"Bearer {TOKEN}").status_code == 403


def test_the_token_file_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[ServiceSettings] = []
    monkeypatch.setattr(server, "serve", lambda settings, **_: found.append(settings))
    file = tmp_path / "token"
    for _ in range(2):
        done = CliRunner().invoke(app, ["serve", "--data", str(tmp_path), "--metrics-token-file", str(file)])
        assert done.exit_code == 0, done.output
    tokens = {settings.metrics_token for settings in found}
    assert tokens == {file.read_text().strip()}
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.read_text().strip() not in repr(found)


# ---- requests


def test_requests_are_counted_by_route_and_status(client: Client) -> None:
    before = Figures(client)
    job = "/api/v1/trainingjobs/{job_id}"
    for number in range(3):
        assert client.call("GET", f"/trainingjobs/train-nowhere{number}").status_code == 404
    requests.get(f"{client.info.endpoint}/api/v1/trainingjobs", timeout=PATIENCE_S)
    after = Figures(client)
    labels = {"route": job, "method": "GET", "status": "404"}
    assert after("pai_http_requests_total", **labels) - before("pai_http_requests_total", **labels) == 3
    timed = {"route": job, "method": "GET"}
    name = "pai_http_request_seconds_count"
    assert after(name, **timed) - before(name, **timed) == 3
    refused = {"route": "api", "status": "401"}
    assert after("pai_http_requests_total", **refused) - before("pai_http_requests_total", **refused) == 1


def test_what_clients_send_makes_no_labels(client: Client) -> None:
    before = Figures(client).routes()
    for path in ("x1", "x1/y", "api/v1/unheard-of", "ui/assets/no.js", "x?y", "metrics?x"):
        requests.request("PROPFIND", f"{client.info.endpoint}/{path}", timeout=PATIENCE_S)
        requests.get(f"{client.info.endpoint}/{path}", timeout=PATIENCE_S)
    figures = Figures(client)
    new = figures.routes() - before
    assert new <= {"/", "/{bucket}", "/{bucket}/{key}", "/ui/assets/{name}", "api", "page", "metrics", "health"}
    for text in ("unheard-of", "PROPFIND", "no.js", client.info.access_key_id, "reader"):
        assert text not in figures.text


@pytest.mark.parametrize("size_bytes", [300_000, 3 << 20])
def test_bytes_of_objects_are_counted_in_both_directions(client: Client, size_bytes: int) -> None:
    before, content = Figures(client), b"x" * size_bytes
    bucket = client.bucket()
    bucket.put_object("a/b", content)
    assert bucket.get_object("a/b").read() == content
    after = Figures(client)

    def grown(direction: str) -> float:
        name = "pai_object_bytes_total"
        return after(name, direction=direction) - before(name, direction=direction)

    assert grown("in") == len(content)
    assert grown("out") >= len(content)
    assert after("pai_http_requests_total", route="/{bucket}/{key}", method="PUT", status="200") >= 1


def test_followers_of_logs_are_counted_and_their_waits_are_no_latency(client: Client) -> None:
    job_id = client.create(job_body("sleep 600"))
    client.until(job_id, "Running")
    route = {"route": "/api/v1/trainingjobs/{job_id}/logs"}
    follower = threading.Thread(
        target=lambda: client.call("GET", f"/trainingjobs/{job_id}/logs", headers={"Prefer": "wait=600"})
    )
    follower.start()
    until(lambda: Figures(client)("pai_log_followers", kind="poll") == 1)
    client.call("PUT", f"/trainingjobs/{job_id}/stop")
    client.until(job_id, "Terminated")
    follower.join(PATIENCE_S)
    until(lambda: Figures(client)("pai_log_followers", kind="poll") == 0)
    assert Figures(client)("pai_http_requests_total", **route) >= 1
    assert Figures(client)("pai_http_request_seconds_count", **route) == 0

    stream = client.session.get(
        f"{client.info.endpoint}/api/v1/events",
        auth=Acs3Auth(
            static_credentials(client.info.access_key_id, client.info.access_key_secret), "Any", "2022-01-12"
        ),
        stream=True,
        timeout=PATIENCE_S,
    )
    assert stream.status_code == 200
    until(lambda: Figures(client)("pai_log_followers", kind="stream") == 1)
    stream.close()
    client.session.close()
    until(lambda: Figures(client)("pai_log_followers", kind="stream") == 0)


# ---- jobs


def test_a_job_that_is_tried_again_waits_anew(tmp_path: Path) -> None:
    """Counted from its creation, an alert about jobs that wait for long would go off at its first failure."""
    database = Database.in_file(tmp_path / "service.db")
    hour, now = 3600.0, time.time()

    def oldest_s(*, not_before: float | None) -> float:
        with database.write() as session:
            session.execute(update(Job).values(not_before=not_before))
        figures = JobFigures(database, lambda: [], lambda: Capacity(1))
        [found] = [one for one in figures.collect() if one.name == "pai_queue_oldest_seconds"]
        return float(found.samples[0].value)

    with database.write() as session:
        fields = {"name": "a", "workspace_id": "1", "request": {}, "instance_count": 1, "instances": []}
        job = Job(id="train1", status="Submitted", created_at=now - 9 * hour, modified_at=now, **fields)
        first = Transition(status="Submitted", started_at=now - 9 * hour, ended_at=now - 8 * hour)
        ran = Transition(status="Running", started_at=now - 8 * hour, ended_at=now - hour)
        job.transitions = [first, ran, Transition(status="Submitted", started_at=now - hour)]
        session.add(job)
    assert oldest_s(not_before=None) == pytest.approx(hour, abs=60)
    assert oldest_s(not_before=now - hour / 2) == pytest.approx(hour / 2, abs=60)
    assert oldest_s(not_before=now + hour) == 0
    database.close()


def test_jobs_the_queue_and_the_resources(start: Callable[..., Any]) -> None:
    executor = ScriptedExecutor()
    with start(executor, metrics_token=TOKEN, slots=1, cpus=4) as client:
        assert Figures(client)("pai_queue_oldest_seconds") == 0
        first = client.create(job_body(ComputeResource={"InstanceCount": 1, "InstanceSpec": {"CPU": "3"}}))
        client.until(first, "Running")
        client.create(job_body())
        time.sleep(0.05)
        figures = Figures(client)
        assert figures("pai_jobs", status="Running") == 1
        assert figures("pai_jobs", status="Submitted") == figures("pai_queue_jobs") == 1
        assert figures("pai_queue_oldest_seconds") >= 0.05
        assert figures("pai_resources_capacity", resource="instances") == 1
        assert figures("pai_resources_capacity", resource="cpus") == 4
        assert figures("pai_resources_used", resource="instances") == 1
        assert figures("pai_resources_used", resource="cpus") == 3
        assert figures("pai_job_queue_seconds_count") == figures("pai_job_start_seconds_count") == 1
        assert figures("pai_jobs_ended_total") == 0
        client.call("PUT", f"/trainingjobs/{first}/stop")
        client.until(first, "Terminated")
        assert Figures(client)("pai_jobs_ended_total", status="Terminated") == 1


def test_open_tunnels(start: Callable[..., Any]) -> None:
    with start(TunnelledExecutor(), metrics_token=TOKEN) as client:
        assert Figures(client)("pai_tunnels") == 0
        job_id = running_job(client)
        with tunnel(client, job_id), tunnel(client, job_id):
            assert Figures(client)("pai_tunnels") == 2
        until(lambda: Figures(client)("pai_tunnels") == 0)


def test_a_database_that_does_not_respond_takes_only_its_own_figures(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures = Figures(client)
    assert figures("pai_database_up") == 1
    assert figures("pai_database_seconds_count", statement="select") > 0
    assert figures("process_open_fds") > 0

    def broken(self: JobFigures) -> Any:
        raise OperationalError("SELECT", {}, Exception("password=hunter2"))

    monkeypatch.setattr(JobFigures, "_read", broken)
    figures = Figures(client)
    assert figures("pai_database_up") == 0
    assert figures("pai_resources_capacity", resource="instances") == 2
    assert "hunter2" not in figures.text


def test_the_end_of_the_certificate_is_a_figure(start: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "ca").mkdir()
    authority = Authority(tmp_path / "ca")
    files = authority.issue("127.0.0.1", days=10)
    with start(ScriptedExecutor(), tls_cert=files.certificate, tls_key=files.key, metrics_token=TOKEN) as client:
        read = requests.Session()
        read.trust_env, read.verify = False, str(authority.file)
        text = read.get(
            f"{client.info.endpoint}/metrics", headers={"Authorization": f"Bearer {TOKEN}"}, timeout=PATIENCE_S
        ).text
    families = text_string_to_metric_families(text)
    name = "pai_tls_certificate_expires_timestamp_seconds"
    (sample,) = next(family for family in families if family.name == name).samples
    assert 9.9 < (sample.value - time.time()) / 86400 < 10.1
