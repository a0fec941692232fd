"""The actions on training jobs, as they go over the wire."""

from __future__ import annotations

import json
import time
import traceback
from collections.abc import Callable
from typing import Any

import pytest

from pai_sdk._client.api.responses import ApiResponse
from pai_sdk._client.api.training_jobs import TrainingJobs, offers_of
from pai_sdk._client.api.transport import Transport
from pai_sdk._wire.pai.record import JobRecord, RecordSource
from pai_sdk.errors import InvalidResponseError, NotFoundError
from tests.support.messages import refused
from tests.support.waiting import PATIENCE_S
from tests.unit.client.api.scripted_server import Asked, Reply, ScriptedServer


@pytest.fixture
def jobs(transport: Transport) -> TrainingJobs:
    return TrainingJobs(transport)


def paged(items: str, everything: list[Any], *, largest: int = 1000, total: Callable[[int], Any] = str) -> Any:
    """A service that has a list, and a largest page."""

    def answer(asked: Asked) -> Reply:
        size = min(int(asked.query["PageSize"]), largest)
        start = (int(asked.query["PageNumber"]) - 1) * size
        return Reply({items: everything[start : start + size], "TotalCount": total(len(everything))})

    return answer


@pytest.mark.parametrize(
    ("call", "method", "path", "query", "body"),
    [
        (lambda j: j.stop("t-1"), "PUT", "/api/v1/trainingjobs/t-1/stop", {}, None),
        (lambda j: j.delete("t-1"), "DELETE", "/api/v1/trainingjobs/t-1", {}, None),
        (
            lambda j: j.update_labels("t-1", {"a": "b c"}),
            "POST",
            "/api/v1/trainingjobs/t-1/labels",
            {},
            {"Labels": [{"Key": "a", "Value": "b c"}]},
        ),
        (lambda j: j.error_info("t-1"), "GET", "/api/v1/trainingjobs/t-1/errorinfo", {}, None),
    ],
)
def test_paths_and_fields(
    server: ScriptedServer, jobs: TrainingJobs, call: Any, method: str, path: str, query: Any, body: Any
) -> None:
    call(jobs)
    (asked,) = server.asked
    assert (asked.method, asked.path, asked.query) == (method, path, query)
    assert (asked.json if asked.body else None) == body


class TestGet:
    def test_a_job(self, server: ScriptedServer, jobs: TrainingJobs) -> None:
        server.script = [Reply({"TrainingJobId": "t-1", "Status": "Running", "New": {"kept": 1}})]
        record = jobs.get("t-1")
        assert (record.training_job_id, record.status) == ("t-1", "Running")
        assert record.model_extra == {"New": {"kept": 1}}

    def test_an_answer_with_holes(self, server: ScriptedServer, jobs: TrainingJobs) -> None:
        server.script = [Reply({"Status": None, "Instances": None, "AlgorithmSpec": {}, "InputChannels": [{}]})]
        record = jobs.get("t-1")
        assert record.training_job_id == "t-1"
        assert not record.status.is_terminal
        assert record.instances == []

    def test_the_same_record_when_nothing_has_changed(self, server: ScriptedServer, jobs: TrainingJobs) -> None:
        running, ours = {"TrainingJobId": "t-1", "Status": "Running"}, {"ETag": '"7"', "x-pai-offers": "wait"}
        server.script = [
            Reply(running, headers=ours),
            Reply(status=304),
            Reply({"TrainingJobId": "t-1", "Status": "Succeed"}, headers={"ETag": '"8"'}),
        ]
        first = jobs.get("t-1")
        assert jobs.get("t-1", changed_from=first, wait_s=12.9) is first
        assert jobs.get("t-1", changed_from=first, wait_s=0.5).status.is_success
        asked = [(a.headers.get("if-none-match"), a.headers.get("prefer")) for a in server.asked]
        assert asked == [(None, None), ('"7"', "wait=12"), ('"7"', None)]

    @pytest.mark.parametrize("offers", [None, "", "sleep", "all-instances"])
    def test_a_service_that_does_not_offer_long_polls_gets_no_wait(
        self, server: ScriptedServer, jobs: TrainingJobs, offers: str | None
    ) -> None:
        headers = {"ETag": '"7"', **({} if offers is None else {"x-pai-offers": offers})}
        server.script = [Reply({"TrainingJobId": "t-1", "Status": "Running"}, headers=headers)]
        first = jobs.get("t-1")
        jobs.get("t-1", changed_from=first, wait_s=10)
        assert "prefer" not in server.asked[1].headers
        assert first.source.lists_all == (offers == "all-instances")

    def test_an_answer_held_back_is_waited_for(self, server: ScriptedServer, transport: Transport) -> None:
        seen = JobRecord(training_job_id="t-1")
        seen.from_source(RecordSource('"7"', may_wait=True))
        transport.timeout_s = (PATIENCE_S, 0.2)
        server.script = [Reply({"Status": "Succeed"}, after=lambda: time.sleep(0.6))]
        assert TrainingJobs(transport).get("t-1", changed_from=seen, wait_s=PATIENCE_S).status.is_success
        assert len(server.asked) == 1

    def test_no_such_job(self, server: ScriptedServer, jobs: TrainingJobs) -> None:
        server.script = [Reply({"Code": "TRAINING_JOB_NOT_FOUND", "Message": "no t-9"}, 404)]
        with refused(NotFoundError, code="TRAINING_JOB_NOT_FOUND"):
            jobs.get("t-9")

    def test_nonsense_is_reported_with_the_field(self, server: ScriptedServer, jobs: TrainingJobs) -> None:
        server.script = [Reply({"Duration": "a week", "RequestId": "r-3"})]
        with refused(InvalidResponseError) as caught:
            jobs.get("t-1")
        assert caught.value.request_id == "r-3"


