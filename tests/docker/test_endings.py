"""How local jobs end: each in the right state, with the right reason, and with nothing left in the engine."""

from __future__ import annotations

import subprocess
from datetime import datetime, timezone
from pathlib import Path

import pytest

from pai_sdk._host.execution.docker.container import LABEL_JOB
from pai_sdk._host.execution.docker.shared_folder import SharedFolder
from pai_sdk.errors import ImageError, InvalidInputError, JobFailed, JobStopped, LocalRunError
from tests.docker.conftest import LONG_GRACE, lines_of
from tests.support.waiting import PATIENCE_S
from tests.support.wheels import write_wheel

# A command may need longer to begin than the time after which something is to happen to it; then again, with more.
LATER_S = (2, 10, 40)


def test_a_success_leaves_no_container(submit, engine):
    job = submit("echo done").wait(timeout=PATIENCE_S, show_logs=False)
    assert job.status == "Succeed"
    assert lines_of(job) == ["done"]
    with engine.client() as client:
        assert client.containers.list(all=True) == []


@pytest.mark.parametrize(
    ("command", "count"),
    [("exit 3", 1), ("[ $RANK = 1 ] && exit 3; sleep 100", 3), ("sleep 100", 2), ("kill -9 $$", 1)],
)
def test_other_endings_leave_none_either_and_no_network(submit, engine, command, count):
    job = submit(command, count=count)
    if command == "sleep 100":
        job.stop()
    with pytest.raises((JobFailed, JobStopped)):
        job.wait(timeout=PATIENCE_S, show_logs=False)
    with engine.client() as client:
        assert client.containers.list(all=True) == []
        assert client.networks.list(filters={"label": LABEL_JOB}) == []


@pytest.mark.parametrize(
    ("command", "code", "reason", "says"),
    [
        ("echo 'Traceback'; exit 3", 3, "NonZeroExit", "exit code 3"),
        ("no-such-program", 127, "CommandNotFound", "was not found"),
        ("touch /tmp/f; /tmp/f", 126, "NotExecutable", "is not executable"),
        ("kill -SEGV $$", 139, "KilledBySignal", "SIGSEGV"),
    ],
)
def test_a_failure_is_named(submit, command, code, reason, says):
    with pytest.raises(JobFailed, match=says) as failed:
        submit(command).wait(timeout=PATIENCE_S, show_logs=False)
    assert (failed.value.exit_code, failed.value.reason_code) == (code, reason)


def test_out_of_memory_is_named_with_its_limit(submit, backend):
    job = submit("python3 -c 'bytearray(300 << 20)'", compute={"InstanceSpec": {"Memory": "128MiB"}})
    with pytest.raises(JobFailed, match=r"out of memory: it reached its limit of 128 MiB") as failed:
        job.wait(timeout=PATIENCE_S, show_logs=False)
    assert failed.value.reason_code == "OutOfMemory"
    # The instance knows by itself; the engine may learn of it after the end.
    shared = SharedFolder(backend.data_dir / "jobs" / job.id / "shared")
    assert shared.ran_out_of_memory(f"{job.id}-master-0")


def test_the_time_limit_is_kept_without_anybody_waiting(submit, engine):
    for limit_s in LATER_S:
        job = submit(
            "trap 'echo saved; exit 0' TERM; echo up; while :; do sleep 0.1; done",
            tags=LONG_GRACE,
            Scheduler={"MaxRunningTimeInSeconds": limit_s},
        )
        with engine.client() as client:  # no executor looks meanwhile
            client.containers.get(f"{job.id}-master-0").wait(timeout=2 * PATIENCE_S)
        ended_by = datetime.now(timezone.utc)
        with pytest.raises(JobFailed, match=f"limit of {limit_s} seconds"):
            job.wait(timeout=PATIENCE_S, show_logs=False)
        if "up" in lines_of(job):
            break
    assert [line for line in lines_of(job) if line in ("up", "saved")] == ["up", "saved"]
    ended_at = datetime.fromisoformat(job.record.status_transitions[-1].start_time.replace("Z", "+00:00"))
    assert ended_at <= ended_by, "the time until the first look is not part of the job"


def test_who_kills_what_watches_over_the_time_wins_none(submit, backend):
    backend._executor.grace_margin_s = 0.5
    kill_others = "for p in /proc/[0-9]*; do n=${p#/proc/}; [ $n = 1 ] || [ $n = $$ ] || kill -9 $n; done"
    for limit_s in LATER_S:
        job = submit(
            f"{kill_others}; echo alone; sleep 1000",
            tags={"pai-sdk.local.grace_s": "1"},
            Scheduler={"MaxRunningTimeInSeconds": limit_s},
        )
        with pytest.raises(JobFailed, match=f"limit of {limit_s} seconds") as failed:
            job.wait(timeout=2 * PATIENCE_S, show_logs=False)
        assert failed.value.reason_code == "MaxRunningTimeExceeded"
        if "alone" in lines_of(job):
            break
    assert "alone" in lines_of(job)


