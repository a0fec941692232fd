"""The short form of `python -m tests.trials logs`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.trials import logs

pytestmark = pytest.mark.timeout(400)

SEEDS = [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 8))]


@pytest.mark.parametrize("seed", SEEDS)
def test_every_line_once_through_faults_and_restarts(tmp_path: Path, seed: int) -> None:
    assert logs.run(tmp_path / "data", seed, lines=1500) == []
