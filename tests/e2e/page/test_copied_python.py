"""The lines that "Copy as Python" copies run as they are: of a folder, of the embedded service, with a profile."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from pai_sdk import Estimator, Session, TrainingJob
from pai_sdk._data.run.events.writer import EventWriter
from pai_sdk._service.embedded import ensure_running
from pai_sdk._service.server import _session_of
from pai_sdk._service.settings import ServiceSettings
from pai_sdk._service.web.ui_app import UiServer, UiSettings
from tests.support.browser import open_page, why_no_browser
from tests.support.waiting import PATIENCE_S

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(why_no_browser() is not None, reason=str(why_no_browser())),
]

_REPORT = "python -c \"from pai_sdk import report; [report({'loss': 1 / n}, step=n) for n in range(1, 9)]\""


@pytest.fixture
def job(session: Session) -> TrainingJob:
    estimator = Estimator(
        "python:3.11", _REPORT, instance_type="ecs.c6.large", base_job_name="copied", session=session
    )
    found = estimator.fit(wait=False, show_logs=False)
    found.wait(show_logs=False)
    return found


def _copied(page: Page, state: str = "") -> str:
    """What the chart of `loss` copies."""
    page.evaluate("navigator.clipboard.writeText = async (text) => { window.copied = text }")
    page.evaluate("state => { location.hash = `view=curves&tag=loss${state}` }", state)
    expect(page.locator(".chart-box[data-curves='1']")).to_be_visible()
    page.get_by_role("button", name="Copy as Python").click()
    expect(page.get_by_role("status").get_by_text("Copied")).to_be_visible()
    found: str = page.evaluate("window.copied")
    return found


def _run(lines: str, folder: Path, **environ: str) -> str:
    """What a notebook in another folder would show of the last line."""
    code = f"{lines.rstrip().removesuffix('picture')}print(repr(picture), len(picture.html))\n"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3]), **environ},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S * 2,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_of_a_folder_that_was_given_by_a_relative_path(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with EventWriter(tmp_path / "runs" / "one") as writer:
        writer.scalars({"loss": 0.5}, 1)
    monkeypatch.chdir(tmp_path)
    server = UiServer(UiSettings(Path("runs")))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        with open_page(browser, server.url) as watched:
            watched.page.goto(server.new_link())
            lines = _copied(watched.page)
    finally:
        server.stop()
        thread.join()
    assert f'RunManager("{tmp_path}/runs")' in lines
    assert "<Plot 'loss': 1 curve, 1 of 1 points" in _run(lines, Path("/"))


def test_of_the_embedded_service(browser: Browser, session: Session, job: TrainingJob, tmp_path: Path) -> None:
    link = session.new_page_link()
    with open_page(browser, link.partition("/ui/")[0]) as watched:
        watched.page.goto(link)
        lines = _copied(watched.page, f"&only={job.id}")
    assert "with Session.embedded(" in lines
    assert "<Plot 'loss': 1 curve, 8 of 8 points" in _run(lines, tmp_path, HOME=str(tmp_path))


def test_of_a_service_with_a_profile(
    browser: Browser, service_dir: Path, job: TrainingJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = ensure_running(service_dir)
    names = ("region_id", "workspace_id", "endpoint", "oss_endpoint")
    profile = {name: getattr(info, name) for name in names}
    profile |= {"aiworkspace_endpoint": info.endpoint, "oss_bucket_name": info.bucket}
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"profiles": {"lab": profile}}))
    config.chmod(0o600)
    monkeypatch.setenv("PAI_CONFIG_PATH", str(config))
    monkeypatch.setenv("ALIBABA_CLOUD_ACCESS_KEY_ID", info.access_key_id)
    monkeypatch.setenv("ALIBABA_CLOUD_ACCESS_KEY_SECRET", info.access_key_secret)
    link = Session(profile="lab").new_page_link()
    with open_page(browser, link.partition("/ui/")[0]) as watched:
        watched.page.goto(link)
        lines = _copied(watched.page, f"&only={job.id}")
        assert "profile" not in watched.page.url
    assert 'with Session(profile="lab").watch() as manager:' in lines
    assert "<Plot 'loss': 1 curve, 8 of 8 points" in _run(lines, tmp_path, HOME=str(tmp_path))
    # Without a profile, the address of the service is in the lines.
    opened = _session_of(ServiceSettings(info.data_dir, embedded=False), info, False)
    lines = lines.replace('Session(profile="lab")', opened.replace("{url}", info.endpoint))
    assert "8 of 8 points" in _run(lines, tmp_path, HOME=str(tmp_path), PAI_CONFIG_PATH="/nowhere")
