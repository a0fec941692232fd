"""`pai-sdk stacks`: what the ranks of a running job do at this moment."""

from __future__ import annotations

from typing import Annotated

import typer

from pai_sdk.cli.enter.instances import Instance, JobInstance, find_instance
from pai_sdk.cli.options import Json
from pai_sdk.cli.tables import print_json


def stacks(
    job_id: JobInstance,
    native: Annotated[
        bool, typer.Option("--native", help="Functions of compiled libraries, too; pauses each process for 40 ms.")
    ] = False,
    timeout: Annotated[float, typer.Option("--timeout", help="Seconds, after which the rest is left out.")] = 60.0,
    instance: Instance = None,
    as_json: Json = False,
) -> None:
    """Show the Python stacks of all ranks of a running job, the rank that differs from all others first.

    Equal stacks are printed once. The rank that the others wait for is seldom in a collective operation itself.
    Processes are read from outside by py-spy, which need not be in the image, and go on meanwhile.

    Example: pai-sdk stacks train129f212o89d
    """
    job, name = find_instance(job_id, instance)
    result = job.stacks(native=native, instance=name, timeout=timeout)
    if as_json:
        print_json(result.to_dict())
    else:
        typer.echo(repr(result))
