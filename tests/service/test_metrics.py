"""Metrics that are read from logs."""

from __future__ import annotations

import itertools
import math
import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pai_sdk.run.events import EventWriter
from pai_sdk.service.jobs import metrics
from tests.service.fakes import ScriptedExecutor
from tests.service.services import Client, job_body, running_service
from tests.waiting import until

DEFINITIONS = [
    {"Name": "loss", "Regex": r"loss=([-+.0-9e]+|nan)"},
    {"Name": "acc", "Regex": r"acc: ([0-9.]+)%"},
]


@pytest.fixture(scope="module")
def executor() -> ScriptedExecutor:
    return ScriptedExecutor()


@pytest.fixture(scope="module")
def client(executor: ScriptedExecutor, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with running_service(tmp_path_factory.mktemp("scripted") / "data", executor, slots=1000) as client:
        yield client


def running(client: Client, definitions: list[dict[str, str]]) -> tuple[str, Path]:
    job_id = client.create(job_body(AlgorithmSpec={"MetricDefinitions": definitions}))
    client.until(job_id, "Running")
    return job_id, client.info.data_dir / "jobs" / job_id


def values(client: Client, job_id: str, **query: Any) -> list[tuple[str, float]]:
    answer = client.get(f"/trainingjobs/{job_id}/metrics", **query)
    return [(metric["Name"], metric["Value"]) for metric in answer["Metrics"]]


def test_values_come_while_the_job_runs_and_all_are_there_at_its_end(
    client: Client, executor: ScriptedExecutor
) -> None:
    job_id, root = running(client, DEFINITIONS)
    master = f"{job_id}-master-0"
    executor.print(root, master, "step 1 loss=0.5 acc: 50%\nstep 2 loss=2e-1\nstep 3 lo")
    until(lambda: len(values(client, job_id)) >= 3)
    latest = client.get(f"/trainingjobs/{job_id}")["LatestMetrics"]
    assert [(m["Name"], m["Value"]) for m in latest] == [("acc", 50.0), ("loss", 0.2)]
    executor.print(root, master, "ss=7\nloss=nan loss=x\nloss=1 loss=0.25")
    executor.succeed(root)
    client.until(job_id)
    losses = [value for name, value in values(client, job_id) if name == "loss"]
    assert losses == [0.5, 0.2, 7.0, 1.0, 0.25]
    assert values(client, job_id, Name="acc") == [("acc", 50.0)]
    assert values(client, job_id, Name="loss", Order="DESC", PageSize=2) == [("loss", 0.25), ("loss", 1.0)]
    assert values(client, job_id, StartTime="2999-01-01T00:00Z") == []
    assert client.get(f"/trainingjobs/{job_id}/metrics")["TotalCount"] == 6
    newest = client.get(f"/trainingjobs/{job_id}/latestmetrics", Names="loss,none")["Metrics"]
    assert [(m["Name"], m["Value"]) for m in newest] == [("loss", 0.25)]


@pytest.mark.parametrize("names", ["[" * 20_000, '["\\ud800"]', '["a\\u0000b"]', "[[1], {}]", "[loss]"])
def test_names_that_no_metric_can_have_are_found_nowhere(
    client: Client, executor: ScriptedExecutor, names: str
) -> None:
    job_id, _ = running(client, DEFINITIONS)
    assert client.get(f"/trainingjobs/{job_id}/latestmetrics", Names=names)["Metrics"] == []
    assert client.call("DELETE", f"/trainingjobs/{job_id}/labels", Keys=names).status_code == 200


def test_a_hostile_regex_holds_nobody_up(client: Client, executor: ScriptedExecutor) -> None:
    hostile = [{"Name": "evil", "Regex": r"^(a+)+(\d)$"}, {"Name": "loss", "Regex": r"loss=(\d+)"}]
    job_id, root = running(client, hostile)
    executor.print(root, f"{job_id}-master-0", "a" * 5000 + "!\nloss=1\n" * 3)
    executor.succeed(root)
    client.until(job_id)  # read to its end, the pattern would take for ever
    assert values(client, job_id) == [("loss", 1.0)] * 3
    events = client.get(f"/trainingjobs/{job_id}/events")["Events"]
    assert any("Metric 'evil' is no longer read" in event for event in events)


class OnABusyMachine:
    """A pattern whose time is used up by other threads, now and then."""

    def __init__(self, pattern: str) -> None:
        self._pattern = re.compile(pattern)
        self._turns = itertools.cycle([True, False])

    def finditer(self, line: str, **limits: Any) -> Iterator[Any]:
        for number, match in enumerate(self._pattern.finditer(line)):
            if number == 1 and next(self._turns):
                raise TimeoutError
            yield match


def test_no_metric_is_given_up_because_the_machine_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    minutes = itertools.count(0.0, 60.0)
    clock = SimpleNamespace(monotonic=lambda: next(minutes), thread_time=time.thread_time)
    monkeypatch.setattr(metrics, "time", clock)
    definition = metrics._Definition("loss", OnABusyMachine(r"loss=(\d)"))
    assert list(definition.texts(["loss=1 loss=2", "loss=3", "loss=4 loss=5"])) == [
        (0, "1"),
        (0, "2"),
        (1, "3"),
        (2, "4"),
        (2, "5"),
    ]
    assert definition.trouble == ""


def test_a_restart_neither_loses_nor_repeats_a_value(start: Callable[..., Any]) -> None:
    executor = ScriptedExecutor()
    with start(executor) as client:
        job_id, root = running(client, DEFINITIONS)
        executor.print(root, f"{job_id}-master-0", "loss=1\nloss=2\n")
        until(lambda: values(client, job_id))
    executor.print(root, f"{job_id}-master-0", "loss=3\n")
    with start(executor) as client:
        executor.succeed(root)
        client.until(job_id)
        assert [value for _, value in values(client, job_id)] == [1.0, 2.0, 3.0]


def test_the_values_of_several_metrics_are_in_the_order_of_their_lines(
    client: Client, executor: ScriptedExecutor
) -> None:
    job_id, root = running(client, DEFINITIONS)
    executor.print(root, f"{job_id}-master-0", "loss=3 acc: 10%\nloss=2 acc: 20%\n")
    executor.succeed(root)
    client.until(job_id)
    assert values(client, job_id) == [("loss", 3.0), ("acc", 10.0), ("loss", 2.0), ("acc", 20.0)]


def test_values_in_a_progress_bar_come_before_its_line_end(client: Client, executor: ScriptedExecutor) -> None:
    job_id, root = running(client, DEFINITIONS)
    executor.print(root, f"{job_id}-master-0", "\r10% loss=0.5\r20% loss=0.25\r30% lo")
    until(lambda: len(values(client, job_id)) >= 2)
    executor.print(root, f"{job_id}-master-0", "ss=0.125\n")
    executor.succeed(root)
    client.until(job_id)
    assert values(client, job_id) == [("loss", 0.5), ("loss", 0.25), ("loss", 0.125)]


def test_reports_are_neither_lost_nor_repeated_by_a_restart(start: Callable[..., Any]) -> None:
    """Also of a job without definitions; what is reported while the service is away is read afterwards."""
    executor = ScriptedExecutor()
    with start(executor) as client:
        job_id, root = running(client, [])
        writer = EventWriter(root / "ml" / "output" / "tensorboard", source=f"{job_id}-master-0")
        writer.scalars({"loss": 0.1, "bad": math.nan}, 1)
        writer.flush()
        until(lambda: values(client, job_id))
    writer.scalars({"loss": 0.2}, 2)
    writer.flush()
    with start(executor) as client:
        until(lambda: len(values(client, job_id)) == 2)
        writer.scalars({"loss": 0.3}, 3)
        writer.close()
        executor.succeed(root)
        client.until(job_id)
        found = client.get(f"/trainingjobs/{job_id}/metrics")["Metrics"]
        assert [(m["Value"], m["Step"], m["Instance"]) for m in found] == [
            (0.1, 1, f"{job_id}-master-0"),
            (0.2, 2, f"{job_id}-master-0"),
            (0.3, 3, f"{job_id}-master-0"),
        ]


def test_damaged_and_hostile_event_files_hold_nobody_up(client: Client, executor: ScriptedExecutor) -> None:
    job_id, root = running(client, DEFINITIONS)
    folder = root / "ml" / "output" / "tensorboard"
    folder.mkdir(parents=True)
    name = f"events.out.tfevents.1.{job_id}-master-0.1"
    (folder / f"{name}.1").write_bytes(bytes(3 << 20))
    (folder / f"{name}.2").symlink_to("/etc/passwd")
    os.mkfifo(folder / f"{name}.3")
    (folder / f"{name}.4").mkdir()
    with EventWriter(folder, source=f"{job_id}-master-0") as writer:
        writer.scalars({"ok": 1, "x" * 600: 1}, -(2**63))
    executor.succeed(root)
    client.until(job_id)
    assert values(client, job_id) == [("ok", 1.0)]
