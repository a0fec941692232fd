"""RunManager: what a user sees of many runs while they grow."""

from __future__ import annotations

import os
import shutil
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
from tensorboard.compat.proto.event_pb2 import Event, SessionLog

pytest.importorskip("numpy")

from pai_sdk import RunManager, RunStore
from pai_sdk._data.run.events.writer import EventWriter
from pai_sdk._data.run.report.context import Context
from pai_sdk._data.run.report.report_session import ReportSession, StopTraining
from pai_sdk._data.run.report.session import report
from pai_sdk._data.run.watch.records import Change, RunBrief, RunRecord
from pai_sdk._data.run.watch.refresh import ReadPace, RunRefresh
from pai_sdk._data.storage.oss.client import OssClient
from pai_sdk.errors import CheckpointError, InvalidInputError, RunNotFoundError
from tests.support.event_files import event, frame, simple, write_events
from tests.support.messages import refused
from tests.support.waiting import PATIENCE_S, quickest, until
from tests.trials import watch
from tests.trials.watch import damaged_file
from tests.unit.data.run.events.event_runs import append, write_run
from tests.unit.data.run.store.switched_store import SwitchedStore
from tests.unit.data.storage.conftest import BUCKET, client, oss, retry

__all__ = ["client", "oss", "retry"]


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[RunManager]:
    """Of a folder, without passes of its own."""
    with RunManager(tmp_path / "runs", refresh_s=0) as made:
        made.wait_until_loaded()  # otherwise the first pass could still see what a test writes
        yield made


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "runs"


def ids(manager: RunManager, filter: str = "", **asked: object) -> list[str]:
    return [run.id for run in manager.runs(filter, **{"sort": "id", **asked}).runs]  # type: ignore[arg-type]


def brief(manager: RunManager, run_id: str) -> RunBrief:
    return manager.run(run_id).brief


def last(manager: RunManager, run_id: str, tag: str = "loss") -> float:
    point = manager.run(run_id).read_last(tag)
    assert isinstance(point, tuple)
    return point[2]


# ---- what it finds ------------------------------------------------------------------------------------------


def test_runs_below_a_folder_are_found_and_read(manager: RunManager, root: Path) -> None:
    write_run(root / "slow", {"loss": [1.0, 0.9, 0.8]})
    write_run(root / "group" / "fast" / "tensorboard", {"loss": [1.0, 0.5, 0.25], "acc": [0.5]})
    assert manager.refresh().status == "DONE"
    page = manager.runs(sort="metrics.loss")
    assert [run.id for run in page.runs] == ["group/fast", "slow"]
    fast = page.runs[0]
    summary = fast.tags["loss"]
    assert (summary.count, summary.min, summary.max, summary.last) == (3, 0.25, 1.0, (summary.last.wall, 2, 0.25))
    assert fast.status == "Running"
    assert fast.uri == (root / "group" / "fast").as_uri()
    assert fast.created_at is not None
    assert fast.updated_at is not None
    assert abs(fast.created_at - time.time()) < 100
    run = manager.run("group/fast")
    assert run.scalars("loss").value.tolist() == [1.0, 0.5, 0.25]
    assert run.read_last().keys() == {"loss", "acc"}
    assert repr(run) == "<WatchedRun group/fast Running, 2 tags>"
    assert repr(manager) == "<RunManager DONE, 2 runs>"


def test_what_is_not_there_is_an_error_with_a_hint(manager: RunManager, root: Path) -> None:
    with refused(RunNotFoundError):
        manager.run("slow")
    write_run(root / "slow", {"loss": [1.0]})
    manager.refresh()
    with refused(RunNotFoundError) as caught:
        manager.run("slov")
    assert caught.value.run_id == "slov"
    with refused(RunNotFoundError):
        manager.run("slow").scalars("los")


def test_a_folder_that_is_one_run(tmp_path: Path) -> None:
    write_run(tmp_path / "tensorboard", {"loss": [0.5]})
    with RunManager(tmp_path, refresh_s=0) as manager:
        manager.refresh()
        assert ids(manager) == ["."]
        assert brief(manager, ".").uri == tmp_path.as_uri()


def test_it_follows_what_is_appended(manager: RunManager, root: Path) -> None:
    file = write_run(root / "a", {"loss": [1.0, 0.9]})
    manager.refresh()
    before = brief(manager, "a")
    append(file, {"loss": [0.8], "acc": [0.1]}, first=2)
    manager.refresh()
    after = brief(manager, "a")
    assert last(manager, "a") == 0.8
    assert (set(after.tags), after.tags["loss"].count) == ({"loss", "acc"}, 3)
    assert before.version < after.version == manager.state.version
    assert before.tags["loss"].count == 2  # what was given does not change
    manager.refresh()
    assert manager.state.version == after.version  # nothing new is no change


def test_a_query_starts_a_manager_that_was_not_started(tmp_path: Path) -> None:
    write_run(tmp_path / "runs/a", {"loss": [0.5]})
    manager = RunManager(tmp_path / "runs", refresh_s=0)
    try:
        assert ids(manager) == ["a"]
    finally:
        manager.close()
    other = RunManager(tmp_path / "runs", refresh_s=0)
    try:
        assert other.run("a").id == "a"
    finally:
        other.close()


