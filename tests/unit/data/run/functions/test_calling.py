"""What a function is, before it is called as a training."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pai_sdk._data.run.functions.calling import exit_text_of, is_open_file, kind_of, suspends


async def coroutine(config: Any) -> None: ...


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        (lambda config: None, "config"),
        (lambda config, checkpoint_dir=None: None, "checkpoint_dir"),
        (lambda config, reporter: None, "reporter"),
    ],
)
def test_the_parameters_are_the_kind_of_a_training(function: Callable[..., Any], kind: str) -> None:
    assert kind_of(function) == kind


@pytest.mark.parametrize(
    ("function", "expected"), [(lambda: (yield), "generator"), (coroutine, "async"), (lambda: None, "")]
)
def test_functions_whose_calls_are_run_later(function: Callable[..., Any], expected: str) -> None:
    assert suspends(function) == expected


def test_files_on_a_disk_are_open_files_and_buffers_are_not(tmp_path: Path) -> None:
    with (tmp_path / "x").open("w") as file:
        assert is_open_file(file)
    assert not is_open_file(io.StringIO("text"))


@pytest.mark.parametrize(("code", "printed"), [("no data", "no data"), (3, ""), (None, "")])
def test_the_string_that_python_prints_at_an_exit(code: str | int | None, printed: str) -> None:
    assert exit_text_of(SystemExit(code)) == printed
