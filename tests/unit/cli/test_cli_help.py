"""The help of `pai-sdk`."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from typer import Typer
from typer.main import get_command
from typer.testing import CliRunner

from pai_sdk.cli.root import app


def commands(of: Typer, *before: str) -> Iterator[tuple[str, ...]]:
    for command in of.registered_commands:
        yield (*before, command.name or getattr(command.callback, "__name__", ""))
    for group in of.registered_groups:
        if group.typer_instance is not None:
            yield from commands(group.typer_instance, *before, group.name or "")


@pytest.mark.parametrize("command", [*commands(app)], ids=" ".join)
def test_every_command_shows_an_example_of_itself(
    command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    shown = CliRunner().invoke(app, [*command, "--help"])
    assert shown.exit_code == 0
    assert f"Example: pai-sdk {' '.join(command).rstrip('_')}" in shown.stdout


@pytest.mark.parametrize("command", [*commands(app)], ids=" ".join)
def test_every_example_has_arguments_that_the_command_takes(command: tuple[str, ...]) -> None:
    (shown,) = re.findall(r"Example: pai-sdk (.+)", _command(command).help)
    inside = re.search(r"\$\(pai-sdk (.+?)\)", shown)
    if inside:  # the output of another command
        _parse(("ps",), inside[1])
        shown = shown.replace(inside[0], "job1")
    _parse(command, shown)


def _parse(command: tuple[str, ...], example: str) -> None:
    arguments = shlex.split(example)[len(command) :]
    with _command(command).make_context(" ".join(command), arguments):  # raises what is wrong usage
        pass


_command_of = cache(get_command)


def _command(names: tuple[str, ...]) -> Any:
    found: Any = _command_of(app)
    for name in names:
        found = found.commands[name]
    return found


def test_commands_and_options_can_be_completed() -> None:
    completed = CliRunner().invoke(
        app,
        prog_name="pai-sdk",
        env={"_PAI_SDK_COMPLETE": "complete_bash", "COMP_WORDS": "pai-sdk des", "COMP_CWORD": "1"},
    )
    assert completed.stdout.split() == ["describe"]
    statuses = CliRunner().invoke(
        app,
        prog_name="pai-sdk",
        env={"_PAI_SDK_COMPLETE": "complete_bash", "COMP_WORDS": "pai-sdk ps --status Suc", "COMP_CWORD": "3"},
    )
    assert "Succeed" in statuses.stdout.split()


@pytest.mark.parametrize("words", [["dlc", "--help"], ["dlc", "help", "submit"], ["migrate", "--help"]])
def test_a_command_starts_without_the_modules_of_others(words: list[str]) -> None:
    program = (
        f"import sys; from pai_sdk.cli.root import run; sys.argv[1:] = {words}\n"
        "try:\n    run()\nexcept SystemExit as end:\n    assert not end.code\n"
        "assert not {'pai_sdk._client.session.session', 'pai_sdk.cli.jobs'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.DEVNULL)
