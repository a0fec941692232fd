"""The watch of many jobs: each is yielded with its newest snapshot."""

from __future__ import annotations

from pai_sdk._client.job.follow.watch import JobWatch, same_job
from pai_sdk._client.job.training_job import TrainingJob
from pai_sdk._wire.pai.record import JobRecord
from tests.support.fake_backend import FAST, FakeBackend


def test_a_job_that_ended_since_the_last_look_comes_once_with_its_end() -> None:
    job = TrainingJob("train1", FakeBackend())
    with JobWatch([job], FAST) as watch:
        for subscription in watch._subscriptions.values():
            subscription.close()
        for status in ("Running", "Succeed"):  # both come before the consumer looks
            watch._on_update(
                same_job(job), JobRecord.model_validate({"TrainingJobId": "train1", "Status": status})
            )
        found = [(one.id, getattr(update, "status", "")) for one, update in watch.updates()]
    assert found[-1] == ("train1", "Succeed")
    assert [status for _, status in found].count("Succeed") == 1
    assert same_job(job) in watch.finished
