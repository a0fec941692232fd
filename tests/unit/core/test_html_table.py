"""Tables of notebooks."""

from __future__ import annotations

import pytest

from pai_sdk._core.html_table import badge_html, hparam_text, html_table, value_text

pytestmark = pytest.mark.interpreter


def test_values_of_cells_are_short() -> None:
    values = (1e-4, 0.12345678, True, None, "adam")
    assert [value_text(value) for value in values] == ["0.0001", "0.123457", "True", "-", "adam"]


def test_a_hyperparameter_can_be_none() -> None:
    names = ("warmup", "lr", "seed")
    assert [hparam_text({"warmup": None, "lr": 1e-4}, name) for name in names] == ["None", "0.0001", "-"]


def test_titles_are_text_and_cells_are_html() -> None:
    table = html_table(["<job>"], [["<b>a</b>"]])
    assert table.count("&lt;job&gt;") == table.count("<b>a</b>") == 1
    assert ">Running</span>" in badge_html("Running", "running")
