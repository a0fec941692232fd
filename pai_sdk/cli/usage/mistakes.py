"""Hints for wrong command lines: what commands and options of other tools are called here."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import typer

from pai_sdk._core.names.hints import nearest

UsageError: Any = typer.BadParameter.__mro__[1]
"""The error of a wrong command line; some releases of Typer have a copy of Click."""

_SUBMIT, _LIST, _STOP, _CLONE = "pai-sdk run job.yaml", "pai-sdk ps", "pai-sdk stop JOB", "pai-sdk clone JOB"
_EXEC, _SETTINGS, _SHOW = "pai-sdk exec JOB", "pai-sdk config, pai-sdk doctor", "pai-sdk describe JOB"
_START = "any command that needs the service starts it; pai-sdk serve runs one for others"
_COMMANDS = {
    **dict.fromkeys(("launch", "apply", "create", "train", "sbatch", "srun", "job", "up"), _SUBMIT),
    **dict.fromkeys(("queue", "squeue", "sacct", "get", "search"), _LIST),
    **dict.fromkeys(("scancel", "terminate", "down", "abort"), _STOP),
    **dict.fromkeys(("rerun", "restart", "retry", "resubmit", "resume"), _CLONE),
    **dict.fromkeys(("attach", "ssh", "shell", "sh"), _EXEC),
    **dict.fromkeys(("login", "whoami", "configure", "init", "check"), _SETTINGS),
    **dict.fromkeys(("inspect", "show", "info", "get-job"), _SHOW),
    "tail": "pai-sdk logs -f JOB",
    "best": "pai-sdk runs --sort loss -n 1",
    "sweep": "pai-sdk tune job.yaml --search space.yaml",
    **dict.fromkeys(("pull", "fetch"), "pai-sdk download JOB"),
    "remove": "pai-sdk delete JOB",
    "start": _START,
    "service start": _START,
    "service restart": f"pai-sdk service stop; {_START}",
    "service logs": "the log of a job: pai-sdk logs JOB",
}
_OPTIONS = {
    **dict.fromkeys(("--detach", "--background", "--async", "--nowait"), "--no-wait"),
    **dict.fromkeys(("--metric", "--objective"), "--tag"),
    **dict.fromkeys(("--state", "-s"), "--status"),
    **dict.fromkeys(("--labels", "--selector", "--tags"), "--label"),
    **dict.fromkeys(("--lines", "--head", "--last"), "--tail"),
    **dict.fromkeys(("--desc", "--reverse", "--descending"), "--sort=-NAME"),
    **dict.fromkeys(("--envs", "--environment"), "--env"),
    **dict.fromkeys(("--param", "--hyperparameter", "--config"), "--set"),
    "--format": "--json",
    "-o": "--json",
    "-n": "--name",
    "--all": "--status",
}
_BEFORE_THE_COMMAND = ("--verbose", "-v")
_AFTER_THE_COMMAND = ("--json", "--profile", "--embedded", "--local")


def command_hint(group: str, name: str, names: Collection[str]) -> str:
    """Returns the hint for an unknown command; empty without one. `group` is the path of commands before it."""
    path = " ".join([*group.split()[1:], name])
    if name.lower() in names:
        return f"did you mean {name.lower()!r}?"
    return f"here: {_COMMANDS[path]}" if path in _COMMANDS else ""


def option_hint(name: str, path: str, options: Collection[str]) -> str:
    """Returns the hint for an unknown option of a command with a path; empty without one."""
    is_root = " " not in path
    if is_root and name in _AFTER_THE_COMMAND:
        return f"after the command: pai-sdk ps {name}"
    if not is_root and name in _BEFORE_THE_COMMAND:
        return f"before the command: pai-sdk {name} {path.partition(' ')[2]}"
    if name in ("-f", "--file") and "FILE" in options:
        return f"without an option: {path} job.yaml"
    other = _OPTIONS.get(name)
    return f"here: {other}" if other is not None and other.partition("=")[0] in options else ""


def explain_option(error: Any, path: str, options: Collection[str]) -> None:
    """Replaces the possibilities of an error about an unknown option by its hint."""
    name = error.option_name
    hint = option_hint(name, path, options)
    if not hint and name.startswith("--") and "--set" in options and not nearest(name, options, cutoff=0.7):
        hint = f"a hyperparameter is --set {name[2:]}=VALUE"
    if hint:
        error.message, error.possibilities = f"No such option: {name} ({hint})", []


def explain_missing(error: Any) -> None:
    """Adds what can stand for a missing JOB to its error."""
    parameter = getattr(error, "param", None)
    if getattr(parameter, "metavar", None) == "JOB" and not error.message:
        error.message = "Give an id or a name, or - for the newest job; pai-sdk ps lists them."


def explain_value(error: Any) -> None:
    """Replaces the words of pydantic, with which Typer reports a wrong number, by the value and its limits."""
    details = getattr(error.__cause__, "errors", None)
    if details is None:
        return
    first = details()[0]
    kind, value, limits = first["type"], first["input"], first.get("ctx") or {}
    if kind.startswith(("int_", "float_")):
        error.message = f"expected {'an integer' if kind.startswith('int') else 'a number'}, got {value!r}"
    elif "ge" in limits or "le" in limits:
        limit = f"minimum {limits['ge']}" if "ge" in limits else f"maximum {limits['le']}"
        error.message = f"expected a number ({limit}), got {value}"
