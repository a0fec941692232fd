"""The page of one job in a browser: what it runs, why it failed, what happened, its request, re-runs."""

from __future__ import annotations

import math
import re
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from pai_sdk import Estimator, Session, TrainingJob
from pai_sdk._data.run.events.writer import EventWriter
from pai_sdk._service.web.ui_app import UiServer, UiSettings
from tests.e2e.test_page import show, signed_in
from tests.support.browser import WatchedPage, open_page, why_no_browser

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(why_no_browser() is not None, reason=str(why_no_browser())),
]

_IMAGE = "registry.example/team/train:1"
_PROGRAMS = {
    "train.py": "from pai_sdk import report\nreport(loss=0.5)\nprint('trained')\n",
    "memory.py": "raise MemoryError\n",
    "module.py": "print('before')\nimport cv2_of_nobody\n",
    "input.py": "open('data/train.csv')\n",
    "nan.py": (
        "import os, time\nfrom pai_sdk import report\nstep = 0\n"
        "while not os.path.exists(os.environ['GO_ON']):\n"
        "    report(loss=float('nan'), step=step)\n    step += 1\n    time.sleep(0.1)\n"
    ),
    "chatty.py": "for n in range(30):\n    print(n)\nraise ValueError('bad value')\n",
}

_SLOW_JOB = """const sent = window.fetch;
window.fetch = async (address, options) => {
  if (String(address).endsWith('/job')) await new Promise(done => setTimeout(done, 1500));
  return sent(address, options);
};
null"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    for name, text in _PROGRAMS.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def submit(session: Session, source: Path, command: str, *, name: str = "fit", lr: float = 0.1) -> TrainingJob:
    estimator = Estimator(
        _IMAGE,
        command,
        source,
        hyperparameters={"lr": lr, "optimizer": "adam"},
        instance_type="ecs.c6.large",
        instance_count=1,
        labels={"git-repository": "github.com/pai/digits", "git-commit": "1a2b3c4d5e6f7a8b", "team": "nlp"},
        environments={"GO_ON": str(source / "go on")},
        base_job_name=name,
        session=session,
    )
    job = estimator.fit(wait=False, show_logs=False)
    return job


def ended(session: Session, source: Path, command: str, **options: Any) -> TrainingJob:
    job = submit(session, source, command, **options)
    while not job.status.is_terminal:
        time.sleep(0.05)
        job = session.get_job(job.id)
    return job


def _fact(page: Page, name: str) -> Locator:
    return (
        page.locator(".summary > div").filter(has=page.locator("dt").get_by_text(name, exact=True)).locator("dd")
    )


def test_the_overview_says_what_a_job_runs(browser: Browser, session: Session, source: Path) -> None:
    job = ended(session, source, "python train.py --epochs 3")
    with signed_in(browser, session, job=job) as watched:
        page = watched.page
        expect(_fact(page, "Command").locator("code")).to_have_text("python train.py --epochs 3")
        expect(_fact(page, "Image")).to_have_text(_IMAGE)
        expect(_fact(page, "Instances")).to_contain_text("1 × ecs.c6.large")
        link = _fact(page, "Code").get_by_role("link")
        assert link.get_attribute("href") == "https://github.com/pai/digits/commit/1a2b3c4d5e6f7a8b"
        expect(page.locator(".hparams div").filter(has_text="lr")).to_have_text("lr0.1")
        started = re.compile(r"^Started \(UTC([+−][\d:]+)?\)[\d-]{10} \d\d:\d\d:\d\d$")
        expect(page.locator(".summary > div", has_text="Started")).to_have_text(started)
        _fact(page, "Outputs").locator("summary").click()
        expect(_fact(page, "Outputs")).to_contain_text("oss://")
        assert watched.faults == []


@pytest.mark.parametrize(
    ("command", "cause", "advice"),
    [
        ("python memory.py", "MemoryError", "memory of the instance"),
        ("python module.py", "ModuleNotFoundError: No module named 'cv2_of_nobody'", "requirements="),
        ("python input.py", "FileNotFoundError: [Errno 2]", "fit({'train': 'data/'})"),
        ("trian", "exit code 127", "no program trian"),
        ("touch run.sh; ./run.sh", "exit code 126", "by its interpreter"),
        ("echo 'torch.OutOfMemoryError: CUDA out of memory. Tried'; exit 1", "exit code 1", "memory of the GPU"),
        ("echo 'RuntimeError: NCCL error: timed out'; exit 1", "exit code 1", "init_process_group"),
        ("echo 'OSError: [Errno 28] No space left on device'; exit 1", "exit code 1", "disk is full"),
    ],
)
def test_a_failure_says_what_to_do(
    browser: Browser, session: Session, source: Path, command: str, cause: str, advice: str
) -> None:
    job = ended(session, source, command)
    with signed_in(browser, session, job=job) as watched:
        report = watched.page.locator(".failure")
        expect(report.get_by_role("heading")).to_contain_text(cause)
        expect(report.locator(".advice")).to_contain_text(advice)
        expect(report.get_by_role("heading")).not_to_contain_text(job.id)
        assert watched.faults == []


def test_a_traceback_is_shown_once(browser: Browser, session: Session, source: Path) -> None:
    job = ended(session, source, "python chatty.py")
    with signed_in(browser, session, job=job) as watched:
        page = watched.page
        report = page.locator(".failure")
        expect(report.get_by_role("region", name="Traceback")).to_contain_text("ValueError: bad value")
        assert report.inner_text().count("Traceback (most recent call last)") == 1
        report.get_by_text("Last lines of the log").click()
        lines = report.get_by_role("region", name="Last lines of the log")
        expect(lines).to_contain_text("29")
        expect(lines).not_to_contain_text("ValueError")


def test_events_are_newest_last_with_the_time_of_day(browser: Browser, session: Session, source: Path) -> None:
    job = ended(session, source, "python train.py")
    with signed_in(browser, session, job=job) as watched:
        page = watched.page
        rows = page.locator(".happened > ol > li[data-kind]")
        expect(rows.last).to_contain_text("Succeed")
        expect(rows.last.locator(".time a")).to_have_text(re.compile(r"^\d\d:\d\d:\d\d$"))
        assert rows.last.locator(".time a").get_attribute("title") is not None
        expect(rows.first).to_contain_text("Creating")
        notice = page.locator(".happened details.more").first
        expect(notice.locator("summary")).to_have_text("Jobs run as processes, not in containers:")
        expect(notice).not_to_have_attribute("open", "")
        notice.locator("summary").click()
        expect(notice).to_contain_text(_IMAGE)
        box = page.locator(".happened > ol")
        assert box.evaluate("one => one.scrollHeight - one.scrollTop - one.clientHeight") < 200


def test_what_a_rule_has_found_stays_in_the_head(browser: Browser, session: Session, source: Path) -> None:
    job = submit(session, source, "python nan.py")
    with signed_in(browser, session, job=job) as watched:
        finding = watched.page.locator(".job-head").get_by_role("status")
        expect(finding).to_contain_text("NonFiniteMetric")
        expect(finding).not_to_contain_text(job.id)
        (source / "go on").touch()
        expect(watched.page.locator(".job-title .status")).to_have_text("Succeed")
        expect(finding).to_have_count(0)
        assert watched.faults == []


def test_advice_is_chinese_where_the_page_is(browser: Browser, session: Session, source: Path) -> None:
    job = ended(session, source, "python memory.py")
    with signed_in(browser, session, job=job, language="zh-CN") as watched:
        expect(watched.page.locator(".failure .advice")).to_contain_text("实例内存不足")


def test_many_events_start_at_their_end_and_earlier_ones_are_reached(browser: Browser, tmp_path: Path) -> None:
    with EventWriter(tmp_path / "run") as writer:
        for number in range(90):
            name = "metric-" + "".join("abcdefghij"[int(digit)] for digit in str(number))
            writer.scalars({name: math.nan}, 1, wall_time=1.7e9 + number)
    server = UiServer(UiSettings(tmp_path))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        with open_page(browser, server.url) as watched:
            page = watched.page
            page.goto(f"{server.new_link()}&run=run")
            rows = page.locator(".happened li[data-kind]")
            expect(rows).to_have_count(50)
            expect(rows.last).to_be_in_viewport()
            page.get_by_role("button", name="40 earlier").click()
            expect(rows).to_have_count(90)
            expect(page.get_by_role("button", name="earlier")).to_have_count(0)
            assert watched.faults == []
    finally:
        server.stop()
        thread.join()


def test_empty_tabs_are_not_offered(browser: Browser, session: Session, source: Path) -> None:
    silent = ended(session, source, "true")
    trained = ended(session, source, "python train.py", name="trained")
    with signed_in(browser, session, job=silent) as watched:
        page = watched.page
        expect(_fact(page, "Image")).to_be_visible()
        expect(page.get_by_role("tab")).to_have_text(["Overview", "Request"])
        show(page, f"run={silent.id}&tab=curves")
        expect(page.get_by_role("tab", name="Curves")).to_have_attribute("aria-selected", "true")
        expect(page.get_by_role("tabpanel")).to_contain_text("no metrics")
        show(page, f"run={trained.id}")
        for name in ("Log", "Curves"):
            expect(page.get_by_role("tab", name=name)).to_be_visible()
        assert watched.faults == []


def test_a_difference_has_hyperparameters_first(browser: Browser, session: Session, source: Path) -> None:
    one = ended(session, source, "python train.py", lr=0.1)
    other = ended(session, source, "python train.py --more", lr=0.02)
    with signed_in(browser, session, f"run={one.id}&tab=request", job=one) as watched:
        page = watched.page
        page.get_by_label("Compare with").fill(other.name or "")
        page.get_by_label("Compare with").press("Enter")
        expect(page).to_have_url(re.compile(f"with={other.id}"))
        heads = page.locator("table.diff").first.locator("tbody th")
        expect(heads.first).to_contain_text("lr")
        assert not any("TrainingJobName" in text for text in heads.all_inner_texts())
        row = page.get_by_role("row", name=re.compile("AlgorithmSpec.Command"))
        expect(row).to_contain_text("python train.py --more")
        expect(row).not_to_contain_text("PYTHONPATH")
        page.get_by_text("more that always differ").click()
        expect(page.get_by_role("row", name=re.compile("TrainingJobName"))).to_be_visible()
        assert watched.faults == []


def test_the_name_of_a_rerun_follows_its_values(browser: Browser, session: Session, source: Path) -> None:
    job = ended(session, source, "python train.py", lr=0.1)
    with signed_in(browser, session, job=job) as watched:
        page = watched.page
        page.get_by_role("button", name="Re-run …").click()
        name = page.get_by_role("dialog").get_by_label(re.compile("^Name")).first
        expect(name).to_have_value("fit-lr0.1")
        page.get_by_label("Value of lr").fill("0.01")
        expect(name).to_have_value("fit-lr0.01")
        page.get_by_role("button", name="Run with 1 change").click()
        expect(page.get_by_role("heading", level=1)).to_contain_text("fit-lr0.01-")
        page.get_by_role("button", name="Re-run …").click()
        name.fill("mine")
        page.get_by_label("Value of lr").fill("0.5")
        expect(name).to_have_value("mine")
        assert watched.faults == []


def test_an_answer_comes_though_changes_are_faster(browser: Browser, session: Session, source: Path) -> None:
    job = submit(session, source, "python nan.py")
    with signed_in(browser, session) as watched:
        page = watched.page
        expect(page.locator("tbody").get_by_text("Running")).to_be_visible()
        page.evaluate(_SLOW_JOB)
        show(page, f"run={job.id}")
        expect(page.get_by_role("tab", name="Overview")).to_be_visible()
        (source / "go on").touch()
        expect(page.locator(".job-title .status")).to_have_text("Succeed")
        assert watched.faults == []


def test_a_phone_has_a_menu_of_actions(browser: Browser, session: Session, source: Path) -> None:
    job = ended(session, source, "python train.py")
    with signed_in(browser, session, job=job, is_phone=True) as watched:
        page = watched.page
        delete = page.get_by_role("button", name="Delete")
        menu = page.locator(".job-title summary")
        expect(page.get_by_role("button", name="Re-run …")).to_be_visible()
        expect(delete).to_be_hidden()
        menu.click()
        delete.click()
        page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
        expect(menu).to_be_focused()
        expect(delete).to_be_hidden()
        expect(page.locator(".job-facts")).to_be_visible()
        menu.click()
        page.get_by_role("link", name="Compare request").click()
        expect(page.get_by_role("tab", name="Request")).to_have_attribute("aria-selected", "true")
        expect(page.locator(".job-facts")).to_be_hidden()
        assert watched.faults == []


@pytest.mark.parametrize("options", [{}, {"is_phone": True, "is_dark": True}], ids=["desktop", "phone"])
def test_everybody_can_use_it(browser: Browser, session: Session, source: Path, options: dict[str, Any]) -> None:
    job = ended(session, source, "python chatty.py")
    other = ended(session, source, "python train.py", lr=0.2)
    with signed_in(browser, session, job=job, is_checked=True, **options) as watched:
        _check(watched, ".failure")
        show(watched.page, f"run={job.id}&tab=request&with={other.id}")
        _check(watched, "table.diff")


def _check(watched: WatchedPage, awaited: str) -> None:
    page = watched.page
    expect(page.locator(awaited).first).to_be_visible()
    assert watched.accessibility_faults() == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
