"""Metrics that are read from logs."""

from __future__ import annotations

import itertools
import math
import os
import re
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import create_engine, insert, text

from pai_sdk._client.display.curves import curves_of
from pai_sdk._client.tune.objectives import step_values
from pai_sdk._data.run.events.sources import preferred_points
from pai_sdk._data.run.events.writer import EventWriter
from pai_sdk._service.background import metrics
from pai_sdk._service.services.budgets import Work
from pai_sdk._service.state.models import Metric
from pai_sdk._service.state.sql_engine import postgres_engine, postgres_url
from pai_sdk._wire.pai.record import MetricPoint
from tests.service.fakes import ScriptedExecutor
from tests.service.postgres import url_for
from tests.service.services import Client, job_body, running_service
from tests.support.waiting import until

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

    def latest() -> list[tuple[str, float]]:
        return [(m["Name"], m["Value"]) for m in client.get(f"/trainingjobs/{job_id}")["LatestMetrics"]]

    until(lambda: latest() == [("acc", 50.0), ("loss", 0.2)])
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
    executor.print(root, f"{job_id}-master-0", "a" * 4000 + "!\nloss=1\n" * 3)
    executor.succeed(root)
    client.until(job_id)  # read to its end, the pattern would take for ever
    assert values(client, job_id) == [("loss", 1.0)] * 3
    events = client.get(f"/trainingjobs/{job_id}/events")["Events"]
    assert any("Metric 'evil' is no longer read" in event for event in events)


