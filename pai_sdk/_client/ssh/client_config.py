"""The settings of OpenSSH for one instance of a job: for its command line and for its configuration file."""

from __future__ import annotations

import hashlib
import shlex
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pai_sdk._client.ssh.host_key import HOST_KEY_ALIAS
from pai_sdk._core.files import replace_file

_SOCKET_PATH_BYTES = 104 - 18  # the limit of macOS, less what OpenSSH adds to it while it creates the socket
_PERSIST = "60"  # seconds that a connection stays open for the next command


@dataclass(frozen=True)
class HostSettings:
    """How OpenSSH reaches one instance.

    Attributes:
        names: the names of the host, the first of them in `known_hosts` messages.
        command: the command that OpenSSH starts to connect, as an argument list.
        folder: the folder of `known_hosts` and of the sockets of shared connections.
        has_sockets: whether the system has Unix sockets, for shared connections and passed descriptors.
    """

    names: tuple[str, ...]
    command: tuple[str, ...]
    folder: Path
    has_sockets: bool = sys.platform != "win32"

    @property
    def options(self) -> dict[str, str]:
        """Returns the options, in the format of `ssh_config`."""
        options = {
            "ProxyCommand": self._proxy_command(),
            "HostKeyAlias": HOST_KEY_ALIAS,
            "UserKnownHostsFile": _quoted(self.folder / "known_hosts"),
            "GlobalKnownHostsFile": "none",
            "StrictHostKeyChecking": "yes",
            "UpdateHostKeys": "no",
            "CanonicalizeHostname": "no",
            # The fastest of the server's; the connection to the job has an encryption of its own.
            "Ciphers": "aes128-gcm@openssh.com",
            "Compression": "no",
            "ForwardAgent": "no",
            "ForwardX11": "no",
            # A tunnel that is being joined again is a pause. The tunnel itself notices a dead connection.
            "ServerAliveInterval": "0",
        }
        if not self.has_sockets:
            return options
        options["ProxyUseFdpass"] = "yes"
        control_path = self._control_path()
        if control_path is not None:
            options |= {"ControlMaster": "auto", "ControlPath": _quoted(control_path), "ControlPersist": _PERSIST}
        return options

    def arguments(self) -> list[str]:
        """Returns the options for the command line of `ssh`, `scp` and `sftp`."""
        return [part for name, value in self.options.items() for part in ("-o", f"{name}={value}")]

    def block(self) -> str:
        """Returns the block of a configuration file."""
        lines = [f"Host {' '.join(self.names)}", *(f"  {name} {value}" for name, value in self.options.items())]
        return "\n".join(lines) + "\n"

    def _proxy_command(self) -> str:
        # OpenSSH replaces `%h` and others, then runs the command by a shell; Windows splits it by other rules.
        joined = shlex.join(self.command) if self.has_sockets else subprocess.list2cmdline(self.command)
        return joined.replace("%", "%%")

    def _control_path(self) -> Path | None:
        """Returns the socket of shared connections; None where the path would be too long."""
        # By the command, so that equal names of two services share no connection.
        digest = hashlib.sha256("\0".join(self.command).encode()).hexdigest()[:16]
        path = self.folder / f"mux-{digest}"
        return path if len(str(path).encode()) <= _SOCKET_PATH_BYTES else None


def _quoted(path: Path) -> str:
    """Returns a path for `ssh_config`, whose values end at a space and in which `%` is special."""
    text = path.as_posix().replace("%", "%%")
    return f'"{text}"' if " " in text else text


def write_config(folder: Path, hosts: Iterable[HostSettings]) -> Path:
    """Adds blocks to the configuration file of the folder; those of the same names are replaced.

    Returns:
        The file, which `~/.ssh/config` can include.
    """
    file = folder / "config"
    existing = file.read_text(encoding="utf-8") if file.exists() else ""
    blocks = _blocks(existing)
    for host in hosts:
        blocks[f"Host {' '.join(host.names)}"] = host.block()
    replace_file(file, "\n".join(blocks.values()), mode=0o600)
    return file


def _blocks(text: str) -> dict[str, str]:
    """Splits a configuration file at its lines `Host …`."""
    blocks: dict[str, str] = {}
    name = ""
    for line in text.splitlines(keepends=True):
        if line.startswith("Host "):
            name = line.strip()
        blocks[name] = blocks.get(name, "") + line
    return {name: block.strip() + "\n" for name, block in blocks.items() if block.strip()}


def is_included(user_config: Path, file: Path) -> bool:
    """Returns whether the user's configuration includes a file."""
    if not user_config.exists():
        return False
    lines = user_config.read_text(encoding="utf-8", errors="replace").splitlines()
    split_lines = [line.split() for line in lines]
    patterns = {str(file), f"~/.ssh/{file.parent.name}/{file.name}", f"{file.parent.name}/{file.name}"}
    return any(
        parts[0].lower() == "include" and patterns & set(parts[1:]) for parts in split_lines if len(parts) > 1
    )


def include_line(file: Path) -> str:
    """Returns the line that includes a file of `~/.ssh/pai-sdk`, for the top of `~/.ssh/config`."""
    return f"Include {file.parent.name}/{file.name}"


def ssh_command(settings: HostSettings, arguments: Sequence[str]) -> list[str]:
    """Returns the command line of `ssh` to a host; arguments are further options of ssh and the command."""
    return ["ssh", *settings.arguments(), settings.names[0], *arguments]
