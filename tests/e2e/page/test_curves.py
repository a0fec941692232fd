"""The curves of runs in a browser: legend, text at the cursor, axes, pinned metrics, colours."""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from pai_sdk._data.run.events.writer import EventWriter
from pai_sdk._service.web.ui_app import UiServer, UiSettings
from tests.support.browser import WatchedPage, open_page, why_no_browser

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(why_no_browser() is not None, reason=str(why_no_browser())),
]

_MANY = 300
_STEPS = 20


@contextmanager
def _served(folder: Path) -> Iterator[UiServer]:
    server = UiServer(UiSettings(folder))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.stop()
        thread.join()


@contextmanager
def _curves_of(browser: Browser, server: UiServer, state: str = "", **options: Any) -> Iterator[WatchedPage]:
    with open_page(browser, server.url, **options) as watched:
        watched.page.goto(f"{server.new_link()}&view=curves&{state}".rstrip("&"))
        yield watched


def _write_run(folder: Path, values: dict[str, list[float]]) -> None:
    """A run; a metric with fewer values has them at the last steps."""
    with EventWriter(folder) as writer:
        for step in range(_STEPS):
            of_step = {
                tag: column[step - _STEPS] for tag, column in values.items() if step >= _STEPS - len(column)
            }
            writer.scalars(of_step, step, wall_time=1.7e9 + step)


@pytest.fixture(scope="module")
def some(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UiServer]:
    """Six runs: `loss` of run k is k at all steps, with an outlier in the last run and NaN in the first."""
    folder = tmp_path_factory.mktemp("some")
    for number in range(6):
        loss = [float(number)] * _STEPS
        if number == 5:
            loss[10] = 1e6
        if number == 0:
            loss[5:] = [math.nan] * (_STEPS - 5)
        columns = {"loss": loss, "tokens": [100.0 * step for step in range(_STEPS)], "eval/f1": [0.5] * _STEPS}
        if number < 2:
            columns["rare"] = [1.0] * (_STEPS - 5)
        _write_run(folder / f"run-{number}", columns)
    with _served(folder) as server:
        yield server


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UiServer]:
    folder = tmp_path_factory.mktemp("many")
    for number in range(_MANY):
        values = [float(number) if step % 2 else math.nan for step in range(_STEPS)]
        _write_run(folder / f"run-{number:03}", {"loss": values})
    with _served(folder) as server:
        yield server


def _cell(page: Page, tag: str) -> Locator:
    return page.locator(".curve-cell", has=page.get_by_role("heading", name=tag, exact=True))


def _drawn(place: Page | Locator, count: int) -> None:
    expect(place.locator(f".chart-box[data-curves='{count}']").first).to_be_visible()


def _eye(page: Page, name: str) -> Locator:
    return page.locator(".legend").get_by_role("button", name=f"Show {name}", exact=True)


# ---- the legend


def test_the_eye_hides_a_run_in_all_charts_and_the_address_has_it(browser: Browser, some: UiServer) -> None:
    with _curves_of(browser, some) as watched:
        page = watched.page
        _drawn(_cell(page, "loss"), 6)
        _eye(page, "run-2").click()
        _drawn(_cell(page, "loss"), 5)
        _drawn(_cell(page, "eval/f1"), 5)
        expect(_cell(page, "loss").locator(".curve-facts")).to_contain_text("1 hidden")
        expect(page.locator(".legend summary")).to_have_text("5 of 6 shown")
        expect(page).to_have_url(re.compile(r"hide=[0-9a-z]{6}$"))
        page.reload()
        _drawn(_cell(page, "loss"), 5)
        expect(_eye(page, "run-2")).to_have_attribute("aria-pressed", "false")
        page.get_by_role("searchbox", name="Search these names").fill("run-3")
        page.get_by_role("button", name="Only these").click()
        _drawn(_cell(page, "loss"), 1)
        page.get_by_role("searchbox", name="Search these names").fill("")
        page.get_by_role("button", name="Show all", exact=True).click()
        _drawn(_cell(page, "loss"), 6)
        expect(page).not_to_have_url(re.compile("hide="))
        assert watched.faults == []


