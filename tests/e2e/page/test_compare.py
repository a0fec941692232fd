"""Two to ten runs side by side in a browser."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from pai_sdk import Estimator, Session
from pai_sdk._data.run.events.writer import EventWriter
from pai_sdk._service.web.ui_app import UiServer
from tests.e2e.test_page import live, origin_of, served_folder, show, signed_in, too_wide
from tests.support.browser import open_page, why_no_browser

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(why_no_browser() is not None, reason=str(why_no_browser())),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UiServer]:
    folder = tmp_path_factory.mktemp("runs")
    for number in range(12):
        with EventWriter(folder / f"run-{number:02}") as writer:
            writer.hparams({"lr": 0.1 * (number + 1), "seed": 1, "name": f"=cmd{number}"})
            writer.scalars({"loss": 1 / (number + 1), "val/acc": number / 20}, 1)
            writer.scalars({"loss": 2 / (number + 1)}, 2)
    with served_folder(folder) as opened:
        yield opened


def row(page: Page, name: str) -> list[str]:
    cells = page.locator("tr", has=page.get_by_role("rowheader", name=name, exact=True)).locator("td")
    return [text.strip() for text in cells.all_inner_texts()]


def test_picked_runs_are_compared(browser: Browser, server: UiServer) -> None:
    with open_page(browser, origin_of(server.new_link())) as watched:
        page = watched.page
        page.goto(f"{server.new_link()}&only=run-01,run-03,run-07")
        page.get_by_role("link", name="Side by side").click()
        expect(page.locator(".compare thead th")).to_have_count(3)
        assert row(page, "lr") == ["0.2", "0.4", "0.8"]
        expect(page.get_by_role("rowheader", name="seed", exact=True)).to_have_count(0)
        expect(page.locator("tr.differs").get_by_role("rowheader", name="lr", exact=True)).to_be_visible()
        assert ["★" in text for text in row(page, "loss min")] == [False, False, True]
        assert ["★" in text for text in row(page, "val/acc last")] == [False, False, True]
        page.get_by_label("Show what is the same").check()
        expect(page.get_by_role("rowheader", name="seed", exact=True)).to_be_visible()
        assert row(page, "seed") == ["1", "1", "1"]
        with page.expect_download() as started:
            page.get_by_role("button", name="CSV").click()
        with Path(started.value.path()).open(encoding="utf-8-sig", newline="") as file:
            table = {cells[0]: cells[1:] for cells in csv.reader(file)}
        assert table[""] == ["run-01", "run-03", "run-07"]
        assert table["name"] == ["'=cmd1", "'=cmd3", "'=cmd7"]
        assert table["seed"] == ["1", "1", "1"]
        page.get_by_role("button", name="Leave run-03 out").click()
        expect(page.locator(".compare thead th")).to_have_count(2)
        page.get_by_role("link", name="Compare curves").click()
        expect(page).to_have_url(re.compile("view=curves.*only=run-01,run-07|only=run-01,run-07.*view=curves"))
        assert watched.faults == []


def test_too_few_and_too_many_runs_are_explained(browser: Browser, server: UiServer) -> None:
    with open_page(browser, origin_of(server.new_link())) as watched:
        page = watched.page
        page.goto(f"{server.new_link()}&view=compare")
        expect(page.locator(".compare .notice")).to_contain_text("2 to 10")
        show(page, "view=compare&only=" + ",".join(f"run-{number:02}" for number in range(12)))
        expect(page.locator(".compare thead th")).to_have_count(10)
        expect(page.locator(".compare")).to_contain_text("10 of 12")
        show(page, "")
        live(page)
        show(page, "view=compare&only=run-00,run-01,missing")
        expect(page.locator(".compare thead th")).to_have_count(2)
        expect(page.locator(".compare .warn")).to_be_visible()
        assert [fault for fault in watched.faults if "404" not in fault] == []


def test_jobs_are_compared(browser: Browser, session: Session, tmp_path: Path) -> None:
    jobs = []
    for name, command in (("good", "true"), ("bad", "echo 'ValueError: broken' >&2; exit 3")):
        estimator = Estimator(
            "python:3.11",
            command,
            hyperparameters={"lr": 0.1},
            instance_type="ecs.c6.large",
            base_job_name=name,
            labels={"team": name},
            session=session,
        )
        jobs.append(estimator.fit(wait=False, show_logs=False))
    with signed_in(browser, session) as watched:
        page = watched.page
        show(page, f"view=compare&only={','.join(job.id for job in jobs)}")
        status = page.locator("tr", has=page.get_by_role("rowheader", name="Status", exact=True)).locator("td")
        expect(status).to_have_text(["Succeed", "Failed"])
        assert row(page, "Command") == ["true", "echo 'ValueError: broken' >&2; exit 3"]
        assert row(page, "team") == ["good", "bad"]
        expect(page.locator("tr.differs").get_by_role("rowheader", name="Command", exact=True)).to_be_visible()
        assert len(set(row(page, "Image"))) == 1
        assert watched.faults == []


@pytest.mark.parametrize("is_phone", [False, True], ids=["desktop", "phone"])
def test_everybody_can_use_it(browser: Browser, server: UiServer, is_phone: bool) -> None:
    options: dict[str, Any] = {"is_phone": is_phone, "is_dark": is_phone, "is_checked": True}
    with open_page(browser, origin_of(server.new_link()), **options) as watched:
        page = watched.page
        page.goto(f"{server.new_link()}&view=compare&all=1&only=" + ",".join(f"run-{n:02}" for n in range(10)))
        expect(page.locator(".compare thead th")).to_have_count(10)
        assert watched.accessibility_faults() + too_wide(page) == []
        assert watched.faults == []
