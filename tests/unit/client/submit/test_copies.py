"""Copies of submitters, for a search over their parameters; and what is never copied."""

from __future__ import annotations

import copy
import inspect
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from pai_sdk import Estimator, Session, setup_default_session
from pai_sdk.errors import WrongCallError
from tests.support.messages import refused

pytestmark = pytest.mark.interpreter


def a_session() -> Session:
    where = "http://127.0.0.1:9"  # nothing listens there
    return Session("r", "1", endpoint=where, access_key_id="id", access_key_secret="hush", oss_bucket_name="bkt")


@pytest.fixture
def used() -> Estimator:
    """An estimator that has submitted a job."""
    estimator = Estimator("img", "true", hyperparameters={"lr": 0.1}, instance_type="x", session=a_session())
    estimator.jobs.append("a job")  # type: ignore[arg-type]
    return estimator


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_a_copy_has_the_session_but_not_the_jobs(used: Estimator, copied: Callable[[Any], Any]) -> None:
    other = copied(used)
    assert other.session is used.session
    assert other.jobs == []
    other.set_hyperparameters(lr=0.2)
    other.jobs.append("another job")
    assert used.hyperparameters == {"lr": 0.1}
    assert list(map(str, used.jobs)) == ["a job"]
    assert other.plan().request.hyperparameters[0].value == "0.2"


def test_a_submitter_goes_to_another_process_without_a_session(used: Estimator) -> None:
    used.session = None
    there = pickle.loads(pickle.dumps(used))
    assert (there.command, there.hyperparameters, there.jobs) == ("true", {"lr": 0.1}, [])


def test_keys_are_never_pickled(used: Estimator) -> None:
    for holder in (used, used.session):
        with refused(TypeError):
            pickle.dumps(holder)


def test_a_misspelt_setting_is_told_with_the_nearest() -> None:
    for make in (Session, setup_default_session):
        with refused(WrongCallError, "oss_bucked"):
            make("cn-hangzhou", oss_bucked="models")  # type: ignore[call-arg]


def test_editors_show_what_the_default_session_takes() -> None:
    shown = inspect.signature(setup_default_session)
    assert shown.parameters == inspect.signature(Session).parameters
    assert shown.return_annotation == "Session"
