"""Costs in a browser: the column of the list, the sum of a search, the page of a job."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from pai_sdk._client.tune.template import STUDY_LABEL
from pai_sdk._core.prices import PriceList
from pai_sdk.cli.selection.backend import session_on
from tests.e2e.test_page import show, signed_in
from tests.service.fakes import ScriptedExecutor
from tests.service.services import Client, job_body, running_service
from tests.support.browser import why_no_browser
from tests.support.waiting import until

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(why_no_browser() is not None, reason=str(why_no_browser())),
]


def _job(name: str, type_: str, count: int = 1, labels: Mapping[str, str] | None = None) -> dict[str, Any]:
    compute = {"EcsSpec": type_, "EcsCount": count}
    rows = [{"Key": key, "Value": value} for key, value in (labels or {}).items()]
    return job_body(TrainingJobName=name, ComputeResource=compute, Labels=rows)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """Jobs that have run for ten hours, at 2 or 5 CNY an hour, and one without a price."""
    executor = ScriptedExecutor()
    executor.begun_before_s = 36_000.0
    prices = PriceList("CNY", {"ecs.small": 2.0, "ecs.large": 5.0})
    with running_service(tmp_path_factory.mktemp("costs") / "data", executor, prices=prices) as client:
        jobs = [_job(f"trial-{number}", "ecs.small", labels={STUDY_LABEL: "digits"}) for number in range(3)]
        jobs += [_job("large", "ecs.large", 2), _job("unpriced", "ecs.other")]
        for job_id in [client.create(job) for job in jobs]:
            client.until(job_id, "Running")
            client.call("PUT", f"/trainingjobs/{job_id}/stop")
            client.until(job_id)
        until(lambda: sum("cost" in row for row in client.get("/runs")["runs"]) == 4)
        yield client


def _cost_of(page: Page, name: str) -> str:
    row = page.locator("tr[data-run]", has=page.get_by_role("link", name=name, exact=True))
    return row.locator("td.number").inner_text()


def test_the_list_has_a_column_that_sorts_and_a_search_has_the_sum(browser: Browser, service: Client) -> None:
    with signed_in(browser, session_on(service.info), "cols=cost", is_checked=True) as watched:
        page = watched.page
        expect(page.get_by_role("button", name="Cost (CNY)")).to_be_visible()
        expect(page.locator("tr[data-run^='study:'] td.number")).to_have_text(re.compile(r"60\.\d\d"))
        assert re.fullmatch(r"100\.\d\d", _cost_of(page, "large"))
        assert _cost_of(page, "unpriced") == ""
        page.get_by_role("button", name="Cost (CNY)").click()
        expect(page.locator("th[aria-sort=descending]")).to_contain_text("Cost (CNY)")
        expect(page.locator("tr[data-run] td.name a").first).to_have_text("large")
        page.locator("#filter").fill("cost>30")
        page.locator("#filter").press("Enter")
        expect(page.locator("tr[data-run]")).to_have_count(1)
        assert watched.accessibility_faults() == []
        assert watched.faults == []


def test_a_job_and_the_card_of_a_phone_have_the_currency(browser: Browser, service: Client) -> None:
    with signed_in(browser, session_on(service.info), is_phone=True, is_dark=True, is_checked=True) as watched:
        page = watched.page
        large = page.locator(".card", has=page.get_by_role("link", name="large", exact=True))
        expect(large).to_contain_text(re.compile(r"Cost \(CNY\) 100\.\d\d"))
        large.get_by_role("link", name="large", exact=True).click()
        fact = page.locator("dl.summary > div", has=page.locator("dt", has_text="Cost"))
        expect(fact.locator("dd")).to_have_text(re.compile(r"100\.\d+ CNY"))
        assert watched.accessibility_faults() == []
        assert watched.faults == []


def test_without_a_known_cost_there_is_no_column(browser: Browser, service: Client) -> None:
    with signed_in(browser, session_on(service.info), "q=unpriced", language="zh-CN") as watched:
        page = watched.page
        expect(page.locator("tr[data-run] td.name a")).to_have_text(["unpriced"])
        expect(page.get_by_role("button", name="费用")).to_have_count(0)
        show(page, "q=large")
        expect(page.get_by_role("button", name="费用 (CNY)")).to_be_visible()
        assert watched.faults == []
