"""The help of `pai-sdk`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from typer import Typer
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
