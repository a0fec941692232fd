"""The metrics of a job: reported and parsed, read while they grow, from a folder that the job can change."""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import re
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pai_sdk._data.logs.times import LogTimes
from pai_sdk._data.run.events.points import EventFolder, JobPoints, metric_points
from pai_sdk._data.run.events.reader import RunReader
from pai_sdk._data.run.events.writer import EventWriter
from pai_sdk._data.run.report.context import Context
from pai_sdk._data.run.report.report_session import ReportSession
from pai_sdk._data.storage.stores.local import LocalStore
from pai_sdk._host.agent.sandbox import Sandbox
from pai_sdk._host.execution import log_metrics
from pai_sdk._host.execution.log_metrics import LogMetrics, RegexPattern, is_refused
from pai_sdk._wire.pai.record import MetricPoint

LOSS = RegexPattern("loss", re.compile(r"loss=(\S+)"))
FIRST, SECOND = "job-1-master-0", "job-1-worker-0"


@pytest.fixture
def sandbox(tmp_path: Path) -> Sandbox:
    return made(tmp_path / "job-1")


def made(root: Path) -> Sandbox:
    found = Sandbox(root)
    for folder in (found.logs_dir, found.state_dir, found.ml / "output"):
        folder.mkdir(parents=True)
    return found


def tensorboard(sandbox: Sandbox) -> Path:
    return sandbox.ml / "output" / "tensorboard"


def reader(sandbox: Sandbox) -> JobPoints:
    return JobPoints(EventFolder(tensorboard(sandbox)), [FIRST, SECOND])


def collect(sandbox: Sandbox, *patterns: RegexPattern, is_final: bool = False, **more: object) -> None:
    """As a process does that has just begun."""
    logs = LogMetrics(sandbox, [FIRST, SECOND], times=lambda name: LogTimes(), **more)
    for _ in logs.read_on(patterns or (LOSS,), is_final=is_final):
        pass


def reporting(sandbox: Sandbox, instance: str = FIRST, rank: int = 0) -> ReportSession:
    folder = sandbox.ml / "output"
    return ReportSession(folder, context=Context("job-1", instance, rank, 2, folder=folder))


def values(sandbox: Sandbox) -> list[MetricPoint]:
    return list(metric_points(reader(sandbox).read_on()))


def shown(sandbox: Sandbox) -> list[tuple[object, ...]]:
    return [(one.name, one.value, one.instance, one.step) for one in values(sandbox)]


def losses(sandbox: Sandbox) -> list[float | None]:
    return [one.value for one in values(sandbox)]


def events_of(sandbox: Sandbox) -> Path:
    (path,) = (tensorboard(sandbox) / "log-metrics").iterdir()
    return path


def run_of(sandbox: Sandbox) -> RunReader:
    store = LocalStore(tensorboard(sandbox))
    return RunReader(store, store.list())


def test_reported_and_parsed_values_are_found_together(sandbox: Sandbox) -> None:
    sandbox.log_file(FIRST).write_text("loss=3\nloss=2\n")
    for rank, instance in enumerate((FIRST, SECOND)):
        with reporting(sandbox, instance, rank) as session:
            for step in (1, 2):
                session.report({"acc": 0.1 * (rank + step)}, step)
    collect(sandbox)
    assert sorted(shown(sandbox), key=str) == [
        ("acc", 0.1, FIRST, 1),
        ("acc", 0.2, FIRST, 2),
        ("acc", 0.2, SECOND, 1),
        ("acc", 0.1 * 3, SECOND, 2),
        ("loss", 2.0, FIRST, None),
        ("loss", 3.0, FIRST, None),
    ]
    times = [one.timestamp or "" for one in values(sandbox) if one.name == "acc"]
    assert times == sorted(times)


def test_the_curves_of_a_run_have_what_was_found_in_its_log(sandbox: Sandbox) -> None:
    """The x of such a curve counts the lines with values. A name that is reported too stays with the report."""
    sandbox.log_file(FIRST).write_text("loss=3 lr=1\nnothing\nloss=2 lr=1\nloss=nan\nloss=1\n")
    collect(sandbox, LOSS, RegexPattern("lr", re.compile("lr=(.)")), is_final=True)
    run = run_of(sandbox)
    assert (run.series("loss").step.tolist(), run.series("loss").value.tolist()) == ([1, 2, 3], [3.0, 2.0, 1.0])
    assert run.series("lr").step.tolist() == [1, 2]
    with reporting(sandbox) as session:
        session.report({"loss": 9}, 7)
    run = run_of(sandbox)
    assert run.series("loss").value.tolist() == [9.0]
    assert run.series("loss (master-0.log)").value.tolist() == [3.0, 2.0, 1.0]


