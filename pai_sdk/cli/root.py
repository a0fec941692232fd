"""The root of the command line: registers the commands, and converts errors to messages and exit codes."""

from __future__ import annotations

import io
import logging
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Annotated, Any

import typer

from pai_sdk._client.job.interrupts import single_interrupt
from pai_sdk._core.version import __version__
from pai_sdk.cli import exit_codes
from pai_sdk.cli.selection.backend import with_backend_options
from pai_sdk.cli.tables import print_error
from pai_sdk.cli.usage.aliases import canonical
from pai_sdk.cli.usage.help import Commands, RootGroup
from pai_sdk.cli.usage.language import translated
from pai_sdk.errors import NotFoundError, ObjectNotFoundError, PaiError, RunNotFoundError

# One line a command, in the order of the help: its module and its function. A new command is one line here.
_COMMANDS: dict[str, dict[str, str]] = {
    "Start here": {
        "demo": "demo:demo",
        "doctor": "doctor:doctor",
    },
    "Run jobs": {
        "run": "submitting:run",
        "submit": "submitting:submit",
        "clone": "submitting:clone",
        "tune": "tune.tune:tune",
    },
    "Follow jobs": {
        "ps": "jobs:ps",
        "status": "job_view:status",
        "logs": "job_view:logs",
        "wait": "jobs:wait",
        "why": "jobs:waiting_reason",
        "events": "jobs:events",
        "watch": "watching:watch",
        "describe": "job_view:describe",
        "top": "instances.top:top",
        "ui": "ui:ui",
    },
    "Enter running jobs": {
        "exec": "enter.programs:exec_",
        "shell": "enter.programs:shell",
        "forward": "enter.ports:forward",
        "ssh": "ssh.commands:ssh",
        "ssh-config": "ssh.commands:ssh_config",
        "ssh-proxy": "ssh.proxy_command:ssh_proxy",
        "stacks": "enter.stacks:stacks",
        "debug": "enter.debug:debug",
    },
    "Stop and delete jobs": {
        "stop": "jobs:stop",
        "delete": "jobs:delete",
        "prune": "jobs:prune",
    },
    "Compare and download results": {
        "compare": "run_commands:compare",
        "runs": "run_commands:runs",
        "metrics": "metric_commands:metrics",
        "diff": "job_view:diff",
        "download": "jobs:download",
        "tensorboard": "metric_commands:tensorboard",
    },
    "Copy files": {
        "ls": "transfers:ls",
        "cp": "transfers:cp",
        "sync": "transfers:sync",
        "rm": "transfers:rm",
        "pack": "transfers:pack",
    },
    "Migrate from another tool": {
        "migrate": "migrate:migrate",
        "dlc": "dlc.command:dlc",
    },
    "Serve jobs to others": {
        "serve": "serve:serve",
        "wheel": "service.wheel_command:wheel",
    },
}
_GROUPS: dict[str, dict[str, str]] = {
    "Start here": {"config": "config_commands:app"},
    "Run jobs": {
        "pipeline": "pipelines.commands:app",
        "schedule": "service.schedule_commands:app",
        "notify": "service.notify_commands:app",
    },
    "Compare and download results": {"trace": "traces:app"},
    "Serve jobs to others": {
        "service": "serve:app",
        "algorithm": "registered:algorithms",
        "model": "registered:models",
    },
}
# These use neither a job nor the service of a session.
_WITHOUT_BACKEND = {"migrate", "pack", "serve", "wheel"}
# The plan, the job or the files select the backend of these; `doctor` checks Docker in any case.
_WITHOUT_LOCAL = {"submit", "clone", "cp", "ls", "sync", "rm", "doctor", "ui", "dlc"}
# What follows these is of another command, or parsed by the command itself.
_SETTINGS = {
    "run": {"allow_extra_args": True},  # which it answers by the command for a program
    "exec": {"allow_interspersed_args": False},
    "ssh": {"allow_interspersed_args": False},
    "dlc": {"allow_interspersed_args": False, "ignore_unknown_options": True},
}


