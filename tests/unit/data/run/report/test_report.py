"""report() and the functions beside it: in a job, in a function, and outside of both."""

from __future__ import annotations

import contextvars
import json
import logging
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy
import pytest

import pai_sdk
from pai_sdk._data.run.events.records import read_scalars
from pai_sdk._data.run.report import checkpoint_saver, checkpoints
from pai_sdk._data.run.report.checkpoint_saver import SaveOptions
from pai_sdk._data.run.report.checkpoints import Checkpoint, CheckpointConfig, is_complete, latest_checkpoint
from pai_sdk._data.run.report.context import Context
from pai_sdk._data.run.report.report_session import Report, ReportSession, StopTraining
from pai_sdk._data.run.report.session import (
    checkpoint_dir,
    get_all_reported_checkpoints,
    get_checkpoint,
    get_context,
    is_session_enabled,
    report,
    set_checkpoint_config,
)
from pai_sdk.errors import CheckpointError, InvalidInputError
from tests.support.messages import refused
from tests.support.waiting import until

pytestmark = pytest.mark.interpreter

ROOT = Path(__file__).resolve().parents[5]


def scalars(folder: Path) -> list[tuple[str, int, float]]:
    files = sorted(folder.rglob("*tfevents*"))
    return [(event.tag, event.step, event.value) for path in files for event in read_scalars(path)]


def made(folder: Path, content: str = "x") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "weights").write_text(content)
    return folder


# ---- in a function


def test_metrics_and_checkpoints_are_in_the_runs_folder(tmp_path: Path) -> None:
    with ReportSession(tmp_path / "run") as session, session.bound():
        report({"loss": 0.1}, step=3, checkpoint=made(tmp_path / "model", "3"))
        pai_sdk.report(loss=0.05)
        assert get_context() == Context(folder=tmp_path / "run")
        assert is_session_enabled()
        assert get_context().get_trial_logdir() == tmp_path / "run"
    assert scalars(tmp_path / "run" / "tensorboard") == [("loss", 3, 0.1), ("loss", 4, 0.05)]
    found = Checkpoint.from_directory(tmp_path / "run" / "checkpoints" / "3")
    assert (found.step, found.metrics) == (3, {"loss": 0.1})
    assert (found.path / "weights").read_text() == "3"


def test_a_resumed_training_counts_on(tmp_path: Path) -> None:
    with ReportSession(tmp_path) as session, session.bound():
        assert get_checkpoint() is None
        for number in range(3):
            report({"n": number})
        report({"n": 3}, checkpoint=made(tmp_path / "model"))
    with ReportSession(tmp_path) as session, session.bound():
        assert get_checkpoint().step == 4
        report({"n": 4})
        assert [one.step for one in get_all_reported_checkpoints()] == [4]
    assert sorted(step for _, step, _ in scalars(tmp_path)) == [1, 2, 3, 4, 5]


