"""Functions as trainings: results, checkpoints and the end, in a thread and in a process."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import os
import signal
import tarfile
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from pai_sdk import checkpoint_dir, get_checkpoint, get_context, report
from pai_sdk._data.run.events.records import read_scalars
from pai_sdk._data.run.functions import runner as function_runner
from pai_sdk._data.run.functions import saved_state
from pai_sdk._data.run.functions.function_run import FunctionRun, wrap
from pai_sdk._data.run.report.checkpoints import is_complete
from pai_sdk._data.run.report.report_session import StopTraining
from pai_sdk.errors import CheckpointError, FunctionError, FunctionFinished, InvalidInputError, RemoteTraceback
from tests.support.leftovers import has_ended
from tests.support.messages import refused
from tests.support.waiting import PATIENCE_S, until

MODES = ("thread", "process")
both = pytest.mark.parametrize("mode", MODES)


def counting(config: dict[str, Any]) -> str:
    """Counts on from its checkpoint; a checkpoint with each report."""
    start = get_checkpoint()
    first = 1 if start is None else int((start.path / "count").read_text()) + 1
    for step in range(first, config.get("last", 3) + 1):
        with checkpoint_dir(step) as folder:
            (folder / "count").write_text(str(step))
        report({"count": step}, step=step)
    return "the value"


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def scalars(folder: Path) -> list[tuple[str, int, float]]:
    files = sorted(folder.rglob("*tfevents*"), key=lambda path: path.stat().st_mtime_ns)
    return [(event.tag, event.step, event.value) for path in files for event in read_scalars(path)]


# ---- the kinds of functions


def of_checkpoint_dir(config: dict[str, Any], checkpoint_dir: str | None = None) -> None:
    function_runner.report(start=0 if checkpoint_dir is None else int(Path(checkpoint_dir, "n").read_text()))
    with function_runner.checkpoint_dir(step=7) as folder:
        Path(folder, "n").write_text("7")
    function_runner.report(end=config["end"])


def of_reporter(config: dict[str, Any], reporter: Any) -> None:
    reporter(a=1)
    folder = reporter.make_checkpoint_dir(4)
    assert folder == f"{reporter.logdir}/checkpoints/4"
    Path(folder, "n").write_text("4")
    with pytest.raises(FileNotFoundError, match="make_checkpoint_dir"):
        reporter.set_checkpoint(f"{folder}-other/n")
    reporter.set_checkpoint(f"{folder}/n")
    reporter.make_checkpoint_dir(5)  # never set
    reporter({"b": 2})


def generator(config: dict[str, Any]) -> Iterator[Any]:
    yield {"loss": 0.5}
    yield 0.25
    return "end"


class Callable:
    def __call__(self, config: dict[str, Any]) -> float:
        return config["x"] + 1.0


def test_a_function_with_checkpoint_dir_goes_on_from_it(tmp_path: Path) -> None:
    with wrap(of_checkpoint_dir)({"end": 2}, folder=tmp_path) as run:
        assert [result.get("start", result.get("end")) for result in run] == [0, 2]
        saved = run.save()
    with wrap(of_checkpoint_dir)({"end": 3}, folder=tmp_path / "other") as run:
        run.restore(saved)
        assert run.train()["start"] == 7


def test_a_function_with_a_reporter(tmp_path: Path) -> None:
    with wrap(of_reporter)({}, folder=tmp_path) as run:
        first, second = run
        assert (first["a"], "should_checkpoint" in first) == (1, False)
        assert (second["b"], second["should_checkpoint"]) == (2, True)
    assert is_complete(tmp_path / "checkpoints" / "4")
    assert not (tmp_path / "checkpoints" / "5").exists()


@both
def test_what_a_generator_yields_is_reported(tmp_path: Path, mode: str) -> None:
    with wrap(generator)({}, folder=tmp_path, mode=mode) as run:
        assert run.result(PATIENCE_S) == "end"
    assert scalars(tmp_path) == [("loss", 1, 0.5), ("_metric", 2, 0.25)]


def test_returned_numbers_are_reported_and_other_values_are_not(tmp_path: Path) -> None:
    returned = {"number": 0.5, "dict": {"loss": 1, "acc": 2.0}, "text": {"loss": 1, "name": "x"}, "none": None}
    found = {}
    for name, value in returned.items():
        with FunctionRun(lambda config, value=value: value, {}, folder=tmp_path / name) as run:
            assert run.result() == value
        found[name] = {tag: value for tag, _, value in scalars(tmp_path / name)}
    assert found == {"number": {"_metric": 0.5}, "dict": {"loss": 1.0, "acc": 2.0}, "text": {}, "none": {}}


def test_callable_objects_and_partials(tmp_path: Path) -> None:
    def two(config: dict[str, Any], factor: int) -> float:
        return config["x"] * factor

    for number, function in enumerate((Callable(), functools.partial(two, factor=3))):
        with FunctionRun(function, {"x": 2}, folder=tmp_path / str(number)) as run:
            assert run.train()["_metric"] == (3.0, 6)[number]
    assert wrap(functools.partial(two, factor=3)).__name__ == "two"


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (lambda: None, "cannot be called as a training"),
        (lambda config, other: None, "cannot be called as a training"),
        (lambda config, checkpoint_dir=None, reporter=None: None, "both"),
        (lambda **options: None, "cannot be called as a training"),
        (7, "is not a function"),
    ],
)
def test_other_functions_are_refused(function: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        wrap(function)


def test_what_an_async_function_gives_is_refused(tmp_path: Path) -> None:
    async def loss() -> float:
        return 0.5

    run = wrap(lambda config: loss())({}, folder=tmp_path)
    with refused(TypeError):
        run.step()


def test_a_function_with_keywords_has_one_kind(tmp_path: Path) -> None:
    """FN-B9: `**kwargs` matched both protocols."""
    seen = []
    FunctionRun(lambda config, **more: seen.append((config, more)), {"a": 1}, folder=tmp_path).result()
    assert seen == [({"a": 1}, {})]


def test_all_wrong_arguments_are_named_at_once() -> None:
    with pytest.raises(InvalidInputError) as caught:
        FunctionRun(lambda: None, {}, mode="fork", ahead=-1)
    assert [problem.where for problem in caught.value.problems] == ["function", "mode", "ahead"]


# ---- results


@both
def test_results_have_the_fields_of_the_contract(tmp_path: Path, mode: str) -> None:
    def train(config: dict[str, Any]) -> None:
        for _ in range(2):
            report({"mean_loss": 0.5, "timesteps_this_iter": 10, "episodes_this_iter": 2})

    with wrap(train)({"lr": 1}, folder=tmp_path, mode=mode) as run:
        first, second, last = run.train(), run.train(), run.train()
    fields = """trial_id experiment_id training_iteration time_total_s timesteps_total episodes_total
        neg_mean_loss date timestamp pid hostname node_ip config iterations_since_restore time_since_restore done
        time_this_iter_s
        timesteps_since_restore episodes_since_restore mean_loss"""
    assert set(fields.split()) <= set(first)
    assert (first["training_iteration"], second["training_iteration"]) == (1, 2)
    assert (second["timesteps_total"], second["episodes_total"], second["neg_mean_loss"]) == (20, 4, -0.5)
    assert (first["pid"] == os.getpid()) == (mode == "thread")
    assert (last["done"], last["__duplicate__"], last["training_iteration"]) == (True, True, 2)
    assert [second["done"], "__duplicate__" in second, second["config"]] == [False, False, {"lr": 1}]


def test_a_new_checkpoint_is_not_new_in_the_last_result(tmp_path: Path) -> None:
    """FN-B7: `should_checkpoint` leaked into the duplicate."""
    with wrap(counting)({"last": 1}, folder=tmp_path) as run:
        assert run.train()["should_checkpoint"]
        last = run.train()
    assert last["done"]
    assert "should_checkpoint" not in last


@both
def test_a_checkpoint_after_the_last_report_is_saved(tmp_path: Path, mode: str) -> None:
    def train(config: dict[str, Any]) -> None:
        report(x=1)
        with checkpoint_dir(9) as folder:
            (folder / "count").write_text("9")

    with wrap(train)({}, folder=tmp_path, mode=mode) as run:
        run.train()
        assert run.train()["should_checkpoint"]
        assert Path(run.save(), "checkpoint", "count").read_text() == "9"


@both
def test_results_come_before_the_error_which_is_the_original_one(tmp_path: Path, mode: str) -> None:
    """FN-B6: the type and the cause were lost."""

    def train(config: dict[str, Any]) -> None:
        report(x=1)
        report(x=2)
        try:
            {}["key"]
        except KeyError as error:
            raise ZeroDivisionError("oh") from error

    with wrap(train)({}, folder=tmp_path, mode=mode) as run:
        assert [run.step()["x"], run.step()["x"]] == [1, 2]
        with pytest.raises(ZeroDivisionError, match="oh") as caught:
            run.step()
        assert isinstance(caught.value.__cause__, KeyError)
        if mode == "process":
            remote = caught.value.__cause__.__cause__
            assert isinstance(remote, RemoteTraceback)
            assert "in train" in str(remote)
            assert "function_host.py" not in str(remote)
        with refused(FunctionFinished):
            run.step()


@both
@pytest.mark.parametrize(("code", "exit_code"), [(3, 3), ("text", 1), (None, 0)])
def test_sys_exit_keeps_its_code(tmp_path: Path, mode: str, code: Any, exit_code: int) -> None:
    """FN-B6: it was reported as "ran until completion"."""

    def train(config: dict[str, Any]) -> None:
        report(x=1)
        raise SystemExit(code)

    with wrap(train)({}, folder=tmp_path, mode=mode) as run:
        assert run.step()["x"] == 1
        with refused(FunctionError) as caught:
            run.step()
    assert (caught.value.exit_code, type(caught.value.__cause__)) == (exit_code, SystemExit)


@pytest.mark.parametrize("how", ["exit", "kill"])
def test_a_process_that_dies_is_an_error_with_its_exit_code(tmp_path: Path, how: str) -> None:
    def train(config: dict[str, Any]) -> None:
        report(x=1)
        until(config["is_there"].exists)
        os._exit(5) if how == "exit" else os.kill(os.getpid(), signal.SIGKILL)

    is_there = tmp_path / "is-there"
    with wrap(train)({"is_there": is_there}, folder=tmp_path / "run", mode="process") as run:
        assert run.step()["x"] == 1
        is_there.touch()
        with refused(FunctionError) as caught:
            run.step()
    assert caught.value.exit_code == {"exit": 5, "kill": 137}[how]


@both
def test_it_does_not_run_a_second_time(tmp_path: Path, mode: str) -> None:
    """FN-B4: another `train()` ran the function from scratch."""
    with wrap(counting)({}, folder=tmp_path, mode=mode) as run:
        assert run.result() == "the value"
        for _ in range(2):
            with refused(FunctionFinished):
                run.train()
    assert len(scalars(tmp_path)) == 3


@both
def test_a_function_without_a_report_is_an_error_of_step_only(tmp_path: Path, mode: str) -> None:
    with wrap(lambda config: None)({}, folder=tmp_path / "a", mode=mode) as run:
        with refused(FunctionError):
            run.train()
        with pytest.raises(FunctionFinished):
            run.train()
    with wrap(lambda config: "value")({}, folder=tmp_path / "b", mode=mode) as run:
        assert run.result() == "value"


def test_an_error_that_cannot_be_pickled_comes_with_its_text(tmp_path: Path) -> None:
    def train(config: dict[str, Any]) -> None:
        class Odd(Exception):
            def __init__(self, a: int, b: int) -> None:
                super().__init__("an odd one")

        raise Odd(1, 2)

    with wrap(train)({}, folder=tmp_path, mode="process") as run, refused(FunctionError) as caught:
        run.step()
    assert "raise Odd(1, 2)" in str(caught.value.__cause__)


def test_a_value_that_cannot_be_sent_is_an_error(tmp_path: Path) -> None:
    run = FunctionRun(lambda config: threading.Lock(), folder=tmp_path, mode="process")
    with pytest.raises(FunctionError, match="cannot be sent"):
        run.result()


# ---- how far it is ahead


@both
def test_in_lock_step_each_report_waits_for_the_next_request(tmp_path: Path, mode: str) -> None:
    def train(config: dict[str, Any]) -> None:
        for step in range(1, 4):
            (config["log"] / str(step)).touch()
            report(x=step)

    with wrap(train)({"log": tmp_path}, folder=tmp_path / "run", mode=mode, lock_step=True) as run:
        for step in (1, 2, 3):
            assert run.step()["x"] == step
            time.sleep(0.05)
            assert not (tmp_path / str(step + 1)).exists()
        assert run.step()["done"]


def test_without_lock_step_reports_do_not_wait(tmp_path: Path) -> None:
    """FN-B11: training stalled until the driver polled."""
    ended = threading.Event()

    def train(config: dict[str, Any]) -> None:
        for step in range(2000):
            report(x=step)
        ended.set()

    with wrap(train)({}, folder=tmp_path) as run:
        run.step()
        assert ended.wait(PATIENCE_S)
        assert [run.step()["x"] for _ in range(3)] == [1, 2, 3]


def test_what_is_ahead_is_bounded(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    seen: list[int] = []
    has_begun = threading.Event()  # otherwise it may be ahead before its first result is requested

    def train(config: dict[str, Any]) -> None:
        assert has_begun.wait(PATIENCE_S)
        for step in range(100):
            seen.append(step)
            report(x=step)

    with wrap(train)({}, folder=tmp_path, ahead=5) as run:
        with pytest.raises(TimeoutError):
            run.result(timeout_s=0)  # requests the first result
        has_begun.set()
        run.step()
        until(lambda: "the training waits" in caplog.text)
        assert len(seen) == 6
        run.result()
    assert len(seen) == 100


def test_a_wait_with_a_timeout_leaves_it_running(tmp_path: Path) -> None:
    go_on = threading.Event()

    def train(config: dict[str, Any]) -> str:
        report(x=1)
        go_on.wait(PATIENCE_S)
        return "end"

    with wrap(train)({}, folder=tmp_path) as run:
        with pytest.raises(TimeoutError):
            run.result(0.05)
        go_on.set()
        assert run.result(PATIENCE_S) == "end"


# ---- several


@both
def test_a_wait_for_a_result_does_not_wait_for_its_checkpoint(tmp_path: Path, mode: str) -> None:
    held = held_save(tmp_path)
    with wrap(train_and_save)({"tmp": str(tmp_path)}, folder=tmp_path / "run", mode=mode) as run:
        run.step()
        until((tmp_path / "saving").exists)
        with pytest.raises(TimeoutError):
            run.result(0.05)
        held.touch()
        assert run.step()["x"] == 2


def test_runs_share_nothing(tmp_path: Path) -> None:
    """FN-B5: two in one process shared the session."""
    barrier = threading.Barrier(8)

    def train(config: dict[str, Any]) -> str:
        barrier.wait(PATIENCE_S)
        for step in range(1, 6):
            with checkpoint_dir(step) as folder:
                (folder / "n").write_text(str(config["n"]))
            report({"n": config["n"]}, step=step)
            if config["n"] % 2:
                barrier_odd.wait(PATIENCE_S)
        assert get_context().job_id == f"run-{config['n']}"
        return str(config["n"])

    barrier_odd = threading.Barrier(4)
    runs = [wrap(train)({"n": n}, folder=tmp_path / str(n), run_id=f"run-{n}") for n in range(8)]
    [run.start() for run in runs]
    assert [run.result(PATIENCE_S) for run in runs] == list("01234567")
    for n in range(8):
        assert scalars(tmp_path / str(n)) == [("n", step, float(n)) for step in range(1, 6)]
        assert (tmp_path / str(n) / "checkpoints" / "5" / "n").read_text() == str(n)


def test_the_end_of_one_run_leaves_the_others(tmp_path: Path) -> None:
    def train(config: dict[str, Any]) -> None:
        while True:
            report(x=1)

    first, second = (wrap(train)({}, folder=tmp_path / name, lock_step=True) for name in "ab")
    first.step(), second.step()
    first.stop()
    assert [second.step()["x"] for _ in range(3)] == [1, 1, 1]
    second.stop()


def test_a_config_is_copied(tmp_path: Path) -> None:
    config = {"x": 1}
    FunctionRun(lambda given: given.update(x=2), config, folder=tmp_path).result()
    assert config == {"x": 1}


@both
def test_the_folder_is_there_while_the_function_runs(tmp_path: Path, mode: str) -> None:
    def train(config: dict[str, Any]) -> dict[str, float]:
        Path(function_runner.get_trial_dir(), "notes").write_text("x")
        return {"found": float((get_context().folder / "notes").exists())}

    with wrap(train)({}, folder=tmp_path / "deep" / "run", mode=mode) as run:
        assert run.step()["found"] == 1


@both
def test_a_reported_done_is_kept(tmp_path: Path, mode: str) -> None:
    def train(config: dict[str, Any]) -> None:
        report(x=1, done=False)
        report(x=2, done=True)
        report(x=3)

    with wrap(train)({}, folder=tmp_path / "a", mode=mode) as run:
        assert [run.train()["done"] for _ in range(4)] == [False, True, False, True]
    with wrap(train)({}, folder=tmp_path / "b", mode=mode) as run:
        assert [(result["x"], result["done"]) for result in run] == [(1, False), (2, True), (3, False)]


def test_the_default_folder_is_in_the_home(clean_home: Path) -> None:
    run = wrap(counting)({})
    run.result()
    assert run.folder == clean_home / ".pai" / "runs" / run.run_id
    assert is_complete(run.folder / "checkpoints" / "3")


# ---- checkpoints


@both
def test_saved_and_restored_with_its_counters(tmp_path: Path, mode: str) -> None:
    with wrap(counting)({"last": 5}, folder=tmp_path / "a", mode=mode, lock_step=True) as run:
        run.train(), run.train()
        saved = run.save()
        total = run.last_result["time_total_s"]
    with wrap(counting)({"last": 5}, folder=tmp_path / "b", mode=mode) as run:
        run.restore(saved)
        result = run.train()
        assert (result["count"], result["training_iteration"], result["iterations_since_restore"]) == (3, 3, 1)
        assert result["time_total_s"] == pytest.approx(total + result["time_since_restore"])
        assert run.result() == "the value"
        last = run.save()
    assert Path(saved, "checkpoint", "count").read_text() == "2"
    assert Path(last, "checkpoint", "count").read_text() == "5"


def test_a_run_can_be_restored_while_it_runs_and_after_its_end(tmp_path: Path) -> None:
    with wrap(counting)({"last": 4}, folder=tmp_path, lock_step=True) as run:
        run.train()
        first = run.save()
        run.train(), run.train()
        run.restore(first)
        assert run.train()["count"] == 2
        assert run.result() == "the value"
        run.restore(first)
        assert (run.train()["count"], run.training_iteration) == (2, 2)


def test_saved_folders_do_not_change(tmp_path: Path) -> None:
    def train(config: dict[str, Any]) -> None:
        for number in range(4):
            with checkpoint_dir(0) as folder:  # the same step each time
                (folder / "n").write_text(str(number))
            report(n=number)

    with wrap(train)({}, folder=tmp_path, lock_step=True) as run:
        saved = [(run.train()["n"], run.save()) for _ in range(4)]
    assert [Path(path, "checkpoint", "n").read_text() for _, path in saved] == ["0", "1", "2", "3"]
    assert all(is_complete(Path(path, "checkpoint"), checksums=True) for _, path in saved)


def test_without_a_checkpoint_the_saved_state_is_from_scratch(tmp_path: Path) -> None:
    with wrap(generator)({}, folder=tmp_path) as run:
        run.train()
        saved = run.save()
        assert names(Path(saved)) == ["state.json"]
    with wrap(counting)({}, folder=tmp_path / "b") as run:
        run.result()  # leaves checkpoints in the folder
        run.restore(saved)
        result = run.train()
        assert (result["count"], result["training_iteration"]) == (1, 1)


def test_saved_paths_stay_right_in_another_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with wrap(counting)({}, folder="runs/a") as run:
        run.result()
        saved = run.save()
    monkeypatch.chdir("/")
    assert Path(saved, "checkpoint", "count").read_text() == "3"


def test_save_takes_no_path(tmp_path: Path) -> None:
    with refused(ValueError, "checkpoint_dir"):
        wrap(counting)({}, folder=tmp_path).save("elsewhere")  # type: ignore[arg-type]


def test_the_checkpoint_of_a_job_can_be_restored(tmp_path: Path) -> None:
    wrap(counting)({"last": 2}, folder=tmp_path).result()
    with wrap(counting)({}, folder=tmp_path / "b") as run:
        run.restore(tmp_path / "checkpoints" / "2")
        assert (run.train()["count"], run.training_iteration) == (3, 1)


def test_an_earlier_run_in_the_folder_goes_on(tmp_path: Path) -> None:
    wrap(counting)({"last": 2}, folder=tmp_path).result()
    with wrap(counting)({"last": 4}, folder=tmp_path) as run:
        assert [result["count"] for result in run] == [3, 4]


@both
def test_objects_and_no_path_dangles(tmp_path: Path, mode: str) -> None:
    """FN-B1: the second save() after restore_from_object() returned the temporary folder, removed on stop."""
    with wrap(counting)({"last": 2}, folder=tmp_path / "a") as run:
        run.result()
        content = run.save_to_object()
    assert isinstance(content, bytes)
    with wrap(counting)({"last": 4}, folder=tmp_path / "b", mode=mode) as run:
        run.restore_from_object(content)
        saved = [run.save(), run.save()]
        assert run.train()["count"] == 3
    assert saved[0] == saved[1]
    assert Path(saved[1], "checkpoint", "count").read_text() == "2"
    assert Path(saved[1]).is_relative_to(tmp_path / "b" / "saved")
    assert json.loads(Path(saved[1], "state.json").read_text())["counters"]["iteration"] == 2


def test_temporary_folders_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """FN-B8: a second restore_from_object() left the first folder behind."""
    with wrap(counting)({"last": 2}, folder=tmp_path / "a") as run:
        run.result()
        content = run.save_to_object()
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    with wrap(counting)({}, folder=tmp_path / "b") as run:
        for _ in range(3):
            run.restore_from_object(content)
            assert len(names(tmp_path / "tmp")) == 1
        with pytest.raises(CheckpointError):
            run.restore_from_object(b"no archive")
        assert run.train()["count"] == 3
    assert names(tmp_path / "tmp") == []


def archive(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w") as tar:
        for info, content in members:
            info.size = len(content) if info.isreg() else 0
            tar.addfile(info, io.BytesIO(content))
    return whole.getvalue()


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info


STATE = (member("state.json"), b"{}")


@pytest.mark.parametrize(
    "content",
    [
        archive((member("../outside"), b"x"), STATE),
        archive((member("/tmp/outside"), b"x"), STATE),
        archive((member("a\\..\\b"), b"x"), STATE),
        archive((member("link", tarfile.SYMTYPE, "/etc/passwd"), b""), STATE),
        archive((member("link", tarfile.LNKTYPE, "state.json"), b""), STATE),
        archive((member("pipe", tarfile.FIFOTYPE), b""), STATE),
        archive(STATE, STATE),
        archive((member("state.json"), b"[1]")),
        archive((member("state.json"), b"\xff")),
        archive((member("checkpoint/weights"), b"x"), STATE),
        b"",
        b"x" * 2000,
        archive(STATE)[:600],
        b"\x80\x04\x95\x0b\x00\x00\x00\x00\x00\x00\x00\x8c\x07builtins\x94.",
    ],
)
def test_hostile_and_damaged_objects_are_refused(tmp_path: Path, content: bytes) -> None:
    """FN-B8: a pickle whose names could lead out of the folder."""
    run = wrap(counting)({}, folder=tmp_path / "run")
    before = names(tmp_path)
    with pytest.raises(CheckpointError):
        run.restore_from_object(content)
    assert names(tmp_path) == before
    run.stop()


def test_a_changed_byte_is_found(tmp_path: Path) -> None:
    with wrap(counting)({"last": 2}, folder=tmp_path / "a") as run:
        run.result()
        folder = Path(run.save())
    (folder / "checkpoint" / "count").write_text("9")
    with refused(CheckpointError):
        wrap(counting)({}, folder=tmp_path / "b").restore_from_object(saved_state.pack(folder))


def test_what_is_no_saved_state_is_refused(tmp_path: Path) -> None:
    """FN-B2: dicts and odd texts were a TypeError deep inside."""
    (tmp_path / "tune_checkpoint_path").mkdir()
    with refused(CheckpointError):
        wrap(counting)({}, folder=tmp_path / "run").restore(tmp_path / "tune_checkpoint_path")

    def train(config: dict[str, Any]) -> None:
        report({"x": 1}, checkpoint={"weights": 1})  # type: ignore[arg-type]

    with wrap(train)({}, folder=tmp_path / "b") as run, refused(TypeError):
        run.step()


def test_a_save_that_is_cut_off_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with wrap(counting)({"last": 1}, folder=tmp_path) as run:
        run.result()
        with monkeypatch.context() as patch:
            patch.setattr(saved_state, "save", lambda *_, **__: (_ for _ in ()).throw(OSError("disk full")))
            with pytest.raises(OSError, match="disk full"):
                run.save()
        assert names(tmp_path / "saved") == []
        assert Path(run.save()).name == "1"


# ---- the end


def endless(config: dict[str, Any]) -> None:
    try:
        while True:
            report(x=1)
            time.sleep(0.001)
    finally:
        Path(config["end"]).touch()


@both
@pytest.mark.parametrize("lock_step", [False, True])
def test_stop_ends_the_function_in_its_report(tmp_path: Path, mode: str, lock_step: bool) -> None:
    """FN-B3: the thread stayed, blocked for ever."""
    before = set(threading.enumerate())
    run = wrap(endless)({"end": str(tmp_path / "end")}, folder=tmp_path / "run", mode=mode, lock_step=lock_step)
    run.train()
    pid = run._pid
    run.stop()
    assert (tmp_path / "end").exists()
    assert set(threading.enumerate()) <= before
    assert mode == "thread" or has_ended(pid)
    run.stop()
    with refused(FunctionFinished):
        run.train()


def test_stop_training_passes_except_exception(tmp_path: Path) -> None:
    def train(config: dict[str, Any]) -> None:
        while True:
            with contextlib.suppress(Exception):
                report(x=1)

    run = wrap(train)({}, folder=tmp_path, lock_step=True)
    run.train()
    run.stop()
    assert issubclass(StopTraining, BaseException)


def test_a_generator_cleans_up_when_it_is_stopped(tmp_path: Path) -> None:
    closed = []

    def train(config: dict[str, Any]) -> Iterator[float]:
        try:
            while True:
                yield 1.0
        finally:
            closed.append(True)

    run = wrap(train)({}, folder=tmp_path, lock_step=True)
    run.step()
    run.stop()
    assert closed == [True]


def test_a_thread_that_does_not_report_is_named(tmp_path: Path) -> None:
    go_on = threading.Event()

    def train(config: dict[str, Any]) -> None:
        report(x=1)
        go_on.wait(PATIENCE_S)

    run = wrap(train)({}, folder=tmp_path)
    run.step()
    with refused(FunctionError):
        run.stop(0.05)
    go_on.set()
    run.stop()


@both
def test_stop_waits_for_a_save_that_is_under_way(
    tmp_path: Path, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It was blamed on the function, and killed with its process."""
    held = held_save(tmp_path)
    run = wrap(train_and_save)({"tmp": str(tmp_path)}, folder=tmp_path / "run", mode=mode)
    assert run.step()["x"] == 1
    until((tmp_path / "saving").exists)
    release = threading.Thread(target=lambda: (until(lambda: caplog.records), held.touch()))
    release.start()
    run.stop(0.05)
    release.join()
    assert is_complete(tmp_path / "run" / "checkpoints" / "7")
    messages = [record.getMessage() for record in caplog.records]
    assert messages == [f"stop() of {run.run_id} waits until the checkpoint of step 7 is saved"]
    with pytest.raises(FunctionFinished):
        run.step()