def test_it_watches_in_the_background(tmp_path: Path) -> None:
    file = write_run(tmp_path / "a", {"loss": [1.0]})
    with RunManager(tmp_path, refresh_s=0.01) as manager:
        assert manager.wait_until_loaded(60).status in ("DONE", "LOADING")
        append(file, {"loss": [0.5]}, first=1)
        until(lambda: last(manager, "a") == 0.5)
        write_run(tmp_path / "b", {"loss": [2.0]})
        until(lambda: ids(manager) == ["a", "b"])
    assert ids(manager) == ["a", "b"]  # what is known stays


def test_a_run_whose_files_are_removed_is_gone(manager: RunManager, root: Path) -> None:
    file = write_run(root / "a", {"loss": [1.0]})
    write_run(root / "b", {"loss": [1.0]})
    manager.refresh()
    file.unlink()
    manager.refresh()
    assert ids(manager) == ["b"]
    with pytest.raises(RunNotFoundError):
        manager.run("a")


def test_several_prefixes_have_ids_of_their_own(tmp_path: Path) -> None:
    write_run(tmp_path / "one" / "a", {"loss": [1.0]})
    write_run(tmp_path / "two" / "a", {"loss": [2.0]})
    write_run(tmp_path / "two" / "b", {"loss": [3.0]})
    with RunManager(tmp_path / "one", str(tmp_path / "two"), refresh_s=0) as manager:
        manager.refresh()
        assert ids(manager) == ["a", "a@2", "b"]
        assert [last(manager, run) for run in ids(manager)] == [1.0, 2.0, 3.0]


def test_a_run_store_is_watched_where_it_keeps_runs(tmp_path: Path) -> None:
    for prefix in (tmp_path / "my team", f"memory://{uuid.uuid4().hex}/team"):
        store = RunStore.create(prefix)
        with store.local_dir("train-1") as folder:
            write_run(Path(folder, "tensorboard"), {"loss": [0.5]})
            store.sync("train-1", folder)
            with RunManager(store, refresh_s=0) as manager:
                manager.refresh()
                assert ids(manager) == ["train-1"]
                assert brief(manager, "train-1").uri == store.get_run_path("train-1")
                write_run(Path(folder, "tensorboard"), {"loss": [0.25]}, first=1)
                store.sync("train-1", folder)
                manager.refresh()
                assert last(manager, "train-1") == 0.25


def test_runs_in_oss(client: OssClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session = SimpleNamespace(files=lambda: client)
    monkeypatch.setattr("pai_sdk._data.storage.store.session_or_default", lambda given: given or session)
    store = RunStore.create(f"oss://{BUCKET}/team")
    for name in ("a", "b"):
        write_run(tmp_path / name / "tensorboard", {"loss": [0.5, 0.25]})
        store.sync(name, tmp_path / name)
    with RunManager(store, f"oss://{BUCKET}/team/runs/b", refresh_s=0) as manager:
        assert manager.refresh().error == ""
        assert ids(manager) == [".", "a", "b"]
        assert manager.run("b").scalars("loss").value.tolist() == [0.5, 0.25]


# ---- status and records -------------------------------------------------------------------------------------


def test_the_status_without_records_is_that_of_the_files(
    manager: RunManager, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = write_run(root / "old", {"loss": [1.0]})
    os.utime(old, (1_700_000_000, 1_700_000_000))
    write_run(root / "new", {"loss": [1.0]})
    manager.refresh()
    assert [brief(manager, run).status for run in ("old", "new")] == ["Unknown", "Running"]
    assert ids(manager, "status=Running") == ["new"]
    version = manager.state.version
    now = time.time()
    clock = SimpleNamespace(monotonic=time.monotonic, time=lambda: now + 121)
    for module in ("refresh", "run_data"):
        monkeypatch.setattr(f"pai_sdk._data.run.watch.{module}.time", clock)
    manager.refresh()
    assert brief(manager, "new").status == "Unknown"  # without a change of its files
    assert manager.state.version == version + 1


def ended_with(root: Path, error: BaseException | None) -> None:
    with suppress(type(error) if error else ValueError), ReportSession(root / "run") as session:
        session.report({"loss": 0.5}, 3)
        if error is not None:
            raise error


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (None, "Succeed"),
        (ValueError("no"), "Failed"),
        (StopTraining(), "Terminated"),
        (KeyboardInterrupt(), "Terminated"),
        (SystemExit(0), "Succeed"),
        (SystemExit(3), "Failed"),
    ],
    ids=repr,
)
def test_a_session_that_has_ended_is_not_running(
    manager: RunManager, root: Path, error: BaseException | None, status: str
) -> None:
    before = time.time()
    ended_with(root, error)
    manager.refresh()
    run = brief(manager, "run")
    assert (run.status, [*run.tags], run.hparams) == (status, ["loss"], {})
    assert before <= (run.ended_at or 0) <= time.time()
    with ReportSession(root / "run") as session:  # started again
        session.report({"loss": 0.25}, 4)
        session.flush()
        manager.refresh()
        assert (brief(manager, "run").status, brief(manager, "run").ended_at) == ("Running", None)
    manager.refresh()
    assert brief(manager, "run").status == "Succeed"


