"""From parameters to a request: everything given reaches it or is refused, with all mistakes reported at once."""

from __future__ import annotations

import copy
import json
import re
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pai_sdk import Estimator, Processor
from pai_sdk._client.backend.base import Plan
from pai_sdk._client.job import ResourceType, SpotSpec
from pai_sdk._client.job.training_job import TrainingJob
from pai_sdk._client.submission import submit
from pai_sdk._client.submit.algorithm_estimator import AlgorithmEstimator
from pai_sdk._client.submit.submitter import JobSubmitter
from pai_sdk._wire.experiments import ExperimentRecord
from pai_sdk._wire.pai.spec import Channel, DatasetConfig, UriInput
from pai_sdk.errors import InvalidInputError, NotFoundError
from tests.support.fake_backend import FakeBackend
from tests.support.messages import refused


@dataclass
class FakeSession:
    """A session on the fake backend."""

    backend: FakeBackend = field(default_factory=FakeBackend)
    settings: Any = field(default_factory=lambda: SimpleNamespace(workspace_id="123", region_id="cn-x", prices={}))

    def backend_for(self, instance_type: str | None, api: str | None = None) -> FakeBackend:
        return self.backend

    @property
    def experiments(self) -> Any:
        return SimpleNamespace(get=lambda experiment_id: ExperimentRecord(experiment_id=experiment_id))

    def files(self) -> Any:
        return SimpleNamespace(list=lambda *_, **__: iter(()))  # an empty bucket

    def get_job(self, job_id: str) -> TrainingJob:
        raise NotFoundError(f"there is no job {job_id!r}", code="TrainingJobNotFound", status_code=404)

    def submit(self, plan: Plan, *, instance_type: str | None = None) -> TrainingJob:
        return TrainingJob(submit(plan, self.backend), self.backend)


@pytest.fixture
def session() -> Any:
    return FakeSession()


@pytest.fixture
def source_dir(tmp_path: Path) -> Path:
    folder = tmp_path / "src 'dir"
    folder.mkdir()
    (folder / "train.py").write_text("print(1)")
    return folder


def estimator(session: Any, **changes: Any) -> Estimator:
    return Estimator(
        **{
            "image_uri": "python:3.11",
            "command": "python train.py",
            "instance_type": "ecs.c6.large",
            "session": session,
            **changes,
        }
    )


def wire(submitter: JobSubmitter, *args: Any) -> dict[str, Any]:
    return submitter.plan(*args).request.to_wire()


def problems(submitter: JobSubmitter, *args: Any) -> dict[str, str]:
    with pytest.raises(InvalidInputError) as caught:
        submitter.plan(*args)
    return {problem.where: f"{problem.what} {problem.hint}" for problem in caught.value.problems}