def test_a_job_says_when_its_long_lines_are_not_searched_as_a_whole(
    client: Client, executor: ScriptedExecutor
) -> None:
    """A pattern that takes a time that grows with the square is applied to the ends of a line, and goes on."""
    slow = [{"Name": "slow", "Regex": r"x+loss=(\d+)"}, {"Name": "loss", "Regex": r"loss=(\d+)"}]
    job_id, root = running(client, slow)
    long = "x" * metrics.MAX_LINE
    executor.print(root, f"{job_id}-master-0", f"xloss=1\n{long}loss=2\n{long}\nxloss=3\n")
    executor.succeed(root)
    client.until(job_id)
    for name in ("slow", "loss"):
        assert values(client, job_id, Name=name) == [(name, 1.0), (name, 2.0), (name, 3.0)]
    events = " ".join(client.get(f"/trainingjobs/{job_id}/events")["Events"])
    assert events.count("lines of more than 32,768 bytes") == 1
    assert events.count("'slow' is slow for long lines") == 1
    assert "no longer read" not in events


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
    assert list(definition.matches(["loss=1 loss=2", "loss=3", "loss=4 loss=5"])) == [
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


def test_what_is_found_in_a_log_is_on_the_page_and_among_the_runs(
    client: Client, executor: ScriptedExecutor
) -> None:
    """A report of the same name keeps the name; job.metrics() has both under it, as it always had."""
    job_id, root = running(client, DEFINITIONS)
    master = f"{job_id}-master-0"
    executor.print(root, master, "loss=3 acc: 10%\nloss=2\n")
    with EventWriter(root / "ml" / "output" / "tensorboard", source=master) as writer:
        writer.scalars({"loss": 9.0}, 5)
    executor.succeed(root)
    client.until(job_id)

    def scalars(tag: str) -> tuple[list[int], list[float]]:
        found = client.get(f"/runs/{job_id}/scalars", tag=tag)
        return found["steps"], found["values"]

    until(lambda: len(client.find(f"/runs/{job_id}").get("tags", [])) == 3)
    assert scalars("loss (master-0.log)") == ([1, 2], [3.0, 2.0])
    assert scalars("acc") == ([1], [10.0])
    assert scalars("loss") == ([5], [9.0])
    assert sorted(values(client, job_id)) == [("acc", 10.0), ("loss", 2.0), ("loss", 3.0), ("loss", 9.0)]


def test_a_job_that_spoils_its_output_ends_and_says_what_is_lost(
    client: Client, executor: ScriptedExecutor, tmp_path: Path
) -> None:
    job_id, root = running(client, DEFINITIONS)
    (root / "ml" / "output" / "tensorboard").symlink_to(tmp_path)
    executor.print(root, f"{job_id}-master-0", "loss=3\n")
    executor.succeed(root)
    assert client.until(job_id)["Status"] == "Succeed"
    events = client.get(f"/trainingjobs/{job_id}/events")["Events"]
    assert any("Metrics in the log are no longer read" in event for event in events)
    assert list(tmp_path.iterdir()) == []


def test_points_of_jobs_of_earlier_builds_can_be_read(start: Callable[..., Any], tmp_path: Path) -> None:
    """Points were in the database. Those of a job that still runs are read from its log and files again."""
    executor = ScriptedExecutor()
    with start(executor) as client:
        ended, root = running(client, DEFINITIONS)
        executor.succeed(root)
        client.until(ended)
        live, live_root = running(client, DEFINITIONS)
        executor.print(live_root, f"{live}-master-0", "loss=1\nloss=2\n")
        until(lambda: len(values(client, live)) == 2)
    url = url_for(tmp_path / "data")
    database = f"sqlite:///{tmp_path / 'data' / 'service.db'}"
    engine = postgres_engine(postgres_url(url)) if url else create_engine(database)
    with engine.begin() as old:
        old.execute(text("UPDATE schema_versions SET version = 4 WHERE name = 'jobs'"))
        old.execute(text("DROP INDEX jobs_by_owner"))
        old.execute(text("DROP INDEX jobs_by_turn"))
        for column in ("owner", "accessibility", "attempt", "not_before", "cause"):
            old.execute(text(f"ALTER TABLE jobs DROP COLUMN {column}"))
        for table in ("access_keys", "audit_log"):
            old.execute(text(f"ALTER TABLE {table} DROP COLUMN expires_at"))
        old.execute(text('CREATE TABLE log_cursors (job_id VARCHAR, instance VARCHAR, "offset" BIGINT)'))
        old.execute(text("DROP TABLE latest_metrics"))
        rows = [(ended, "loss", 10.0 + n, n / 2, None, "m-0") for n in range(4)]
        rows += [(ended, "acc", 11.5, 0.5, 7, "m-0"), (live, "loss", 1.0, 1.0, None, f"{live}-master-0")]
        names = ("job_id", "name", "timestamp", "value", "step", "instance")
        old.execute(insert(Metric), [dict(zip(names, row, strict=True)) for row in rows])
    engine.dispose()
    with start(executor) as client:
        assert values(client, ended) == [("loss", 0), ("loss", 0.5), ("acc", 0.5), ("loss", 1), ("loss", 1.5)]
        assert values(client, ended, Name="loss", Order="DESC", PageSize=1, PageNumber=2) == [("loss", 1.0)]
        (acc,) = client.get(f"/trainingjobs/{ended}/metrics", Name="acc")["Metrics"]
        assert (acc["Step"], acc["Instance"], acc["Timestamp"]) == (7, "m-0", "1970-01-01T00:00:11.500Z")
        latest = client.get(f"/trainingjobs/{ended}")["LatestMetrics"]
        assert [(m["Name"], m["Value"], m.get("Step")) for m in latest] == [("acc", 0.5, 7), ("loss", 1.5, None)]
        until(lambda: [value for _, value in values(client, live)] == [1.0, 2.0])
        executor.succeed(live_root)
        client.until(live)


def test_too_many_points_are_refused_and_one_metric_is_given(
    client: Client, executor: ScriptedExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Work, "hold", lambda work, count, what: count <= 3 or raised(work.exceeded(what)))
    job_id, root = running(client, DEFINITIONS)
    executor.print(root, f"{job_id}-master-0", "loss=3 acc: 10%\nloss=2 acc: 20%\n")
    executor.succeed(root)
    client.until(job_id)
    refused = client.call("GET", f"/trainingjobs/{job_id}/metrics")
    assert (refused.status_code, refused.json()["Code"]) == (400, "BudgetExceeded")
    assert values(client, job_id, Name="loss") == [("loss", 3.0), ("loss", 2.0)]


def raised(error: Exception) -> None:
    raise error


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


@pytest.mark.parametrize("first", ["master-0", "worker-0"])
def test_one_name_of_several_instances_means_the_same_everywhere(
    client: Client, executor: ScriptedExecutor, first: str
) -> None:
    """All report loss and print it, in either order; acc is in logs only."""
    body = job_body(
        AlgorithmSpec={"MetricDefinitions": DEFINITIONS, "JobType": "PyTorchJob"},
        ComputeResource={"EcsSpec": "local", "EcsCount": 2},
    )
    job_id = client.create(body)
    client.until(job_id, "Running")
    root = client.info.data_dir / "jobs" / job_id
    ranks = {"master-0": 0, "worker-0": 1}
    for instance in sorted(ranks, key=lambda name: name != first):
        rank = ranks[instance]
        folder = root / "ml" / "output" / "tensorboard"
        with EventWriter(folder / f"rank-{rank}" if rank else folder, source=f"{job_id}-{instance}") as writer:
            for step in (1, 2):
                writer.scalars({"loss": 10.0 * rank + step}, step)
        executor.print(root, f"{job_id}-{instance}", f"loss={100 + rank} acc: {rank}%\n")
        until(lambda: len(values(client, job_id)) >= 4)
    executor.succeed(root)
    client.until(job_id)

    record = client.get(f"/trainingjobs/{job_id}")
    assert {one["Name"]: one["Value"] for one in record["LatestMetrics"]} == {"loss": 2.0, "acc": 0.0}
    points = [MetricPoint.model_validate(one) for one in client.get(f"/trainingjobs/{job_id}/metrics")["Metrics"]]
    assert len(points) == 8
    assert {point.rank for point in points if (point.value or 0.0) in (11.0, 12.0)} == {1}
    loss = [point for point in points if point.name == "loss"]
    assert [one.value for one in step_values(loss)] == [1.0, 2.0]
    assert [point.value for point in preferred_points(points)] in ([1.0, 2.0, 0.0], [0.0, 1.0, 2.0])
    assert {name: curve.values for name, curve in curves_of(points).items()} == {"loss": [1.0, 2.0], "acc": [0.0]}
    for name, expected in (("loss", [1.0, 2.0]), ("acc", [0.0])):
        found = until(partial(client.find, f"/runs/{job_id}/scalars", tag=name), "the run")
        assert found["values"] == expected


def test_what_a_restart_has_replaced_is_no_value_of_the_job(client: Client, executor: ScriptedExecutor) -> None:
    job_id, root = running(client, [])
    folder = root / "ml" / "output" / "tensorboard"
    for attempt, steps in enumerate((range(1, 7), range(5, 11))):
        with EventWriter(folder, source=f"{job_id}-master-0") as writer:
            for step in steps:
                writer.scalars({"loss": attempt}, step)
        until(lambda: client.get(f"/trainingjobs/{job_id}/metrics", PageSize=1)["TotalCount"] == steps[-1])  # noqa: B023
    executor.succeed(root)
    client.until(job_id)
    found = client.get(f"/trainingjobs/{job_id}/metrics")["Metrics"]
    assert [(one["Step"], one["Value"]) for one in found] == [(step, float(step > 4)) for step in range(1, 11)]
    series = until(lambda: client.find(f"/runs/{job_id}/scalars", tag="loss"), "the run")
    assert (series["steps"], series["values"]) == ([*range(1, 11)], [0.0] * 4 + [1.0] * 6)
