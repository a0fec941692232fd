"""`pai-sdk ssh`, `pai-sdk ssh-config` and `pai-sdk ssh-proxy`: OpenSSH and editors in running jobs."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from pai_sdk._client.job.entering import EnteredJob
from pai_sdk._client.ssh.client_config import HostSettings, include_line, is_included, ssh_command, write_config
from pai_sdk._client.ssh.host_key import ensure_host_key, ssh_folder
from pai_sdk._wire.pai.status import JobStatus
from pai_sdk.cli.enter.instances import JobInstance, find_instance
from pai_sdk.cli.selection.backend import selected_backend
from pai_sdk.errors import InvalidInputError, Problem

_DOMAIN = ".pai"  # the end of the names of hosts, so that a job is not confused with a machine
_HOST_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def ssh(
    job: JobInstance,
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="ARGS", help="Options of ssh, and the command; without one, a shell."),
    ] = None,
) -> None:
    """Open a shell, or run a command, in a running job by OpenSSH. Options of pai-sdk come before JOB.

    The image needs no SSH server, and the job opens no port: the connection goes through the service. Everything
    after JOB is for ssh. For scp, sftp, rsync and editors, see `pai-sdk ssh-config`.

    Example: pai-sdk ssh train129f212o89d -L 6006:localhost:6006
    """
    if shutil.which("ssh") is None:
        problem = "the program ssh is not on PATH: install the OpenSSH client"
        raise InvalidInputError([Problem("ssh", problem, "`pai-sdk shell` needs none")])
    settings = _host_settings(job, is_running=True)
    ensure_host_key(settings.folder)
    command = ssh_command(settings, arguments or [])
    if sys.platform == "win32":  # its exec starts another process, and the shell would not wait for it
        raise typer.Exit(subprocess.run(command, check=False).returncode)
    os.execvp(command[0], command)  # noqa: S606 - signals and the terminal are for ssh


def ssh_config(
    jobs: Annotated[list[str], typer.Argument(metavar="JOB[:RANK]", help="Running jobs, or instances of them.")],
    write: Annotated[bool, typer.Option("--write", help="Write it to ~/.ssh/pai-sdk/config.")] = False,
) -> None:
    """Print the configuration of OpenSSH for running jobs: for ssh, scp, sftp, rsync, VS Code and PyCharm.

    The host of a job is its id, or its name, and `.pai`. The host of an instance is `JOB.RANK.pai`.

    Example: pai-sdk ssh-config train129f212o89d --write
    """
    hosts = [_host_settings(job) for job in jobs]
    ensure_host_key(ssh_folder())
    if not write:
        typer.echo("\n".join(host.block() for host in hosts), nl=False)
        return
    file = write_config(ssh_folder(), hosts)
    for host in hosts:
        typer.echo(host.names[0])
    if not is_included(Path.home() / ".ssh" / "config", file):
        typer.echo(f"add this line at the top of ~/.ssh/config: {include_line(file)}", err=True)


def _host_settings(text: str, *, is_running: bool = False) -> HostSettings:
    """Returns how OpenSSH reaches JOB[:RANK]: by the id of the job, since a name may be of another job later."""
    job, instance = find_instance(text)
    # Before OpenSSH starts: with ControlPersist it discards what its ProxyCommand prints.
    if job.record.instance_names and (is_running or job.record.status == JobStatus.RUNNING):
        EnteredJob(job.backend, job.record).instance_name(instance)
    option = shlex.split(selected_backend().option)
    target = job.id if instance is None else f"{job.id}:{instance}"
    suffix = _DOMAIN if instance is None else f".{instance}{_DOMAIN}"
    names = [f"{name}{suffix}" for name in (job.id, job.name) if _HOST_NAME.fullmatch(name)]
    command = (sys.executable, "-m", "pai_sdk", "ssh-proxy", *option, target)
    return HostSettings(tuple(dict.fromkeys(names)), command, ssh_folder())