def test_reading_goes_on_where_it_was(sandbox: Sandbox) -> None:
    """As a service that is started anew each time; and one that goes on, beside it."""
    seen: list[MetricPoint] = []
    refresh = reader(sandbox)
    with reporting(sandbox) as session:
        for step in range(1, 6):
            session.report({"acc": step}, step)
            session.flush()
            with sandbox.log_file(FIRST).open("a") as log:
                log.write(f"loss={step}\nlo")
            collect(sandbox)
            seen += metric_points(refresh.read_on())
            with sandbox.log_file(FIRST).open("a") as log:
                log.write("\r")
    collect(sandbox, is_final=True)
    seen += metric_points(refresh.read_on())
    for found in (seen, values(sandbox)):
        assert [one.value for one in found if one.name == "acc"] == [1, 2, 3, 4, 5]
        assert [one.value for one in found if one.name == "loss"] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("kept", [0.0, 0.1, 0.5, 0.9, 0.999, 1.0])
def test_after_a_kill_at_any_place_each_value_is_there_once(sandbox: Sandbox, kept: float) -> None:
    log, expected = sandbox.log_file(FIRST), []
    for batch in range(3):
        with log.open("a") as file:
            for number in range(40):
                file.write(f"line {number} loss={batch * 100 + number}\n")
                expected.append(float(batch * 100 + number))
        collect(sandbox)
        path = events_of(sandbox)
        content = path.read_bytes()
        path.write_bytes(content[: int(len(content) * kept)] + b"\0\1torn"[: batch * 3])
    collect(sandbox, is_final=True)
    collect(sandbox, is_final=True)
    assert losses(sandbox) == expected
    assert run_of(sandbox).series("loss").step.tolist() == list(range(1, 121))
    assert run_of(sandbox).damaged == []


def test_a_file_that_the_job_has_removed_or_overwritten_is_made_again(sandbox: Sandbox) -> None:
    log = sandbox.log_file(FIRST)
    refresh = LogMetrics(sandbox, [FIRST], times=lambda name: LogTimes())

    def look() -> None:
        for _ in refresh.read_on([LOSS], is_final=False):
            pass

    for number, harm in enumerate((Path.unlink, lambda path: path.write_bytes(b"x" * 300), lambda path: None)):
        with log.open("a") as file:
            file.write(f"loss={number}\n")
        look()
        assert losses(sandbox) == [float(n) for n in range(number + 1)]
        harm(events_of(sandbox))
    log.write_text("loss=7\n")  # another log, with less in it than was read
    collect(sandbox)
    assert losses(sandbox) == [7.0]


def _collect_often(root: str) -> None:
    for _ in range(40):
        collect(Sandbox(Path(root)))


@pytest.mark.skipif(sys.platform == "win32", reason="jobs run on Linux and macOS")
def test_several_processes_write_each_value_once(sandbox: Sandbox) -> None:
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_collect_often, args=(str(sandbox.root),)) for _ in range(3)]
    for process in processes:
        process.start()
    with sandbox.log_file(FIRST).open("a", buffering=1) as log:
        for number in range(3000):
            log.write(f"loss={number}\n")
    for process in processes:
        process.join()
        assert process.exitcode == 0
    collect(sandbox)
    assert losses(sandbox) == [float(number) for number in range(3000)]


def test_a_log_without_values_makes_no_file(sandbox: Sandbox) -> None:
    sandbox.log_file(FIRST).write_text("nothing\n" * 1000)
    collect(sandbox, is_final=True)
    collect(sandbox, RegexPattern("OverallProgress", re.compile("(no)"), is_progress=True), is_final=True)
    assert not (tensorboard(sandbox) / "log-metrics").exists()


