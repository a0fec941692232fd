"""Jobs in containers that are started again: after the kill of a rank, of their engine, and in a service."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pai_sdk import Estimator
from pai_sdk._client.backend.local import LocalBackend
from pai_sdk._service.settings import Pace
from pai_sdk._wire.pai.job_retries import JobRetries
from tests.docker.conftest import Submit, lines_of
from tests.docker.engine import BASE_IMAGE, Engine
from tests.docker.test_service import session_on
from tests.service.services import running_service
from tests.support.waiting import PATIENCE_S, until

# Rank 1 is killed in the first attempt, after each rank has saved where it is.
RESUMES = """
own=/ml/output/checkpoints/$RANK
echo "begins at $(cat $own 2>/dev/null || echo 0)"
if [ ! -e $own ]; then
    echo 1 > $own
    while [ ! -e /ml/output/checkpoints/0 ] || [ ! -e /ml/output/checkpoints/1 ]; do sleep 0.1; done
    [ $RANK = 1 ] && kill -9 $$
    sleep 100
fi
echo done
"""
ON_KILLS = JobRetries.checked(3, ["KilledBySignal", "OutOfMemory"]).tags()


@pytest.fixture(autouse=True)
def short_waits(backend: LocalBackend) -> None:
    backend.steps.first_retry_wait_s = 0.5


def checkpoints_in(folder: Path) -> list[dict[str, str]]:
    return [{"Name": "checkpoints", "OutputUri": f"file://{folder}/"}]


def test_the_same_job_goes_on_after_a_rank_was_killed(submit: Submit, tmp_path: Path, engine: Engine) -> None:
    outputs = checkpoints_in(tmp_path / "kept")
    job = submit(RESUMES, count=2, tags=ON_KILLS, OutputChannels=outputs)
    seen: list[str] = []
    follower = threading.Thread(target=lambda: seen.extend(line.text for line in job.logs(follow=True)))
    follower.start()
    job.wait(timeout=PATIENCE_S, show_logs=False)
    follower.join(PATIENCE_S)
    for rank in range(2):
        assert lines_of(job, rank) == ["begins at 0", "begins at 1", "done"]
    assert sorted(line for line in seen if not line.startswith("[pai-sdk]")) == sorted(lines_of(job))
    statuses = [str(one.status) for one in job.record.status_transitions]
    assert statuses == ["Initializing", "Running", "Submitted", "Running", "Succeed"]
    with engine.client() as client:
        assert client.containers.list(all=True) == []


def test_the_same_job_goes_on_after_the_engine_was_killed(submit: Submit, tmp_path: Path, engine: Engine) -> None:
    saved = tmp_path / "kept" / "0"
    job = submit(
        RESUMES,
        tags=JobRetries.checked(2, None).tags(),
        OutputChannels=checkpoints_in(tmp_path / "kept"),
    )
    until(saved.exists, "the checkpoint")
    engine.kill()
    engine.up()
    job.wait(timeout=PATIENCE_S, show_logs=False)
    assert lines_of(job) == ["begins at 0", "begins at 1", "done"]


def test_stopped_during_the_wait(submit: Submit, backend: LocalBackend, engine: Engine) -> None:
    backend.steps.first_retry_wait_s = 600.0
    job = submit("kill -9 $$", tags=ON_KILLS)
    until(lambda: job.refresh().status == "Submitted", "the wait")
    job.stop()
    assert job.refresh().status == "Terminated"
    with engine.client() as client:
        assert client.containers.list(all=True) == []


@pytest.fixture
def estimator(docker_host: Engine, tmp_path: Path) -> Iterator[Estimator]:
    with (
        running_service(tmp_path / "service", executor="docker", pace=Pace(first_retry_wait_s=0.5)) as client,
        session_on(client.info) as session,
    ):
        yield Estimator(
            BASE_IMAGE,
            ["sh", "-c", RESUMES],
            instance_type="ecs.c6.large",
            instance_count=2,
            max_retries=3,
            retry_on=["KilledBySignal", "OutOfMemory"],
            job_type="PyTorchJob",
            session=session,
        )


def test_a_service_starts_its_containers_again(estimator: Estimator) -> None:
    job = estimator.fit(show_logs=False)
    for rank in range(2):
        assert lines_of(job, rank) == ["begins at 0", "begins at 1", "done"]
