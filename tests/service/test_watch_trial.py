"""The short form of `python -m tests.trials watch_faults`: faults are named with their rank, others are not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pai_sdk._service.settings import Pace
from tests.service.services import Client, running_service
from tests.trials import watch_faults

pytestmark = pytest.mark.timeout(400)

_QUICK = ("skipped_collective", "endless_retry", "evaluation")
KINDS = [
    pytest.param(kind, marks=() if kind in _QUICK else pytest.mark.slow)
    for kind in (*watch_faults.FAULTS, *watch_faults.HEALTHY)
]


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with running_service(tmp_path / "data", pace=Pace(watch_interval_s=1.0)) as client:
        yield client


@pytest.mark.parametrize("kind", KINDS)
def test_a_fault_is_named_in_time_and_a_healthy_job_is_not(client: Client, tmp_path: Path, kind: str) -> None:
    assert watch_faults.run(client, tmp_path, kind, seed=2, extra_s=12.0).problem == ""
