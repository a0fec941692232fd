"""`/healthz`: whether the service works, for whoever asks."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import oss2
import pytest
import requests

from pai_sdk._service.settings import Pace
from pai_sdk._service.state.database import Database
from pai_sdk._service.state.disk import Reserve
from tests.service.services import Client
from tests.support.waiting import PATIENCE_S, until


def ask(client: Client, method: str = "GET") -> requests.Response:
    return requests.request(method, f"{client.info.endpoint}/healthz", timeout=PATIENCE_S)


def test_a_service_that_works_says_so_without_a_key(service: Client) -> None:
    response = ask(service)
    assert (response.status_code, response.json()) == (200, {"status": "ok"})
    assert response.headers["Cache-Control"] == "no-store"
    assert ask(service, "HEAD").status_code == 200
    assert ask(service, "POST").status_code in (400, 401, 403), "only reading it needs no key"


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize(
    ("authorization", "query"),
    [
        ("Bearer a-token", ""),
        ("Basic dXNlcjpwYXNz", ""),
        ("OSS a:b", ""),
        ("OSS4-HMAC-SHA256 Credential=a", ""),
        ("ODPS a:b", ""),
        ("ACS3-HMAC-SHA256 Credential=a", ""),
        ("", "?t=1"),
        ("", "?OSSAccessKeyId=a&Signature=b&Expires=1"),
        ("Bearer a-token", "?probe"),
    ],
)
def test_a_key_or_a_query_does_not_matter(service: Client, method: str, authorization: str, query: str) -> None:
    headers = {"Authorization": authorization} if authorization else {}
    url = f"{service.info.endpoint}/healthz{query}"
    assert requests.request(method, url, headers=headers, timeout=PATIENCE_S).status_code == 200


def test_an_object_of_that_name_is_an_object(service: Client) -> None:
    service.bucket().put_object("healthz", b"an object")
    signed = urlsplit(service.bucket().sign_url("GET", "healthz", 600))
    host = f"{service.info.bucket}.localhost:{signed.port}"
    url = f"http://127.0.0.1:{signed.port}/healthz?{signed.query}"
    assert requests.get(url, headers={"Host": host}, timeout=PATIENCE_S).content == b"an object"


def test_a_bucket_of_that_name_is_a_bucket(service: Client) -> None:
    auth = oss2.AuthV4(service.info.access_key_id, service.info.access_key_secret)
    bucket = oss2.Bucket(
        auth, service.info.oss_endpoint, "healthz", region=service.info.region_id, is_path_style=True
    )
    bucket.create_bucket()
    assert bucket.list_objects().object_list == []
    bucket.delete_bucket()


def test_it_names_the_parts_that_do_not_work(start: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(database: Database) -> bool:
        raise OSError("connection to db.example.com as pai:the-password failed")

    monkeypatch.setattr(Database, "responds", broken)
    monkeypatch.setattr(Reserve, "is_writable", lambda reserve: False)
    with start() as client:
        response = ask(client)
    assert response.status_code == 503
    assert response.json()["status"] == "failing"
    assert sorted(response.json()["problems"]) == ["database", "disk"]
    assert "the-password" not in response.text


def test_a_database_that_hangs_is_told_in_time_and_other_requests_go_on(
    start: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    responds_again = threading.Event()
    monkeypatch.setattr(Database, "responds", lambda database: responds_again.wait(PATIENCE_S))
    with start(pace=Pace(health_timeout_s=0.01)) as client:
        try:
            for _ in range(60):  # more than there are threads for requests
                assert "database" in ask(client).json()["problems"]
            assert client.get("/trainingjobs")["TotalCount"] == 0
        finally:
            responds_again.set()
        until(lambda: ask(client).status_code == 200)
