"""`pai-sdk dlc`: runs a command of DLC's command line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pai_sdk._core.names.hints import name_hint
from pai_sdk._core.version import __version__
from pai_sdk._wire.dlc.flags import (
    CREATE_FLAGS,
    GET_FLAGS,
    GLOBAL_FLAGS,
    STOP_FLAGS,
    SUBMIT_FLAGS,
    VENDOR_FLAGS,
    WINDOW_FLAGS,
    Flag,
)
from pai_sdk.cli.dlc.config_file import DEFAULT_PATH, KEYS, write_config
from pai_sdk.cli.dlc.flags import Arguments, parse
from pai_sdk.cli.tables import print_error
from pai_sdk.errors import ApiError, InvalidInputError, PaiError, Problem, SettingsError

if TYPE_CHECKING:
    from pai_sdk.cli.dlc.connection import DlcConnection

_ERROR = 1
_USAGE = 2


@dataclass(frozen=True)
class _Command:
    """A command.

    Attributes:
        run: module and name of a function: it takes the arguments and a function that connects, and returns the
            exit code. Modules are loaded for the command that runs only.
        flags: those it has beside the global ones.
        usage: the arguments behind its name.
        formats: of its output.
    """

    run: str
    flags: Sequence[Flag]
    usage: str
    formats: Sequence[str] = ("table", "json")


def dlc(
    tokens: Annotated[
        list[str] | None, typer.Argument(metavar="COMMAND", help="submit, get, logs, stop, delete, events, …")
    ] = None,
) -> None:
    """Run a command of PAI's `dlc` command line: scripts for it run with `alias dlc="pai-sdk dlc"`.

    `pai-sdk dlc help submit` shows the flags of a command. Exit codes: 0 accepted or succeeded, 1 refused or
    failed, 2 wrong usage.

    Example: pai-sdk dlc get job --status Running
    """
    raise typer.Exit(run(tokens or []))


def run(tokens: Sequence[str]) -> int:
    """Runs a command, and prints errors as the original does; returns the exit code."""
    try:
        return _run(tokens)
    except InvalidInputError as error:
        print_error(f"error: {error}")
        return _USAGE
    except SettingsError as error:
        print_error(f"error: {error}")
        return _USAGE
    except ApiError as error:
        print_error(_call("output:refusal_text", error))
        return _ERROR
    except PaiError as error:
        print_error(f"error: {error}")
        return _ERROR


def _run(tokens: Sequence[str]) -> int:
    before = parse(tokens, GLOBAL_FLAGS, until_positional=True)
    before.check()
    name, *remaining = before.positionals or ["help"]
    if name not in _COMMANDS:
        raise InvalidInputError([Problem(name, "is not a command of dlc", name_hint(name, _COMMANDS))])
    command = _COMMANDS[name]
    shorts = {flag.short for flag in command.flags}
    globals_ = (Flag(f.name, f.help, f.kind, "" if f.short in shorts else f.short) for f in GLOBAL_FLAGS)
    arguments = parse(remaining, (*command.flags, *globals_))
    arguments.values = {**before.values, **arguments.values}
    if arguments.boolean("help"):
        _print_help(name)
        return 0
    if (output := arguments.text("output") or "table") not in command.formats:
        formats = ", ".join(command.formats)
        arguments.problems.append(Problem("--output", f"{output!r} is not a format", f"available: {formats}"))
    exit_code: int = _call(command.run, arguments, partial(_call, "connection:connect", arguments))
    return exit_code


def _call(function: str, *arguments: object) -> Any:
    """Calls a function `MODULE:NAME` of this package, whose module is loaded by this call."""
    module, _, name = function.partition(":")
    return getattr(import_module(f"pai_sdk.cli.dlc.{module}"), name)(*arguments)


def _config(arguments: Arguments, _: Callable[[], DlcConnection]) -> int:
    """Writes the config file; asks for what no flag says."""
    arguments.problems += (Problem(word, "is not expected") for word in arguments.positionals)
    values = {key: value for key in KEYS if (value := arguments.text(key))}
    arguments.check()
    if not values:
        for key in KEYS:
            entered = typer.prompt(key, default="", show_default=False, hide_input=key == "access_key")
            values |= {key: entered.strip()} if entered.strip() else {}
    path = Path(arguments.text("config") or DEFAULT_PATH).expanduser()
    write_config(path, values)
    typer.echo(f"saved to {path}")
    return 0


def _version(arguments: Arguments, _: Callable[[], DlcConnection]) -> int:
    arguments.check()
    typer.echo(f"pai-sdk dlc {__version__}")
    return 0


def _help(arguments: Arguments, _: Callable[[], DlcConnection]) -> int:
    arguments.check()
    name = next(iter(arguments.positionals), "")
    if name and name not in _COMMANDS:
        raise InvalidInputError([Problem(name, "is not a command of dlc", name_hint(name, _COMMANDS))])
    _print_help(name)
    return 0


def _completion(arguments: Arguments, _: Callable[[], DlcConnection]) -> int:
    hint = "pai-sdk --install-completion"
    raise InvalidInputError([Problem("completion", "is not supported", hint)])


def _print_help(name: str) -> None:
    if not name:
        typer.echo("Usage: pai-sdk dlc COMMAND\n\nCommands:")
        for each, command in _COMMANDS.items():
            typer.echo(f"  {each} {command.usage}".rstrip())
        _print_flags("Flags of all commands", GLOBAL_FLAGS)
        return
    command = _COMMANDS[name]
    typer.echo(f"Usage: pai-sdk dlc {name} {command.usage}".rstrip())
    _print_flags("Flags", command.flags)
    _print_flags("Flags of all commands", GLOBAL_FLAGS)


def _print_flags(title: str, flags: Sequence[Flag]) -> None:
    offered = [flag for flag in flags if not flag.refusal]
    if not offered:
        return
    typer.echo(f"\n{title}:")
    for flag in offered:
        names = f"-{flag.short}, --{flag.name}" if flag.short else f"    --{flag.name}"
        typer.echo(f"  {names:34} {flag.help}")


_JOB_TYPES = "pytorchjob|tfjob|xgboostjob|mpijob|rayjob|…"
_COMMANDS = {
    "submit": _Command("submitting:submit", SUBMIT_FLAGS, _JOB_TYPES),
    "get": _Command("jobs:get", GET_FLAGS, "job [ID] | pod JOB POD | specs | quota"),
    "list": _Command("jobs:get", GET_FLAGS, "jobs"),
    "logs": _Command("jobs:logs", WINDOW_FLAGS, "JOB [POD]"),
    "events": _Command("jobs:events", WINDOW_FLAGS, "JOB [POD]"),
    "stop": _Command("jobs:stop", STOP_FLAGS, "job ID…"),
    "delete": _Command("jobs:delete", STOP_FLAGS, "job ID…"),
    "config": _Command("command:_config", (), ""),
    "create": _Command("submitting:create", CREATE_FLAGS, "job --kind TYPE, of an older generation"),
    "job": _Command(
        "vendor_job:job", VENDOR_FLAGS, "submit, with the flags of `pai dlc`", ("table", "json", "quiet")
    ),
    "version": _Command("command:_version", (), ""),
    "help": _Command("command:_help", (), "[COMMAND]"),
    "completion": _Command("command:_completion", (), "SHELL"),
}
