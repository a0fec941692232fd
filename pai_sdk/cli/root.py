"""The command's frame: its sub-commands, and how an error becomes a line and an exit code."""

from __future__ import annotations

import io
import logging
import os
import sys
from typing import Annotated

import typer

from pai_sdk.base.version import __version__
from pai_sdk.cli import algorithms, demo, exit_codes, jobs, local, metric_commands, pack, serve, traces, transfers
from pai_sdk.errors import NotFoundError, ObjectNotFoundError, PaiError
from pai_sdk.job.interrupts import single_interrupt

app = typer.Typer(
    name="pai-sdk",
    help="List, follow and stop training jobs; move their files; serve the API that runs them. Exit codes: "
    "0 succeeded, 100 failed, 101 not finished, 102 not found, 103 stopped, 1 other errors, 2 wrong usage.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("ps")(jobs.ps)
app.command("logs")(jobs.logs)
app.command("status")(jobs.status)
app.command("wait")(jobs.wait)
app.command("stop")(jobs.stop)
app.command("metrics")(metric_commands.metrics)
app.command("tensorboard")(metric_commands.tensorboard)
app.command("pack")(pack.pack)
app.command("cp")(transfers.cp)
app.command("ls")(transfers.ls)
app.command("sync")(transfers.sync)
app.command("rm")(transfers.rm)
app.command("prune")(local.prune)
app.command("demo")(demo.demo)
app.command("serve")(serve.serve)
app.add_typer(algorithms.app, name="algorithm")
app.add_typer(traces.app, name="trace")


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"pai-sdk {__version__}")
        raise typer.Exit


@app.callback()
def _frame(
    context: typer.Context,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show what goes over the wire.")] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    del version  # handled before we come here
    if os.environ.get("NO_COLOR"):
        context.color = False
    logging.basicConfig(level=logging.DEBUG if verbose else logging.WARNING, format="%(levelname)s %(message)s")
    # The credentials library logs a traceback for each place without a key; our error lists them all in the end.
    logging.getLogger("credentials").disabled = not verbose


def run() -> None:
    """Run the command and leave with its exit code."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a name that this terminal cannot show is no reason to fail
    try:
        with single_interrupt():
            app(prog_name="pai-sdk")
    except (NotFoundError, ObjectNotFoundError) as error:
        _print_error(error)
        sys.exit(exit_codes.NOT_FOUND)
    except PaiError as error:
        _print_error(error)
        sys.exit(exit_codes.ERROR)
    except OSError as error:
        _print_error(error)  # a full disk, say, behind `pai-sdk logs … > file`
        sys.exit(exit_codes.ERROR)
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):
            # `pai-sdk logs … | head`: the reader has closed the pipe, which is no error.
            sys.exit(exit_codes.SUCCEEDED)
        raise


def _print_error(error: Exception) -> None:
    typer.secho(f"error: {error}", fg=None if os.environ.get("NO_COLOR") else "red", err=True)