# Every parameter of every submitter, with a value, and what must then stand in the request.
GIVEN: list[tuple[dict[str, Any], str, Any]] = [
    ({"job_type": "TFJob"}, "AlgorithmSpec.JobType", "TFJob"),
    ({"environments": {"A": "b c"}}, "Environments", {"A": "b c"}),
    ({"requirements": ["x==1"]}, "PythonRequirements", ["x==1"]),
    ({"max_run_time": 60}, "Scheduler", {"MaxRunningTimeInSeconds": 60}),
    (
        {"max_retries": 2, "retry_on": ["NodeLost", "Preempted"]},
        "Settings.Tags",
        {"pai-sdk.max_retries": "2", "pai-sdk.retry_on": "NodeLost,Preempted"},
    ),
    ({"output_path": "oss://bkt/out"}, "OutputChannels.0.OutputUri", "oss://bkt/out/{name}/model/"),
    ({"instance_type": "ecs.x"}, "ComputeResource", {"EcsSpec": "ecs.x", "EcsCount": 1}),
    ({"instance_count": 3}, "ComputeResource.EcsCount", 3),
    (
        {
            "instance_type": None,
            "instance_spec": {"cpu": "8", "Memory": "32Gi"},
            "resource_id": "quota",
            "resource_type": "Lingjun",
            "instance_count": 2,
        },
        "ComputeResource",
        {"ResourceId": "quota", "InstanceCount": 2, "InstanceSpec": {"CPU": "8", "Memory": "32Gi"}},
    ),
    (
        {"spot_spec": {"spot_strategy": "SpotAsPriceGo", "spot_discount_limit": 0.5}},
        "ComputeResource.SpotSpec",
        {"SpotStrategy": "SpotAsPriceGo", "SpotDiscountLimit": 0.5},
    ),
    (
        {
            "user_vpc_config": {
                "vpc_id": "v",
                "security_group_id": "s",
                "switch_id": "w",
                "extended_cidrs": ["10/8"],
            }
        },
        "UserVpc",
        {"VpcId": "v", "SecurityGroupId": "s", "SwitchId": "w", "ExtendedCIDRs": ["10/8"]},
    ),
    ({"experiment_config": {"experiment_id": "e"}}, "ExperimentConfig", {"ExperimentId": "e"}),
    ({"settings": {"EnableRDMA": True, "priority": 3}}, "Settings", {"EnableRDMA": True, "Priority": 3}),
    ({"priority": 5}, "Priority", 5),
    ({"role_arn": "acs:ram::1:role/r"}, "RoleArn", "acs:ram::1:role/r"),
    ({"description": "why"}, "TrainingJobDescription", "why"),
    ({"labels": {"team": "a"}}, "Labels.0", {"Key": "team", "Value": "a"}),
    ({"image_uri": "img:2"}, "AlgorithmSpec.Image", "img:2"),
    ({"command": ["python", "a b.py"]}, "AlgorithmSpec.Command", ["python", "a b.py"]),
    ({"hyperparameters": {"lr": 0.1}}, "HyperParameters", [{"Name": "lr", "Value": "0.1"}]),
    (
        {"metric_definitions": [{"name": "loss", "regex": "loss=(.*)"}]},
        "AlgorithmSpec.MetricDefinitions",
        [{"Name": "loss", "Regex": "loss=(.*)"}],
    ),
    ({"checkpoints_path": "oss://bkt/ckpt"}, "OutputChannels.1.OutputUri", "oss://bkt/ckpt/"),
]
GUARDS = {"max_cost", "prices", "fallback", "notify", "idempotency_key"}  # tests/unit/client/submit/test_guards.py
# Seen elsewhere: the code, its own tests; the session and the class's name, everywhere.
ELSEWHERE = GUARDS | {"source_dir", "git_config", "git_labels", "allow_secrets", "session", "base_job_name"}
ELSEWHERE |= {"roles"}  # tests/unit/client/submit/test_roles.py
ELSEWHERE |= {"api", "dlc"}  # tests/unit/client/backend/dlc
ELSEWHERE |= {"jobs", "_plans", "resume"}
ELSEWHERE |= {"debugger", "watch"}  # test_debugger.py and test_watch.py beside this file


@pytest.mark.parametrize(("given", "path", "expected"), GIVEN)
def test_every_parameter_reaches_the_request(
    session: Any, given: dict[str, Any], path: str, expected: Any
) -> None:
    request = wire(estimator(session, **given))
    found: Any = request
    for part in path.split("."):
        found = found[int(part)] if part.isdigit() else found[part]
    if isinstance(expected, str):
        expected = expected.replace("{name}", request["TrainingJobName"])
    assert found == expected


def test_no_parameter_is_missing_above() -> None:
    tried = {name for given, _, _ in GIVEN for name in given}
    assert {f.name for f in fields(Estimator)} - tried == ELSEWHERE


