"""Images of all kinds: other shells, users, folders and volumes; and what a job may be given besides."""

from __future__ import annotations

import pytest

from pai_sdk.errors import JobFailed, JobStopped, LocalRunError
from tests.docker.conftest import LONG_GRACE, lines_of
from tests.support.waiting import PATIENCE_S

BASH = "pai-sdk-test:bash"


def changed(engine, name: str, changes: list[str], command: str = "true") -> str:
    """The base image after a command, with other settings."""
    with engine.client() as client:
        container = client.containers.create("pai-sdk-test:base", ["sh", "-c", command], user="0:0")
        try:
            container.start()
            container.wait()
            container.commit("pai-sdk-test", name, changes="\n".join(changes) or None)
        finally:
            container.remove()
    return f"pai-sdk-test:{name}"


@pytest.fixture(scope="module")
def bash(engine) -> str:
    """The base image with bash as its `sh`."""
    return changed(engine, "bash", [], "ln -sf bash /bin/sh")


SAVES = "trap 'sleep 0.5; echo saved; exit 0' TERM; echo up; while :; do sleep 0.1; done"


@pytest.mark.parametrize("shell", ["busybox", "bash"])
def test_other_shells(submit, request, shell, tmp_path):
    image = request.getfixturevalue(shell)
    environment = {"UID": "77", "name": "theirs", "run": "theirs"}
    job = submit(
        'echo "$name $run $RANK"; env | grep ^UID',
        image=image,
        count=2,
        Environments=environment,
        OutputChannels=[{"Name": "model", "OutputUri": tmp_path.as_uri()}],
    ).wait(timeout=PATIENCE_S, show_logs=False)
    assert [lines_of(job, rank) for rank in range(2)] == [[f"theirs theirs {rank}", "UID=77"] for rank in range(2)]
    job = submit(SAVES, image=image, tags=LONG_GRACE)
    next(iter(job.logs(follow=True)))
    job.stop()
    with pytest.raises(JobStopped):
        job.wait(timeout=PATIENCE_S, show_logs=False)
    assert lines_of(job)[-1] == "saved"


def test_an_image_with_a_user_a_folder_and_variables_of_its_own(submit, engine):
    changes = ["USER nobody", "WORKDIR /srv", "ENV name=image PATH=/opt/x:/usr/bin:/bin"]
    image = changed(engine, "own", changes)
    job = submit('echo "$(id -u) $PWD $name ${PATH%%:*}"', image=image).wait(timeout=PATIENCE_S, show_logs=False)
    assert lines_of(job) == ["0 /ml/usercode image /opt/x"]


def test_volumes_of_an_image_hide_nothing(submit, engine, tmp_path):
    volumes = ["/ml", "/ml/usercode", "/ml/output", "/ml/output/model", "/ml/input", "/run/pai-sdk"]
    image = changed(engine, "volumes", [f"VOLUME {path}" for path in volumes])
    job = submit(
        "echo kept >$PAI_OUTPUT_MODEL/m; touch /ml/usercode/x",
        image=image,
        OutputChannels=[{"Name": "model", "OutputUri": tmp_path.as_uri()}],
    ).wait(timeout=PATIENCE_S, show_logs=False)
    assert (tmp_path / "m").read_text() == "kept\n"
    assert job.status == "Succeed"
    with engine.client() as client:
        assert client.volumes.list() == []


def test_a_command_that_reads_its_input_finds_none(submit):
    job = submit("cat; read x || echo nothing").wait(timeout=PATIENCE_S, show_logs=False)
    assert lines_of(job) == ["nothing"]


def test_ctrl_c_reaches_what_a_job_starts(submit):
    program = "import os, signal; os.kill(os.getpid(), signal.SIGINT)"
    with pytest.raises(JobFailed) as failed:
        submit('python3 -c "$P"', Environments={"P": program}).wait(timeout=PATIENCE_S, show_logs=False)
    assert failed.value.log_tail[-1] == "KeyboardInterrupt"


def test_gpus_that_are_not_there(submit, backend):
    with pytest.raises(LocalRunError, match=r"cannot give GPUs to containers.*NVIDIA container toolkit"):
        submit("true", compute={"EcsSpec": "local_gpu"})
    assert list(backend.list()) == []


@pytest.mark.parametrize("user", ["1234:1234", "4321"])
def test_root_may_run_a_job_as_somebody_else(submit, tmp_path, user):
    job = submit(
        "id -u; echo m >$PAI_OUTPUT_MODEL/m; touch /ml/usercode/x",
        tags={"pai-sdk.local.user": user},
        OutputChannels=[{"Name": "model", "OutputUri": (tmp_path / "out").as_uri()}],
    ).wait(timeout=PATIENCE_S, show_logs=False)
    uid = int(user.partition(":")[0])
    assert lines_of(job) == [str(uid)]
    assert (tmp_path / "out" / "m").stat().st_uid == uid


def test_the_network_of_the_host(submit):
    program = (
        "import os, socket; socket.create_server((os.environ['MASTER_ADDR'], int(os.environ['MASTER_PORT'])))"
    )
    command = '[ $RANK = 1 ] || python3 -c "$P"'
    job = submit(command, count=2, tags={"pai-sdk.local.network": "host"}, Environments={"P": program})
    assert job.wait(timeout=PATIENCE_S, show_logs=False).status == "Succeed"
    with pytest.raises(Exception, match="do not find each other by name in 'bridge'"):
        submit("true", count=2, tags={"pai-sdk.local.network": "bridge"})
    with pytest.raises(LocalRunError, match="no-such-net"):
        submit("true", tags={"pai-sdk.local.network": "no-such-net"})


def test_more_cpus_than_there_are_is_said_plainly(submit):
    with pytest.raises(LocalRunError, match=r"only \d+ CPUs available"):
        submit("true", compute={"InstanceSpec": {"CPU": "9999"}})
