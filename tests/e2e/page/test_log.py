"""The log of a run in a browser: levels, hits with lines around them, the download, times of the instances."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from pai_sdk import Estimator, Session
from pai_sdk._data.run.events.writer import EventWriter
from pai_sdk._service.embedded import ensure_running
from pai_sdk._service.web.ui_app import UiServer
from tests.e2e.test_page import origin_of, served_folder, show, signed_in, too_wide
from tests.service.services import Client
from tests.support.browser import open_page, why_no_browser

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(why_no_browser() is not None, reason=str(why_no_browser())),
]

TRACEBACK = 'Traceback (most recent call last):\n  File "train.py", line 7\nValueError: bad batch\n'
STEPS = 3000


def log_text() -> str:
    parts = []
    for step in range(STEPS):
        parts.append(f"2026-01-01 12:{step // 60 % 60:02}:{step % 60:02},000 - train - INFO - step {step}\n")
        if step % 1000 == 500:
            parts.append(f"2026-01-01 12:00:00,000 - train - ERROR - failed at {step}\n{TRACEBACK}")
        if step % 1000 == 700:
            parts.append("/lib/x.py:3: UserWarning: slow\n  warnings.warn(\n")
    return "".join(parts)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UiServer]:
    run = tmp_path_factory.mktemp("runs") / "run"
    (run / "logs").mkdir(parents=True)
    (run / "logs" / "worker-0.log").write_text(log_text())
    with EventWriter(run / "tensorboard") as writer:
        writer.scalars({"loss": 0.5}, 1)
    with served_folder(run.parent) as opened:
        yield opened


def texts(page: Page) -> list[str]:
    return page.locator(".log-rows .log-text").all_inner_texts()


def test_errors_are_shown_with_their_tracebacks(browser: Browser, server: UiServer) -> None:
    with signed_in(browser, server, "run=run&tab=log") as watched:
        page = watched.page
        page.get_by_label("Level").select_option(label="ERROR")
        expect(page.locator(".log-foot")).to_contain_text("12 lines")
        expect(page).to_have_url(re.compile("level=error"))
        expect(page.locator(".log-rows .log-row")).to_have_count(12)
        assert [text for text in texts(page) if "failed" in text] == [
            f"2026-01-01 12:00:00,000 - train - ERROR - failed at {step}" for step in (500, 1500, 2500)
        ]
        page.get_by_label("Level").select_option(label="≥ WARNING")
        expect(page.locator(".log-foot")).to_contain_text("18 lines")
        # The number of a line leads to its place in the whole log.
        page.locator(".log-row", has_text="failed at 1500").locator(".log-number").click()
        expect(page.locator(".log-row.chosen .log-text")).to_contain_text("failed at 1500")
        expect(page.locator(".log-rows")).to_contain_text("INFO - step 1500")
        expect(page.get_by_label("Level")).to_have_value("")
        assert watched.faults == []


def test_hits_are_shown_with_lines_around_them(browser: Browser, server: UiServer) -> None:
    with open_page(browser, origin_of(server.new_link())) as watched:
        page = watched.page
        page.goto(f"{server.new_link()}&run=run&tab=log&find=bad+batch&context=2")
        expect(page.locator(".log-foot")).to_contain_text("15 lines")
        assert page.get_by_role("searchbox").input_value() == "bad batch"
        expect(page.locator(".log-rows mark")).to_have_count(3)
        expect(page.locator(".log-rows .beside")).to_have_count(12)
        page.get_by_label("Lines shown").select_option(label="Only matches")
        expect(page.locator(".log-rows .log-row")).to_have_count(3)
        page.get_by_role("searchbox").fill("step 27[0-9]{2}$")
        page.get_by_role("button", name="Regular expression").click()
        page.get_by_role("searchbox").press("Enter")
        expect(page.locator(".log-foot")).to_contain_text("100 lines")
        page.get_by_label("Lines shown").select_option(label="All lines")
        expect(page.locator(".log-foot")).to_contain_text(f"{STEPS + 18:,} lines")
        # A search is turned into a filter.
        page.get_by_role("searchbox").press("Enter")
        expect(page.locator(".log-count")).to_contain_text("100 hits")
        page.get_by_label("Lines shown").select_option(label="± 1")
        expect(page.locator(".log-foot")).to_contain_text("104 lines")
        expect(page).to_have_url(re.compile("context=1"))
        page.get_by_role("searchbox").press("Escape")
        expect(page.locator(".log-foot")).to_contain_text(f"{STEPS + 18:,} lines")
        assert watched.faults == []


def test_a_filter_follows_a_log(browser: Browser, tmp_path: Path) -> None:
    log = tmp_path / "runs" / "run" / "logs" / "worker-0.log"
    log.parent.mkdir(parents=True)
    log.write_text("INFO fine\nERROR one\n")
    with EventWriter(tmp_path / "runs" / "run" / "tensorboard") as writer:
        writer.scalars({"loss": 0.5}, 1)
    with served_folder(tmp_path / "runs") as server, open_page(browser, origin_of(server.new_link())) as watched:
        page = watched.page
        page.goto(f"{server.new_link()}&run=run&tab=log&level=error")
        expect(page.locator(".log-rows")).to_contain_text("ERROR one")
        with log.open("a") as file:
            file.write("INFO fine\nERROR two\n  more\n")
        expect(page.locator(".log-rows")).to_contain_text("ERROR two")
        expect(page.locator(".log-rows .log-row")).to_have_count(3)
        assert "INFO fine" not in texts(page)
        assert watched.faults == []


PRINTS = """
import datetime, random, time
for number in range(60):
    print(f"{datetime.datetime.now():%H:%M:%S.%f} INFO step {number}", flush=True)
    if number % 20 == 10:
        print("Traceback (most recent call last):\\n  File 'x'\\nValueError: x", flush=True)
    time.sleep(random.random() / 20)
