"""The short forms of `python -m tests.trials trace` and `resume`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.trials import resume, trace, trace_sync

pytestmark = [pytest.mark.timeout(300), pytest.mark.slow]


def test_each_row_once_through_faults_and_kills(tmp_path: Path) -> None:
    report = trace.run(tmp_path, range(5))
    assert report.problems == []
    assert report.killed == 1
    assert report.rows_stored == report.rows_fed > 0
    assert report.faults.total() > 0


def test_each_step_once_through_kills_and_resumes(tmp_path: Path) -> None:
    report = resume.run(tmp_path, kills=3, seed=1)
    assert report.problems == []
    assert report.kills == 3


def test_only_whole_commits_while_a_trace_is_synced_killed_and_resumed(tmp_path: Path) -> None:
    report = trace_sync.run(tmp_path, kills=2, seed=1)
    assert report.problems == []
    assert (report.writers, report.syncs) == (2, 6)
    assert report.commits > 0
