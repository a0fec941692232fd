"""The queue between worker threads and the one who waits."""

from __future__ import annotations

from pai_sdk._client.job.follow.updates import UpdateQueue
from pai_sdk._client.job.follow.workers import Workers


def test_an_update_is_taken_once() -> None:
    updates = UpdateQueue[str](Workers())
    updates.put("Running")
    assert updates.wait(None)
    assert updates.take() == "Running"
    assert not updates
