"""The page in a real browser, on a real service with real jobs."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from pai_sdk import Estimator, Session, TrainingJob
from pai_sdk._data.run.events.writer import EventWriter
from pai_sdk._service.embedded import ensure_running
from pai_sdk._service.web.ui_app import UiServer, UiSettings
from tests.service.services import Client, session_on
from tests.support.browser import AXE, WatchedPage, open_page, why_no_browser
from tests.support.service_process import wait_until_gone
from tests.support.training_runs import write_trials
from tests.support.waiting import PATIENCE_S

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Request

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


@pytest.fixture
def trainings(session: Session, tmp_path: Path) -> Trainings:
    source = tmp_path / "source"
    source.mkdir()
    (source / "train.py").write_text(TRAIN)
    return Trainings(session, source, tmp_path / "go on")


@contextmanager
def signed_in(
    browser: Browser,
    who: Session | Client | UiServer,
    address: str = "",
    *,
    job: TrainingJob | None = None,
    **options: Any,
) -> Iterator[WatchedPage]:
    """A page that was opened by a link, and then shows the address (`view=curves`)."""
    if isinstance(who, UiServer):
        link = who.new_link()
    else:
        session = session_on(who.info) if isinstance(who, Client) else who
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

    origin = origin_of(session.new_page_link())
    with open_page(browser, origin) as watched:
        waiting = watched.page.context.new_page()
        waiting.goto(f"{origin}/ui/")
        expect(waiting.get_by_role("heading", name="Sign in")).to_be_visible()
        link = session.new_page_link()  # it works for a minute
        watched.page.goto(link)
        live(watched.page)
        assert "code" not in watched.page.url
        live(waiting)
        waiting.close()
        assert watched.faults == []
    with open_page(browser, origin) as watched:
        watched.page.goto(link)
        expect(watched.page.get_by_role("heading", name="Sign in")).to_be_visible()
        expect(watched.page.locator(".copyable code")).to_contain_text("pai-sdk ui")
        expect(watched.page.get_by_role("alert")).to_be_visible()
        assert [fault for fault in watched.faults if "40" not in fault] == []  # the refusals themselves


def test_a_link_is_pasted_into_a_tab_that_waits_for_one(browser: Browser, session: Session) -> None:
    from playwright.sync_api import expect

    link = session.new_page_link()
    with open_page(browser, origin_of(link)) as watched:
        page = watched.page
        page.goto(f"{origin_of(link)}/ui/")
        expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
        page.evaluate("link => { location.href = link }", link.replace("code=", "code=wrong"))
        expect(page.get_by_role("alert")).to_be_visible()
        assert "code" not in page.url
        link = session.new_page_link()  # it works for a minute
        page.evaluate("link => { location.href = link }", f"{link}&view=curves")
        live(page)
        expect(page.get_by_role("heading", name="Curves", level=1)).to_be_visible()
        assert "code" not in page.url


def test_the_clock_of_a_browser_may_be_wrong(browser: Browser, session: Session) -> None:
    link = session.new_page_link()
    with open_page(browser, origin_of(link)) as watched:
        watched.page.add_init_script("const now = Date.now; Date.now = () => now() - 3_600_000")
        watched.page.goto(link)
        live(watched.page)
        watched.page.reload()
        live(watched.page)


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
        page.get_by_role("button", name="Run with 1 change").click()
        expect(page).not_to_have_url(re.compile(job.id))
        expect(status).to_have_text("Succeed")
        expect(page.locator(".hparams div").filter(has_text="lr")).to_have_text("lr0.7")

        again = page.url.partition("run=")[2].partition("&")[0]
        assert session.get_job(again).hyperparameters["lr"] == "0.7"
        page.get_by_role("button", name="Delete", exact=True).click()
        page.get_by_role("button", name="Delete for ever").click()
        expect(page.locator(f'tr[data-run="{job.id}"]')).to_be_visible()
        expect(page.locator(f'tr[data-run="{again}"]')).to_have_count(0)
        assert watched.faults == []


# ---- curves


def test_two_runs_are_compared_and_zoomed(browser: Browser, session: Session, trainings: Trainings) -> None:
    from playwright.sync_api import expect

    jobs = [trainings.begin("compared", lr=lr, steps=600) for lr in (0.01, 0.5)]
    for job in jobs:
        job.wait(show_logs=False)
    with signed_in(browser, session) as watched:
        page = watched.page
        for job in jobs:
            page.get_by_label(f"Pick {job.name}", exact=True).check()
        page.get_by_role("link", name="Compare curves").click()
        cell = page.locator(".curve-cell", has=page.get_by_role("heading", name="loss", exact=True))
        expect(cell.locator(".curve-facts")).to_contain_text("buckets of 1,200 points")

        box = cell.locator(".chart-area").bounding_box()
        assert box is not None
        middle = box["y"] + box["height"] / 2
        page.mouse.move(box["x"] + box["width"] * 0.5, middle)
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] * 0.6, middle, steps=4)
        with page.expect_request(
            lambda one: one.url.endswith("/compare") and '"from":' in (one.post_data or "")
        ) as asked:
            page.mouse.up()
        body: dict[str, Any] = asked.value.post_data_json or {}
        assert 290 < body["from"] < body["to"] < 370
        expect(page).to_have_url(re.compile("from=[0-9.]+&to=[0-9.]+"))
        expect(cell.locator(".curve-facts")).to_contain_text("all 1")
        expect(cell.locator(".curve-facts")).not_to_contain_text("buckets")

        chart = cell.get_by_role("application")
        chart.focus()
        page.keyboard.press("Escape")
        expect(page).not_to_have_url(re.compile("from="))
        expect(cell.locator(".curve-facts")).to_contain_text("buckets of 1,200 points")
        page.keyboard.press("Home")
        expect(cell.locator("[aria-live]")).to_contain_text(re.compile("^compared.*: 0.3333 … 1, "))
        page.keyboard.press("+")
        expect(page).to_have_url(re.compile("from="))

        page.get_by_role("link", name="Hyperparameters", exact=True).click()
        row = page.get_by_role("row", name=re.compile("^lr "))
        expect(row).to_contain_text("0.01 … 0.5")
        expect(page.get_by_text("2 are the same in all jobs")).to_be_visible()
        assert watched.faults == []


# ---- staying in touch


def test_a_log_goes_on_after_the_service_was_killed(
    browser: Browser, service_dir: Path, session: Session, trainings: Trainings
) -> None:
    from playwright.sync_api import expect

    job = trainings.begin("survivor", steps=12, wait_at=6)
    with signed_in(browser, session, job=job) as watched:
        page = watched.page
        page.get_by_role("tab", name="Log").click()
        expect(page.locator(".log-rows")).to_contain_text("step 5 of lr 0.1")
        page.evaluate("window.wasLoadedOnce = true")
        first = ensure_running(service_dir)
        os.kill(first.pid, signal.SIGKILL)
        wait_until_gone(first.pid)
        expect(page.locator(".connection")).to_contain_text("does not answer")
        trainings.go_on.touch()
        ensure_running(service_dir, timeout_s=PATIENCE_S)
        live(page)
        expect(page.locator(".job-title .status")).to_have_text("Succeed")
        expect(page.locator(".log-rows")).to_contain_text("step 11 of lr 0.1")
        texts = page.locator(".log-rows .log-text").all_inner_texts()
        steps = [text for text in texts if text.startswith("step ")]
        assert steps == [f"step {number} of lr 0.1" for number in range(12)]
        assert page.evaluate("window.wasLoadedOnce") is True
        assert [fault for fault in watched.faults if "net::ERR_" not in fault] == []


def test_two_tabs_read_one_stream(browser: Browser, session: Session, trainings: Trainings) -> None:
    from playwright.sync_api import expect

    with signed_in(browser, session) as watched:
        page = watched.page
        streams: set[Request] = set()

        def begun(request: Request) -> None:
            if "/api/v1/events?" in request.url:
                streams.add(request)

        page.context.on("request", begun)
        page.context.on("requestfailed", lambda request: streams.discard(request))
        page.context.on("requestfinished", lambda request: streams.discard(request))
        page.reload()
        live(page)
        other = page.context.new_page()
        other.goto(page.url)
        live(other)
        job = trainings.begin("twice", steps=3)
        show(other, f"run={job.id}&tab=log")
        expect(other.locator(".log-rows")).to_contain_text("step 2 of lr 0.1")
        expect(other.locator(".job-title .status")).to_have_text("Succeed")
        expect(page.locator(f'tr[data-run="{job.id}"]')).to_contain_text("Succeed")
        # One stream ends before the next one begins, when a tab follows something else.
        deadline = time.monotonic() + PATIENCE_S
        while len(streams) != 1:
            assert time.monotonic() < deadline, [one.url for one in streams]
            page.wait_for_timeout(50)
        assert watched.faults == []


def test_points_that_were_written_while_the_page_was_offline_are_shown(
    browser: Browser, session: Session, trainings: Trainings
) -> None:
    from playwright.sync_api import expect

    job = trainings.begin("offline", steps=8, wait_at=4)
    with signed_in(browser, session, job=job) as watched:
        page = watched.page
        show(page, f"view=curves&q=id%3D%22{job.id}%22")
        facts = page.locator(".curve-facts").first
        expect(facts).to_contain_text("all 4 points")
        page.context.set_offline(True)
        trainings.go_on.touch()
        page.wait_for_timeout(3000)
        job.wait(show_logs=False)
        page.context.set_offline(False)
        expect(facts).to_contain_text("all 8 points")
        assert [fault for fault in watched.faults if "net::ERR_" not in fault] == []


# ---- what others have written


_HOSTILE = "<img src=x onerror=document.title=1>"


def test_names_and_log_lines_are_text(browser: Browser, tmp_path: Path) -> None:
    from playwright.sync_api import expect

    run = tmp_path / "runs" / _HOSTILE
    (run / "logs").mkdir(parents=True)
    (run / "logs" / "worker-0.log").write_text(
        "\x1b[31m<script>document.title = 2</script>\x1b[0m \x1b]0;title\x07end\n"
    )
    with EventWriter(run / "tensorboard") as writer:
        writer.hparams({_HOSTILE: _HOSTILE})
        writer.scalars({_HOSTILE: 0.5}, 1)
    with served_folder(tmp_path / "runs") as server, open_page(browser, origin_of(server.new_link())) as watched:
        page = watched.page
        page.goto(server.new_link())
        live(page)
        page.locator("tr[data-run] a", has_text=_HOSTILE).click()
        expect(page.get_by_role("heading", name=_HOSTILE, level=1)).to_be_visible()
        page.get_by_role("tab", name="Log").click()
        line = page.locator(".log-rows .log-text").first
        expect(line).to_contain_text("<script>document.title = 2</script>")
        expect(line).to_contain_text("end")
        assert "\x1b" not in line.inner_text()
        for view in ("curves", "hparams"):
            page.goto(f"{origin_of(server.new_link())}/ui/#view={view}")
            expect(page.locator("main")).to_contain_text("<img")
        assert page.locator("main img, main script").count() == 0
        assert page.title() not in ("1", "2")
        assert watched.faults == []


@contextmanager
def served_folder(folder: Path) -> Iterator[UiServer]:
    """The page of a folder of runs."""
    ready, server = threading.Event(), UiServer(UiSettings(folder))
    thread = threading.Thread(target=server.run, args=(ready.set,))
    thread.start()
    assert ready.wait(PATIENCE_S)
    yield server
    server.stop()
    thread.join(PATIENCE_S)


# ---- for everybody


@pytest.fixture(scope="module")
def some_runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UiServer]:
    """The page of six trainings."""
    folder = tmp_path_factory.mktemp("trials")
    write_trials(folder, 6, epochs=20, log_lines=200)
    with served_folder(folder) as server:
        yield server


_PLACES = {
    "list": ("", "[data-run]"),
    "picked": ("only=trial-000,trial-001", ".picked"),
    "curves": ("view=curves", ".curve-facts"),
    "curve": ("view=curves&tag=loss", ".curve-large table"),
    "hyperparameters": ("view=hparams", ".hparams table"),
    "job": ("run=trial-000", ".job .chart-canvas"),
    "log": ("run=trial-000&tab=log", ".log-rows .log-text"),
}


@pytest.mark.parametrize("is_dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("is_phone", [False, True], ids=["desktop", "phone"])
def test_everybody_can_use_it(
    browser: Browser, session: Session, some_runs: UiServer, is_phone: bool, is_dark: bool, trainings: Trainings
) -> None:
    from playwright.sync_api import expect

    if not AXE.exists():
        pytest.fail(f"{AXE} is missing: run `make page`, which installs it")
    job = trainings.begin("accessible")
    job.wait(show_logs=False)
    looks: dict[str, Any] = {"is_phone": is_phone, "is_dark": is_dark, "is_checked": True}
    found = []
    with open_page(browser, origin_of(some_runs.new_link()), **looks) as watched:
        watched.page.goto(some_runs.new_link())
        live(watched.page)
        for name, (address, sign) in _PLACES.items():
            show(watched.page, address)
            expect(watched.page.locator(sign).first).to_be_visible()
            found += [f"{name}: {fault}" for fault in watched.accessibility_faults() + too_wide(watched.page)]
        assert watched.faults == []
    with signed_in(browser, session, job=job, **looks) as watched:
        for tab in ("overview", "log", "files", "request"):
            watched.page.locator(f"#tab-{tab}").click()
            expect(watched.page.get_by_role("tabpanel")).to_contain_text(re.compile(r"\w"))
            found += [f"job, {tab}: {fault}" for fault in watched.accessibility_faults() + too_wide(watched.page)]
        assert watched.faults == []
    assert found == []


def too_wide(page: Page) -> list[str]:
    """Whether the page must be moved sideways to be seen."""
    width, shown = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
    return [f"it is {width} pixels wide, of which {shown} are seen"] if width > shown else []


def test_it_speaks_chinese(browser: Browser, session: Session, trainings: Trainings) -> None:
    from playwright.sync_api import expect

    job = trainings.begin("chinese")
    job.wait(show_logs=False)
    with signed_in(browser, session, language="zh-CN") as watched:
        page = watched.page
        expect(page.get_by_role("heading", name="作业")).to_have_count(1)
        assert page.locator("html").get_attribute("lang") == "zh-CN"
        for address, sign in (
            ("", "main [data-run]"),
            (f"view=hparams&only={job.id}", "main.hparams"),
            ("view=media", "main.media"),
            (f"run={job.id}", "#tab-overview[aria-selected=true]"),
            (f"run={job.id}&tab=request", "#tab-request[aria-selected=true]"),
        ):
            show(page, address)
            expect(page.locator(sign).first).to_be_visible()
            expect(page.locator("main").first).to_contain_text(re.compile("[一-鿿]"))
            texts = page.locator("h1, h2, [role=tab], nav a, .connection").all_inner_texts()
            # A job has its id as its name until the list of runs has it; and what is not drawn yet, its spaces.
            assert {text.strip() for text in texts if not re.search("[一-鿿]", text)} <= {job.name, job.id}
        show(page, "view=curves")
        expect(page.get_by_role("heading", name="曲线")).to_have_count(1)
        assert watched.faults == []
