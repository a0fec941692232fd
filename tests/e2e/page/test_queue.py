"""The queue in a browser: who holds what, who waits and why, and what other users do not see."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from pai_sdk._service.settings import Pace
from pai_sdk.cli.selection.backend import session_on
from tests.e2e.test_page import signed_in
from tests.service.identity.test_quotas import asking, set_quota
from tests.service.services import Client
from tests.support.browser import why_no_browser
from tests.support.nvidia import FakeNvidiaSmi, pid_of
from tests.support.waiting import until

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(why_no_browser() is not None, reason=str(why_no_browser())),
]


@dataclass(frozen=True)
class Team:
    """A service of eight CPUs: alice runs a job and waits for her quota, bob waits for CPUs."""

    operator: Client
    alice: Client
    bob: Client
    running: str
    at_quota: str
    large: str


def _job(name: str, cpus: int, **fields: Any) -> dict[str, Any]:
    command = {"Image": "none", "Command": ["sh", "-c", "echo step 1; sleep 600"]}
    return asking(cpus, TrainingJobName=name, AlgorithmSpec=command, **fields)


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeNvidiaSmi]:
    with pytest.MonkeyPatch.context() as patch:
        driver = FakeNvidiaSmi(tmp_path_factory.mktemp("driver"), patch)
        driver.set_use("37", "250")
        yield driver


@pytest.fixture(scope="module")
def service_options(driver: FakeNvidiaSmi) -> dict[str, Any]:
    return {"executor": "process", "slots": 4, "cpus": 8, "pace": Pace(watch_interval_s=1.0)}


@pytest.fixture(scope="module")
def team(operator: Client, alice: Client, bob: Client, driver: FakeNvidiaSmi) -> Iterator[Team]:
    set_quota(operator, "alice", RunningJobs=1)
    running = alice.create(_job("of-alice", 2, count=2))
    alice.until(running, "Running")
    at_quota = alice.create(_job("second-of-alice", 2))
    large = bob.create(_job("large-of-bob", 8))
    until(lambda: [each["code"] for each in operator.get("/queue")["queued"]] == ["Quota", "Capacity"])
    driver.set_processes(until(lambda: pid_of(f"{running}-worker-0")))
    until(lambda: operator.get("/queue")["started"][0]["instances"][1].get("gpu_percent"))
    until(
        lambda: None not in [one.get("cpu_percent") for one in operator.get("/queue")["started"][0]["instances"]]
    )
    yield Team(operator, alice, bob, running, at_quota, large)
    for job_id in (running, at_quota, large):
        operator.call("PUT", f"/trainingjobs/{job_id}/stop")
    operator.until(running)


def _rows(page: Page, name: str) -> list[list[str]]:
    table = page.get_by_role("region", name=name, exact=True)
    expect(table).to_be_visible()
    rows = table.locator("tbody tr").all()
    return [[cell.inner_text() for cell in row.locator("th, td").all()] for row in rows]


def test_an_administrator_sees_all_with_the_figures_of_the_command(browser: Browser, team: Team) -> None:
    with signed_in(browser, team.operator, "view=queue") as watched:
        page = watched.page
        waiting = _rows(page, "Waiting")
        state = session_on(team.operator.info).runs.queue()
        assert [(row[0], row[1], row[2], row[3]) for row in waiting] == [
            (str(job.position), job.name, job.owner, job.reason) for job in state.queued
        ]
        node, *instances = _rows(page, "Running, by node")
        assert node[0].startswith(state.started[0].instances[0].node or "?")
        assert [row[1:4] for row in instances] == [
            [f"{role}-0", "alice", "Running"] for role in ("master", "worker")
        ]
        assert all(float(row[5]) >= 0 for row in instances)
        assert [row[7:] for row in instances] == [["", ""], ["37.0", "25.0"]]
        users = {row[0]: row[1:] for row in _rows(page, "Shares and quotas")}
        assert users["alice"][2:5] == ["1 of 1", "1", "4"]
        assert users["bob"][2:5] == ["0", "1", "0"]
        expect(page.locator(".capacity")).to_contain_text("4 of 8")
        page.get_by_role("link", name="large-of-bob").click()
        expect(page.locator("main .notice")).to_contain_text("8 CPUs (4 of 8 are free)")
        assert watched.faults == []


def test_a_job_has_charts_of_the_gpus_that_it_uses(browser: Browser, team: Team) -> None:
    with signed_in(browser, session_on(team.alice.info), f"run={team.running}") as watched:
        captions = watched.page.locator("main figcaption")
        expect(captions.filter(has_text="GPU, %")).to_contain_text("37 at most")
        expect(captions.filter(has_text="GPU memory, %")).to_contain_text("25 at most")
        assert watched.faults == []


def test_a_user_sees_their_own_place_and_reason_and_nothing_of_others(browser: Browser, team: Team) -> None:
    with signed_in(browser, team.bob, "view=queue") as watched:
        page = watched.page
        reason = "8 CPUs (4 of 8 are free)"
        (row,) = _rows(page, "Waiting")
        assert row[:3] == ["1", "large-of-bob", "bob"]
        assert reason in row[3]
        expect(page.locator("main [role=status]")).to_contain_text(
            "0 running, 1 waiting. Your next job, large-of-bob:"
        )
        assert [row[0] for row in _rows(page, "Shares and quotas")] == ["bob"]
        assert "alice" not in page.inner_text("body")
        page.goto(page.url.partition("#")[0])
        cells = page.locator(f'tr[data-run="{team.large}"]')
        expect(cells.get_by_title(reason)).to_contain_text("no. 1 in the queue")
        assert watched.faults == []


def test_it_changes_while_it_is_open(browser: Browser, team: Team) -> None:
    with signed_in(browser, team.bob, "view=queue") as watched:
        page = watched.page
        assert len(_rows(page, "Waiting")) == 1
        small = team.bob.create(_job("small-of-bob", 1))
        row = page.get_by_role("row", name="small-of-bob")
        expect(row).to_contain_text("behind 1 job of the same user")
        team.bob.call("PUT", f"/trainingjobs/{small}/stop")
        expect(row).to_have_count(0)
        assert watched.faults == []


@pytest.mark.parametrize("is_phone", [False, True])
@pytest.mark.parametrize("is_dark", [False, True])
def test_everybody_can_use_it(browser: Browser, team: Team, is_phone: bool, is_dark: bool) -> None:
    options: dict[str, Any] = {"is_phone": is_phone, "is_dark": is_dark, "is_checked": True}
    with signed_in(browser, team.operator, "view=queue", **options) as watched:
        _rows(watched.page, "Waiting")
        assert watched.accessibility_faults() == []
        assert watched.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