def test_sessions_of_threads_share_nothing(tmp_path: Path) -> None:
    barrier = threading.Barrier(8)

    def train(number: int) -> None:
        with ReportSession(tmp_path / str(number)) as session, session.bound():
            barrier.wait()
            for step in range(20):
                report({"number": number}, step=step)
            with checkpoint_dir(step=number) as folder:
                made(folder, str(number))

    threads = [threading.Thread(target=train, args=(number,)) for number in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    for number in range(8):
        assert scalars(tmp_path / str(number)) == [("number", step, float(number)) for step in range(20)]
        assert (tmp_path / str(number) / "checkpoints" / str(number) / "weights").read_text() == str(number)


def test_reports_of_several_threads_have_a_step_each(tmp_path: Path) -> None:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # so that threads meet within a report
    try:
        with ReportSession(tmp_path) as session:

            def train() -> None:
                with session.bound():
                    for _ in range(200):
                        report({"x": 1.0})

            threads = [threading.Thread(target=train) for _ in range(4)]
            [thread.start() for thread in threads]
            [thread.join() for thread in threads]
    finally:
        sys.setswitchinterval(before)
    assert [step for _, step, _ in scalars(tmp_path)] == list(range(1, 801))


def test_a_signal_handler_may_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may interrupt a report of its own thread at any place."""
    with ReportSession(tmp_path) as session:
        real = session._recorder.record

        def interrupted(metrics: dict[str, float], step: int) -> None:
            real(metrics, step)
            if "stopped" not in metrics:
                session.report({"stopped": 1.0}, step=9)

        monkeypatch.setattr(session._recorder, "record", interrupted)
        session.report({"x": 1.0}, step=9)
    assert scalars(tmp_path) == [("x", 9, 1.0), ("stopped", 9, 1.0)]


def test_an_inner_session_ends_with_its_block(tmp_path: Path) -> None:
    with ReportSession(tmp_path / "a") as outer, ReportSession(tmp_path / "b") as inner, outer.bound():
        with inner.bound():
            report({"x": 1})
        report({"x": 2})
    assert scalars(tmp_path / "a") == [("x", 1, 2.0)]
    assert scalars(tmp_path / "b") == [("x", 1, 1.0)]


def test_a_stopped_session_raises_in_report(tmp_path: Path) -> None:
    with ReportSession(tmp_path) as session, session.bound():
        report({"x": 1})
        session.stop()
        with pytest.raises(StopTraining):
            report({"x": 2})
    with session.bound(), pytest.raises(StopTraining):  # a thread that was left behind
        report({"x": 3})
    assert not issubclass(StopTraining, Exception)
    assert scalars(tmp_path) == [("x", 1, 1.0)]


def test_a_scheduler_sees_each_report_and_may_hold_it(tmp_path: Path) -> None:
    seen: list[Report] = []
    go_on = threading.Semaphore(0)
    reported = threading.Semaphore(0)

    def lock_step(one: Report) -> None:
        seen.append(one)
        reported.release()
        go_on.acquire()
        if one.step == 3:
            raise StopTraining

    def train() -> None:
        with session.bound():
            while True:
                report({"x": 1})

    with ReportSession(tmp_path, on_report=lock_step) as session:
        thread = threading.Thread(target=contextvars.copy_context().run, args=(_until_stopped, train))
        thread.start()
        for step in (1, 2, 3):
            reported.acquire()
            assert [one.step for one in seen] == list(range(1, step + 1))
            go_on.release()
        thread.join()
    assert len(scalars(tmp_path)) == 3


def _until_stopped(train: object) -> None:
    with pytest.raises(StopTraining):
        train()


# ---- values


def test_mappings_and_arrays_of_one_number_are_metrics(tmp_path: Path) -> None:
    with ReportSession(tmp_path) as session, session.bound():
        report({"loss": 1, "eval": {"acc": numpy.float32(0.5), "deep": {"x": numpy.array([[2.0]])}}, "empty": {}})
    assert scalars(tmp_path) == [("loss", 1, 1.0), ("eval/acc", 1, 0.5), ("eval/deep/x", 1, 2.0)]


@pytest.mark.parametrize(
    ("metrics", "problem"),
    [
        ({"loss": "0.1"}, "'loss': expected a number, got the string"),
        ({"loss": None}, "'loss': expected a number, got NoneType"),
        ({"eval": {"curve": [1, 2]}}, "'eval/curve': expected a number, got list"),
        ({"loss": numpy.array([1.0, 2.0])}, "'loss': expected a number, got ndarray"),
        ({1: 0.5}, "is not a string"),
        ({"a": {2: 1}}, "metric a/2 is not a string"),
        ({"a/b": 1, "a": {"b": 2}}, "two metrics have the name a/b"),
        ({"": 1.0}, "is not a valid name of a metric"),
        ({"a\0b": 1.0}, "is not a valid name of a metric"),
        ({"\ud800": 1.0}, "is not a valid name of a metric"),
    ],
)
def test_what_is_no_metric_is_an_error_in_the_caller(tmp_path: Path, metrics: dict, problem: str) -> None:
    with ReportSession(tmp_path) as session, session.bound():
        with pytest.raises(TypeError, match=problem):
            report(metrics, step=1)
        report({"after": 1}, step=2)
    assert scalars(tmp_path) == [("after", 2, 1.0)]


def test_nan_and_huge_numbers_are_recorded(tmp_path: Path) -> None:
    with ReportSession(tmp_path) as session, session.bound():
        report({"nan": math.nan, "inf": math.inf, "huge": 1e300}, checkpoint=made(tmp_path / "model"))
        with refused(OverflowError):
            report({"x": 10**400})
    assert {tag: str(value) for tag, _, value in scalars(tmp_path)} == {
        "nan": "nan",
        "inf": "inf",
        "huge": "1e+300",
    }
    assert Checkpoint.from_directory(tmp_path / "checkpoints" / "1").metrics == {"huge": 1e300}


def test_a_metric_that_is_not_finite_is_in_the_log_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with ReportSession(tmp_path) as session, session.bound():
        for step, loss in enumerate([0.5, math.nan, math.nan, -math.inf]):
            report({"train": {"loss": numpy.float32(loss)}, "rate": 0.1}, step=step)
    (record,) = caplog.records
    assert record.args == ("train/loss", pytest.approx(math.nan, nan_ok=True), 1)


class _TensorWithGradient:
    """Converts to a number as a tensor of PyTorch does, which warns unless it is detached."""

    requires_grad = True

    def detach(self) -> float:
        return 0.25

    def __float__(self) -> float:
        raise UserWarning("Converting a tensor with requires_grad=True to a scalar")


def test_a_tensor_with_a_gradient_is_a_metric(tmp_path: Path) -> None:
    with ReportSession(tmp_path) as session, session.bound():
        report({"loss": _TensorWithGradient()}, step=1)
    report({"loss": _TensorWithGradient()}, step=1)  # checked outside of a job, too
    assert scalars(tmp_path) == [("loss", 1, 0.25)]


def test_wrong_arguments_have_the_same_message_in_a_session_and_without(tmp_path: Path) -> None:
    def messages() -> list[str]:
        found = []
        for arguments in (("loss", 0.1, 1), ({"loss": 0.1}, 0.5)):
            with pytest.raises(TypeError) as error:
                report(*arguments)  # type: ignore[arg-type]
            found.append(str(error.value))
        return found

    with ReportSession(tmp_path) as session, session.bound():
        inside = messages()
    assert inside == messages()
    assert "metrics" in inside[0]
    assert "0.5" in inside[1]


@pytest.mark.parametrize("step", [1.5, "1", 2**63])
def test_a_step_is_a_whole_number(tmp_path: Path, step: object) -> None:
    with ReportSession(tmp_path) as session, session.bound(), pytest.raises((TypeError, OverflowError)):
        report({"x": 1}, step=step)


@pytest.mark.parametrize("number", [numpy.int64(5), numpy.uint8(5), numpy.array(5)])
def test_a_step_of_numpy_is_a_step(tmp_path: Path, number: object) -> None:
    with ReportSession(tmp_path / "run") as session, session.bound():
        report({"x": 1}, step=number, checkpoint=made(tmp_path / "model"), checkpoint_upload_mode="SYNC")
        assert get_checkpoint().step == 5
        report({"x": 2})
        with checkpoint_dir(number + 2) as folder:
            made(folder)
        report({"x": 3}, number + 3, made(tmp_path / "model"), checkpoint_dir_name="checkpoint_000008")
    assert [one.step for one in session.checkpoints()] == [5, 7, 8]
    assert [step for _, step, _ in scalars(tmp_path)] == [5, 6, 8]
    assert all(type(step) is int for _, step, _ in scalars(tmp_path))


def test_a_folder_that_cannot_be_written_does_not_end_the_training(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "tensorboard").write_text("a file where the folder has to be")
    with ReportSession(tmp_path) as session, session.bound():
        report({"x": 1})
        with pytest.raises(OSError):
            session.flush()
        report({"x": 2})
        report({"x": 3})
        (tmp_path / "tensorboard").unlink()
    assert [record.getMessage()[:30] for record in caplog.records] == ["the metrics cannot be written "]
    assert sorted(scalars(tmp_path)) == [("x", step, float(step)) for step in (1, 2, 3)]


# ---- checkpoints


class _HeldSave:
    """Saves that begin only when they are let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go = threading.Event()
        real = checkpoints.save

        def held(*args: object, **kwargs: object) -> object:
            self.go.wait()
            return real(*args, **kwargs)

        monkeypatch.setattr("pai_sdk._data.run.report.checkpoint_saver.save", held)


def test_a_report_does_not_wait_for_its_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = _HeldSave(monkeypatch)
    with ReportSession(tmp_path) as session, session.bound():
        for step in (1, 2):
            report({"x": step}, step=step, checkpoint=made(tmp_path / f"model-{step}"))
        assert session.checkpoints() == []
        held.go.set()
    assert [is_complete(tmp_path / "checkpoints" / str(step)) for step in (1, 2)] == [True, True]


def test_a_report_waits_while_many_checkpoints_are_not_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    held = _HeldSave(monkeypatch)
    last = 0
    with ReportSession(tmp_path / "run") as session:

        def train() -> None:
            nonlocal last
            for step in range(1, 11):
                session.report({"x": step}, step, made(tmp_path / f"model-{step}"))
                last = step

        thread = threading.Thread(target=train)
        thread.start()
        until(lambda: caplog.records)
        assert (last, session.last_step) == (4, 4)
        held.go.set()
        thread.join()
    assert [one.step for one in session.checkpoints()] == list(range(1, 11))
    assert [record.getMessage()[:50] for record in caplog.records] == [
        "4 checkpoints are not saved yet, so the training w"
    ]


@pytest.mark.parametrize("in_place", [False, True])
def test_a_report_that_waits_can_be_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, in_place: bool
) -> None:
    held = _HeldSave(monkeypatch)
    ended = []
    with ReportSession(tmp_path / "run") as session:
        for step in range(1, 5):
            session.report({}, step, made(tmp_path / f"model-{step}"))

        def fifth() -> None:
            try:
                if in_place:  # the last one is saved, as far as the time goes
                    with session.checkpoint_dir(5) as folder:
                        made(folder)
                session.report({"x": 5}, 5, made(tmp_path / "model-5"))
            except StopTraining:
                ended.append(True)

        thread = threading.Thread(target=fifth)
        thread.start()
        until(lambda: caplog.records)
        session.stop()
        thread.join()
        held.go.set()
    assert (ended, session.last_step, scalars(tmp_path)) == ([True], 4, [])
    assert [one.step for one in session.checkpoints()] == [1, 2, 3, 4, 5][: 5 if in_place else 4]


