"""The short form of `python -m tests.trials trace`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.trials import trace

pytestmark = pytest.mark.timeout(300)


def test_each_row_once_through_faults_and_kills(tmp_path: Path) -> None:
    report = trace.run(tmp_path, range(5))
    assert report.problems == []
    assert report.killed == 1
    assert report.rows_stored == report.rows_fed > 0
    assert report.faults.total() > 0
