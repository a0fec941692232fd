"""The actions on jobs of DLC, as they go over the wire."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from pai_sdk._client.api.dlc_jobs import VERSION, DlcJobs
from pai_sdk._client.api.transport import Transport
from pai_sdk._core.config.credentials import static_credentials
from pai_sdk._core.retry import RetryPolicy
from pai_sdk._wire.dlc.jobs import JobQuery, JobUpdate, NewJob
from pai_sdk._wire.dlc.logs import EventQuery, PodLogQuery
from pai_sdk._wire.dlc.metrics import JobMetricsQuery
from pai_sdk.errors import ConnectionFailedError, InvalidRequestError, InvalidResponseError
from tests.unit.client.api.scripted_server import Asked, Reply, Reset, ScriptedServer
from tests.unit.client.api.test_training_jobs import paged


@pytest.fixture
def jobs(server: ScriptedServer, retry: RetryPolicy) -> Iterator[DlcJobs]:
    key = static_credentials("LTAI-example", "a-secret")
    transport = Transport(server.endpoint, key, version=VERSION, retry=retry, timeout_s=(20.0, 60.0))
    yield DlcJobs(transport)
    transport.close()


@pytest.mark.parametrize(
    ("call", "method", "path", "query", "body"),
    [
        (lambda j: j.get("dlc1"), "GET", "/api/v1/jobs/dlc1", {}, None),
        (lambda j: j.stop("dlc1"), "POST", "/api/v1/jobs/dlc1/stop", {}, None),
        (lambda j: j.delete("dlc1"), "DELETE", "/api/v1/jobs/dlc1", {}, None),
        (lambda j: j.update("dlc1", JobUpdate(priority=3)), "PUT", "/api/v1/jobs/dlc1", {}, {"Priority": 3}),
        (
            lambda j: j.pod_logs("dlc1", "dlc1-master-0", PodLogQuery(max_lines=10, pod_uid="u")),
            "GET",
            "/api/v1/jobs/dlc1/pods/dlc1-master-0/logs",
            {"MaxLines": "10", "PodUid": "u"},
            None,
        ),
        (
            lambda j: j.pod_events("dlc1", "dlc1-master-0"),
            "GET",
            "/api/v1/jobs/dlc1/pods/dlc1-master-0/events",
            {},
            None,
        ),
        (
            lambda j: j.events("dlc1", EventQuery(max_events_num=5)),
            "GET",
            "/api/v1/jobs/dlc1/events",
            {"MaxEventsNum": "5"},
            None,
        ),
        (
            lambda j: j.metrics("dlc1", JobMetricsQuery(metric_type="CpuCoreUsage")),
            "GET",
            "/api/v1/jobs/dlc1/metrics",
            {"MetricType": "CpuCoreUsage"},
            None,
        ),
    ],
)
def test_paths_and_fields(
    server: ScriptedServer, jobs: DlcJobs, call: Any, method: str, path: str, query: Any, body: Any
) -> None:
    call(jobs)
    (asked,) = server.asked
    assert (asked.method, asked.path, asked.query) == (method, path, query)
    assert (asked.json if asked.body else None) == body
    assert asked.headers["x-acs-version"] == "2020-12-03"


class TestCreate:
    def test_the_reference_of_the_job(self, server: ScriptedServer, jobs: DlcJobs) -> None:
        server.script = [Reply({"JobId": "dlc1", "RequestId": "R"})]
        assert jobs.create_once(NewJob(display_name="a")).job_id == "dlc1"
        assert server.asked[0].json == {"DisplayName": "a"}

    def test_a_lost_response_is_no_reason_to_send_it_again(self, server: ScriptedServer, jobs: DlcJobs) -> None:
        server.script = [Reset, Reply({"JobId": "dlc2"})]
        with pytest.raises(ConnectionFailedError) as caught:
            jobs.create_once({"DisplayName": "a"})
        assert caught.value.maybe_arrived
        assert len(server.asked) == 1

    def test_a_response_without_an_id(self, server: ScriptedServer, jobs: DlcJobs) -> None:
        server.script = [Reply({"RequestId": "R"})]
        with pytest.raises(InvalidResponseError) as caught:
            jobs.create_once({"DisplayName": "a"})
        assert caught.value.maybe_arrived


def test_unset_objects_that_are_empty_text(server: ScriptedServer, jobs: DlcJobs) -> None:
    server.script = [
        Reply(
            {"Status": "Running", "JobSpecs": [{"Type": "Worker", "EcsSpec": ""}], "CodeSource": "", "Pods": None}
        )
    ]
    job = jobs.get("dlc1")
    assert (job.job_id, job.status, job.job_specs[0].ecs_spec) == ("dlc1", "Running", None)
    assert (job.code_source, job.pods, job.request_id) == (None, [], None)


def test_a_job_that_cannot_be_stopped(server: ScriptedServer, jobs: DlcJobs) -> None:
    server.script = [Reply({"Code": "BadRequest", "Message": "Job can't be stopped"}, status=400)]
    with pytest.raises(InvalidRequestError) as caught:
        jobs.stop("dlc1")
    assert caught.value.code == "BadRequest"


class TestList:
    def test_more_than_a_page(self, server: ScriptedServer, jobs: DlcJobs) -> None:
        everything = [{"JobId": f"dlc{number}"} for number in range(230)]

        def answer(asked: Asked) -> Reply:
            size, number = int(asked.query["PageSize"]), int(asked.query["PageNumber"])
            return Reply({"Jobs": everything[size * (number - 1) : size * number], "TotalCount": 230})

        server.answer = answer
        assert [job.job_id for job in jobs.list(JobQuery(show_own=True))] == [job["JobId"] for job in everything]
        assert {asked.query["PageSize"] for asked in server.asked} == {"100"}
        assert {asked.query["ShowOwn"] for asked in server.asked} == {"true"}

    def test_jobs_that_move_to_the_next_page(self, server: ScriptedServer, jobs: DlcJobs) -> None:
        server.script = [
            Reply({"Jobs": [{"JobId": "dlc3"}, {"JobId": "dlc2"}], "TotalCount": 4}),
            Reply({"Jobs": [{"JobId": "dlc2"}, {"JobId": "dlc1"}], "TotalCount": 4}),
            Reply({"Jobs": [], "TotalCount": 4}),
        ]
        assert [job.job_id for job in jobs.list(page_size=2)] == ["dlc3", "dlc2", "dlc1"]

    def test_a_page_with_entries_that_are_no_jobs(self, server: ScriptedServer, jobs: DlcJobs) -> None:
        server.script = [Reply({"Jobs": [None, {}, {"JobId": "dlc1", "RequestGPU": "8"}], "TotalCount": "3"})]
        page = jobs.list_page(1)
        assert ([job.job_id for job in page.items], page.total) == (["dlc1"], 3)
        assert server.asked[0].query["PageNumber"] == "1"


def test_instance_types(jobs: DlcJobs, server: ScriptedServer) -> None:
    server.answer = paged("EcsSpecs", [{"InstanceType": f"ecs.{n}", "Cpu": "4"} for n in range(3)])
    specs = [*jobs.ecs_specs()]
    assert [(spec.instance_type, spec.cpu) for spec in specs] == [("ecs.0", 4), ("ecs.1", 4), ("ecs.2", 4)]


def test_a_job_as_it_was_received(jobs: DlcJobs, server: ScriptedServer) -> None:
    server.script = [Reply({"JobId": "dlc1", "ReasonCode": "", "Priority": "soon"})]
    assert jobs.get_body("dlc1") == {"JobId": "dlc1", "ReasonCode": "", "Priority": "soon"}
