"""The short form of `python -m tests.trials logs`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.trials import logs


@pytest.mark.parametrize("seed", range(8))
def test_every_line_once_through_faults_and_restarts(tmp_path: Path, seed: int) -> None:
    assert logs.run(tmp_path / "data", seed, lines=1500) == []
