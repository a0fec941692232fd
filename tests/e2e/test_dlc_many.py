"""Many jobs of DLC together, as a user runs them."""

from __future__ import annotations

from typing import Any

import pytest

from pai_sdk import Processor, Session, as_completed, gather, run_all
from pai_sdk.errors import JobsFailed


def processor(session: Session, command: str, **parameters: Any) -> Processor:
    usual = {"instance_type": "ecs.c6.large", "session": session, "api": "dlc"}
    return Processor("python:3.11", command, **{**usual, **parameters})


def test_run_all_gather_and_watch(session: Session) -> None:
    jobs = run_all([processor(session, f"echo {number}") for number in range(3)], max_parallel=2, show=False)
    assert [[line.text for line in job.logs()] for job in jobs] == [["0"], ["1"], ["2"]]
    assert {job.id for job in as_completed(jobs)} == {job.id for job in jobs}
    failing = processor(session, "exit 3", labels={"n": "4"}).run(wait=False, show_logs=False)
    with pytest.raises(JobsFailed) as caught:
        gather([*jobs, failing], show=False)
    assert len(caught.value.failures) == 1
    with session.watch(api="dlc") as manager:
        manager.wait_until_loaded()
        assert {run.id for run in manager.runs().runs} >= {job.id for job in (*jobs, failing)}
    training = processor(session, "true", api="trainingjob").run(show_logs=False)
    assert [job.status for job in gather([training, *jobs], show=False)] == ["Succeed"] * 4
