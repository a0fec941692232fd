"""`pai-sdk debug`: joins the debugger that a rank of a running job waits in."""

from __future__ import annotations

from typing import Annotated

import typer

from pai_sdk._client.job.debugging import WaitingProcess, join_terminal, launch_json
from pai_sdk._client.job.entering import EnteredJob
from pai_sdk._client.job.training_job import TrainingJob
from pai_sdk._client.tunnel.forwarding import PortForward
from pai_sdk.cli.enter.instances import Instance, JobInstance, find_instance
from pai_sdk.cli.tables import print_error
from pai_sdk.errors import InvalidInputError, Problem

_POLL_S = 1.0  # Ctrl-C does not interrupt longer waits on Windows
_FIRST_PORT = 5678  # of editors' own examples; each rank has one of its own


def debug(
    job_id: JobInstance,
    editor: Annotated[
        bool, typer.Option("--editor", help="Forward the port of debugpy, and print a launch.json for an editor.")
    ] = False,
    source: Annotated[
        str, typer.Option("--source", metavar="FOLDER", help="The local folder of the code, for launch.json.")
    ] = "${workspaceFolder}",
    port: Annotated[
        int | None, typer.Option("--port", help="The local port for the editor; by default 5678 + rank.")
    ] = None,
    wait: Annotated[
        float, typer.Option("--wait", help="Seconds to wait until the rank is at a breakpoint.")
    ] = 60.0,
    instance: Instance = None,
) -> None:
    """Debug a rank of a running job that waits at a breakpoint().

    The job was submitted with debugger="terminal", or "debugpy" for an editor. The commands are those of Pdb: `n`,
    `s`, `p x`, `c` to go on to the next breakpoint. `q`, Ctrl-D and Ctrl-C leave; none of them ends the job.

    Example: pai-sdk debug train129f212o89d:1
    """
    job, name = find_instance(job_id, instance)
    rank = int(name) if name is not None and name.isdecimal() else None
    entered = EnteredJob(job.backend, job.refresh())
    process = entered.wait_for_debugger(
        rank=rank,
        instance=None if rank is not None else name,
        timeout_s=wait,
        on_wait=lambda: typer.echo("waiting for a breakpoint; Ctrl-C leaves", err=True),
    )
    if (process.kind == "debugpy") != editor:
        option = "give --editor" if process.kind == "debugpy" else "leave out --editor"
        raise InvalidInputError([Problem("--editor", f"{process} waits for a {_CLIENTS[process.kind]}", option)])
    if editor:
        _forward(entered, process, source, port)
    else:
        _join(job, entered, process)


_CLIENTS = {"debugpy": "debugger of an editor", "terminal": "terminal"}


def _join(job: TrainingJob, entered: EnteredJob, process: WaitingProcess) -> None:
    if process.state == "joined":
        typer.echo(f"{process}: replacing the client that has joined before", err=True)
    try:
        with entered.connect(process.instance) as tunnel:
            join_terminal(tunnel, process)
    except KeyboardInterrupt:
        command = f"pai-sdk debug {job.id}:{process.rank}"
        typer.echo(f"\nleft; at a breakpoint rank {process.rank} waits for: {command}", err=True)


def _forward(entered: EnteredJob, process: WaitingProcess, source: str, port: int | None) -> None:
    local = _FIRST_PORT + process.rank if port is None else port
    with _open(entered, process, local, is_explicit=port is not None) as forward:
        typer.echo(launch_json(process, port=forward.ports[0].local, local_folder=source))
        typer.echo(
            f"{process}: attach your editor to 127.0.0.1:{forward.ports[0].local}. Ctrl-C closes the port; detach "
            "the editor first, without ending the program.",
            err=True,
        )
        try:
            while not forward.wait(_POLL_S):
                pass
        except KeyboardInterrupt:
            typer.echo("\nclosed", err=True)


def _open(entered: EnteredJob, process: WaitingProcess, local: int, *, is_explicit: bool) -> PortForward:
    try:
        return entered.forward([(local, process.port)], process.instance, on_error=_print_error)
    except InvalidInputError:
        if is_explicit:
            raise
        # Another program has the default port.
        return entered.forward([(0, process.port)], process.instance, on_error=_print_error)


def _print_error(text: str) -> None:
    print_error(f"error: {text}")
