"""Commands in the sentences and tables of the documentation exist, with their options."""

from __future__ import annotations

import re
import shlex
from functools import cache
from pathlib import Path

import click
from typer.main import get_command

from pai_sdk.cli.root import new_app

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*ROOT.glob("README*.md"), ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
_BLOCK = re.compile(r"^ *```.*?^ *```$", re.DOTALL | re.MULTILINE)
_command = cache(get_command)


def mistake_in(words: list[str]) -> str | None:
    """Returns the command or option that does not exist."""
    command = _command(_app())
    options = {"--help"}
    while True:
        options |= {name for each in command.params for name in (*each.opts, *each.secondary_opts)}
        name = next((word for word in words if not word.startswith("-")), "")
        if not hasattr(command, "get_command") or not re.fullmatch("[a-z-]+", name):
            break
        inner = command.get_command(click.Context(command), name)
        if inner is None:
            return name
        if inner.name == "dlc":  # has the flags of `dlc`
            return None
        command, words = inner, words[words.index(name) + 1 :]
    used = [match[0] for word in words if (match := re.match(r"--[a-z-]+|-[a-zA-Z]$", word))]
    return next((option for option in used if option not in options), None)


@cache
def _app() -> object:
    return new_app()


def test_the_commands_that_pages_name_exist() -> None:
    mistakes = []
    for page in PAGES:
        text = _BLOCK.sub("", page.read_text(encoding="utf-8"))
        for code in re.findall(r"`pai-sdk ([^`]+)`", text):
            mistake = mistake_in(shlex.split(code.replace("…", "").replace(r"\|", "|"), comments=True))
            mistakes += [f"{page.name}: {code}: {mistake}"] if mistake else []
    assert mistakes == []


def test_the_check_sees_what_does_not_exist() -> None:
    assert mistake_in(["frob"]) == "frob"
    assert mistake_in(["schedule", "frob", "--json"]) == "frob"
    assert mistake_in(["ps", "--nope"]) == "--nope"
    assert mistake_in(["logs", "-Z", "JOB"]) == "-Z"
    assert mistake_in(["logs", "-f", "JOB"]) is None