class TestList:
    def test_all_pages_and_every_filter(self, server: ScriptedServer, jobs: TrainingJobs) -> None:
        server.answer = paged("TrainingJobs", [{"TrainingJobId": f"t-{n}"} for n in range(250)], total=int)
        found = jobs.list(
            status="Running",
            name="digits",
            labels={"team": 'a "b"'},
            workspace_id="7",
            algorithm_name="xgb",
            algorithm_provider="pai",
            is_temp_algo=False,
            job_id="t-",
            end_time="2030-01-01T00:00:00Z",
            newest_first=False,
        )
        assert [record.training_job_id for record in found] == [f"t-{n}" for n in range(250)]
        assert len(server.asked) == 3
        query = server.asked[2].query
        assert json.loads(query.pop("Labels")) == {"team": 'a "b"'}
        assert query == {
            "Status": "Running",
            "TrainingJobName": "digits",
            "WorkspaceId": "7",
            "AlgorithmName": "xgb",
            "AlgorithmProvider": "pai",
            "IsTempAlgo": "false",
            "TrainingJobId": "t-",
            "StartTime": "2018-01-01T00:00:00Z",
            "EndTime": "2030-01-01T00:00:00Z",
            "SortBy": "GmtCreateTime",
            "Order": "ASC",
            "PageNumber": "3",
            "PageSize": "100",
        }

    def test_pages_are_asked_for_as_the_caller_goes_on(self, server: ScriptedServer, jobs: TrainingJobs) -> None:
        server.answer = paged("TrainingJobs", [{"TrainingJobId": f"t-{n}"} for n in range(1000)])
        found = jobs.list()
        assert server.asked == []
        next(found)
        assert len(server.asked) == 1

    @pytest.mark.parametrize("total", [str, int, lambda n: None, lambda n: "many"])
    @pytest.mark.parametrize("largest", [7, 100])
    @pytest.mark.parametrize("count", [0, 1, 99, 100, 101])
    def test_whatever_the_service_says_of_pages(
        self, server: ScriptedServer, jobs: TrainingJobs, total: Any, largest: int, count: int
    ) -> None:
        everything = [{"TrainingJobId": f"t-{n}"} for n in range(count)]
        server.answer = paged("TrainingJobs", everything, largest=largest, total=total)
        assert len([*jobs.list()]) == count

    def test_a_job_that_slips_onto_the_next_page_comes_once(
        self, server: ScriptedServer, jobs: TrainingJobs
    ) -> None:
        first = [{"TrainingJobId": f"t-{n}"} for n in range(100)]
        server.script = [
            Reply({"TrainingJobs": first, "TotalCount": 101}),
            Reply({"TrainingJobs": [first[-1], {"TrainingJobId": "t-100"}], "TotalCount": 102}),
        ]
        assert [r.training_job_id for r in jobs.list()] == [f"t-{n}" for n in range(101)]

    def test_a_list_without_an_end_ends(self, server: ScriptedServer, jobs: TrainingJobs) -> None:
        # No page numbers and no total, and each time the job has run for longer.
        server.answer = lambda _: Reply({"TrainingJobs": [{"TrainingJobId": "a", "Duration": len(server.asked)}]})
        assert [job.training_job_id for job in jobs.list()] == ["a"]
        assert len(server.asked) < 20

    def test_a_service_without_page_numbers_ends(self, server: ScriptedServer, jobs: TrainingJobs) -> None:
        server.script = [Reply({"TrainingJobs": [{"TrainingJobId": "t-1"}], "TotalCount": 5})]
        assert len([*jobs.list()]) == 1

    def test_one_unreadable_item_does_not_hide_the_others(
        self, server: ScriptedServer, jobs: TrainingJobs, caplog: pytest.LogCaptureFixture
    ) -> None:
        server.script = [Reply({"TrainingJobs": [{"Status": "?"}, "text", {"TrainingJobId": "t-1"}]}), Reply()]
        assert [record.training_job_id for record in jobs.list()] == ["t-1"]
        assert "skipping an item" in caplog.text


