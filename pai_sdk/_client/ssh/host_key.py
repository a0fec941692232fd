"""The host key of the SSH server: one for each user, so that OpenSSH can check it without a prompt."""

from __future__ import annotations

from pathlib import Path

from pai_sdk._core.extras import missing_extra
from pai_sdk._core.files import publish_once, replace_file

HOST_KEY_ALIAS = "pai-sdk"
"""The name of all jobs in `known_hosts`; the server runs on this machine for each of them."""


def ssh_folder() -> Path:
    """Returns the folder of the host key, `known_hosts` and the configuration: `~/.ssh/pai-sdk`."""
    return Path.home() / ".ssh" / "pai-sdk"


def ensure_host_key(folder: Path) -> Path:
    """Returns the file of the host key; creates it, and `known_hosts` beside it, where they are missing.

    Raises:
        MissingExtraError: asyncssh is not installed.
    """
    try:
        import asyncssh
    except ImportError as error:
        raise missing_extra("`pai-sdk ssh` needs asyncssh", "ssh") from error
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)
    file = folder / "host_key"
    if not file.exists():
        # Of two processes that start at once, both use the key of the first one.
        publish_once(file, asyncssh.generate_private_key("ssh-ed25519").export_private_key())
    public = asyncssh.read_private_key(file).export_public_key().decode().split()
    line = f"{HOST_KEY_ALIAS} {public[0]} {public[1]}\n"
    hosts_file = folder / "known_hosts"
    if not hosts_file.exists() or hosts_file.read_text(encoding="utf-8") != line:
        replace_file(hosts_file, line, mode=0o600)
    return file