def test_what_copies_a_checkpoint_may_report_others(tmp_path: Path) -> None:
    """It would wait for itself."""
    model = made(tmp_path / "model")
    with ReportSession(tmp_path / "run") as session:

        def copy(checkpoint: Checkpoint, folder: str) -> None:
            made(Path(folder))
            for step in range(2, 9):
                session.report({}, step, model)

        session.report({}, 1, model, options=SaveOptions(copy=copy))
        until(lambda: len(session.checkpoints()) == 8)


@pytest.mark.parametrize("how", [tempfile.TemporaryDirectory, lambda: TemporaryDirectory(prefix="x"), "mkdtemp"])
def test_a_temporary_folder_is_copied_before_the_report_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: Any
) -> None:
    """As programs for Ray have it."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    with ReportSession(tmp_path / "run") as session, session.bound():
        for step in (1, 2, 3):
            if how == "mkdtemp":
                folder = tempfile.mkdtemp()
                report({"x": step}, checkpoint=Checkpoint.from_directory(made(Path(folder, "state"), str(step))))
                shutil.rmtree(folder)
                continue
            with how() as folder:
                made(Path(folder), str(step))
                report({"x": step}, checkpoint=Checkpoint.from_directory(folder))
    found = session.checkpoints()
    assert [(one.step, (one.path / "weights").read_text()) for one in found] == [(1, "1"), (2, "2"), (3, "3")]


def test_a_run_in_a_temporary_folder_saves_in_the_background(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = _HeldSave(monkeypatch)
    with tempfile.TemporaryDirectory() as folder, ReportSession(Path(folder, "run")) as session:
        session.report({}, 1, made(Path(folder, "model")))
        held.go.set()


def test_sync_returns_when_the_checkpoint_is_complete(tmp_path: Path) -> None:
    with ReportSession(tmp_path) as session, session.bound():
        report({}, step=1, checkpoint=made(tmp_path / "model"), checkpoint_upload_mode="SYNC")
        assert is_complete(tmp_path / "checkpoints" / "1")
        (tmp_path / "model" / "weights").write_text("changed later")


def test_no_upload_marks_a_checkpoint_in_its_place(tmp_path: Path) -> None:
    with ReportSession(tmp_path / "run") as session, session.bound():
        place = made(tmp_path / "run" / "checkpoints" / "5")
        report({}, step=5, checkpoint=place, checkpoint_upload_mode="NO_UPLOAD")
        with refused(CheckpointError):
            report({}, step=6, checkpoint=made(tmp_path / "model"), checkpoint_upload_mode="NO_UPLOAD")
    assert is_complete(place)


def test_a_folder_is_removed_after_the_copy_when_that_is_asked_for(tmp_path: Path) -> None:
    with ReportSession(tmp_path / "run") as session, session.bound():
        report({}, 1, made(tmp_path / "model"), delete_local_checkpoint_after_upload=True)
        place = made(tmp_path / "run" / "checkpoints" / "2")
        report({}, 2, place, delete_local_checkpoint_after_upload=True)
    assert not (tmp_path / "model").exists()
    assert is_complete(tmp_path / "run" / "checkpoints" / "1")
    assert is_complete(place)


def test_a_failed_save_is_raised_by_the_next_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = _HeldSave(monkeypatch)
    with ReportSession(tmp_path) as session, session.bound():
        report({"x": 1}, step=1, checkpoint=made(tmp_path / "model"))
        (tmp_path / "model" / "weights").write_text("the next step's, too early")
        held.go.set()
        session._saver.save(session._task({}, 9, made(tmp_path / "other"), SaveOptions()))
        until(lambda: is_complete(tmp_path / "checkpoints" / "9"))
        with refused(CheckpointError):
            report({"x": 2}, step=2)
        report({"x": 2}, step=2)  # raised once
    assert not is_complete(tmp_path / "checkpoints" / "1")


def test_a_failed_save_is_raised_at_the_end(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").write_text("a file where the folder has to be")
    with refused(CheckpointError), ReportSession(tmp_path) as session:
        session.report({}, 1, made(tmp_path / "model"))


def test_an_error_of_the_training_is_not_replaced(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "checkpoints").write_text("a file where the folder has to be")

    def train() -> None:
        with ReportSession(tmp_path) as session:
            session.report({}, 1, made(tmp_path / "model"))
            raise KeyError("of the training")

    with pytest.raises(KeyError):
        train()
    assert "checkpoints of the failed training" in caplog.text


def test_a_checkpoint_that_is_being_saved_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = _HeldSave(monkeypatch)
    with ReportSession(tmp_path) as session, session.bound():
        report({"x": 1}, step=5, checkpoint=made(tmp_path / "model"))
        threading.Timer(0.1, held.go.set).start()
        found = get_checkpoint()
    assert found is not None
    assert found.step == 5


def test_a_step_is_saved_again_after_its_first_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = _HeldSave(monkeypatch)
    with ReportSession(tmp_path) as session, session.bound():
        with checkpoint_dir(5) as folder:
            made(folder)
        threading.Timer(0.1, held.go.set).start()
        with checkpoint_dir(5) as folder:
            made(folder)
            (folder / "second").write_text("of the second")
    assert [sorted(one.files) for one in session.checkpoints()] == [["second", "weights"]]


def test_close_has_a_deadline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = _HeldSave(monkeypatch)
    session = ReportSession(tmp_path)
    session.report({}, 1, made(tmp_path / "model"))
    with refused(CheckpointError):
        session.close(0.01)
    held.go.set()


def test_an_action_added_during_close_does_not_keep_the_closed_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    is_running, is_closing, go, is_done = (threading.Event() for _ in range(4))
    failures: list[BaseException] = []
    worker = checkpoint_saver._Worker("worker", failures.append)

    def first() -> None:
        is_running.set()
        go.wait(30)

    worker.add(first)
    assert is_running.wait(30)
    thread = worker._thread
    assert thread is not None
    join = thread.join

    def observed_join(timeout: float | None = None) -> None:
        is_closing.set()
        join(timeout)

    monkeypatch.setattr(thread, "join", observed_join)
    with ThreadPoolExecutor(1) as pool:
        closing = pool.submit(worker.close, time.monotonic() + 20)
        assert is_closing.wait(30)
        worker.add(is_done.set)  # in another thread, which must not pop the end marker of the first one
        assert is_done.wait(30)
        go.set()
        closing.result()
    assert not thread.is_alive()
    worker.close(None)
    assert not failures


@pytest.mark.parametrize("checkpoint", [{"weights": 1}, 3, b"x"])
def test_a_checkpoint_is_the_path_of_a_folder(tmp_path: Path, checkpoint: object) -> None:
    with ReportSession(tmp_path) as session, session.bound():
        with refused(TypeError):
            report({"x": 1}, checkpoint=checkpoint)
        with refused(CheckpointError):
            report({"x": 1}, checkpoint=made(tmp_path / "m"), checkpoint_upload_mode="LATER")
        with refused(InvalidInputError, "step"):
            report({"x": 1}, step=-1, checkpoint=made(tmp_path / "m"))
    assert scalars(tmp_path) == []  # nothing of a wrong call is recorded


def test_a_checkpoint_dir_keeps_metrics(tmp_path: Path) -> None:
    with ReportSession(tmp_path) as session, session.bound():
        with refused(TypeError), checkpoint_dir(1, {"eval": {"name": "a"}}):
            pass
        with checkpoint_dir(2, {"loss": numpy.float32(0.5), "eval": {"loss": 1}}) as folder:
            made(folder)
    assert [(one.step, one.metrics) for one in session.checkpoints()] == [(2, {"loss": 0.5, "eval/loss": 1.0})]
    assert scalars(tmp_path) == []


def test_a_checkpoint_dir_is_removed_after_an_error(tmp_path: Path) -> None:
    def fail() -> None:
        with checkpoint_dir(step=3) as folder:
            made(folder)
            raise KeyError("of the training")

    with ReportSession(tmp_path) as session, session.bound():
        with pytest.raises(KeyError):
            fail()
        assert list((tmp_path / "checkpoints").iterdir()) == []
        report({"x": 1}, step=7)
        with checkpoint_dir() as folder:
            made(folder)
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["8"]


def test_each_rank_has_its_own_events_and_checkpoints(tmp_path: Path) -> None:
    for rank in (0, 1):
        context = Context("train-1", f"train-1-{rank}", rank, 2, folder=tmp_path)
        with ReportSession(tmp_path, context=context) as session, session.bound():
            report({"rank": rank}, step=rank + 1)
            if rank == 0:
                report({}, step=5, checkpoint=made(tmp_path / "model"))
    with ReportSession(tmp_path, context=context) as session, session.bound():
        assert get_checkpoint().step == 5  # rank 0's, while it has none itself
        report({}, step=6, checkpoint=made(tmp_path / "model"), checkpoint_upload_mode="SYNC")
        assert get_checkpoint().path == tmp_path / "checkpoints" / "rank-1" / "6"
    assert scalars(tmp_path / "tensorboard" / "rank-1") == [("rank", 2, 1.0)]
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == ["5", "rank-1"]
    assert "train-1-1" in next((tmp_path / "tensorboard" / "rank-1").iterdir()).name


def test_many_sessions_leave_no_thread_and_no_descriptor(tmp_path: Path) -> None:
    def count() -> tuple[int, int]:
        return threading.active_count(), len(list(Path("/proc/self/fd").iterdir()))

    before = count()
    for number in range(40):
        with ReportSession(tmp_path / str(number)) as session, session.bound():
            report({"x": 1}, checkpoint=made(tmp_path / "model"), checkpoint_upload_mode="SYNC")
    # Fewer than before when those of an earlier test have ended meanwhile.
    assert all(now <= then for now, then in zip(count(), before, strict=True))


# ---- in a job

IN_JOB = """
import os, sys
sys.path.append(sys.argv[1])
from pai_sdk import checkpoint_dir, get_checkpoint, get_context, report
"""


def run_job(tmp_path: Path, program: str, **variables: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "ml" / "usercode").mkdir(parents=True, exist_ok=True)
    contract = {
        "PAI_WORKING_DIR": str(tmp_path / "ml" / "usercode"),
        "PAI_TRAINING_JOB_ID": "train-1",
        "PAI_INSTANCE_NAME": "train-1-master-0",
        "PAI_HPS": json.dumps({"lr": "0.1"}),
    }
    return subprocess.run(
        [sys.executable, "-S", "-I", "-c", IN_JOB + program, str(ROOT)],
        env={**contract, **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_a_job_reports_into_its_outputs(tmp_path: Path) -> None:
    done = run_job(
        tmp_path,
        """
