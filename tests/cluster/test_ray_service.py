"""A user's session on a Ray cluster of three nodes, while nodes, the head and the service are lost."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pai_sdk import Estimator, Session
from pai_sdk._client.job.training_job import TrainingJob
from pai_sdk._service.embedded import ensure_running, find_running
from pai_sdk._service.services import backup
from pai_sdk.errors import JobFailed
from tests.cluster.queue_nodes import hosts_of, nodes_in_queue
from tests.cluster.ray_cluster import RayCluster
from tests.cluster.talking import TALKS
from tests.cluster.test_all_reduce import AllReduce, Place, await_step, expected_sum, lines_of
from tests.support.service_process import end_service, wait_until_gone
from tests.support.waiting import PATIENCE_S, quickest, until
from tests.trials import cluster

COUNTS = 'i=0; while [ $i -lt 3000 ]; do i=$((i+1)); echo "rank $RANK line $i"; sleep 0.1; done'
END_S = 4 * PATIENCE_S  # Ray takes its time to notice that a node has gone


@pytest.fixture
def folder(tmp_path: Path, ray_cluster: RayCluster) -> Iterator[Path]:
    """A data folder; its service is ended, and what its jobs hold of the cluster is free again."""
    folder = tmp_path / "service data"
    yield folder
    if find_running(folder) is not None:
        with Session.embedded(folder) as session:
            for job in session.list_jobs():
                if not job.status.is_terminal:
                    job.stop()
                    job.wait(END_S, show_logs=False)
        end_service(folder)


@pytest.fixture
def session(folder: Path, ray_cluster: RayCluster) -> Session:
    return Session.ray(ray_cluster.client_address, data_dir=folder)


def started(session: Session, command: str, count: int = 1) -> TrainingJob:
    estimator = Estimator("unused", command, instance_count=count, session=session, instance_type="any")
    return estimator.fit(wait=False, show_logs=False)


def await_lines(job: TrainingJob, *texts: str) -> None:
    """Return when the log has all of these lines."""
    missing = set(texts)
    for line in job.logs(follow=True):
        missing.discard(line.text)
        if not missing:
            return
    raise AssertionError(f"the job ended before {missing}")


def await_ranks(job: TrainingJob, count: int) -> None:
    """Return when so many instances have printed something."""
    found = set()
    for line in job.logs(follow=True):
        found.add(line.instance)
        if len(found) == count:
            return
    raise AssertionError(f"the job ended after lines of {found}")


def numbers_of(job: TrainingJob, rank: int) -> list[int]:
    """The numbers in the lines of one rank of a job with the command `COUNTS`."""
    found = (re.fullmatch(rf"rank {rank} line (\d+)", line.text) for line in job.logs())
    return [int(one[1]) for one in found if one]


class TestRay(AllReduce):
    @pytest.fixture
    def place(self, folder: Path, session: Session) -> Place:
        return Place(folder, session)

    def test_a_node_is_lost_and_the_same_job_goes_on(self, place: Place, ray_cluster: RayCluster) -> None:
        job = place.submit(60, pause=0.1, max_retries=2)
        await_step(job, 5)
        ray_cluster.kill_raylet(2)
        ray_cluster.repair()
        job.wait(4 * PATIENCE_S, show_logs=False)
        assert any("NodeLost" in event for event in job.events())
        assert lines_of(job)[0][-1].endswith(f" sum {expected_sum(60)}")


def test_a_raylet_is_killed_and_the_job_ends_as_lost_with_its_last_lines(
    session: Session, ray_cluster: RayCluster
) -> None:
    job = started(session, COUNTS, 3)
    await_lines(job, *(f"rank {rank} line 20" for rank in range(3)))
    ray_cluster.kill_raylet(1)
    with pytest.raises(JobFailed, match="NodeLost") as failed:
        job.wait(END_S, show_logs=False)
    assert ray_cluster.nodes[1].address in str(failed.value)
    assert sorted(str(one.status) for one in job.record.instances) == ["Failed", "Terminated", "Terminated"]
    for rank in range(3):
        numbers = numbers_of(job, rank)
        assert len(numbers) >= 20
        assert numbers == list(range(1, len(numbers) + 1))
    ray_cluster.wait_until_free()


def test_instances_that_miss_one_on_a_lost_node_are_not_the_cause(
    session: Session, ray_cluster: RayCluster
) -> None:
    """They fail within seconds, before Ray notices the node."""
    job = started(session, TALKS, 3)
    await_ranks(job, 3)
    ray_cluster.kill_raylet(1)
    with pytest.raises(JobFailed, match="NodeLost") as failed:
        job.wait(END_S, show_logs=False)
    assert ray_cluster.nodes[1].address in str(failed.value)


@pytest.mark.slow
def test_the_head_is_restarted_and_its_jobs_end_as_lost(session: Session, ray_cluster: RayCluster) -> None:
    job = started(session, COUNTS, 2)
    await_lines(job, *(f"rank {rank} line 10" for rank in range(2)))
    ray_cluster.restart_head()
    with pytest.raises(JobFailed, match="NodeLost"):
        job.wait(END_S, show_logs=False)
    for rank in range(2):
        numbers = numbers_of(job, rank)
        assert len(numbers) >= 10
        assert numbers == list(range(1, len(numbers) + 1))
    after = started(session, "echo back")
    after.wait(END_S, show_logs=False)
    assert [line.text for line in after.logs()] == ["back"]


def test_the_queue_has_the_nodes_and_a_stop_frees_the_cpus_within_ten_seconds(
    session: Session, folder: Path, ray_cluster: RayCluster
) -> None:
    addresses = {node.name: node.address for node in ray_cluster.nodes}

    def seconds() -> float:
        job = started(session, "hostname; exec sleep 1000", 3)
        hosts = hosts_of(job, 3)
        assert nodes_in_queue(folder, job) == {name: addresses[host] for name, host in hosts.items()}
        until(lambda: ray_cluster.free_cpus() == 3 * ray_cluster.cpus - 3, "CPUs that the job holds")
        begun = time.monotonic()
        job.stop()
        ray_cluster.wait_until_free()
        took_s = time.monotonic() - begun
        until(lambda: job.refresh().status == "Terminated", "the end of the job")
        return took_s

    assert quickest(seconds, enough_s=10, tries=3) < 10


def test_an_instance_that_fails_ends_the_others_also_without_the_service(
    session: Session, folder: Path, tmp_path: Path, ray_cluster: RayCluster
) -> None:
    job = started(session, 'echo up; [ "$RANK" = 1 ] && sleep 8 && exit 7; exec sleep 1000', 3)
    await_lines(job, "up")
    pid = ensure_running(folder).pid
    os.kill(pid, signal.SIGKILL)
    wait_until_gone(pid)
    ray_cluster.wait_until_free()
    with Session.embedded(folder) as again:
        job = again.get_job(job.id)
        with pytest.raises(JobFailed, match="NonZeroExit") as failed:
            job.wait(END_S, show_logs=False)
    assert (failed.value.instance, failed.value.exit_code) == (f"{job.id}-worker-0", 7)


def test_a_backup_of_a_running_job_leaves_that_job_alone(
    session: Session, folder: Path, tmp_path: Path, ray_cluster: RayCluster
) -> None:
    sign = f"/tmp/{tmp_path.name}"  # of the node
    job = started(session, f"echo up; until [ -e {sign} ]; do sleep 0.1; done; echo end")
    await_lines(job, "up")
    backup.back_up(folder, tmp_path / "backup")
    end_service(folder)
    other = tmp_path / "other data"
    backup.restore(tmp_path / "backup", other)
    assert (other / "executor.json").read_bytes() == (folder / "executor.json").read_bytes()
    with Session.embedded(other) as restored:
        again = restored.get_job(job.id)
        with pytest.raises(JobFailed, match="NodeLost"):
            again.wait(END_S, show_logs=False)
        assert [line.text for line in again.logs()] == ["up"]
        end_service(other)
    for node in ray_cluster.nodes:
        Path(f"/proc/{node.pid}/root{sign}").touch()
    with Session.embedded(folder) as first:
        job = first.get_job(job.id)
        job.wait(END_S, show_logs=False)
        assert [line.text for line in job.logs()] == ["up", "end"]


@pytest.mark.slow
def test_each_of_many_jobs_ends_once_while_the_service_is_killed(tmp_path: Path, ray_cluster: RayCluster) -> None:
    """The short form of `python -m tests.trials cluster`."""
    report = cluster.run(ray_cluster, tmp_path / "service data", jobs=8, kills=1, seed=1)
    assert not report.faults, report
    assert (report.jobs, report.kills) == (8, 1)
