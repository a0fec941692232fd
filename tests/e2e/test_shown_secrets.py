"""Secrets in every place where a user may put one: no repr, table, page, response, log or file shows them."""

from __future__ import annotations

import dataclasses
import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import requests
import typer
from typer.testing import CliRunner

import pai_sdk
from pai_sdk import (
    DingTalk,
    Estimator,
    Feishu,
    HuggingFaceEstimator,
    ModelScopeEstimator,
    Pipeline,
    Processor,
    Role,
    Secret,
    Session,
    TrainingJob,
    Tuner,
    Webhook,
    WeCom,
    compare,
    gather,
)
from pai_sdk._client.api.transport import Acs3Auth
from pai_sdk._client.job.field_groups import differences
from pai_sdk._client.job.runs_of_jobs import RunsOfJobs, run_record
from pai_sdk._core.config.credentials import static_credentials
from pai_sdk._data.run.watch.manager import RunManager
from pai_sdk._data.run.watch.table import RunTable
from pai_sdk._service.state.folder import read_info
from pai_sdk._wire.pai.definitions import AlgorithmDefinition
from pai_sdk._wire.pai.spec import AlgorithmSpec
from pai_sdk.cli.root import app
from tests.support.service_process import end_service
from tests.support.waiting import until

MARK = "hunter2"
TRAIN = """
from pai_sdk import report
for step in range(3):
    report({"loss": 1.0 / (step + 1)}, step=step)
print("trained")
"""

# Public names that hold no value a user gave, or are functions and classes of constants.
WITHOUT_VALUES = {
    *("Checkpoint", "CheckpointConfig", "Experiment", "FunctionRun", "JobStatus", "LocalOptions", "ReportSession"),
    # rules: numbers, and actions
    *("Rule", "NoProgress", "OddRank", "ProcessStopped", "NonFiniteMetric", "MetricJump", "IdleGpu", "IdleCpu"),
    *("DiskNearlyFull", "LateEnd"),
    *("RunStore", "StopTraining", "AlgorithmEstimator", "__version__"),
    *(
        "OssUri",
        "CredentialConfig",
        "Change",
        "AssignNodeSpec",
        "ComputeResource",
        "ExperimentConfig",
        "InstanceSpec",
        "SpotSpec",
        "UserVpcConfig",
    ),
    *(
        "Channel",
        "CpfsFileSystemInput",
        "DatasetConfig",
        "FileSystemInput",
        "ImageInfo",
        "JobParameters",
        "OssUri",
    ),
    *("Display", "FollowPolicy", "Problem", "ProcessExecutor", "RetryPolicy", "Silent", "TensorBoard"),
    *("CachedTrainJob", "DataManager", "EventRecord", "EventWriter", "FunctionRunner", "ScalarEvent", "TrainJob"),
    *("KerasReportCallback", "LightGBMReportCallback", "LightningReportCallback", "TransformersReportCallback"),
    *("XGBoostReportCallback", "LogLine", "MetricPoint", "SyncReport", "TraceData", "TraceHook", "TraceWriter"),
    # Stores and tables are tested with keys where they are tested.
    *(
        "DbfsRunStore",
        "DirSync",
        "FsspecStore",
        "HdfsRunStore",
        "LocalRunStore",
        "LocalStore",
        "OssStore",
        "Store",
    ),
    *("OdpsSink", "ParquetSink", "TraceToOdpsHook", "JobFile", "Store"),
    *("Choice", "IntRange", "LogUniform", "Objective", "PipelineRun", "PopulationBased"),
    *("Trial", "TrialList", "Uniform"),
}
# Commands that show nothing of a job, do not return, or are tested with secrets where they are tested.
OTHER_COMMANDS = {
    *("shell", "forward", "stacks", "debug", "ssh", "ssh-config", "ssh-proxy", "watch", "notify"),
    *(
        "run",
        "submit",
        "clone",
        "demo",
        "dlc",
        "pipeline",
        "tune",
        "stop",
        "delete",
        "prune",
        "tensorboard",
        "cp",
        "sync",
        "rm",
        "serve",
        "ui",
    ),
    *(
        "migrate",
        "model",
        "pack",
        "trace",
        "config",
        "exec",
        "top",
        "algorithm",
        "doctor",
        "download",
        "wait",
        "wheel",
    ),
}


@dataclass
class Planted:
    session: Session
    estimators: list[Estimator]
    jobs: list[TrainingJob]
    logged: list[str]
    folder: Path

    @property
    def ids(self) -> list[str]:
        return [job.id for job in self.jobs]


