"""What alipai 0.4.13 does wrong when it describes a job, and what a user sees here; the rest of it is tested
beside what it is about."""

from __future__ import annotations

import dataclasses
import inspect
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import pai_sdk
from pai_sdk import Estimator, Processor, Session, TrainingJob
from pai_sdk._client.job import ExperimentConfig, InstanceSpec, ResourceType, UserVpcConfig
from pai_sdk._client.submit.algorithm_estimator import AlgorithmEstimator
from pai_sdk._client.submit.request_fields import folder_of
from pai_sdk._wire.experiments import ExperimentRecord
from pai_sdk.errors import InvalidInputError, JobFailed, PaiError, SettingsError
from tests.support.fake_backend import FakeBackend
from tests.support.messages import refused
from tests.unit.client.submit.test_submitting import FakeSession


def made(**changes: Any) -> Estimator:
    usual = {"image_uri": "img", "command": "true", "instance_type": "ecs.x", "session": FakeSession()}
    return Estimator(**{**usual, **changes})


class WithExperiment(FakeSession):
    """A session whose experiments have folders."""

    @property
    def experiments(self) -> Any:
        folders = {"artifact_uri": "oss://b1b/exp/", "tensorboard_log_uri": "oss://b1b/exp/tensorboard/"}
        return SimpleNamespace(get=lambda known: ExperimentRecord(experiment_id=known, **folders))


def wire(submitter: Any, *args: Any) -> dict[str, Any]:
    return submitter.plan(*args).request.to_wire()


def reported(submitter: Any, *args: Any) -> dict[str, str]:
    with pytest.raises(InvalidInputError) as caught:
        submitter.plan(*args)
    return {problem.where: f"{problem.what} {problem.hint}" for problem in caught.value.problems}


def test_a_resource_type_is_checked_and_not_lost() -> None:
    """It is dropped by the client below; a Lingjun job goes to general resources."""
    assert "'ecs.x' is not a Lingjun type" in reported(made(resource_type=ResourceType.Lingjun))["resource_type"]
    lingjun = {"instance_type": "ml.gu7ef.8xlarge-gu100", "resource_type": ResourceType.Lingjun}
    assert wire(made(**lingjun))["ComputeResource"]["EcsSpec"] == "ml.gu7ef.8xlarge-gu100"
    quota = {"instance_type": None, "instance_spec": {"cpu": 8}, "resource_id": "quota-lingjun"}
    assert wire(made(resource_type="Lingjun", **quota))["ComputeResource"]["ResourceId"] == "quota-lingjun"


def test_all_of_a_vpc_reaches_the_request() -> None:
    """Switch and CIDRs are dropped; the alias of the CIDRs is wrong too."""
    vpc = UserVpcConfig(
        vpc_id="v", security_group_id="s", switch_id="w", extended_cidrs=["10.0.0.0/8"], default_route="eth1"
    )
    assert wire(made(user_vpc_config=vpc))["UserVpc"] == {
        "VpcId": "v",
        "SecurityGroupId": "s",
        "SwitchId": "w",
        "ExtendedCIDRs": ["10.0.0.0/8"],
        "DefaultRoute": "eth1",
    }


def test_what_cannot_be_sent_together_is_refused() -> None:
    """The quota is dropped beside an instance type, spot terms beside an instance spec, and unknown settings."""
    spot = {"spot_strategy": "SpotAsPriceGo"}
    assert "conflicts" in reported(made(resource_id="q"))["resource_id"]
    quota = {"instance_type": None, "instance_spec": {"cpu": 8}, "resource_id": "q"}
    assert "only with instance_type" in reported(made(**quota, spot_spec=spot))["spot_spec"]
    assert "did you mean 'EnableRDMA'" in reported(made(settings={"EnableRDAM": True}))["settings.EnableRDAM"]
    assert wire(made(settings={"EnableRDMA": True}))["Settings"] == {"EnableRDMA": True}


@pytest.mark.parametrize(
    "given",
    [
        {"cpu": 8, "memory": "32Gi"},
        {"CPU": "8", "Memory": "32Gi"},
        InstanceSpec(cpu="8", memory="32Gi"),
    ],
)
def test_an_instance_spec_is_a_dict_or_a_model(given: Any) -> None:
    """Documented as a dict, which then has no `model_dump`."""
    request = wire(made(instance_type=None, instance_spec=given, resource_id="q"))
    assert request["ComputeResource"]["InstanceSpec"] == {"CPU": "8", "Memory": "32Gi"}


