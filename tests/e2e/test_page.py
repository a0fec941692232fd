"""The page in a real browser, on a real service with real jobs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from pai_sdk import Estimator, Session, TrainingJob
from tests.browser import WatchedPage, open_browser, open_page, why_no_browser
from tests.waiting import PATIENCE_S

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [
    pytest.mark.skipif(why_no_browser() is not None, reason=str(why_no_browser())),
    pytest.mark.timeout(300),
]

# Writes a line and a point for each step, and before the step of `wait_at` waits for a file.
TRAIN = """
import os, time
from pai_sdk import report

lr, steps, wait_at = (float(os.environ["PAI_HPS_" + name]) for name in ("LR", "STEPS", "WAIT_AT"))
for step in range(int(steps)):
    while step == int(wait_at) and not os.path.exists(os.environ["GO_ON"]):
        time.sleep(0.02)
    report({"loss": 1 / (1 + lr * step), "eval/accuracy": 1 - 1 / (1 + step)}, step=step)
    print(f"step {step} of lr {lr}", flush=True)
"""


@dataclass(frozen=True)
class Trainings:
    """Submits trainings to the service of a session.

    Attributes:
        session: of the service.
        source: the folder of the program.
        go_on: a file; jobs that wait go on when it is there.
    """

    session: Session
    source: Path
    go_on: Path

    def begin(self, name: str, *, lr: float = 0.1, steps: int = 20, wait_at: int = -1) -> TrainingJob:
        """A new job; at the step `wait_at` it waits for the file."""
        estimator = Estimator(
            "python:3.11",
            "python train.py",
            self.source,
            hyperparameters={"lr": lr, "steps": steps, "wait_at": wait_at},
            environments={"GO_ON": str(self.go_on)},
            instance_type="ecs.c6.large",
            base_job_name=name,
            session=self.session,
        )
        return estimator.fit(wait=False, show_logs=False)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    from playwright.sync_api import expect

    expect.set_options(timeout=PATIENCE_S * 500)
    with open_browser() as opened:
        yield opened


@pytest.fixture
def trainings(session: Session, tmp_path: Path) -> Trainings:
    source = tmp_path / "source"
    source.mkdir()
    (source / "train.py").write_text(TRAIN)
    return Trainings(session, source, tmp_path / "go on")


@contextmanager
def signed_in(
    browser: Browser, session: Session, address: str = "", *, job: TrainingJob | None = None, **options: Any
) -> Iterator[WatchedPage]:
    """A page that was opened by a link, and then shows the address (`view=curves`)."""
    link = session.new_page_link(job.id if job is not None else None)
    with open_page(browser, origin_of(link), **options) as watched:
        watched.page.goto(link)
        live(watched.page)
        if address:
            show(watched.page, address)
        yield watched


def origin_of(link: str) -> str:
    """Scheme, host and port of a link."""
    parts = urlsplit(link)
    return f"{parts.scheme}://{parts.netloc}"


def live(page: Page) -> None:
    """Return when the page is signed in and in touch with the service."""
    from playwright.sync_api import expect

    expect(page.locator(".connection")).to_have_text(re.compile("live|实时"))


def show(page: Page, address: str) -> None:
    """Go to another place of the page, without loading it again."""
    page.evaluate("address => { location.hash = address }", address)


def opened(page: Page, job: TrainingJob) -> None:
    """Open a job from the list."""
    page.get_by_role("link", name=job.name, exact=True).click()


# ---- signing in


def test_a_link_signs_in_once_and_other_tabs_go_on(browser: Browser, session: Session) -> None:
    from playwright.sync_api import expect

    link = session.new_page_link()
    with open_page(browser, origin_of(link)) as watched:
        waiting = watched.page.context.new_page()
        waiting.goto(f"{origin_of(link)}/ui/")
        expect(waiting.get_by_role("heading", name="Sign in")).to_be_visible()
        watched.page.goto(link)
        live(watched.page)
        assert "code" not in watched.page.url
        live(waiting)
        waiting.close()
        assert watched.faults == []
    with open_page(browser, origin_of(link)) as watched:
        watched.page.goto(link)
        expect(watched.page.get_by_role("heading", name="Sign in")).to_be_visible()
        expect(watched.page.locator(".copyable code")).to_contain_text("pai-sdk ui")
        expect(watched.page.get_by_role("alert")).to_be_visible()
        assert [fault for fault in watched.faults if "40" not in fault] == []  # the refusals themselves


# ---- jobs


def test_a_job_comes_into_the_list_and_its_log_is_followed(
    browser: Browser, session: Session, trainings: Trainings
) -> None:
    from playwright.sync_api import expect

    with signed_in(browser, session) as watched:
        page = watched.page
        job = trainings.begin("followed", steps=10, wait_at=5)
        row = page.locator(f'tr[data-run="{job.id}"]')
        expect(row).to_contain_text("Running")
        opened(page, job)
        page.get_by_role("tab", name="Log").click()
        expect(page.locator(".log-rows")).to_contain_text("step 4 of lr 0.1")
        expect(page.locator(".log-rows")).not_to_contain_text("step 5")
        trainings.go_on.touch()
        expect(page.locator(".log-rows")).to_contain_text("step 9 of lr 0.1")
        expect(page.locator(".job-title .status")).to_have_text("Succeed")
        assert watched.faults == []


def test_a_job_is_stopped_run_again_with_a_change_and_deleted(
    browser: Browser, session: Session, trainings: Trainings
) -> None:
    from playwright.sync_api import expect

    job = trainings.begin("stopped", steps=3, wait_at=1)
    with signed_in(browser, session, job=job) as watched:
        page = watched.page
        status = page.locator(".job-title .status")
        expect(status).to_have_text("Running")
        page.get_by_role("button", name="Stop", exact=True).click()
        page.get_by_role("button", name="Stop the job").click()
        expect(status).to_have_text("Terminated")

        trainings.go_on.touch()
        page.get_by_role("button", name="Re-run …").click()
        page.get_by_label("Value of lr").fill("0.7")
        page.get_by_role("button", name="Run with 1 changes").click()
        expect(page).not_to_have_url(re.compile(job.id))
        expect(status).to_have_text("Succeed")
        expect(page.get_by_role("row", name="lr 0.7")).to_be_visible()

        again = page.url.partition("run=")[2].partition("&")[0]
        assert session.get_job(again).hyperparameters["lr"] == "0.7"
        page.get_by_role("button", name="Delete", exact=True).click()
        page.get_by_role("button", name="Delete for ever").click()
        expect(page.locator(f'tr[data-run="{job.id}"]')).to_be_visible()
        expect(page.locator(f'tr[data-run="{again}"]')).to_have_count(0)
        assert watched.faults == []
