"""A create whose answer is lost makes one job, not two."""

from __future__ import annotations

import copy
import json
import pickle
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pai_sdk import Processor, Session
from pai_sdk._client.backend.base import Plan
from pai_sdk._client.backend.service import ServiceBackend
from pai_sdk._client.submission import SubmissionPolicy, submit
from pai_sdk._core.config.credentials import static_credentials
from pai_sdk._core.retry import RetryPolicy
from pai_sdk._wire.pai.request import SUBMISSION_LABEL, TrainingJobRequest
from pai_sdk.errors import (
    ConflictError,
    ConnectionFailedError,
    InvalidInputError,
    InvalidRequestError,
    InvalidResponseError,
)
from tests.support.messages import refused
from tests.unit.client.api.conftest import FakeClock
from tests.unit.client.api.scripted_server import Asked, Reply, Reset, ScriptedServer, Step


def a_request(name: str = "demo") -> TrainingJobRequest:
    return TrainingJobRequest.model_validate(
        {"TrainingJobName": name, "WorkspaceId": "1", "ComputeResource": {"EcsSpec": "ecs.c6.large"}}
    )


class FakeService:
    """Keeps jobs, and spoils what a seed says: before the job is made, after it, and on the way back of lists."""

    def __init__(
        self,
        server: ScriptedServer,
        clock: FakeClock,
        *,
        shows_labels: bool = True,
        filters: bool = True,
        lag_s: float = 0.0,
        dedupes: bool = False,
    ) -> None:
        self.jobs: list[dict[str, Any]] = []
        self.created_s: list[float] = []
        self.stopped: list[str] = []
        self.faults: list[str] = []
        self.late: list[tuple[float, dict[str, Any]]] = []
        self.lag_s = lag_s
        self._clock = clock
        self._shows_labels = shows_labels
        self._filters = filters
        self._headers = {"x-pai-offers": "something, submission-dedupe"} if dedupes else {}
        server.answer = self.answer

    def answer(self, asked: Asked) -> Step:
        self._let_the_late_arrive()
        fault = self.faults.pop(0) if self.faults else ""
        if asked.path.endswith("/stop"):
            self.stopped.append(asked.path.split("/")[-2])
            return _spoilt(fault) or Reply()
        if asked.method == "POST":
            return self._create(asked.json, fault)
        if not asked.path.endswith("/trainingjobs"):
            number = int(asked.path.rpartition("-")[2])
            return Reply({"TrainingJobId": f"t-{number}", "Labels": self.jobs[number - 1]["Labels"]})
        return _spoilt(fault) or Reply(self._list(asked), headers=self._headers)

    def _create(self, body: dict[str, Any], fault: str) -> Step:
        kind, _, rest = fault.partition(":")
        if kind == "overtaken":  # carried out only when it is sent again
            self.late.append((float("inf"), body))
            return Reset
        self._let_the_late_arrive(until_s=float("inf"))
        if kind == "before":
            return _spoilt(rest) or Reply()
        if kind == "late":  # carried out this many seconds after the connection broke
            self.late.append((self._clock.now_s + float(rest), body))
            return Reset
        if kind == "away":  # silent for this many seconds, then gone; carried out after as many again
            self._clock.now_s += float(rest)
            self.late.append((self._clock.now_s + float(rest) - 1, body))
            return Reset
        if kind != "doubled refusal":
            self._add(body)
        if kind.startswith("doubled"):
            return Reply({"Code": "SignatureNonceUsed", "Message": "used", "RequestId": "r"}, 400)
        return _spoilt(fault) or Reply({"TrainingJobId": f"t-{len(self.jobs)}", "RequestId": "r"})

    def _add(self, body: dict[str, Any]) -> None:
        if not (self._headers and body["Labels"] in [job["Labels"] for job in self.jobs]):
            self.jobs.append(body)
            self.created_s.append(self._clock.now_s)

    def _list(self, asked: Asked) -> dict[str, Any]:
        wanted = json.loads(asked.query["Labels"]) if self._filters else {}
        found = []
        for number, (job, created_s) in enumerate(zip(self.jobs, self.created_s, strict=True), 1):
            labels = {label["Key"]: label["Value"] for label in job["Labels"]}
            if wanted.items() <= labels.items() and created_s + self.lag_s <= self._clock.now_s:
                shown = {"Labels": job["Labels"]} if self._shows_labels else {}
                found.append({"TrainingJobId": f"t-{number}", "TrainingJobName": job["TrainingJobName"], **shown})
        return {"TrainingJobs": found[::-1], "TotalCount": len(found)}

    def _let_the_late_arrive(self, until_s: float | None = None) -> None:
        until_s = self._clock.now_s if until_s is None else until_s
        for arrival_s, body in self.late:
            if arrival_s <= until_s:
                self._add(body)
        self.late = [each for each in self.late if each[0] > until_s]


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