_HELP = """Submit, follow and stop training jobs, compare their results, move their files.

Start here: `pai-sdk demo` trains a model on this machine, without an account. `pai-sdk run job.yaml` runs a job
of yours, `pai-sdk logs -f -` follows the newest one, `pai-sdk COMMAND --help` has an example of each command."""


def new_app(only: str | None = None) -> typer.Typer:
    """Returns the command line; with one command only, its start takes a fraction of the time."""
    app = Commands(
        name="pai-sdk",
        help=_HELP,
        example="pai-sdk run job.yaml --set lr=0.1",
        cls=RootGroup,
        add_completion=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_frame)
    for panel, commands in _COMMANDS.items():
        for name, target in commands.items():
            if only in (None, name):
                command: Callable[..., None] = _imported(target)
                if name not in _WITHOUT_BACKEND:
                    command = with_backend_options(command, with_local=name not in _WITHOUT_LOCAL)
                app.command(name, rich_help_panel=translated(panel), context_settings=_SETTINGS.get(name))(command)
    for panel, groups in _GROUPS.items():
        for name, target in groups.items():
            if only in (None, name):
                app.add_typer(_imported(target), name=name, rich_help_panel=translated(panel))
    return app


def _imported(target: str) -> Any:
    module, _, name = target.partition(":")
    return getattr(import_module(f"pai_sdk.cli.{module}"), name)


def __getattr__(name: str) -> Any:
    """Makes `app`, the command line with all commands, at its first use."""
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()["app"] = app = new_app()
    return app


def _command_name(arguments: Sequence[str]) -> str | None:
    """Returns the command that runs; None where all are needed, as for help, completion and typing mistakes."""
    name = next((argument for argument in arguments if not argument.startswith("-")), None)
    names = {each for commands in (*_COMMANDS.values(), *_GROUPS.values()) for each in commands}
    return name if name in names and "_PAI_SDK_COMPLETE" not in os.environ else None


def _version(value: bool) -> None:
    if value:
        typer.echo(f"pai-sdk {__version__}")
        raise typer.Exit


def _frame(
    context: typer.Context,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show requests, retries and other debug logs.")
    ] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    del version  # handled by its eager callback
    if os.environ.get("NO_COLOR"):
        context.color = False
    logging.basicConfig(level=logging.DEBUG if verbose else logging.WARNING, format="%(levelname)s %(message)s")
    # The credentials library logs a traceback for each source without a key; the error lists all of them.
    logging.getLogger("credentials").disabled = not verbose


def run() -> None:
    """Runs the command and exits with its exit code."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a name that the terminal cannot encode must not cause an error
    try:
        with single_interrupt():
            new_app(_command_name(canonical(sys.argv[1:])))(prog_name="pai-sdk")
    except (NotFoundError, ObjectNotFoundError, RunNotFoundError) as error:
        _print_error(error)
        sys.exit(exit_codes.NOT_FOUND)
    except PaiError as error:
        _print_error(error)
        sys.exit(exit_codes.ERROR)
    except OSError as error:
        _print_error(error)  # a full disk, say, behind `pai-sdk logs … > file`
        sys.exit(exit_codes.ERROR)
    except KeyboardInterrupt as interrupt:
        _print_interrupt(interrupt)
        sys.exit(exit_codes.INTERRUPTED)
    except SystemExit as exit_error:
        cause = exit_error.__context__ and exit_error.__context__.__cause__
        # 130 is also the exit code of a program in a job.
        if exit_error.code == exit_codes.INTERRUPTED and isinstance(cause, KeyboardInterrupt):
            _print_interrupt(cause)
        if isinstance(exit_error.__context__, BrokenPipeError):
            # `pai-sdk logs … | head`: the reader has closed the pipe, which is no error.
            sys.exit(exit_codes.SUCCEEDED)
        raise


def _print_error(error: Exception) -> None:
    print_error(f"error: {error}")


def _print_interrupt(interrupt: KeyboardInterrupt) -> None:
    """Prints the effect of an interrupt on the job, without a traceback."""
    message = str(interrupt)
    typer.echo(f"\nInterrupted{f': {message}' if message else '.'}", err=True)
