"""Watched jobs in a browser: a notification or the title when one ends, and the rules that watch a job."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from pai_sdk._data.rules.rules import NoProgress
from pai_sdk.cli.selection.backend import session_on
from tests.e2e.test_page import live, signed_in
from tests.service.services import Client, job_body, running_service
from tests.service.test_rules import PACE
from tests.service.test_rules import watched as job_with_rules
from tests.support.browser import why_no_browser
from tests.support.waiting import until

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(why_no_browser() is not None, reason=str(why_no_browser())),
]

# Notifications as the page makes them, in a list; by default they are granted when the page asks.
STUB = """
window.notified = [];
window.asked = 0;
window.Notification = class {
  static permission = "default";
  static requestPermission() { window.asked += 1; this.permission = ANSWER; return Promise.resolve(ANSWER); }
  constructor(title, options) { window.notified.push([title, options.body, options.tag]); }
  close() {}
};
"""


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with running_service(tmp_path_factory.mktemp("told") / "data", "process", pace=PACE) as client:
        yield client


def _waiting_job(client: Client, gate: Path, name: str) -> str:
    """A job that runs until a file is there."""
    client.clear(name)
    command = f"while [ ! -e '{gate}' ]; do sleep 0.05; done"
    job_id = client.create(job_body(command, TrainingJobName=name))
    client.until(job_id, "Running")
    return job_id


def _bell(page: Page) -> Any:
    return page.get_by_role("button", name="Tell me when it ends")


def _stub(context: BrowserContext, answer: str) -> None:
    context.add_init_script(STUB.replace("ANSWER", repr(answer)))


def test_two_tabs_make_one_notification(browser: Browser, client: Client, tmp_path: Path) -> None:
    job_id = _waiting_job(client, tmp_path / "gate", "told")
    with signed_in(browser, session_on(client.info)) as watched:
        page, context = watched.page, watched.page.context
        _stub(context, "granted")
        page.reload()
        live(page)
        assert page.evaluate("asked") == 0  # only a click asks
        page.get_by_role("link", name="told", exact=True).click()
        _bell(page).click()
        expect(_bell(page)).to_have_attribute("aria-pressed", "true")
        assert page.evaluate("asked") == 1
        page.evaluate("location.hash = ''")
        other = context.new_page()
        other.goto(page.url)
        live(other)
        other.get_by_role("link", name="told", exact=True).click()
        expect(_bell(other)).to_have_attribute("aria-pressed", "true")  # kept in the browser, for all tabs
        other.evaluate("Notification.permission = 'granted'; location.hash = ''")
        (tmp_path / "gate").touch()
        for tab in (page, other):
            expect(tab).to_have_title("✔ told ended: Succeed · pai")
        notified = [each for tab in (page, other) for each in tab.evaluate("notified")]
        assert notified == [["✔ told ended: Succeed", "", job_id]]
        other.get_by_role("link", name="✔ told ended: Succeed").click()
        for tab in (page, other):  # read once, it is gone
            expect(tab).not_to_have_title(re.compile("✔"))
        assert watched.faults == []


def test_without_permission_the_title_tells(browser: Browser, client: Client, tmp_path: Path) -> None:
    ids = [_waiting_job(client, tmp_path / "gate", name) for name in ("first", "second")]
    with signed_in(browser, session_on(client.info)) as watched:
        page = watched.page
        _stub(page.context, "denied")
        page.reload()
        live(page)
        for name in ("first", "second"):
            page.get_by_role("checkbox", name=f"Pick {name}", exact=True).check()
        _bell(page).click()
        page.evaluate("location.hash = ''")
        client.call("PUT", f"/trainingjobs/{ids[0]}/stop")
        expect(page).to_have_title("■ first ended: Terminated · pai")
        (tmp_path / "gate").touch()
        expect(page).to_have_title("✔ second ended: Succeed · pai")
        assert page.evaluate("notified") == []
        for _ in ids:
            page.get_by_role("button", name=re.compile("^Dismiss ")).first.click()
        expect(page).to_have_title("pai")
        page.reload()
        live(page)
        expect(page).to_have_title("pai")
        assert watched.faults == []


def test_what_ended_while_no_page_was_open_is_told_at_the_next_visit(
    browser: Browser, client: Client, tmp_path: Path
) -> None:
    job_id = _waiting_job(client, tmp_path / "gate", "unseen")
    with signed_in(browser, session_on(client.info)) as watched:
        page = watched.page
        page.get_by_role("link", name="unseen", exact=True).click()
        _bell(page).click()
        address = page.url.partition("#")[0]
        page.goto("about:blank")
        (tmp_path / "gate").touch()
        client.until(job_id)
        page.goto(address)
        expect(page).to_have_title("✔ unseen ended: Succeed · pai")
        expect(page.get_by_role("status", name="What has ended")).to_contain_text("unseen")


def test_a_hidden_tab_asks_each_half_minute(browser: Browser, client: Client, tmp_path: Path) -> None:
    job_id = _waiting_job(client, tmp_path / "gate", "hidden")
    with signed_in(browser, session_on(client.info)) as watched:
        page = watched.page
        page.clock.install()
        page.reload()
        live(page)
        page.get_by_role("link", name="hidden", exact=True).click()
        _bell(page).click()
        expect(_bell(page)).to_have_attribute("aria-pressed", "true")
        page.clock.pause_at(page.evaluate("Date.now() / 1000") + 20.0)  # however long the job takes to end
        page.evaluate("Object.defineProperty(document, 'hidden', {get: () => true})")
        page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
        (tmp_path / "gate").touch()
        client.until(job_id)
        assert "ended" not in page.title()
        page.clock.fast_forward(31_000)
        page.clock.resume()
        expect(page).to_have_title("✔ hidden ended: Succeed · pai")


def test_a_finding_is_told_and_shown_with_its_evidence(browser: Browser, client: Client) -> None:
    rule = NoProgress(min_s=3, first_step_s=20, busy_s=60, unmeasured_s=3)
    job_id = client.create(job_with_rules("train(30); time.sleep(600)", rule, TrainingJobName="hangs"))
    client.until(job_id, "Running")
    with signed_in(browser, session_on(client.info), f"run={job_id}", is_checked=True) as watched:
        page = watched.page
        section = page.locator(".watched")
        section.get_by_text("9 rules watch this job").click()
        expect(section.get_by_role("term").filter(has_text="NoProgress")).to_be_visible()
        _bell(page).click()
        page.evaluate("location.hash = ''")
        expect(page).to_have_title("⚠ hangs: NoProgress · pai")
        page.get_by_role("link", name="⚠ hangs: NoProgress").click()
        finding = section.get_by_role("alert")
        expect(finding).to_contain_text(re.compile(r"NoProgress no new line, metric or step for .*; the limit is"))
        expect(finding).to_contain_text("quiet_s = ")
        expect(finding.locator("pre").last).to_contain_text("step 29 loss=0.0333")
        assert watched.accessibility_faults() == []
        expect(_bell(page)).to_have_attribute("aria-pressed", "true")  # until it ends
        client.call("PUT", f"/trainingjobs/{job_id}/stop")
        expect(section.get_by_role("alert")).to_have_count(0)
        expect(section).to_contain_text("NoProgress no new line")  # past
        until(lambda: client.get(f"/trainingjobs/{job_id}")["Status"] == "Terminated")
        assert watched.faults == []


@pytest.mark.parametrize("is_phone", [False, True])
@pytest.mark.parametrize("is_dark", [False, True])
def test_everybody_can_use_it(
    browser: Browser, client: Client, tmp_path: Path, is_phone: bool, is_dark: bool
) -> None:
    job_id = _waiting_job(client, tmp_path / "gate", "checked")
    options: dict[str, Any] = {"is_phone": is_phone, "is_dark": is_dark, "is_checked": True}
    with signed_in(browser, session_on(client.info), f"run={job_id}", **options) as watched:
        page = watched.page
        _bell(page).click()
        page.evaluate("location.hash = ''")
        (tmp_path / "gate").touch()
        expect(page.get_by_role("link", name="✔ checked ended")).to_be_visible()
        assert watched.accessibility_faults() == []
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