@pytest.mark.parametrize(("dedupes", "lag_s"), [(True, 0.0), (False, 0.0), (False, 20.0)])
def test_70_creates_with_faults_make_one_job_each(
    server: ScriptedServer, backend: ServiceBackend, clock: FakeClock, dedupes: bool, lag_s: float
) -> None:
    before = ["before:reset", "before:500", "before:429", "before:bare 429"]
    late = ["late:2", "late:50", "away:120"]
    kinds = ["reset", "cut", "500", "html", "empty", "no id", "doubled", *late, *before]
    service = FakeService(server, clock, dedupes=dedupes, lag_s=lag_s)
    lost = 0
    for seed in range(70):
        dice = random.Random(seed)
        service.jobs.clear()
        service.created_s.clear()
        service.stopped.clear()
        service.faults = [dice.choice(kinds)] + [dice.choice(["", *kinds]) for _ in range(dice.randrange(3))]
        lost += not service.faults[0].startswith(("before", *late))
        trial = f"seed {seed}: {service.faults}"
        job_id = submit(Plan(a_request(f"demo-{seed}")), backend, policy=SubmissionPolicy(repeat_s=600))
        going_on = [f"t-{number + 1}" for number in range(len(service.jobs))]
        going_on = [each for each in going_on if each not in service.stopped]
        assert going_on == [job_id], trial
        service.faults, service.late = [], []
    assert lost > 15


def test_a_lost_answer_is_looked_up(server: ScriptedServer, backend: ServiceBackend, clock: FakeClock) -> None:
    service = FakeService(server, clock)
    service.faults = ["reset"]
    assert submit(Plan(a_request()), backend) == "t-1"
    assert [asked.method for asked in server.asked] == ["POST", "GET"]
    (label,) = service.jobs[0]["Labels"]
    assert label["Key"] == SUBMISSION_LABEL
    assert json.loads(server.asked[1].query["Labels"]) == {SUBMISSION_LABEL: label["Value"]}


def test_no_lookup_and_no_pause_when_all_goes_well(
    server: ScriptedServer, backend: ServiceBackend, clock: FakeClock
) -> None:
    FakeService(server, clock)
    assert submit(Plan(a_request()), backend) == "t-1"
    assert (len(server.asked), clock.pauses) == (1, [])


def test_two_submissions_of_one_request_are_two_jobs(
    server: ScriptedServer, backend: ServiceBackend, clock: FakeClock
) -> None:
    service = FakeService(server, clock)
    request = a_request()
    assert submit(Plan(request), backend) != submit(Plan(request), backend)
    assert service.jobs[0]["Labels"] != service.jobs[1]["Labels"]
    assert request.labels == []


def test_a_label_that_is_there_is_kept(server: ScriptedServer, backend: ServiceBackend, clock: FakeClock) -> None:
    service = FakeService(server, clock)
    submit(Plan(a_request().with_label(SUBMISSION_LABEL, "mine")), backend)
    assert service.jobs[0]["Labels"] == [{"Key": SUBMISSION_LABEL, "Value": "mine"}]


@pytest.mark.parametrize(("shows_labels", "filters"), [(False, True), (True, False)])
def test_a_list_that_hides_labels_or_ignores_them(
    server: ScriptedServer, backend: ServiceBackend, clock: FakeClock, shows_labels: bool, filters: bool
) -> None:
    service = FakeService(server, clock, shows_labels=shows_labels, filters=filters)
    submit(Plan(a_request("another")), backend)
    service.faults = ["reset"]
    assert submit(Plan(a_request()), backend) == "t-2"
    assert len(service.jobs) == 2


