"""One all-reduce of three ranks, unchanged on every executor; a rank is killed, and the service is killed."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from pai_sdk import Estimator, Session
from pai_sdk._client.job.training_job import TrainingJob
from pai_sdk._service.embedded import ensure_running
from pai_sdk.errors import JobFailed
from tests.support import ml
from tests.support.service_process import end_service, wait_until_gone
from tests.support.waiting import PATIENCE_S

SOURCE = Path(__file__).parent / "all_reduce"
RANKS = 3


def expected_sum(steps: int, length: int = 1000) -> int:
    """The sum of all elements of the vector after these steps."""
    ranks, numbers = range(1, RANKS + 1), range(1, steps + 1)
    return sum(rank * step * length + sum(range(length)) for rank in ranks for step in numbers)


@dataclass
class Place:
    """A service that runs jobs with one executor."""

    data_dir: Path
    session: Session

    def submit(self, steps: int, *, pause: float = 0.0, **parameters: Any) -> TrainingJob:
        """Start an all-reduce."""
        estimator = Estimator(
            image_uri="python:3.11",
            command=f"python3 all_reduce.py --steps {steps} --pause {pause}",
            source_dir=str(SOURCE),
            instance_type="ecs.c6.large",
            instance_count=RANKS,
            session=self.session,
            **parameters,
        )
        return estimator.fit(wait=False, show_logs=False)

    def kill_service(self) -> None:
        """Kill the service's process; whoever needs it next starts it again."""
        pid = ensure_running(self.data_dir).pid
        os.kill(pid, signal.SIGKILL)
        wait_until_gone(pid)
        ensure_running(self.data_dir, timeout_s=PATIENCE_S)


def lines_of(job: TrainingJob) -> list[list[str]]:
    """What each rank printed."""
    lines: list[list[str]] = [[] for _ in range(RANKS)]
    for line in job.logs():
        if (rank := re.match(r"rank (\d) ", line.text)) and not line.text.startswith(ml.NOTICE):
            lines[int(rank[1])].append(line.text)
    return lines


def steps_of(lines: list[str]) -> list[int]:
    """The numbers of the steps in the lines of a rank."""
    return [int(found[1]) for line in lines if (found := re.search(r" step (\d+) sum ", line))]


def await_step(job: TrainingJob, step: int) -> None:
    """Return when all ranks have made a step."""
    missing = {f"rank {rank} step {step} " for rank in range(RANKS)}
    for line in job.logs(follow=True):
        missing = {one for one in missing if not line.text.startswith(one)}
        if not missing:
            return
    raise AssertionError(f"the job ended before {missing}")


def kill_rank(job: TrainingJob, rank: int) -> None:
    """Kill the program of one rank, wherever on this machine it runs."""
    for process in psutil.process_iter():
        try:
            variables = process.environ()
            is_rank = variables.get("RANK") == str(rank) and variables.get("PAI_TRAINING_JOB_ID") == job.id
            if is_rank and "all_reduce.py" in process.cmdline() and "python" in process.name():
                process.kill()
                return
        except psutil.Error:
            continue
    raise AssertionError("there is no such process")


class AllReduce:
    """The tests. An executor needs the fixture `place`."""

    @pytest.fixture
    def place(self) -> Iterator[Place]:
        """A service with the executor."""
        raise NotImplementedError

    def test_all_ranks_get_the_sum(self, place: Place, tmp_path: Path) -> None:
        job = place.submit(20)
        job.wait(2 * PATIENCE_S, show_logs=False)
        assert [steps_of(lines) for lines in lines_of(job)] == [list(range(1, 21))] * RANKS
        model = job.download("model", tmp_path / "model", progress=False)
        result = json.loads((model / "result.json").read_text())
        assert result == {"steps": 20, "ranks": RANKS, "sum": expected_sum(20)}

    def test_the_middle_rank_is_killed_and_the_job_resumes(self, place: Place) -> None:
        job = place.submit(200, pause=0.1)
        await_step(job, 5)
        kill_rank(job, 1)
        with pytest.raises(JobFailed, match="137") as failed:
            job.wait(2 * PATIENCE_S, show_logs=False)
        assert failed.value.instance == f"{job.id}-worker-0"
        assert [one.status for one in job.record.instances] == ["Terminated", "Failed", "Terminated"]
        reached = max(steps_of(lines_of(job)[1]))
        assert steps_of(lines_of(job)[1]) == list(range(1, reached + 1))
        again = place.submit(reached + 5, resume=job.id)
        again.wait(2 * PATIENCE_S, show_logs=False)
        first = steps_of(lines_of(again)[0])[0]
        assert reached - 1 <= first <= reached + 2
        assert f" after step {first - 1}" in lines_of(again)[2][0]
        assert lines_of(again)[0][-1].endswith(f" sum {expected_sum(reached + 5)}")

    def test_the_middle_rank_is_killed_and_the_same_job_goes_on(self, place: Place) -> None:
        job = place.submit(40, pause=0.1, max_retries=1, retry_on=["KilledBySignal", "OutOfMemory"])
        await_step(job, 5)
        kill_rank(job, 1)
        job.wait(2 * PATIENCE_S, show_logs=False)
        for rank, lines in enumerate(lines_of(job)):
            steps = steps_of(lines)
            reached = next(step for step, after in zip(steps, [*steps[1:], 0], strict=True) if after != step + 1)
            begins = steps[reached] if reached < 40 else 41
            assert steps == [*range(1, reached + 1), *range(begins, 41)], rank
            assert reached - 1 <= begins <= reached + 2, "from the newest checkpoint"
            assert lines[-1].endswith(f" sum {expected_sum(40)}")

    def test_the_service_is_killed_and_no_line_is_lost_or_doubled(self, place: Place) -> None:
        job = place.submit(100, pause=0.1)
        followed: list[str] = []
        follower = threading.Thread(target=lambda: followed.extend(line.text for line in job.logs(follow=True)))
        follower.start()
        for step in (10, 40):
            await_step(job, step)
            place.kill_service()
        job.wait(2 * PATIENCE_S, show_logs=False)
        follower.join(PATIENCE_S)
        wanted = [list(range(1, 101))] * RANKS
        assert [steps_of(lines) for lines in lines_of(job)] == wanted
        by_rank = [[text for text in followed if text.startswith(f"rank {rank} ")] for rank in range(RANKS)]
        assert [steps_of(lines) for lines in by_rank] == wanted
        assert len([*place.session.list_jobs(name=job.name)]) == 1


class TestProcesses(AllReduce):
    @pytest.fixture
    def place(self, tmp_path: Path) -> Iterator[Place]:
        folder = tmp_path / "service data"
        ensure_running(folder, timeout_s=PATIENCE_S)
        yield Place(folder, Session.embedded(folder))
        end_service(folder)