@both
def test_a_validation_under_way_is_named(tmp_path: Path, mode: str) -> None:
    held = held_save(tmp_path)
    run = wrap(train_and_validate)({"tmp": str(tmp_path)}, folder=tmp_path / "run", mode=mode)
    run.step()
    until((tmp_path / "saving").exists)
    with refused(FunctionError):
        run.stop(0.05, save_s=0.1)
    held.touch()
    run.stop()
    assert is_complete(tmp_path / "run" / "checkpoints" / "7")


@both
def test_a_save_that_takes_too_long_is_named(tmp_path: Path, mode: str) -> None:
    held = held_save(tmp_path)
    run = wrap(train_and_save)({"tmp": str(tmp_path)}, folder=tmp_path / "run", mode=mode)
    run.step()
    until((tmp_path / "saving").exists)
    with refused(FunctionError):
        run.stop(0.05, save_s=0.1)
    held.touch()
    run.stop()
    assert is_complete(tmp_path / "run" / "checkpoints" / "7") == (mode == "thread")
    with pytest.raises(FunctionFinished):
        run.step()


def test_a_function_that_hangs_is_named_although_it_has_saved(tmp_path: Path) -> None:
    go_on = threading.Event()

    def train(config: dict[str, Any]) -> None:
        counting({"last": 1})
        go_on.wait(PATIENCE_S)

    run = wrap(train)({}, folder=tmp_path)
    run.step()
    with refused(FunctionError):
        run.stop(0.05)
    go_on.set()
    run.stop()


