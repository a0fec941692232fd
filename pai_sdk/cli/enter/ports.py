"""`pai-sdk forward`: ports of a running job on this machine, and the reverse."""

from __future__ import annotations

from typing import Annotated

import typer

from pai_sdk._client.job.entering import EnteredJob
from pai_sdk._client.tunnel.forwarding import parse_ports
from pai_sdk.cli.enter.instances import Instance, JobInstance, find_instance
from pai_sdk.cli.tables import print_error

_POLL_S = 1.0  # Ctrl-C does not interrupt longer waits on Windows


def forward(
    job_id: JobInstance,
    ports: Annotated[
        list[str],
        typer.Argument(
            metavar="PORT", help="A port, or LOCAL:REMOTE. The side that listens may be 0, any free port."
        ),
    ],
    reverse: Annotated[
        bool, typer.Option("--reverse", help="Listen in the job, and connect to the ports of this machine.")
    ] = False,
    instance: Instance = None,
) -> None:
    """Forward ports of this machine to a running job until Ctrl-C: TensorBoard, a notebook, a debugger in it.

    Example: pai-sdk forward train129f212o89d 6006 8888:80
    """
    parsed = parse_ports(ports, reverse=reverse)
    job, name = find_instance(job_id, instance)
    entered = EnteredJob(job.backend, job.refresh())
    with entered.forward(parsed, name, reverse=reverse, on_error=_print_error) as forwards:
        for port in forwards.ports:
            local, remote = f"127.0.0.1:{port.local}", f"port {port.remote} of {forwards.instance}"
            typer.echo(f"{remote} -> {local}" if reverse else f"{local} -> {remote}")
        typer.echo("Press Ctrl-C to close.", err=True)
        try:
            while not forwards.wait(_POLL_S):
                pass
        except KeyboardInterrupt:
            typer.echo("\nclosed", err=True)


def _print_error(text: str) -> None:
    print_error(f"error: {text}")
