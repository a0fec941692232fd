"""What `squeue` prints, read without a cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from pai_sdk._host.execution.slurm import queue
from pai_sdk._host.execution.slurm.commands import SlurmAway
from tests.support.messages import refused


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The lines that `squeue` prints."""
    lines: list[str] = []
    monkeypatch.setattr(queue, "run", lambda command: "".join(f"{line}\n" for line in lines))
    return lines


@pytest.mark.parametrize("state", ["EXPEDITING", "POWER_UP_NODE", "A_STATE_OF_NEXT_YEAR"])
def test_a_job_in_a_state_of_another_release_has_not_ended_and_hides_no_other(
    printed: list[str], state: str
) -> None:
    printed += [
        f"7|{state}|N/A|None|pai-a|/jobs/a|",
        "8|NODE_FAIL|N/A|NodeDown|pai-b.2|/jobs/b|",
    ]
    found = {entry.job_id: entry for entry in queue.list_entries()}
    assert (found["a"].is_finished, found["a"].is_pending, found["a"].state) == (False, False, state)
    assert (found["b"].is_finished, found["b"].attempt, found["b"].root) == (True, 2, Path("/jobs/b"))


def test_arrays_and_other_jobs_of_the_same_user_are_left_out(printed: list[str]) -> None:
    printed += [
        "5_1|RUNNING|N/A|None|pai-looks-like-ours|/home/me|",
        "5_[2-9]|PENDING|N/A|Resources|pai-looks-like-ours|/home/me|",
        "6+0|RUNNING|N/A|None|pai-het|/home/me|",
        "9|WHAT|EVER",
        "7|RUNNING|N/A|None|pai-a|/jobs/a|",
    ]
    assert [entry.job_id for entry in queue.list_entries()] == ["a"]


@pytest.mark.parametrize(
    "line", ["slurm|pai-a", "|RUNNING|N/A|None|pai-a|/jobs/a|", "7|error: pai|x|y|pai-a|/jobs/a|"]
)
def test_a_line_that_is_cut_off_makes_no_job_look_forgotten(printed: list[str], line: str) -> None:
    printed += [line, "7|RUNNING|N/A|None|pai-b|/jobs/b|"]
    with refused(SlurmAway):
        queue.list_entries()