def test_a_session_that_is_closed_has_ended(manager: RunManager, root: Path) -> None:
    for name in ("closed", "killed", "empty"):
        session = ReportSession(root / name)
        if name != "empty":
            session.report({"loss": 0.5})
            session.flush()
        if name != "killed":
            session.close()
            session.close()
    broken = ReportSession(root / "broken")
    (root / "broken").mkdir()
    (root / "broken" / "checkpoints").write_text("no folder")
    broken.report({"loss": 0.5}, checkpoint=root / "killed")
    with pytest.raises(CheckpointError):
        broken.close()
    manager.refresh()
    found = {run: brief(manager, run).status for run in ids(manager)}
    assert found == {"broken": "Failed", "closed": "Succeed", "killed": "Running"}


def test_a_block_without_its_session_ends_the_run(manager: RunManager, root: Path) -> None:
    session = ReportSession(root / "run")
    with session.bound():
        report({"loss": 0.5})
    manager.refresh()
    assert brief(manager, "run").status == "Succeed"
    with suppress(ValueError), session.bound():
        report({"loss": 0.25})
        session.flush()
        manager.refresh()
        assert brief(manager, "run").status == "Running"
        raise ValueError
    manager.refresh()
    assert brief(manager, "run").status == "Failed"
    with ReportSession(root / "other") as session:
        with session.bound():
            report({"loss": 0.25})
        session.flush()
        manager.refresh()
        assert brief(manager, "other").status == "Running"


def test_the_end_of_one_process_is_not_that_of_all(manager: RunManager, root: Path) -> None:
    ended_with(root, None)
    with ReportSession(root / "run", context=Context(rank=1, folder=root / "run")) as other:
        other.report({"loss": 0.5})
        other.flush()
        manager.refresh()
        assert brief(manager, "run").status == "Running"
    manager.refresh()
    assert brief(manager, "run").status == "Succeed"


def test_what_a_log_says_afterwards_does_not_go_on_with_a_run(manager: RunManager, root: Path) -> None:
    ended_with(root, None)
    with EventWriter(root / "run" / "tensorboard" / "log-metrics", source="train1-worker-0") as writer:
        writer.scalars({"acc": 0.5}, 1)
    manager.refresh()
    assert brief(manager, "run").status == "Succeed"


def test_the_end_that_tensorflow_writes_says_no_more(manager: RunManager, root: Path) -> None:
    stopped = Event(wall_time=2000.0, session_log=SessionLog(status=SessionLog.STOP))
    begun = Event(wall_time=900.0, session_log=SessionLog(status=SessionLog.START))
    records = [frame(begun.SerializeToString()), event(1, simple("loss", 0.5)), frame(stopped.SerializeToString())]
    write_events(root / "old" / "events.out.tfevents.1", *records)
    manager.refresh()
    run = brief(manager, "old")
    assert (run.status, run.ended_at, [*run.tags]) == ("Unknown", 2000.0, ["loss"])


def test_runs_have_the_names_of_their_folders_and_jobs(tmp_path: Path) -> None:
    for name in ("a/x", "b/x", "b/train1", "b/train1/inner"):
        write_run(tmp_path / name / "tensorboard", {"loss": [0.5]})
    records = [RunRecord("train1", name="first")]
    with RunManager(tmp_path / "a/x", tmp_path / "a/x/tensorboard", tmp_path / "b",
                    records=lambda: records, refresh_s=0) as manager:  # fmt: skip
        manager.refresh()
        found = {run.id: run.name for run in manager.runs(sort="id").runs}
    assert found == {".": "x", ".@2": "x", "train1": "first", "train1/inner": "first/inner", "x": "x"}


def test_records_say_what_files_do_not(tmp_path: Path) -> None:
    write_run(tmp_path / "train-1" / "tensorboard", {"loss": [1.0]}, hparams={"lr": 0.1})
    write_run(tmp_path / "train-1" / "tensorboard" / "validation", {"loss": [2.0]})
    write_run(tmp_path / "other", {"loss": [3.0]})
    records = [
        RunRecord(
            "train-1",
            status="Succeed",
            name="first",
            labels={"team": "nlp"},
            hparams={"lr": "0.2", "seed": "7", "optim": {"name": "adam"}},
            created_at=1.0,
            ended_at=2.0,
            owner="mia",
            started_at=1.5,
        ),
        RunRecord("train-2", status="Creating", name="second", created_at=3.0),
    ]
    with RunManager(tmp_path, records=lambda: records, refresh_s=0) as manager:
        manager.refresh()
        run = brief(manager, "train-1")
        assert (run.status, run.name, run.created_at, run.ended_at) == ("Succeed", "first", 1.0, 2.0)
        assert (run.owner, run.duration_s, brief(manager, "train-2").duration_s) == ("mia", 0.5, None)
        assert run.hparams == {"lr": 0.1, "seed": "7", "optim.name": "adam"}  # what was really used comes first
        # A folder in a run belongs to its job; a job without files is a run, too.
        assert brief(manager, "train-1/tensorboard/validation").status == "Succeed"
        assert (brief(manager, "train-2").status, brief(manager, "train-2").tags) == ("Creating", {})
        assert brief(manager, "other").status == "Running"
        assert ids(manager, labels={"team": "nlp"}) == ["train-1", "train-1/tensorboard/validation"]
        assert manager.run("train-2").tags() == {}
        version = manager.state.version
        manager.refresh()
        assert manager.state.version == version
        records[1] = RunRecord("train-2", status="Running", name="second")
        manager.refresh()
        assert brief(manager, "train-2").status == "Running"
        del records[1]
        manager.refresh()
        assert ids(manager, "id~train-2") == []


