"""The list of runs in a browser: filter, order, keyboard, selection, live updates."""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from pai_sdk._data.run.events.writer import EventWriter
from pai_sdk._service.web.ui_app import UiServer, UiSettings
from tests.support.browser import WatchedPage, open_page, why_no_browser

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(why_no_browser() is not None, reason=str(why_no_browser())),
]

_RUNS = 300


@contextmanager
def _list_of(browser: Browser, folder: Path, state: str = "", **options: Any) -> Iterator[WatchedPage]:
    """The page of a folder; `state` is what its address says."""
    server = UiServer(UiSettings(folder))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        with open_page(browser, server.url, **options) as watched:
            watched.page.goto(f"{server.new_link()}&{state}" if state else server.new_link())
            yield watched
    finally:
        server.stop()
        thread.join()


def _write_run(folder: Path, lr: float, loss: float) -> None:
    with EventWriter(folder) as writer:
        writer.hparams({"lr": lr, "seed": 1}, ["loss"])
        writer.scalars({"loss": loss}, 1, wall_time=1.7e9)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    for number in range(_RUNS):
        _write_run(folder / f"run-{number:03}", 0.1 * (number % 3 + 1), math.nan if number == 7 else number / 100)
    return folder


def _names(page: Page, count: int) -> list[str]:
    return [link.inner_text() for link in page.locator("td.name a").all()[:count]]


def _facts(page: Page) -> Any:
    return page.locator(".facts [role=status]")


def test_rows_on_the_screen_are_in_the_document_and_the_others_are_reached(browser: Browser, runs: Path) -> None:
    with _list_of(browser, runs, "sort=name") as watched:
        page = watched.page
        expect(_facts(page)).to_have_text(f"{_RUNS} runs")
        expect(page.locator("main")).to_have_attribute("aria-busy", "false")  # all rows are there
        assert page.locator("tr[data-run]").count() < 80
        page.keyboard.press("j")
        page.keyboard.press("End")
        expect(page.locator(f"tr[data-run=run-{_RUNS - 1}]")).to_be_focused()
        assert page.locator("tr[data-run]").count() < 80
        page.keyboard.press("Enter")
        expect(page).to_have_url(re.compile(f"run=run-{_RUNS - 1}"))
        assert watched.faults == []


def test_the_way_back_from_a_run_ends_at_its_row(browser: Browser, runs: Path) -> None:
    with _list_of(browser, runs, "sort=name") as watched:
        page = watched.page
        expect(page.locator("main")).to_have_attribute("aria-busy", "false")
        page.keyboard.press("j")
        page.keyboard.press("End")
        page.keyboard.press("k")
        row = page.locator(f"tr[data-run=run-{_RUNS - 2}]")
        expect(row).to_be_focused()
        page.keyboard.press("Enter")
        expect(page.locator("h1")).to_have_text(re.compile(f"run-{_RUNS - 2}"))
        page.go_back()
        expect(row).to_be_focused()
        expect(row).to_be_in_viewport(ratio=1)
        page.keyboard.press("j")
        expect(page.locator(f"tr[data-run=run-{_RUNS - 1}]")).to_be_focused()
        page.locator("#filter").fill("loss>=0")  # another list begins at its top
        page.locator("#filter").press("Enter")
        expect(page.locator("tr[data-run=run-000]")).to_be_in_viewport()
        assert watched.faults == []


def test_filter_and_order(browser: Browser, runs: Path) -> None:
    with _list_of(browser, runs) as watched:
        page = watched.page
        expect(_facts(page)).to_have_text(f"{_RUNS} runs")
        page.keyboard.press("/")
        page.keyboard.type("hparams.l")
        page.get_by_role("option", name="hparams.lr").wait_for()
        page.keyboard.type("r=0.1 loss<1")
        page.keyboard.press("Enter")
        expect(_facts(page)).to_have_text(f"34 of {_RUNS} runs")
        page.get_by_role("button", name="loss", exact=True).click()
        expect(page.locator("th[aria-sort=ascending]")).to_contain_text("loss")
        expect(page.locator("td.name a").first).to_have_text("run-000")
        assert _names(page, 3) == ["run-000", "run-003", "run-006"]
        page.get_by_role("button", name="loss").click()
        expect(page.locator("td.name a").first).to_have_text("run-099")
        page.get_by_role("button", name="Clear the filter").click()
        expect(_facts(page)).to_have_text(f"{_RUNS} runs")
        assert watched.faults == []