def test_all_mistakes_are_reported_at_once(session: Any) -> None:
    found = problems(
        estimator(
            session,
            command="",
            instance_count=0,
            instance_spec={"cpu": "1"},
            max_run_time=-1,
            base_job_name="no spaces please",
            environments={"A": 1, "B C": "x"},
            requirements="numpy",
            settings={"Unknown": 1},
            metric_definitions=[{"name": "a", "regex": "("}, {"name": "b", "regex": "no group"}],
            hyperparameters={"ok": float("nan"), "bad name": 1},
            source_dir="/no/such/folder",
        ),
        {"train": "/no/such/file"},
        {"model": "not-a-uri"},
    )
    for where in (
        "command",
        "instance_count",
        "instance_spec",
        "max_run_time",
        "base_job_name",
        "environments['A']",
        "environments['B C']",
        "requirements",
        "settings.Unknown",
        "metric_definitions[0].regex",
        "metric_definitions[1].regex",
        "hyperparameters['ok']",
        "hyperparameters['bad name']",
        "inputs['train']",
        "outputs['model']",
    ):
        assert where in found, where
    assert any(where.startswith("source_dir") for where in found)


@pytest.mark.parametrize(
    ("given", "where", "words"),
    [
        ({"resource_id": "q"}, "resource_id", "conflicts with instance_type"),
        ({"instance_type": "locla"}, "instance_type", "containers on this machine are 'local'"),
        ({"instance_type": "Local-GPU"}, "instance_type", "'local_gpu'"),
        ({"instance_type": None}, "instance_type", "is required"),
        ({"instance_type": None, "instance_spec": {"cpu": "1"}}, "resource_id", "is required"),
        ({"resource_type": "Lingjun"}, "resource_type", "not a Lingjun type"),
        ({"resource_type": "Linjun"}, "resource_type", "General or Lingjun"),
        ({"instance_count": True}, "instance_count", "expected an integer"),
        ({"hyperparameters": {"a-b": 1, "a_b": 2}}, "hyperparameters['a_b']", "same variable"),
        ({"user_vpc_config": {"vpc_id": "v"}}, "user_vpc_config.SecurityGroupId", "is required"),
        ({"spot_spec": {"spot_strategy": "Cheap"}}, "spot_spec.spot_strategy", "SpotAsPriceGo"),
        ({"output_path": "/tmp/out"}, "output_path", "not a URI"),
        ({"image_uri": None}, "image_uri", "got None"),
    ],
)
def test_a_contradiction_is_refused(session: Any, given: dict[str, Any], where: str, words: str) -> None:
    assert words in problems(estimator(session, **given))[where]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "true"),
        (False, "false"),
        (0.1, "0.1"),
        (1e-05, "1e-05"),
        (3, "3"),
        ("a 'b' \"c\" $d\n", "a 'b' \"c\" $d\n"),
        ("", ""),
        ([1, "x"], '[1, "x"]'),
        ({"a": None, "ü": 1}, '{"a": null, "ü": 1}'),
    ],
)
def test_hyperparameters_are_written_as_the_user_would(session: Any, value: Any, text: str) -> None:
    request = wire(estimator(session, hyperparameters={"x": value, "unset": None}))
    assert request["HyperParameters"] == [{"Name": "x", "Value": text}]


def test_code_goes_under_the_hash_of_its_content(session: Any, source_dir: Path) -> None:
    first = estimator(session, source_dir=source_dir).plan()
    again = estimator(session, source_dir=str(source_dir)).plan()
    assert first.uploads[0].uri == again.uploads[0].uri
    assert first.request.to_wire()["AlgorithmSpec"]["CodeDir"]["LocationValue"]["Key"] in first.uploads[0].uri
    (source_dir / "train.py").write_text("print(2)")
    assert estimator(session, source_dir=source_dir).plan().uploads[0].uri != first.uploads[0].uri


def test_a_script_that_is_not_there_is_missed_before_it_is_sent(session: Any, source_dir: Path) -> None:
    found = problems(estimator(session, source_dir=source_dir, command="python trian.py --x $PAI_USER_ARGS"))
    assert "did you mean 'train.py'?" in found["command"]
    # What cannot be known from here is left to the job.
    for command in ("cd sub && python other.py", "python -m other", "python /opt/other.py", "python $SCRIPT.py"):
        estimator(session, source_dir=source_dir, command=command).plan()