def test_the_folder_of_a_record_is_watched(tmp_path: Path) -> None:
    """Below a prefix or elsewhere: the run has the id of its job."""
    write_run(tmp_path / "runs" / "x" / "y" / "tensorboard", {"loss": [1.0]})
    write_run(tmp_path / "runs" / "plain", {"loss": [1.5]})
    write_run(tmp_path / "elsewhere" / "tensorboard", {"loss": [2.0]})
    records = [RunRecord("early", status="Running", uri=str(tmp_path / "nothing" / "tensorboard"))]
    with RunManager(tmp_path / "runs", records=lambda: records, refresh_s=0) as manager:
        manager.refresh()
        assert ids(manager) == ["early", "plain", "x/y"]
        records += [
            RunRecord(
                "below", status="Succeed", uri=(tmp_path / "runs" / "x" / "y" / "tensorboard").as_uri() + "/"
            ),
            RunRecord("beside", status="Failed", uri=str(tmp_path / "elsewhere" / "tensorboard")),
        ]
        manager.refresh()
        assert ids(manager) == ["below", "beside", "early", "plain"]
        assert [last(manager, run) for run in ("below", "beside")] == [1.0, 2.0]
        assert manager.run("below").trace_uri == (tmp_path / "runs" / "x" / "y" / "trace").as_uri()
        assert manager.run("beside").trace_uri == (tmp_path / "elsewhere" / "trace").as_uri()
        assert [brief(manager, run).status for run in ("below", "beside")] == ["Succeed", "Failed"]
        write_run(tmp_path / "nothing" / "tensorboard", {"loss": [3.0]})
        manager.refresh()
        assert last(manager, "early") == 3.0
        del records[1:]
        manager.refresh()
        assert ids(manager) == ["early", "plain", "x/y"]


def test_records_that_cannot_be_had_leave_the_last_ones(tmp_path: Path) -> None:
    write_run(tmp_path / "a", {"loss": [1.0]})
    answers: list[object] = [[RunRecord("a", status="Stopped")], OSError("no database"), []]

    def records() -> list[RunRecord]:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer  # type: ignore[return-value]

    with RunManager(tmp_path, records=records, refresh_s=0) as manager:
        # The first pass comes with `start`; the next ones are asked for.
        manager.wait_until_loaded(60)
        assert brief(manager, "a").status == "Stopped"
        state = manager.refresh()
        assert (state.status, state.error) == (
            "FAILED",
            "the records of runs cannot be read: OSError: no database",
        )
        assert brief(manager, "a").status == "Stopped"
        assert manager.refresh().status == "DONE"
        assert brief(manager, "a").status == "Running"


# ---- questions ----------------------------------------------------------------------------------------------