class _Noted(logging.Handler):
    def __init__(self, lines: list[str]) -> None:
        super().__init__(logging.DEBUG)
        self.lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Planted]:
    """Two jobs that differ in secrets, and all that was logged meanwhile."""
    folder = tmp_path_factory.mktemp("planted")
    (folder / "src").mkdir()
    (folder / "src" / "train.py").write_text(TRAIN)
    lines: list[str] = []
    handler, root = _Noted(lines), logging.getLogger()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(folder / "home"))
        patch.setenv("MY_TOKEN", f"{MARK}-token")
        patch.setattr(root, "level", logging.DEBUG)
        root.addHandler(handler)
        session = Session.embedded(folder / "service")
        patch.setattr("pai_sdk._client.session.default._default", session)
        try:
            estimators = [_estimator(session, folder / "src", n) for n in (1, 2)]
            jobs = [estimator.fit(wait=False) for estimator in estimators]
            for job in jobs:
                job.wait(show_logs=False)
            yield Planted(session, estimators, jobs, lines, folder)
        finally:
            root.removeHandler(handler)
            session.close()
            end_service(folder / "service")


def _estimator(session: Session, source: Path, number: int) -> Estimator:
    return Estimator(
        "python:3.11",
        f"python train.py --api-key {MARK}-command",
        source_dir=str(source),
        hyperparameters={
            "lr": 0.1 * number,
            "api_key": f"{MARK}-{number}",
            "optim.password": f"{MARK}-{number}",
            "nested": {"db": {"password": f"{MARK}-nested"}, "hosts": [{"api_key": f"{MARK}-listed"}]},
        },
        environments={"HF_TOKEN": Secret("MY_TOKEN"), "PLAIN": f"{MARK}-plain"},
        instance_type="ecs.c6.large",
        session=session,
    )


def _texts(value: object) -> Iterator[tuple[str, str]]:
    """All that a value shows of itself."""
    yield "repr", repr(value)
    yield "str", str(value)
    for name in ("_repr_html_", "_repr_markdown_", "_repr_mimebundle_"):
        if (shows := getattr(value, name, None)) is not None:
            yield name, str(shows())
    if hasattr(value, "to_pandas") and not isinstance(value, RunManager):
        yield "to_pandas", value.to_pandas().to_string()


def _shown(values: dict[str, object]) -> list[str]:
    """The forms in which a secret is seen."""
    return [f"{name}.{form}" for name, value in values.items() for form, text in _texts(value) if MARK in text]


def test_no_public_value_shows_a_secret(planted: Planted) -> None:
    first, second = planted.jobs
    spec = AlgorithmSpec(
        command=["sh", "-c", f"python a.py --password {MARK}"],
        image="i",
        hyperparameter_definitions=[{"name": "api_key", "default_value": MARK}],  # type: ignore[list-item]
    )
    pipeline = Pipeline("planted", store=planted.folder / "pipelines")
    pipeline.step(planted.estimators[0], name="train")
    of_roles = Estimator(
        image_uri="i",
        command=f"python a.py --token {MARK}",
        job_type="TFJob",
        roles={"Worker": Role(), "Evaluator": Role(command=f"python b.py --token {MARK}")},
        environments={"A_TOKEN": MARK},
        instance_type="ecs.c6.large",
        dlc={"image_username": "u", "image_password": MARK, "image_registry": "r.example.com"},
        api="dlc",
        session=planted.session,
    )
    values: dict[str, object] = {
        "Pipeline": pipeline,
        "Pipeline.plans": pipeline.plans(),
        "Tuner": Tuner(planted.estimators[0], {"lr": [1, 2]}, "loss", trials=1, study=planted.folder / "study"),
        "Estimator": planted.estimators[0],
        "Estimator.plan": planted.estimators[0].plan(),
        "Estimator.plan.request": planted.estimators[0].plan().request,
        "Role": Role(command=f"python a.py --token {MARK}", image_uri="i"),
        "Estimator with roles": of_roles,
        "Estimator with roles.plan": of_roles.plan(),
        "Estimator with roles.plan.request": of_roles.plan().request,
        "Processor": Processor(
            "python:3.11", f"run --token {MARK}", environments={"A": MARK}, session=planted.session
        ),
        "Session": planted.session,
        "HuggingFaceEstimator": HuggingFaceEstimator(
            command=f"python a.py --token {MARK}",
            transformers_version="latest",
            environments={"A": MARK},
            instance_type="ecs.c6.large",
            session=planted.session,
        ),
        "ModelScopeEstimator": ModelScopeEstimator(
            command=f"python a.py --token {MARK}",
            modelscope_version="latest",
            environments={"A": MARK},
            instance_type="ecs.c6.large",
            session=planted.session,
        ),
        "TrainingJob.metrics": first.metrics(),
        "Secret": Secret("MY_TOKEN"),
        "TrainingJob": first,
        "TrainingJob.record": first.record,
        "TrainingJob.list": TrainingJob.list(session=planted.session),
        "compare": compare([first, second]),
        "compare.jobs": compare([first, second]).jobs,
        "gather": gather([first, second]),
        "differences": differences(first.record, second.record),
        "run_record": run_record(first.record),
        "spec": spec,
        "definition": AlgorithmDefinition.of(spec),
        "DingTalk": DingTalk(f"https://oapi.dingtalk.com/robot/send?access_token={MARK}", secret=MARK),
        "Feishu": Feishu(f"https://open.feishu.cn/open-apis/bot/v2/hook/{MARK}", secret=MARK),
        "Webhook": Webhook(f"https://hooks.example.com/{MARK}"),
        "WeCom": WeCom(f"https://qyapi.weixin.qq.com/cgi-bin/webhook/send?key={MARK}"),
    }
    runs = RunsOfJobs(lambda: planted.jobs)
    with RunManager(records=runs, opener=runs.open) as manager:
        until(lambda: all(brief.tags for brief in manager.runs().runs) and len(manager.runs().runs) == 2)
        briefs = manager.runs().runs
        values |= {
            "RunManager": manager,
            "RunManager.to_pandas": manager.to_pandas().to_string(),
            "RunPage": manager.runs(),
            "RunBrief": briefs[0],
            "RunBrief as dict": dataclasses.asdict(dataclasses.replace(briefs[0], tags={})),
            "RunTable": RunTable(briefs),
            "HparamsDiff": manager.hparams_diff(),
            "WatchedRun": manager.run(briefs[0].id),
            "group": manager.compare("", "loss", group_by=["optim.password"]),
        }
        assert _shown(values) == []
    types = {name: getattr(pai_sdk, name) for name in pai_sdk.__all__}
    public = {name for name, one in types.items() if isinstance(one, type) and not issubclass(one, BaseException)}
    covered = {name.partition(".")[0] for name in values} | {type(value).__name__ for value in values.values()}
    assert public - covered - WITHOUT_VALUES == set()


