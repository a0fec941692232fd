"""A create whose answer is lost makes one job, not two."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from pai_sdk.api import submission
from pai_sdk.api.training_jobs import TrainingJobs
from pai_sdk.api.transport import Transport
from pai_sdk.errors import BadAnswerError, ConflictError, ConnectionFailedError, InvalidRequestError
from pai_sdk.job.request import SUBMISSION_LABEL, TrainingJobRequest
from tests.unit.api.conftest import FakeClock
from tests.unit.api.scripted_server import Asked, Reply, Reset, ScriptedServer, Step


def a_request(name: str = "demo") -> TrainingJobRequest:
    return TrainingJobRequest.model_validate(
        {"TrainingJobName": name, "WorkspaceId": "1", "ComputeResource": {"EcsSpec": "ecs.c6.large"}}
    )


class FakeService:
    """Keeps jobs, and spoils what a seed says: before the job is made, after it, and on the way back of lists."""

    def __init__(self, server: ScriptedServer, *, shows_labels: bool = True, filters: bool = True) -> None:
        self.jobs: list[dict[str, Any]] = []
        self.faults: list[str] = []
        self.late: list[tuple[int, dict[str, Any]]] = []
        self._shows_labels = shows_labels
        self._filters = filters
        server.answer = self.answer

    def answer(self, asked: Asked) -> Step:
        self._let_the_late_arrive()
        fault = self.faults.pop(0) if self.faults else ""
        if asked.method == "POST":
            return self._create(asked.json, fault)
        return _spoilt(fault) or Reply(self._list(asked))

    def _create(self, body: dict[str, Any], fault: str) -> Step:
        if fault.startswith("before:"):
            return _spoilt(fault.partition(":")[2]) or Reply()
        if fault.startswith("late:"):
            self.late.append((int(fault.partition(":")[2]), body))
            return Reset
        self.jobs.append(body)
        return _spoilt(fault) or Reply({"TrainingJobId": f"t-{len(self.jobs)}", "RequestId": "r"})

    def _list(self, asked: Asked) -> dict[str, Any]:
        wanted = json.loads(asked.query["Labels"]) if self._filters else {}
        found = []
        for number, job in enumerate(self.jobs, 1):
            labels = {label["Key"]: label["Value"] for label in job["Labels"]}
            if wanted.items() <= labels.items():
                shown = {"Labels": job["Labels"]} if self._shows_labels else {}
                found.append({"TrainingJobId": f"t-{number}", "TrainingJobName": job["TrainingJobName"], **shown})
        return {"TrainingJobs": found, "TotalCount": len(found)}

    def _let_the_late_arrive(self) -> None:
        self.late = [(left - 1, body) for left, body in self.late]
        self.jobs += [body for left, body in self.late if left <= 0]
        self.late = [each for each in self.late if each[0] > 0]


def _spoilt(fault: str) -> Step | None:
    return {
        "reset": Reset,
        "cut": Reply({"TrainingJobId": "t-?"}, cut=3),
        "500": Reply({"Code": "InternalError"}, 500),
        "html": Reply(b"<html>bad gateway</html>", 502),
        "empty": Reply(b""),
        "429": Reply({"Code": "Throttling.User"}, 429),
        "bare 429": Reply(b"", 429),
        "no id": Reply({"RequestId": "r"}),
    }.get(fault)


@pytest.fixture
def jobs(transport: Transport) -> TrainingJobs:
    return TrainingJobs(transport)


def test_200_creates_with_faults_make_one_job_each(server: ScriptedServer, jobs: TrainingJobs) -> None:
    before = ["before:reset", "before:500", "before:429", "before:bare 429"]
    kinds = ["reset", "cut", "500", "html", "empty", "no id", "late:2", *before]
    service = FakeService(server)
    lost = 0
    for seed in range(200):
        dice = random.Random(seed)
        service.jobs.clear()
        service.faults = [dice.choice(kinds)] + [dice.choice(["", *kinds]) for _ in range(dice.randrange(3))]
        lost += not service.faults[0].startswith(("before", "late"))
        job_id = submission.create(jobs, a_request(f"demo-{seed}"))
        assert (len(service.jobs), job_id) == (1, "t-1"), f"seed {seed}"
        service.faults, service.late = [], []
    assert lost > 50


def test_a_lost_answer_is_looked_up(server: ScriptedServer, jobs: TrainingJobs) -> None:
    service = FakeService(server)
    service.faults = ["reset"]
    assert submission.create(jobs, a_request()) == "t-1"
    assert [asked.method for asked in server.asked] == ["POST", "GET"]
    (label,) = service.jobs[0]["Labels"]
    assert label["Key"] == SUBMISSION_LABEL
    assert json.loads(server.asked[1].query["Labels"]) == {SUBMISSION_LABEL: label["Value"]}


def test_no_lookup_and_no_pause_when_all_goes_well(
    server: ScriptedServer, jobs: TrainingJobs, clock: FakeClock
) -> None:
    FakeService(server)
    assert submission.create(jobs, a_request()) == "t-1"
    assert (len(server.asked), clock.pauses) == (1, [])


def test_two_submissions_of_one_request_are_two_jobs(server: ScriptedServer, jobs: TrainingJobs) -> None:
    service = FakeService(server)
    request = a_request()
    assert submission.create(jobs, request) != submission.create(jobs, request)
    assert service.jobs[0]["Labels"] != service.jobs[1]["Labels"]
    assert request.labels == []


def test_a_label_that_is_there_is_kept(server: ScriptedServer, jobs: TrainingJobs) -> None:
    service = FakeService(server)
    submission.create(jobs, a_request().with_label(SUBMISSION_LABEL, "mine"))
    assert service.jobs[0]["Labels"] == [{"Key": SUBMISSION_LABEL, "Value": "mine"}]


@pytest.mark.parametrize(("shows_labels", "filters"), [(False, True), (True, False)])
def test_a_list_that_hides_labels_or_ignores_them(
    server: ScriptedServer, jobs: TrainingJobs, shows_labels: bool, filters: bool
) -> None:
    service = FakeService(server, shows_labels=shows_labels, filters=filters)
    submission.create(jobs, a_request("another"))
    service.faults = ["reset"]
    assert submission.create(jobs, a_request()) == "t-2"
    assert len(service.jobs) == 2


@pytest.mark.parametrize(("status", "error"), [(400, InvalidRequestError), (409, ConflictError)])
def test_a_refusal_is_final(
    server: ScriptedServer, jobs: TrainingJobs, status: int, error: type[Exception]
) -> None:
    server.script = [Reply({"Code": "No", "Message": "not so"}, status)]
    with pytest.raises(error, match="not so"):
        submission.create(jobs, a_request())
    assert len(server.asked) == 1


def test_a_name_taken_by_our_own_first_attempt(server: ScriptedServer, jobs: TrainingJobs) -> None:
    service = FakeService(server)
    keep = service.answer

    def answer(asked: Asked) -> Step:
        if asked.method == "POST" and any(a.method == "POST" for a in server.asked[:-1]):
            service._let_the_late_arrive()
            return Reply({"Code": "NameTaken", "Message": "there is such a job"}, 409)
        return keep(asked)

    server.answer = answer
    service.faults = ["late:6"]
    assert submission.create(jobs, a_request()) == "t-1"


def test_an_open_end_says_what_to_look_for(server: ScriptedServer, jobs: TrainingJobs) -> None:
    server.script = [Reset]
    with pytest.raises(ConnectionFailedError, match=f"Look for one with the label {SUBMISSION_LABEL}=") as caught:
        submission.create(jobs, a_request())
    assert caught.value.maybe_arrived
    label = server.asked[0].json["Labels"][0]["Value"]
    assert label in str(caught.value)
    assert [a.method for a in server.asked].count("POST") == 1


def test_a_wrong_endpoint_is_told_as_such(server: ScriptedServer, jobs: TrainingJobs) -> None:
    server.script = [Reply(b"<html>nginx</html>", 404)]
    with pytest.raises(BadAnswerError, match="check that the endpoint"):
        submission.create(jobs, a_request())