def test_an_answer_with_little_in_it_is_a_job_all_the_same() -> None:
    """A channel without a URI, an instance without a GPU and so on raise, after the job was created."""
    backend = FakeBackend()
    backend.extra = {
        "InputChannels": [{"Name": "a"}],
        "OutputChannels": None,
        "ComputeResource": {"InstanceSpec": {"CPU": "8"}},
        "AlgorithmSpec": {"Command": []},
        "HyperParameters": [{"Name": "lr"}],
        "Something": {"New": 1},
    }
    job = TrainingJob("train1", backend)
    assert (job.outputs, job.status) == ({}, "Running")
    assert job.record.model_extra == {"Something": {"New": 1}}


def test_outputs_go_to_the_experiment() -> None:
    """Outputs are documented to go to the experiment's artifacts, and do not."""
    request = wire(made(experiment_config=ExperimentConfig(experiment_id="exp-1"), session=WithExperiment()))
    assert request["ExperimentConfig"] == {"ExperimentId": "exp-1"}
    folder = folder_of(request["TrainingJobName"])
    assert [channel["OutputUri"] for channel in request["OutputChannels"]] == [
        f"oss://b1b/exp/{folder}/model/",
        f"oss://b1b/exp/{folder}/checkpoints/",
        f"oss://b1b/exp/tensorboard/{folder}/",
    ]


def test_a_wrong_input_is_named() -> None:
    """The message has the text `{item}`, not the item."""
    assert "/no/such/data" in reported(made(), {"train": "/no/such/data"})["inputs['train']"]


def test_no_workspace_is_no_workspace() -> None:
    """The workspace `"None"` is sent."""
    session = Session("cn-x", oss_bucket_name="models", access_key_id="i", access_key_secret="s")
    with refused(SettingsError):
        made(session=session).fit()


def test_a_local_job_is_described_as_any_other(tmp_path: Path) -> None:
    """Locally, lists as commands crash; variables, requirements, outputs, time limit and metrics are ignored."""
    (tmp_path / "a.csv").write_text("1")
    local = made(
        instance_type="local",
        command=["python", "-c", "print(1)"],
        environments={"A": "b"},
        requirements=["x==1"],
        max_run_time=60,
        checkpoints_path="oss://bkt/ckpt/",
        metric_definitions=[{"Name": "loss", "Regex": "loss=(.*)"}],
        hyperparameters={"lr": 0.1},
    )
    request = wire(local, {"train": tmp_path / "a.csv"}, {"model": "oss://bkt/model/"})
    assert request["ComputeResource"]["EcsSpec"] == "local"
    assert request["AlgorithmSpec"]["Command"] == ["python", "-c", "print(1)"]
    assert request["AlgorithmSpec"]["MetricDefinitions"] == [{"Name": "loss", "Regex": "loss=(.*)"}]
    assert (request["Environments"], request["PythonRequirements"]) == ({"A": "b"}, ["x==1"])
    assert request["Scheduler"] == {"MaxRunningTimeInSeconds": 60}
    uris = {channel["Name"]: channel["OutputUri"] for channel in request["OutputChannels"]}
    assert {uris["model"], uris["checkpoints"]} == {"oss://bkt/model/", "oss://bkt/ckpt/"}


def test_the_model_of_a_local_job_is_found() -> None:
    """`model_data()` says that there is no job, right after one."""
    session = FakeSession()
    session.backend.extra = {"OutputChannels": [{"Name": "model", "OutputUri": "oss://bkt/m/"}]}
    local = made(instance_type="local", session=session)
    local.fit(wait=False, show_logs=False)
    assert local.model_data() == "oss://bkt/m/"


@pytest.mark.parametrize("kind", [Estimator, Processor, AlgorithmEstimator, Session, TrainingJob])
def test_type_checkers_see_the_right_types(kind: type) -> None:
    """No `py.typed`, a third of the parameters without a type, and wrong ones (`resource_id: Dict`)."""
    assert (Path(pai_sdk.__file__).parent / "py.typed").exists()
    for name, method in inspect.getmembers(kind, inspect.isfunction):
        if not name.startswith("_"):
            known = {*method.__annotations__}
            assert known >= {*inspect.signature(method).parameters} - {"self", "cls"} | {"return"}, name
    if dataclasses.is_dataclass(kind):
        assert {field.type for field in dataclasses.fields(kind) if field.name == "resource_id"} == {"str | None"}


def test_processor_is_a_class() -> None:
    """It is a function in disguise: no subclass, no `isinstance`."""

    class Sorter(Processor):
        """Sorts."""

    assert issubclass(Sorter, Processor)
    assert isinstance(Sorter("img", "sort"), Processor)