def test_groups_are_hidden_too_and_another_grouping_shows_all(browser: Browser, some: UiServer) -> None:
    with _curves_of(browser, some, "group=name") as watched:
        page = watched.page
        _drawn(_cell(page, "loss"), 6)
        expect(page.locator(".legend summary")).to_have_text("6 groups")
        assert len(set(_swatches(page).values())) == 6
        _eye(page, "name=run-2 (n = 1)").click()
        _drawn(_cell(page, "loss"), 5)
        page.get_by_role("combobox", name="Group by").fill("status")
        _drawn(_cell(page, "loss"), 1)
        expect(page).not_to_have_url(re.compile("hide="))
        assert watched.faults == []


def test_a_legend_of_many_runs_has_the_rows_on_the_screen_and_finds_the_others(
    browser: Browser, many: UiServer
) -> None:
    with _curves_of(browser, many, "sort=-name") as watched:
        page = watched.page
        _drawn(page, _MANY)
        expect(page.locator(".legend summary")).to_have_text(f"{_MANY} runs")
        assert page.locator(".legend-rows .eye").count() < 80
        page.locator(".legend-rows").evaluate("rows => { rows.scrollTop = rows.scrollHeight }")
        expect(page.locator(".legend-rows .name").last).to_have_text("run-000")
        page.get_by_role("searchbox", name="Search these names").fill("run-12")
        expect(page.locator(".legend").get_by_role("status")).to_have_text("10 found")
        page.get_by_role("button", name="Only these").click()
        _drawn(page, 10)
        assert len(page.url.partition("hide=")[2]) < 80
        page.get_by_role("button", name="Hide", exact=True).click()
        _drawn(page, 0)
        assert watched.faults == []


def test_a_picked_run_is_alone_in_all_views(browser: Browser, some: UiServer) -> None:
    with _curves_of(browser, some) as watched:
        page = watched.page
        page.locator(".legend .name", has_text="run-4").click()
        _drawn(_cell(page, "loss"), 1)
        expect(page).to_have_url(re.compile("only=run-4"))
        page.locator(".legend .name", has_text="run-1").click()
        _drawn(_cell(page, "loss"), 2)
        page.get_by_role("button", name="Unpick all").click()
        _drawn(_cell(page, "loss"), 6)


# ---- the cursor


def test_the_text_at_the_cursor_has_all_curves_the_highest_first(browser: Browser, some: UiServer) -> None:
    with _curves_of(browser, some, "tag=loss") as watched:
        page = watched.page
        _drawn(page, 6)
        box = page.locator(".chart-area").bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + box["width"] * 3.2 / (_STEPS - 1), box["y"] + box["height"] / 2)
        tip = page.locator(".chart-tip")
        expect(tip.locator(".chart-tip-x")).to_have_text("3")
        expect(tip.locator(".chart-tip-row")).to_have_text(
            [f"run-{number}{number}" for number in range(5, -1, -1)]
        )
        page.get_by_role("application").focus()
        page.keyboard.press("Home")
        page.keyboard.press("ArrowRight")
        expect(tip.locator(".chart-tip-x")).to_have_text("1")
        expect(tip.locator(".chart-tip-row")).to_have_count(6)
        first = tip.locator(".hot span").inner_text()
        page.keyboard.press("ArrowDown")
        expect(tip.locator(".hot span")).not_to_have_text(first)
        expect(page.locator(".chart [aria-live]")).to_contain_text(re.compile(r"^run-\d: \d, 1$"))
        assert watched.faults == []


