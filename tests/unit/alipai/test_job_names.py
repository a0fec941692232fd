"""A job, and its module, by the names that code written for alipai uses."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator

import pai_sdk.job
import pytest
from pai_sdk.exception import PAIException, PredictionException, UnexpectedStatusException
from pai_sdk.job import Channel, JobStatus, TrainingJob, TrainingJobStatus
from pai_sdk.job._training_job import ExperimentConfig, ResourceType, SpotSpec

from pai_sdk.errors import InvalidInputError, JobFailed, PaiError
from tests.support.fake_backend import FakeBackend
from tests.support.messages import refused


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
    with refused(InvalidInputError, "channel_name"):
        made.output_path("logs")


def test_the_parts_of_a_job_have_their_fields_as_attributes() -> None:
    made = job(
        TrainingJobDescription="of digits",
        AlgorithmName="steps",
        AlgorithmVersion="v1",
        AlgorithmProvider="pai",
        AlgorithmSpec={"Image": "python:3.11", "CodeDir": {"LocationType": "oss"}},
        ComputeResource={"EcsSpec": "ecs.c6.large", "EcsCount": 2},
        Scheduler={"MaxRunningTimeInSeconds": 60},
        InputChannels=[{"Name": "train", "InputUri": "oss://b/t/"}],
    )
    assert (made.algorithm_name, made.algorithm_version, made.algorithm_provider) == ("steps", "v1", "pai")
    assert (made.training_job_description, made.algorithm_id) == ("of digits", None)
    spec, resource, scheduler = made.algorithm_spec, made.compute_resource, made.scheduler
    assert spec
    assert resource
    assert scheduler
    assert (spec.image, spec.code_dir.location_type, spec.no_such_field) == ("python:3.11", "oss", None)
    assert (resource.ecs_spec, resource["EcsCount"]) == ("ecs.c6.large", 2)
    assert scheduler.max_running_time_in_seconds == 60
    assert [(one.name, one.input_uri) for one in made.inputs] == [("train", "oss://b/t/")]
    assert copy.deepcopy(spec).to_dict() == pickle.loads(pickle.dumps(spec)) == spec


def test_records_and_descriptions_are_dicts_with_the_names_of_the_wire() -> None:
    made = job(Status="Succeed", Extra={"New": 1})
    assert made.to_dict() == made.model_dump(exclude_none=False) == made.record.to_dict()
    assert made.to_dict()["TrainingJobId"] == made.id
    assert (made.to_dict()["Status"], made.to_dict()["Extra"]) == ("Succeed", {"New": 1})
    assert Channel(name="train", required=True).to_dict() == {"Name": "train", "Required": True}


class Jobs:
    """A source of seven jobs."""

    backend_for = None  # by which a session is known

    def get_job(self, job_id: str) -> TrainingJob:
        return TrainingJob(job_id, FakeBackend())

    def list_jobs(self, *, skip: int = 0, **_: object) -> Iterator[TrainingJob]:
        return (self.get_job(f"train{number}") for number in range(skip, 7))


def test_a_job_is_found_by_the_names_of_its_parameters() -> None:
    found = TrainingJob.get(training_job_id="train7", session=Jobs())  # type: ignore[call-arg]
    assert found.id == "train7"
    assert [one.id for one in TrainingJob.list(session=Jobs(), page_size=3, page_number=3)] == ["train6"]
    assert len(TrainingJob.list(session=Jobs(), page_number=1)) == 7
    assert TrainingJob.list(session=Jobs(), page_size=2)[1].id == "train1"
    assert len([*TrainingJob.list(session=Jobs())]) == 7
    with refused(InvalidInputError, "page_size"):
        TrainingJob.list(session=Jobs(), page_size=True)
    with refused(InvalidInputError, "page_number"):
        TrainingJob.list(session=Jobs(), page_number=0)


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
    with refused(InvalidInputError, "interval"):
        made.wait(interval="long", show_logs=False)  # type: ignore[arg-type]


def test_the_module_and_the_exceptions_have_their_names() -> None:
    assert (ExperimentConfig, ResourceType, SpotSpec) == (
        pai_sdk.job.ExperimentConfig,
        pai_sdk.job.ResourceType,
        pai_sdk.job.SpotSpec,
    )
    assert (PAIException, UnexpectedStatusException) == (PaiError, JobFailed)
    assert PAIException("no bucket").message == "no bucket"
    assert issubclass(PredictionException, PAIException)
