"""A service for a team: the files of `pai-sdk service compose` and the page about them, as written."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import requests

from pai_sdk import Processor, Session
from pai_sdk.errors import JobFailed
from tests.docker.conftest import lines_of
from tests.docker.engine import Engine
from tests.docker.team import NEXT_VERSION, have_compose, load_images
from tests.support.waiting import PATIENCE_S, until

PAGE = Path(__file__).parents[2] / "docs" / "team.md"
PAI = Path(sys.executable).with_name("pai-sdk")
UP_WITHIN_S = 3 * PATIENCE_S


@dataclass(frozen=True)
class Team:
    """The folder of a service that Compose starts.

    Attributes:
        folder: with compose.yaml.
        port: of this machine.
    """

    folder: Path
    port: int

    def compose(self, *words: str, may_fail: bool = False) -> str:
        """What `docker compose` says to stdout; an error that was expected is said to stderr."""
        ended = subprocess.run(
            ["docker", "compose", "--no-ansi", *words],
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
        )
        assert may_fail or ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stderr if ended.returncode else ended.stdout

    def pai(self, *words: str) -> str:
        """What `pai-sdk` says in the container of the service."""
        return self.compose("exec", "-T", "service", "pai-sdk", *words)

    def add(self, name: str) -> Session:
        """Add a user; gives their session."""
        endpoint = f"http://localhost:{self.port}"
        settings = json.loads(self.pai("service", "user", "add", name, "--json", "--endpoint", endpoint))
        return Session(
            settings["PAI_REGION_ID"],
            settings["PAI_WORKSPACE_ID"],
            oss_bucket_name=settings["PAI_OSS_BUCKET_NAME"],
            oss_endpoint=settings["PAI_OSS_ENDPOINT"],
            endpoint=settings["PAI_ENDPOINT"],
            aiworkspace_endpoint=settings["PAI_AIWORKSPACE_ENDPOINT"],
            access_key_id=settings["ALIBABA_CLOUD_ACCESS_KEY_ID"],
            access_key_secret=settings["ALIBABA_CLOUD_ACCESS_KEY_SECRET"],
        )

    def state(self, service: str = "service") -> Any:
        """What the engine knows of a container."""
        (container,) = self.compose("ps", "-q", service).split()
        return json.loads(_docker("inspect", container))[0]

    def health(self) -> str:
        """As the engine sees it."""
        return str(self.state()["State"]["Health"]["Status"])

    def until_log(self, *wanted: str) -> str:
        """The log of the service, as soon as it says all this."""
        logs = ""

        def said() -> bool:
            nonlocal logs
            logs = self.compose("logs", "service")
            return all(text in logs for text in wanted)

        until(said, repr(wanted), within_s=UP_WITHIN_S, pause_s=1)
        return logs


def _docker(*words: str) -> str:
    return subprocess.run(["docker", *words], capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def client_folder(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The configuration of a client of Docker that knows Compose; the engine has the images."""
    folder = tmp_path_factory.mktemp("client")
    have_compose(folder)
    shutil.copy(load_images(engine, tmp_path_factory.mktemp("images")), folder)
    return folder


