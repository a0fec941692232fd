"""The configuration that OpenSSH reads, and the host key behind it."""

from __future__ import annotations

import os
import shlex
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from pai_sdk._client.ssh.client_config import HostSettings, include_line, is_included, ssh_command, write_config
from pai_sdk._client.ssh.host_key import ensure_host_key

needs_ssh = pytest.mark.skipif(not Path("/usr/bin/ssh").exists(), reason="needs the OpenSSH client")


def settings(
    folder: Path, *names: str, command: tuple[str, ...] = ("/opt/python 3/bin/python", "100%")
) -> HostSettings:
    return HostSettings(names or ("train1.pai",), command, folder)


@needs_ssh
def test_openssh_reads_what_is_written(tmp_path: Path) -> None:
    folder = tmp_path / "a folder"
    folder.mkdir()
    file = write_config(folder, [settings(folder, "train1.pai", "mine.pai")])
    printed = subprocess.run(
        ["ssh", "-F", file, "-G", "mine.pai"], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    values = dict(line.split(" ", 1) for line in printed.splitlines())
    assert values["proxycommand"] == "'/opt/python 3/bin/python' 100%%"
    assert values["userknownhostsfile"].strip('"') == str(folder / "known_hosts")
    assert values["stricthostkeychecking"] == "true"
    assert values["proxyusefdpass"] == "yes"
    assert values["ciphers"] == "aes128-gcm@openssh.com"
    assert values["serveraliveinterval"] == "0"


def test_a_host_that_is_written_again_replaces_its_block(tmp_path: Path) -> None:
    write_config(tmp_path, [settings(tmp_path, "a.pai", command=("old",)), settings(tmp_path, "b.pai")])
    file = write_config(tmp_path, [settings(tmp_path, "a.pai", command=("new",))])
    text = file.read_text()
    assert [line for line in text.splitlines() if line.startswith("Host ")] == ["Host a.pai", "Host b.pai"]
    assert "ProxyCommand new" in text
    assert "ProxyCommand old" not in text
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_no_shared_connection_where_its_socket_has_a_long_path(tmp_path: Path) -> None:
    assert "ControlPath" in settings(Path("/home/me/.ssh/pai-sdk")).options
    assert "ControlPath" not in settings(Path("/home/" + "m" * 90)).options


def test_windows_has_neither_descriptors_nor_shared_connections() -> None:
    options = HostSettings(
        ("a.pai",), ("C:\\Python 3\\python.exe", "-m", "pai_sdk"), Path("k"), has_sockets=False
    ).options
    assert options["ProxyCommand"] == '"C:\\Python 3\\python.exe" -m pai_sdk'
    assert not {"ProxyUseFdpass", "ControlMaster", "ControlPath"} & set(options)


def test_jobs_of_other_services_share_no_connection(tmp_path: Path) -> None:
    paths = {
        settings(Path("/f"), command=("pai-sdk", *option, "train1")).options["ControlPath"]
        for option in ((), ("--profile", "b"))
    }
    assert len(paths) == 2


def test_the_line_of_the_include_is_recognized(tmp_path: Path) -> None:
    file = tmp_path / ".ssh" / "pai-sdk" / "config"
    config = tmp_path / ".ssh" / "config"
    assert not is_included(config, file)
    config.parent.mkdir()
    config.write_text(f"# mine\n{include_line(file)}\nHost *\n")
    assert is_included(config, file)
    config.write_text("Include other\n")
    assert not is_included(config, file)


def test_arguments_of_ssh_come_after_the_host(tmp_path: Path) -> None:
    command = ssh_command(settings(tmp_path), ["-N", "-L", "1:localhost:2"])
    assert command[0] == "ssh"
    assert shlex.join(command).endswith("train1.pai -N -L 1:localhost:2")


def test_the_host_key_stays_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    folder = tmp_path / ".ssh" / "pai-sdk"
    file = ensure_host_key(folder)
    key, known_hosts = file.read_bytes(), (folder / "known_hosts").read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert known_hosts.startswith("pai-sdk ssh-ed25519 ")
    (folder / "known_hosts").unlink()
    assert ensure_host_key(folder) == file
    assert file.read_bytes() == key
    assert (folder / "known_hosts").read_text() == known_hosts


def test_processes_that_start_at_once_have_one_key(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from pai_sdk._client.ssh.host_key import ensure_host_key;"
        "ensure_host_key(Path(sys.argv[1]))"
    )
    processes = [
        subprocess.Popen([sys.executable, "-c", program, str(tmp_path / "keys")], env=dict(os.environ))
        for _ in range(3)
    ]
    assert [process.wait(60) for process in processes] == [0, 0, 0]
    key = (tmp_path / "keys" / "host_key").read_bytes()
    known = (tmp_path / "keys" / "known_hosts").read_text()
    ensure_host_key(tmp_path / "keys")
    assert ((tmp_path / "keys" / "host_key").read_bytes(), (tmp_path / "keys" / "known_hosts").read_text()) == (
        key,
        known,
    )


def test_a_missing_library_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "asyncssh", None)
    with pytest.raises(Exception) as raised:
        ensure_host_key(tmp_path)
    assert getattr(raised.value, "extra", None) == "ssh"
