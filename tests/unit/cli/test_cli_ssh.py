"""`pai-sdk ssh` and `pai-sdk ssh-config`, against a backend in memory."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

import pytest

from pai_sdk.errors import InvalidInputError, MissingExtraError
from tests.support.fake_backend import FakeBackend
from tests.support.messages import refused
from tests.unit.cli.conftest import Pai


def options_of(block: str) -> dict[str, str]:
    return dict(line.split(" ", 1) for line in map(str.strip, block.splitlines()) if line)


def test_the_configuration_of_a_job_and_of_an_instance(pai: Pai, memory: FakeBackend) -> None:
    printed = pai("ssh-config", "train1", "train1:1").stdout
    job, instance = (options_of(block) for block in printed.split("\n\n"))
    assert job["Host"].split()[0] == "train1.pai"
    assert instance["Host"].split()[0] == "train1.1.pai"
    assert shlex.split(job["ProxyCommand"]) == [sys.executable, "-m", "pai_sdk", "ssh-proxy", "train1"]
    assert shlex.split(instance["ProxyCommand"])[-1] == "train1:1"
    assert job["ControlPath"] != instance["ControlPath"]
    assert Path(job["UserKnownHostsFile"]).read_text().startswith(f"{job['HostKeyAlias']} ssh-ed25519 ")


def test_the_connection_has_the_backend_of_the_command(pai: Pai, memory: FakeBackend) -> None:
    printed = pai("ssh-config", "--embedded", "train1").stdout
    assert shlex.split(options_of(printed)["ProxyCommand"])[-2:] == ["--embedded", "train1"]


def test_written_hosts_are_named_and_the_include_is_explained_once(pai: Pai, memory: FakeBackend) -> None:
    done = pai("ssh-config", "train1", "--write")
    assert done.stdout == "train1.pai\n"
    assert "Include pai-sdk/config" in done.stderr
    (Path.home() / ".ssh" / "config").write_text("Include pai-sdk/config\n")
    assert pai("ssh-config", "train1", "--write").stderr == ""
    assert (Path.home() / ".ssh" / "pai-sdk" / "config").read_text().count("Host ") == 1


def test_ssh_gets_what_follows_the_job(pai: Pai, memory: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[str]] = []

    def execute(_: str, command: list[str]) -> None:
        commands.append(command)

    monkeypatch.setattr(os, "execvp", execute)
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    pai("ssh", "train1:1", "-L", "6006:localhost:6006", "nvidia-smi", "--loop")
    assert commands[0][0] == "ssh"
    assert commands[0][-5:] == ["train1.1.pai", "-L", "6006:localhost:6006", "nvidia-smi", "--loop"]
    memory.status, memory.lines = "Succeed", {"train1-master-0": []}
    with refused(InvalidInputError, "JOB"):
        pai("ssh", "train1")
    monkeypatch.setattr("shutil.which", lambda name: None)
    with refused(InvalidInputError, "ssh"):
        pai("ssh", "train1")


def test_the_extra_is_named(pai: Pai, memory: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "asyncssh", None)
    for command in (("ssh-config", "train1"), ("ssh-proxy", "train1")):
        with pytest.raises(MissingExtraError) as raised:
            pai(*command)
        assert raised.value.extra == "ssh"