def test_much_log_without_values_is_not_read_again(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    sandbox.log_file(FIRST).write_text("loss=1\n" + "nothing\n" * 500_000)
    collect(sandbox)
    read: list[int] = []
    texts = RegexPattern.matches
    monkeypatch.setattr(RegexPattern, "matches", lambda one, lines: read.append(len(lines)) or texts(one, lines))
    collect(sandbox, is_final=True)
    assert sum(read) < 500_000 // 4
    assert losses(sandbox) == [1.0]


def test_many_events_come_in_parts(sandbox: Sandbox) -> None:
    with reporting(sandbox) as session:
        for step in range(60_000):
            session.report({"a": step, "b": step}, step)
    points = reader(sandbox)
    points.max_chunks = 1
    parts = list(points.read_on())
    assert len(parts) > 2
    assert sum(len(part.wall) for part in parts) == 120_000


def test_values_that_are_no_numbers_for_json_stay_in_the_file(sandbox: Sandbox) -> None:
    with reporting(sandbox) as session:
        session.report({"nan": math.nan, "inf": math.inf, "x" * 501: 1, "ok": 1e300}, 1)
    assert shown(sandbox) == [("ok", 1e300, FIRST, 1)]


def test_events_of_other_jobs_and_other_writers_are_left_out(sandbox: Sandbox) -> None:
    folder = tensorboard(sandbox)
    for name in ("job-0-master-0", "", "job-1-master-00"):
        with EventWriter(folder, source=name) as writer:
            writer.scalars({"foreign": 1}, 1)
    (folder / "rank-1" / "deeper").mkdir(parents=True)
    with EventWriter(folder / "rank-1" / "deeper", source=FIRST) as writer:
        writer.scalars({"too deep": 1}, 1)
    assert shown(sandbox) == []


def test_a_folder_of_this_machine_is_used_in_place_of_the_sandbox(sandbox: Sandbox, tmp_path: Path) -> None:
    mounted = tmp_path / "mounted"
    with EventWriter(mounted, source=FIRST) as writer:
        writer.scalars({"a": 1}, 1)
    (tmp_path / "link").symlink_to(mounted)
    sandbox.log_file(FIRST).write_text("loss=3\n")
    collect(sandbox, tensorboard=tmp_path / "link")
    points = JobPoints(EventFolder(tmp_path / "link", is_link_allowed=True), [FIRST])
    assert sorted((one.name, one.value) for one in metric_points(points.read_on())) == [("a", 1.0), ("loss", 3.0)]
    assert shown(sandbox) == []


def test_a_job_cannot_lead_the_reader_elsewhere(sandbox: Sandbox, tmp_path: Path) -> None:
    """Links and pipes instead of files: nothing is followed, and nothing is waited for."""
    with EventWriter(tmp_path / "secret", source=FIRST) as writer:
        writer.scalars({"secret": 1}, 1)
    folder = tensorboard(sandbox)
    folder.symlink_to(tmp_path / "secret")
    assert shown(sandbox) == []
    folder.unlink()
    folder.mkdir()
    (folder / writer.path.name).symlink_to(writer.path)
    (folder / "rank-1").symlink_to(tmp_path / "secret")
    os.mkfifo(folder / f"events.out.tfevents.0000000001.{FIRST}.1.1")
    os.mkfifo(sandbox.log_file(FIRST))
    collect(sandbox)
    assert shown(sandbox) == []


@pytest.mark.parametrize("kind", ["folder", "inner folder", "file", "hard link", "pipe", "not writable"])
def test_a_job_cannot_lead_the_writer_elsewhere(sandbox: Sandbox, tmp_path: Path, kind: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "file").write_text("precious")
    own = tensorboard(sandbox) / "log-metrics"
    name = f"events.out.tfevents.0000000001.{FIRST}.0.0"
    (own.parent if kind == "folder" else own if kind == "inner folder" else own / name).parent.mkdir(
        parents=True, exist_ok=True
    )
    if kind == "folder":
        own.parent.symlink_to(elsewhere)
    elif kind == "inner folder":
        own.symlink_to(elsewhere)
    elif kind == "file":
        (own / name).symlink_to(elsewhere / "file")
    elif kind == "hard link":
        os.link(elsewhere / "file", own / name)
    elif kind == "pipe":
        os.mkfifo(own / name)
    else:
        own.chmod(0o500)
    sandbox.log_file(FIRST).write_text("loss=3\n")
    if kind == "not writable" and os.geteuid() == 0:
        return  # nothing is refused to root
    with pytest.raises(OSError) as caught:
        collect(sandbox)
    assert is_refused(caught.value)
    assert [path.name for path in elsewhere.iterdir()] == ["file"]
    assert (elsewhere / "file").read_text() == "precious"


def test_a_full_disk_leaves_no_part_of_a_batch(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    sandbox.log_file(FIRST).write_text("loss=1\n")
    collect(sandbox)
    before = events_of(sandbox).read_bytes()
    with sandbox.log_file(FIRST).open("a") as log:
        log.write("loss=2\n")
    written = iter([5])

    def write(file: int, content: bytes, at: int) -> int:
        for count in written:
            return os.pwrite(file, content[:count], at)
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(log_metrics, "write_at", write)
        with pytest.raises(OSError, match="No space") as caught:
            collect(sandbox)
    assert not is_refused(caught.value)
    assert events_of(sandbox).read_bytes() == before
    collect(sandbox)
    assert losses(sandbox) == [1.0, 2.0]


def test_a_job_that_was_deleted_is_not_made_again(sandbox: Sandbox) -> None:
    sandbox.log_file(FIRST).write_text("loss=3\n")
    sandbox.remove()
    collect(sandbox, is_final=True)
    assert not sandbox.root.exists()


def test_a_job_with_countless_files_is_read_up_to_a_limit(sandbox: Sandbox) -> None:
    for number in range(5):
        with EventWriter(tensorboard(sandbox), source=FIRST) as writer:
            writer.scalars({"a": number}, number)
    points = reader(sandbox)
    points.max_files = 3
    assert len(list(metric_points(points.read_on()))) == 3


@settings(max_examples=100, deadline=None)
@given(st.lists(st.binary(max_size=200), max_size=4), st.binary(max_size=100))
def test_noise_in_the_files_ends_every_read(pieces: list[bytes], log: bytes) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        sandbox = made(Path(name, "job-1"))
        folder = tensorboard(sandbox) / "log-metrics"
        folder.mkdir(parents=True)
        for place in (folder, folder.parent):
            (place / f"events.out.tfevents.1.{FIRST}.1.1").write_bytes(b"\0\0\0\0\1".join(pieces))
        sandbox.log_file(FIRST).write_bytes(log)
        collect(sandbox, is_final=True)
        for value in values(sandbox):
            assert math.isfinite(value.value or 0)
            json.dumps(value.name)


def test_without_numpy_the_same_points_are_found(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    sandbox.log_file(FIRST).write_text("loss=3\nloss=2\n")
    collect(sandbox)
    with reporting(sandbox) as session:
        for step in range(40):
            session.report({"acc": step / 3, "bad": math.nan}, step)
        session.flush()
        fast = values(sandbox)
        monkeypatch.setitem(sys.modules, "numpy", None)
        for module in [name for name in sys.modules if name.startswith("pai_sdk._data.run.") and "reader" in name]:
            monkeypatch.delitem(sys.modules, module)
        monkeypatch.setattr("pai_sdk._data.run.events.files", None, raising=False)
        plain = reader(sandbox)
        assert list(metric_points(plain.read_on())) == fast
        session.report({"acc": 99}, 99)
        session.flush()
        assert [one.value for one in metric_points(plain.read_on())] == [99.0]
    assert len(fast) == 42


def test_a_large_file_of_zeros_is_read_in_bounded_steps(sandbox: Sandbox) -> None:
    tensorboard(sandbox).mkdir()
    with (tensorboard(sandbox) / f"events.out.tfevents.1.{FIRST}.1.1").open("wb") as file:
        file.truncate(40 << 20)
    parts = list(reader(sandbox).read_on())
    assert len(parts) >= 4
    assert not any(len(part.wall) for part in parts)


def test_values_in_long_lines_are_found(sandbox: Sandbox) -> None:
    """JSON with the configuration before the loss. A line whose middle is not searched is counted."""
    lengths = (100, 4000, 4200, 20_000, log_metrics.MAX_LINE + 1, 100_000)
    lines = [f"{'x' * length} loss={length} {'y' * (length // 50)}\n" for length in lengths]
    middle = f"{'x' * 50_000} loss=-1 {'x' * 50_000}\n"
    sandbox.log_file(FIRST).write_text("".join([*lines, middle]))
    logs = LogMetrics(sandbox, [FIRST], times=lambda name: LogTimes())
    for _ in logs.read_on((LOSS,), is_final=True):
        pass
    assert losses(sandbox) == [*map(float, lengths)]
    assert logs.long_lines == 3
