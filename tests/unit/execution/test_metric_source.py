"""The metrics of a job: reported and parsed, read while they grow, from a folder that the job can change."""

from __future__ import annotations

import json
import math
import os
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pai_sdk.agent.sandbox import Sandbox
from pai_sdk.execution import metric_source
from pai_sdk.execution.log_times import LogTimes
from pai_sdk.execution.metric_source import MetricSource, MetricValue, RegexPattern
from pai_sdk.run.events import EventWriter
from pai_sdk.run.report import Context, ReportSession

LOSS = RegexPattern("loss", re.compile(r"loss=(\S+)"))
FIRST, SECOND = "job-1-master-0", "job-1-worker-0"


@pytest.fixture
def sandbox(tmp_path: Path) -> Sandbox:
    found = Sandbox(tmp_path / "job-1")
    for folder in (found.logs_dir, found.ml / "output"):
        folder.mkdir(parents=True)
    return found


def source(sandbox: Sandbox, **more: object) -> MetricSource:
    return MetricSource(sandbox, [FIRST, SECOND], times=lambda name: LogTimes(), **more)


def reporting(sandbox: Sandbox, instance: str = FIRST, rank: int = 0) -> ReportSession:
    folder = sandbox.ml / "output"
    return ReportSession(folder, context=Context("job-1", instance, rank, 2, folder=folder))


def shown(values: object) -> list[tuple[str, float, str, int | None]]:
    return [(one.name, one.value, one.instance, one.step) for one in values]


def test_reported_and_parsed_values_are_found_together(sandbox: Sandbox) -> None:
    sandbox.log_file(FIRST).write_text("loss=3\nloss=2\n")
    for rank, instance in enumerate((FIRST, SECOND)):
        with reporting(sandbox, instance, rank) as session:
            for step in (1, 2):
                session.report({"acc": 0.1 * (rank + step)}, step)
    found = list(source(sandbox).values([LOSS]))
    assert sorted(shown(found), key=str) == [
        ("acc", 0.1, FIRST, 1),
        ("acc", 0.2, FIRST, 2),
        ("acc", 0.2, SECOND, 1),
        ("acc", 0.1 * 3, SECOND, 2),
        ("loss", 2.0, FIRST, None),
        ("loss", 3.0, FIRST, None),
    ]
    times = [one.time for one in found if one.name == "acc"]
    assert times == sorted(times)


def test_reading_goes_on_where_it_was(sandbox: Sandbox) -> None:
    """As the collector of a service reads, in pieces, with offsets that outlive it."""
    offsets: dict[str, int] = {}
    seen: list[MetricValue] = []

    def read() -> None:
        one = source(sandbox, offsets=offsets)
        for file in one.sources():
            while (piece := file.read([LOSS], is_final=False)) is not None:
                seen.extend(piece.values)
                offsets[file.key] = file.offset = piece.end
                if not piece.is_more:
                    break

    with reporting(sandbox) as session:
        for step in range(1, 6):
            session.report({"acc": step}, step)
            session.flush()
            with sandbox.log_file(FIRST).open("a") as log:
                log.write(f"loss={step}\nlo")
            read()
            with sandbox.log_file(FIRST).open("a") as log:
                log.write("\r")
    read()
    assert [one.value for one in seen if one.name == "acc"] == [1, 2, 3, 4, 5]
    assert [one.value for one in seen if one.name == "loss"] == [1, 2, 3, 4, 5]


def test_many_events_come_in_pieces(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metric_source, "_MOST_EVENTS", 7)
    with reporting(sandbox) as session:
        for step in range(20):
            session.report({"a": step, "b": step, "c": step}, step)
    pieces = []
    (file,) = [one for one in source(sandbox).sources() if one.key.startswith("tensorboard")]
    while (piece := file.read([], is_final=True)) is not None:
        pieces.append(len(piece.values))
        file.offset = piece.end
    assert sum(pieces) == 60
    assert max(pieces) == 9  # a record is read as a whole


