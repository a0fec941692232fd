"""What hands may do to the containers of a job: stop, kill, pause and remove them, or take the engine away."""

from __future__ import annotations

import os
import subprocess

import docker
import pytest

from pai_sdk.errors import JobFailed, JobStopped
from tests.docker.conftest import LONG_GRACE, lines_of
from tests.support.waiting import PATIENCE_S, until

# A command may need longer to begin than until its time limit; then again, with more.
LATER_S = (5, 15, 60)
SAVES = "trap 'echo saved; exit 0' TERM; echo up $RANK; while :; do sleep 0.1; done"


def up(job, count: int = 1) -> None:
    """Wait for the first line of every instance."""
    seen = set()
    for line in job.logs(follow=True):
        seen.add(line.instance)
        if len(seen) == count:
            return


def has_begun(container, command: str) -> bool:
    """Whether a process runs this command, or the container has already ended."""
    try:
        processes = container.top()["Processes"]
    except docker.errors.APIError:
        container.reload()
        return container.status == "exited"
    return any(command in " ".join(process) for process in processes)


def test_docker_stop_of_one_container_ends_the_job(submit, engine):
    job = submit(SAVES, count=2, tags=LONG_GRACE)
    up(job, 2)
    with engine.client() as client:
        client.containers.get(f"{job.id}-worker-0").stop(timeout=int(PATIENCE_S))
    with pytest.raises(JobFailed, match=r"told to end \(SIGTERM\) by `docker stop`") as failed:
        job.wait(timeout=PATIENCE_S, show_logs=False)
    assert failed.value.reason_code == "StoppedFromOutside"
    assert [lines_of(job, rank)[-1] for rank in range(2)] == ["saved", "saved"]


def test_docker_kill_is_named(submit, engine):
    job = submit("echo up; sleep 1000")
    up(job)
    with engine.client() as client:
        client.containers.get(f"{job.id}-master-0").kill()
    with pytest.raises(JobFailed, match=r"was killed from outside \(exit code 137\)") as failed:
        job.wait(timeout=PATIENCE_S, show_logs=False)
    assert failed.value.reason_code == "KilledBySignal"


@pytest.mark.parametrize("count", [1, 2])
def test_a_container_that_is_removed_by_hand(submit, engine, count):
    job = submit(SAVES, count=count)
    up(job)
    with engine.client() as client:
        client.containers.get(f"{job.id}-master-0").remove(force=True)
    with pytest.raises(JobFailed, match="was removed by another program") as failed:
        job.wait(timeout=PATIENCE_S, show_logs=False)
    assert failed.value.instance == f"{job.id}-master-0"


def test_a_paused_job_goes_on_when_it_is_let(submit, engine, backend):
    job = submit("echo before; while [ ! -e go ]; do sleep 0.1; done; echo after")
    up(job)
    with engine.client() as client:
        container = client.containers.get(f"{job.id}-master-0")
        container.pause()
        assert job.status == "Running"
        container.unpause()
    (backend.data_dir / "jobs" / job.id / "ml" / "usercode" / "go").touch()
    job.wait(timeout=PATIENCE_S, show_logs=False)
    assert lines_of(job) == ["before", "after"]


def test_a_paused_job_can_be_stopped(submit, engine):
    job = submit("echo up; sleep 1000", tags={"pai-sdk.local.grace_s": "0"})
    up(job)
    with engine.client() as client:
        client.containers.get(f"{job.id}-master-0").pause()
    job.stop()
    with pytest.raises(JobStopped, match="was stopped by its user"):
        job.wait(timeout=PATIENCE_S, show_logs=False)


@pytest.mark.parametrize("dies", [False, True])
def test_an_engine_that_ends_or_starts_anew_ends_its_jobs_with_a_reason_of_its_own(submit, engine, dies):
    """It sends the signal of `docker stop`: when it ends, or, where it was killed, when it starts."""
    job = submit(SAVES, tags=LONG_GRACE)
    up(job)
    if dies:
        engine.kill()
    else:
        engine.end()
    engine.up()
    with pytest.raises(JobFailed, match="The Docker engine or the machine was restarted") as failed:
        job.wait(timeout=PATIENCE_S, show_logs=False)
    assert failed.value.reason_code == "EngineRestarted"
    assert lines_of(job)[-1] == "saved"


@pytest.mark.slow
@pytest.mark.parametrize("dies", [False, True])
def test_an_engine_that_ends_or_starts_anew_lets_a_job_save_for_its_whole_grace_period(submit, engine, dies):
    """By default an engine kills after 10 seconds."""
    saves = "trap 'sleep 13; echo saved; exit 0' TERM; echo up; while :; do sleep 0.1; done"
    job = submit(saves, tags={"pai-sdk.local.grace_s": "40"})
    up(job)
    if dies:
        engine.kill()
    else:
        engine.end()
    engine.up()
    with pytest.raises(JobFailed) as failed:
        job.wait(timeout=PATIENCE_S, show_logs=False)
    assert failed.value.reason_code == "EngineRestarted"
    assert lines_of(job)[-1] == "saved"