def test_of_many_curves_the_text_has_those_beside_the_cursor(browser: Browser, many: UiServer) -> None:
    with _curves_of(browser, many) as watched:
        page = watched.page
        _drawn(page, _MANY)
        box = page.locator(".chart-area").bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + box["width"] * 7 / (_STEPS - 1), box["y"] + box["height"] / 2)
        rows = page.locator(".chart-tip .chart-tip-row")
        expect(rows).to_have_count(12)
        expect(page.locator(".chart-tip")).to_contain_text(f"and {_MANY - 12} more")
        values = [float(text) for text in page.locator(".chart-tip b").all_inner_texts()]
        assert values == sorted(values, reverse=True)
        assert 130 < values[-1] <= values[0] < 170


# ---- axes


def test_outliers_and_limits_of_y(browser: Browser, some: UiServer) -> None:
    with _curves_of(browser, some) as watched:
        page = watched.page
        facts = _cell(page, "loss").locator(".curve-facts")
        expect(facts).to_contain_text("all 120 points")
        page.get_by_label("Ignore outliers").check()
        expect(facts).to_contain_text("outliers beyond the y axis: 1")
        expect(page).to_have_url(re.compile("trim=1"))
        page.get_by_label("Ignore outliers").uncheck()
        page.get_by_label("Max y").fill("3.5")
        page.get_by_label("Max y").press("Enter")
        expect(facts).to_contain_text("values beyond the y axis: 40")
        expect(page).to_have_url(re.compile(r"y=\.\.3\.5"))
        _cell(page, "loss").get_by_role("link", name="loss").click()
        page.get_by_label("Min y").fill("1.5")
        page.get_by_label("Min y").press("Enter")
        expect(page).to_have_url(re.compile(r"y\.loss=1\.5\.\.3\.5"))
        expect(page.locator(".curve-large .curve-facts")).to_contain_text("values beyond the y axis: 65")
        assert watched.faults == []


def test_another_metric_is_the_x_axis(browser: Browser, some: UiServer) -> None:
    with _curves_of(browser, some) as watched:
        page = watched.page
        page.get_by_label("x axis").select_option("metric:tokens")
        expect(page).to_have_url(re.compile("x=metric:tokens"))
        chart = _cell(page, "loss").get_by_role("application")
        expect(chart).to_have_attribute("aria-label", re.compile("x from 0 to 1900"))
        page.get_by_label("x axis").select_option("metric:rare")
        facts = _cell(page, "tokens").locator(".curve-facts")
        expect(facts).to_contain_text("4 of 6 runs lack this metric")
        expect(facts).to_contain_text("10 points without a value of rare at their step")
        assert watched.faults == []


# ---- metrics


def test_pinned_metrics_are_first_and_are_remembered(browser: Browser, some: UiServer) -> None:
    with _curves_of(browser, some) as watched:
        page = watched.page
        headings = page.locator(".curve-cell h3")
        expect(headings).to_have_text(["loss", "tokens", "rare", "eval/f1"])
        page.get_by_role("button", name="Pin eval/f1").click()
        expect(headings).to_have_text(["eval/f1", "loss", "tokens", "rare"])
        expect(page).to_have_url(re.compile("pins=eval/f1"))
        page.goto(f"{some.url}/ui/#view=curves")
        page.reload()
        expect(headings).to_have_text(["eval/f1", "loss", "tokens", "rare"])
        expect(page).to_have_url(re.compile("pins=eval/f1"))
        page.get_by_role("button", name="Pin eval/f1").click()
        expect(headings).to_have_text(["loss", "tokens", "rare", "eval/f1"])
        page.evaluate("location.hash = 'view=curves&sort=metrics.rare'")
        expect(headings).to_have_text(["rare", "loss", "tokens", "eval/f1"])
        assert watched.faults == []


def test_charts_have_one_size(browser: Browser, some: UiServer) -> None:
    for is_phone in (False, True):
        with _curves_of(browser, some, is_phone=is_phone) as watched:
            page = watched.page
            _drawn(page, 6)
            found = [box.bounding_box() for box in page.locator(".curve-cell .chart-canvas").all()]
            boxes = [box for box in found if box is not None]
            assert len({(round(box["width"]), round(box["height"])) for box in boxes}) == 1
            assert boxes[0]["width"] / boxes[0]["height"] == pytest.approx(16 / 9, rel=0.05)
            assert len({box["x"] for box in boxes}) == (1 if is_phone else 2)


