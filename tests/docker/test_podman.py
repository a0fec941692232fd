"""Jobs in Podman, through its Docker-compatible socket: the same executor, nothing of Docker beneath."""

from __future__ import annotations

import os
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from pai_sdk._host.execution.docker.engine import find_engine
from pai_sdk.errors import JobFailed, JobStopped
from tests.docker.conftest import LONG_GRACE, lines_of
from tests.docker.engine import BASE_IMAGE, Engine, base_archive, install, remove_folder, why_not
from tests.support.packages import install_packages
from tests.support.waiting import PATIENCE_S, until

# Limits as they are within a container of this machine's own, which may not raise them.
_SETTINGS = """
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
runtime = "runc"
"""


@pytest.fixture(scope="module")
def podman() -> Iterator[Engine]:
    """A Podman of the tests' own; its images and containers are below one folder."""
    if reason := why_not():
        pytest.skip(reason)
    install()
    install_packages("podman", programs=("podman",))
    engine = Engine(Path(f"/tmp/pai-podman-{os.getpid()}"))
    folder = engine.folder
    folder.mkdir()
    (folder / "containers.conf").write_text(_SETTINGS)
    environment = {**os.environ, "CONTAINERS_CONF": str(folder / "containers.conf")}
    places = ["--root", f"{folder}/data", "--runroot", f"{folder}/run", "--tmpdir", f"{folder}/tmp"]
    podman = ["podman", *places, "--storage-driver", "overlay"]
    image = f"docker.io/library/{BASE_IMAGE}"
    subprocess.run([*podman, "import", "-q", str(base_archive()), image], env=environment, check=True)
    with (folder / "log").open("wb") as log:
        command = [*podman, "system", "service", "--time", "0", engine.socket]
        service = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        until(engine.answers, f"Podman (its log is {folder}/log)")
        yield engine
        with engine.client() as client:
            assert client.containers.list(all=True) == []
    finally:
        service.terminate()
        service.wait(timeout=PATIENCE_S)
        subprocess.run([*podman, "rm", "--all", "--force"], env=environment, check=False, capture_output=True)
        remove_folder(folder)


@pytest.fixture
def docker_host(podman: Engine, monkeypatch: pytest.MonkeyPatch) -> Engine:
    """Podman, where the other tests have Docker."""
    monkeypatch.setenv("DOCKER_HOST", podman.socket)
    return podman


def test_it_is_known_for_what_it_is(docker_host):
    engine = find_engine()
    assert (engine.is_podman, engine.is_rootless) == (True, False)
    engine.close()


def test_a_job_succeeds_and_its_output_is_the_callers(submit, tmp_path):
    outputs = [{"Name": "model", "OutputUri": tmp_path.as_uri()}]
    job = submit("echo learned >$PAI_OUTPUT_MODEL/m; echo done", OutputChannels=outputs)
    assert lines_of(job.wait(timeout=PATIENCE_S, show_logs=False)) == ["done"]
    assert (tmp_path / "m").read_text() == "learned\n"


def test_a_job_fails_with_its_reason(submit):
    with pytest.raises(JobFailed, match="exit code 3"):
        submit("exit 3").wait(timeout=PATIENCE_S, show_logs=False)


def test_a_job_is_stopped(submit):
    job = submit("trap 'echo saved; exit 0' TERM; echo up; while :; do sleep 0.1; done", tags=LONG_GRACE)
    next(iter(job.logs(follow=True)))
    job.stop()
    with pytest.raises(JobStopped):
        job.wait(timeout=PATIENCE_S, show_logs=False)
    assert lines_of(job)[-1] == "saved"


def test_it_knows_the_grace_period(submit, docker_host):
    job = submit("echo up; sleep 1000", tags={"pai-sdk.local.grace_s": "40"})
    with docker_host.client() as client:
        assert client.containers.get(f"{job.id}-master-0").attrs["Config"]["StopTimeout"] == 45
    job.stop()
    with pytest.raises(JobStopped):
        job.wait(timeout=PATIENCE_S, show_logs=False)


def test_two_instances_end_together(submit):
    """On the host's network: Debian's Podman has no name service of its own without a further package."""
    job = submit(
        "echo $RANK; [ $RANK = 1 ] && exit 7; sleep 1000", count=2, tags={"pai-sdk.local.network": "host"}
    )
    with pytest.raises(JobFailed, match="exit code 7"):
        job.wait(timeout=PATIENCE_S, show_logs=False)
    assert [one.status for one in job.record.instances] == ["Terminated", "Failed"]


def test_a_running_job_is_entered(submit):
    job = submit("echo up; python3 -m http.server 8123 --bind 127.0.0.1", Environments={"NOTE": "two words"})
    next(iter(job.logs(follow=True)))
    result = job.exec(["sh", "-c", 'cat; echo " $NOTE" >&2; exit 5'], input="typed", capture=True)
    assert (result.stdout, result.stderr, result.exit_code) == (b"typed", b" two words\n", 5)
    until(lambda: job.exec(["grep", "-q", ":1FBB ", "/proc/net/tcp"], capture=True).exit_code == 0)
    with job.forward("0:8123") as forward:
        url = f"http://127.0.0.1:{forward.ports[0].local}/"
        assert urllib.request.urlopen(url, timeout=PATIENCE_S).status == 200
    with job._enter().connect() as tunnel:
        terminal = {"term": "xterm", "rows": 33, "columns": 101}
        stream = tunnel.open("program", argv=["sh", "-c", "stty size; echo ready; sleep 65432"], terminal=terminal)
        printed = b""
        while b"ready" not in printed:
            printed += stream.read()
        assert b"33 101" in printed
    until(lambda: job.exec(["sh", "-c", "grep -l 6543[2] /proc/*/cmdline"], capture=True).stdout == b"")
    job.stop()
    with pytest.raises(JobStopped):
        job.wait(timeout=PATIENCE_S, show_logs=False)
