"""The short form of `python -m tests.trials create`: faults on the way never make two jobs of one submission."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.trials import create


@pytest.mark.timeout(600)
@pytest.mark.parametrize("foreign", [False, True])
def test_one_job_for_each_submission_or_a_clear_error(tmp_path: Path, foreign: bool) -> None:
    report = create.run(tmp_path / "data", range(10), foreign=foreign)
    assert report.problems == []
    assert report.trials == 10
    assert report.stalled < 10  # else nothing was compared
    assert report.lost > 0  # else nothing was tried
    assert report.jobs > 0  # how many depends on how often the service is slower than the clients' patience
