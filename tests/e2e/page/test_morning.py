"""The list of jobs in a browser: whose they are, how many have which status, why they failed, on a phone too."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from pai_sdk._data.run.events.writer import EventWriter
from pai_sdk._data.run.report.layout import RunLayout
from pai_sdk._host.agent.sandbox import Sandbox
from tests.e2e.test_page import signed_in
from tests.service.fakes import ScriptedExecutor
from tests.service.identity.test_two_users import user
from tests.service.services import Client, job_body, session_on
from tests.support.browser import WatchedPage, open_page, why_no_browser
from tests.support.waiting import until

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(why_no_browser() is not None, reason=str(why_no_browser())),
]

_CAUSE = "RuntimeError: CUDA out of memory. Tried to allocate 2.50 GiB"


@pytest.fixture(scope="module")
def service_options() -> dict[str, Any]:
    executor = ScriptedExecutor()
    executor.begun_before_s = 3700
    return {"executor": executor, "slots": 2}


@pytest.fixture(scope="module")
def team(service_options: dict[str, Any], operator: Client, alice: Client, bob: Client) -> dict[str, Client]:
    """Users who have two running, one failed and four waiting jobs."""
    executor = service_options["executor"]
    _begun(executor, alice, "trains", 0.00025)
    failed = _begun(executor, bob, "fails", 0.1)
    executor.print(failed, "worker-0", f'Traceback (most recent call last):\n  File "a.py", line 1\n{_CAUSE}\n')
    executor.fail(failed, "worker-0", 1)
    operator.until(failed.name)
    _begun(executor, bob, "trains-too", 0.1)
    for number in range(4):
        alice.create(job_body(TrainingJobName=f"waits-{number}"))
    return {"operator": operator, "alice": alice, "bob": bob}


def _begun(executor: ScriptedExecutor, client: Client, name: str, lr: float) -> Path:
    """Starts a job that has points; returns its folder."""
    job_id = client.create(job_body(TrainingJobName=name, HyperParameters=[{"Name": "lr", "Value": str(lr)}]))
    until(lambda: job_id in executor.begun, "the start of the job")
    root = next(root for root in executor._states if root.name == job_id)
    with EventWriter(Path(RunLayout(str(Sandbox(root).ml / "output")).tensorboard)) as writer:
        writer.scalars({"loss": math.pi * lr}, 1)
    return root


@contextmanager
def _jobs(browser: Browser, client: Client, state: str = "", **options: Any) -> Iterator[WatchedPage]:
    """The list of jobs as a user sees it; `state` is what its address says."""
    with signed_in(browser, client, state, **options) as watched:
        expect(watched.page.locator("[data-run]").first).to_be_visible()
        yield watched


def _row(page: Page, name: str) -> Any:
    return page.locator("[data-run]", has=page.get_by_role("link", name=name, exact=True))


def _chip(page: Page, name: str) -> Any:
    return page.get_by_role("group", name="Filter by status").get_by_role("button", name=re.compile(name))


def test_counts_by_status_filter_and_the_rest_of_the_filter_stays(
    browser: Browser, team: dict[str, Client]
) -> None:
    with _jobs(browser, team["operator"]) as watched:
        page = watched.page
        expect(_chip(page, "Running")).to_have_text("Running 2")
        expect(_chip(page, "Failed")).to_have_text("Failed 1")
        page.locator("#filter").fill("owner=bob")
        page.locator("#filter").press("Enter")
        expect(_chip(page, "Running")).to_have_text("Running 1")
        _chip(page, "Failed").click()
        expect(page.locator("#filter")).to_have_value("owner=bob status=Failed")
        expect(page.locator("[data-run]")).to_have_count(1)
        expect(page.locator(".facts [role=status]")).to_have_text("1 of 7 jobs")
        expect(_chip(page, "Failed")).to_have_attribute("aria-pressed", "true")
        _chip(page, "Running").click()
        expect(page.locator("#filter")).to_have_value("owner=bob status=Failed,Running")
        expect(page.locator("[data-run]")).to_have_count(2)
        _chip(page, "Failed").click()
        _chip(page, "Running").click()
        expect(page.locator("#filter")).to_have_value("owner=bob")
        assert watched.faults == []


def test_users_see_and_count_their_own_jobs_only(browser: Browser, team: dict[str, Client]) -> None:
    with _jobs(browser, team["bob"], "q=status=Failed") as watched:
        page = watched.page
        expect(page.locator(".facts [role=status]")).to_have_text("1 of 2 jobs")
        expect(_chip(page, "Running")).to_have_text("Running 1")
        expect(_chip(page, "Submitted")).to_have_count(0)
        expect(page.get_by_role("columnheader", name="Owner")).to_have_count(0)
        expect(page.get_by_role("button", name="Mine")).to_have_count(0)
        assert watched.faults == []


def test_an_admin_finds_their_own_jobs(browser: Browser, team: dict[str, Client]) -> None:
    root = user(team["operator"], "root", "admin")
    root.create(job_body(TrainingJobName="of-root"))
    with _jobs(browser, root) as watched:
        page = watched.page
        expect(_row(page, "of-root")).to_be_visible()
        page.get_by_role("button", name="Mine").click()
        expect(page.locator("#filter")).to_have_value("owner=root")
        expect(page.locator("[data-run]")).to_have_count(1)
        page.get_by_role("button", name="Mine").click()
        expect(_row(page, "trains")).to_be_visible()
        assert watched.faults == []
    (job,) = root.get("/trainingjobs", TrainingJobName="of-root")["TrainingJobs"]
    root.call("PUT", f"/trainingjobs/{job['TrainingJobId']}/stop")
    root.until(job["TrainingJobId"])
    root.call("DELETE", f"/trainingjobs/{job['TrainingJobId']}")


def test_a_row_says_how_long_where_for_whom_and_why_it_failed(browser: Browser, team: dict[str, Client]) -> None:
    with _jobs(browser, team["operator"]) as watched:
        page = watched.page
        cause = _row(page, "fails").get_by_title(_CAUSE)
        expect(cause).to_contain_text("RuntimeError: CUDA out of memory")
        expect(_row(page, "fails")).to_contain_text("bob")
        running = _row(page, "trains").get_by_text(re.compile("^1 h [0-9]+ min$"))
        expect(running).to_be_visible()
        lr = [
            _row(page, name).get_by_title(exact, exact=True)
            for name, exact in (("trains", "0.00025"), ("fails", "0.1"))
        ]
        assert [cell.inner_text() for cell in lr] == ["0.00025", "0.10000"]
        assert lr[0].evaluate("cell => getComputedStyle(cell).textAlign") == "right"
        page.get_by_role("button", name="Duration").click()
        expect(page).to_have_url(re.compile("sort=-duration"))
        expect(page.locator("[data-run]").first).to_contain_text(re.compile("fails|trains"))
        assert watched.faults == []


def test_a_running_duration_counts_on(browser: Browser, team: dict[str, Client]) -> None:
    link = session_on(team["alice"].info).new_page_link()
    with open_page(browser, link.partition("/ui/")[0]) as watched:
        page = watched.page
        page.clock.install()
        page.goto(link)
        duration = _row(page, "trains").get_by_text(re.compile("^1 h [0-9]+ min$"))
        expect(duration).to_be_visible()
        before = duration.inner_text()
        page.clock.fast_forward(120_000)
        expect(duration).not_to_have_text(before)


def test_escape_and_suggestions_destroy_no_filter(browser: Browser, team: dict[str, Client]) -> None:
    with _jobs(browser, team["operator"]) as watched:
        page = watched.page
        box = page.locator("#filter")
        box.fill("owner=alice")
        box.press("Enter")
        expect(_row(page, "fails")).to_have_count(0)
        page.keyboard.press("End")
        page.keyboard.type(" status=R")
        expect(page.get_by_role("option", name="owner=alice status=Running")).to_be_visible()
        page.keyboard.press("Escape")
        expect(page.get_by_role("option")).to_have_count(0)
        page.keyboard.press("Escape")
        expect(box).not_to_be_focused()
        expect(box).to_have_value("owner=alice status=R")
        expect(page).to_have_url(re.compile("q=owner=alice$"))

        box.fill("owner=b")
        expect(page.get_by_role("option", name="owner=bob")).to_be_visible()
        page.keyboard.press("Enter")  # nothing was selected: what is typed counts
        expect(page).to_have_url(re.compile("q=owner=b$"))
        box.fill("owner=b")
        page.keyboard.type("o")
        page.keyboard.press("ArrowDown")
        page.keyboard.press("Enter")
        expect(box).to_have_value("owner=bob")
        page.keyboard.press("Enter")
        expect(_row(page, "fails")).to_be_visible()

        box.fill("loss<<1")
        page.keyboard.press("Enter")
        expect(page.get_by_role("alert")).to_be_visible()
        expect(box).to_have_attribute("aria-invalid", "true")
        expect(_row(page, "fails")).to_be_visible()  # the list from before
        assert [fault for fault in watched.faults if "400" not in fault] == []


def test_columns_are_in_chinese_and_as_wide_as_their_texts(browser: Browser, team: dict[str, Client]) -> None:
    with _jobs(browser, team["operator"], language="zh-CN") as watched:
        page = watched.page
        heads = [page.get_by_role("columnheader", name=name) for name in ("原因", "时长", "所有者", "实例")]
        for head in heads:
            expect(head).to_be_visible()
        duration = _row(page, "trains").get_by_text(re.compile("^1 小时 [0-9]+ 分$"))
        expect(duration).to_be_visible()
        assert duration.evaluate("cell => cell.scrollWidth <= cell.clientWidth")
        assert watched.faults == []


def test_the_usual_columns_fit(browser: Browser, team: dict[str, Client]) -> None:
    with _jobs(browser, team["operator"]) as watched:
        page = watched.page
        heads = page.locator(".rows th[scope=col]")
        is_too_wide = "document.querySelector('.rows').scrollWidth > document.querySelector('.rows').clientWidth"
        counts = []
        for width in (1440, 1000):
            page.set_viewport_size({"width": width, "height": 900})
            page.wait_for_function(f"() => !({is_too_wide})")
            counts.append(heads.count())
        assert counts[0] > counts[1]
        expect(page.get_by_role("columnheader", name="Cause")).to_be_visible()
        # The column of the order is there in any width, as are chosen columns.
        page.evaluate("location.hash = 'sort=hparams.lr'")
        expect(page.get_by_role("columnheader", name="lr")).to_have_attribute("aria-sort", "ascending")
        page.evaluate("location.hash = 'cols=cause,duration,owner,instance_type,metrics.loss,hparams.lr'")
        expect(heads).to_have_count(9)
        assert watched.faults == []


@pytest.mark.parametrize("view", ["hparams", "media", "curves"])
def test_the_other_views_have_the_filter(browser: Browser, team: dict[str, Client], view: str) -> None:
    with _jobs(browser, team["operator"]) as watched:
        page = watched.page
        page.evaluate("view => { location.hash = `view=${view}` }", view)
        page.get_by_role("combobox", name="Filter", exact=True).wait_for()
        page.keyboard.press("/")
        page.keyboard.type("owner=bob")
        page.keyboard.press("Enter")
        expect(page).to_have_url(re.compile("q=owner=bob"))
        assert watched.faults == []


@pytest.mark.parametrize("is_dark", [False, True])
def test_a_phone_shows_cards(browser: Browser, team: dict[str, Client], is_dark: bool) -> None:
    options: dict[str, Any] = {"is_phone": True, "is_dark": is_dark, "is_checked": True}
    with _jobs(browser, team["operator"], **options) as watched:
        page = watched.page
        expect(page.locator("main table")).to_have_count(0)
        expect(_row(page, "fails")).to_contain_text("CUDA out of memory")
        expect(_row(page, "trains")).to_contain_text(re.compile("Running.*1 h [0-9]+ min.*alice.*loss"))
        assert watched.accessibility_faults() == []
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        page.get_by_label("Order", exact=True).select_option("duration")
        expect(page).to_have_url(re.compile("sort=duration"))
        page.get_by_role("checkbox", name="Pick trains-too").click()
        expect(page.get_by_role("button", name="1 picked")).to_be_visible()
        assert watched.accessibility_faults() == []
        _chip(page, "Failed").click()
        expect(page.locator("[data-run]")).to_have_count(1)
        box = _row(page, "fails").bounding_box()
        assert box is not None
        page.touchscreen.tap(box["x"] + box["width"] * 0.8, box["y"] + box["height"] - 12)
        expect(page.get_by_role("heading", name="fails", level=1)).to_be_visible()
        assert watched.faults == []


def test_a_thousand_cards_are_not_all_in_the_document(browser: Browser, tmp_path: Path) -> None:
    from tests.e2e.test_page import served_folder

    for number in range(1000):
        (tmp_path / f"run-{number:04}").mkdir()
        (tmp_path / f"run-{number:04}" / "events.out.tfevents.1700000000.a").touch()
    with (
        served_folder(tmp_path) as server,
        open_page(browser, server.url, is_phone=True) as watched,
    ):
        page = watched.page
        page.goto(f"{server.new_link()}&sort=name")
        expect(page.locator(".facts [role=status]")).to_have_text("1,000 runs")
        expect(page.locator("main")).to_have_attribute("aria-busy", "false")
        page.locator("[data-run]").first.focus()
        page.keyboard.press("End")
        expect(page.locator("[data-run=run-0999]")).to_be_focused()
        assert page.locator("[data-run]").count() < 60
        assert watched.faults == []