OLD_CODE = """
from {pai}.estimator import AlgorithmEstimator, CpfsFileSystemInput, Estimator, FileSystemInput
from {pai}.job import (
    AlgorithmSpec, Channel, CodeDir, ExperimentConfig, HyperParameterDefinition, InstanceSpec, OssLocation,
    ResourceType, SpotSpec, SpotStrategy, TrainingJob, UriInput, UriOutput, UserVpcConfig,
)
from {pai}.processor import Processor
from {pai}.session import get_default_session, setup_default_session

setup_default_session("cn-x", "7", oss_bucket_name="models", access_key_id="i", access_key_secret="s")
estimator = Estimator(
    "img", "python train.py", None, None, "TFJob", {{"lr": 0.1}},
    environments={{"A": "b"}}, base_job_name="old", max_run_time=3600, checkpoints_path="oss://models/c/",
    output_path="oss://models/out", metric_definitions=[{{"Name": "loss", "Regex": "loss=(.*)"}}],
    instance_type="ecs.x", instance_count=None, labels={{"team": "a"}},
    spot_spec=SpotSpec(spot_strategy=SpotStrategy.SpotWithPriceLimit, spot_discount_limit=0.5),
)
estimator.set_hyperparameters(epochs=3)
plan = estimator.plan(inputs={{
    "nas": FileSystemInput(file_system_id="f", directory_path="/a/"),
    "cpfs": CpfsFileSystemInput("f", "p", "e"),
    "table": "odps://project/tables/t",
}})
processor = Processor("img", ["a", "b"], None, "PyTorchJob", {{"x": 1}}, instance_type="ecs.x")
processor.set_input_channels(channels=[Channel(name="in", required=True)])
processor.set_output_channels([Channel(name="out")])
processed = processor.plan({{"in": "oss://models/x/"}}, {{"out": FileSystemInput("f")}})
print(len(plan.request.input_channels), len(processed.request.output_channels))
print(plan.request.algorithm_spec.job_type, [p.name for p in plan.request.hyperparameters])
"""


def test_a_script_for_alipai_reads_the_same_but_for_its_imports() -> None:
    """Its own documentation has parameters that there are not."""
    script = OLD_CODE.format(pai="pai_sdk")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.split("\n")[:2] == ["3 1", "TFJob ['lr', 'epochs']"], done.stderr


def test_nothing_is_printed_and_errors_are_ours(capfd: pytest.CaptureFixture[str]) -> None:
    """It prints 38 times, and the errors of its transport come through."""
    session = FakeSession()
    session.backend.status = "Failed"
    with pytest.raises(JobFailed) as caught:
        made(session=session).fit(show_logs=False)
    assert isinstance(caught.value, PaiError)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({}, r"oss://\w+/out/(same-\w{6})/model/"),
        ({"output_path": "oss://b1b/out"}, r"oss://b1b/out/(same-\w{6})/model/"),
        ({"experiment_config": {"experiment_id": "exp-1"}}, r"oss://b1b/exp/(same\w{6})/model/"),
        ({"idempotency_key": "a", "output_path": "oss://b1b/out"}, r"oss://b1b/out/(same-\w{6})/model/"),
    ],
)
def test_jobs_with_the_same_name_have_folders_of_their_own(changes: dict[str, Any], place: str) -> None:
    estimator = made(session=WithExperiment(), **changes)
    plans = [estimator.plan(job_name="same") for _ in range(2)]
    assert {plan.request.training_job_name for plan in plans} == {"same"}
    folders = set()
    for plan in plans:
        model, *others = [channel.output_uri or "" for channel in plan.request.output_channels]
        found = re.fullmatch(place, model)
        assert found, model
        assert all(f"/{found[1]}/" in uri for uri in others), "one folder a plan, for TensorBoard too"
        folders.add(found[1])
    assert len(folders) == (1 if "idempotency_key" in changes else 2)


def test_a_key_gives_the_same_request_again() -> None:
    plans = [made(idempotency_key=key).plan(job_name="same") for key in ("a", "a", "b")]
    assert plans[0] == plans[1]
    assert plans[0].request.output_channels != plans[2].request.output_channels


def test_places_that_the_user_gave_stay() -> None:
    outputs = {"model": "oss://b1b/m/"}
    plan = made(checkpoints_path="oss://b1b/c/").plan(outputs=outputs, job_name="same")
    places = {channel.name: channel.output_uri for channel in plan.request.output_channels}
    assert (places["model"], places["checkpoints"]) == ("oss://b1b/m/", "oss://b1b/c/")
