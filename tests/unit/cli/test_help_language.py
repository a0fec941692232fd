"""The help of `pai-sdk` in Chinese: complete, current, and not truncated in a narrow terminal."""

from __future__ import annotations

import json
import os
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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("metrics",), "缺少参数 'RUN'。"),
        (("metrics", "a", "--fellow"), "没有选项 --fellow。"),
        (("metrics", "a", "b"), "多余的参数：b"),
        (("ps", "--status"), "选项 '--status' 需要一个值。"),
        (("frobnicate",), "没有命令 'frobnicate'。"),
        (("--frobnicate",), "没有选项 --frobnicate。"),
        (("metrics", "a", "--detach"), "没有选项 --detach"),
        (("ps", "--limit", "x"), "'--limit' / '-n' 的值 'x' 不是数字。"),
        (("ps", "--limit", "0"), "'--limit' / '-n' 的值是 0，最小为 1。"),
        (("squeue",), "没有命令 'squeue'；here: pai-sdk ps"),
        (("stop",), "JOB 的值无效：give a JOB"),
    ],
)
def test_errors_of_the_command_line_are_chinese(arguments: tuple[str, ...], message: str) -> None:
    environment = {**os.environ, "LC_ALL": "zh_CN.UTF-8", "PYTHONUTF8": "1", "COLUMNS": "120"}
    program = [sys.executable, "-m", "pai_sdk", *arguments]
    shown = subprocess.run(program, capture_output=True, text=True, env=environment, check=False).stderr
    assert message in shown
    assert ("用法：pai-sdk" in shown) == (arguments[-1] != "--status")
    assert "─ 错误 ─" in shown
    assert not [word for word in ("Usage", "Try", "Error", "No such", "Missing") if word in shown]


def test_no_chinese_help_is_truncated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "zh_CN.UTF-8")
    monkeypatch.setenv("COLUMNS", "80")
    shown = subprocess.run([sys.executable, "-c", PRINT_ALL], capture_output=True, text=True, check=True).stdout
    assert "停止和删除任务" in shown
    assert "退出码" in shown
    assert not [each for each in ("Usage", "Options", "Arguments", "Commands", "OPTIONS") if each in shown]
    assert "Example:" not in shown
    # A URL without spaces is, in English too.
    truncated = [line for line in shown.splitlines() if "…" in line and "=…" not in line and "://" not in line]
    assert truncated == []