def held_save(folder: Path) -> Path:
    """The file that lets `train_and_save` save its checkpoint."""
    (folder / "model").mkdir()
    (folder / "model" / "weights").write_text("1.0")
    return folder / "held"


def train_and_validate(config: dict[str, Any]) -> None:
    def validate(checkpoint: Any) -> dict[str, float]:
        Path(config["tmp"], "saving").touch()
        until(Path(config["tmp"], "held").exists)
        return {"score": 1.0}

    report(x=1)
    report({"x": 2}, step=7, checkpoint=Path(config["tmp"], "model"), validation=validate)


def train_and_save(config: dict[str, Any]) -> None:
    def copy(checkpoint: Any, target: str) -> None:
        Path(config["tmp"], "saving").touch()
        until(Path(config["tmp"], "held").exists)
        Path(target, "weights").write_text("1.0")

    report(x=1)
    report({"x": 2}, step=7, checkpoint=Path(config["tmp"], "model"), checkpoint_upload_fn=copy)


def test_a_process_that_hangs_is_killed_with_all_it_has_started(tmp_path: Path) -> None:
    def train(config: dict[str, Any]) -> None:
        import subprocess

        child = subprocess.Popen(["sleep", "600"])
        report(child=child.pid)
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
        time.sleep(600)

    run = wrap(train)({}, folder=tmp_path, mode="process")
    child = int(run.step()["child"])
    run.stop(0.1)
    assert has_ended(run._pid)
    until(lambda: has_ended(child))


