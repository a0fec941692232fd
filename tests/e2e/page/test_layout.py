"""Where things are on the screen: the head knows where one is, and the end of a log is seen without scrolling."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from pai_sdk import Session
from tests.e2e.test_page import signed_in
from tests.service.services import Client, job_body, running_service, session_on
from tests.support.browser import why_no_browser

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(why_no_browser() is not None, reason=str(why_no_browser())),
]

_LINES = 400


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Client, str, str]]:
    """A service, its job that runs and writes a log, and one that waits."""
    with running_service(tmp_path_factory.mktemp("service") / "data", slots=1) as client:
        running = client.create(job_body(f"seq -f 'line %g' {_LINES}; sleep 600", TrainingJobName="trains"))
        client.until(running, "Running")
        waiting = client.create(job_body(TrainingJobName="waits"))
        yield client, running, waiting
        client.call("PUT", f"/trainingjobs/{running}/stop")
        client.until(running)


@pytest.fixture
def session(service: tuple[Client, str, str]) -> Iterator[Session]:
    with session_on(service[0].info) as opened:
        yield opened


def _current(page: Page) -> list[tuple[str, str]]:
    links = page.locator("header nav a[aria-current]").all()
    return [(link.inner_text(), link.get_attribute("aria-current") or "") for link in links]


def test_the_head_knows_where_one_is(browser: Browser, session: Session, service: tuple[Client, str, str]) -> None:
    with signed_in(browser, session, f"view=queue&run={service[1]}", is_checked=True) as watched:
        page = watched.page
        expect(page.locator("h1")).to_contain_text("trains")
        assert _current(page) == [("Jobs", "true")]
        page.locator("header").get_by_role("link", name="Queue").click()
        expect(page.locator("h1")).to_have_text("Queue")
        assert _current(page) == [("Queue", "page")]
        assert watched.faults == []


def test_a_phone_shows_the_name_of_its_view(browser: Browser, session: Session) -> None:
    with signed_in(browser, session, "view=schedules", is_phone=True) as watched:
        link = watched.page.locator("header nav a[aria-current]")
        expect(link).to_have_text("Schedules")
        expect(link).to_be_in_viewport(ratio=0.9)
        assert watched.page.evaluate("scrollY") == 0
        assert watched.faults == []


@pytest.mark.parametrize("width", [1440, 1000])
def test_the_end_of_a_log_is_on_the_screen(
    browser: Browser, session: Session, service: tuple[Client, str, str], width: int
) -> None:
    with signed_in(browser, session, f"run={service[1]}&tab=log", is_checked=True) as watched:
        page = watched.page
        page.set_viewport_size({"width": width, "height": 900})
        last = page.locator(".log-row", has_text=f"line {_LINES}")
        expect(last).to_be_in_viewport(ratio=0.9)
        expect(page.get_by_text(f"{_LINES} lines")).to_be_in_viewport(ratio=1)
        assert page.evaluate("document.documentElement.scrollHeight <= innerHeight")
        assert watched.accessibility_faults() == []
        assert watched.faults == []


def test_a_card_says_what_its_job_waits_for(
    browser: Browser, session: Session, service: tuple[Client, str, str]
) -> None:
    with signed_in(browser, session, is_phone=True) as watched:
        card = watched.page.locator("[data-run]", has_text="waits")
        expect(card).to_contain_text("waiting for 1 instance (0 of 1 are free)")
        assert watched.faults == []
