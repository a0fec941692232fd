"""A job as it is shown, whatever the clock of the machine did."""

from __future__ import annotations

from pai_sdk.job.status import JobStatus
from pai_sdk.service.models import Job
from pai_sdk.service.snapshot import job_in_list


def test_a_clock_that_was_put_back_makes_no_negative_duration() -> None:
    job = Job(
        id="trainx",
        workspace_id="1",
        request={},
        status=JobStatus.SUCCEED,
        created_at=5000.0,
        modified_at=1500.0,
        started_at=5000.0,
        ended_at=1500.0,
    )
    assert job_in_list(job)["Duration"] == 0
