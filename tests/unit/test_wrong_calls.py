"""Calls with what cannot be meant: one clear error that names the parameter, and nothing is sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pai_sdk import Session, TrainingJob
from pai_sdk.errors import InvalidInputError, PaiError, SettingsError
from tests.unit.job.fake_backend import FakeBackend


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
    ("status", lambda s: TrainingJob.list(status="Succeeded", session=s)),
    ("labels", lambda s: TrainingJob.list(labels="a=b", session=s)),  # type: ignore[arg-type]
    ("retry", lambda s: Session(retry=3)),  # type: ignore[arg-type]
    ("credentials", lambda s: Session(credentials="key")),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("name", "call"), CALLS)
def test_a_wrong_call_names_its_parameter(session: Session, name: str, call: Callable[[Session], Any]) -> None:
    with pytest.raises(InvalidInputError) as caught:
        call(session)
    assert [problem.where for problem in caught.value.problems] == [name]


def test_a_config_path_is_a_path() -> None:
    with pytest.raises(SettingsError, match="config_path"):
        Session(config_path=3)  # type: ignore[arg-type]


ON_A_JOB: list[tuple[str, Callable[[TrainingJob], Any]]] = [
    ("timeout", lambda job: job.wait("3")),  # type: ignore[arg-type]
    ("timeout", lambda job: job.wait(float("nan"))),
    ("target", lambda job: job.download("model", "")),
    ("target", lambda job: job.download("model", None)),  # type: ignore[arg-type]
    ("start", lambda job: job.logs(start=3)),  # type: ignore[arg-type]
    ("labels", lambda job: job.update_labels(None)),  # type: ignore[arg-type]
    ("labels", lambda job: job.update_labels({"a": 1})),  # type: ignore[dict-item]
    ("instance", lambda job: [*job.logs(instance="nobody")]),
]


@pytest.mark.parametrize(("name", "call"), ON_A_JOB)
def test_so_does_one_on_a_job(name: str, call: Callable[[TrainingJob], Any]) -> None:
    backend = FakeBackend()
    backend.lines["train1-master-0"] = ["hello"]
    with pytest.raises(InvalidInputError) as caught:
        call(TrainingJob("train1", backend))
    assert [problem.where for problem in caught.value.problems] == [name]


def test_an_instance_that_never_comes_ends_the_following() -> None:
    backend = FakeBackend()
    backend.lines["train1-master-0"] = ["hello"]
    backend.status = "Succeed"
    with pytest.raises(InvalidInputError, match="it has master-0"):
        list(TrainingJob("train1", backend).logs(instance="nobody", follow=True))


def test_a_notebook_shows_the_message_not_our_insides() -> None:
    try:
        TrainingJob("train1", FakeBackend()).wait("3")  # type: ignore[arg-type]
    except PaiError as error:
        shown = error._render_traceback_()
    assert shown[-1].startswith("InvalidInputError: timeout")
    assert "test_wrong_calls.py" in shown[0]
    assert not [line for line in shown if "pai_sdk/job" in line]
