"""Attributes by the names of other SDKs, found in the registered module."""

from __future__ import annotations

import copy
import pickle
import traceback

import pytest

from pai_sdk import Estimator, Session, TrainingJob
from pai_sdk._client.job.job_list import JobList
from pai_sdk._client.job.result_lists import MetricList
from pai_sdk.errors import NotOfferedAttributeError
from tests.support.fake_backend import FakeBackend
from tests.support.messages import refused

pytestmark = pytest.mark.interpreter

SESSION = Session("cn-x", "1", oss_bucket_name="models", access_key_id="id", access_key_secret="hush")


class Custom(Session):
    """As users subclass."""

    @property
    def broken(self) -> str:
        raise AttributeError("inner")


def test_an_alias_is_bound_to_the_object() -> None:
    assert SESSION.default_bucket() == "models"
    assert SESSION.oss_bucket_name == "models"
    assert "oss_bucket_name" in dir(SESSION)


def test_subclasses_have_the_aliases_too() -> None:
    custom = Custom("cn-x", "1", oss_bucket_name="mine", access_key_id="id", access_key_secret="hush")
    assert custom.oss_bucket_name == "mine"


def test_an_error_within_a_property_stays_what_it_is() -> None:
    custom = Custom("cn-x", "1", access_key_id="id", access_key_secret="hush")
    with pytest.raises(AttributeError, match="inner"):
        custom.broken  # noqa: B018


def test_an_unknown_attribute_is_an_ordinary_error() -> None:
    with pytest.raises(AttributeError, match="no_such_thing") as caught:
        SESSION.no_such_thing  # noqa: B018
    assert not isinstance(caught.value, NotOfferedAttributeError)
    assert not hasattr(SESSION, "_ipython_display_")


def test_a_misspelt_attribute_has_a_suggestion() -> None:
    with pytest.raises(AttributeError, match="did you mean 'list_jobs'") as caught:
        SESSION.list_job  # noqa: B018
    shown = "\n".join(caught.value._render_traceback_())  # type: ignore[attr-defined]  # as IPython shows it
    assert shown.splitlines()[-1].startswith("AttributeError: 'Session' object has no attribute 'list_job'")
    assert "_core/names/aliases.py" not in shown
    assert "Did you mean" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    ("owner", "name", "instead"),
    [
        (MetricList(), "plot", "compare([job]).plot('loss')"),
        (JobList(iter(())), "wait", "gather(jobs)"),
        (TrainingJob("train1", FakeBackend()), "url", "console_url"),
        (Estimator("img", "true"), "metrics", "latest_job.metrics()"),
    ],
)
def test_a_guess_names_what_to_use(owner: object, name: str, instead: str) -> None:
    with pytest.raises(NotOfferedAttributeError) as caught:
        getattr(owner, name)
    assert instead in str(caught.value)


def test_a_plan_names_who_submits_it() -> None:
    plan = Estimator("img", "true", instance_type="local").plan()
    with pytest.raises(NotOfferedAttributeError) as caught:
        plan.submit()  # type: ignore[attr-defined]
    assert "session.submit(plan)" in str(caught.value)


def test_a_left_out_attribute_names_its_replacement() -> None:
    with refused(NotOfferedAttributeError):
        SESSION.image_api  # noqa: B018


def test_copies_and_pickles_do_not_meet_the_aliases() -> None:
    estimator = Estimator("python:3.11", "true", instance_type="local")
    assert copy.deepcopy(estimator).image_uri == pickle.loads(pickle.dumps(estimator)).image_uri == "python:3.11"