def test_jobs_that_differ_in_a_secret_differ(planted: Planted) -> None:
    first, second = planted.jobs
    assert compare([first, second]).differing == ["lr", "api_key", "optim.password"]
    names = {one.name: (one.first, one.second) for one in differences(first.record, second.record)}
    assert names["api_key"] == ("******", "******")


def test_no_command_prints_a_secret(planted: Planted) -> None:
    first, second = planted.ids
    planted.session.schedules.create("yearly", "0 3 1 1 *", planted.estimators[0].plan())
    calls = [
        *(["ps"], ["ps", "--json"], ["status", first], ["status", first, "--json"], ["describe", first]),
        *(["describe", first, "--json"], ["diff", first, second], ["diff", first, second, "--json"]),
        *(["why", first], ["events", first], ["events", first, "--json"], ["logs", first], ["metrics", first]),
        *(
            ["runs"],
            ["runs", "--json"],
            ["compare", first, second],
            ["ls", planted.jobs[0].outputs["tensorboard"]],
        ),
        *(["service", "status"], ["--verbose", "describe", first]),
        *(
            [*words, *more]
            for words in (["schedule", "list"], ["schedule", "show", "yearly"])
            for more in ([], ["--json"])
        ),
    ]
    runner = CliRunner()
    seen = []
    for call in calls:
        result = runner.invoke(app, call)
        assert not isinstance(result.exception, Exception), (call, result.output, result.exception)
        if MARK in result.output or MARK in (result.stderr if result.stderr_bytes else ""):
            seen.append(call)
    assert seen == []
    known = set(typer.main.get_command(app).commands)  # type: ignore[attr-defined]
    assert known - {name for call in calls for name in call} - OTHER_COMMANDS == set()


def test_no_response_about_runs_has_a_secret(planted: Planted) -> None:
    info = read_info(planted.folder / "service")
    assert info is not None
    paths = requests.get(f"{info.endpoint}/openapi.json", auth=_auth(info), timeout=10).json()["paths"]
    run = planted.ids[0]
    asked = 0
    for path, methods in paths.items():
        if not re.match(r"/api/v1/(runs|compare|hparams)", path) or "/events" in path:
            continue
        url = f"{info.endpoint}{path}".replace("{run_id}", run)
        bodies: list[Any] = [
            {"filter": "", "tag": "loss", "group_by": ["hparams.api_key"]},
            {"filter": "", "metric": "loss"},
            {"runs": [run]},
        ]
        for method in methods:
            for body in bodies if method == "post" else [None]:
                response = requests.request(
                    method,
                    url,
                    json=body,
                    params={"tag": "loss", "query": "trained"},
                    auth=_auth(info),
                    timeout=10,
                )
                asked += response.status_code == 200
                assert MARK not in response.text, (method, path)
    assert asked >= 5


def _auth(info: Any) -> Acs3Auth:
    return Acs3Auth(static_credentials(info.access_key_id, info.access_key_secret), "Any", "2022-01-12")


def test_no_log_line_and_only_the_files_that_start_a_job_have_a_secret(planted: Planted) -> None:
    assert [line for line in planted.logged if MARK in line] == []
    having = {
        re.sub(r"jobs/[^/]+", "jobs/JOB", path.relative_to(planted.folder).as_posix())
        for path in planted.folder.rglob("*")
        if path.is_file() and MARK.encode() in path.read_bytes()
    }
    # The request as it was accepted, and what a job is started with; all below a folder of mode 0700.
    assert having <= {
        *("service/service.db", "service/service.db-wal"),
        *("service/jobs/JOB/state/job.json", "service/jobs/JOB/ml/input/config/hyperparameters.json"),
    }
    assert (planted.folder / "service").stat().st_mode & 0o077 == 0
