"""The metrics of a local job: when they were written, and what is none."""

from __future__ import annotations

import os
from pathlib import Path

from pai_sdk._client.backend.local.watching import metric_values
from pai_sdk._host.agent.sandbox import Sandbox
from pai_sdk._wire.pai.request import TrainingJobRequest
from tests.unit.client.backend.test_local_logs import job_of

START = 1_700_000_000


def request(count: int = 1, regex: str = r"loss=(\S+)?") -> TrainingJobRequest:
    return TrainingJobRequest.model_validate(
        {
            "TrainingJobName": "t",
            "ComputeResource": {"EcsSpec": "local", "EcsCount": count},
            "AlgorithmSpec": {
                "Image": "i",
                "Command": ["true"],
                "JobType": "PyTorchJob",
                "MetricDefinitions": [{"Name": "loss", "Regex": regex}],
            },
        }
    )


def log(folder: Path, instance: str, lines: dict[int, str], *, is_noted: bool = True) -> None:
    """A log whose lines were written at these seconds after the start; the last time is not recorded."""
    sandbox = Sandbox(folder)
    for place in (sandbox.logs_dir, sandbox.state_dir, sandbox.ml / "output", folder / "shared"):
        place.mkdir(parents=True, exist_ok=True)
    size, notes = 0, [f"{START} 0"]
    for second, text in lines.items():
        size += len(text.encode()) + 1
        notes.append(f"{START + second} {size}")
    path = sandbox.log_file(instance)
    path.write_text("".join(f"{text}\n" for text in lines.values()))
    os.utime(path, (START + max(lines), START + max(lines)))
    if is_noted:
        (folder / "shared" / f"{instance}.times").write_text("\n".join(notes[:-1]) + "\nnonsense\n1e300 999999\n")


def values(folder: Path, wanted: TrainingJobRequest) -> list[tuple[float | None, str | None]]:
    return [
        (point.value, point.timestamp and point.timestamp[14:19])
        for point in metric_values(job_of(folder, wanted), name=None, is_final=True)
    ]


def test_a_value_has_the_time_its_line_was_written(tmp_path: Path) -> None:
    log(tmp_path / "j", "j-master-0", {1: "loss=3", 2: "läuft", 5: "loss=2", 9: "loss=1"})
    assert values(tmp_path / "j", request()) == [(3.0, "13:21"), (2.0, "13:25"), (1.0, "13:29")]


def test_the_oldest_comes_first_whichever_instance_it_is_from(tmp_path: Path) -> None:
    log(tmp_path / "j", "j-master-0", {1: "loss=1", 4: "loss=4", 6: "end"})
    log(tmp_path / "j", "j-worker-0", {2: "loss=2", 3: "loss=3", 6: "end"})
    assert [value for value, _ in values(tmp_path / "j", request(2))] == [1.0, 2.0, 3.0, 4.0]


def test_a_metric_without_a_noted_time_has_none(tmp_path: Path) -> None:
    log(tmp_path / "j", "j-master-0", {1: "loss=3", 2: "loss=2"}, is_noted=False)
    assert values(tmp_path / "j", request()) == [(3.0, None), (2.0, None)]


def test_what_is_no_number_is_no_value(tmp_path: Path) -> None:
    log(
        tmp_path / "j",
        "j-master-0",
        {1: "loss=", 2: "loss=nan", 3: "loss=inf", 4: "loss=much", 5: "loss=1", 6: "end"},
    )
    assert [value for value, _ in values(tmp_path / "j", request())] == [1.0]
    log(tmp_path / "other" / "j", "j-master-0", {1: "loss=1", 2: "end"})
    assert values(tmp_path / "other" / "j", request(regex="loss")) == []


def test_each_state_of_a_progress_bar_is_a_line(tmp_path: Path) -> None:
    log(tmp_path / "j", "j-master-0", {1: "loss=3 a\rloss=2 b\r"}, is_noted=False)
    assert [value for value, _ in values(tmp_path / "j", request(regex=r"^loss=(.+) \w$"))] == [3.0, 2.0]
