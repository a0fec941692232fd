"""Retries of jobs are tags of their requests."""

from __future__ import annotations

from pai_sdk._wire.pai.job_retries import JobRetries


def test_retries_can_be_read_from_their_tags() -> None:
    retries = JobRetries.checked(3, ["Preempted"])
    assert retries.tags() == {"pai-sdk.max_retries": "3", "pai-sdk.retry_on": "Preempted"}
    assert JobRetries.of_tags(retries.tags()) == retries


def test_the_pause_before_an_attempt_doubles_up_to_a_limit() -> None:
    assert [JobRetries().wait_s(attempt) for attempt in (1, 2, 3, 20)] == [5.0, 10.0, 20.0, 600.0]
