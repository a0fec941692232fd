"""Schedules in a browser: what each user sees, the last job, and pausing."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from pai_sdk._wire.pai.request import SCHEDULE_LABEL
from tests.e2e.test_page import signed_in
from tests.service.services import Client, job_body
from tests.support.browser import why_no_browser
from tests.support.waiting import PATIENCE_S

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(why_no_browser() is not None, reason=str(why_no_browser())),
]


@pytest.fixture(scope="module")
def service_options() -> dict[str, Any]:
    return {}  # jobs run


def add(client: Client, name: str, cron: str) -> str:
    body = {"Name": name, "Cron": cron, "TimeZone": "Asia/Shanghai", "Request": job_body(TrainingJobName=name)}
    return str(client.call("POST", "/schedules", body=body).json()["ScheduleId"])


def test_schedules_are_paused_and_resumed_by_their_users(browser: Browser, alice: Client, bob: Client) -> None:
    nightly = add(alice, "nightly", "0 3 29 2 *")
    add(bob, "secret-of-bob", "0 3 * * *")
    with signed_in(browser, alice, "view=schedules", is_checked=True) as watched:
        page = watched.page
        row = page.locator("tr", has_text="nightly")
        expect(row).to_contain_text(re.compile(r"enabled.*in \d+ d.*0 3 29 2 \* Asia/Shanghai.*alice"))
        expect(page.locator("main")).not_to_contain_text("bob")
        page.get_by_role("button", name="Pause nightly").click()
        expect(row).to_contain_text("paused")
        assert alice.get(f"/schedules/{nightly}")["Enabled"] is False
        assert watched.accessibility_faults() == []
        page.get_by_role("button", name="Resume nightly").click()
        expect(row).to_contain_text("enabled")
        assert alice.get(f"/schedules/{nightly}")["NextTime"] is not None
        assert watched.faults == []


def test_the_last_job_has_its_status(browser: Browser, operator: Client) -> None:
    each_minute = add(operator, "each-minute", "* * * * *")
    with signed_in(browser, operator, "view=schedules", is_phone=True) as watched:
        row = watched.page.locator("tr", has_text="each-minute")
        expect(row).to_contain_text("Succeed", timeout=90_000 + PATIENCE_S * 1000)
        # From now on, the last job stays the last one.
        assert operator.call("POST", f"/schedules/{each_minute}/pause").status_code == 200
        job_id = operator.get(f"/schedules/{each_minute}")["LastJobId"]
        expect(row.get_by_role("link")).to_have_attribute("href", re.compile(job_id))
        expect(row).to_contain_text("Succeed")
        assert {"Key": SCHEDULE_LABEL, "Value": each_minute} in operator.get(f"/trainingjobs/{job_id}")["Labels"]
        assert watched.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        row.get_by_role("link").click()
        expect(watched.page).to_have_url(re.compile(f"run={job_id}"))
        assert watched.faults == []
