"""A service whose jobs are containers: `pai-sdk serve --executor docker`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from pai_sdk import Estimator, Processor, Session
from pai_sdk._service.settings import Pace, ServiceInfo
from pai_sdk.errors import EngineNotFoundError, JobFailed, JobStopped
from tests.docker.conftest import lines_of
from tests.docker.engine import BASE_IMAGE, Engine
from tests.docker.test_images import changed
from tests.docker.test_instances import ALL_REDUCE
from tests.service.services import Client, running_service, session_on
from tests.support.nvidia import FakeNvidiaSmi, pid_of
from tests.support.waiting import PATIENCE_S, until

TRAIN = """
import json, os
from pathlib import Path
rows = Path(os.environ["PAI_INPUT_TRAIN"]).read_text().splitlines()
lr = json.loads(Path("/ml/input/config/hyperparameters.json").read_text())["lr"]
for epoch in range(3):
    print(f"epoch={epoch} loss={1 / (epoch + 1):.2f}", flush=True)
while not Path("go").exists():
    sum(range(10_000))
checkpoints = Path(os.environ["PAI_OUTPUT_CHECKPOINTS"])
(checkpoints / "last").symlink_to("/ml/output/checkpoints/3.txt")
(checkpoints / "3.txt").write_text("third")
Path(os.environ["PAI_OUTPUT_MODEL"], "model.txt").write_text(f"{len(rows)} rows, lr {lr}, uid {os.getuid()}")
os.umask(0o077)
Path("/ml/usercode/private").mkdir()
"""


@pytest.fixture
def client(docker_host: Engine, tmp_path: Path) -> Iterator[Client]:
    with running_service(tmp_path / "service", executor="docker", pace=Pace(watch_interval_s=1.0)) as client:
        yield client


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeNvidiaSmi:
    """GPUs of the machine of the service; requested before the service, which looks for them when a job starts."""
    driver = FakeNvidiaSmi(tmp_path, monkeypatch)
    driver.set_use("37", "250")
    return driver


@pytest.fixture
def session(client: Client) -> Iterator[Session]:
    with session_on(client.info) as session:
        yield session


def processor(session: Session, command: str, *, image: str = BASE_IMAGE, **more: Any) -> Processor:
    return Processor(image, command, instance_type="ecs.c6.large", session=session, **more)


def test_a_running_job_is_entered_through_its_service(session: Session, tmp_path: Path) -> None:
    job = processor(session, "echo begun; python3 -m http.server 8123 --bind 127.0.0.1").run(
        wait=False, show_logs=False
    )
    until(lambda: job.status == "Running")
    result = job.exec(["sh", "-c", 'echo "$PAI_INSTANCE_NAME"; cat; exit 5'], input="typed", capture=True)
    assert (result.stdout.decode(), result.exit_code) == (f"{job.record.instance_names[0]}\ntyped", 5)
    until(lambda: job.exec(["grep", "-q", ":1FBB ", "/proc/net/tcp"], capture=True).exit_code == 0)
    with job.forward("0:8123") as forward:
        url = f"http://127.0.0.1:{forward.ports[0].local}/"
        assert urllib.request.urlopen(url, timeout=PATIENCE_S).status == 200
    (tmp_path / "file").write_text("content")
    job.copy_to(tmp_path / "file", "/ml/usercode/copy", progress=False)
    job.copy_from("/ml/usercode/copy", tmp_path / "back", progress=False)
    assert (tmp_path / "back").read_text() == "content"
    job.stop()
    until(lambda: job.status.is_terminal)


def test_a_training_from_its_data_to_its_model(
    driver: FakeNvidiaSmi, session: Session, client: Client, tmp_path: Path
) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text(TRAIN)
    (tmp_path / "train.csv").write_text("1,2\n3,4\n")
    estimator = Estimator(
        BASE_IMAGE,
        "python train.py",
        source_dir=tmp_path / "src",
        hyperparameters={"lr": 0.1},
        metric_definitions=[{"Name": "loss", "Regex": r"loss=(\S+)"}],
        instance_type="ecs.c6.large",
        session=session,
    )
    begun_at = time.time()
    job = estimator.fit({"train": tmp_path / "train.csv"}, wait=False, show_logs=False)
    instance = f"{job.id}-master-0"

    def used() -> bool:
        path = f"/trainingjobs/{job.id}/instancemetrics"
        usage = client.get(path, MetricType="CpuCoreUsage", InstanceId=instance)
        return any(point["Value"] > 0 for one in usage["InstanceMetrics"] for point in one["Metrics"])

    until(used, "what the container uses")
    driver.set_processes(pid_of(instance))
    until(lambda: job.usage()[0].gpu_percent == 37, "the GPU that the container uses")
    assert job.usage()[0].gpu_memory_percent == 25
    (folder,) = (tmp_path / "service" / "jobs").glob(f"*{job.id}*")
    (folder / "ml" / "usercode" / "go").touch()
    job.wait(PATIENCE_S, show_logs=False)
    assert job.download("model", tmp_path / "model").joinpath("model.txt").read_text() == (
        f"2 rows, lr 0.1, uid {os.getuid()}"
    )
    assert job.download("checkpoints", tmp_path / "saved").joinpath("last").read_text() == "third"
    assert [point.value for point in job.metrics("loss")] == [1.0, 0.5, 0.33]
    assert lines_of(job) == ["epoch=0 loss=1.00", "epoch=1 loss=0.50", "epoch=2 loss=0.33"]

    # The log's times are known.
    assert client.log(job.id, InstanceId=instance, StartTime=_wire_time(begun_at - 3600)) == lines_of(job)
    assert client.log(job.id, InstanceId=instance, StartTime=_wire_time(begun_at + 3600)) == []

    job.delete()
    until(lambda: not list((tmp_path / "service" / "jobs").glob(f"*{job.id}*")))
    until(lambda: not list((tmp_path / "service" / "jobs").glob(".trash-*")))


def test_all_instances_go_on_from_the_checkpoints_whoever_the_image_runs_as(
    session: Session, client: Client, engine: Engine
) -> None:
    """In an image whose user may write nowhere, and with a folder for each step."""
    image = changed(engine, "nobody", ["USER nobody"])
    kept = f"oss://{client.info.bucket}/kept/"
    saving = "cd $PAI_OUTPUT_CHECKPOINTS; mkdir -p step-1; echo $RANK >step-1/rank-$RANK"
    going_on = "cd $PAI_OUTPUT_CHECKPOINTS; cat step-1/rank-$RANK; rm step-1/rank-$RANK; touch step-1/more-$RANK"
    for command, lines in ((saving, [[], [], []]), (going_on, [["0"], ["1"], ["2"]])):
        job = processor(session, command, image=image, instance_count=3).run(
            outputs={"checkpoints": kept}, show_logs=False
        )
        assert [lines_of(job, rank) for rank in range(3)] == lines
    found = [entry.key for entry in client.bucket().list_objects_v2("kept/").object_list]
    assert found == [f"kept/step-1/{name}-{rank}" for name in ("more", "rank") for rank in range(3)]


def test_three_instances_reduce_over_tcp(session: Session) -> None:
    job = processor(session, 'python3 -c "$PROGRAM"', instance_count=3, environments={"PROGRAM": ALL_REDUCE}).run(
        show_logs=False
    )
    assert [lines_of(job, rank) for rank in range(3)] == [[f"rank {rank} of 3: sum 111"] for rank in range(3)]


def test_a_failure_tells_instance_code_and_last_lines(session: Session, client: Client) -> None:
    with pytest.raises(JobFailed, match="exit code 3") as failed:
        processor(session, "echo so far so good; [ $RANK = 1 ] && exit 3; sleep 60", instance_count=2).run(
            show_logs=False
        )
    assert failed.value.instance == f"{failed.value.job_id}-worker-0"
    assert "so far so good" in failed.value.log_tail


def test_a_job_is_stopped_and_its_containers_are_gone(session: Session, engine: Engine) -> None:
    job = processor(session, "echo up; sleep 100").run(wait=False, show_logs=False)
    next(iter(job.logs(follow=True)))
    job.stop()
    with pytest.raises(JobStopped):
        job.wait(PATIENCE_S, show_logs=False)
    with engine.client() as docker:
        assert docker.containers.list(all=True) == []


def test_the_memory_of_the_request_is_the_containers(client: Client) -> None:
    body = {
        "TrainingJobName": "limited",
        "AlgorithmSpec": {
            "Image": BASE_IMAGE,
            "Command": [
                "python3",
                "-c",
                "print('up', flush=True); x = bytearray(200 << 20); x[::4096] = x[::4096]",
            ],
        },
        "ComputeResource": {
            "ResourceId": "q",
            "InstanceCount": 1,
            "InstanceSpec": {"CPU": "1", "Memory": "64MiB"},
        },
    }
    job = client.until(client.create(body))
    assert (job["Status"], job["ReasonCode"]) == ("Failed", "OutOfMemory")


def test_clients_do_not_choose_user_or_network(session: Session, tmp_path: Path) -> None:
    tags = {"pai-sdk.local.user": "12345:12345", "pai-sdk.local.network": "host"}
    job = processor(session, "id -u; ls /sys/class/net | wc -l", settings={"tags": tags}).run(show_logs=False)
    # The service's own user; a loopback device and a network of the container's own.
    assert lines_of(job) == [str(os.getuid()), "2"]


def test_an_image_that_is_not_there_is_named(session: Session) -> None:
    with pytest.raises(JobFailed, match="no-such-image"):
        processor(session, "true", image="127.0.0.1:9/no-such-image:1").run(show_logs=False)


def test_stopping_while_the_image_is_pulled(session: Session, client: Client) -> None:
    with silent_registry() as (registry, was_asked):
        job = processor(session, "true", image=f"{registry}/large:1").run(wait=False, show_logs=False)
        assert was_asked.wait(PATIENCE_S)
        # The pull lasts as long as the registry is there. Neither answers nor another job are held up by it.
        assert client.get(f"/trainingjobs/{job.id}")["Status"] == "Initializing"
        processor(session, "true").run(show_logs=False)
        job.stop()
        with pytest.raises(JobStopped):
            job.wait(PATIENCE_S, show_logs=False)


def test_the_service_ends_while_an_image_is_pulled_and_the_next_one_begins_anew(
    docker_host: Engine, tmp_path: Path
) -> None:
    data = tmp_path / "service"
    with silent_registry() as (registry, was_asked):
        with running_service(data, executor="docker") as client, session_on(client.info) as session:
            job = processor(session, "true", image=f"{registry}/large:1").run(wait=False, show_logs=False)
            assert was_asked.wait(PATIENCE_S)
        was_asked.clear()
        with running_service(data, executor="docker") as client, session_on(client.info) as session:
            assert was_asked.wait(PATIENCE_S)
            session.get_job(job.id).stop()
            with pytest.raises(JobStopped):
                session.get_job(job.id).wait(PATIENCE_S, show_logs=False)


def test_a_job_outlives_the_kill_of_its_service(docker_host: Engine, tmp_path: Path) -> None:
    with serving(tmp_path / "service") as (process, info), session_on(info) as session:
        job = processor(
            session,
            "for i in $(seq 1 40); do echo line $i; sleep 0.1; done; echo $RANK >/ml/output/out/rank-$RANK",
            instance_count=2,
        ).run(outputs={"out": f"oss://{info.bucket}/out/"}, wait=False, show_logs=False)
        next(iter(job.logs(follow=True)))
        process.send_signal(signal.SIGKILL)
        process.wait()
    with serving(tmp_path / "service") as (process, info), session_on(info) as session:
        again = session.get_job(job.id).wait(PATIENCE_S, show_logs=False)
        assert [lines_of(again, rank) for rank in (0, 1)] == [[f"line {i}" for i in range(1, 41)]] * 2
        saved = session.download(f"oss://{info.bucket}/out/", tmp_path / "out", progress=False)
        assert sorted(path.name for path in saved.iterdir()) == ["rank-0", "rank-1"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0


def test_without_an_engine_it_refuses_to_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    with (
        pytest.raises(EngineNotFoundError, match=r"none\.sock"),
        running_service(tmp_path / "service", executor="docker"),
    ):
        pass


@contextmanager
def serving(data: Path) -> Iterator[tuple[subprocess.Popen[str], ServiceInfo]]:
    """`pai-sdk serve` in a process of its own."""
    program = [str(Path(sys.executable).with_name("pai-sdk")), "serve", "--executor", "docker"]
    options = ["--data", str(data), "--port", "0", "--json"]
    process = subprocess.Popen([*program, *options], stdout=subprocess.PIPE, text=True)
    try:
        facts = json.loads(process.stdout.readline())
        yield process, ServiceInfo(**facts, data_dir=data)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@contextmanager
def silent_registry() -> Iterator[tuple[str, threading.Event]]:
    """A registry that does not answer when it is asked for an image; gives its address, and tells when it was."""
    was_asked, is_over = threading.Event(), threading.Event()

    class Silent(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/v2/":  # an engine that gets no answer to its greeting gives up by itself
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            was_asked.set()
            is_over.wait()

        do_HEAD = do_GET

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Silent)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}", was_asked
    finally:
        is_over.set()
        server.shutdown()
        thread.join()
        server.server_close()


def _wire_time(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
