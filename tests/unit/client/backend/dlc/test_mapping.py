"""Every parameter of a submitter reaches a field of CreateJob, or is refused with what to use instead."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from pai_sdk import Estimator, Processor, Session
from pai_sdk._client.backend.dlc.options import DlcOptions
from pai_sdk._client.backend.dlc.records import record_of
from pai_sdk._client.backend.dlc.refusals import request_problems
from pai_sdk._wire.dlc.checks import job_problems
from pai_sdk._wire.dlc.limits import MAX_ENVS
from pai_sdk._wire.dlc.records import JobDetail
from pai_sdk._wire.pai.compute import ExperimentConfig
from pai_sdk._wire.pai.secret_values import Secret
from pai_sdk.errors import InvalidInputError

PAGE = Path(__file__).resolve().parents[5] / "docs" / "dlc-jobs.md"
QUOTA = {"instance_type": None, "resource_id": "quota1", "instance_spec": {"cpu": 8, "memory": "32", "gpu": 1}}

# A value of the parameter, with what it needs, and where it is in the body.
SENT: dict[str, tuple[dict[str, Any], Callable[[dict[str, Any]], Any], Any]] = {
    "image_uri": ({"image_uri": "img:1"}, lambda b: b["JobSpecs"][0]["Image"], "img:1"),
    "command": (
        {"command": ["python", "a b.py"]},
        lambda b: b["UserCommand"].splitlines()[-1],
        "exec python 'a b.py'",
    ),
    "job_type": ({"job_type": "TFJob"}, lambda b: b["JobType"], "TFJob"),
    "environments": ({"environments": {"A": "b"}}, lambda b: b["Envs"]["A"], "b"),
    "requirements": ({"requirements": ["numpy"]}, lambda b: b["ThirdpartyLibs"], ["numpy"]),
    "max_run_time": ({"max_run_time": 61}, lambda b: b["JobMaxRunningTimeMinutes"], 2),
    "base_job_name": ({"base_job_name": "nightly"}, lambda b: b["DisplayName"][:8], "nightly-"),
    "instance_type": ({"instance_type": "ecs.g6.xlarge"}, lambda b: b["JobSpecs"][0]["EcsSpec"], "ecs.g6.xlarge"),
    "instance_count": ({"instance_count": 3}, lambda b: b["JobSpecs"][0]["PodCount"], 3),
    "instance_spec": (
        {**QUOTA, "instance_spec": {"cpu": 8, "memory": "32", "shared_memory": "512MiB"}},
        lambda b: b["JobSpecs"][0]["ResourceConfig"],
        {"CPU": "8", "Memory": "32Gi", "SharedMemory": "512Mi"},
    ),
    "resource_id": (QUOTA, lambda b: b["ResourceId"], "quota1"),
    "spot_spec": (
        {
            "instance_type": "ml.gu7ef.8xlarge-gu100",
            "spot_spec": {"spot_strategy": "SpotWithPriceLimit", "spot_discount_limit": 0.4},
        },
        lambda b: b["JobSpecs"][0]["SpotSpec"],
        {"SpotStrategy": "SpotWithPriceLimit", "SpotDiscountLimit": 0.4},
    ),
    "user_vpc_config": (
        {
            "user_vpc_config": {
                "vpc_id": "v",
                "security_group_id": "sg",
                "switch_id": "s",
                "extended_cidrs": ["10.0.0.0/8"],
                "default_route": "eth1",
            }
        },
        lambda b: b["UserVpc"],
        {
            "VpcId": "v",
            "SecurityGroupId": "sg",
            "SwitchId": "s",
            "ExtendedCIDRs": ["10.0.0.0/8"],
            "DefaultRoute": "eth1",
        },
    ),
    "settings": (
        {"settings": {"enable_rdma": True, "job_reserved_minutes": 5, "advanced_settings": {"a": "b"}}},
        lambda b: {key: b["Settings"][key] for key in ("EnableRDMA", "JobReservedMinutes", "AdvancedSettings")},
        {"EnableRDMA": True, "JobReservedMinutes": 5, "AdvancedSettings": {"a": "b"}},
    ),
    "priority": ({**QUOTA, "priority": 3}, lambda b: b["Priority"], 3),
    "description": ({"description": "why"}, lambda b: b["Description"], "why"),
    "labels": ({"labels": {"team": "x"}}, lambda b: b["Settings"]["Tags"]["team"], "x"),
    "idempotency_key": (
        {"idempotency_key": "k1"},
        lambda b: b["Settings"]["Tags"]["pai-sdk-idempotency-key"],
        "k1",
    ),
    "source_dir": (
        {"source_dir": "oss://models/code/"},
        lambda b: b["DataSources"][0],
        {
            "Uri": "oss://models.oss-cn-hangzhou-internal.aliyuncs.com/code/",
            "MountPath": "/ml/code",
            "MountAccess": "RO",
        },
    ),
    "output_path": (
        {"output_path": "oss://models/out/"},
        lambda b: b["DataSources"][-1]["Uri"].startswith(
            "oss://models.oss-cn-hangzhou-internal.aliyuncs.com/out/"
        ),
        True,
    ),
    "checkpoints_path": (
        {"checkpoints_path": "oss://models/c/"},
        lambda b: [s["Uri"] for s in b["DataSources"] if s["MountPath"] == "/ml/output/checkpoints"],
        ["oss://models.oss-cn-hangzhou-internal.aliyuncs.com/c/"],
    ),
    "hyperparameters": ({"hyperparameters": {"lr": 0.1}}, lambda b: b["Envs"]["PAI_SDK_HPS"], '{"lr":"0.1"}'),
    "metric_definitions": (
        {"metric_definitions": [{"name": "loss", "regex": "loss=(.*)"}]},
        lambda b: b["Envs"]["PAI_SDK_METRICS"],
        '[{"Name":"loss","Regex":"loss=(.*)"}]',
    ),
}
# A value of the parameter that is refused, and where the problem is.
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "role_arn": ({"role_arn": "acs:ram::1:role/x"}, "role_arn"),
    "max_retries": ({"max_retries": 2}, "max_retries"),
    "settings": ({"settings": {"aimaster_type": "x"}}, "settings.aimaster_type"),
    "spot_spec": ({"spot_spec": {"spot_strategy": "SpotAsPriceGo"}}, "spot_spec.spot_strategy"),
    "priority": ({"priority": 3}, "priority"),
    "source_dir": ({"source_dir": "oss://models/code.zip"}, "source_dir"),
    "command": ({"command": "x" * 70_000}, "body"),
    "labels": ({"labels": {f"k{n}": "v" for n in range(21)}}, "labels"),
    "job_type": ({"job_type": "pytorch"}, "job_type"),
    "dlc": ({"dlc": {"spot_price_per_minute": 0.1}}, "dlc.spot_price_per_minute"),
}


def estimator(session: Session, **parameters: Any) -> Estimator:
    return Estimator(
        **{
            "image_uri": "python:3.11",
            "command": "python train.py",
            "instance_type": "ecs.c6.large",
            "session": session,
            **parameters,
        }
    )


@pytest.mark.parametrize("name", SENT)
def test_a_parameter_is_in_the_body(session: Session, name: str) -> None:
    parameters, place, value = SENT[name]
    body = estimator(session, **parameters).plan().body
    assert place(body) == value
    assert job_problems(body) == []


@pytest.mark.parametrize("name", REFUSED)
def test_a_value_that_cannot_be_sent(session: Session, name: str) -> None:
    parameters, where = REFUSED[name]
    with pytest.raises(InvalidInputError) as caught:
        estimator(session, **parameters).plan()
    assert [problem.where for problem in caught.value.problems] == [where]


def test_the_page_has_every_parameter() -> None:
    names = {field.name for kind in (Estimator, Processor) for field in fields(kind) if field.init}
    rows = re.findall(r"^\| (`[^|]*) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    described = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert names - described == set()
    options = {f"dlc.{name}" for name in DlcOptions.model_fields}
    in_rows = {name for row in rows for name in re.findall(r"`(dlc\.\w+)`", row)}
    assert options == in_rows


class TestChannels:
    def test_inputs(self, session: Session) -> None:
        inputs = {
            "folder": "oss://models/data/",
            "file": "oss://models/data/a.csv",
            "set": "d-rq3cxyhfn8zo2lq3k1/v2",
            "nas": "nas://fs.cn-hangzhou/x/",
        }
        body = estimator(session).plan(inputs).body
        sources = {source["MountPath"].rpartition("/")[2]: source for source in body["DataSources"]}
        host = "oss://models.oss-cn-hangzhou-internal.aliyuncs.com"
        assert (sources["folder"]["Uri"], sources["file"]["Uri"]) == (f"{host}/data/", f"{host}/data/")
        assert (sources["set"]["DataSourceId"], sources["set"]["DataSourceVersion"]) == (
            "d-rq3cxyhfn8zo2lq3k1",
            "v2",
        )
        assert sources["nas"]["Uri"] == "nas://fs.cn-hangzhou/x/"
        assert {source["MountAccess"] for name, source in sources.items() if name in inputs} == {"RO"}

    def test_a_table_cannot_be_mounted(self, session: Session) -> None:
        with pytest.raises(InvalidInputError) as caught:
            estimator(session).plan({"t": "odps://p/tables/t", "data": "oss://models/d/"})
        assert [problem.where for problem in caught.value.problems] == ["inputs['t']"]

    def test_a_local_file_is_the_file_of_its_variable(self, session: Session, tmp_path: Path) -> None:
        (tmp_path / "rows").write_text("1")  # without a suffix
        plan = estimator(session).plan({"data": tmp_path / "rows"})
        exports = (plan.uploads[-1].tree.root / "env.sh").read_text()
        assert "export PAI_INPUT_DATA=/ml/input/data/data/rows\n" in exports


class TestVariables:
    def test_more_than_fit(self, session: Session) -> None:
        environments: dict[str, Any] = {f"V{n}": f"it's {n}" for n in range(30)} | {"HF_TOKEN": Secret("HF_TOKEN")}
        plan = estimator(session, environments=environments).plan()
        assert len(plan.body["Envs"]) == MAX_ENVS
        assert plan.body["Envs"]["HF_TOKEN"] == "${secret:HF_TOKEN}"
        exports = (plan.uploads[-1].tree.root / "env.sh").read_text()
        assert all((f"V{n}" in plan.body["Envs"]) != (f"export V{n}=" in exports) for n in range(30))
        assert "HF_TOKEN" not in exports

    def test_too_many_secrets(self, session: Session) -> None:
        environments = {f"T{n}_TOKEN": Secret("HF_TOKEN") for n in range(25)}
        with pytest.raises(InvalidInputError) as caught:
            estimator(session, environments=environments).plan()
        assert [problem.where for problem in caught.value.problems] == ["environments"]

    def test_a_hyperparameter_that_is_a_secret_is_no_variable(self, session: Session) -> None:
        body = estimator(session, hyperparameters={"api_password": "x"}).plan().body
        assert "PAI_SDK_HPS" not in body["Envs"]


def test_requirements_of_the_code(session: Session, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    (tmp_path / "requirements.txt").write_text("numpy\n")
    body = estimator(session, source_dir=tmp_path).plan().body
    assert (body["ThirdpartyLibDir"], "ThirdpartyLibs" in body) == ("/ml/code", False)
    plan = estimator(session, source_dir=tmp_path, requirements=["tqdm"]).plan()
    assert {"ThirdpartyLibDir", "ThirdpartyLibs"} & plan.body.keys() == set()
    assert (plan.uploads[-1].tree.root / "requirements.txt").read_text() == "tqdm\n"


@pytest.mark.parametrize(("of_code", "listed"), [("./a.whl\n", []), ("-c pins.txt\n", []), (None, ["./a.whl"])])
def test_requirements_that_are_files(
    session: Session, tmp_path: Path, of_code: str | None, listed: list[str]
) -> None:
    for name in ("a.whl", "train.py"):
        (tmp_path / name).touch()
    if of_code is not None:
        (tmp_path / "requirements.txt").write_text(of_code)
    plan = estimator(session, source_dir=tmp_path, requirements=listed).plan()
    assert {"ThirdpartyLibDir", "ThirdpartyLibs"} & plan.body.keys() == set()
    lines = "".join(f"{line}\n" for line in listed)
    assert (plan.uploads[-1].tree.root / "requirements.txt").read_text() == lines


def test_options(session: Session) -> None:
    options = DlcOptions(
        accessibility="PUBLIC",
        driver="550",
        node_names=["a", "b"],
        avoid_nodes=["c"],
        restart_policy="Never",
        success_policy="AllWorkers",
        mounts=[
            {"path": "/mnt/d", "uri": "oss://models/d/", "access": "RW", "options": '{"mountType":"ossfs"}'},
            {"dataset_id": "d-rq3cxyhfn8zo2lq3k1", "version": "v1", "enable_cache": True},
        ],
        code_source={"id": "code-20210111103721-85qz78ia96lu", "branch": "main", "path": "/mnt/code"},
        image_registry="registry.example.com",
        image_username="me",
        image_password=Secret("REGISTRY"),
        grace_period_s=60,
        elastic_spot=[{"instance_type": "ecs.g6.large", "discount_percent": 90}],
        settings={"EnableCPUAffinity": True},
    )
    body = estimator(session, dlc=options).plan().body
    assert job_problems(body) == []
    spec = body["JobSpecs"][0]
    assert spec["AssignNodeSpec"] == {"EnableAssignNode": True, "NodeNames": "a,b", "AntiAffinityNodeNames": "c"}
    assert spec["ImageConfig"] == {
        "DockerRegistry": "registry.example.com",
        "Username": "me",
        "Password": "${secret:REGISTRY}",
    }
    assert (spec["RestartPolicy"], body["SuccessPolicy"], body["Accessibility"]) == (
        "Never",
        "AllWorkers",
        "PUBLIC",
    )
    assert spec["ElasticSpotSpecs"][0]["SpotDiscountLimit"] == 90
    assert [body["Settings"][key] for key in ("Driver", "TerminationGracePeriodSeconds", "EnableCPUAffinity")] == [
        "550",
        60,
        True,
    ]
    first, second = body["DataSources"][-2:]
    assert (first["MountAccess"], first["Options"]) == ("RW", '{"mountType":"ossfs"}')
    assert (second["DataSourceVersion"], second["EnableCache"]) == ("v1", True)
    assert body["CodeSource"]["Branch"] == "main"


def test_an_experiment_is_refused(session: Session) -> None:
    request = (
        estimator(session)
        .plan()
        .request.model_copy(update={"experiment_config": ExperimentConfig(experiment_id="e")})
    )
    assert [problem.where for problem in request_problems(request, DlcOptions())] == ["experiment_config"]


def test_an_unknown_setting() -> None:
    with pytest.raises(InvalidInputError):
        DlcOptions(settings={"EnableCpuAffinity": True})


@pytest.mark.parametrize(
    ("options", "where"),
    [
        ({"mounts": [{"path": "a", "uri": "nas://x"}, {"path": "/b", "uri": "nas://x"}]}, "dlc.mounts[0].path"),
        ({"mounts": [{"path": "/b", "uri": "nas://x"}, {"path": "/b", "uri": "nas://y"}]}, "dlc.mounts[1].path"),
        ({"grace_period_s": -1}, "dlc.grace_period_s"),
        ({"spot_price_per_minute": 0}, "dlc.spot_price_per_minute"),
    ],
)
def test_wrong_options_by_their_own_names(session: Session, options: dict[str, Any], where: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        estimator(session, dlc=options).plan()
    assert [problem.where for problem in caught.value.problems] == [where]


def test_a_job_is_read_back(session: Session) -> None:
    submitter = estimator(
        session,
        source_dir="oss://models/code/",
        hyperparameters={"lr": 0.1},
        environments={"A": "b"},
        labels={"team": "x"},
        instance_count=2,
        user_vpc_config={"vpc_id": "v", "security_group_id": "s"},
        max_run_time=600,
    )
    plan = submitter.plan({"data": "oss://models/data/"})
    record = record_of(JobDetail.model_validate({**plan.body, "JobId": "dlc1", "Status": "Running"}))
    request = plan.request
    assert record.training_job_name == request.training_job_name
    assert record.hyperparameter_values == {"lr": "0.1"}
    assert record.environments == {"A": "b"}
    assert record.algorithm_spec is not None
    assert record.algorithm_spec["Command"] == ["sh", "-c", "python train.py"]
    assert record.compute_resource == {"EcsSpec": "ecs.c6.large", "EcsCount": 2}
    assert record.outputs == {each.name: each.output_uri for each in request.output_channels}
    assert {each.name: each.uri for each in record.input_channels} == {"data": "oss://models/data/"}
    assert {label.key: label.value for label in record.labels} == {each.key: each.value for each in request.labels}
    assert record.num_instances == 2
