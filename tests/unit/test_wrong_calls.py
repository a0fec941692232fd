"""Calls with what cannot be meant: one clear error that names the parameter, and nothing is sent."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from pai_sdk import Processor, Session, TrainingJob
from pai_sdk._client.backend.base import Plan
from pai_sdk._client.display.base import Silent
from pai_sdk._core.retry import RetryPolicy
from pai_sdk.errors import InvalidInputError, PaiError, SettingsError, WaitTimeoutError
from tests.support.fake_backend import FAST, FakeBackend
from tests.support.messages import refused
from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.interpreter


@pytest.fixture
def session() -> Session:
    # Nothing listens there; what is sent would be another error.
    where = "http://127.0.0.1:9"
    return Session("r", "1", endpoint=where, oss_endpoint=where, access_key_id="i", access_key_secret="s")


CALLS: list[tuple[str, Callable[[Session], Any]]] = [
    ("plan", lambda s: s.submit(None)),  # type: ignore[arg-type]
    ("plan", lambda s: s.submit({})),  # type: ignore[arg-type]
    ("job_id", lambda s: TrainingJob.get(7, session=s)),  # type: ignore[arg-type]
    ("job_id", lambda s: TrainingJob.get(" ", session=s)),
    ("session", lambda s: TrainingJob.get("train1", session="cn-hangzhou")),  # type: ignore[arg-type]
    ("session", lambda s: TrainingJob.list(session="cn-hangzhou")),  # type: ignore[arg-type]
    ("session", lambda s: Processor("img", "true", session="cn-hangzhou").plan()),  # type: ignore[arg-type]
    ("status", lambda s: TrainingJob.list(status="Done", session=s)),
    ("labels", lambda s: TrainingJob.list(labels="a=b", session=s)),  # type: ignore[arg-type]
    ("labels", lambda s: TrainingJob.list(labels={"a": 5}, session=s)),  # type: ignore[dict-item]
    ("name", lambda s: TrainingJob.list(name=5, session=s)),  # type: ignore[arg-type]
    ("list_jobs()", lambda s: s.list_jobs("digits")),  # type: ignore[call-arg]
    ("limit", lambda s: s.list_jobs(limit=2)),  # type: ignore[call-arg]
    ("job_id", lambda s: s.get_job()),  # type: ignore[call-arg]
    ("channel", lambda s: TrainingJob("train1", FakeBackend()).download()),  # type: ignore[call-arg]
    ("path", lambda s: s.upload(None, "oss://models/a")),  # type: ignore[arg-type]
    ("path", lambda s: s.download("oss://models/a", None)),  # type: ignore[arg-type]
    ("path", lambda s: Plan.load(None)),  # type: ignore[arg-type]
    ("data_dir", lambda s: Session.embedded(5)),  # type: ignore[arg-type]
    ("deadline_s", lambda s: RetryPolicy(deadline_s="60")),  # type: ignore[arg-type]
    ("deadline_s", lambda s: RetryPolicy(deadline_s=-1)),
    ("first_pause_s", lambda s: RetryPolicy(first_pause_s=float("nan"))),
    ("longest_pause_s", lambda s: RetryPolicy(longest_pause_s=float("inf"))),
    ("max_attempts", lambda s: RetryPolicy(max_attempts=0)),
    ("max_attempts", lambda s: RetryPolicy(max_attempts=2.5)),  # type: ignore[arg-type]
    ("retry", lambda s: Session(retry=3)),  # type: ignore[arg-type]
    ("credentials", lambda s: Session(credentials="key")),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("name", "call"), CALLS)
def test_a_wrong_call_names_its_parameter(session: Session, name: str, call: Callable[[Session], Any]) -> None:
    with pytest.raises(InvalidInputError) as caught:
        call(session)
    assert [problem.where for problem in caught.value.problems] == [name]


def test_all_that_is_wrong_with_a_search_is_told_at_once(session: Session) -> None:
    with pytest.raises(InvalidInputError) as caught:
        session.list_jobs(status="Done", name=5, labels=["a"])  # type: ignore[arg-type]
    assert [problem.where for problem in caught.value.problems] == ["status", "name", "labels"]


def test_a_config_path_is_a_path() -> None:
    with refused(SettingsError):
        Session(config_path=3)  # type: ignore[arg-type]


ON_A_JOB: list[tuple[str, Callable[[TrainingJob], Any]]] = [
    ("timeout", lambda job: job.wait("3")),  # type: ignore[arg-type]
    ("timeout", lambda job: job.wait(float("nan"))),
    ("timeout", lambda job: job.wait(Decimal(3))),  # type: ignore[arg-type]
    ("timeout", lambda job: job.wait(timedelta(seconds=3))),  # type: ignore[arg-type]
    ("on_interrupt", lambda job: job.wait(on_interrupt="kill")),  # type: ignore[arg-type]
    ("target", lambda job: job.download("model", "")),
    ("start", lambda job: job.logs(start=3)),  # type: ignore[arg-type]
    ("start['a']", lambda job: job.logs(start={"a": "5"})),  # type: ignore[dict-item]
    ("start['a']", lambda job: job.logs(start={"a": -1})),
    ("labels", lambda job: job.update_labels(None)),  # type: ignore[arg-type]
    ("labels", lambda job: job.update_labels({"a": 1})),  # type: ignore[dict-item]
    ("instance", lambda job: [*job.logs(instance="no-such")]),
]


@pytest.mark.parametrize(("name", "call"), ON_A_JOB)
def test_so_does_one_on_a_job(name: str, call: Callable[[TrainingJob], Any]) -> None:
    backend = FakeBackend()
    backend.lines["train1-master-0"] = ["hello"]
    with pytest.raises(InvalidInputError) as caught:
        call(TrainingJob("train1", backend))
    assert [problem.where for problem in caught.value.problems] == [name]


@pytest.mark.parametrize("timeout", [float("inf"), 1e300, 10**400])
def test_a_wait_may_be_as_long_as_one_likes(timeout: float) -> None:
    backend = FakeBackend()
    backend.lines["train1-master-0"] = ["hello"]
    backend.status = "Succeed"
    assert TrainingJob("train1", backend).wait(timeout, policy=FAST, display=Silent()).status.is_success


@pytest.mark.parametrize("timeout", [0, -5, float("-inf")])
def test_a_wait_without_time_looks_once(timeout: float) -> None:
    patient = replace(FAST, poll_timeout_s=PATIENCE_S)
    backend = FakeBackend()
    job = TrainingJob("train1", backend)
    with refused(WaitTimeoutError):
        job.wait(timeout, policy=patient, display=Silent())
    backend.status = "Succeed"
    assert TrainingJob("train1", backend).wait(timeout, policy=patient, display=Silent()).status.is_success


def test_a_wait_ends_though_no_answer_does(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = threading.Event()
    backend = FakeBackend()
    monkeypatch.setattr(backend, "get", lambda *_, **__: answer.wait(PATIENCE_S))
    try:
        with refused(WaitTimeoutError) as caught:
            TrainingJob("train1", backend).wait(0.05, policy=replace(FAST, poll_timeout_s=0.05), display=Silent())
        assert caught.value.status == ""
    finally:
        answer.set()


def test_an_instance_that_never_comes_ends_the_following() -> None:
    backend = FakeBackend()
    backend.lines["train1-master-0"] = ["hello"]
    backend.status = "Succeed"
    with refused(InvalidInputError, "instance"):
        list(TrainingJob("train1", backend).logs(instance="no-such", follow=True))


def test_a_notebook_shows_the_message_not_our_insides() -> None:
    try:
        TrainingJob("train1", FakeBackend()).wait("3")  # type: ignore[arg-type]
    except PaiError as error:
        shown = error._render_traceback_()
    assert shown[-1].startswith("InvalidInputError: timeout")
    assert "test_wrong_calls.py" in shown[0]
    assert not [line for line in shown if "pai_sdk/_client/job" in line]
