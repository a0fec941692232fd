"""The files of a run in a browser: sizes, order, previews, archives."""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from pai_sdk._data.run.events.writer import EventWriter
from pai_sdk._service.web.ui_app import UiServer
from tests.e2e.test_page import served_folder, show, signed_in, too_wide
from tests.service.runs.test_run_media import png
from tests.support.browser import why_no_browser

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(why_no_browser() is not None, reason=str(why_no_browser())),
]

SVG = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"><script>parent.planted = 1</script><rect/></svg>'
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UiServer]:
    run = tmp_path_factory.mktemp("runs") / "run"
    (run / "out" / "deep").mkdir(parents=True)
    out = run / "out"
    (out / "deep" / "weights.pt").write_bytes(b"\0" * 5000)
    (out / "table.csv").write_text('step,"loss, smoothed"\n1,0.5\n2,"0,25"\n')
    (out / "config.json").write_text(json.dumps({"lr": 0.1, "layers": [1, 2]}))
    (out / "picture.png").write_bytes(png(30, 20, 128))
    (out / "drawing.svg").write_text(SVG)
    (out / "long.txt").write_text("".join(f"line {n} of a long text\n" for n in range(60_000)))
    with EventWriter(run / "tensorboard") as writer:
        writer.scalars({"loss": 0.5}, 1)
    with served_folder(run.parent) as opened:
        yield opened


def names(page: Page) -> list[str]:
    return [text.removeprefix("▸ ") for text in page.locator(".files td.name").all_inner_texts()]


def test_folders_have_sizes_and_the_order_is_chosen(browser: Browser, server: UiServer) -> None:
    with signed_in(browser, server, "run=run&tab=files&path=out") as watched:
        page = watched.page
        expect(page.locator("tr", has_text="deep/")).to_contain_text("5.0 kB")
        assert names(page)[:3] == ["deep/", "config.json", "drawing.svg"]
        page.get_by_role("button", name="Size").click()
        expect(page.locator("th[aria-sort=descending]")).to_contain_text("Size")
        assert names(page)[:2] == ["deep/", "long.txt"]
        page.get_by_role("button", name="Size").click()
        expect(page.locator("th[aria-sort=ascending]")).to_contain_text("Size")
        assert names(page)[-1] == "long.txt"
        page.get_by_role("link", name="deep/").click()
        expect(page.locator("nav.breadcrumb [aria-current=page]")).to_have_text("deep")
        page.get_by_role("link", name="out", exact=True).click()
        expect(page.get_by_role("link", name="table.csv")).to_be_visible()
        assert watched.faults == []


def test_files_are_looked_at(browser: Browser, server: UiServer) -> None:
    with signed_in(browser, server, "run=run&tab=files&path=out") as watched:
        page = watched.page
        page.get_by_role("link", name="table.csv").click()
        expect(page.locator(".preview th")).to_have_text(["step", "loss, smoothed"])
        expect(page.locator(".preview td")).to_have_text(["1", "0.5", "2", "0,25"])
        expect(page).to_have_url(re.compile("file=table.csv"))
        show(page, "run=run&tab=files&path=out&file=config.json")
        expect(page.locator("pre.preview")).to_contain_text('"layers": [\n    1,')
        show(page, "run=run&tab=files&path=out&file=long.txt")
        expect(page.locator("pre.preview")).to_contain_text("line 999 of")
        expect(page.locator(".files")).to_contain_text("The beginning of the file")
        show(page, "run=run&tab=files&path=out/deep&file=weights.pt")
        expect(page.locator(".files .notice")).to_be_visible()
        show(page, "run=run&tab=files&path=out&file=missing")
        expect(page.locator(".files .notice")).to_contain_text("has no file")
        assert [fault for fault in watched.faults if "404" not in fault] == []


def test_pictures_are_images_only(browser: Browser, server: UiServer) -> None:
    with signed_in(browser, server) as watched:
        page = watched.page
        for name, width in (("picture.png", 30), ("drawing.svg", 9)):
            show(page, f"run=run&tab=files&path=out&file={name}")
            picture = page.locator("img.preview")
            expect(picture).to_have_attribute("src", re.compile("^data:image/"))
            # Until then, it may still be the picture before.
            page.wait_for_function(
                "width => document.querySelector('img.preview')?.naturalWidth === width", arg=width
            )
        assert page.evaluate("window.planted") is None
        assert page.locator("iframe, object, embed, main svg script").count() == 0
        assert watched.faults == []


def test_a_folder_is_downloaded(browser: Browser, server: UiServer) -> None:
    with signed_in(browser, server, "run=run&tab=files&path=out") as watched:
        page = watched.page
        with page.expect_download() as started:
            page.get_by_role("button", name="Download as ZIP").click()
        assert started.value.suggested_filename == "out.zip"
        with zipfile.ZipFile(started.value.path()) as archive:
            assert archive.testzip() is None
            assert {"out/table.csv", "out/deep/weights.pt"} <= {*archive.namelist()}
        with page.expect_download() as started:
            page.get_by_role("button", name="Download table.csv").click()
        assert started.value.suggested_filename == "table.csv"
        assert watched.faults == []


@pytest.mark.parametrize("is_phone", [False, True], ids=["desktop", "phone"])
def test_everybody_can_use_it(browser: Browser, server: UiServer, is_phone: bool) -> None:
    options: dict[str, Any] = {"is_phone": is_phone, "is_dark": is_phone, "is_checked": True}
    with signed_in(browser, server, **options) as watched:
        page = watched.page
        for address, shown in (
            ("run=run&tab=files&path=out", "td.name"),
            ("run=run&tab=files&path=out&file=table.csv", ".preview td"),
            ("run=run&tab=files&path=out&file=picture.png", "img.preview"),
            ("run=run&tab=files&path=out&file=long.txt", "pre.preview"),
        ):
            show(page, address)
            expect(page.locator(shown).first).to_be_visible()
            assert watched.accessibility_faults() + too_wide(page) == [], address
        assert watched.faults == []
