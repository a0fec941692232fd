"""Jobs on a service that speaks PAI's API."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from pai_sdk._client.backend.base import Backend, Plan, Upload
from pai_sdk._client.backend.service import ServiceBackend
from pai_sdk._client.job.follow.polling import FollowPolicy
from pai_sdk._client.job.follow.stream import LogStream
from pai_sdk._client.submission import submit
from pai_sdk._core.config.credentials import static_credentials
from pai_sdk._core.config.settings import Settings, load_settings
from pai_sdk._core.retry import RetryPolicy
from pai_sdk._data.run.events.writer import EventWriter
from pai_sdk._data.storage.tree import FileTree
from pai_sdk._wire.pai.record import InstanceUsage, JobRecord
from pai_sdk._wire.pai.request import TrainingJobRequest
from pai_sdk._wire.pai.wire import wire_time
from pai_sdk.errors import InvalidInputError, SettingsError, StorageError
from tests.support.messages import refused
from tests.support.simulated_time import SimulatedTime
from tests.unit.client.api.scripted_server import Asked, Reply, ScriptedServer, oss_listing, unused_endpoint

KEY = static_credentials("LTAI-example", "secret")
CLOUD = Settings(region_id="cn-hangzhou", workspace_id="7", oss_bucket_name="models")


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    server = ScriptedServer()
    yield server
    server.close()


@pytest.fixture
def backend(server: ScriptedServer) -> Iterator[ServiceBackend]:
    settings = load_settings(
        {
            "region_id": "local",
            "workspace_id": "7",
            "oss_bucket_name": "models",
            "endpoint": server.endpoint,
            "oss_endpoint": server.endpoint,
        }
    )
    backend = ServiceBackend(settings, KEY, retry=RetryPolicy(sleep=lambda _: None))
    yield backend
    backend.close()


@pytest.fixture
def tree(tmp_path: Path) -> FileTree:
    folder = tmp_path / "my code ü"
    folder.mkdir()
    (folder / "train.py").write_text("print('hi')")
    return FileTree.scan(folder)


def a_request(**more: Any) -> TrainingJobRequest:
    return TrainingJobRequest.model_validate(
        {"TrainingJobName": "demo", "ComputeResource": {"EcsSpec": "ecs.c6.large"}, **more}
    )


def test_usage_is_the_last_value_of_each_metric(server: ScriptedServer, backend: ServiceBackend) -> None:
    values = {"CpuCoreUsage": [1.0, 2.5], "MemoryUsage": [50], "GpuCoreUsage": [None, 99.0], "GpuMemoryUsage": []}

    def answer(asked: Asked, times: Mapping[str, str] = MappingProxyType({})) -> Reply:
        metric = asked.query["MetricType"]
        points = [{"Time": times.get(metric, "2026-11-22T05:00:00Z"), "Value": value} for value in values[metric]]
        assert asked.path == "/api/v1/trainingjobs/t-1/instancemetrics"
        assert asked.query["StartTime"] < wire_time(time.time() - 300)  # type: ignore[operator]
        holes: list[Any] = [{"InstanceId": "t-1-worker-1", "Metrics": None}, {"Metrics": points}, {}]
        return Reply({"InstanceMetrics": [{"InstanceId": "t-1-worker-0", "Metrics": points}, *holes]})

    server.answer = answer
    assert backend.usage("t-1") == [InstanceUsage("t-1-worker-0", 2.5, 50.0, 99.0, None, None)]
    values["MemoryUsage"], values["GpuCoreUsage"] = [], [98.0]
    times = {"CpuCoreUsage": "2026-11-22T05:04:00Z"}  # four minutes behind those of the GPU
    server.answer = partial(answer, times=times)
    assert backend.usage("t-1") == [InstanceUsage("t-1-worker-0", 2.5, None, None, None, None)]
    for nothing in (None, {"a": 1}, [None, 7, {"InstanceId": "x", "Metrics": 7}]):
        server.answer = partial(lambda body, asked: Reply({"InstanceMetrics": body}), nothing)
        assert backend.usage("t-1") == []


def test_instances_of_alibaba_cloud_cannot_be_entered() -> None:
    with refused(InvalidInputError, "JOB"):
        ServiceBackend(CLOUD, KEY).connect_tunnel("t-1", "t-1-worker-0")


def test_it_is_a_backend(backend: ServiceBackend) -> None:
    known: Backend = backend
    assert repr(known).startswith("<ServiceBackend http://127.0.0.1:")


class TestPlaces:
    def test_named_by_content(self, tree: FileTree) -> None:
        backend = ServiceBackend(CLOUD, KEY)
        assert backend.tree_uri(tree, "code") == f"oss://models/pai/code/{tree.digest[:32]}/"
        assert backend.tree_uri(tree, "input") == f"oss://models/pai/input_data/{tree.digest[:32]}/"
        assert backend.default_output("demo-x7", "model") == "oss://models/pai/training_job/demo-x7/model/"

    @pytest.mark.parametrize(
        ("settings", "uri", "bucket", "key", "endpoint"),
        [
            (CLOUD, "oss://models/pai/code/3f/", "models", "pai/code/3f/", "oss-cn-hangzhou.aliyuncs.com"),
            (
                Settings(region_id="cn-hangzhou", network="VPC"),
                "oss://b-b/ä b?c#d/",
                "b-b",
                "ä b?c#d/",
                "oss-cn-hangzhou-internal.aliyuncs.com",
            ),
            (CLOUD, "oss://other.oss-cn-beijing.aliyuncs.com/k/", "other", "k/", "oss-cn-beijing.aliyuncs.com"),
            (
                Settings(region_id="r", oss_endpoint="http://127.0.0.1:8765"),
                "oss://models/k/",
                "models",
                "k/",
                "127.0.0.1:8765",
            ),
        ],
    )
    def test_a_code_dir(self, settings: Settings, uri: str, bucket: str, key: str, endpoint: str) -> None:
        assert ServiceBackend(settings, KEY).code_dir(uri).to_wire() == {
            "LocationType": "oss",
            "LocationValue": {"Bucket": bucket, "Key": key, "Endpoint": endpoint},
        }


class TestSettings:
    def test_all_that_a_job_needs_is_named_at_once(self) -> None:
        with refused(SettingsError):
            ServiceBackend(Settings(), KEY)

    def test_looking_at_jobs_needs_less_than_submitting_them(self, tree: FileTree) -> None:
        backend = ServiceBackend(Settings(region_id="cn-hangzhou"), KEY)
        for act in (lambda: backend.tree_uri(tree, "code"), lambda: backend.default_output("n", "model")):
            with refused(SettingsError):
                act()
        with refused(SettingsError):
            submit(Plan(a_request()), backend)


class TestSubmit:
    def test_files_first_then_the_job(
        self, server: ScriptedServer, backend: ServiceBackend, tree: FileTree
    ) -> None:
        def answer(asked: Asked) -> Reply:
            if asked.path == "/api/v1/trainingjobs":
                return Reply({"TrainingJobId": "t-1"})
            if "list-type" in asked.query:
                return oss_listing({})
            if asked.method == "GET":
                return Reply(b"", 404, {"x-oss-request-id": "r"})
            return Reply(b"", headers={"ETag": '"x"', "x-oss-request-id": "r"})

        server.answer = answer
        plan = Plan(a_request(), (Upload(tree, backend.tree_uri(tree, "code")),))
        assert submit(plan, backend, progress=False) == "t-1"
        puts = [asked.path for asked in server.asked if asked.method == "PUT"]
        assert f"/models/pai%2Fcode%2F{tree.digest[:32]}%2Ftrain.py" in puts
        assert server.asked[-1].method == "POST"
        body = server.asked[-1].json
        assert body["WorkspaceId"] == "7"
        assert [label["Key"] for label in body["Labels"]] == ["pai-sdk-submission"]
        assert plan.request.labels == []

    def test_the_requests_own_workspace_stays(self, server: ScriptedServer, backend: ServiceBackend) -> None:
        server.script = [Reply({"TrainingJobId": "t-1"})]
        submit(Plan(a_request(WorkspaceId="99")), backend)
        assert server.asked[0].json["WorkspaceId"] == "99"


def test_a_job_through_the_protocol(server: ScriptedServer, backend: ServiceBackend) -> None:
    answers = {
        "/api/v1/trainingjobs": {"TrainingJobs": [{"TrainingJobId": "t-1"}], "TotalCount": 1},
        "/api/v1/trainingjobs/t-1": {"Status": "Running"},
        "/api/v1/trainingjobs/t-1/logs": {"Logs": ["a", "b"], "TotalCount": "2"},
        "/api/v1/trainingjobs/t-1/metrics": {"Metrics": [{"Name": "loss", "Value": 0.5}], "TotalCount": 1},
        "/api/v1/trainingjobs/t-1/events": {"Events": ["created"], "TotalCount": "1"},
        "/api/v1/trainingjobs/t-1/errorinfo": {"ErrorInfo": {"Code": "OOM"}},
    }
    server.answer = lambda asked: Reply(answers.get(asked.path, {"RequestId": "r"}))
    assert [record.training_job_id for record in backend.list(labels={"a": "b"})] == ["t-1"]
    assert server.asked[0].query["WorkspaceId"] == "7"
    assert json.loads(server.asked[0].query["Labels"]) == {"a": "b"}
    assert backend.get("t-1").status == "Running"
    assert backend.read_log("t-1", "t-1-master-0", start=1, limit=10).lines == ("b",)
    assert [point.value for point in backend.metrics("t-1", name="loss")] == [0.5]
    assert backend.events("t-1") == ["created"]
    info = backend.error_info("t-1")
    assert info is not None
    assert info.code == "OOM"
    backend.update_labels("t-1", {"k": "v"})
    backend.stop("t-1")
    backend.delete("t-1")
    asked = [f"{a.method} {a.path}" for a in server.asked[-3:]]
    assert asked == [
        "POST /api/v1/trainingjobs/t-1/labels",
        "PUT /api/v1/trainingjobs/t-1/stop",
        "DELETE /api/v1/trainingjobs/t-1",
    ]


def test_reports_are_read_from_their_files_where_the_service_does_not_read_them(
    server: ScriptedServer, backend: ServiceBackend, tmp_path: Path
) -> None:
    """Alibaba Cloud's service finds metrics by regular expressions only."""
    with EventWriter(tmp_path, source="host-1") as writer:
        writer.scalars({"loss": 0.1}, 7, wall_time=1.8e9)
    content = writer.path.read_bytes()
    record = {
        "Status": "Running",
        "GmtCreateTime": "2026-01-01T00:00:00Z",
        "OutputChannels": [{"Name": "tensorboard", "OutputUri": "oss://models/out/tensorboard/"}],
    }
    parsed = [{"Name": "loss", "Value": 0.5, "Timestamp": "2026-01-02T00:00:00Z"}]
    oss = {"ETag": '"x"', "Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT", "x-oss-request-id": "r"}
    status = {"of the listing": 200}

    def answer(asked: Asked) -> Reply:
        if asked.path.endswith("/metrics"):
            return Reply({"Metrics": parsed, "TotalCount": 1})
        if asked.path.startswith("/api/"):
            return Reply(record, headers={"x-pai-offers": offers})
        if "list-type" in asked.query and status["of the listing"] != 200:
            return Reply(b"<Error><Code>AccessDenied</Code></Error>", 403, {"x-oss-request-id": "r"})
        if "list-type" in asked.query:
            return oss_listing({f"out/tensorboard/{writer.path.name}": len(content)})
        return Reply(content, 206, {**oss, "Content-Range": f"bytes 0-{len(content) - 1}/{len(content)}"})

    offers = "wait"
    server.answer = answer
    found = [(point.value, point.step, point.instance) for point in backend.metrics("t-1", name="loss")]
    assert found == [(0.5, None, None), (0.1, 7, "host-1")]
    status["of the listing"] = 403
    assert [point.value for point in backend.metrics("t-1")] == [0.5]
    offers = "reported-metrics"
    for _ in range(2):
        assert [point.value for point in backend.metrics("t-1")] == [0.5]
    assert [asked.path.rpartition("/")[2] for asked in server.asked[-3:]] == ["t-1", "metrics", "metrics"]