@pytest.mark.parametrize(("status", "error"), [(400, InvalidRequestError), (409, ConflictError)])
def test_a_refusal_is_final(
    server: ScriptedServer, backend: ServiceBackend, status: int, error: type[Exception]
) -> None:
    server.script = [Reply({"Code": "No", "Message": "not so"}, status)]
    with refused(error, code="No"):
        submit(Plan(a_request()), backend)
    assert len(server.asked) == 1


def test_a_name_taken_by_our_own_first_attempt(
    server: ScriptedServer, backend: ServiceBackend, clock: FakeClock
) -> None:
    service = FakeService(server, clock)
    keep = service.answer

    def answer(asked: Asked) -> Step:
        if asked.method == "POST" and any(a.method == "POST" for a in server.asked[:-1]):
            service._let_the_late_arrive()
            return Reply({"Code": "NameTaken", "Message": "there is such a job"}, 409)
        return keep(asked)

    server.answer = answer
    service.faults = ["late:60"]
    assert submit(Plan(a_request()), backend) == "t-1"


def test_an_open_end_says_what_to_look_for(server: ScriptedServer, backend: ServiceBackend) -> None:
    server.script = [Reset]
    with refused(ConnectionFailedError) as caught:
        submit(Plan(a_request()), backend)
    assert caught.value.maybe_arrived
    label = server.asked[0].json["Labels"][0]["Value"]
    assert label in str(caught.value)
    assert [a.method for a in server.asked].count("POST") == 1


def test_a_wrong_endpoint_is_reported_as_such(server: ScriptedServer, backend: ServiceBackend) -> None:
    server.script = [Reply(b"<html>nginx</html>", 404)]
    with refused(InvalidResponseError):
        submit(Plan(a_request()), backend)


def posts(server: ScriptedServer) -> int:
    return [asked.method for asked in server.asked].count("POST")


