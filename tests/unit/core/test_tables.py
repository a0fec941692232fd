"""Tables as values: what each renderer makes of them."""

from __future__ import annotations

import re

import pytest

from pai_sdk._core.tables.html import badge_html, table_html
from pai_sdk._core.tables.table import Cell, Column, Table, hparam_text, text_columns, value_text
from pai_sdk._core.tables.terminal import FittedTable

pytestmark = pytest.mark.interpreter


def table(titles: list[str], *rows: list[object]) -> Table:
    return Table(text_columns(titles), rows)


def lines(table: Table, width: int | None = None) -> list[str]:
    return [line.plain for line in FittedTable(table, width).lines()]


def test_values_of_cells_are_short() -> None:
    values = (1e-4, 0.12345678, True, None, "adam")
    assert [value_text(value) for value in values] == ["0.0001", "0.123457", "True", "-", "adam"]


def test_a_hyperparameter_can_be_none() -> None:
    names = ("warmup", "lr", "seed")
    assert [hparam_text({"warmup": None, "lr": 1e-4}, name) for name in names] == ["None", "0.0001", "-"]


def test_titles_are_text_and_cells_can_be_markup() -> None:
    html = table_html(table(["<job>"], [Cell("a", "<b>a</b>")], ["<i>"]))
    assert html.count("&lt;job&gt;") == html.count("<b>a</b>") == html.count("&lt;i&gt;") == 1
    assert ">Running</span>" in badge_html("Running", "running")


def test_columns_of_numbers_are_aligned_at_the_right() -> None:
    numbers = table(["job", "loss"], ["a", 0.5], ["bcd", 12.25])
    assert lines(numbers) == ["job   loss", "a      0.5", "bcd  12.25"]
    assert re.findall(r"<td[^>]*text-align:(\w+)", table_html(numbers)) == ["left", "right"] * 2


def test_columns_are_aligned_below_characters_of_two_cells() -> None:
    assert lines(table(["job", "loss"], ["训练", 1], ["abcd", 2])) == ["job   loss", "训练     1", "abcd     2"]


def test_long_cells_are_shortened_and_control_sequences_removed() -> None:
    assert lines(table(["job", ""], ["x" * 50, "\x1b[2Ja\nb"]))[1] == "x" * 47 + "…  a b"


def test_the_middle_of_a_long_table_is_a_count() -> None:
    numbers = Table([Column("n")], [[number] for number in range(9)])
    assert lines(numbers.shortened(4, 2)) == ["n", "0", "1", "… 5 more …", "7", "8"]
    assert numbers.shortened(9, 2) is numbers


def test_a_narrow_window_drops_columns_in_their_order() -> None:
    columns = [Column("JOB"), Column("NAME", wraps=True), Column("TIME", drop=1), Column("USER", drop=2)]
    jobs = Table(columns, [["train1", "digits", "12s", "alice"]])
    assert [column.title for column in FittedTable(jobs, 20).dropped] == ["USER"]
    assert lines(jobs, 20) == ["JOB     NAME    TIME", "train1  digits  12s"]
    assert lines(jobs, 12) == ["JOB     TIME", "train1  12s", "  digits"]


def test_a_narrow_window_shortens_or_folds_the_widest_columns() -> None:
    row = [["0.25", "a long reason"]]
    assert lines(Table([Column("loss"), Column("why", overflow="ellipsis")], row), 12) == [
        "loss  why",
        "0.25  a lon…",
    ]
    assert lines(Table([Column("loss"), Column("why", overflow="fold")], row), 12) == [
        "loss  why",
        "0.25  a long",
        "      reason",
    ]


def test_rows_are_json_objects_of_the_values() -> None:
    columns = [Column("SETTING", "setting"), Column("VALUE", "value")]
    assert [*Table(columns, [("region", None), (Cell("zone"), 1)]).objects()] == [
        {"setting": "region", "value": None},
        {"setting": "zone", "value": 1},
    ]