start = get_checkpoint()
first = 0 if start is None else int((start.path / "step").read_text())
for step in range(first + 1, first + 4):
    with checkpoint_dir(step) as folder:
        (folder / "step").write_text(str(step))
    report({"step": step, "lr": float(get_context().hyperparameters["lr"])}, step=step)
from pai_sdk import is_session_enabled
print(get_context().get_trial_name(), get_context().rank, get_context().world_size, is_session_enabled())
""",
    )
    assert (done.returncode, done.stderr, done.stdout.split()) == (0, "", ["train-1", "0", "1", "True"])
    again = run_job(
        tmp_path,
        "report({'resumed': int((get_checkpoint().path / 'step').read_text())})",
        RANK="0",
        WORLD_SIZE="2",
    )
    assert (again.returncode, again.stderr) == (0, "")
    outputs = tmp_path / "ml" / "output"
    assert sorted(scalars(outputs / "tensorboard")) == [
        *(("lr", step, 0.1) for step in (1, 2, 3)),
        ("resumed", 4, 3.0),
        *(("step", step, float(step)) for step in (1, 2, 3)),
    ]


def test_a_job_notices_its_preemption_and_goes_on(tmp_path: Path) -> None:
    done = run_job(
        tmp_path,
        """
import signal, subprocess, time
from pai_sdk import get_preemption_info
assert get_preemption_info() is None
ready, began = os.pipe()
child = os.fork()  # a process of a data loader ends as before
if not child:
    os.write(began, b"x")
    time.sleep(20)
    os._exit(0)
