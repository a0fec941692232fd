"""The ranks of a launch resume from the same checkpoint, however late each of them asks."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from pai_sdk._data.run.report.checkpoints import CheckpointConfig, complete_checkpoints, read_checkpoint
from pai_sdk._data.run.report.context import Context
from pai_sdk._data.run.report.report_session import ReportSession
from pai_sdk._data.storage.stores.local import LocalStore
from pai_sdk.errors import CheckpointError
from tests.support.messages import refused


class Launch:
    """The processes of one launch of a job, each with its session."""

    def __init__(self, stack: ExitStack, folder: Path, size: int = 2, job: str = "train-1") -> None:
        self._stack = stack
        self._folder = folder
        self._size = size
        self._job = job
        self._sessions: dict[int, ReportSession] = {}

    def rank(self, number: int) -> ReportSession:
        if number not in self._sessions:
            context = Context(self._job, f"{self._job}-{number}", number, self._size, folder=self._folder)
            self._sessions[number] = self._stack.enter_context(ReportSession(self._folder, context=context))
        return self._sessions[number]

    def save(self, steps: Sequence[int], rank: int = 0) -> None:
        for step in steps:
            with self.rank(rank).checkpoint_dir(step) as folder:
                (folder / "weights").write_text(str(step))
        self.rank(rank)._saver.wait()

    def start_of(self, number: int) -> int | None:
        found = self.rank(number).checkpoint()
        return None if found is None else int((found.path / "weights").read_text())


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def kept(folder: Path) -> list[int | None]:
    return [found.step for found in complete_checkpoints(folder / "checkpoints")][::-1]


def test_metrics_that_come_later_leave_the_launch(tmp_path: Path, stack: ExitStack) -> None:
    launch = Launch(stack, tmp_path)
    launch.save([1])
    launch.rank(0).report({"loss": 1.0}, step=1)
    launch.rank(0)._saver.wait()
    found = read_checkpoint(tmp_path / "checkpoints" / "1")
    assert found is not None
    assert found.metrics == {"loss": 1.0}
    assert launch.start_of(1) is None


@pytest.mark.parametrize("asks", [True, False])
def test_a_late_rank_begins_where_rank_0_has_begun(tmp_path: Path, stack: ExitStack, asks: bool) -> None:
    launch = Launch(stack, tmp_path)
    if asks:
        assert launch.start_of(0) is None
    launch.save(range(1, 5))
    assert launch.start_of(0) == 4  # its own ones
    assert launch.start_of(1) is None
    assert launch.start_of(1) is None  # asked twice
    launch.save([5])  # begun when all have asked
    assert launch.start_of(1) == 5


@pytest.mark.parametrize(("own", "start"), [([1, 2, 3, 4], 3), ([3, 4], 3), ([2, 4], 2), ([4, 5], 3), ([1], 1)])
def test_a_rank_resumes_from_no_later_step_than_rank_0(
    tmp_path: Path, stack: ExitStack, own: Sequence[int], start: int
) -> None:
    """The job was killed when rank 1 had saved a step that rank 0 had not."""
    killed = Launch(stack, tmp_path, job="train-0")
    killed.save([1, 3])
    killed.save(own, rank=1)
    launch = Launch(stack, tmp_path)
    assert (launch.start_of(0), launch.start_of(1), launch.start_of(1)) == (3, start, start)
    launch.save([4, 5, 6], rank=1)
    assert launch.start_of(1) == 6  # saved by this process


def test_when_all_have_asked_all_see_the_newest(tmp_path: Path, stack: ExitStack) -> None:
    launch = Launch(stack, tmp_path, size=3)
    assert [launch.start_of(rank) for rank in (2, 0, 1)] == [None] * 3
    launch.save([1])
    assert [launch.start_of(rank) for rank in (0, 1, 2)] == [1, 1, 1]


def test_a_resumed_job_keeps_its_start_until_all_have_asked(tmp_path: Path, stack: ExitStack) -> None:
    Launch(stack, tmp_path, size=3, job="train-0").save([1, 2])
    launch = Launch(stack, tmp_path, size=3)
    launch.rank(0).checkpoint_config = CheckpointConfig(num_to_keep=1)
    launch.save([3, 4])
    assert launch.start_of(1) == 2
    launch.save([5, 6])
    assert kept(tmp_path) == [2, 6]
    assert launch.start_of(2) == 2
    launch.save([7])
    assert launch.start_of(1) == launch.start_of(2) == 7
    launch.save([8])  # by now, those that have asked have read it
    assert kept(tmp_path) == [8]


def test_a_rank_that_reports_needs_not_ask(tmp_path: Path, stack: ExitStack) -> None:
    launch = Launch(stack, tmp_path)
    launch.rank(1).report({"loss": 1.0})
    launch.rank(1)._saver.wait()
    launch.save([1])
    assert launch.start_of(1) == 1


def test_a_new_launch_of_the_job_sees_the_newest(tmp_path: Path, stack: ExitStack) -> None:
    """torchrun starts all processes again; which one asks first is chance."""
    first = Launch(stack, tmp_path, size=3)
    assert first.start_of(1) is None
    first.save([1, 2])  # rank 2 has not asked
    for _ in range(2):  # the second launch ends before rank 0 has saved anything
        again = Launch(stack, tmp_path, size=3)
        assert [again.start_of(rank) for rank in (1, 0)] == [2, 2]
    again.save([3, 4])
    assert (again.start_of(1), again.start_of(2)) == (2, 2)  # asked again, and asked late
    last = Launch(stack, tmp_path, size=3)
    assert [last.start_of(rank) for rank in (2, 1, 0)] == [4, 4, 4]


def test_torchrun_counts_its_restarts(tmp_path: Path, stack: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "0")
    Launch(stack, tmp_path).save([1, 2])  # rank 1 ended before it asked
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    launch = Launch(stack, tmp_path)
    assert launch.start_of(1) == 2
    launch.save([3])
    assert launch.start_of(1) == 3


def test_the_next_job_sees_the_newest(tmp_path: Path, stack: ExitStack) -> None:
    Launch(stack, tmp_path, job="train-0").save([1, 2])
    launch = Launch(stack, tmp_path)
    assert launch.start_of(1) == 2
    launch.save([3])
    assert launch.start_of(1) == 3


def test_each_rank_begins_with_its_own_checkpoint_if_it_has_one(tmp_path: Path, stack: ExitStack) -> None:
    before = Launch(stack, tmp_path, job="train-0")
    before.save([2])
    with before.rank(1).checkpoint_dir(2) as folder:
        (folder / "weights").write_text("12")
    before.rank(1)._saver.wait()
    launch = Launch(stack, tmp_path)
    launch.save([3])
    assert launch.start_of(1) == 12


def test_a_start_that_was_removed_is_an_error(tmp_path: Path, stack: ExitStack) -> None:
    Launch(stack, tmp_path, job="train-0").save([1])
    launch = Launch(stack, tmp_path)
    launch.save([2])
    (tmp_path / "checkpoints" / "1" / "_COMPLETE").unlink()
    with refused(CheckpointError):
        launch.rank(1).checkpoint()


def test_the_notes_are_in_no_output(tmp_path: Path, stack: ExitStack) -> None:
    launch = Launch(stack, tmp_path)
    assert launch.start_of(1) is None
    launch.save([1])
    checkpoints = tmp_path / "checkpoints"
    assert sorted(path.name for path in checkpoints.iterdir()) == ["1", "rank-1"]
    assert [file.path for file in LocalStore(checkpoints).list()] == ["1/_COMPLETE", "1/weights"]


@pytest.mark.parametrize("launch", [3, {}, {"job": "train-1", "id": 1}, {"job": "train-1", "step": "x"}])
def test_a_marker_of_something_else_counts_as_an_earlier_one(
    tmp_path: Path, stack: ExitStack, launch: object
) -> None:
    Launch(stack, tmp_path).save([1])
    marker = tmp_path / "checkpoints" / "1" / "_COMPLETE"
    marker.write_text(json.dumps({**json.loads(marker.read_text()), "launch": launch}))
    assert read_checkpoint(marker.parent) is not None
    assert Launch(stack, tmp_path).start_of(1) == 1


def test_a_rank_that_cannot_write_gets_its_start(
    tmp_path: Path, stack: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object, **kwargs: object) -> None:
        raise OSError("read-only")

    monkeypatch.setattr("pai_sdk._data.run.report.launch.replace_file", fail)
    launch = Launch(stack, tmp_path)
    assert launch.start_of(1) is None
    launch.save([1])
    assert launch.start_of(1) is None
