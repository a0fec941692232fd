"""The short form of `python -m tests.trials dlc`: a service unlike ours, over HTTP, in simulated time."""

from __future__ import annotations

import pytest

from pai_sdk._core import retry
from tests.trials import dlc

SEEDS = range(30)


@pytest.fixture(autouse=True)
def restore_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    """The trials set the chance of retries, so that a seed is one run."""
    monkeypatch.setattr(retry, "random", retry.random)


@pytest.mark.parametrize("seed", SEEDS)
def test_one_job_of_a_submission(seed: int) -> None:
    assert dlc.create(seed) == []


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", SEEDS)
def test_every_line_once(seed: int) -> None:
    assert dlc.follow(seed, max_lines=700) == []
