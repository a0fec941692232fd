"""`pai-sdk ssh-proxy`: the end of a tunnel that OpenSSH speaks to."""

from __future__ import annotations

import typer

from pai_sdk._client.job.entering import EnteredJob
from pai_sdk._client.ssh.host_key import ensure_host_key, ssh_folder
from pai_sdk._client.tunnel.opening import JobTunnel
from pai_sdk.cli.enter.instances import JobInstance, find_instance


def ssh_proxy(job: JobInstance) -> None:
    """Serve one connection of OpenSSH, which starts this as its ProxyCommand; `pai-sdk ssh-config` writes that.

    Example: pai-sdk ssh-proxy train129f212o89d
    """
    ensure_host_key(ssh_folder())  # first, since it names the extra if asyncssh is missing
    from pai_sdk._client.ssh.proxy import run_proxy

    def open_tunnel() -> JobTunnel:
        entered, instance = find_instance(job)
        return EnteredJob(entered.backend, entered.record).connect(instance)

    raise typer.Exit(run_proxy(open_tunnel, ssh_folder()))