def test_a_filter_with_an_error_is_explained_and_one_without_runs_can_be_cleared(
    browser: Browser, runs: Path
) -> None:
    with _list_of(browser, runs, "q=loss<much") as watched:
        page = watched.page
        expect(page.get_by_role("alert")).to_have_text("filter, character 6: 'much' is not a number")
        page.locator("#filter").fill("name~nothing")
        page.locator("#filter").press("Enter")
        expect(page.get_by_text("No run matches this filter.")).to_be_visible()
        page.locator("main .notice").get_by_role("button", name="Clear the filter").click()
        expect(_facts(page)).to_have_text(f"{_RUNS} runs")


def test_nan_is_shown_and_found(browser: Browser, runs: Path) -> None:
    with _list_of(browser, runs) as watched:
        watched.page.get_by_role("link", name="nan>0").click()
        expect(watched.page.locator("td.odd")).to_have_text("NaN")
        expect(_facts(watched.page)).to_have_text(f"1 of {_RUNS} runs")


def test_picked_runs_are_in_the_address_and_stay_among_the_others(browser: Browser, runs: Path) -> None:
    with _list_of(browser, runs, "sort=name") as watched:
        page = watched.page
        page.get_by_role("checkbox", name="Pick run-001").click()
        page.get_by_role("checkbox", name="Pick run-004").click(modifiers=["Shift"])
        expect(page).to_have_url(re.compile("only=run-001,run-002,run-003,run-004"))
        page.keyboard.press("j")
        page.keyboard.press("x")
        expect(page.get_by_role("button", name="5 picked")).to_be_visible()
        expect(page.get_by_role("checkbox", name="Pick run-000")).not_to_be_checked()
        page.get_by_role("button", name="5 picked").click()
        expect(page).not_to_have_url(re.compile("only="))
        assert watched.faults == []


def test_columns_and_views_are_kept(browser: Browser, runs: Path) -> None:
    with _list_of(browser, runs) as watched:
        page = watched.page
        page.get_by_text("Columns", exact=True).click()
        page.get_by_role("checkbox", name="loss min").click()
        expect(page.get_by_role("columnheader", name="loss min")).to_be_visible()
        page.keyboard.press("Escape")
        page.get_by_text("Views", exact=True).click()
        page.get_by_role("textbox", name="Name of this view").fill("with min")
        page.keyboard.press("Enter")
        page.evaluate("location.hash = ''")
        expect(page.get_by_role("columnheader", name="loss min")).to_have_count(0)
        page.reload()
        page.get_by_text("Views", exact=True).click()
        page.get_by_role("link", name="with min").click()
        expect(page.get_by_role("columnheader", name="loss min")).to_be_visible()
        assert watched.faults == []


def test_new_runs_move_neither_the_focus_nor_what_is_on_the_screen(browser: Browser, tmp_path: Path) -> None:
    for number in range(60):
        _write_run(tmp_path / f"run-{number:03}", 0.1, number)
    with _list_of(browser, tmp_path, "sort=name") as watched:
        page = watched.page
        page.locator("tr[data-run=run-005]").focus()
        page.locator(".rows").evaluate("rows => { rows.scrollTop = 20 * 34 }")
        row = page.locator("tr[data-run=run-025]")
        before = row.bounding_box()
        _write_run(tmp_path / "a-new-one", 0.1, 0.5)
        expect(_facts(page)).to_have_text("61 runs")
        expect(page.locator("tr[data-run=run-005]")).to_be_focused()
        assert row.bounding_box() == before
        assert watched.faults == []


def test_an_empty_folder_shows_lines_that_make_a_first_run(browser: Browser, tmp_path: Path) -> None:
    with _list_of(browser, tmp_path) as watched:
        code = watched.page.locator(".copyable code").inner_text()
        exec(compile(code, "first run", "exec"), {})
        expect(watched.page.locator("td.name a")).to_have_text("first")
        assert watched.faults == []


@pytest.mark.parametrize("is_phone", [False, True])
@pytest.mark.parametrize("is_dark", [False, True])
def test_it_is_accessible_and_never_wider_than_the_screen(
    browser: Browser, runs: Path, is_phone: bool, is_dark: bool
) -> None:
    options = {"is_phone": is_phone, "is_dark": is_dark, "is_checked": True}
    with _list_of(browser, runs, "only=run-001,run-002", **options) as watched:
        page = watched.page
        expect(page.locator("[data-run]").first).to_be_visible()
        assert watched.accessibility_faults() == []
        page.get_by_text("Columns", exact=True).click()
        assert watched.accessibility_faults() == []
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
