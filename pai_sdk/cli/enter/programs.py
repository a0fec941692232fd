"""`pai-sdk exec` and `pai-sdk shell`: a command, or a shell, in running instances of a job."""

from __future__ import annotations

from typing import Annotated

import typer

from pai_sdk.cli.enter.instances import Instance, JobInstance, find_instance
from pai_sdk.errors import InvalidInputError, Problem


def exec_(
    job_id: JobInstance,
    command: Annotated[
        list[str] | None, typer.Argument(metavar="COMMAND", help="The command; by default a shell.")
    ] = None,
    instance: Instance = None,
    all_instances: Annotated[
        bool, typer.Option("--all", "-a", help="Run it in all instances; lines of the output start with the rank.")
    ] = False,
) -> None:
    """Run a command in the environment of a running job: its `/ml`, folder and variables. Options come before JOB.

    The exit code is that of the command, with --all the highest one: 127 if the job has no such program, 126 if it
    cannot be started. A lost connection is opened again, and no output is lost.

    Example: pai-sdk exec train129f212o89d nvidia-smi
    """
    argv = [*(command or ())]
    if argv[:1] == ["--"]:
        argv = argv[1:]
    elif argv and argv[0].startswith("-"):
        problem = f"{argv[0]} is after JOB, where the command starts"
        raise InvalidInputError([Problem("COMMAND", problem, "options come before JOB")])
    job, name = find_instance(job_id, instance)
    if not all_instances:
        raise typer.Exit(job.exec(argv, instance=name) if argv else job.shell(instance=name))
    if name is not None:
        raise InvalidInputError([Problem("--all", "runs in all instances, and one is named", "leave out one")])
    if not argv:
        raise InvalidInputError([Problem("COMMAND", "is missing", "a shell runs in one instance at a time")])
    code = job.exec(argv, all_instances=True)
    raise typer.Exit(code if isinstance(code, int) else 0)


def shell(job_id: JobInstance, instance: Instance = None) -> None:
    """Open a shell in a running job, in its environment and working directory.

    A lost connection is opened again, and the shell continues. Programs of the shell end with it.

    Example: pai-sdk shell train129f212o89d
    """
    job, name = find_instance(job_id, instance)
    raise typer.Exit(job.shell(instance=name))