def test_a_process_ends_with_its_parent(tmp_path: Path) -> None:
    program = """
import os, sys, time
from pai_sdk import report
from pai_sdk._data.run.functions.function_run import FunctionRun

def train(config):
    while True:
        report(x=1)
        time.sleep(0.01)

run = FunctionRun(train, {}, folder=sys.argv[1], mode="process")
print(run.train()["pid"], flush=True)
os._exit(0)
"""
    import subprocess
    import sys

    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, timeout=100, check=True
    )
    until(lambda: has_ended(int(done.stdout)))


@both
@pytest.mark.parametrize("count", [30, pytest.param(1000, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])])
def test_nothing_is_left_of_many_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, count: int
) -> None:
    if mode == "process":
        count //= 10  # each starts a Python
    with wrap(counting)({"last": 2}, folder=tmp_path / "first", mode=mode) as run:  # loads modules
        run.result()
        content = run.save_to_object()
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    process = psutil.Process()
    before = process.num_threads(), process.num_fds(), len(process.children(recursive=True))
    for number in range(count):
        with wrap(endless)({"end": str(tmp_path / "end")}, folder=tmp_path / f"{number}", mode=mode) as run:
            run.restore_from_object(content)
            run.step()
    after = process.num_threads(), process.num_fds(), len(process.children(recursive=True))
    # Fewer than before when those of an earlier test have ended meanwhile.
    assert all(now <= then for now, then in zip(after, before, strict=True))
    assert names(tmp_path / "tmp") == []