def test_a_stopped_job_gets_its_grace_period(submit):
    job = submit("trap 'echo saved; exit 0' TERM; echo up; while :; do sleep 0.1; done", tags=LONG_GRACE)
    next(iter(job.logs(follow=True)))
    job.stop()
    with pytest.raises(JobStopped):
        job.wait(timeout=PATIENCE_S, show_logs=False)
    assert lines_of(job)[-1] == "saved"


def test_the_engine_knows_the_grace_period(submit, engine):
    job = submit("echo up; sleep 1000", tags={"pai-sdk.local.grace_s": "40"})
    with engine.client() as client:
        config = client.containers.get(f"{job.id}-master-0").attrs["Config"]
    assert (config["StopSignal"], config["StopTimeout"]) == ("SIGTERM", 45)
    job.stop()
    with pytest.raises(JobStopped):
        job.wait(timeout=PATIENCE_S, show_logs=False)


@pytest.mark.slow
def test_docker_stop_waits_for_the_whole_grace_period(submit, engine):
    """By default an engine kills after 10 seconds, also when it ends itself."""
    job = submit(
        "trap 'sleep 13; echo saved; exit 0' TERM; echo up; while :; do sleep 0.1; done",
        tags={"pai-sdk.local.grace_s": "40"},
    )
    next(iter(job.logs(follow=True)))
    with engine.client() as client:
        client.containers.get(f"{job.id}-master-0").stop()
    with pytest.raises(JobFailed) as failed:
        job.wait(timeout=PATIENCE_S, show_logs=False)
    assert failed.value.reason_code == "StoppedFromOutside"
    assert lines_of(job)[-1] == "saved"


def test_a_job_that_survived_a_lack_of_memory_and_was_killed_later_says_so(submit, engine):
    job = submit(
        "python3 -c 'bytearray(300 << 20)'; echo survived; sleep 1000",
        compute={"InstanceSpec": {"Memory": "128MiB"}},
    )
    next(line for line in job.logs(follow=True) if line.text == "survived")
    with engine.client() as client:
        client.containers.get(f"{job.id}-master-0").kill()
    with pytest.raises(JobFailed) as failed:
        job.wait(timeout=PATIENCE_S, show_logs=False)
    assert (failed.value.reason_code, failed.value.exit_code) == ("KilledBySignal", 137)


def test_what_ignores_the_request_is_killed_after_the_grace_period(submit):
    job = submit("trap '' TERM; echo up; sleep 1000", tags={"pai-sdk.local.grace_s": "1"})
    next(iter(job.logs(follow=True)))
    job.stop()
    with pytest.raises(JobStopped):
        job.wait(timeout=PATIENCE_S, show_logs=False)


def test_children_get_the_grace_period_too(submit):
    program = """
import signal, sys, time
def save(*_):
    time.sleep(1)
    print("checkpoint")
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
print("up", flush=True)
time.sleep(99)
"""
    job = submit('python3 -u -c "$P"; echo after', tags=LONG_GRACE, Environments={"P": program})
    next(iter(job.logs(follow=True)))
    job.stop()
    with pytest.raises(JobStopped):
        job.wait(timeout=PATIENCE_S, show_logs=False)
    assert "checkpoint" in lines_of(job)


def test_requirements_are_installed_and_a_missing_one_is_named(submit, tmp_path):
    write_wheel(tmp_path, "tiny", "1", "")
    from_here = {"InputChannels": [{"Name": "wheels", "InputUri": f"{tmp_path.as_uri()}/"}]}
    lines = ["--no-index", "--find-links=/ml/input/data/wheels"]
    job = submit(
        "python3 -c 'import tiny; print(tiny.__name__)'", PythonRequirements=[*lines, "tiny"], **from_here
    )
    job.wait(timeout=2 * PATIENCE_S, show_logs=False)
    assert lines_of(job) == ["[pai-sdk] installing the requirements", "tiny"]
    with pytest.raises(JobFailed, match="No matching distribution found for tiny==999"):
        submit("true", PythonRequirements=[*lines, "tiny==999"], **from_here).wait(
            timeout=2 * PATIENCE_S, show_logs=False
        )


def test_the_drill_preempts_once_and_starts_again(submit, tmp_path):
    command = """
        if [ -e /ml/output/model/checkpoint ]; then echo resumed; exit 0; fi
        if [ -e /run/pai-sdk/*.vacated ]; then echo "taken before it began"; exit 0; fi
        trap 'touch /ml/output/model/checkpoint; echo saved; exit 143' TERM
        echo begun; while :; do sleep 0.1; done
    """
    for after_s in LATER_S:
        job = submit(
            command,
            tags={**LONG_GRACE, "pai-sdk.local.preempt_after_s": str(after_s)},
            OutputChannels=[{"Name": "model", "OutputUri": f"{(tmp_path / str(after_s)).as_uri()}/"}],
        )
        lines = lines_of(job.wait(timeout=2 * PATIENCE_S, show_logs=False))
        assert sum("is preempted now" in line for line in lines) == 1
        if "begun" in lines:
            break
    assert [line for line in lines if line in ("begun", "saved", "resumed")] == ["begun", "saved", "resumed"]