def test_a_paused_instance_of_several_ends_the_job(submit, engine, backend):
    backend._executor.grace_margin_s = 0.5
    job = submit(SAVES, count=3, tags={"pai-sdk.local.grace_s": "1"})
    up(job, 3)
    with engine.client() as client:
        client.containers.get(f"{job.id}-worker-0").pause()
    with pytest.raises(JobFailed, match=r"sent no heartbeat.* its container was paused") as failed:
        job.wait(timeout=2 * PATIENCE_S, show_logs=False)
    assert failed.value.instance == f"{job.id}-worker-0"
    assert [one.status for one in job.record.instances] == ["Terminated"] * 3


def test_a_job_that_has_used_up_its_processes_keeps_its_time_limit(submit, engine):
    """No executor looks meanwhile; the instances still learn of each other's end."""
    for limit_s in LATER_S:
        job = submit("echo up; exec sleep 1000", count=2, Scheduler={"MaxRunningTimeInSeconds": limit_s})
        with engine.client() as client:
            containers = [client.containers.get(f"{job.id}-{name}-0") for name in ("master", "worker")]
            for container in containers:
                # A shell that cannot fork before it has started the command ends with it.
                until(lambda container=container: has_begun(container, "sleep 1000"))
                command = ["docker", "--host", engine.socket, "update", "--pids-limit", "2", container.id]
                subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            for container in containers:
                container.wait(timeout=2 * PATIENCE_S)
        with pytest.raises(JobFailed, match=f"limit of {limit_s} seconds"):
            job.wait(timeout=PATIENCE_S, show_logs=False)
        if [line for line in lines_of(job) if line == "up"] == ["up", "up"]:
            break
    assert lines_of(job) == ["up", "up"]


def test_an_engine_that_takes_its_containers_along(submit, engine, caplog):
    """Restarted, it finds them dead: the job has ended, and it is said why. Until then, that it is not known."""
    job = submit("echo up; sleep 1000", count=2)
    up(job, 2)
    with engine.client() as client:
        pids = [one.attrs["State"]["Pid"] for one in client.containers.list()]
    engine.kill()
    try:
        for pid in pids:
            os.kill(pid, 9)
        assert job.status == "Running"  # as far as is known
        until(lambda: job.refresh().reason_code == "EngineAway", "it is not said that the engine is away")
        assert "has not responded since" in job.record.reason_message
    finally:
        engine.up()
    with pytest.raises(JobFailed, match="The Docker engine or the machine was restarted") as failed:
        job.wait(timeout=PATIENCE_S, show_logs=False)
    assert (failed.value.instance is not None, failed.value.reason_code) == (True, "EngineRestarted")
    told = [text for record in caplog.records if "Docker engine" in (text := record.getMessage())]
    # Once each time it is away, which may be more than once on a machine that stands still.
    assert ["has not responded since" in text for text in told] == [True, False] * (len(told) // 2 or 1)
    assert ["responds again" in text for text in told] == [False, True] * (len(told) // 2 or 1)


def test_a_full_disk_below_the_job_hides_no_exit_code(tmp_path, docker_host):
    from pai_sdk._client.backend.base import Plan
    from pai_sdk._client.backend.local import LocalBackend
    from pai_sdk._client.job.training_job import TrainingJob
    from pai_sdk._client.submission import submit
    from pai_sdk._wire.pai.request import TrainingJobRequest

    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(small)], check=True)
    backend = LocalBackend(small / "local")
    try:
        for code in (3, 0):
            wire = {
                "TrainingJobName": "full",
                "ComputeResource": {"EcsSpec": "local", "EcsCount": 1},
                "AlgorithmSpec": {
                    "Image": "pai-sdk-test:base",
                    "Command": ["sh", "-c", f"dd if=/dev/zero of=big bs=64k 2>/dev/null; exit {code}"],
                },
            }
            job_id = submit(Plan(TrainingJobRequest.model_validate(wire)), backend, progress=False)
            job = TrainingJob(job_id, backend)
            until(lambda job_id=job_id: backend.get(job_id).status.is_terminal)
            record = backend.get(job_id)
            assert str(record.status) == ("Succeed" if code == 0 else "Failed")
            assert f"exit code {code}" in (record.reason_message or "exit code 0")
            (backend.data_dir / "jobs" / job_id / "ml" / "usercode" / "big").unlink()
            assert str(backend.get(job_id).status) == str(record.status)
            job.delete()
        with docker_host.client() as client:
            assert client.containers.list(all=True) == []
    finally:
        backend.close()
        subprocess.run(["umount", str(small)], check=True)


def test_prune_leaves_the_jobs_of_others_alone(submit, backend, engine):
    with engine.client() as client:
        labels = {"pai-sdk.job": "local-theirs", "pai-sdk.folder": "/gone", "pai-sdk.owner": "77@elsewhere"}
        theirs = client.containers.create("pai-sdk-test:base", ["sleep", "100"], labels=labels)
        try:
            assert backend.prune() == []
            theirs.reload()
        finally:
            theirs.remove(force=True)
        with pytest.raises(docker.errors.NotFound):
            theirs.reload()