def test_up_to_eight_runs_have_eight_colours_which_last(browser: Browser, some: UiServer, many: UiServer) -> None:
    with _curves_of(browser, some) as watched:
        _drawn(watched.page, 6)
        assert len(set(_swatches(watched.page).values())) == 6
    with _curves_of(browser, many, "sort=name") as watched:
        page = watched.page
        _drawn(page, _MANY)
        before = _swatches(page)
        page.evaluate("location.hash = 'view=curves&q=loss.max<20'")
        _drawn(page, 20)
        found = _swatches(page)
        assert found
        assert found.items() <= before.items()
        page.evaluate("location.hash = 'view=curves&only=' + [1,2,3,4,5,6,7,8].map((n) => 'run-00' + n).join()")
        _drawn(page, 8)
        page.get_by_role("searchbox", name="Search these names").fill("run-00")
        expect(page.locator(".legend .name.chosen")).to_have_count(8)
        assert len(set(_swatches(page, ".chosen").values())) == 8


def _swatches(page: Page, which: str = "") -> dict[str, str]:
    """The colours of the legend by the names of its runs."""
    colour = "one => [one.textContent, getComputedStyle(one.querySelector('.swatch')).backgroundColor]"
    return dict(page.locator(f".legend .name{which}").evaluate_all(f"all => all.map({colour})"))


def test_nan_is_a_thin_bar_that_leaves_the_axis_free(browser: Browser, many: UiServer) -> None:
    with _curves_of(browser, many) as watched:
        page = watched.page
        _drawn(page, _MANY)
        expect(_cell(page, "loss").get_by_role("button", name="3,000 NaN")).to_be_visible()
        rows = page.evaluate(
            """() => {
              const canvas = document.querySelector(".chart-canvas"), area = document.querySelector(".chart-area");
              const bottom = Math.round(area.offsetTop + area.offsetHeight);
              const red = (y) => {
                const { data } = canvas.getContext("2d").getImageData(0, y, canvas.width, 1);
                let found = 0;
                for (let at = 0; at < data.length; at += 4) found += data[at] > 150 && data[at + 1] < 90;
                return found / area.offsetWidth;
              };
              return [red(bottom - 1), red(bottom - 9), red(bottom + 3)];
            }"""
        )
        assert rows[0] > 0.1
        assert rows[1] < 0.05
        assert rows[2] == 0


def test_the_marks_of_a_run_are_listed_once(browser: Browser, tmp_path: Path) -> None:
    _write_run(tmp_path / "one", {"loss": [1.0] * _STEPS, "accuracy": [math.nan] * _STEPS})
    with EventWriter(tmp_path / "one") as writer:
        writer.end("Succeed")
    with _served(tmp_path) as server, open_page(browser, server.url) as watched:
        page = watched.page
        page.goto(f"{server.new_link()}&run=one&tab=curves&x=wall")
        expect(page.locator(".chart-box[data-curves='1']")).to_have_count(2)
        expect(page.locator(".chart-marks")).to_have_count(1)
        page.locator(".chart-marks summary").click()
        expect(page.locator(".chart-marks li", has_text="accuracy is")).to_have_count(1)
        assert watched.faults == []


@pytest.mark.parametrize("is_phone", [False, True])
@pytest.mark.parametrize("is_dark", [False, True])
def test_it_is_accessible_and_never_wider_than_the_screen(
    browser: Browser, some: UiServer, is_phone: bool, is_dark: bool
) -> None:
    options = {"is_phone": is_phone, "is_dark": is_dark, "is_checked": True}
    with _curves_of(browser, some, "pins=loss&y=..4", **options) as watched:
        page = watched.page
        _drawn(page, 6)
        if is_phone:
            page.locator(".legend summary").click()
        expect(_eye(page, "run-1")).to_be_visible()
        assert watched.accessibility_faults() == []
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert watched.faults == []
