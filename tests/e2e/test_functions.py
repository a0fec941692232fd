"""Functions as jobs on the embedded service; the same function in a thread, in a process and as a job."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from pai_sdk import Estimator, Session, TrainingJob, checkpoint_dir, get_checkpoint, remote, report
from pai_sdk._data.run.events.records import read_scalars
from pai_sdk._data.run.functions.function_run import FunctionRun
from pai_sdk._data.run.report.checkpoints import is_complete
from pai_sdk.errors import FunctionError, JobFailed, RemoteTraceback
from tests.support.waiting import PATIENCE_S
from tests.trials import functions

IMAGE = "python"


def counting(config: dict[str, Any]) -> str:
    """Six steps with a checkpoint each. The first run of it is killed after the third one."""
    start = get_checkpoint()
    first = 1 if start is None else int((start.path / "count").read_text()) + 1
    for step in range(first, 7):
        report({"loss": config["lr"] / step, "eval": {"step": step}}, step=step)
        with checkpoint_dir(step) as folder:
            (folder / "count").write_text(str(step))
        if start is None and step == 3 and config["killed"]:
            import time

            from pai_sdk._data.run.report import session as reporting

            while get_checkpoint() is None or get_checkpoint().step != 3:
                time.sleep(0.01)
            session = reporting.bound_session.get() or reporting._job_session
            session.flush()
            raise MemoryError("killed") if config["killed"] == "thread" else os.kill(os.getpid(), signal.SIGKILL)
    return "the value"


def found_in(tensorboard: Path, checkpoints: Path) -> tuple[Any, Any]:
    """Metrics and checkpoints of a run."""
    files = sorted(tensorboard.rglob("*tfevents*"))
    metrics = sorted((event.step, event.tag, event.value) for path in files for event in read_scalars(path))
    folders = sorted(path for path in checkpoints.iterdir() if path.is_dir())
    assert all(is_complete(path, checksums=True) for path in folders)
    return metrics, [(path.name, (path / "count").read_text()) for path in folders]


WANTED = (
    sorted((step, *pair) for step in range(1, 7) for pair in (("loss", 0.6 / step), ("eval/step", float(step)))),
    [(str(step), str(step)) for step in range(1, 7)],
)


@pytest.mark.parametrize("mode", ["thread", "process"])
def test_killed_and_resumed_here(tmp_path: Path, mode: str) -> None:
    with pytest.raises(MemoryError if mode == "thread" else FunctionError):
        FunctionRun(counting, {"lr": 0.6, "killed": mode}, folder=tmp_path, mode=mode).result(PATIENCE_S)
    run = FunctionRun(counting, {"lr": 0.6, "killed": ""}, folder=tmp_path, mode=mode)
    assert run.result(PATIENCE_S) == "the value"
    assert found_in(tmp_path / "tensorboard", tmp_path / "checkpoints") == WANTED


def test_killed_and_resumed_as_a_job(tmp_path: Path, session: Session) -> None:
    killed_and_resumed_as_a_job(tmp_path, session=session, instance_type="ecs.c6.large", image_uri=IMAGE)


def killed_and_resumed_as_a_job(folder: Path, **place: Any) -> None:
    """The same on a service or in Docker; the metrics of both jobs together are those of one run."""

    def fit(killed: str, **more: Any) -> tuple[Any, TrainingJob]:
        estimator = Estimator.from_function(
            counting, hyperparameters={"lr": 0.6, "killed": killed}, **place, **more
        )
        return estimator, estimator.fit(wait=False, show_logs=False)

    estimator, first = fit("process")
    with pytest.raises(JobFailed) as caught:
        first.result(PATIENCE_S)
    assert caught.value.exit_code == 137
    _, second = fit("", checkpoints_path=estimator.checkpoints_data())
    assert second.result(PATIENCE_S) == "the value"
    for name, job in (("first", first), ("second", second)):
        job.download("tensorboard", folder / "tensorboard" / name, progress=False)
    second.download("checkpoints", folder / "checkpoints", progress=False)
    assert found_in(folder / "tensorboard", folder / "checkpoints") == WANTED
    steps = [[point.step for point in job.metrics("loss")] for job in (first, second)]
    assert steps == [[1, 2, 3], [4, 5, 6]]


def test_a_call_is_a_job_and_gives_its_value(session: Session, capsys: pytest.CaptureFixture[str]) -> None:
    offset = 10

    @remote(instance_type="ecs.c6.large", image_uri=IMAGE, session=session)
    def add(a: int, b: int = 2) -> dict[str, Any]:
        print("adding", a, b)
        return {"sum": a + b + offset, "where": Path.cwd()}

    value = add(1)
    assert value["sum"] == 13
    assert value["where"].name == "usercode"
    assert "adding 1 2" in capsys.readouterr().out
    job = add.submit(5, b=6)
    assert job.result(timeout=PATIENCE_S)["sum"] == 21
    other = TrainingJob.get(job.id, session=session)
    assert other.result(PATIENCE_S)["sum"] == 21
    assert [line.text for line in job.logs()][-1] == "adding 5 6"


def test_an_error_comes_back_as_itself(session: Session) -> None:
    class Odd(ValueError):
        pass

    @remote(instance_type="ecs.c6.large", image_uri=IMAGE, session=session, show_logs=False)
    def fail(how: str) -> None:
        if how == "exit":
            raise SystemExit(3)
        raise Odd("oh")

    with pytest.raises(Odd, match="oh") as caught:
        fail("raise")
    assert isinstance(caught.value.__cause__, RemoteTraceback)
    assert 'raise Odd("oh")' in str(caught.value.__cause__) or "in fail" in str(caught.value.__cause__)
    with pytest.raises(FunctionError) as exited:
        fail("exit")
    assert exited.value.exit_code == 3
    assert {job.status for job in fail.estimator.jobs} == {"Failed"}
    results = fail.map(["raise", "exit"], return_exceptions=True)
    assert [type(each) for each in results] == [Odd, FunctionError]
    with pytest.raises(Odd):
        fail.map(["raise", "exit"])


def test_each_instance_runs_the_call_and_the_first_has_the_value(session: Session) -> None:
    @remote(instance_type="c", image_uri=IMAGE, instance_count=2, session=session, show_logs=False)
    def rank(fails: bool) -> int:
        number = int(os.environ["RANK"])
        if fails and number:
            raise ArithmeticError(number)
        return number

    assert rank(False) == 0
    with pytest.raises(ArithmeticError):
        rank(True)


def test_code_comes_along(tmp_path: Path, session: Session) -> None:
    (tmp_path / "helper_of_job.py").write_text("def double(x):\n    return 2 * x\n")

    @remote(instance_type="c", image_uri=IMAGE, source_dir=tmp_path, session=session, show_logs=False)
    def train(x: int) -> int:
        from helper_of_job import double  # type: ignore[import-not-found]

        return int(double(x))

    assert train(4) == 8


@pytest.mark.timeout(600)
def test_each_of_many_ends_once_although_the_service_is_killed(tmp_path: Path) -> None:
    """The short form of `python -m tests.trials functions`."""
    trial = functions.run(tmp_path, jobs=8, kills=1, seed=1)
    assert trial.faults == [], str(trial)
    assert trial.kills == 1
