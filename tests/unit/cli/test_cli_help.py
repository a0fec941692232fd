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

from pai_sdk.cli import exit_codes
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


@pytest.mark.parametrize(
    ("words", "same"),
    [
        ("list --status Failed --help", "ps --help"),
        ("jobs --help", "ps --help"),
        ("log --help", "logs --help"),
        ("cancel --help", "stop --help"),
        ("kill --help", "stop --help"),
        ("dashboard --help", "ui --help"),
        ("help", "--help"),
        ("help jobs", "ps --help"),
        ("help service user add", "service user add --help"),
        ("version", "--version"),
        ("--verbose list --help", "ps --help"),
        ("jobs list --help", "ps --help"),
        ("job logs --help", "logs --help"),
    ],
)
def test_commands_have_the_names_that_people_type(words: str, same: str) -> None:
    typed, expected = (CliRunner().invoke(app, text.split(), prog_name="pai-sdk") for text in (words, same))
    assert (typed.exit_code, typed.stdout) == (0, expected.stdout)


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("squeue", "pai-sdk ps"),
        ("status", "- for the newest job"),
        ("launch task.yaml", "pai-sdk run job.yaml"),
        ("rerun train1", "pai-sdk clone JOB"),
        ("PS", "'ps'"),
        ("service start", "pai-sdk serve"),
        ("ps --state Running", "--status"),
        ("ps --verbose", "pai-sdk --verbose ps"),
        ("--json ps", "pai-sdk ps --json"),
        ("run job.yaml --detach", "--no-wait"),
        ("run job.yaml --lr 0.2", "--set lr=VALUE"),
        ("run job.yaml lr=0.2", "--set lr=0.2"),
        ("run -f job.yaml", "pai-sdk run job.yaml"),
        ("compare --metric loss", "--tag"),
        ("ps -n many", "expected an integer, got 'many'"),
        ("ps -n 0", "(minimum 1), got 0"),
        ("run job.yaml --max-run-time soon", "2h"),
    ],
)
def test_a_wrong_command_line_names_the_right_one(words: str, hint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    result = CliRunner().invoke(app, words.split(), prog_name="pai-sdk")
    assert result.exit_code == 2
    # Older releases of Typer report wrong numbers in words of click, which need no change.
    assert hint in result.stderr or re.search(r"is not (a valid integer|in the range)", result.stderr)
    assert "Input should be" not in result.stderr


def test_another_name_of_a_command_starts_this_command_only() -> None:
    program = (
        "import sys; from pai_sdk.cli.root import run; sys.argv[1:] = ['help', 'migrate']\n"
        "try:\n    run()\nexcept SystemExit as end:\n    assert not end.code\n"
        "assert 'pai_sdk.cli.jobs' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.DEVNULL)


def groups(of: Typer, *before: str) -> Iterator[tuple[str, ...]]:
    yield before
    for group in of.registered_groups:
        if group.typer_instance is not None:
            yield from groups(group.typer_instance, *before, group.name or "")


@pytest.mark.parametrize("group", [*groups(app)], ids=" ".join)
def test_every_group_shows_an_example_of_one_of_its_commands(group: tuple[str, ...]) -> None:
    (shown,) = re.findall(r"Example: pai-sdk (.+)", _command(group).help)
    words = shlex.split(shown)
    command = (*group, words[len(group)])
    assert command in [*commands(app)], shown
    _parse(command, shown)


@pytest.mark.parametrize("command", [*groups(app), *commands(app)], ids=" ".join)
def test_help_names_values_as_people_do(command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    shown = CliRunner().invoke(app, [*command, "--help"], prog_name="pai-sdk").stdout
    assert not re.search(r"<\w+>|<list|<int|\.\.\.\]", shown)
    (usage,) = re.findall("Usage: (.+)", shown)
    assert not set(usage) & set("{}…<>")


def test_the_first_help_is_wrapped_at_the_width_of_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = [line.strip() for line in CliRunner().invoke(app, ["--help"], prog_name="pai-sdk").stdout.splitlines()]
    first = next(index for index, line in enumerate(lines) if line.startswith("Start here:"))
    paragraph = lines[first : lines.index("", first)]
    assert all(len(line) > 50 for line in paragraph[:-1]), paragraph


def test_the_first_help_says_where_to_start_and_lists_the_exit_codes() -> None:
    shown = CliRunner().invoke(app, ["--help"], prog_name="pai-sdk").stdout
    assert shown.index("Start here") < shown.index("Run jobs") < shown.index("Exit codes")
    codes = {int(code) for code in re.findall(r"(\d+)  \w", shown.partition("Exit codes")[2])}
    assert codes == {value for value in vars(exit_codes).values() if isinstance(value, int)} | {2}


def test_ctrl_c_within_the_imports_is_no_traceback() -> None:
    program = (
        "import signal, sys\n"
        "class Finder:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'pai_sdk.cli.root': signal.raise_signal(signal.SIGINT)\n"
        "sys.meta_path.insert(0, Finder())\n"
        "from pai_sdk.cli import main\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "")
