"""`pai-sdk exec`: a command, or a shell, in an instance of a running job."""

from __future__ import annotations

from typing import Annotated

import typer

from pai_sdk.cli.selection.job_names import JobId, find_job

_SHELL = ["sh", "-c", "if command -v bash >/dev/null; then exec bash; else exec sh; fi"]


def exec_(
    job_id: JobId,
    command: Annotated[
        list[str] | None, typer.Argument(metavar="COMMAND", help="The command; by default a shell.")
    ] = None,
    instance: Annotated[
        str | None, typer.Option("--instance", "-i", help="The instance: `master-0` (the first), `worker-1`, …")
    ] = None,
) -> None:
    """Run a command in the environment of a running job: its `/ml`, folder and variables. Options come before JOB.

    That works for jobs in Docker on this machine and for jobs of a service that you run on this machine. The exit
    code is that of the command: 127 if the job has no such program, 126 if it cannot be started.

    Example: pai-sdk exec train129f212o89d nvidia-smi
    """
    argv = [*(command or _SHELL)]
    if argv[0] == "--":
        argv = argv[1:] or _SHELL
    raise typer.Exit(find_job(job_id).exec(argv, instance=instance))