@pytest.mark.parametrize("command", ["train.py", "train.py --x $PAI_USER_ARGS", ["train.py"]])
def test_a_script_in_place_of_a_program_is_an_error(
    session: Any, source_dir: Path, command: str | list[str]
) -> None:
    found = problems(estimator(session, source_dir=source_dir, command=command))
    assert "python train.py" in str(found["command"])


def test_a_script_with_a_path_is_a_program(session: Any, source_dir: Path) -> None:
    for command in ("./train.py", "cp train.py other.py", "other.py"):
        estimator(session, source_dir=source_dir, command=command).plan()


def test_inputs_of_every_kind(session: Any, tmp_path: Path) -> None:
    (tmp_path / "a file.csv").write_text("1")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "x").write_text("2")
    plan = estimator(session).plan(
        {
            "uri": "oss://bkt/data/",
            "nas": "nas://123.cn-hangzhou/x/",
            "file": tmp_path / "a file.csv",
            "folder": str(tmp_path / "folder"),
            "dataset": DatasetConfig(dataset_id="d-1", version_name="v2"),
            "channel": UriInput(name="ignored", input_uri="oss://bkt/c/"),
        }
    )
    channels = {channel["Name"]: channel for channel in plan.request.to_wire()["InputChannels"]}
    assert channels["uri"]["InputUri"] == "oss://bkt/data/"
    assert channels["nas"]["InputUri"] == "nas://123.cn-hangzhou/x/"
    assert channels["file"]["InputUri"].endswith("/a file.csv")
    assert channels["folder"]["InputUri"].endswith("/")
    assert channels["dataset"] == {"Name": "dataset", "DatasetId": "d-1", "VersionName": "v2"}
    assert channels["channel"] == {"Name": "channel", "InputUri": "oss://bkt/c/"}
    assert len(plan.uploads) == 2


