"""The test mode in which the service behaves as a cloud may that is not ours."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
import requests

from pai_sdk._service.settings import ForeignCloud
from pai_sdk._wire.pai.request import SUBMISSION_LABEL
from tests.service.services import Client, job_body
from tests.support.waiting import PATIENCE_S, until

BODY = job_body(Labels=[{"Key": SUBMISSION_LABEL, "Value": "s-1"}])


def listed(client: Client) -> list[str]:
    return [job["TrainingJobId"] for job in client.get("/trainingjobs")["TrainingJobs"]]


def test_dedupe_is_announced_where_there_is_some(service: Client, start: Callable[..., Any]) -> None:
    offers = "submission-dedupe, runs, changes, roles, notifications"
    assert service.call("GET", "/trainingjobs").headers["x-pai-offers"] == offers
    assert service.call("POST", "/trainingjobs", body=BODY).headers["x-pai-offers"] == offers
    with start(foreign=ForeignCloud()) as client:
        assert "x-pai-offers" not in client.call("GET", "/trainingjobs").headers
        first, second = client.create(BODY), client.create(BODY)
        assert first != second
        assert sorted(listed(client)) == sorted([first, second])


def test_lists_lag_and_the_job_itself_does_not(start: Callable[..., Any]) -> None:
    with start(foreign=ForeignCloud(list_lag_s=3600)) as client:
        job_id = client.create(BODY)
        assert listed(client) == []
        assert client.get(f"/trainingjobs/{job_id}")["TrainingJobId"] == job_id


def test_a_new_job_is_listed_when_the_lag_is_over(start: Callable[..., Any]) -> None:
    with start(foreign=ForeignCloud(list_lag_s=0.2)) as client:
        job_id = client.create(BODY)
        until(lambda: listed(client) == [job_id])


def test_a_delivery_that_is_doubled_is_refused_and_makes_one_job(start: Callable[..., Any]) -> None:
    with start(foreign=ForeignCloud(doubled=1)) as client:
        answer = client.call("POST", "/trainingjobs", body=BODY)
        assert (answer.status_code, answer.json()["Code"]) == (403, "SignatureNonceUsed")
        assert len(listed(client)) == 1


@pytest.mark.parametrize("late", [{"create_late_s": 0.5}, {"response_delay_s": 0.5}])
def test_a_late_create_is_carried_out_though_the_client_has_gone(
    start: Callable[..., Any], late: dict[str, float]
) -> None:
    with start(foreign=ForeignCloud(**late)) as client:
        begun = time.monotonic()
        job_id = client.create(BODY)
        assert time.monotonic() - begun >= 0.5
        client.session.request = _impatient(client.session.request)  # type: ignore[method-assign]
        with pytest.raises(requests.exceptions.ReadTimeout):
            client.create(BODY)
        client.session = requests.Session()
        until(lambda: len(listed(client)) == 2)
        assert job_id in listed(client)


def _impatient(ask: Callable[..., Any]) -> Any:
    return lambda *args, **more: ask(*args, **{**more, "timeout": (PATIENCE_S, 0.1)})
