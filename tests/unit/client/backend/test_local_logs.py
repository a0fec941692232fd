"""The log of a local job: read to its last byte, however close to the end that was written; and what is in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from pai_sdk._client.backend.local.jobs import LocalJob
from pai_sdk._client.backend.local.watching import LatestMetrics, LocalLogs, metric_values
from pai_sdk._data.run.events.writer import EventWriter
from pai_sdk._data.run.watch.manager import RunManager
from pai_sdk._host.agent.sandbox import Sandbox
from pai_sdk._host.execution.contract import instances
from pai_sdk._host.execution.docker.executor import DockerExecutor
from pai_sdk._wire.pai.request import TrainingJobRequest


class RunningJob(LocalJob):
    def is_log_open(self, instance: str) -> bool:
        return True


def job_of(root: Path, request: TrainingJobRequest) -> LocalJob:
    """The job in a folder, whose name is its id."""
    job = LocalJob(root, DockerExecutor())
    job.sandbox.create(request)
    (root / "request.json").write_text(request.to_json())
    return job


LAST = b"ValueError: the reason, \xff and \xe6\x8d"


@pytest.mark.parametrize("wait_s", [0.0, 10.0])
def test_what_is_written_while_the_end_is_found_out_is_still_read(tmp_path: Path, wait_s: float) -> None:
    name, logs, looks = "t-master-0", LocalLogs(), iter([True, True])
    log = Sandbox(tmp_path).log_file(name)
    log.parent.mkdir()
    log.write_bytes(b"begun\n")

    class EndingJob(LocalJob):
        def is_log_open(self, instance: str) -> bool:
            if next(looks, False):
                return True
            if not log.read_bytes().endswith(LAST):
                with log.open("ab") as writing:
                    writing.write(b"epoch 1\n" + LAST)
            return False

    job = EndingJob(tmp_path, DockerExecutor())
    first = logs.read(job, name, 0, 100, wait_s=wait_s)
    assert (first.lines, first.complete) == (("begun",), False)
    lines = list(first.lines)
    while not (page := logs.read(job, name, len(lines), 100, wait_s=wait_s)).complete:
        lines += page.lines
    assert [*lines, *page.lines] == ["begun", "epoch 1", LAST.decode(errors="replace")]


def test_lines_have_the_times_that_the_container_has_noted(tmp_path: Path) -> None:
    sandbox, name, job = Sandbox(tmp_path), "t-master-0", RunningJob(tmp_path, DockerExecutor())
    for folder in (sandbox.logs_dir, sandbox.shared_dir):
        folder.mkdir()
    sandbox.log_file(name).write_bytes(b"one\ntwo\nthree\nfour\n")
    (sandbox.shared_dir / f"{name}.times").write_text("10 4\n20 9\n30 14\n")
    assert LocalLogs().times(job, name, 1, 10) == [20.0, 30.0, None]


def test_metrics_are_found_in_the_logs_of_all_instances(tmp_path: Path) -> None:
    request = TrainingJobRequest.model_validate(
        {
            "TrainingJobName": "n",
            "AlgorithmSpec": {
                "Image": "i",
                "Command": ["c"],
                "MetricDefinitions": [
                    {"Name": "loss", "Regex": r"loss=(\S+)"},
                    {"Name": "acc", "Regex": r"acc=(?:about )?([0-9.]+)"},
                ],
            },
            "ComputeResource": {"EcsSpec": "local", "EcsCount": 3},
        }
    )
    job = job_of(tmp_path / "t", request)
    first, second, _ = (job.sandbox.log_file(instance.name) for instance in instances("t", request))
    first.write_bytes(b"loss=1.5 acc=0.1\n\rloss=1e-2\rloss=soon \xff\nloss=3 loss=4")
    second.write_bytes(b"acc=about 0.7\n")

    def found(name: str | None) -> list[tuple[str | None, float | None]]:
        return [(point.name, point.value) for point in metric_values(job, name=name, is_final=True)]

    assert found("loss") == [("loss", 1.5), ("loss", 0.01), ("loss", 3.0), ("loss", 4.0)]
    assert found(None)[:2] == [("loss", 1.5), ("acc", 0.1)]
    assert found("acc") == [("acc", 0.1), ("acc", 0.7)]
    assert found("nothing") == []


def test_reported_metrics_have_step_and_instance(tmp_path: Path) -> None:
    wire = {"TrainingJobName": "n", "ComputeResource": {"EcsSpec": "local", "EcsCount": 1}}
    mounted = {"OutputChannels": [{"Name": "tensorboard", "OutputUri": (tmp_path / "mounted").as_uri()}]}
    jobs = [
        job_of(tmp_path / name, TrainingJobRequest.model_validate({**wire, **more}))
        for name, more in (("t", {}), ("u", mounted))
    ]
    for folder, job in zip(
        (jobs[0].sandbox.ml / "output" / "tensorboard", tmp_path / "mounted"), jobs, strict=True
    ):
        with EventWriter(folder, source=f"{job.id}-master-0") as writer:
            writer.scalars({"loss": 0.1, "acc": 0.9}, 3)

    def found(job: LocalJob) -> list[tuple[str | None, float | None, int | None, str | None]]:
        points = metric_values(job, name="loss", is_final=True)
        return [(point.name, point.value, point.step, point.instance) for point in points]

    assert found(jobs[0]) == [("loss", 0.1, 3, "t-master-0")]
    assert found(jobs[1]) == [("loss", 0.1, 3, "u-master-0")]


def test_the_last_values_are_read_on_once_a_second_and_at_the_end(tmp_path: Path) -> None:
    request = TrainingJobRequest.model_validate(
        {
            "TrainingJobName": "n",
            "AlgorithmSpec": {
                "Image": "i",
                "Command": ["c"],
                "MetricDefinitions": [{"Name": "loss", "Regex": r"loss=(\S+)"}],
            },
            "ComputeResource": {"EcsSpec": "local", "EcsCount": 1},
        }
    )
    job = job_of(tmp_path / "t", request)
    log, now = job.sandbox.log_file(instances("t", request)[0].name), [0.0]
    latest = LatestMetrics(clock=lambda: now[0])

    def last(at_s: float, *, is_final: bool = False) -> list[tuple[str | None, float | None]]:
        now[0] = at_s
        return [(point.name, point.value) for point in latest.of(job, is_final=is_final)]

    assert last(0.0) == []
    log.write_text("loss=3\nloss=2\n")
    assert last(0.5) == []  # it was read less than a second ago
    assert last(1.5) == [("loss", 2.0)]
    with log.open("a") as file:
        file.write("loss=1")
    assert last(3.0) == [("loss", 2.0)]  # the line may go on
    assert last(3.1, is_final=True) == [("loss", 1.0)]


def test_a_look_at_a_job_writes_the_metrics_of_its_log_into_its_run(tmp_path: Path) -> None:
    request = TrainingJobRequest.model_validate(
        {
            "TrainingJobName": "n",
            "AlgorithmSpec": {
                "Image": "i",
                "Command": ["c"],
                "MetricDefinitions": [{"Name": "loss", "Regex": r"loss=(\S+)"}],
            },
            "ComputeResource": {"EcsSpec": "local", "EcsCount": 1},
            "OutputChannels": [{"Name": "tensorboard", "OutputUri": (tmp_path / "outputs").as_uri()}],
        }
    )
    job = job_of(tmp_path / "t", request)
    log, now = job.sandbox.log_file(instances("t", request)[0].name), [0.0]
    latest = LatestMetrics(clock=lambda: now[0])
    log.write_text("loss=3\nloss=2\nloss=1")
    with RunManager(tmp_path / "outputs", refresh_s=0) as manager:
        for is_final, expected in ((False, [3.0, 2.0]), (True, [3.0, 2.0, 1.0])):
            now[0] += 2
            latest.write(job, is_final=is_final)
            manager.refresh()
            assert manager.run(".").scalars("loss").value.tolist() == expected
    assert [point.value for point in latest.of(job, is_final=True)] == [1.0]
