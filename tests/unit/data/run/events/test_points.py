"""Reported metrics, read from the files of a run in a store."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from pai_sdk._data.run.events.points import JobPoints, metric_points
from pai_sdk._data.run.events.sources import preferred_points
from pai_sdk._data.run.events.writer import EventWriter
from pai_sdk._data.run.report.context import Context
from pai_sdk._data.run.report.report_session import ReportSession
from pai_sdk._data.storage.base import Store
from pai_sdk._data.storage.store import LocalStore
from pai_sdk._wire.pai.record import MetricPoint


def report(folder: Path, instance: str, rank: int, **metrics: float) -> None:
    context = Context("job", instance, rank, 2, folder=folder)
    with ReportSession(folder, context=context) as session:
        for step in (1, 2):
            session.report(metrics, step)


def reported_metrics(store: Store, name: str | None = None, since: float = 0.0) -> list[MetricPoint]:
    return list(metric_points(JobPoints(store, since=since).read_on(), name))


def test_the_values_of_all_ranks_are_found_with_their_instance(tmp_path: Path) -> None:
    report(tmp_path, "job-0", 0, loss=0.1, bad=math.nan)
    report(tmp_path, "job-1", 1, loss=0.2)
    store = LocalStore(tmp_path / "tensorboard")
    points = reported_metrics(store)
    assert [(p.name, p.value, p.step, p.instance) for p in points] == [
        ("loss", 0.1, 1, "job-0"),
        ("loss", 0.1, 2, "job-0"),
        ("loss", 0.2, 1, "job-1"),
        ("loss", 0.2, 2, "job-1"),
    ]
    assert reported_metrics(store, name="other") == []
    assert reported_metrics(store, since=2e9) == []


def test_a_file_that_is_cut_off_is_read_as_far_as_it_has_come(tmp_path: Path) -> None:
    with EventWriter(tmp_path, source="host") as writer:
        for step in range(5):
            writer.scalars({"a": step}, step)
    writer.path.write_bytes(writer.path.read_bytes()[:-5])
    (tmp_path / "notes.txt").write_text("not an event file")
    assert [point.step for point in reported_metrics(LocalStore(tmp_path))] == [0, 1, 2, 3]


def test_what_a_restart_has_replaced_is_left_out(tmp_path: Path) -> None:
    """By the rule of `RunReader`, in an install without numpy as well."""
    for attempt, steps in enumerate((range(1, 7), range(5, 11), [3])):
        with EventWriter(tmp_path, source="job-0") as writer:
            for step in steps:
                writer.scalars({"loss": attempt}, step)
    points = reported_metrics(LocalStore(tmp_path))
    expected = {step: 2.0 if step == 3 else float(step > 4) for step in range(1, 11)}
    assert {point.step: point.value for point in points} == expected
    assert len(points) == 10


def test_two_processes_of_one_instance_are_two_curves(tmp_path: Path) -> None:
    for rank in (0, 1):
        report(tmp_path, "job-worker-0", rank, loss=float(rank))
    points = reported_metrics(LocalStore(tmp_path / "tensorboard"))
    assert [(one.value, one.rank) for one in points] == [(0.0, None)] * 2 + [(1.0, 1)] * 2
    assert [one.value for one in preferred_points(points)] == [0.0, 0.0]


@pytest.mark.parametrize(
    ("sources", "first"),
    [
        ([("t-worker-0", None, 1), ("t-master-0", None, 1)], 1),
        ([("t-worker-10", None, 1), ("t-worker-9", None, 1)], 1),
        ([("t-master-0", None, None), ("t-worker-0", None, 1)], 1),
        ([("t-worker-0", 1, 1), ("t-worker-0", None, 1)], 1),
        ([("t-ps-0", None, 1), ("t-worker-3", None, 1), ("t-chief-0", None, 1)], 2),
        ([("node-a", None, 1), ("t-worker-0", None, 1)], 1),
        ([(None, None, 1), (None, None, None)], 0),
    ],
)
def test_one_of_several_sources_has_the_plain_name(
    sources: list[tuple[str | None, int | None, int | None]], first: int
) -> None:
    points = [
        MetricPoint(name="loss", value=number, instance=instance, rank=rank, step=step)
        for number, (instance, rank, step) in enumerate(sources)
    ]
    for some in (points, points[::-1]):
        assert [point.value for point in preferred_points(some)] == [first]
