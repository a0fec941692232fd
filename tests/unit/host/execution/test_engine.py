"""Looking for an engine: the one that is named decides; where none answers, all that was tried is told."""

from __future__ import annotations

import hashlib
import json
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from pai_sdk._host.execution.docker.engine import find_engine
from pai_sdk.errors import EngineNotFoundError
from tests.support.messages import refused


@pytest.fixture
def brief() -> Iterator[Path]:
    """A folder whose name is short enough for that of a socket, which may have a hundred characters."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield Path(folder)


@contextmanager
def listening(folder: Path, answer: bytes = b"") -> Iterator[None]:
    """A socket `s` that takes connections, and says this or nothing."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"{folder}/s")
        server.listen()

        def serve() -> None:
            with suppress(OSError):  # the end of the block closes the socket
                while True:
                    with server.accept()[0] as connection, suppress(BrokenPipeError):
                        connection.recv(4096)
                        connection.sendall(answer)

        if answer:
            threading.Thread(target=serve, daemon=True).start()
        yield
        server.shutdown(socket.SHUT_RDWR)


def test_an_engine_that_hangs_is_not_asked_for_more_than_a_ping(monkeypatch, brief):
    """What is asked after it has much more time to answer."""
    asked = []
    monkeypatch.setattr("docker.DockerClient", lambda **_: asked.append("client") or FakeClient())
    monkeypatch.setenv("DOCKER_HOST", f"unix://{brief}/s")
    with listening(brief), pytest.raises(EngineNotFoundError, match="does not respond"):
        find_engine(ping_timeout_s=0.1)
    assert asked == []


def test_without_any_engine_all_that_was_tried_is_told(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with pytest.raises(EngineNotFoundError) as missing:
        find_engine(system_sockets=())
    text = str(missing.value)
    for part in (f"{tmp_path}/docker.sock", "podman.sock", "Docker Desktop", "DOCKER_HOST", "Session.embedded()"):
        assert part in text


def test_docker_host_decides_alone(monkeypatch, brief):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{brief}/none.sock")
    with pytest.raises(EngineNotFoundError) as missing:
        find_engine()
    assert f"{brief}/none.sock (DOCKER_HOST): no such socket" in str(missing.value)
    assert "/var/run/docker.sock" not in str(missing.value)


def test_an_engine_of_another_machine_is_refused_with_the_reason(monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", "tcp://10.0.0.1:2375")
    with refused(EngineNotFoundError):
        find_engine()


def test_a_context_is_taken_and_a_missing_one_named(monkeypatch, brief, clean_home):
    meta = clean_home / ".docker" / "contexts" / "meta" / hashlib.sha256(b"desk").hexdigest()
    meta.mkdir(parents=True)
    endpoint = {"Host": f"unix://{brief}/desk.sock", "SkipTLSVerify": False}
    about = {"Name": "desk", "Metadata": {}, "Endpoints": {"docker": endpoint}}
    (meta / "meta.json").write_text(json.dumps(about))
    config = clean_home / ".docker" / "config.json"
    config.write_text('{"currentContext": "desk"}')
    with pytest.raises(EngineNotFoundError, match=r"desk\.sock \(Docker context 'desk'\): no such socket"):
        find_engine()
    monkeypatch.setenv("DOCKER_CONTEXT", "nowhere")
    with refused(EngineNotFoundError):
        find_engine()


def test_a_socket_with_nobody_behind_it(monkeypatch, brief):
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(f"{brief}/s")
    monkeypatch.setenv("DOCKER_HOST", f"unix://{brief}/s")
    with pytest.raises(EngineNotFoundError, match="does not respond"):
        find_engine()


class FakeClient:
    """Answers as an engine with these security options, and what it tells of its version."""

    def __init__(self, *options: str, version: dict[str, object] | None = None) -> None:
        self.options = list(options)
        self.told = {"Components": [{"Name": "Engine"}]} if version is None else version

    def info(self) -> dict[str, object]:
        return {"SecurityOptions": self.options}

    def version(self) -> dict[str, object]:
        return self.told

    def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("options", "rootless", "access"),
    [
        (["name=seccomp,profile=default"], False, {}),
        (["name=seccomp,profile=default", "name=rootless"], True, {}),
        (["name=selinux"], False, {"security_opt": ["label=disable"]}),
        (["name=userns"], False, {"userns_mode": "host"}),
    ],
)
def test_what_an_engine_needs_to_let_containers_at_the_callers_files(
    monkeypatch, brief, options, rootless, access
):
    with listening(brief, b"HTTP/1.0 200 OK\r\n\r\n"):
        monkeypatch.setenv("DOCKER_HOST", f"unix://{brief}/s")
        monkeypatch.setattr("docker.DockerClient", lambda **_: FakeClient(*options))
        engine = find_engine()
    assert (engine.is_rootless, engine.file_access) == (rootless, access)


@pytest.mark.parametrize(
    ("version", "is_podman"),
    [
        ({}, False),
        ({"Version": "5.0.0-rc.1", "Components": None}, False),
        ({"Version": "99.0", "Components": [{"Version": "99.0"}, {"Name": "Engine"}]}, False),
        ({"Version": "v2", "Components": [{"Name": "Podman Engine", "Version": "v2"}]}, True),
    ],
)
def test_whatever_its_version_says_an_engine_that_answers_is_taken(monkeypatch, brief, version, is_podman):
    with listening(brief, b"HTTP/1.0 200 OK\r\n\r\n"):
        monkeypatch.setenv("DOCKER_HOST", f"unix://{brief}/s")
        monkeypatch.setattr("docker.DockerClient", lambda **_: FakeClient(version=version))
        assert find_engine().is_podman is is_podman
