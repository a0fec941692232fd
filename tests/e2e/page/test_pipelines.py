"""Runs of pipelines in a browser: the list, the picture of the steps while they run, and after a failure."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from pai_sdk import Pipeline, Processor, Session
from pai_sdk._data.pipelines.folder_runs import FolderRuns
from pai_sdk._service.web.ui_app import UiServer, UiSettings
from pai_sdk.errors import PipelineFailed
from tests.e2e.test_page import signed_in
from tests.support.browser import WatchedPage, open_page, why_no_browser
from tests.support.waiting import PATIENCE_S

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(why_no_browser() is not None, reason=str(why_no_browser())),
]


@pytest.fixture
def watched(browser: Browser, tmp_path: Path) -> Iterator[WatchedPage]:
    server = UiServer(UiSettings(tmp_path, pipelines=FolderRuns(tmp_path)))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        with open_page(browser, server.url, is_checked=True) as opened:
            opened.page.goto(f"{server.new_link()}&view=pipelines")
            yield opened
    finally:
        server.stop()
        thread.join()


def test_a_run_is_watched_from_its_beginning_to_its_failure(watched: WatchedPage, tmp_path: Path) -> None:
    page = watched.page
    expect(page.get_by_text("no runs of pipelines")).to_be_visible()
    go_on = threading.Event()
    pipeline = Pipeline("digits", store=tmp_path / "digits")

    def train() -> int:
        assert go_on.wait(PATIENCE_S)
        raise RuntimeError("<i>out of memory</i>")

    rows = pipeline.parameter("rows", int, 7)
    split = pipeline.step(lambda n: n, name="split", arguments={"n": rows})
    step = pipeline.step(train, after=split)
    pipeline.step(lambda: None, name="publish", after=step)

    def run() -> None:
        with pytest.raises(PipelineFailed):
            pipeline.run(show=False)

    worker = threading.Thread(target=run)
    worker.start()
    try:
        expect(page.get_by_role("rowheader", name="digits")).to_be_visible(timeout=PATIENCE_S * 1000)
        page.locator("td a").click()
        expect(page.locator("h1")).to_have_text("digits running")
        picture = page.get_by_role("region", name="Picture of the steps")
        expect(picture.locator("text", has_text="running")).to_have_count(1)
        assert watched.accessibility_faults() == []
    finally:
        go_on.set()
        worker.join(PATIENCE_S)
    expect(page.locator("h1")).to_have_text("digits failed")
    expect(page.get_by_role("alert")).to_contain_text("train: RuntimeError: <i>out of memory</i>")
    expect(picture.locator("text", has_text="blocked")).to_have_count(1)
    expect(page.locator("tr", has_text="publish")).to_contain_text("train has failed")
    expect(page.locator("tr", has_text="rows")).to_contain_text("7")
    expect(page.locator("pre")).to_contain_text("pai-sdk pipeline resume FILE.py --run ")
    page.get_by_role("link", name="All runs").click()
    expect(page.locator("tr", has_text="digits")).to_contain_text("failed")
    assert watched.accessibility_faults() == []
    assert watched.faults == []


def _pipeline(session: Session, **store: Any) -> Pipeline:
    pipeline = Pipeline("digits", session=session, **store)
    job = {"instance_type": "ecs.c6.large", "session": session}
    split = pipeline.step(
        Processor("python:3.11", 'echo 1 >"$PAI_OUTPUT_CLEAN/rows"', **job), name="split", outputs=["clean"]
    )
    pipeline.step(Processor("python:3.11", "true", **job), name="train", inputs={"data": split.outputs.clean})
    pipeline.step(lambda rows: None, name="publish", arguments={"rows": split.outputs.clean})
    return pipeline


def test_a_service_shows_the_runs_of_its_jobs_with_the_reasons(browser: Browser, session: Session) -> None:
    store = f"oss://{session.oss_bucket.bucket_name}/pipelines/"
    first = _pipeline(session, store=store).run(show=False)
    with signed_in(browser, session, is_checked=True) as watched:
        page = watched.page
        row = page.locator("[data-run^='pipeline:']")
        expect(row).to_contain_text("2 of 2 done")
        row.get_by_role("button", expanded=False).click()
        expect(page.locator("tr.within .name a")).to_have_text(["train", "split"])
        row.get_by_role("link", name="digits").click()
        expect(page.locator("h1")).to_have_text("digits succeeded")
        picture = page.get_by_role("region", name="Picture of the steps")
        expect(picture.locator("text", has_text="succeeded")).to_have_count(3)
        expect(page.locator("tr", has_text="publish")).to_contain_text("not executed before")
        assert watched.accessibility_faults() == []
        page.get_by_role("link", name=first["train"].job_id).click()
        expect(page.locator("h1")).to_contain_text("digits-train")
        page.get_by_role("link", name="step train of a pipeline").click()
        expect(page.locator("h1")).to_have_text("digits succeeded")
        page.get_by_role("link", name="All runs").click()
        expect(page.get_by_role("table").locator("tbody tr")).to_have_count(1)
        assert watched.faults == []


def test_a_run_whose_folder_the_service_cannot_read_has_its_jobs(
    browser: Browser, session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Session, "is_embedded", False)  # otherwise the service reads local folders, too
    run = _pipeline(session, store=tmp_path / "store").run(show=False)
    monkeypatch.undo()
    with signed_in(browser, session, f"view=pipelines&pipeline={run.id}", is_phone=True) as watched:
        page = watched.page
        expect(page.locator(".notice")).to_contain_text("the jobs of the run only")
        expect(page.get_by_role("region", name="Steps").locator("tbody tr")).to_have_count(2)
        expect(page.get_by_role("region", name="Picture of the steps")).to_have_count(0)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert watched.faults == []