os.read(ready, 1)
os.kill(child, signal.SIGTERM)
print(os.WTERMSIG(os.waitpid(child, 0)[1]))
assert get_preemption_info() is None
before = time.time()
os.kill(os.getpid(), signal.SIGTERM)
print(before <= get_preemption_info().time <= time.time())
report({"loss": 0.5}, step=1)
sys.stdout.flush()
os.kill(os.getpid(), signal.SIGTERM)  # the second one ends it
time.sleep(20)
""",
    )
    assert (done.returncode, done.stderr, done.stdout.split()) == (-15, "", ["15", "True"])


def test_outside_a_job_signals_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("PAI_")]:
        monkeypatch.delenv(name)
    before = signal.getsignal(signal.SIGTERM)
    assert pai_sdk.get_preemption_info() is None
    assert signal.getsignal(signal.SIGTERM) is before


def test_channels_elsewhere_are_found_by_their_variables(tmp_path: Path) -> None:
    done = run_job(tmp_path, "report(x=1)", PAI_OUTPUT_TENSORBOARD=str(tmp_path / "data" / "tensorboard"))
    assert done.returncode == 0
    assert scalars(tmp_path / "data" / "tensorboard") == [("x", 1, 1.0)]


def test_a_job_whose_last_checkpoint_is_not_saved_fails(tmp_path: Path) -> None:
    done = run_job(
        tmp_path,
        """
