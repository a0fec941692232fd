"""A job as it is shown, whatever the clock of the machine did."""

from __future__ import annotations

from typing import Any

from pai_sdk._service.services.jobs.snapshot import job_in_list
from pai_sdk._service.state.models import Job
from pai_sdk._wire.pai.status import JobStatus


def shown(*, started_at: float, ended_at: float) -> dict[str, Any]:
    job = Job(
        id="trainx",
        workspace_id="1",
        request={},
        status=JobStatus.SUCCEED,
        created_at=5000.0,
        modified_at=1500.0,
        started_at=started_at,
        ended_at=ended_at,
    )
    return job_in_list(job, {}, lambda job_id: None)


def test_a_clock_that_was_put_back_makes_no_negative_duration() -> None:
    assert shown(started_at=5000.0, ended_at=1500.0)["Duration"] == 0


def test_a_duration_is_rounded() -> None:
    assert shown(started_at=5000.0, ended_at=5019.98)["Duration"] == 20
    assert shown(started_at=5000.0, ended_at=5020.3)["Duration"] == 20
