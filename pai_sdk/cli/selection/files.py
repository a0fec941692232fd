"""Checks of the file that a command is called with: a job file, a saved plan or a program, by its name."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from pai_sdk._core.names.hints import did_you_mean, nearest
from pai_sdk.errors import InvalidInputError, ObjectNotFoundError, Problem

_INTERPRETERS = {".py": "python", ".sh": "bash"}
_REQUEST_KEYS = ("TrainingJobName", "AlgorithmSpec", "JobSpecs")


def check_is_job_file(file: Path) -> None:
    """Raises InvalidInputError for a program or a saved plan, with the command that runs it."""
    _check_exists(file)
    _refuse_program(file, "a job file")
    if file.suffix.lower() == ".json" and _is_request(file):
        raise _wrong_file(file, "is a request, not a job file", f"pai-sdk submit {shlex.quote(str(file))}")


def _is_request(file: Path) -> bool:
    """Returns whether a file has a body of CreateTrainingJob or CreateJob; False if it cannot be read."""
    with suppress(OSError, ValueError):
        content = json.loads(file.read_text(encoding="utf-8"))
        return isinstance(content, dict) and any(key in content for key in _REQUEST_KEYS)
    return False


def check_is_plan(file: Path) -> None:
    """Raises InvalidInputError for a job file or a program, with the command that runs it."""
    _check_exists(file)
    _refuse_program(file, "a saved plan")
    if file.suffix.lower() in (".yaml", ".yml") and file.exists():
        raise _wrong_file(file, "is a job file, not a saved plan", f"pai-sdk run {shlex.quote(str(file))}")


def _check_exists(file: Path) -> None:
    """Raises ObjectNotFoundError for a missing file, with the name of a similar one."""
    if not file.exists():
        names = [path.name for path in file.parent.iterdir()] if file.parent.is_dir() else []
        near = did_you_mean([str(file.with_name(name)) for name in nearest(file.name, names)])
        raise ObjectNotFoundError(f"{file}: no such file{f'; {near}' if near else ''}", uri=str(file))


def _refuse_program(file: Path, expected: str) -> None:
    interpreter = _INTERPRETERS.get(file.suffix.lower())
    if interpreter is None or not file.exists():
        return
    command = run_command([interpreter, file.name], file.parent)
    raise _wrong_file(file, f"is a program, not {expected}", command)


def run_command(program: Sequence[str], folder: Path = Path()) -> str:
    """Returns the command that runs a program of a folder as a job."""
    arguments = ["pai-sdk", "run", "--command", shlex.join(program), "--source-dir", str(folder)]
    return shlex.join(
        [*arguments, "--image", f"python:3.{sys.version_info.minor}", "--instance-type", "ecs.c6.large"]
    )


def _wrong_file(file: Path, problem: str, command: str) -> InvalidInputError:
    return InvalidInputError([Problem(str(file), problem, f"to run it: {command}")])
