from __future__ import annotations

import random

import pytest


@pytest.fixture(autouse=True)
def same_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """The jitter of pauses is drawn from a seed, so that the requests of a made-up hour are the same each time."""
    monkeypatch.setattr("pai_sdk._core.retry.random", random.Random(0))
