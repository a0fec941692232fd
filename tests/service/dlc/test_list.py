"""ListJobs, changes of jobs and tags, on a service whose jobs never end."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.service.dlc.dlc_client import DlcClient, dlc_body
from tests.service.fakes import ScriptedExecutor
from tests.service.services import Client, running_service

BODIES: dict[str, dict[str, Any]] = {
    "alpha": {"UserCommand": "python train.py", "Settings": {"Tags": {"team": "a b+c"}, "Caller": "me"}},
    "beta_1": {"JobType": "XGBoostJob", "Description": "The second", "Accessibility": "PUBLIC"},
    "beta-2": {
        "ResourceId": "quota1",
        "Priority": 3,
        "JobSpecs": [
            {
                "Type": "Worker",
                "PodCount": 2,
                "Image": "pytorch:2",
                "ResourceConfig": {"CPU": "1", "Memory": "1Gi"},
            }
        ],
    },
}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with running_service(tmp_path_factory.mktemp("list") / "data", ScriptedExecutor(), slots=2) as client:
        yield client


@pytest.fixture(scope="module")
def dlc(service: Client) -> DlcClient:
    dlc = DlcClient(service.info)
    for name, fields in BODIES.items():
        job_id = dlc.create(dlc_body(DisplayName=name, **fields))
        if "Priority" not in fields:  # the last one would be started before others that wait
            dlc.until(job_id, "Running")
    return dlc


def names(dlc: DlcClient, **query: Any) -> list[str]:
    return [job["DisplayName"] for job in dlc.do("ListJobs", **query)["Jobs"]]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({}, ["beta-2", "beta_1", "alpha"]),
        ({"Order": "asc", "SortBy": "DisplayName"}, ["alpha", "beta-2", "beta_1"]),
        ({"SortBy": "JobType", "Order": "desc"}, ["beta_1", "beta-2", "alpha"]),
        ({"DisplayName": "BETA"}, ["beta-2", "beta_1"]),
        ({"DisplayName": "a_1"}, ["beta_1"]),
        ({"PageSize": 2}, ["beta-2", "beta_1"]),
        ({"PageSize": 2, "PageNumber": 2}, ["alpha"]),
        ({"JobType": "XGBoostJob"}, ["beta_1"]),
        ({"Status": "Running"}, ["beta_1", "alpha"]),
        ({"Status": "Queuing"}, ["beta-2"]),
        ({"Status": "Stopping"}, []),
        ({"Tags": json.dumps({"team": "a b+c"})}, ["alpha"]),
        ({"Tags": json.dumps({"team": "x"})}, []),
        ({"ShowOwn": "True"}, ["beta-2", "beta_1", "alpha"]),
        ({"ShowOwn": "True", "FromAllWorkspaces": "True", "WorkspaceId": "2"}, ["beta-2", "beta_1", "alpha"]),
        ({"WorkspaceId": "2"}, []),
        ({"StartTime": "1970-01-01T00:00:00Z"}, ["beta-2", "beta_1", "alpha"]),
        ({"EndTime": "2020-01-01T00:00:00Z"}, []),
        ({"StartTime": "1970-01-01T00:00Z", "TimeRangeField": "GmtFinishTime"}, []),
        ({"Accessibility": "PUBLIC"}, ["beta_1"]),
        ({"Description": "second"}, ["beta_1"]),
        ({"UserCommandSearch": "TRAIN.py"}, ["alpha"]),
        ({"ImageSearch": "pytorch"}, ["beta-2"]),
        ({"ReasonSearch": "stopped"}, []),
        ({"ResourceId": "quota1"}, ["beta-2"]),
        ({"ResourceIds": "quota0,quota1"}, ["beta-2"]),
        ({"Caller": "me"}, ["alpha"]),
        ({"PaymentType": "PrePaid"}, ["beta-2"]),
        ({"PaymentType": "PostPaid"}, ["beta_1", "alpha"]),
        ({"PaymentType": "Spot"}, []),
        ({"TemplateId": "none"}, []),
        ({"Username": "local"}, ["beta-2", "beta_1", "alpha"]),
        ({"UserIdForFilter": "someone"}, []),
    ],
)
def test_listing_selects_and_sorts(dlc: DlcClient, query: dict[str, Any], found: list[str]) -> None:
    assert names(dlc, **query) == found


def test_listing_by_ids_counts_all(dlc: DlcClient) -> None:
    page = dlc.do("ListJobs", PageSize=1)
    assert page["TotalCount"] == 3
    ids = [job["JobId"] for job in dlc.do("ListJobs")["Jobs"]]
    assert names(dlc, JobIds=",".join(ids[:2])) == ["beta-2", "beta_1"]
    assert names(dlc, JobId=ids[2]) == ["alpha"]
    item = page["Jobs"][0]
    assert (item["NodeCount"], item["RequestGPU"], item["RequestCPU"]) == ("2", "0", 2)
    assert (item["Username"], item["UserId"]) == ("local", "local")


@pytest.mark.parametrize(
    ("query", "where"),
    [
        ({"PageSize": 101}, "PageSize"),
        ({"PageSize": 0}, "PageSize"),
        ({"PageNumber": 1001}, "PageNumber"),
        ({"PageSize": "many"}, "PageSize"),
        ({"SortBy": "Color"}, "SortBy"),
        ({"Order": "up"}, "Order"),
        ({"Status": "Dreaming"}, "Status"),
        ({"StartTime": "soon"}, "StartTime"),
        ({"Tags": "team"}, "Tags"),
        ({"FromAllWorkspaces": "true"}, "FromAllWorkspaces"),
        ({"NumericRangeField": "x"}, "NumericRangeField"),
        ({"TimeRangeField": "x"}, "TimeRangeField"),
    ],
)
def test_wrong_queries_are_refused(dlc: DlcClient, query: dict[str, Any], where: str) -> None:
    status, code, message = dlc.refused("ListJobs", **query)
    assert (status, code) == (400, "InvalidParameter")
    assert message.startswith(where)


def test_a_stopping_job_is_listed_as_such(dlc: DlcClient) -> None:
    job_id = dlc.create(dlc_body(DisplayName="gamma"))
    dlc.do("StopJob", ids={"job_id": job_id})
    assert dlc.until(job_id)["Status"] == "Stopped"
    dlc.do("DeleteJob", ids={"job_id": job_id})


def test_a_waiting_job_is_changed(dlc: DlcClient) -> None:
    waiting = dlc.do("ListJobs", DisplayName="beta-2")["Jobs"][0]["JobId"]
    running = dlc.do("ListJobs", DisplayName="alpha")["Jobs"][0]["JobId"]
    for job_id, before, after in ((waiting, 3, 7), (running, None, None)):
        ids = {"job_id": job_id}
        assert dlc.do("GetJob", ids=ids).get("Priority") == before
        assert dlc.do("UpdateJob", {"Priority": 7}, ids)["JobId"] == job_id
        assert dlc.do("GetJob", ids=ids).get("Priority") == after
    ids = {"job_id": running}
    dlc.do("UpdateJob", {"Description": "new", "Accessibility": "PUBLIC"}, ids)
    job = dlc.do("GetJob", ids=ids)
    assert (job["Description"], job["Accessibility"]) == ("new", "PUBLIC")
    dlc.do("UpdateJob", {"Description": ""}, ids)
    assert "Description" not in dlc.do("GetJob", ids=ids)
    for update in ({"Priority": 0}, {"Accessibility": "PRIVATE"}, {"UserCommand": "x"}):
        assert dlc.refused("UpdateJob", update, ids)[:2] == (400, "InvalidParameter")