# ---- the original names


def test_the_original_names(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def train(config: dict[str, Any]) -> None:
        assert function_runner.is_session_enabled()
        assert function_runner.get_trial_dir() == function_runner.get_trial_logdir() == str(tmp_path)
        function_runner.report(0.5, loss=function_runner.get_trial_id() == "the-run")

    kind = function_runner.wrap_function(train)
    assert (kind.__name__, issubclass(kind, function_runner.FunctionRunner)) == ("train", True)
    assert "takes no checkpoint_dir" in caplog.text
    caplog.clear()
    function_runner.wrap_function(of_checkpoint_dir)
    function_runner.wrap_function(train, warn=False)
    assert caplog.text == ""
    with kind({}, folder=tmp_path, run_id="the-run") as run:
        result = run.train()
    assert (result["_metric"], result["loss"]) == (0.5, True)
    assert not function_runner.is_session_enabled()


def test_all_keywords_of_the_original_report_are_metrics(tmp_path: Path) -> None:
    made = tmp_path / "model"
    made.mkdir()
    (made / "weights").write_text("1.0")

    def train(config: dict[str, Any]) -> None:
        function_runner.report(loss=0.5, step=3, validation=0.25)
        function_runner.report(loss=0.4, step=0.5)
        function_runner.report({"loss": 0.3}, validation=lambda found: {"score": 1.0}, checkpoint=made)
        function_runner.report(metrics={"loss": 0.2}, checkpoint_upload_mode="SYNC", checkpoint=made)

    with wrap(train)({}, folder=tmp_path / "run") as run:
        results = [{name: result.get(name) for name in ("loss", "step", "validation")} for result in run]
    assert results == [
        {"loss": 0.5, "step": 3, "validation": 0.25},
        {"loss": 0.4, "step": 0.5, "validation": None},
        {"loss": 0.3, "step": None, "validation": None},
        {"loss": 0.2, "step": None, "validation": None},
    ]
    assert sorted(scalars(tmp_path / "run")) == [
        *(("loss", step, loss) for step, loss in ((3, 0.5), (4, 0.4), (5, 0.3), (6, 0.2))),
        ("score", 5, 1.0),
        ("step", 3, 3.0),
        ("step", 4, 0.5),
        ("validation", 3, 0.25),
    ]


def test_a_runner_gets_another_config(tmp_path: Path) -> None:
    with function_runner.wrap_function(counting)({"last": 1}, folder=tmp_path, lock_step=True) as run:
        assert run.execute(lambda same: same.train()["count"]) == 1
        saved = run.save()
        assert run.reset_config({"last": 2}) is True
        result = run.train()  # from scratch
        assert (result["count"], result["training_iteration"], result["config"]) == (1, 1, {"last": 2})
        run.load_checkpoint(saved)
        result = run.train()
        assert (result["count"], result["training_iteration"]) == (2, 2)
        run.cleanup()
        with pytest.raises(FunctionFinished):
            run.train()


def test_a_runner_deletes_what_it_has_saved_and_nothing_else(tmp_path: Path) -> None:
    with function_runner.wrap_function(counting)({}, folder=tmp_path / "run", lock_step=True) as run:
        run.train()
        first = run.save()
        run.restore(first)
        with refused(CheckpointError):
            run.delete_checkpoint(first)
        run.train()
        second = run.save()
        run.delete_checkpoint(first)
        run.delete_checkpoint(first)  # it is gone already
        run.delete_checkpoint(second)
        assert names(tmp_path / "run" / "saved") == []
        third = run.save()
        assert is_complete(Path(third) / "checkpoint")
        (tmp_path / "saved" / "1").mkdir(parents=True)
        for other in (tmp_path / "saved" / "1", Path(third).parent, Path(third) / "checkpoint"):
            with refused(CheckpointError):
                run.delete_checkpoint(other)
            assert other.exists()


def test_an_error_pickles(tmp_path: Path) -> None:
    import pickle

    error = pickle.loads(pickle.dumps(FunctionError("oh", exit_code=3)))
    assert (str(error), error.exit_code) == ("oh", 3)