def test_a_download(server: ScriptedServer, backend: ServiceBackend, tmp_path: Path) -> None:
    from email.utils import formatdate

    headers = {"ETag": '"x"', "Last-Modified": formatdate(0, usegmt=True), "x-oss-request-id": "r"}
    server.answer = lambda asked: Reply(b"weights", headers=headers)
    found = backend.download("oss://models/out/model.pt", tmp_path / "model.pt", progress=False)
    assert found.read_bytes() == b"weights"


def test_a_service_that_sleeps_is_woken_before_files_are_moved(server: ScriptedServer, tmp_path: Path) -> None:
    woken: list[int] = []
    settings = Settings(region_id="r", endpoint=server.endpoint, oss_endpoint=server.endpoint)
    backend = ServiceBackend(settings, KEY, find_again=lambda: woken.append(len(server.asked)))
    server.script = [Reply(b"", 404, {"x-oss-request-id": "r"})]
    with pytest.raises(StorageError):
        backend.download("oss://models/out/", tmp_path, progress=False)
    assert woken == [0]
    backend.close()


def test_oss_is_loaded_only_when_needed() -> None:
    check = (
        "import sys; from pai_sdk._client.backend.service import ServiceBackend;"
        "from pai_sdk._core.config import Settings;"
        "ServiceBackend(Settings(region_id='r'), lambda: None).code_dir('oss://bucket/key/');"
        "sys.exit('oss2' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_service_that_is_gone_is_started_again_by_those_who_follow_a_job(server: ScriptedServer) -> None:
    """They make one attempt at a time, and plan the next one themselves."""
    starts: list[int] = []

    def start() -> str:
        starts.append(1)
        return server.endpoint

    gone = Settings(region_id="local", workspace_id="7", oss_bucket_name="models", endpoint=unused_endpoint())
    backend = ServiceBackend(gone, KEY, find_again=start)
    server.script = [Reply({"TrainingJobId": "t-1", "Status": "Succeed"})]
    try:
        stream = LogStream(backend, "t-1", follow=True, policy=FollowPolicy(schedule=SimulatedTime()))
        assert [update.status for update in stream.updates() if isinstance(update, JobRecord)][-1] == "Succeed"
        assert starts == [1]
        assert backend.endpoint == server.endpoint
    finally:
        backend.close()