class TestWithoutDedupe:
    """A service that does not know a submission's label, and whose lists lag, gets no second job."""

    @pytest.mark.parametrize(
        ("fault", "lag_s"), [("reset", 59), ("late:55", 0), ("away:120", 0), ("away:60", 30), ("doubled", 40)]
    )
    def test_the_job_is_searched_for_as_long_as_its_create_was_away(
        self, server: ScriptedServer, backend: ServiceBackend, clock: FakeClock, fault: str, lag_s: float
    ) -> None:
        service = FakeService(server, clock, lag_s=lag_s if fault != "away:60" else 0)
        service.faults = [fault]
        assert submit(Plan(a_request()), backend) == "t-1"
        assert (posts(server), len(service.jobs)) == (1, 1)
        assert len(server.asked) < 40, "the pauses become longer"

    def test_a_create_is_given_two_minutes(self, server: ScriptedServer, backend: ServiceBackend) -> None:
        timeouts: dict[str, Any] = {}
        transport = backend._transport
        call = transport.call

        def noted(action: str, *args: Any, **more: Any) -> Any:
            timeouts[action] = more.get("timeout_s")
            return call(action, *args, **more)

        transport.call = noted  # type: ignore[method-assign]
        server.script = [Reply({"TrainingJobId": "t-1"})]
        submit(Plan(a_request()), backend)
        assert timeouts == {"CreateTrainingJob": (20.0, 120.0)}

    @pytest.mark.parametrize("lag_s", [0.0, 30.0])
    def test_a_surplus_job_is_stopped_and_reported(
        self,
        server: ScriptedServer,
        backend: ServiceBackend,
        clock: FakeClock,
        caplog: pytest.LogCaptureFixture,
        lag_s: float,
    ) -> None:
        service = FakeService(server, clock, lag_s=lag_s)
        service.faults = ["overtaken"]
        assert submit(Plan(a_request()), backend) == "t-1"
        assert service.stopped == ["t-2"]
        assert "t-1 is kept, t-2 was stopped" in caplog.text

    def test_a_surplus_job_that_cannot_be_stopped_is_reported(
        self, server: ScriptedServer, backend: ServiceBackend, clock: FakeClock, caplog: pytest.LogCaptureFixture
    ) -> None:
        service = FakeService(server, clock)
        keep = service.answer
        server.answer = lambda asked: (
            Reply({"Code": "Forbidden", "Message": "no"}, 403) if asked.path.endswith("/stop") else keep(asked)
        )
        service.faults = ["overtaken"]
        assert submit(Plan(a_request()), backend) == "t-1"
        assert "t-1 is kept; t-2 could not be stopped, stop it" in caplog.text

    def test_after_two_unanswered_creates_both_jobs_are_found(
        self, server: ScriptedServer, backend: ServiceBackend, clock: FakeClock
    ) -> None:
        service = FakeService(server, clock)
        list_answers = len(list(_pauses_until(60)))
        service.faults = ["late:70", *[""] * list_answers, "reset"]
        assert submit(Plan(a_request()), backend) == "t-1"
        assert (len(service.jobs), service.stopped) == (2, ["t-2"])

    def test_a_job_of_another_submission_is_never_stopped(
        self, server: ScriptedServer, backend: ServiceBackend, clock: FakeClock
    ) -> None:
        """A list that neither filters by labels nor shows them leaves the name, which others may have, too."""
        service = FakeService(server, clock, shows_labels=False, filters=False)
        submit(Plan(a_request("ours")), backend)
        service.faults = ["overtaken"]
        assert submit(Plan(a_request("ours")), backend) == "t-2"
        assert service.stopped == ["t-3"]

    def test_what_may_be_of_another_submission_is_reported_and_not_stopped(
        self, server: ScriptedServer, backend: ServiceBackend, clock: FakeClock, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Not even the job itself shows its labels, so that all there is to know it by is the name."""
        service = FakeService(server, clock, shows_labels=False)
        keep = service.answer
        server.answer = lambda asked: (
            Reply({"TrainingJobId": asked.path.rpartition("/")[2]})
            if asked.path.rpartition("/")[2].startswith("t-")
            else keep(asked)
        )
        service.faults = ["overtaken"]
        assert submit(Plan(a_request()), backend) == "t-1"
        assert service.stopped == []
        assert "t-2 may be the second one: check it, and stop it" in caplog.text

    def test_a_create_that_surely_arrived_is_not_sent_again(
        self, server: ScriptedServer, backend: ServiceBackend, clock: FakeClock
    ) -> None:
        service = FakeService(server, clock)
        service.faults = ["doubled refusal"]
        with refused(ConnectionFailedError) as caught:
            submit(Plan(a_request()), backend)
        assert caught.value.maybe_arrived
        assert (posts(server), clock.now_s) == (1, pytest.approx(60))

    @pytest.mark.parametrize("fault", ["500", "html", "reset"])
    def test_a_service_that_never_answers_a_create(
        self, server: ScriptedServer, backend: ServiceBackend, clock: FakeClock, fault: str
    ) -> None:
        service = FakeService(server, clock)
        keep = service.answer
        server.answer = lambda asked: _spoilt(fault) or Reply() if asked.method == "POST" else keep(asked)
        with refused(ConnectionFailedError):
            submit(Plan(a_request()), backend)
        assert posts(server) == 3
        assert clock.now_s < 200


def _pauses_until(end_s: float) -> Any:
    """As the search pauses: doubling from 0.2 to 5 s; one look more than pauses."""
    now_s, pause_s = 0.0, 0.2
    while now_s < end_s:
        yield pause_s
        now_s, pause_s = now_s + pause_s, min(2 * pause_s, 5.0)
    yield 0.0


class TestWithDedupe:
    def test_it_is_sent_again_at_once(
        self, server: ScriptedServer, backend: ServiceBackend, clock: FakeClock
    ) -> None:
        service = FakeService(server, clock, dedupes=True, lag_s=1000)
        service.faults = ["reset"]
        assert submit(Plan(a_request()), backend) == "t-1"
        assert (posts(server), len(service.jobs)) == (2, 1)
        assert clock.now_s < 1

    def test_a_fault_that_stays_is_not_hammered(
        self, server: ScriptedServer, backend: ServiceBackend, clock: FakeClock
    ) -> None:
        service = FakeService(server, clock, dedupes=True)
        keep = service.answer
        fault = Reply({"Code": "InternalError"}, 500, {"Retry-After": "7"})
        server.answer = lambda asked: fault if asked.method == "POST" else keep(asked)
        with refused(ConnectionFailedError):
            submit(Plan(a_request()), backend)
        assert posts(server) == 10
        assert clock.pauses == [7.0] * 9


class TestSubmittedAgain:
    """The same plan, after an attempt that left open whether there is a job."""

    def test_the_earlier_job_is_found_first(
        self, server: ScriptedServer, backend: ServiceBackend, clock: FakeClock
    ) -> None:
        service = FakeService(server, clock, lag_s=50)
        keep, plan = service.answer, Plan(a_request())
        server.answer = lambda asked: keep(asked) if asked.method == "POST" else Reset
        service.faults = ["reset"]
        with pytest.raises(ConnectionFailedError):
            submit(plan, backend)
        assert posts(server) == 1
        server.answer = keep
        assert submit(plan, backend) == "t-1"
        assert (posts(server), len(service.jobs)) == (1, 1)

    def test_after_an_hour_one_look_is_enough(
        self, server: ScriptedServer, backend: ServiceBackend, clock: FakeClock
    ) -> None:
        service, plan = FakeService(server, clock), Plan(a_request())
        server.answer = lambda asked: Reset
        with pytest.raises(ConnectionFailedError):
            submit(plan, backend)
        server.answer = service.answer
        server.asked.clear()
        clock.pauses.clear()
        clock.now_s += 3600
        assert submit(plan, backend) == "t-1"
        assert [asked.method for asked in server.asked] == ["GET", "POST", "GET"]
        assert (service.stopped, clock.pauses) == ([], [])

    def test_after_an_interrupt_the_job_is_found(
        self, server: ScriptedServer, backend: ServiceBackend, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        service, plan = FakeService(server, clock), Plan(a_request())
        create = backend.create

        def interrupted(*args: Any, **more: Any) -> str:
            create(*args, **more)
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(backend, "create", interrupted)
            with pytest.raises(KeyboardInterrupt):
                submit(plan, backend)
        assert submit(plan, backend) == "t-1"
        assert len(service.jobs) == 1

    def test_after_a_refusal_there_is_no_search(self, server: ScriptedServer, backend: ServiceBackend) -> None:
        plan = Plan(a_request())
        server.script = [Reply({"Code": "No", "Message": "not so"}, 400)] * 2
        for _ in range(2):
            with pytest.raises(InvalidRequestError):
                submit(plan, backend)
        assert [asked.method for asked in server.asked] == ["POST", "POST"]

    def test_a_copy_of_a_plan_is_the_same_submission(
        self, server: ScriptedServer, backend: ServiceBackend, clock: FakeClock
    ) -> None:
        FakeService(server, clock)
        plan = Plan(a_request())
        submit(plan, backend)
        for again in (copy.copy(plan), copy.deepcopy(plan), replace(plan, notes=("seen",)), plan.labelled()):
            with refused(InvalidInputError, "plan"):
                submit(again, backend)
        with refused(TypeError):
            pickle.dumps(plan)

    @pytest.mark.parametrize("loaded", [False, True])
    def test_through_a_session(
        self, server: ScriptedServer, retry: RetryPolicy, clock: FakeClock, tmp_path: Path, loaded: bool
    ) -> None:
        service = FakeService(server, clock, lag_s=30)
        keep = service.answer
        key = static_credentials("LTAI-example", "keep-me-secret")
        with Session(
            "cn-hangzhou", "1", oss_bucket_name="models", endpoint=server.endpoint, credentials=key, retry=retry
        ) as session:
            plan = Processor("none", "true", instance_type="ecs.c6.large", session=session).plan()
            if loaded:
                plan = Plan.load(plan.save(tmp_path / "plan.json"))
                service.faults = [""]  # a plan from a file is looked for before it is sent
            service.faults += ["reset"]
            # The network is gone after the create.
            server.answer = lambda asked: Reset if asked.method == "GET" and posts(server) else keep(asked)
            with refused(ConnectionFailedError):
                session.submit(plan)
            server.answer = keep
            assert session.submit(plan).id == "t-1"
            assert len(service.jobs) == 1
            with refused(InvalidInputError, "plan"):
                session.submit(plan)
