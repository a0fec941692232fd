"""Further attempts at a job that was interrupted, by a real service with processes."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pai_sdk._service.services.jobs import job_table
from pai_sdk._service.services.jobs.job_table import Jobs
from pai_sdk._service.settings import Pace
from tests.service.services import Client, job_body, running_service
from tests.support.waiting import PATIENCE_S, until

CHECKPOINT = {"Name": "checkpoints", "OutputUri": "oss://pai-local/{name}/checkpoints/"}
# Dies in its first attempts, after it has saved how far it is; ends in the one that finds `end`.
COUNTING = """
step=$(cat /ml/output/checkpoints/step 2>/dev/null || echo 0)
echo "begins at $step"
step=$((step + 1))
echo $step > /ml/output/checkpoints/step
[ $step -ge {end} ] || kill -9 $$
echo "done at $step"
"""


@pytest.fixture
def pace(request: pytest.FixtureRequest) -> Pace:
    """The waits of the service; those of a test's own by `indirect`."""
    return getattr(request, "param", Pace(first_retry_wait_s=0.2))


@pytest.fixture
def client(tmp_path: Path, pace: Pace) -> Iterator[Client]:
    with running_service(tmp_path / "data", pace=pace) as client:
        yield client


def counting(
    end: int, *, retries: int, on: str = "KilledBySignal,OutOfMemory", name: str = "counts"
) -> dict[str, Any]:
    tags = {"pai-sdk.max_retries": str(retries), "pai-sdk.retry_on": on}
    outputs = [{**CHECKPOINT, "OutputUri": CHECKPOINT["OutputUri"].format(name=name)}]
    return job_body(COUNTING.format(end=end), OutputChannels=outputs, Settings={"Tags": tags})


def statuses(job: dict[str, Any]) -> list[str]:
    return [transition["Status"] for transition in job["StatusTransitions"]]


def test_a_job_goes_on_from_what_it_has_saved(client: Client) -> None:
    job_id = client.create(counting(3, retries=5))
    job = client.until(job_id)
    assert job["Status"] == "Succeed", job["ReasonMessage"]
    attempt = ["Initializing", "Running"]
    assert statuses(job) == ["Creating", *3 * ["Submitted", *attempt], "Succeed"]
    lines = [line for line in client.log(job_id) if not line.startswith("[pai-sdk]")]
    assert lines == ["begins at 0", "begins at 1", "begins at 2", "done at 3"], "no line is lost or doubled"
    assert client.bucket().get_object("counts/checkpoints/step").read() == b"3\n"


def test_the_last_attempt_that_is_allowed_gives_the_reason(client: Client) -> None:
    job = client.until(client.create(counting(9, retries=2)))
    assert (job["Status"], statuses(job).count("Running")) == ("Failed", 3)
    assert job["ReasonCode"] in ("KilledBySignal", "OutOfMemory")


