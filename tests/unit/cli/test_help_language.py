"""The help of `pai-sdk` in Chinese: complete, current, and not truncated in a narrow terminal."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from typer import Context
from typer.main import get_command

from pai_sdk.cli.exit_codes import DESCRIPTION
from pai_sdk.cli.root import new_app
from pai_sdk.cli.usage.language import TABLE, normalized, translated

CHINESE: dict[str, str] = json.loads(TABLE.read_text(encoding="utf-8"))
# Prints the help of every command. Help is built in the language of the process that builds it.
PRINT_ALL = """
from typer.main import get_command
from typer.testing import CliRunner
from pai_sdk.cli.root import new_app

app = new_app()

def show(command, path):
    print(CliRunner().invoke(app, [*path, "--help"]).stdout)
    for name, inner in getattr(command, "commands", {}).items():
        show(inner, [*path, name])

show(get_command(app), [])
"""


def texts_of(command: Any) -> Iterator[str]:
    """Yields the paragraphs, options and panels of a command and of those below it."""
    yield from (each for each in (command.help or "").split("\n\n") if not each.startswith("Example: "))
    with Context(command) as context:
        for parameter in command.get_params(context):
            yield from filter(None, (getattr(parameter, name, "") for name in ("help", "rich_help_panel")))
    yield command.rich_help_panel or ""
    for each in getattr(command, "commands", {}).values():
        yield from texts_of(each)


def test_each_text_of_the_help_has_its_chinese_and_nothing_else_has() -> None:
    texts = {normalized(text) for text in texts_of(get_command(new_app()))} - {""}
    texts |= {"Example:", normalized(DESCRIPTION)}
    assert texts - CHINESE.keys() == set(), f"new or changed in English: write the Chinese into {TABLE.name}"
    assert CHINESE.keys() - texts == set(), f"no longer in the help: remove from {TABLE.name}"


@pytest.mark.parametrize(
    ("variable", "locale", "is_chinese"),
    [
        ("LC_ALL", "zh_CN.UTF-8", True),
        ("LC_MESSAGES", "zh_TW", True),
        ("LANG", "zh_CN.UTF-8", True),
        ("LANG", "en_US.UTF-8", False),
    ],
)
def test_the_locale_decides(variable: str, locale: str, is_chinese: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable, locale)
    shown = translated("Show the version.\n\nExample: pai-sdk --version")
    assert shown.startswith("显示版本。\n\n示例：pai-sdk") == is_chinese
    assert translated("A text without Chinese.") == "A text without Chinese."


def test_the_first_locale_that_is_set_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "en_US.UTF-8")
    monkeypatch.setenv("LANG", "zh_CN.UTF-8")
    assert translated("Show the version.") == "Show the version."


def test_no_chinese_help_is_truncated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "zh_CN.UTF-8")
    monkeypatch.setenv("COLUMNS", "80")
    shown = subprocess.run([sys.executable, "-c", PRINT_ALL], capture_output=True, text=True, check=True).stdout
    assert "停止和删除任务" in shown
    assert "退出码" in shown
    assert "Example:" not in shown
    # A URL without spaces is, in English too.
    truncated = [line for line in shown.splitlines() if "…" in line and "=…" not in line and "://" not in line]
    assert truncated == []