def test_metrics_and_events(server: ScriptedServer, jobs: TrainingJobs) -> None:
    points = [{"Name": "loss", "Timestamp": "2026-01-01T00:00:00Z", "Value": n} for n in range(150)]
    server.answer = paged("Metrics", points)
    assert [point.value for point in jobs.metrics("t-1", name="loss")] == [*range(150)]
    assert server.asked[0].query == {"Name": "loss", "Order": "ASC", "PageNumber": "1", "PageSize": "100"}
    server.answer = paged("Events", [f"event {n}" for n in range(3)])
    assert jobs.events("t-1") == ["event 0", "event 1", "event 2"]


@pytest.mark.parametrize(
    ("answer", "reported"),
    [
        ({"ErrorInfo": {"Code": "OOM", "Message": "killed"}}, "OOM"),
        ({"ErrorInfo": {}}, None),
        ({"ErrorInfo": None}, None),
        ({}, None),
    ],
)
def test_error_info(server: ScriptedServer, jobs: TrainingJobs, answer: Any, reported: str | None) -> None:
    server.script = [Reply(answer)]
    info = jobs.error_info("t-1")
    assert (info.code if info else None) == reported


def test_no_value_is_quoted_where_an_answer_cannot_be_read(
    server: ScriptedServer, jobs: TrainingJobs, caplog: pytest.LogCaptureFixture
) -> None:
    """It may be a secret: the variables of a job are in its description."""
    odd = {"Environments": "TOKEN=hush", "Status": "Running"}
    server.script = [Reply({"TrainingJobs": [odd]}), Reply(), Reply(odd)]
    assert [*jobs.list()] == []
    with refused(InvalidResponseError) as caught:
        jobs.get("t-1")
    assert "JobRecord.TrainingJobId: is required" in caplog.text
    assert "hush" not in caplog.text + "".join(traceback.format_exception(caught.value))


def test_a_job_that_is_as_before_equals_its_snapshot_whatever_the_request(
    server: ScriptedServer, jobs: TrainingJobs
) -> None:
    """Or each question about a quiet job would be followed by the next one at once."""
    server.script = [
        Reply({"Status": "Running", "RequestId": "r-1"}),
        Reply({"Status": "Running", "RequestId": "r-2"}),
    ]
    assert jobs.get("t-1") == jobs.get("t-1")


# ---- a later part of the list


@pytest.mark.parametrize(
    ("skip", "largest", "total", "asked"),
    [
        (0, 100, str, ["1", "2", "3"]),
        (250, 100, str, ["3"]),
        (100, 100, str, ["2", "3"]),
        (9000, 100, str, ["91"]),
        (250, 40, str, ["3", "1", "2", "3", "4", "5", "6", "7"]),  # its pages are smaller
        (250, 100, lambda count: None, ["3", "1", "2", "3", "4"]),
    ],
)
def test_pages_before_the_first_job_are_not_requested(
    server: ScriptedServer,
    jobs: TrainingJobs,
    skip: int,
    largest: int,
    total: Callable[[int], Any],
    asked: list[str],
) -> None:
    everything = [{"TrainingJobId": f"t-{number}"} for number in range(260)]
    server.answer = paged("TrainingJobs", everything, largest=largest, total=total)
    assert [job.training_job_id for job in jobs.list(skip=skip)] == [f"t-{number}" for number in range(skip, 260)]
    assert [each.query["PageNumber"] for each in server.asked] == asked


def test_offers_are_split_at_commas() -> None:
    assert offers_of(ApiResponse({}, headers={"x-pai-offers": "wait, First-Line"})) == {"wait", "first-line"}
    assert offers_of(ApiResponse({})) == set()