def test_an_image_that_is_not_there(submit, engine, backend):
    nowhere = "127.0.0.1:1/no-such-image:1"  # there is no listener, so no network is needed
    with pytest.raises(ImageError, match=f"'{nowhere}' is not on this machine and cannot be pulled"):
        submit("true", image=nowhere)
    with pytest.raises(ImageError, match="lower case"):
        submit("true", image="No Such Image")
    assert list(backend.list()) == []


def test_an_image_without_a_shell(submit, engine, backend):
    with engine.client() as client:
        client.api.import_image_from_data(b"\0" * 10240, repository="pai-sdk-test", tag="empty")
        with pytest.raises(ImageError, match="has no /bin/sh"):
            submit("true", image="pai-sdk-test:empty")
        assert client.containers.list(all=True) == []
    assert list(backend.list()) == []


def test_an_image_without_python_says_so(submit, engine):
    job = submit("true", image=image_without(engine, "/usr/bin/python3"), PythonRequirements=["tinydb"])
    with pytest.raises(JobFailed, match="could not be installed: this image has no Python"):
        job.wait(timeout=PATIENCE_S, show_logs=False)
    assert lines_of(job) == ["[pai-sdk] the requirements cannot be installed: this image has no Python"]


def image_without(engine, *paths):
    """The base image without these programs."""
    tag = "-".join(Path(path).name for path in paths)
    with engine.client() as client:
        container = client.containers.create("pai-sdk-test:base", ["rm", "-f", *paths], user="0:0")
        container.start()
        container.wait()
        container.commit("pai-sdk-test", f"no-{tag}")
        container.remove()
    return f"pai-sdk-test:no-{tag}"


def test_an_image_without_sleep(submit, engine):
    image = image_without(engine, "/bin/sleep")
    job = submit("read -r line <$PAI_CONFIG_DIR/training-job.json; echo done", count=2, image=image)
    job.wait(timeout=PATIENCE_S, show_logs=False)
    assert lines_of(job) == ["done", "done"]
    with pytest.raises(JobFailed, match="no program `sleep`") as failed:
        submit("true", image=image_without(engine, "/bin/sleep", "/bin/bash")).wait(
            timeout=PATIENCE_S, show_logs=False
        )
    assert failed.value.reason_code == "ContainerNotStarted"


def test_an_entrypoint_of_its_own_does_not_stand_in_the_way(submit, engine):
    with engine.client() as client:
        container = client.containers.create("pai-sdk-test:base", ["true"])
        container.commit("pai-sdk-test", "entry", changes='ENTRYPOINT ["/bin/echo", "not you"]')
        container.remove()
    job = submit("echo me", image="pai-sdk-test:entry").wait(timeout=PATIENCE_S, show_logs=False)
    assert lines_of(job) == ["me"]


def test_a_full_disk_ends_the_job_with_a_reason(submit, tmp_path):
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(small)], check=True)
    try:
        job = submit(
            "dd if=/dev/zero of=/ml/output/model/big bs=1M count=9",
            OutputChannels=[{"Name": "model", "OutputUri": small.as_uri()}],
        )
        with pytest.raises(JobFailed) as failed:
            job.wait(timeout=PATIENCE_S, show_logs=False)
        assert any("No space left on device" in line for line in failed.value.log_tail)
        assert failed.value.reason_code == "DiskFull"
        assert f"the disk of {small} is full" in failed.value.reason_message
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_what_cannot_be_done_here_is_refused_all_at_once(submit, backend):
    with pytest.raises(InvalidInputError) as refused:
        submit(
            "true",
            InputChannels=[
                {"Name": "a", "InputUri": "nas://0a1b2c.cn-hangzhou/data/"},
                {"Name": "b", "DatasetId": "d-0123456789abc"},
                {"Name": "c", "InputUri": "file:///no/such/folder/"},
            ],
            compute={"InstanceSpec": {"Memory": "much"}},
            tags={"pai-sdk.local.preempt_after": "1"},
        )
    text = str(refused.value)
    for part in (
        "nas://",
        "d-0123456789abc",
        "/no/such/folder",
        "'much'",
        "did you mean pai-sdk.local.preempt_after_s",
    ):
        assert part in text
    assert list(backend.list()) == []


def test_an_input_that_vanished_is_named(backend, submit, tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    monkeypatch.setattr("pai_sdk._client.backend.local.backend.check_supported", lambda request: None)
    with pytest.raises(LocalRunError, match=f"train: {gone}"):
        submit("true", InputChannels=[{"Name": "train", "InputUri": f"{gone.as_uri()}/"}])
    assert list(backend.list()) == []
    assert not Path(gone).exists()


def test_a_process_left_behind_does_not_keep_the_job(submit):
    job = submit("sleep 1000 & echo left").wait(timeout=PATIENCE_S, show_logs=False)
    assert lines_of(job) == ["left"]
