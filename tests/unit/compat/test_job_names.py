"""A job, and its module, by the names that code written for alipai uses."""

from __future__ import annotations

import pytest

import pai_sdk.job
from pai_sdk.errors import InvalidInputError, JobFailed, PaiError
from pai_sdk.exception import PAIException, UnexpectedStatusException
from pai_sdk.job import JobStatus, TrainingJob, TrainingJobStatus
from pai_sdk.job._training_job import ExperimentConfig, ResourceType, SpotSpec
from tests.unit.fake_backend import FakeBackend


def job(**fields: object) -> TrainingJob:
    backend = FakeBackend()
    backend.extra = fields
    return TrainingJob("train0123456789ab", backend)


def test_what_a_job_says_of_itself() -> None:
    made = job(
        TrainingJobName="digits",
        TrainingJobUrl="https://pai.example.com/1",
        WorkspaceId="7",
        ExperimentConfig={"ExperimentId": "exp-1"},
        HyperParameters=[{"Name": "lr", "Value": "0.1"}],
        ReasonCode="R",
        ReasonMessage="why",
        OutputChannels=[{"Name": "model", "OutputUri": "oss://b/m/"}],
    )
    assert (made.training_job_id, made.training_job_name) == ("train0123456789ab", "digits")
    assert made.training_job_url == made.console_uri == "https://pai.example.com/1"
    assert (made.workspace_id, made.experiment_config) == ("7", {"ExperimentId": "exp-1"})
    assert (made.hyperparameters, made.reason_code, made.reason_message) == ({"lr": "0.1"}, "R", "why")
    assert made.output_path() == made.output_path("model") == "oss://b/m/"
    with pytest.raises(InvalidInputError, match=r"no output 'logs'.*it has: model"):
        made.output_path("logs")


@pytest.mark.parametrize(
    ("status", "is_completed", "is_succeeded"),
    [
        ("Running", False, False),
        ("Succeed", True, True),
        ("CreateFailed", True, False),
        ("Terminated", True, False),
    ],
)
def test_whether_it_has_ended(status: str, is_completed: bool, is_succeeded: bool) -> None:
    made = job(Status=status)
    assert (made.is_completed(), made.is_succeeded()) == (is_completed, is_succeeded)


def test_the_statuses_as_constants() -> None:
    assert TrainingJobStatus.Succeed == "Succeed" == JobStatus.SUCCEED
    assert {"CreateFailed", "Terminated", "Succeed"} <= {*TrainingJobStatus.completed_status()}
    assert {*TrainingJobStatus.failed_status()} == {"Failed", "CreateFailed", "InitializeFailed"}


def test_an_interval_is_the_longest_pause_between_two_polls() -> None:
    made = job(Status="Succeed")
    assert made.wait(interval=1, show_logs=False) is made
    with pytest.raises(InvalidInputError, match="interval"):
        made.wait(interval="long", show_logs=False)  # type: ignore[arg-type]


def test_the_module_and_the_exceptions_have_their_names() -> None:
    assert (ExperimentConfig, ResourceType, SpotSpec) == (
        pai_sdk.job.ExperimentConfig,
        pai_sdk.job.ResourceType,
        pai_sdk.job.SpotSpec,
    )
    assert (PAIException, UnexpectedStatusException) == (PaiError, JobFailed)