@pytest.fixture
def with_compose(docker_host: Engine, client_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`docker compose` works."""
    monkeypatch.setenv("DOCKER_CONFIG", str(client_folder))


@pytest.fixture
def port() -> int:
    """A free port of this machine."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def team(with_compose: None, port: int, tmp_path: Path) -> Iterator[Team]:
    """The files, in a folder of their own. What they start is taken down."""
    team = Team(tmp_path / "team", port)
    subprocess.run([PAI, "service", "compose", team.folder, "--port", str(port)], check=True)
    try:
        yield team
    finally:
        team.compose("down", "--volumes", "--timeout", "3")


def processor(session: Session, command: str) -> Processor:
    return Processor("python:3.11", command, instance_type="ecs.c6.large", session=session)


def test_the_page_works_as_written(
    with_compose: None,
    client_folder: Path,
    run_page: Callable[[Path], tuple[int, str]],
    fresh_place: Path,
    port: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    page = tmp_path_factory.mktemp("page") / "team.md"
    text = PAGE.read_text(encoding="utf-8").replace("8765", str(port))
    page.write_text(text.replace("cp /srv/", f"cp {client_folder}/"), encoding="utf-8")
    team = Team(fresh_place, port)
    try:
        status, said = run_page(page)
        assert status == 0, said
        # All data came from the backup, which the next release has made.
        assert json.loads(team.pai("service", "status", "--json"))["version"] == NEXT_VERSION
        users = team.pai("service", "user", "list").splitlines()
        assert [line.split()[0] for line in users] == ["USER", "alice", "bob"]
        assert (fresh_place / "alice-model" / "model.txt").read_text() == "what was learned"
        alice, bob = (_seen_by(name, fresh_place) for name in ("alice", "bob"))
        assert ("alice-1" in alice, "step 2" in alice, "bob-1" in alice) == (True, True, False)
        assert ("bob-1" in bob, "hello from bob" in bob, "alice-1" in bob) == (True, True, False)
    finally:
        team.compose("down", "--volumes", "--timeout", "3")


def _seen_by(name: str, folder: Path) -> str:
    """What a user of the page sees with their settings: the jobs, and the log of the last one."""
    script = f". ./{name}.sh && '{PAI}' ps && '{PAI}' logs -"
    return subprocess.run(["bash", "-c", script], cwd=folder, capture_output=True, text=True, check=True).stdout


def test_nobody_is_root_nothing_else_is_written_and_no_secret_is_shown(team: Team, engine: Engine) -> None:
    team.compose("up", "--detach", "--wait")
    with team.add("alice") as alice:
        job = processor(alice, "id -u; touch /usr/x || echo read-only").run(show_logs=False)
        lines = lines_of(job)
    assert lines[-1] == "read-only"
    assert str(os.getuid() or 10001) in lines
    password = (team.folder / "secrets" / "database-password").read_text().strip()
    secret = json.loads(team.compose("exec", "-T", "service", "cat", "/data/.pai/service/service.json"))
    for service in ("service", "database"):
        state = team.state(service)
        processes = _docker("top", state["Id"])
        history = _docker("history", "--no-trunc", state["Image"])
        for shown in (json.dumps(state), processes, history, team.compose("logs", service)):
            assert password not in shown
            assert secret["access_key_secret"] not in shown
        assert state["HostConfig"]["ReadonlyRootfs"]


def test_the_service_is_killed_in_the_middle_of_a_job_and_is_back_by_itself(team: Team) -> None:
    team.compose("up", "--detach", "--wait")
    with team.add("alice") as alice:
        job = processor(alice, "echo begun; sleep 1000").run(wait=False, show_logs=False)
        next(iter(job.logs(follow=True)))
        os.kill(team.state()["State"]["Pid"], signal.SIGKILL)
        with pytest.raises(JobFailed) as failed:
            job.wait(UP_WITHIN_S, show_logs=False)
        assert failed.value.log_tail[-1] == "begun"
        assert lines_of(processor(alice, "echo again").run(show_logs=False))[-1] == "again"
    assert team.state()["RestartCount"] == 1


@pytest.mark.slow
def test_containers_are_removed_in_the_middle_of_a_job_and_made_again(team: Team) -> None:
    team.compose("up", "--detach", "--wait")
    with team.add("alice") as alice:
        ended = processor(alice, "echo one").run(show_logs=False)
        job = processor(alice, "echo begun; sleep 1000").run(wait=False, show_logs=False)
        next(iter(job.logs(follow=True)))
        team.compose("down")
        team.compose("up", "--detach", "--wait")
        with pytest.raises(JobFailed):
            job.wait(PATIENCE_S, show_logs=False)
        assert lines_of(ended)[-1] == "one"
        assert lines_of(job)[-1] == "begun"
        assert lines_of(processor(alice, "echo again").run(show_logs=False))[-1] == "again"


@pytest.mark.slow
def test_a_wrong_password_is_named_and_not_shown(team: Team) -> None:
    file = team.folder / "secrets" / "database-url"
    file.write_text(re.sub(r"pai:\w+@", "pai:wrong-password@", file.read_text()))
    team.compose("up", "--detach")
    logs = team.until_log('password authentication failed for user "pai"')
    assert "wrong-password" not in logs
    assert "Traceback" not in logs


@pytest.mark.slow
def test_a_volume_of_another_user_is_named(team: Team) -> None:
    team.compose("up", "--detach", "--wait")
    team.compose("stop", "service")
    mount = next(each for each in team.state()["Mounts"] if each["Destination"] == "/data")
    os.chown(mount["Source"], 12345, 12345)
    team.compose("start", "service")
    logs = team.until_log("Permission denied", "/data")
    assert "Traceback" not in logs


@pytest.mark.slow
def test_a_full_disk_makes_it_unhealthy_until_there_is_space(team: Team) -> None:
    options = f"size=64m,mode=700,uid={os.getuid() or 10001}"
    volume = {"driver_opts": {"type": "tmpfs", "device": "tmpfs", "o": options}}
    (team.folder / "compose.override.yaml").write_text(json.dumps({"volumes": {"data": volume}}))
    team.compose("up", "--detach", "--wait")
    with team.add("alice") as alice:
        job = processor(alice, "echo one").run(show_logs=False)
        team.compose("exec", "-T", "service", "sh", "-c", "cat /dev/zero > /data/zeros || true")
        until(lambda: team.health() == "unhealthy", "unhealthy", within_s=UP_WITHIN_S, pause_s=1)
        told = requests.get(f"http://localhost:{team.port}/healthz", timeout=60)
        assert (told.status_code, "disk" in told.text) == (503, True)
        assert lines_of(job)[-1] == "one"
        team.compose("exec", "-T", "service", "rm", "/data/zeros")
        until(lambda: team.health() == "healthy", "healthy", within_s=UP_WITHIN_S, pause_s=1)
        assert lines_of(processor(alice, "echo two").run(show_logs=False))[-1] == "two"


@pytest.mark.slow
def test_a_port_that_is_taken_is_named(team: Team) -> None:
    with socket.socket() as other:
        other.bind(("", team.port))
        other.listen()
        told = team.compose("up", "--detach", may_fail=True)
    assert str(team.port) in told
    assert re.search("in use|allocated", told)