def test_values_that_are_no_numbers_for_json_stay_in_the_file(sandbox: Sandbox) -> None:
    with reporting(sandbox) as session:
        session.report({"nan": math.nan, "inf": math.inf, "x" * 501: 1, "ok": 1e300}, 1)
    assert shown(source(sandbox).values([])) == [("ok", 1e300, FIRST, 1)]


def test_events_of_other_jobs_and_other_writers_are_left_out(sandbox: Sandbox) -> None:
    folder = sandbox.ml / "output" / "tensorboard"
    for name in ("job-0-master-0", "", "job-1-master-00"):
        with EventWriter(folder, source=name) as writer:
            writer.scalars({"foreign": 1}, 1)
    (folder / "rank-1" / "deeper").mkdir(parents=True)
    with EventWriter(folder / "rank-1" / "deeper", source=FIRST) as writer:
        writer.scalars({"too deep": 1}, 1)
    assert shown(source(sandbox).values([])) == []


def test_a_folder_of_this_machine_is_read_in_place_of_the_sandbox(sandbox: Sandbox, tmp_path: Path) -> None:
    with EventWriter(tmp_path / "mounted", source=FIRST) as writer:
        writer.scalars({"a": 1}, 1)
    assert shown(source(sandbox, tensorboard=tmp_path / "mounted").values([])) == [("a", 1.0, FIRST, 1)]


def test_a_job_cannot_lead_the_reader_elsewhere(sandbox: Sandbox, tmp_path: Path) -> None:
    """Links and pipes instead of files: nothing is followed, and nothing is waited for."""
    with EventWriter(tmp_path / "secret", source=FIRST) as writer:
        writer.scalars({"secret": 1}, 1)
    folder = sandbox.ml / "output" / "tensorboard"
    folder.symlink_to(tmp_path / "secret")
    assert shown(source(sandbox).values([])) == []
    folder.unlink()
    folder.mkdir()
    (folder / writer.path.name).symlink_to(writer.path)
    (folder / "rank-1").symlink_to(tmp_path / "secret")
    os.mkfifo(folder / f"events.out.tfevents.0000000001.{FIRST}.1.1")
    os.mkfifo(sandbox.log_file(FIRST))
    assert shown(source(sandbox).values([LOSS])) == []


def test_a_job_with_countless_files_is_read_up_to_a_limit(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metric_source, "_MOST_FILES", 3)
    for number in range(5):
        with EventWriter(sandbox.ml / "output" / "tensorboard", source=FIRST) as writer:
            writer.scalars({"a": number}, 1)
    assert len(shown(source(sandbox).values([]))) == 3


@settings(max_examples=100, deadline=None)
@given(st.lists(st.binary(max_size=200), max_size=4), st.binary(max_size=100))
def test_noise_in_the_files_ends_every_read(pieces: list[bytes], log: bytes) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        sandbox = Sandbox(Path(name))
        sandbox.logs_dir.mkdir()
        folder = sandbox.ml / "output" / "tensorboard"
        folder.mkdir(parents=True)
        (folder / f"events.out.tfevents.1.{FIRST}.1.1").write_bytes(b"\0\0\0\0\1".join(pieces))
        sandbox.log_file(FIRST).write_bytes(log)
        for value in source(sandbox).values([LOSS]):
            assert math.isfinite(value.value)
            json.dumps(value.name)


def test_a_large_file_of_zeros_is_read_in_bounded_steps(sandbox: Sandbox) -> None:
    folder = sandbox.ml / "output" / "tensorboard"
    folder.mkdir()
    path = folder / f"events.out.tfevents.1.{FIRST}.1.1"
    with path.open("wb") as file:
        file.truncate(4 << 20)
    (found,) = [one for one in source(sandbox).sources() if one.key.startswith("tensorboard")]
    piece = found.read([], is_final=True)
    assert (piece.values, piece.is_more) == ([], True)
    assert 0 < piece.end <= 2 << 20