"""


def test_lines_of_running_instances_are_in_the_order_in_which_they_were_written(
    browser: Browser, session: Session, service_dir: Path, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(PRINTS)
    estimator = Estimator(
        "python:3.11",
        "python train.py",
        tmp_path,
        instance_type="ecs.c6.large",
        instance_count=2,
        base_job_name="ordered",
        session=session,
    )
    job = estimator.fit(wait=False, show_logs=False)
    with signed_in(browser, session) as watched:
        page = watched.page
        show(page, f"run={job.id}&tab=log")
        expect(page.locator(".log-foot")).to_contain_text(f"{2 * (60 + 9)} lines")  # also while they are written
        expect(page.locator(".log-rows")).to_contain_text("step 59")
        assert watched.faults == []
    client = Client(ensure_running(service_dir))
    lines = client.get(f"/runs/{job.id}/log", lines=1000)["lines"]
    stamps = [line["text"].split()[0] for line in lines if "INFO" in line["text"]]
    assert stamps == sorted(stamps)
    assert len(stamps) == 120
    errors = [at for at, line in enumerate(lines) if line["text"].startswith("ValueError")]
    assert all(len({line["instance"] for line in lines[at - 3 : at + 1]}) == 1 for at in errors)


def test_the_whole_log_is_downloaded(browser: Browser, server: UiServer) -> None:
    with open_page(browser, origin_of(server.new_link())) as watched:
        page = watched.page
        page.goto(f"{server.new_link()}&run=run&tab=log")
        with page.expect_download() as started:
            page.get_by_role("button", name="Download", exact=True).click()
        assert started.value.suggested_filename == "run.log"
        assert Path(started.value.path()).read_text() == log_text()
        with page.expect_download() as started:
            page.get_by_role("button", name="Download .gz").click()
        assert started.value.suggested_filename == "run.log.gz"
        assert gzip.decompress(Path(started.value.path()).read_bytes()).decode() == log_text()
        assert watched.faults == []


@pytest.mark.parametrize("is_phone", [False, True], ids=["desktop", "phone"])
def test_everybody_can_filter(browser: Browser, server: UiServer, is_phone: bool) -> None:
    options: dict[str, Any] = {"is_phone": is_phone, "is_dark": is_phone, "is_checked": True}
    with open_page(browser, origin_of(server.new_link()), **options) as watched:
        page = watched.page
        page.goto(f"{server.new_link()}&run=run&tab=log&level=warning&context=1")
        expect(page.locator(".log-foot")).to_contain_text("lines")
        assert watched.accessibility_faults() + too_wide(page) == []
        assert watched.faults == []
