"""Shell scripts with `dlc submit`, shown as programs with an `Estimator`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from pai_sdk._wire.dlc.field_names import by_python_name
from pai_sdk.alipai.dlc.estimators import Suggestion, suggest
from pai_sdk.alipai.dlc.flags import read_submission
from pai_sdk.alipai.dlc.scope import Scope
from pai_sdk.alipai.dlc.shell import Command, Output, parse
from pai_sdk.alipai.dlc.submissions import Submission, read_body
from pai_sdk.alipai.dlc.values import Name, Value

__all__ = ["read_command", "read_script"]

_WRAPPERS = ("nohup", "sudo", "exec", "command", "env", "time")
_MAX_JOB_FILE = 1 << 20


def read_script(text: str, folder: Path | None = None, expressions: Sequence[Name] = ()) -> list[Suggestion]:
    """Returns a program for each submission of a script.

    Args:
        text: the script.
        folder: where job files are.
        expressions: what the marks in the text stand for.

    Raises:
        ShellError: the text is no shell script.
    """
    scope = Scope(expressions)
    suggestions: list[Suggestion] = []
    for command in parse(text):
        suggestions += _suggestions(command, scope, folder)
        scope.run(command)
    return suggestions


def read_command(tokens: Sequence[Value], line: int) -> Suggestion | None:
    """Returns the program for a command that is given as a list of tokens; None if it submits no job."""
    return _suggestion(tokens, Scope(), {}, line)


def _suggestions(command: Command, scope: Scope, folder: Path | None) -> Iterator[Suggestion]:
    for each in (*_inner(command), command):
        local_scope = scope.copy()
        tokens = [value for word in each.tokens for value in local_scope.tokens(word)]
        while tokens and (tokens[0] in _WRAPPERS or (isinstance(tokens[0], str) and re.match(r"\w+=", tokens[0]))):
            del tokens[0]
        if command.depth:
            local_scope.notes.append(
                "the script submits this job in a loop or under a condition: keep those around it"
            )
        suggestion = _suggestion(tokens, local_scope, _JobFiles(local_scope.files, folder), each.line)
        if suggestion is not None:
            yield suggestion


def _inner(command: Command) -> Iterator[Command]:
    """Yields the commands whose output a command uses, such as that of `ID=$(dlc submit …)`."""
    tokens = [*command.tokens, *(value for _, _, value in command.assignments if isinstance(value, tuple))]
    for word in tokens:
        for part in word:
            if isinstance(part, Output):
                for each in part.commands:
                    yield from _inner(each)
                    yield each


def _suggestion(
    tokens: Sequence[Value], scope: Scope, files: Mapping[Value, Value], line: int
) -> Suggestion | None:
    submission = _submission(tokens, files)
    if submission is None:
        return None
    code, notes = suggest(
        submission.body, region=submission.region, waits=submission.waits, definitions=scope.definitions
    )
    what = f"dlc submit {str(by_python_name(submission.body).get('job_type', '')).lower()}".rstrip()
    return Suggestion(line, what, code, [*scope.notes, *submission.notes, *notes])


def _submission(tokens: Sequence[Value], files: Mapping[Value, Value]) -> Submission | None:
    """Reads a submission by `dlc`, by the newer command `pai`, or by `aliyun`; None for other commands."""
    program = tokens[0].rsplit("/", 1)[-1] if tokens and isinstance(tokens[0], str) else ""
    if program in ("pai", "pai-sdk") and "dlc" in tokens[:4]:
        return read_submission(tokens[tokens.index("dlc") + 1 :], files)
    if program == "aliyun" and tokens[1:2] == ["pai-dlc"] and "--body" in tokens[:-1]:
        return read_body(tokens[tokens.index("--body") + 1], files)
    return read_submission(tokens[1:], files) if program == "dlc" else None


class _JobFiles(Mapping[Value, Value]):
    """The job files that a script writes, and those that are beside it."""

    def __init__(self, written: Mapping[Value, Value], folder: Path | None) -> None:
        self._written = written
        self._folder = folder

    def __getitem__(self, name: Value) -> Value:
        if name in self._written:
            return self._written[name]
        if self._folder is None or not isinstance(name, str):
            raise KeyError(name)
        try:
            with (self._folder / name).open(encoding="utf-8") as file:
                return file.read(_MAX_JOB_FILE)
        except (OSError, ValueError):
            raise KeyError(name) from None

    def __iter__(self) -> Iterator[Value]:
        return iter(self._written)

    def __len__(self) -> int:
        return len(self._written)
