"""OpenSSH's own server on loopback, with keys of its own, to compare with."""

from __future__ import annotations

import getpass
import shutil
import socket
import subprocess
from pathlib import Path

from tests.support.waiting import until

__all__ = ["OpenSshServer", "why_not"]

_SERVER = "/usr/sbin/sshd"


def why_not() -> str | None:
    """Why there can be no server here, in one line; None where there can."""
    missing = [program for program in (_SERVER, "ssh", "ssh-keygen") if shutil.which(program) is None]
    return f"{', '.join(missing)} not installed" if missing else None


class OpenSshServer:
    """A server for this user alone. Use it as a context manager.

    Attributes:
        command: `ssh` with its options and the host, for a command.
        port: where it listens.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700)
        for name in ("host_key", "user_key"):
            subprocess.run(
                ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True, timeout=60
            )
        (folder / "authorized_keys").write_bytes((folder / "user_key.pub").read_bytes())
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        lines = [
            f"Port {self.port}",
            "ListenAddress 127.0.0.1",
            f"HostKey {folder / 'host_key'}",
            f"AuthorizedKeysFile {folder / 'authorized_keys'}",
            f"PidFile {folder / 'pid'}",
            "StrictModes no",
            "UsePAM no",
            "PasswordAuthentication no",
            "PermitRootLogin prohibit-password",
        ]
        (folder / "config").write_text("\n".join([*lines, ""]))
        options = {
            "StrictHostKeyChecking": "no",
            "UserKnownHostsFile": "/dev/null",
            "LogLevel": "ERROR",
            "IdentityFile": folder / "user_key",
            "IdentitiesOnly": "yes",
            "Port": self.port,
            "Ciphers": "aes128-gcm@openssh.com",  # as pai-sdk sets it
            "ControlMaster": "auto",
            "ControlPath": folder / "mux",
            "ControlPersist": "60",
        }
        words = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
        self.command = ["ssh", "-F", "none", *words, f"{getpass.getuser()}@127.0.0.1"]
        self._folder = folder

    def __enter__(self) -> OpenSshServer:
        Path("/run/sshd").mkdir(exist_ok=True, parents=True)
        self._process = subprocess.Popen(
            [_SERVER, "-D", "-e", "-f", str(self._folder / "config")],
            stdin=subprocess.DEVNULL,
            stderr=(self._folder / "log").open("wb"),
        )
        until(self._listens, "the port of sshd")
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(20)

    def _listens(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), 5).close()
        except OSError:
            return False
        return True
