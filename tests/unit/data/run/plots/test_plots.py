"""Pictures of runs: what is drawn, where, and what hostile names cannot do to a page."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from pai_sdk._data.run.events.series import Series
from pai_sdk._data.run.plots.axes import Axis, clock_axis, elapsed_axis, number_axis, number_text, x_axis
from pai_sdk._data.run.plots.buckets import compared
from pai_sdk._data.run.plots.curve_view import CurveView
from pai_sdk._data.run.plots.figures import Plot
from pai_sdk._data.run.plots.pictures import run_colour, safe_text, small_curve
from pai_sdk.errors import InvalidInputError
from tests.support.messages import refused

SVG = "{http://www.w3.org/2000/svg}"
MORNING_S = 1795341600.0  # 2026-11-22 10:00 UTC


def series(values: object, tag: str = "loss") -> Series:
    column = np.asarray(values, np.float64)
    return Series(tag, MORNING_S + np.arange(len(column)) * 60, np.arange(len(column)) * 10, column)


def plot(*values: object, names: tuple[str, ...] = (), log_y: bool = False, **how: object) -> Plot:
    found = [series(one) for one in values]
    names = names or [f"run-{at}" for at in range(len(found))]
    return compared(found, CurveView(**how), names=names).plot(log_y=log_y)


def drawn(picture: Plot) -> ET.Element:
    return ET.fromstring(picture.svg)


def texts(picture: Plot) -> list[str]:
    return ["".join(found.itertext()) for found in drawn(picture).iter(f"{SVG}text")]


def lines(picture: Plot) -> list[str]:
    return [path.get("d", "") for path in drawn(picture).iter(f"{SVG}path") if path.get("class") == "pai-line"]


# ---- axes


@pytest.mark.parametrize(
    ("low", "high", "shown"),
    [
        (0.0, 1.0, ["0", "0.2", "0.4", "0.6", "0.8", "1"]),
        (-3.0, 3.0, ["-3", "-2", "-1", "0", "1", "2", "3"]),
        (0.0, 30_000.0, ["0", "5000", "10k", "15k", "20k", "25k", "30k"]),
        (1000.0, 1000.004, ["1000.000", "1000.001", "1000.002", "1000.003", "1000.004"]),
        (0.0, 4e-7, ["0", "1e-7", "2e-7", "3e-7", "4e-7"]),
        (5.0, 5.0, ["4.6", "4.8", "5", "5.2", "5.4"]),
    ],
)
def test_ticks_are_round_numbers(low: float, high: float, shown: list[str]) -> None:
    assert [text for _, text in number_axis(low, high).ticks] == shown


def test_steps_have_no_fractions() -> None:
    assert [text for _, text in x_axis("step", 0, 3).ticks] == ["0", "1", "2", "3"]


@pytest.mark.parametrize(
    ("low", "high", "shown"),
    [
        (0.001, 20.0, ["0.001", "0.01", "0.1", "1", "10"]),
        (0.06, 2.0, ["0.1", "0.3", "1"]),
        (0.31, 0.36, ["0.31", "0.32", "0.33", "0.34", "0.35", "0.36"]),
        (1e-30, 1e30, ["1e-30", "1e-20", "1e-10", "1", "10G", "1e20", "1e30"]),
    ],
)
def test_ticks_of_a_logarithmic_axis(low: float, high: float, shown: list[str]) -> None:
    assert [text for _, text in number_axis(low, high, is_log=True).ticks] == shown


@pytest.mark.parametrize(
    ("seconds", "unit", "last"), [(90, "s", "80"), (3600, "min", "60"), (36_000, "h", "10"), (864_000, "d", "10")]
)
def test_time_since_the_start_has_its_unit(seconds: float, unit: str, last: str) -> None:
    axis = elapsed_axis(0, seconds)
    assert axis.title == f"time since the start ({unit})"
    assert axis.ticks[-1][1] == last


def test_a_clock_names_the_day_once() -> None:
    shown = [text for _, text in clock_axis(MORNING_S, MORNING_S + 86400).ticks]
    assert shown[0].startswith("Nov 22 ")
    assert sum("Nov 22" in text for text in shown) == 1
    assert [text for _, text in clock_axis(MORNING_S, MORNING_S + 20).ticks][:2] == ["Nov 22 10:00:00", "10:00:05"]
    assert next(text for _, text in clock_axis(MORNING_S, MORNING_S + 5 * 86400).ticks) == "Nov 23"
    assert clock_axis(-1e15, 1e15).title == "seconds since 1970"


@given(
    st.floats(allow_nan=False, allow_infinity=False),
    st.floats(allow_nan=False, allow_infinity=False),
    st.booleans(),
)
def test_every_axis_holds_its_values(one: float, other: float, is_log: bool) -> None:
    low, high = sorted((one, other))
    if is_log and low <= 0:
        return
    axis = number_axis(low, high, is_log=is_log)
    places = axis.positions([low, high])
    assert ((places >= 0) & (places <= 1)).all()
    assert len(axis.ticks) <= 13
    assert all(-1e-6 <= place <= 1 + 1e-6 for place in axis.positions([value for value, _ in axis.ticks]))


def test_an_unknown_axis_names_the_others() -> None:
    with refused(InvalidInputError, "x"):
        x_axis("epoch", 0, 1)


def test_what_is_not_finite_has_no_place() -> None:
    assert np.isnan(Axis(0, 1, ()).positions([math.nan, math.inf, -math.inf])).all()


def test_numbers_are_short() -> None:
    assert [number_text(value) for value in (1 / 3, -0.0, 123456.0, 1e13, -math.inf, 1e-300)] == [
        "0.333333", "-0", "123.456k", "1e13", "-inf", "1e-300",
    ]  # fmt: skip


# ---- the picture


def test_a_picture_has_its_title_axes_names_and_counts() -> None:
    shown = texts(plot([3, 2, 1], [2.5, 2, 1.5], names=("first", "second")))
    assert shown[0] == "loss"
    assert {"0", "10", "20", "step", "first 1", "second 1.5", "6 points"} <= set(shown)


def test_a_picture_needs_nothing_from_elsewhere() -> None:
    page = plot([1, 2], names=("a",)).html
    assert not re.search(r"<script|<iframe|src=|href=|url\(|@import", page)
    assert re.findall(r"https?://[^\"]+", page) == ["http://www.w3.org/2000/svg"]


def test_text_has_the_colour_of_the_page_and_a_file_has_its_own() -> None:
    picture = plot([1, 2]).svg
    assert 'fill="currentColor"' in picture
    assert "svg:root{color:#1f2328" in picture
    assert "prefers-color-scheme:dark" in picture


def test_a_run_keeps_its_colour_in_every_picture() -> None:
    def colour(picture: Plot, name: str) -> str | None:
        groups = [
            g
            for g in drawn(picture).iter(f"{SVG}g")
            if (t := g.find(f"{SVG}title")) is not None and name in t.text
        ]
        return groups[0].get("stroke")

    alone, amid = plot([1, 2], names=("b",)), plot([1, 2], [3, 4], [5, 6], names=("a", "b", "c"))
    assert colour(alone, "b:") == colour(amid, "b:") == run_colour("b")


def test_two_curves_of_one_colour_differ_in_their_dashes() -> None:
    names = [name for name in (f"run-{at}" for at in range(200)) if run_colour(name) == run_colour("run-0")][:3]
    picture = plot([1, 2], [2, 3], [3, 4], names=tuple(names))
    dashes = [p.get("stroke-dasharray") for p in drawn(picture).iter(f"{SVG}path") if p.get("class") == "pai-line"]
    assert len(set(dashes)) == 3


def test_what_is_not_finite_interrupts_the_curve_and_is_marked() -> None:
    picture = plot([1, 2, math.nan, 3, math.nan, math.inf, 4, 5])
    assert lines(picture)[0].count("M") == 2, "never drawn across"
    dots = [p.get("d") for p in drawn(picture).iter(f"{SVG}path") if p.get("stroke-width") == "5"]
    assert len(dots) == 1, "a lonely value between two of them is seen (TB#866)"
    marks = next(p.get("d", "") for p in drawn(picture).iter(f"{SVG}path") if p.get("class") == "pai-mark")
    assert marks.count("M") == 3
    assert any("▲ 2 NaN, ◆ 1 infinite" in text for text in texts(picture))


def test_a_run_of_nothing_but_nan_is_named() -> None:
    assert "broken NaN" in texts(plot([1, 2], [math.nan] * 3, names=("good", "broken")))


def test_an_infinite_value_does_not_break_the_range() -> None:
    ticks = texts(plot([0, 1, math.inf, -math.inf, 1e308]))
    assert "inf" not in ticks
    assert "no points yet" in texts(plot([]))


def test_buckets_have_a_band_with_exact_extremes() -> None:
    column = np.zeros(10_000)
    column[5000], column[7000] = 9.0, -3.0
    picture = plot(column, buckets=100)
    assert "10,000 points in 100 buckets, extremes exact" in texts(picture)
    band = next(p for p in drawn(picture).iter(f"{SVG}path") if p.get("fill-opacity") == ".22")
    numbers = [float(text) for text in re.findall(r"-?\d+", band.get("d", ""))][1::2]
    assert min(numbers) / 10 < 50, "the largest value is near the top"
    assert max(numbers) / 10 > 250


def test_the_curves_of_many_runs_visit_both_extremes() -> None:
    column = np.zeros(1000)
    column[500] = 1.0
    picture = plot(*[column + at / 1000 for at in range(41)], buckets=50)
    assert not [p for p in drawn(picture).iter(f"{SVG}path") if p.get("fill-opacity") == ".22"]
    heights = np.cumsum([float(text) for text in re.findall(r"-?\d+", lines(picture)[0])][1::2])
    assert heights.max() - heights.min() > 2000, "in tenths of a pixel"


def test_a_thousand_curves_name_those_at_the_ends_and_fold_the_list() -> None:
    values = [np.linspace(1, at / 1000, 20) for at in range(1000)]
    picture = plot(*values, names=tuple(f"run-{at}" for at in range(1000)))
    named = [text for text in texts(picture) if text.startswith("run-")]
    assert len(named) == 12
    assert {"run-0 0", "run-999 0.999"} <= set(named)
    assert len(lines(picture)) == 1000
    assert "<details" in picture.html
    assert picture.html.count("<tr>") == 1001
    assert len(picture.html) < 1_000_000


def test_names_do_not_overlap() -> None:
    picture = plot(*[[1, 0.5]] * 16)
    places = sorted(
        float(t.get("y", 0)) for t in drawn(picture).iter(f"{SVG}text") if "run-" in "".join(t.itertext())
    )
    assert len(places) == 16
    assert min(np.diff(places)) >= 13


def test_a_logarithmic_axis_leaves_out_and_counts_what_is_not_above_0() -> None:
    picture = plot([100, 10, 0, -1, 1], log_y=True)
    assert any("2 values of 0 or less left out" in text for text in texts(picture))
    assert len(lines(picture)) == 1
    assert "no points yet" in texts(plot([-1, 0], log_y=True))


def test_hostile_names_stay_text() -> None:
    name = "</title><script>alert(1)</script>\x1b[31m\ud800\x00\"'&"
    picture = compared([series([1, 2], tag="<img onerror=x>")], names=[name]).plot()
    drawn(picture)  # it is well-formed
    assert "<script" not in picture.html
    assert "<img" not in picture.html
    assert safe_text(name) == "&lt;/title&gt;&lt;script&gt;alert(1)&lt;/script&gt;[31m&quot;&#x27;&amp;"


def test_long_names_are_cut_in_their_middle() -> None:
    shown = texts(plot([1, 2], names=("a-very-long-folder-name/of-a-sweep/with-learning-rate=0.001",)))
    assert any(text.startswith("a-very-lon") and "learning-rate=0.001 2" in text and "…" in text for text in shown)


def test_it_is_saved_as_svg_or_html(tmp_path: Path) -> None:
    picture = plot([1, 2])
    assert ET.parse(picture.save(tmp_path / "loss.svg")).getroot().tag == f"{SVG}svg"
    page = picture.save(tmp_path / "loss.html").read_text(encoding="utf-8")
    assert page.startswith("<!DOCTYPE html>")
    assert 'name="color-scheme" content="light dark"' in page
    with refused(InvalidInputError, "path"):
        picture.save(tmp_path / "loss.png")
    assert repr(picture) == (
        "<Plot 'loss': 1 curve, 2 of 2 points; it displays itself in a notebook, save('loss.svg') writes it>"
    )
    assert picture._repr_html_() == picture.html


columns = arrays.arrays(np.float64, st.integers(0, 40), elements=st.floats(width=64))


@settings(max_examples=60)
@given(
    st.lists(columns, max_size=4),
    st.sampled_from(["step", "relative_step", "relative_time", "wall"]),
    st.booleans(),
    st.sampled_from([2, 5, 250]),
)
def test_whatever_the_values_are_a_picture_comes_out(
    values: list[np.ndarray], x: str, log_y: bool, buckets: int
) -> None:
    picture = plot(*values, x=x, log_y=log_y, buckets=buckets)
    numbers = [float(text) for path in lines(picture) for text in re.findall(r"-?\d+", path)]
    assert all(math.isfinite(number) for number in numbers)
    assert "nan" not in "".join(lines(picture))


# ---- the small curve


def test_a_small_curve_has_its_scale_and_its_ends() -> None:
    found = re.findall(r">([^<>]+)</text>", small_curve([3.0, 1.0, 0.25], 0, 2))
    assert found == ["3", "0.25", "step 0", "2"]
    assert small_curve([1.0, 1.0]).count("polyline") == 1
    assert small_curve([1.0]) == ""


def test_the_values_of_an_axis_have_positions_from_0_to_1() -> None:
    assert Axis(1, 100, (), is_log=True).positions([1, 10, 100]).tolist() == [0, 0.5, 1]
    assert [text for _, text in elapsed_axis(0, 7200).ticks] == ["0", "0.5", "1", "1.5", "2"]
