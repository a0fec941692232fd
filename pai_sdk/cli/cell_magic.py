"""`%%pai_job`: runs the code of a notebook's cell as a job.

%load_ext pai_sdk

%%pai_job --instance-type ecs.c6.large --set lr=0.1
print("this runs in the job")
"""

from __future__ import annotations

import hashlib
import inspect
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from pai_sdk.cli import submitting
from pai_sdk.errors import InvalidInputError, Problem

if TYPE_CHECKING:
    from pai_sdk._client.backend.base import Plan
    from pai_sdk._client.job.training_job import TrainingJob

_MAGIC = "pai_job"
_SCRIPT = "cell.py"
_FOLDER = Path("~/.pai/cells")
_COMMAND = f"python {_SCRIPT} $PAI_USER_ARGS"
_UNAVAILABLE = ("save", "schema", "as_json", "source_dir")
_SESSION = "--session"
_UsageError: type[Any] = typer.BadParameter.__mro__[1]  # of the click that typer has, which may be a copy


def load(shell: Any) -> None:
    """Registers the magic with IPython's shell."""

    def pai_job(line: str, cell: str | None = None) -> TrainingJob | Plan | None:
        return run_cell(shell, line, cell)

    pai_job.__doc__ = run_cell.__doc__
    # As a line too: IPython refuses `%%pai_job --help` in a cell without code.
    shell.register_magic_function(pai_job, "line_cell", _MAGIC)


def run_cell(shell: Any, line: str, cell: str | None) -> TrainingJob | Plan | None:
    """%%pai_job OPTIONS: run the code of this cell as a job, with the options of `pai-sdk run`.

    The image is that of this Python by default, and the command `python cell.py $PAI_USER_ARGS`.

    `%pai_job --help` shows all options.

    `--session NAME` names a variable that holds the session; without it, the default session is used.

    With `--no-wait` the cell returns at once, and its card continues to update. With `--dry-run` nothing is
    submitted, and the plan is shown.

    The job is stored in the variable `pai_job`.

    Example:
        %%pai_job --instance-type ecs.c6.large --set lr=0.1
        print("this runs in the job")
    """
    tokens = shlex.split(line)
    session_name = _pop_option(tokens, _SESSION)
    options = _options(tokens)
    if options is None:
        return None  # --help
    if cell is None:
        raise InvalidInputError(
            [Problem(f"%{_MAGIC}", "has no code", f"write %%{_MAGIC} above the code of a cell")]
        )
    if session_name is not None and session_name not in shell.user_ns:
        raise InvalidInputError([Problem(_SESSION, f"there is no variable {session_name!r}")])
    dry_run, wait = options.pop("dry_run"), options.pop("wait")
    job_file = submitting.job_file_of({**options, "source_dir": str(_script_folder(cell))})
    defaults = {"image_uri": f"python:{sys.version_info[0]}.{sys.version_info[1]}", "command": _COMMAND}
    missing = {name: value for name, value in defaults.items() if name not in job_file.values}
    session = shell.user_ns[session_name] if session_name else None
    submitter, plan = job_file.with_values(missing).plan(session)
    if dry_run:
        return plan
    try:
        return submitter.submit(plan, wait=wait)
    finally:  # also of one that fails
        if submitter.latest_job is not None:
            shell.user_ns[_MAGIC] = submitter.latest_job


def _options(tokens: list[str]) -> dict[str, Any] | None:
    """Parses the options of `pai-sdk run`, by the names of its parameters; returns None after `--help`."""
    parser = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    parser.command(help=inspect.cleandoc(run_cell.__doc__ or ""))(submitting.run)
    command = typer.main.get_command(parser)
    command.params = [option for option in command.params if option.name not in _UNAVAILABLE]
    try:
        return dict(command.make_context(f"%%{_MAGIC}", tokens).params)
    except typer.Exit:
        return None
    except _UsageError as error:
        raise InvalidInputError([Problem(f"%%{_MAGIC}", error.format_message())]) from None


def _pop_option(tokens: list[str], option: str) -> str | None:
    """Removes an option that only the magic has from the tokens, and returns its value."""
    for number, token in enumerate(tokens):
        if token == option and number + 1 < len(tokens):
            del tokens[number]
            return tokens.pop(number)
        if token.startswith(f"{option}="):
            return tokens.pop(number).partition("=")[2]
    return None


def _script_folder(cell: str) -> Path:
    """Writes the code of the cell to a folder and returns the folder."""
    # It is never deleted: a job in Docker on this machine runs from it.
    digest = hashlib.sha256(cell.encode()).hexdigest()[:16]
    folder = _FOLDER.expanduser() / digest
    folder.mkdir(parents=True, exist_ok=True)
    folder.joinpath(_SCRIPT).write_text(cell, encoding="utf-8")
    return folder
