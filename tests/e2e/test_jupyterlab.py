"""JupyterLab in a real browser: presses reach a kernel that waits for a job, no text is taken for a formula."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
import pytest
from playwright.sync_api import Locator, Page, expect, sync_playwright

from tests.support.browser import chromium, why_no_browser
from tests.support.service_process import end_service
from tests.support.waiting import PATIENCE_S, until

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(why_no_browser() is not None, reason=str(why_no_browser())),
]

# The question about news would cover the page.
SETTINGS = {"@jupyterlab/apputils-extension": {"notification": {"fetchNews": "false", "checkForUpdates": False}}}

SETUP = """
from pai_sdk import Estimator, Session, gather

session = Session.embedded("service")
program = '''
from time import sleep
from pai_sdk import report
for step in range(1, 41):
    print(f"step {step};", flush=True)
    report({"loss": 1 / step}, step=step)
sleep(600)
'''
def estimator(command, **more):
    return Estimator("python:3.11", command, instance_type="ecs.c6.large", session=session, **more)
"""
FIT = "estimator('python -c \"$PROGRAM\"', environments={'PROGRAM': program}).fit()"
PLAN = "estimator('echo $FIRST and $SECOND; echo $THIRD').plan()"
GATHER = """
estimators = [estimator("true", hyperparameters={"note": note}) for note in ("$a$", "$b$")]
jobs = [one.fit(wait=False, show_logs=False) for one in estimators]
gather(jobs, show=False)
"""


@dataclass
class Lab:
    """A JupyterLab that runs, with a notebook open in a browser."""

    page: Page

    def run(self, number: int) -> Locator:
        """Run a cell when the kernel is idle; returns the place below the cell."""
        expect(self.page.locator(".jp-Notebook-ExecutionIndicator")).to_have_attribute("data-status", "idle")
        cell = self.page.locator(".jp-CodeCell").nth(number)

        def runs() -> bool:  # a page that is still being loaded loses a key
            cell.locator(".cm-content").click()
            self.page.keyboard.press("Shift+Enter")
            self.page.wait_for_timeout(2000)
            return cell.locator(".jp-InputPrompt").inner_text() != "[ ]:"

        until(runs, f"the start of cell {number}")
        return cell.locator(".jp-Cell-outputArea")


def url_of(runtime: Path) -> str | None:
    """The address that a server has written down."""
    for path in runtime.glob("jpserver-*.json"):
        try:
            found: dict[str, Any] = json.loads(path.read_text())
        except ValueError:  # half written
            continue
        return f"{found['url']}lab/tree/test.ipynb?token={found['token']}"
    return None


@pytest.fixture
def lab(clean_home: Path, tmp_path: Path) -> Iterator[Lab]:
    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(source.strip()) for source in (SETUP, FIT, PLAN, GATHER)],
        metadata={"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}},
    )
    nbformat.write(notebook, tmp_path / "test.ipynb")
    for plugin, settings in SETTINGS.items():
        for name, values in settings.items():
            path = tmp_path / "settings" / plugin / f"{name}.jupyterlab-settings"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(values))
    folders = {
        "JUPYTERLAB_SETTINGS_DIR": "settings",
        "JUPYTERLAB_WORKSPACES_DIR": "workspaces",
        "JUPYTER_CONFIG_DIR": "config",
        "JUPYTER_RUNTIME_DIR": "runtime",
        "IPYTHONDIR": "ipython",
    }
    environment = {**os.environ, **{name: str(tmp_path / folder) for name, folder in folders.items()}}
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", f"--notebook-dir={tmp_path}"]
    with (tmp_path / "lab.log").open("wb") as log:
        server = subprocess.Popen(command, env=environment, stdout=log, stderr=log, cwd=tmp_path)
    try:
        until(lambda: url_of(tmp_path / "runtime") or server.poll() is not None, "JupyterLab")
        url = url_of(tmp_path / "runtime")
        assert url, (tmp_path / "lab.log").read_text()
        with sync_playwright() as driver:
            browser = driver.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
            page = browser.new_page(viewport={"width": 1200, "height": 1000})
            page.set_default_timeout(PATIENCE_S * 1000)
            page.goto(url)
            page.locator(".jp-Notebook .jp-CodeCell").nth(3).wait_for()
            yield Lab(page)
            browser.close()
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(PATIENCE_S)
        if (tmp_path / "service").exists():
            end_service(tmp_path / "service")


def test_presses_reach_a_kernel_that_waits_and_texts_stay_as_they_are(lab: Lab) -> None:
    expect.set_options(timeout=PATIENCE_S * 1000)
    lab.run(0)

    below = lab.run(1)
    expect(below).to_contain_text("step 40;")
    expect(below).not_to_contain_text("step 20;")
    expect(below.get_by_role("img", name="from 1 to 0.025")).to_be_visible()
    below.get_by_role("button", name="Log").click()
    expect(below).to_contain_text("step 20;")  # the cell still waits
    expect(below).to_contain_text("Running")
    below.get_by_role("button", name="Stop").click()
    expect(below).to_contain_text("Terminated")
    expect(below).to_contain_text("JobStopped")
    expect(below.get_by_role("button", name="Stop")).to_be_hidden()

    below = lab.run(2)
    expect(below).to_contain_text("not submitted yet")
    expect(below).to_contain_text("echo $FIRST and $SECOND; echo $THIRD")

    below = lab.run(3)
    expect(below.locator("table tr")).to_have_count(3)
    expect(below.get_by_role("cell", name="Succeed")).to_have_count(2)
    expect(below.get_by_role("cell", name="$a$")).to_be_visible()

    assert lab.page.locator("mjx-container").count() == 0, "a text was taken for a formula"
