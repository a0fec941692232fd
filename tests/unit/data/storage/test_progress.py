"""Who looks sees that something goes on; who does not look is told nothing."""

from __future__ import annotations

import io
import sys
from types import SimpleNamespace

import pytest

from pai_sdk._data.storage import progress
from pai_sdk._data.storage.progress import ElapsedTime


class FakeTerminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_what_takes_a_while_shows_how_long_it_has_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = FakeTerminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr("tqdm.std.time", lambda: 1e9)
    with ElapsedTime("starting the engine", patience_s=0) as sign:
        sign.refresh()
        assert terminal.getvalue() == "\rstarting the engine 00:00"
    assert terminal.getvalue().rpartition("\r")[2].strip() == "", "nothing of it stays on the screen"


def test_what_is_over_at_once_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = FakeTerminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with ElapsedTime("starting the engine", patience_s=60) as sign:
        sign.refresh()
    assert terminal.getvalue().strip() == ""


def test_a_pipe_is_told_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with ElapsedTime("starting the engine", patience_s=0) as sign:
        sign.refresh()
    assert capsys.readouterr().err == ""


def test_a_notebook_without_ipywidgets_has_a_line_of_text(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """tqdm's own choice puts a warning under the cell, and a red box."""
    kernel = SimpleNamespace(get_ipython=lambda: SimpleNamespace(kernel=object()))
    monkeypatch.setitem(sys.modules, "ipykernel", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "IPython", kernel)
    monkeypatch.setattr(progress, "find_spec", lambda name: None)
    with ElapsedTime("starting the engine", patience_s=0):
        pass
    shown = capsys.readouterr()
    assert "starting the engine 00:00" in shown.out
    assert shown.err == ""