os.makedirs(os.environ["SOURCE"])
open(os.environ["SOURCE"] + "/weights", "w").close()
open(os.environ["PAI_WORKING_DIR"] + "/../output", "w").close()
print("the work is done")
report({"x": 1}, checkpoint=os.environ["SOURCE"])
""",
        SOURCE=str(tmp_path / "source"),
    )
    assert done.returncode == 1
    assert done.stdout == "the work is done\n"
    assert "the job fails, because its last checkpoints are missing" in done.stderr


def test_a_forked_process_of_a_job_reports_too(tmp_path: Path) -> None:
    done = run_job(
        tmp_path,
        """
import multiprocessing
def child():
    report({"child": 1}, step=1)
report({"parent": 1}, step=1)
process = multiprocessing.get_context("fork").Process(target=child)
process.start()
process.join()
report({"parent": 2}, step=2)
""",
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(scalars(tmp_path)) == [("child", 1, 1.0), ("parent", 1, 1.0), ("parent", 2, 2.0)]


TF_CONFIG = {"cluster": {"worker": ["a", "b"], "chief": ["c"]}, "task": {"type": "worker", "index": 1}}


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1"}, (3, 4, 1)),
        ({"RANK": "x", "WORLD_SIZE": ""}, (0, 1, 0)),
        ({"TF_CONFIG": json.dumps(TF_CONFIG)}, (2, 3, 0)),
        ({"TF_CONFIG": "{"}, (0, 1, 0)),
        ({"PAI_HPS": "["}, (0, 1, 0)),
    ],
)
def test_the_context_of_an_instance(variables: dict[str, str], expected: tuple[int, int, int]) -> None:
    context = Context.of_environment({"PAI_WORKING_DIR": "/ml/usercode", **variables})
    assert (context.rank, context.world_size, context.local_rank) == expected
    assert context.folder == Path("/ml/output")


# ---- arguments of Ray


@pytest.mark.parametrize(("name", "step"), [("checkpoint_000012", None), ("epoch-12", 12), ("12", None)])
def test_a_name_of_a_checkpoint_is_its_step(tmp_path: Path, name: str, step: int | None) -> None:
    with ReportSession(tmp_path / "run") as session, session.bound():
        report({"x": 1}, step, made(tmp_path / "model"), checkpoint_dir_name=name)
    assert is_complete(tmp_path / "run" / "checkpoints" / "12")


@pytest.mark.parametrize(("name", "step"), [("best", None), ("loss-0.95", None), ("epoch-3", 12), ("../12", 12)])
def test_a_name_that_is_no_step_is_refused(tmp_path: Path, name: str, step: int | None) -> None:
    with ReportSession(tmp_path) as session, session.bound():
        with refused(CheckpointError):
            report({"x": 1}, step, made(tmp_path / "model"), checkpoint_dir_name=name)
        assert session.last_step is None


def test_a_function_copies_the_checkpoint(tmp_path: Path) -> None:
    def upload(checkpoint: Checkpoint, folder: str) -> Checkpoint:
        (Path(folder) / "copied").write_bytes((checkpoint.path / "weights").read_bytes())
        return Checkpoint(Path(folder))

    with ReportSession(tmp_path / "run") as session, session.bound():
        report({"x": 1}, 3, made(tmp_path / "model", "3"), checkpoint_upload_fn=upload)
    found = Checkpoint.from_directory(tmp_path / "run" / "checkpoints" / "3")
    assert (list(found.files), (found.path / "copied").read_text(), found.metrics) == (["copied"], "3", {"x": 1.0})


def test_a_function_that_copies_elsewhere_is_an_error(tmp_path: Path) -> None:
    with ReportSession(tmp_path / "run") as session, session.bound():
        with refused(CheckpointError):
            report(
                {},
                3,
                made(tmp_path / "model"),
                checkpoint_upload_fn=lambda checkpoint, folder: checkpoint,
                checkpoint_upload_mode="SYNC",
            )
        place = made(tmp_path / "run" / "checkpoints" / "5")
        with refused(CheckpointError):
            report({}, 5, place, checkpoint_upload_fn=lambda checkpoint, folder: None)
        assert (place / "weights").exists()
    assert latest_checkpoint(tmp_path / "run" / "checkpoints") is None


def test_a_validation_adds_its_metrics(tmp_path: Path) -> None:
    let_go = threading.Event()

    def validate(checkpoint: Checkpoint) -> dict[str, float]:
        let_go.wait()
        return {"accuracy": 1.0 if (checkpoint.path / "weights").read_text() == "1" else 0.0}

    with ReportSession(tmp_path / "run") as session, session.bound():
        set_checkpoint_config(CheckpointConfig(num_to_keep=1, score_attribute="accuracy"))
        for step in (1, 2, 3):  # nothing waits for a validation, and no checkpoint is removed before its own
            report({"loss": step}, step, made(tmp_path / f"model-{step}", str(step)), validation=validate)
        assert [found.step for found in get_all_reported_checkpoints("COMMITTED")] == [1, 2, 3]
        let_go.set()
        found = get_all_reported_checkpoints("VALIDATED")
        assert [(each.step, each.metrics) for each in found] == [
            (1, {"loss": 1.0, "accuracy": 1.0}),  # the best, and the latest
            (3, {"loss": 3.0, "accuracy": 0.0}),
        ]
        with refused(CheckpointError):
            get_all_reported_checkpoints("LATER")
    recorded = [each for each in scalars(tmp_path / "run" / "tensorboard") if each[0] == "accuracy"]
    assert recorded == [("accuracy", 1, 1.0), ("accuracy", 2, 0.0), ("accuracy", 3, 0.0)]


@pytest.mark.parametrize("what", [ZeroDivisionError("by zero"), SystemExit("by zero"), "by zero"])
def test_a_failed_validation_is_raised_and_the_checkpoint_stays(tmp_path: Path, what: object) -> None:
    def validate(checkpoint: Checkpoint) -> object:
        if isinstance(what, BaseException):
            raise what
        return what

    failed = refused(CheckpointError)
    with failed, ReportSession(tmp_path / "run") as session, session.bound():
        report({"x": 1}, 1, made(tmp_path / "model"), validation=validate)
    assert is_complete(tmp_path / "run" / "checkpoints" / "1")


def test_a_validation_is_a_function_of_a_checkpoint(tmp_path: Path) -> None:
    with ReportSession(tmp_path / "run") as session, session.bound():
        with refused(CheckpointError):
            report({"x": 1}, 1, made(tmp_path / "model"), validation=True)
        with refused(CheckpointError):
            report({"x": 1}, 1, validation=print)
        report({"x": 1}, 1, validation=False)
    assert scalars(tmp_path / "run" / "tensorboard") == [("x", 1, 1.0)]


# ---- metrics of the same step


def test_a_checkpoint_without_metrics_has_those_of_its_step(tmp_path: Path) -> None:
    with ReportSession(tmp_path / "run") as session, session.bound():
        set_checkpoint_config(CheckpointConfig(num_to_keep=1, score_attribute="eval/loss", score_order="min"))
        for step, loss in ((1, 0.3), (2, 0.1), (3, 0.2)):  # in the order of the Trainer of transformers
            report({"lr": 0.5}, step)
            report({"eval": {"loss": loss}}, step)
            report(step=step, checkpoint=made(tmp_path / f"model-{step}"))
        found = get_all_reported_checkpoints("COMMITTED")
    assert [(each.step, each.metrics) for each in found] == [
        (2, {"lr": 0.5, "eval/loss": 0.1}),
        (3, {"lr": 0.5, "eval/loss": 0.2}),
    ]


def test_a_later_report_of_the_step_gives_its_metrics_to_the_checkpoint(tmp_path: Path) -> None:
    with ReportSession(tmp_path / "run") as session, session.bound():
        set_checkpoint_config(CheckpointConfig(num_to_keep=1, score_attribute="loss", score_order="min"))
        for step, loss in ((1, 0.3), (2, 0.1), (3, 0.2)):
            with checkpoint_dir(step) as folder:
                made(folder)
            report({"loss": loss}, step)
        with checkpoint_dir(4, {"loss": 0.4}) as folder:  # has its own
            made(folder)
        report({"loss": 0.01}, 4)
        found = get_all_reported_checkpoints("COMMITTED")
    assert [(each.step, each.metrics) for each in found] == [(2, {"loss": 0.1}), (4, {"loss": 0.4})]


# ---- outside


def test_outside_a_job_there_is_one_warning_and_no_effect(
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("PAI_")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr("pai_sdk._data.run.report.session._has_warned", False)
    checkpoint = tmp_path_factory.mktemp("checkpoint")
    (checkpoint / "weights").write_text("1")
    with caplog.at_level(logging.WARNING):
        assert not is_session_enabled()  # a question, not a use: no warning
        assert caplog.records == []
        for _ in range(3):
            report({"loss": 0.1, "eval": {"acc": 1}}, checkpoint=checkpoint)
        assert get_checkpoint() is None
        assert get_all_reported_checkpoints() == []
        assert get_context() == Context()
        with checkpoint_dir(3) as folder:
            made(folder)
        assert not folder.exists()
    assert ["outside a job" in record.getMessage() for record in caplog.records] == [True]
    assert list(tmp_path.iterdir()) == []


WRONG_CALLS: list[tuple[dict[Any, Any], Any, type[Exception]]] = [
    ({"a": "x"}, None, TypeError),
    ({"a": None}, None, TypeError),
    ({"a": [1, 2]}, None, TypeError),
    ({"a": {"b": "x"}}, None, TypeError),
    ({"a": {"b": 1}, "a/b": 2}, None, TypeError),
    ({1: 1.0}, None, TypeError),
    ({"": 1.0}, None, TypeError),
    ({"a\0": 1.0}, None, TypeError),
    ([1], None, TypeError),  # type: ignore[list-item]
    ({"a": 10**400}, None, OverflowError),
    ({"a": 1.0}, 1.5, TypeError),
    ({"a": 1.0}, 2**63, OverflowError),
]


@pytest.mark.parametrize(("metrics", "step", "kind"), WRONG_CALLS)
def test_what_is_an_error_in_a_job_is_one_outside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, metrics: dict[Any, Any], step: Any, kind: type[Exception]
) -> None:
    """A script that was tried by hand failed in its job."""
    for name in [name for name in os.environ if name.startswith("PAI_")]:
        monkeypatch.delenv(name)
    with ReportSession(tmp_path) as session, session.bound(), pytest.raises(kind) as inside:
        report(metrics, step)
    with pytest.raises(kind) as outside:
        report(metrics, step)
    assert str(outside.value) == str(inside.value)


@pytest.mark.parametrize(
    "arguments",
    [
        {"checkpoint": "nowhere"},
        {"checkpoint": 5},
        {"checkpoint": "", "checkpoint_upload_mode": "FAST"},
        {"checkpoint": "", "checkpoint_dir_name": "last"},
        {"checkpoint": "", "validation": 5},
        {"validation": print},
    ],
)
def test_a_wrong_checkpoint_is_one_outside_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: dict[str, Any]
) -> None:
    for name in [name for name in os.environ if name.startswith("PAI_")]:
        monkeypatch.delenv(name)
    (tmp_path / "weights").write_text("1")
    if arguments.get("checkpoint") == "":
        arguments = {**arguments, "checkpoint": tmp_path}
    kinds = (CheckpointError, TypeError)
    with ReportSession(tmp_path / "run") as session, session.bound(), pytest.raises(kinds) as inside:
        report({"a": 1.0}, **arguments)
    with pytest.raises(type(inside.value)) as outside:
        report({"a": 1.0}, **arguments)
    assert str(outside.value) == str(inside.value)
