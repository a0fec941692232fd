"""Searches in a browser: their trials as one row among the jobs, and the view of one search."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from pai_sdk import Estimator, LogUniform, Session, TrainingJob, Tuner
from pai_sdk._client.tune.template import OBJECTIVE_LABEL, PRUNED_LABEL, STUDY_LABEL, TRIAL_LABEL, TRIALS_LABEL
from pai_sdk.errors import JobFailed
from tests.e2e.test_page import show, signed_in
from tests.support.browser import why_no_browser

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(why_no_browser() is not None, reason=str(why_no_browser())),
]

# Reports the loss that is its hyperparameter, then does what its hyperparameter `end` says.
TRAIN = """
import os, sys, time
from pai_sdk import report

loss = float(os.environ["PAI_HPS_LR"])
report({"loss": loss}, step=1)
if os.environ["PAI_HPS_END"] == "wait":
    time.sleep(600)
sys.exit(os.environ["PAI_HPS_END"] == "fail")
"""


def estimator(session: Session, name: str, lr: float, end: str = "succeed", **labels: str) -> Estimator:
    return Estimator(
        "python:3.11",
        ["python", "-c", TRAIN],
        instance_type="ecs.c6.large",
        hyperparameters={"lr": lr, "end": end},
        base_job_name=name,
        labels=labels,
        session=session,
    )


def submit(session: Session, number: int, lr: float, end: str = "succeed", **labels: str) -> TrainingJob:
    """A trial of the search `by-hand`, as a tuner labels it."""
    labels |= {
        STUDY_LABEL: "by-hand",
        TRIAL_LABEL: str(number),
        OBJECTIVE_LABEL: "minimize loss",
        TRIALS_LABEL: "20",
    }
    job = estimator(session, f"digits-{number}", lr, end, **labels).fit(wait=False, show_logs=False)
    if end != "wait":
        with suppress(JobFailed):
            job.wait(show_logs=False)
    return job


def group(page: Page, name: str) -> Locator:
    return page.locator("[data-run^='study:']", has=page.get_by_role("link", name=name, exact=True))


def test_a_search_is_one_row_and_has_a_view(browser: Browser, session: Session, tmp_path: Path) -> None:
    tuner = Tuner(
        estimator(session, "first", 0.0),
        {"lr": LogUniform(1e-3, 1)},
        objective="loss",
        trials=4,
        parallel=4,
        sampler="random",
        seed=1,
        study=tmp_path / "first",
    )
    best = tuner.run(show=False).best
    assert best is not None
    with signed_in(browser, session, is_checked=True) as watched:
        page = watched.page
        row = group(page, "first")
        expect(row).to_contain_text("4 of 4 done")
        expect(page.get_by_role("link", name=re.compile("first-"))).to_have_count(0)
        loss = row.locator("td.number").filter(has_text=re.compile(r"^\d\.\d+$"))
        expect(loss.first).to_contain_text(f"{best.value:.3g}"[:5])
        assert watched.accessibility_faults() == []

        row.focus()
        page.keyboard.press("ArrowRight")
        expect(page).to_have_url(re.compile("open=study:"))
        expect(page.locator("tr.within")).to_have_count(4)
        page.reload()
        expect(page.locator("tr.within")).to_have_count(4)
        row.get_by_role("button", expanded=True).click()
        expect(page.locator("tr.within")).to_have_count(0)

        row.get_by_role("checkbox").click()
        expect(page.get_by_role("button", name="4 picked")).to_be_visible()
        page.get_by_role("button", name="4 picked").click()
        page.get_by_label("Fold").click()
        expect(page).to_have_url(re.compile("fold=-"))
        expect(page.get_by_role("link", name=re.compile("first-"))).to_have_count(4)
        page.get_by_label("Fold").click()

        row.focus()
        page.keyboard.press("Enter")
        expect(page.locator("h1")).to_have_text("first succeeded")
        expect(page.locator("main")).to_contain_text("minimize loss · 4 of 4 done")
        expect(page.locator("main")).to_contain_text(f"trial {best.number} lr ")
        expect(page.locator(".scatter a")).to_have_count(4)
        expect(page.locator(".parallel canvas")).to_be_visible()
        trials = page.get_by_role("region", name="Trials")
        expect(trials.locator("tbody tr")).to_have_count(4)
        expect(trials.locator("tr.best")).to_contain_text(f"first-{best.number}")
        assert watched.accessibility_faults() == []
        trials.locator("tr.best a").click()
        page.get_by_role("link", name=f"trial {best.number} of a search").click()
        expect(page.locator("h1")).to_have_text("first succeeded")
        assert watched.faults == []


def test_a_running_search_marks_pruned_trials_and_its_jobs_are_stopped(browser: Browser, session: Session) -> None:
    submit(session, 0, 0.5)
    submit(session, 1, 0.2)
    submit(session, 2, 0.1, **{PRUNED_LABEL: "7"})
    submit(session, 3, 0.05, "fail")
    running = submit(session, 4, 0.01, "wait")
    for options in ({}, {"is_phone": True, "is_dark": True}):
        with signed_in(browser, session, is_checked=True, **options) as watched:
            row = group(watched.page, "digits")
            expect(row).to_contain_text("2 of 20 done, 1 running, 1 failed, 1 pruned")
            row.get_by_role("link", name="digits").click()
            expect(watched.page.locator("h1")).to_have_text("digits running")
            assert watched.accessibility_faults() == []
            assert watched.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
            assert watched.faults == []
    with signed_in(browser, session, "view=study&study=by-hand") as watched:
        page = watched.page
        # Neither the pruned trial nor the ones that failed or run are the best.
        expect(page.locator("main")).to_contain_text("Best: 0.2 · trial 1")
        trials = page.get_by_role("region", name="Trials")
        expect(trials.locator("tr", has_text="digits-2")).to_contain_text("pruned at step 7")
        expect(trials.locator("tr.best")).to_contain_text("digits-1")
        page.get_by_role("button", name="Stop running trials…").click()
        expect(page.locator(".notice")).to_contain_text("submits the next trials")
        page.get_by_role("button", name="Stop 1 job").click()
        expect(page.locator("h1")).to_have_text("digits succeeded")
        expect(trials.locator("tr", has_text="digits-4")).to_contain_text("Terminated")
        assert running.refresh().status == "Terminated"
        show(page, "view=study&study=none")
        expect(page.locator("main")).to_contain_text("No trial of this search")
        assert watched.faults == []