def test_compare(manager: RunManager, root: Path) -> None:
    for number in range(6):
        values = [number + step / 1000 for step in range(1000)]
        write_run(root / f"run-{number}", {"loss": values}, hparams={"lr": 0.1 * (number // 3), "seed": number})
    write_run(root / "other", {"acc": [1.0]})
    manager.refresh()
    every = manager.compare("", "loss", buckets=10)
    assert sorted(curve.name for curve in every.curves) == [f"run-{number}" for number in range(6)]
    assert (every.points, every.is_exact) == (6000, False)
    two = manager.compare(["run-4", "run-1", "other"], "loss", start=10, end=12)
    assert [curve.name for curve in two.curves] == ["run-4", "run-1"]
    assert two.is_exact
    assert two.curves[1].value.tolist() == [1.01, 1.011, 1.012]
    one = manager.compare("run-2", "loss", x="relative_time", smooth=0.5)
    assert [curve.name for curve in one.curves] == ["run-2"]
    with refused(InvalidInputError, "runs"):
        manager.compare(["x"], "loss")
    with refused(InvalidInputError, "buckets"):
        manager.compare("", "loss", buckets=0)
    assert manager.compare("", "missing").curves == ()


def test_a_table_of_runs(manager: RunManager, root: Path) -> None:
    pytest.importorskip("pandas")
    write_run(root / "a", {"loss": [1.0, 0.5], "acc": [0.1]})
    write_run(root / "b", {"loss": [2.0]})
    assert manager.to_pandas().empty
    manager.refresh()
    frame = manager.to_pandas()
    assert frame.index.tolist() == ["a", "b"] or frame.index.tolist() == ["b", "a"]
    assert frame.loc["a", "metrics.loss"] == 0.5
    assert frame.loc["a", "metrics.loss.max"] == 1.0
    assert frame["metrics.acc"].isna().tolist().count(True) == 1
    assert str(frame["created"].dtype).startswith("datetime64")
    assert "metrics.acc" not in manager.to_pandas(["b"], tags=["loss"])
    points = manager.run("a").to_pandas()
    assert points.columns.tolist() == ["tag", "wall", "step", "value"]
    assert points[points.tag == "loss"].value.tolist() == [1.0, 0.5]


def test_changes_are_given_to_subscribers(manager: RunManager, root: Path) -> None:
    write_run(root / "a", {"loss": [1.0]})
    manager.refresh()
    with manager.subscribe() as changes:
        assert changes.get(0) is None
        write_run(root / "b", {"loss": [1.0]})
        manager.refresh()
        change = changes.get(60)
        assert change is not None
        assert change.run_ids == ("b",)
        manager.delete("a")
        assert changes.get(60) == Change((), change.version + 1, ("a",))
        version = changes.version
    write_run(root / "c", {"loss": [1.0]})
    manager.refresh()
    assert manager.subscribe(since=version).get(0).run_ids == ("c",)  # type: ignore[union-attr]


def test_what_else_is_in_the_files(manager: RunManager, root: Path) -> None:
    with EventWriter(root / "a") as writer:
        writer.text("note", "hello", step=1)
        writer.histogram("weights", [1.0, 2.0, 2.0], step=2)
        writer.tensor("matrix", [1.0, 2.0, 3.0, 4.0], [2, 2], step=3)
        writer.scalars({"loss": 0.5}, step=4)
    manager.refresh()
    run = manager.run("a")
    assert {tag: summary.kind for tag, summary in run.tags().items()} == {
        "note": "text",
        "weights": "histogram",
        "matrix": "tensor",
        "loss": "scalar",
    }
    assert [(one.step, one.value) for one in run.text("note")] == [(1, "hello")]
    assert run.histograms("weights")[0].value[:, 2].sum() == 3
    assert run.tensors("matrix")[0].value.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert run.read_last().keys() == {"loss"}
    for wrong in (lambda: run.text("loss"), lambda: run.scalars("note"), lambda: run.tensors("weights")):
        with pytest.raises(RunNotFoundError):
            wrong()


# ---- files over time ----------------------------------------------------------------------------------------


def test_files_are_read_on_from_where_the_reading_ended(tmp_path: Path) -> None:
    """MGR-15: each file from its offset; a file that is removed makes the run be read again."""
    first = write_run(tmp_path / "a", {"loss": [float(step) for step in range(1000)]})
    store = SwitchedStore(tmp_path)
    with RunManager(store, refresh_s=0) as manager:
        manager.refresh()
        read = store.read_bytes
        assert read >= first.stat().st_size
        append(first, {"loss": [0.5]}, first=1000)
        manager.refresh()
        assert store.read_bytes - read < 1000
        second = write_run(tmp_path / "a", {"loss": [7.0]}, first=1001)
        manager.refresh()
        assert manager.run("a").scalars("loss").value[-2:].tolist() == [0.5, 7.0]
        second.unlink()
        manager.refresh()
        assert manager.run("a").scalars("loss").value[-2:].tolist() == [999.0, 0.5]
        assert brief(manager, "a").tags["loss"].count == 1001


@pytest.mark.parametrize(
    ("name", "is_read"),
    [
        ("events.out.tfevents.1790000000.host.1.0", True),
        ("events.out.tfevents.1790000000.host", True),
        ("x.out.events.summary.1790000000.host_MS", True),
        ("x.out.events.summary.1790000000.host_lineage", False),
        ("summary.txt", False),
    ],
)
def test_event_files_are_known_by_their_names(manager: RunManager, root: Path, name: str, is_read: bool) -> None:
    """MGR-15: the patterns of TensorBoard and MindSpore."""
    (root / "a").mkdir(parents=True)
    (root / "a" / name).touch()
    manager.refresh()
    assert ids(manager) == (["a"] if is_read else [])


def test_a_restart_replaces_what_it_writes_again(manager: RunManager, root: Path) -> None:
    """MGR-17, as the manager shows it."""
    old = write_run(root / "a", {"loss": [0.0, 1.0, 2.0, 3.0]})
    old.rename(old.with_name("events.out.tfevents.1790000000.host.1.0"))
    manager.refresh()
    assert brief(manager, "a").tags["loss"].count == 4
    new = write_run(root / "a", {"loss": [20.0, 30.0]}, first=2)
    new.rename(new.with_name("events.out.tfevents.1790000500.host.1.0"))
    manager.refresh()
    summary = brief(manager, "a").tags["loss"]
    assert (summary.count, summary.max, summary.last) == (4, 30.0, (summary.last.wall, 3, 30.0))
    assert manager.run("a").scalars("loss").value.tolist() == [0.0, 1.0, 20.0, 30.0]


def test_damage_is_counted_and_passed_over(manager: RunManager, root: Path) -> None:
    """MGR-B9: the original stopped at the first damaged byte for ever."""
    manager.refresh()  # its first pass, in a thread, could read the file before it is damaged
    file = write_run(root / "a", {"loss": [1.0, 2.0, 3.0]})
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 255
    file.write_bytes(bytes(content))
    append(file, {"loss": [4.0]}, first=3)
    manager.refresh()
    damaged = brief(manager, "a")
    assert (damaged.damaged, damaged.status, last(manager, "a")) == (1, "Running", 4.0)
    assert ids(manager, "damaged>0") == ["a"]


def test_a_hundred_thousand_points_are_read_in_seconds(manager: RunManager, root: Path) -> None:
    """MGR-B2: the original read 2,200 to 2,900 points a second, each in a task of its own."""
    with EventWriter(root / "a") as writer:
        for step in range(10_000):
            writer.scalars({f"tag-{number}": step / 3 for number in range(10)}, step)

    def seconds() -> float:
        begun = time.perf_counter()
        with RunManager(root, refresh_s=0) as other:
            other.refresh()
            assert other.runs().runs[0].tags["tag-3"].count == 10_000
        return time.perf_counter() - begun

    assert quickest(seconds, enough_s=5) < 5  # 20,000 points a second; it takes a fraction of it


# ---- failures, bugs of the original -------------------------------------------------------------------------


def test_a_scan_that_fails_is_a_state_and_the_next_one_goes_on(tmp_path: Path) -> None:
    """MGR-B1: any exception during a scan left the original in LOADING, and every later reload was ignored."""
    write_run(tmp_path / "good" / "a", {"loss": [1.0]})
    write_run(tmp_path / "bad" / "b", {"loss": [2.0]})
    store = SwitchedStore(tmp_path / "bad")
    with RunManager(tmp_path / "good", store, refresh_s=0) as manager:
        manager.refresh()
        assert ids(manager) == ["a", "b"]
        for error in (OSError("no network"), RuntimeError("a bug"), MemoryError()):
            store.list_error = error
            state = manager.refresh()
            assert state.status == "FAILED"
            assert state.error.startswith(f"test://bad/: {type(error).__name__}: {error}")
            assert ids(manager) == ["a", "b"]  # what is known stays
        store.list_error = None
        state = manager.refresh()
        assert (state.status, state.error) == ("DONE", "")


def test_a_bug_in_a_pass_does_not_wedge_the_manager(
    manager: RunManager, root: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """MGR-B1, wherever it comes from."""
    write_run(root / "a", {"loss": [1.0]})
    with monkeypatch.context() as patch:
        patch.setattr("pai_sdk._data.run.watch.refresh.RunRefresh._read", lambda *args: 1 / 0)
        state = manager.refresh()
        assert (state.status, state.error) == ("FAILED", "ZeroDivisionError: division by zero")
        assert "runs cannot be refreshed" in caplog.text
    assert manager.refresh().status == "DONE"
    assert last(manager, "a") == 1.0


def test_a_run_that_cannot_be_read_is_a_state_of_that_run(tmp_path: Path) -> None:
    """MGR-B7: such an exception vanished in the original, and the job stayed CACHING."""
    file = write_run(tmp_path / "bad", {"loss": [1.0]})
    write_run(tmp_path / "good", {"loss": [2.0]})
    store = SwitchedStore(tmp_path)
    store.read_errors[f"bad/{file.name}"] = RuntimeError("cannot be decoded")
    with RunManager(store, refresh_s=0) as manager:
        assert manager.refresh().status == "DONE"
        bad = brief(manager, "bad")
        assert (bad.status, bad.error, bad.is_loading) == ("Failed", "RuntimeError: cannot be decoded", False)
        assert ids(manager, 'error!=""') == ["bad"]
        assert last(manager, "good") == 2.0
        # MGR-B10: the original tried again only when the file had grown.
        store.read_errors.clear()
        manager.refresh()
        assert (brief(manager, "bad").error, last(manager, "bad")) == ("", 1.0)


def test_what_failed_is_tried_again_in_the_background(tmp_path: Path) -> None:
    """MGR-B10, with a pause that grows."""
    file = write_run(tmp_path / "bad", {"loss": [1.0]})
    store = SwitchedStore(tmp_path)
    store.read_errors[f"bad/{file.name}"] = OSError("no network")
    with RunManager(store, refresh_s=0.005) as manager:
        manager.wait_until_loaded(60)
        assert brief(manager, "bad").error == "OSError: no network"
        reads, begun = store.calls["read"], time.monotonic()
        time.sleep(0.1)
        assert store.calls["read"] <= reads + 1 + (time.monotonic() - begun)  # the shortest pause is a second
        store.read_errors.clear()
        until(lambda: brief(manager, "bad").error == "")


def test_a_deleted_run_stays_deleted_until_its_files_change(manager: RunManager, root: Path) -> None:
    """MGR-B5: it came back at the next reload."""
    file = write_run(root / "a", {"loss": [1.0]})
    write_run(root / "b", {"loss": [1.0]})
    manager.refresh()
    manager.delete("a")
    assert ids(manager) == ["b"]
    for _ in range(3):
        manager.refresh()
        assert ids(manager) == ["b"]
    assert file.exists()
    append(file, {"loss": [0.5]}, first=1)
    manager.refresh()
    assert ids(manager) == ["a", "b"]
    assert manager.run("a").scalars("loss").value.tolist() == [1.0, 0.5]
    with pytest.raises(RunNotFoundError):
        manager.delete("c")


def test_a_run_of_a_record_stays_deleted(tmp_path: Path) -> None:
    """MGR-B5."""
    records = [RunRecord("train-1", status="Failed")]
    with RunManager(tmp_path, records=lambda: list(records), refresh_s=0) as manager:
        manager.refresh()
        manager.delete("train-1")
        records[0] = RunRecord("train-1", status="Failed", name="renamed")
        manager.refresh()
        assert ids(manager) == []
        write_run(tmp_path / "train-1", {"loss": [1.0]})
        manager.refresh()
        assert ids(manager) == ["train-1"]


def test_questions_do_not_wait_for_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """MGR-B13: the original read the disk under the lock of the pool. Here what is known is answered."""
    file = write_run(tmp_path / "a", {"loss": [1.0]})
    store = SwitchedStore(tmp_path)
    reading, go_on = threading.Event(), threading.Event()
    read = store.read

    def slow_read(*args: object, **kwargs: object) -> object:
        reading.set()
        assert go_on.wait(60)
        return read(*args, **kwargs)  # type: ignore[arg-type]

    with RunManager(store, refresh_s=0) as manager:
        manager.wait_until_loaded(60)
        assert len(manager.run("a").scalars("loss")) == 1
        monkeypatch.setattr(store, "read", slow_read)
        append(file, {"loss": [0.5]}, first=1)
        write_run(tmp_path / "b", {"loss": [7.0]})
        waiting = threading.Thread(target=manager.refresh)
        waiting.start()
        assert reading.wait(60)
        until(lambda: ids(manager) == ["a", "b"])
        until(manager._refresh.data.entries["a"].lock.locked)
        assert manager.state.status == "LOADING"
        assert brief(manager, "b").is_loading
        assert last(manager, "a") == 1.0
        assert manager.run("a").scalars("loss").value.tolist() == [1.0]
        assert len(manager.compare("", "loss").curves) == 1
        with refused(TimeoutError):
            manager.refresh(timeout_s=0.01)
        go_on.set()
        waiting.join(60)
        assert not brief(manager, "a").is_loading


def test_close_says_what_it_could_not_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_run(tmp_path / "a", {"loss": [1.0]})
    store = SwitchedStore(tmp_path)
    reading, go_on = threading.Event(), threading.Event()
    read = store.read

    def slow_read(*args: object, **kwargs: object) -> object:
        reading.set()
        assert go_on.wait(60)
        return read(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(store, "read", slow_read)
    manager = RunManager(store, refresh_s=0).start()
    assert reading.wait(60)
    with refused(TimeoutError):
        manager.close(deadline_s=0.01)
    go_on.set()
    manager.close()


def test_points_stay_within_the_budget(tmp_path: Path) -> None:
    """MGR-B3: the original dropped three quarters of the points and runs. Here they are read again when needed."""
    for number in range(20):
        write_run(tmp_path / f"run-{number:02}", {"loss": [number + step / 1000 for step in range(1000)]})
    with RunManager(tmp_path, refresh_s=0, memory_bytes=150_000) as manager:
        manager.refresh()
        assert 0 < manager.state.points_bytes <= 150_000
        assert manager.runs().total == 20
        for number in range(20):
            series = manager.run(f"run-{number:02}").scalars("loss")
            assert len(series) == 1000
            assert series.value[-1] == pytest.approx(number + 0.999)
            assert manager.state.points_bytes <= 150_000 + series.nbytes
        # Those that are in use stay: the one asked for last is not read again.
        assert sum(curve.count.sum() for curve in manager.compare("", "loss").curves) == 20_000


def test_the_points_of_runs_that_are_gone_take_no_memory(tmp_path: Path) -> None:
    points = {"loss": [float(step) for step in range(1000)]}
    files = [write_run(tmp_path / f"run-{number}", points) for number in range(4)]
    with RunManager(tmp_path, refresh_s=0) as manager:
        manager.refresh()
        of_each = manager.state.points_bytes // 4
        held = manager.run("run-0")
        shutil.rmtree(tmp_path / "run-0")
        manager.delete("run-1")
        manager.refresh()
        assert manager.state.points_bytes == 2 * of_each
        append(files[1], {"loss": [-1.0]}, first=1000)
        manager.refresh()
        assert manager.state.points_bytes >= 3 * of_each
        for name in ("run-1", "run-2", "run-3"):
            shutil.rmtree(tmp_path / name)
        manager.refresh()
        assert manager.state.points_bytes == 0
        with suppress(RunNotFoundError):
            held.scalars("loss")
        assert manager.state.points_bytes == 0


def test_points_that_are_not_in_memory_do_not_come_back_by_themselves(tmp_path: Path) -> None:
    files = [write_run(tmp_path / f"run-{n}", {"loss": [float(s) for s in range(1000)]}) for n in range(10)]
    with RunManager(tmp_path, refresh_s=0, memory_bytes=0) as manager:
        manager.refresh()
        assert manager.state.points_bytes == 0
        for file in files:
            append(file, {"loss": [-1.0]}, first=1000)
        manager.refresh()
        assert manager.state.points_bytes == 0
        summary = brief(manager, "run-3").tags["loss"]
        assert (summary.count, summary.min, summary.last.step) == (1001, -1.0, 1000)  # type: ignore[union-attr]
        assert len(manager.run("run-3").scalars("loss")) == 1001


@pytest.mark.parametrize(
    "wrong",
    [
        {"refresh_s": True},
        {"refresh_s": -1},
        {"refresh_s": "3"},
        {"threads": 0},
        {"threads": True},
        {"threads": 1.5},
        {"memory_bytes": -1},
        {"memory_bytes": 1e9},
    ],
)
def test_settings_are_checked(tmp_path: Path, wrong: dict[str, object]) -> None:
    """MGR-B4: the original took True for an interval, and ignored the number of threads."""
    with refused(InvalidInputError, *wrong):
        RunManager(tmp_path, **wrong)  # type: ignore[arg-type]


def test_no_more_threads_read_than_are_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """MGR-B4 and MGR-B8: threads of this process, as many as were asked for, and no processes."""
    for number in range(12):
        write_run(tmp_path / f"run-{number}", {"loss": [1.0]})
    store = SwitchedStore(tmp_path)
    read, lock, several = store.read, threading.Lock(), threading.Event()
    now, most = 0, 0

    def counted(*args: object, **kwargs: object) -> list[bytes]:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
            if now > 1:
                several.set()
        several.wait(PATIENCE_S)
        time.sleep(0.005)
        pieces = list(read(*args, **kwargs))  # type: ignore[arg-type]
        with lock:
            now -= 1
        return pieces

    monkeypatch.setattr(store, "read", counted)
    with RunManager(store, refresh_s=0, threads=3) as manager:
        manager.refresh()
        assert manager.runs().total == 12
    assert 1 < most <= 3


def test_times_and_hands_off_at_import(manager: RunManager, root: Path) -> None:
    """MGR-B12: times are numbers, nothing is started by an import, and the thread is a daemon."""
    before = {*threading.enumerate()}
    other = RunManager(root)
    assert {*threading.enumerate()} <= before
    assert other.state.status == "INIT"
    other.close()
    thread = next(one for one in threading.enumerate() if one.name == "run-manager")
    assert thread.daemon


def test_a_closed_manager_starts_nothing(tmp_path: Path) -> None:
    manager = RunManager(tmp_path, refresh_s=0)
    manager.close()
    with refused(TimeoutError):
        manager.refresh(10)
    assert manager.subscribe().get() is None


# ---- a run that takes long ----------------------------------------------------------------------------------


def test_a_large_damaged_file_holds_up_no_other_run(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """1 GB of zeros delayed the points of all other runs by a minute."""
    damaged_file(root / "damaged", "zeros", 100 << 20)
    files = {f"run-{number}": write_run(root / f"run-{number}", {"loss": [1.0]}) for number in range(9)}
    passes: list[tuple[bool, list[int]]] = []  # whether the damaged run is being read, and what others have
    scan = RunRefresh._scan

    def counted(refresh: RunRefresh, is_asked: bool) -> None:
        briefs = refresh.data.snapshots.now.briefs
        if len(briefs) == 10:
            counts = [briefs[name].tags["loss"].count for name in files]
            passes.append((briefs["damaged"].is_loading, counts))
        if len(passes) in (10, 50):
            for file in files.values():
                append(file, {"loss": [0.5]}, first=len(passes))
        scan(refresh, is_asked)

    monkeypatch.setattr(RunRefresh, "_scan", counted)
    manager = RunManager(root, refresh_s=0)
    manager._refresh.pace = ReadPace(slice_s=0.0)  # one piece in each pass
    with manager:
        assert manager.refresh().status == "DONE"
        assert brief(manager, "damaged").damaged == 1
    assert len(passes) >= 99
    for at, count in ((9, 1), (10, 2), (49, 2), (50, 3)):
        assert passes[at] == (True, [count] * 9), "a point is seen after the pass that follows it"


def test_new_points_are_seen_while_a_damaged_file_is_passed_over(tmp_path: Path) -> None:
    """The short form of `python -m tests.trials watch`."""
    assert max(watch.run(tmp_path, runs=10, size_bytes=100 << 20)) < PATIENCE_S / 4


def test_a_manager_is_closed_in_the_middle_of_a_file(root: Path) -> None:
    damaged_file(root / "damaged", "zeros", 64 << 30)
    manager = RunManager(root).start()
    until(lambda: manager.runs().total)
    assert manager.state.status == "LOADING"
    manager.close()
    assert brief(manager, "damaged").is_loading


def test_many_large_runs_are_read_in_turns(root: Path) -> None:
    for number in range(4):
        damaged_file(root / f"run-{number}", "zeros", 3 << 20)
    manager = RunManager(root, refresh_s=0)
    manager._refresh.pace = ReadPace(small_bytes=0, slice_s=0.0, large_runs_s=0.005)
    with manager:
        assert manager.refresh().status == "DONE"
        assert [brief(manager, f"run-{number}").damaged for number in range(4)] == [1] * 4


def test_a_query_that_reads_a_run_again_holds_up_no_other_run(root: Path) -> None:
    for name in ("held", "other"):
        write_run(root / name, {"loss": [1.0]})
    with RunManager(root, refresh_s=0.01) as manager:
        manager.wait_until_loaded()
        with manager._refresh.data.entries["held"].lock:
            write_run(root / "held", {"acc": [1.0]})
            write_run(root / "other", {"acc": [1.0]})
            until(lambda: "acc" in brief(manager, "other").tags)
            assert "acc" not in brief(manager, "held").tags
        until(lambda: "acc" in brief(manager, "held").tags)
