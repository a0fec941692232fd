"""The command of a job: its form in the request, and a check that its script exists."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from pai_sdk.base.hints import name_hint
from pai_sdk.errors import InvalidInputError, Problem
from pai_sdk.storage.tree import FileTree
from pai_sdk.submit.problems import Problems

_INTERPRETERS = ("python", "python3", "sh", "bash")


def command_list(command: str | Sequence[str], problems: Problems) -> list[str]:
    """The command as it is sent: text is run by `sh -c`, a list is sent unchanged.

    Args:
        command: as the user gave it.
        problems: where to note that it is empty, or not text.

    Example:
        >>> command_list("python train.py $PAI_USER_ARGS", Problems())
        ['sh', '-c', 'python train.py $PAI_USER_ARGS']
    """
    if isinstance(command, str):
        if not command.strip():
            problems.add("command", "is empty", "give the program to run")
        return ["sh", "-c", command]
    parts = list(command) if isinstance(command, Sequence) and not isinstance(command, bytes) else []
    if not parts or not all(isinstance(part, str) for part in parts):
        problems.add("command", "must be text or a list of texts", "such as 'python train.py'")
    return parts


def check_entry(command: Sequence[str], tree: FileTree, source_dir: object) -> None:
    """Check that the first script of the command is in the code folder.

    Only what is certain is checked: the first words of the command, when they are an interpreter and a plain
    relative path. Anything else may come from the image or from an earlier step.

    Raises:
        InvalidInputError: the script is missing; the nearest name is offered.
    """
    script = _first_script(command)
    names = [entry.path for entry in tree.entries]
    if script is None or script in names:
        return
    what = f"entry {script!r} not found in source_dir {str(source_dir)!r}"
    raise InvalidInputError([Problem("", what, name_hint(script, names, intro="it has"))])


def _first_script(command: Sequence[str]) -> str | None:
    words = list(command)
    if words[:2] in (["sh", "-c"], ["bash", "-c"]):
        first_line = words[2].strip().splitlines()[0] if len(words) > 2 and words[2].strip() else ""
        try:
            words = shlex.split(first_line, comments=True)
        except ValueError:
            return None
    if len(words) < 2 or words[0] not in _INTERPRETERS:
        return None
    script = words[1].rstrip(";").removeprefix("./")
    if not script.endswith((".py", ".sh")) or script.startswith("/") or "$" in script or ".." in script:
        return None
    return script
