"""The media of many runs in a real browser: of those that have some, wherever they stand in the list."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pai_sdk._data.run.events.writer import EventWriter
from tests.e2e.test_page import served_folder, show, signed_in
from tests.service.runs.test_run_media import old_image, png, write_events
from tests.support.browser import why_no_browser

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = [
    pytest.mark.skipif(why_no_browser() is not None, reason=str(why_no_browser())),
    pytest.mark.timeout(300),
]


def test_media_of_the_oldest_of_many_runs(browser: Browser, tmp_path: Path) -> None:
    from playwright.sync_api import expect

    for number in range(30):
        run = tmp_path / "runs" / f"run-{number:02}"
        with EventWriter(run) as writer:
            writer.scalars({"loss": 1.0}, 1)
            if number == 1:
                writer.text("notes", "only here", 1)
        if number == 0:
            write_events(run, (1, old_image("samples", png(3, 2, 128))))
        for file in run.iterdir():
            os.utime(file, (1.7e9 + number, 1.7e9 + number))
    with served_folder(tmp_path / "runs") as server, signed_in(browser, server, "view=media") as watched:
        page = watched.page
        cards = page.locator(".media-card")
        expect(cards).to_have_count(1)
        expect(cards).to_contain_text("run-00")
        expect(cards.locator("img, canvas").first).to_be_visible()
        expect(page.locator("main")).to_contain_text("29 of these runs have nothing under this name.")
        page.get_by_role("combobox", name="What").select_option("text:notes")
        expect(cards).to_contain_text(re.compile("run-01.*only here"))
        expect(cards).to_have_count(1)
        assert page.locator(".media-card .bad").count() == 0
        show(page, "view=media&q=name=run-07")
        expect(page.locator("main")).to_contain_text("These runs have no images, histograms or texts.")
        assert watched.faults == []