def test_a_mistyped_input_names_the_nearest_file(session: Any, tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("1")
    found = problems(estimator(session), {"train": tmp_path / "trian.csv"})
    assert "did you mean 'train.csv'?" in found["inputs['train']"]


def test_the_channels_of_a_processor(session: Any) -> None:
    processor = Processor("img", "true", instance_type="ecs.x", session=session)
    processor.set_input_channels([Channel(name="raw", required=True), Channel(name="extra")])
    processor.set_output_channels([Channel(name="clean")])
    found = problems(processor, {"rwa": "oss://bkt/x/"})
    assert "available: raw, extra" in found["inputs['rwa']"]
    assert "required" in found["inputs['raw']"]
    request = wire(processor, {"raw": "oss://bkt/x/"})
    assert [channel["Name"] for channel in request["OutputChannels"]] == ["clean"]
    assert request["AlgorithmSpec"]["InputChannels"][0] == {"Name": "raw", "Required": True}


def test_a_submitter_is_used_again_without_a_trace_of_the_first_time(session: Any, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1")
    given = {
        "command": ["python", "train.py"],
        "hyperparameters": {"lr": 0.1, "layers": [1, 2]},
        "environments": {"A": "b"},
        "requirements": ["x==1"],
        "labels": {"team": "a"},
        "settings": {"tags": {"a": "b"}},
        "metric_definitions": [{"name": "loss", "regex": "loss=(.*)"}],
    }
    inputs, outputs = {"train": tmp_path / "a.csv"}, {"model": "oss://bkt/model/"}
    before = copy.deepcopy((given, inputs, outputs))
    trainer = estimator(session, **given)
    plans = [wire(trainer, inputs, outputs), wire(trainer, inputs, outputs)]
    trainer.fit(inputs, outputs, wait=False, show_logs=False)
    plans.append(session.backend.submitted.to_wire())
    texts = set()
    for plan in plans:
        marks = {plan["TrainingJobName"]: "name", plan["Labels"][-1]["Value"]: "id"}
        texts.add(re.sub("|".join(marks), lambda found, marks=marks: marks[found[0]], json.dumps(plan)))
    assert len(texts) == 1, "they differ in name and label of the submission only"
    assert (given, inputs, outputs) == before


def test_two_plans_of_one_second_have_names_of_their_own(session: Any) -> None:
    names = {estimator(session).plan().request.training_job_name for _ in range(50)}
    assert len(names) == 50


def test_a_plan_prints_saves_and_is_what_is_submitted(session: Any, tmp_path: Path) -> None:
    plan = estimator(session, environments={"A": "b"}).plan()
    assert session.backend.calls == []
    assert json.loads(plan.save(tmp_path / "plan.json").read_text()) == plan.request.to_wire()
    assert '"TrainingJobName"' in str(plan)
    session.submit(plan)
    assert session.backend.submitted is plan.request


def test_a_job_is_kept_and_its_outputs_found(session: Any) -> None:
    session.backend.status = "Succeed"
    session.backend.extra = {"OutputChannels": [{"Name": "model", "OutputUri": "oss://bkt/m/"}]}
    trainer = estimator(session)
    with refused(InvalidInputError, "job"):
        trainer.model_data()
    job = trainer.fit(show_logs=False)
    assert trainer.latest_job is job
    assert trainer.model_data() == "oss://bkt/m/"
    with refused(InvalidInputError, "job"):
        trainer.checkpoints_data()


def test_an_algorithm_need_not_leave_a_model(session: Any) -> None:
    session.backend.status = "Succeed"
    spec = {"Image": "img", "Command": ["true"]}
    trainer = AlgorithmEstimator(algorithm_spec=spec, instance_type="ecs.c6.large", session=session)
    trainer.fit(show_logs=False)
    with refused(InvalidInputError, "job"):
        trainer.model_data()


def test_a_submitter_can_be_subclassed(session: Any) -> None:
    class Tool(Processor):
        def __init__(self, option: str, **rest: Any) -> None:
            super().__init__("img", f"tool {option}", **rest)

    request = wire(Tool("-x", instance_type="ecs.x", session=session))
    assert request["AlgorithmSpec"]["Command"] == ["sh", "-c", "tool -x"]
    assert request["TrainingJobName"].startswith("tool-")


def test_no_secret_is_shown(session: Any) -> None:
    git_config = {"repo": "https://git.example.com/a.git", "token": "git_secret"}
    shown = repr(estimator(session, environments={"HF_TOKEN": "hf_secret"}, git_config=git_config))
    assert "HF_TOKEN" in shown
    assert "hf_secret" not in shown
    assert "git_secret" not in shown


def test_an_estimator_may_have_more_outputs(session: Any) -> None:
    request = wire(estimator(session), None, {"figures": "oss://bkt/figures", "model": "oss://bkt/m/"})
    places = {each["Name"]: each["OutputUri"] for each in request["OutputChannels"]}
    assert (places["model"], places["figures"]) == ("oss://bkt/m/", "oss://bkt/figures/")
    assert [each["Name"] for each in request["AlgorithmSpec"]["OutputChannels"]] == [
        *("model", "checkpoints", "tensorboard", "figures")
    ]


def test_a_lingjun_job_on_public_instances_with_spot_terms(session: Any) -> None:
    spot = SpotSpec(spot_strategy="SpotWithPriceLimit", spot_discount_limit=0.5)
    made = estimator(
        session, instance_type="ml.gu7ef.8xlarge-gu100", resource_type=ResourceType.Lingjun, spot_spec=spot
    )
    assert wire(made)["ComputeResource"] == {
        "EcsSpec": "ml.gu7ef.8xlarge-gu100",
        "EcsCount": 1,
        "SpotSpec": {"SpotStrategy": "SpotWithPriceLimit", "SpotDiscountLimit": 0.5},
        "UseSpotInstance": True,
    }