def test_a_retry_that_is_due_while_the_queue_is_read_is_not_forgotten(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    next_attempt_in_s = Jobs.next_attempt_in_s

    def slow(jobs: Jobs, since: float) -> float | None:
        time.sleep(0.3)  # longer than the wait for the next attempt
        return next_attempt_in_s(jobs, since)

    monkeypatch.setattr(Jobs, "next_attempt_in_s", slow)
    job = client.until(client.create(counting(9, retries=1)))
    assert (job["Status"], statuses(job).count("Running")) == ("Failed", 2)


def test_other_endings_are_final(client: Client) -> None:
    job = client.until(client.create(counting(9, retries=2, on="Preempted,NodeLost")))
    assert (job["Status"], statuses(job).count("Running")) == ("Failed", 1)


@pytest.mark.parametrize("pace", [Pace(first_retry_wait_s=600.0)], indirect=True, ids=["long"])
def test_a_job_that_waits_for_its_next_attempt_can_be_stopped(client: Client) -> None:
    job_id = client.create(counting(9, retries=2))
    until(lambda: "Running" in statuses(client.get(f"/trainingjobs/{job_id}")))
    job = client.until(job_id, "Submitted")
    assert job["ReasonCode"] in ("KilledBySignal", "OutOfMemory"), "says why it waits"
    assert client.call("PUT", f"/trainingjobs/{job_id}/stop").status_code == 200
    job = client.until(job_id)
    assert (job["Status"], job["ReasonMessage"]) == ("Terminated", "The job was stopped before it started again.")
    assert client.bucket().get_object("counts/checkpoints/step").read() == b"1\n", "its outputs are saved"


@pytest.mark.parametrize("pace", [Pace(first_retry_wait_s=2.0)], indirect=True, ids=["some"])
def test_the_next_attempt_does_not_wait_for_a_clock_that_was_set_back(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_back_s = [0.0]
    clock = SimpleNamespace(time=lambda: time.time() - set_back_s[0], monotonic=time.monotonic)
    monkeypatch.setattr(job_table, "time", clock)
    next_attempt_in_s = Jobs.next_attempt_in_s

    def set_back_afterwards(jobs: Jobs, since: float) -> float | None:
        wait_s = next_attempt_in_s(jobs, since)
        if wait_s is not None:
            set_back_s[0] = 24 * 3600.0
        return wait_s

    monkeypatch.setattr(Jobs, "next_attempt_in_s", set_back_afterwards)
    job = client.until(client.create(counting(2, retries=1)))
    assert (job["Status"], statuses(job).count("Running")) == ("Succeed", 2)
    assert set_back_s != [0.0]


# The step is repeated before the next attempt starts.
@pytest.mark.parametrize(
    "pace", [Pace(first_retry_wait_s=5.0, retry_after_error_s=0.01)], indirect=True, ids=["some"]
)
def test_a_job_is_retried_if_the_database_is_lost_after_the_commit(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PostgreSQL may commit and lose the connection before it responds: then the step is repeated."""
    requeue, results = Jobs.requeue, []

    def lose_the_first_response(*args: Any, **kwargs: Any) -> bool:
        results.append(requeue(*args, **kwargs))
        if len(results) == 1:
            raise OSError("the connection was lost")
        return results[-1]

    monkeypatch.setattr(Jobs, "requeue", lose_the_first_response)
    job = client.until(client.create(counting(2, retries=1)))
    assert statuses(job) == ["Creating", *2 * ["Submitted", "Initializing", "Running"], "Succeed"]
    assert results == [True, True]


def test_the_next_attempt_begins_after_a_restart_of_the_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pace, requeue, is_queued = Pace(first_retry_wait_s=2.0), Jobs.requeue, threading.Event()

    def noted(*args: Any, **kwargs: Any) -> bool:
        result = requeue(*args, **kwargs)
        is_queued.set()
        return result

    monkeypatch.setattr(Jobs, "requeue", noted)
    with running_service(tmp_path / "data", pace=pace) as client:
        job_id = client.create(counting(2, retries=2))
        assert is_queued.wait(PATIENCE_S)
    with running_service(tmp_path / "data", pace=pace) as client:
        assert client.until(job_id)["Status"] == "Succeed"
        assert [line for line in client.log(job_id) if "begins" in line] == ["begins at 0", "begins at 1"]


@pytest.mark.parametrize(
    ("tags", "problem"),
    [
        ({"pai-sdk.max_retries": "many"}, "expected an integer"),
        ({"pai-sdk.max_retries": "1", "pai-sdk.retry_on": "Preemted"}, "did you mean 'Preempted'"),
        ({"pai-sdk.retry_on": "Preempted"}, "no effect without max_retries"),
        ({"pai-sdk.max_retries": "1", "pai-sdk.retry_on": "StoppedByUser"}, "cannot be retried"),
    ],
)
def test_wrong_tags_are_refused(client: Client, tags: dict[str, str], problem: str) -> None:
    answer = client.call("POST", "/trainingjobs", body=job_body(Settings={"Tags": tags}))
    assert answer.status_code == 400
    assert problem in answer.json()["Message"]
