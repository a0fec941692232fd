"""ListTrainingJobs, labels, and the workspace."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event, insert

from pai_sdk._service.identity.principal import Principal
from pai_sdk._service.services.jobs.changes import Changes
from pai_sdk._service.services.jobs.job_table import Jobs
from pai_sdk._service.services.jobs.listing import JobQuery, find_jobs, jobs_in_parts
from pai_sdk._service.state.database import Database
from pai_sdk._service.state.models import Job, JobLabel, Transition
from pai_sdk._wire.pai.request import TrainingJobRequest
from tests.service.fakes import ScriptedExecutor
from tests.service.services import Client, job_body, running_service
from tests.support.waiting import quickest

NAMES = ["alpha", "beta_1", "beta%2", "Gämma 'x'"]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with running_service(tmp_path_factory.mktemp("list") / "data", ScriptedExecutor(), slots=1) as client:
        for number, name in enumerate(NAMES):
            labels = [{"Key": "number", "Value": str(number)}, {"Key": "kind", "Value": "test"}]
            client.create(job_body(TrainingJobName=name, Labels=labels))
        yield client


EVERYONE = Principal.operator("LTAI")


def names(client: Client, **query: Any) -> list[str]:
    return [job["TrainingJobName"] for job in client.get("/trainingjobs", **query)["TrainingJobs"]]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({}, NAMES[::-1]),
        ({"Order": "ASC"}, NAMES),
        ({"SortBy": "TrainingJobName", "Order": "asc"}, ["Gämma 'x'", "alpha", "beta%2", "beta_1"]),
        ({"TrainingJobName": "beta"}, ["beta%2", "beta_1"]),
        ({"TrainingJobName": "a%2"}, ["beta%2"]),
        ({"TrainingJobName": "_"}, ["beta_1"]),
        ({"TrainingJobName": "ä"}, ["Gämma 'x'"]),
        ({"Labels": json.dumps({"number": "2"})}, ["beta%2"]),
        ({"Labels": json.dumps([{"Key": "number", "Value": "2"}, {"Key": "kind", "Value": "test"}])}, ["beta%2"]),
        ({"Labels": json.dumps({"number": "2", "kind": "other"})}, []),
        ({"PageSize": 2, "PageNumber": 2}, ["beta_1", "alpha"]),
        ({"PageSize": 2, "PageNumber": 3}, []),
        ({"WorkspaceId": "1", "TrainingJobName": "alpha"}, ["alpha"]),
        ({"WorkspaceId": "2"}, []),
        ({"AlgorithmName": "x"}, []),
        ({"IsTempAlgo": "false"}, []),
        ({"EndTime": "2020-01-01T00:00Z"}, []),
        ({"StartTime": "2020-01-01T00:00Z", "TrainingJobName": "alpha"}, ["alpha"]),
        ({"StartTime": "2999-01-01T00:00Z"}, []),
        ({"Status": "Succeed"}, []),
        ({"TrainingJobId": "trainnone"}, []),
    ],
)
def test_filters_and_orders(client: Client, query: dict[str, Any], found: list[str]) -> None:
    assert names(client, **query) == found


def test_status_and_total(client: Client) -> None:
    first = client.get("/trainingjobs", Order="ASC", PageSize=1)
    assert first["TotalCount"] == len(NAMES)
    client.until(first["TrainingJobs"][0]["TrainingJobId"], "Running")
    assert names(client, Status="Running") == ["alpha"]
    assert names(client, Status="Submitted") == NAMES[:0:-1]


@pytest.mark.parametrize(
    "query",
    [
        {"SortBy": "Secret"},
        {"Status": "NoSuchStatus"},
        {"Labels": "x=1"},
        {"Labels": "7"},
        {"Labels": json.dumps({f"k{number}": "v" for number in range(1500)})},
        {"Labels": r'{"a":"\ud800"}'},
        {"Labels": r'[{"Key":"\u0000","Value":"b"}]'},
        {"Order": "up"},
        {"PageSize": 0},
    ],
)
def test_nonsense_is_refused(client: Client, query: dict[str, Any]) -> None:
    answer = client.call("GET", "/trainingjobs", **query)
    assert (answer.status_code, answer.json()["Code"]) == (400, "InvalidParameter")


def test_the_workspace_and_where_its_files_go(client: Client) -> None:
    host = client.info.oss_endpoint.removeprefix("http://")
    assert client.get("/workspaces")["Workspaces"][0]["WorkspaceId"] == "1"
    assert client.get("/defaultWorkspaces")["WorkspaceId"] == "1"
    assert client.get("/workspaces/1")["Status"] == "ENABLED"
    uri = f"oss://pai-local.{host}/"
    assert client.get("/workspaces/1/config", ConfigKey="modelExportPath")["ConfigValue"] == uri
    configs = client.get("/workspaces/1/configs", ConfigKeys="modelExportPath,other")["Configs"]
    assert [config["ConfigValue"] for config in configs] == [uri]
    assert client.call("GET", "/workspaces/2").json()["Code"] == "WORKSPACE_NOT_FOUND"
    assert client.call("GET", "/workspaces/1/config", ConfigKey="x").json()["Code"] == "CONFIG_NOT_FOUND"


def test_labels_are_added_replaced_and_deleted(client: Client) -> None:
    labels = [{"Key": "kind", "Value": "mine"}, {"Key": "number", "Value": "9"}]
    job_id = client.create(job_body(TrainingJobName="labelled", WorkspaceId="1", Labels=labels))
    new = {"Labels": [{"Key": "kind", "Value": "other"}, {"Key": "new", "Value": "ü"}]}
    etag = client.call("GET", f"/trainingjobs/{job_id}").headers["ETag"]
    assert client.call("POST", f"/trainingjobs/{job_id}/labels", body=new).status_code == 200
    assert client.call("DELETE", f"/trainingjobs/{job_id}/labels", Keys="number,none").status_code == 200
    answer = client.call("GET", f"/trainingjobs/{job_id}")
    assert answer.headers["ETag"] != etag
    assert answer.json()["Labels"] == [{"Key": "kind", "Value": "other"}, {"Key": "new", "Value": "ü"}]
    assert names(client, Labels='{"new":"ü"}') == ["labelled"]
    assert client.call("POST", "/trainingjobs/none/labels", body=new).status_code == 404
    assert (
        client.call("POST", f"/trainingjobs/{job_id}/labels", body={"Labels": [{"Key": "a"}]}).status_code == 400
    )


def test_long_lists_of_names_are_refused(client: Client) -> None:
    job_id = client.create(job_body())
    names = ",".join(["a"] * 8_000)
    for method, path, query in (("DELETE", "labels", {"Keys": names}), ("GET", "latestmetrics", {"Names": names})):
        answer = client.call(method, f"/trainingjobs/{job_id}/{path}", **query)
        assert (answer.status_code, answer.json()["Code"]) == (400, "InvalidParameter")


def test_a_list_of_ten_thousand_jobs_is_quick(tmp_path: Path) -> None:
    database = Database.in_file(tmp_path / "service.db")
    request = TrainingJobRequest.model_validate(job_body()).to_wire()
    now, ids = time.time(), [f"train{number}" for number in range(10_000)]
    same = {"workspace_id": "1", "request": request, "instance_count": 1, "modified_at": now, "instances": []}
    with database.write() as session:
        jobs = [
            {"id": id_, "name": f"job-{n}", "status": ("Failed", "Succeed")[n % 2], "created_at": now - n, **same}
            for n, id_ in enumerate(ids)
        ]
        session.execute(insert(Job), jobs)
        session.execute(
            insert(Transition), [{"job_id": id_, "status": "Succeed", "started_at": now} for id_ in ids]
        )
        labels = [{"job_id": id_, "key": "n", "value": str(n % 100)} for n, id_ in enumerate(ids)]
        session.execute(insert(JobLabel), labels)
    queries = [
        JobQuery(EVERYONE),
        JobQuery(EVERYONE, page_number=900),
        JobQuery(EVERYONE, status="Failed", workspace_id="1"),
        JobQuery(EVERYONE, labels={"n": "7"}),
        JobQuery(EVERYONE, name="job-77"),
        JobQuery(EVERYONE, job_id="train5"),
    ]
    for query in queries:

        def took_s(query: JobQuery = query) -> float:
            begun = time.perf_counter()
            with database.read() as session:
                sizes, total = find_jobs(session, query)
                found = [job for part in jobs_in_parts(session, sizes) for job in part]
            assert [job.id for job in found] == [*sizes]
            assert found
            assert total
            return time.perf_counter() - begun

        assert quickest(took_s, enough_s=0.1) < 1, query
    assert Jobs(database, Changes()).get("train5").name == "job-5"
    database.close()


def test_the_jobs_of_a_workspace_are_counted_without_reading_them(tmp_path: Path) -> None:
    database = Database.in_file(tmp_path / "service.db")
    plans: list[str] = []

    def explain(connection: Any, cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        if "count(*)" in statement and not statement.startswith("EXPLAIN"):
            found = connection.connection.driver_connection.execute(f"EXPLAIN QUERY PLAN {statement}", parameters)
            plans.extend(row[3] for row in found)

    event.listen(database.engine, "before_cursor_execute", explain)
    with database.read() as session:
        find_jobs(session, JobQuery(EVERYONE, workspace_id="1"))
    database.close()
    assert [plan for plan in plans[1:] if "SEARCH ON TABLE dlc_jobs" not in plan] == []
    assert "COVERING INDEX jobs_by_workspace" in plans[0]
