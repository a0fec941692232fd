"""One port for the API and for the object store: which of them an address means."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest
import requests

from tests.service.services import Client
from tests.support.waiting import PATIENCE_S


@pytest.mark.parametrize("key", ["api/model.bin", "api"])
def test_a_key_may_begin_like_the_api_where_the_host_names_the_bucket(service: Client, key: str) -> None:
    service.bucket().put_object(key, b"weights")
    signed = urlsplit(service.bucket().sign_url("GET", key, 60))
    path = signed.path.removeprefix(f"/{service.info.bucket}")
    answer = requests.get(
        f"{service.info.oss_endpoint}{path}?{signed.query}",
        headers={"Host": f"{service.info.bucket}.localhost:{signed.port}"},
        timeout=PATIENCE_S,
    )
    assert (answer.status_code, answer.content) == (200, b"weights")


def test_the_api_answers_to_localhost(service: Client) -> None:
    port = urlsplit(service.info.endpoint).port
    answer = requests.get(
        f"{service.info.endpoint}/api/v1/workspaces", headers={"Host": f"localhost:{port}"}, timeout=PATIENCE_S
    )
    assert (answer.status_code, answer.json()["Code"]) == (401, "MissingAuthorization")
