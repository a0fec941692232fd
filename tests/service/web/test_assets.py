"""The files of the page: compressed, kept by browsers, and nothing else of the disk."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pai_sdk._service.web.ui_app import UiServer, UiSettings
from tests.service.web.browsing import SCRIPT, STYLE, ask_as_browser, built_page
from tests.support.waiting import PATIENCE_S


def serve(folder: Path, static: Path) -> Iterator[int]:
    ready, server = threading.Event(), UiServer(UiSettings(folder, static=static))
    thread = threading.Thread(target=server.run, args=(ready.set,))
    thread.start()
    assert ready.wait(PATIENCE_S)
    yield server.port
    server.stop()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    yield from serve(tmp_path_factory.mktemp("runs"), built_page(tmp_path_factory.mktemp("static")))


@pytest.fixture
def port_of_a_checkout(tmp_path: Path) -> Iterator[int]:
    yield from serve(tmp_path, tmp_path / "not-built")


@pytest.mark.parametrize(
    ("name", "content", "media_type"),
    [("app-1a2b.js", SCRIPT, "text/javascript"), ("app-3c4d.css", STYLE, "text/css")],
)
def test_an_asset_is_kept_for_a_year_and_sent_compressed(
    port: int, name: str, content: bytes, media_type: str
) -> None:
    plain = ask_as_browser(port, "GET", f"/ui/assets/{name}")
    assert (plain.status, plain.content) == (200, content)
    assert plain.headers["content-type"] == f"{media_type}; charset=utf-8"
    assert "content-encoding" not in plain.headers
    zipped = ask_as_browser(port, "GET", f"/ui/assets/{name}", Accept_Encoding="br;q=0, gzip;q=0.8")
    assert (zipped.headers["content-encoding"], gzip.decompress(zipped.content)) == ("gzip", content)
    smaller = ask_as_browser(port, "GET", f"/ui/assets/{name}", Accept_Encoding="gzip, deflate, br, zstd")
    assert (smaller.headers["content-encoding"], smaller.content) == ("br", b"br:" + content)
    for answer in (zipped, smaller):
        assert answer.headers["content-type"] == f"{media_type}; charset=utf-8"
    for answer in (plain, zipped, smaller):
        assert {"max-age=31536000", "immutable"} <= set(answer.headers["cache-control"].split(", "))
        assert answer.headers["vary"] == "Accept-Encoding"
        assert answer.headers["x-content-type-options"] == "nosniff"
    refused = ask_as_browser(port, "GET", f"/ui/assets/{name}", Accept_Encoding="gzip;q=0, identity")
    assert refused.content == content
    head = ask_as_browser(port, "HEAD", f"/ui/assets/{name}", Accept_Encoding="gzip")
    assert (head.status, head.content, head.headers["content-encoding"]) == (200, b"", "gzip")


def test_a_file_without_a_compressed_twin_is_sent_as_it_is(port: int) -> None:
    answer = ask_as_browser(port, "GET", "/ui/assets/licences.txt", Accept_Encoding="gzip")
    assert (answer.status, answer.content, answer.headers["content-type"]) == (
        200,
        b"MIT",
        "text/plain; charset=utf-8",
    )


@pytest.mark.parametrize(
    "name",
    [
        "nothing.js",
        "..",
        ".",
        "",
        "../index.html",
        "../secret.js",
        "..%2fsecret.js",
        "%2e%2e%2fsecret.js",
        "..%5csecret.js",
        "%2fetc%2fpasswd",
        "app-1a2b.js%00",
        "app-1a2b.js.gz",
        "app-1a2b.js.br",
        ".js",
        "x" * 5000 + ".js",
    ],
)
def test_nothing_else_is_an_asset(port: int, name: str) -> None:
    for signs in ({}, {"Accept_Encoding": "gzip"}):
        answer = ask_as_browser(port, "GET", f"/ui/assets/{name}", **signs)
        assert answer.status in (401, 404), answer.content
        assert b"outside" not in answer.content


def test_the_page_is_asked_for_again_each_time(port: int) -> None:
    answer = ask_as_browser(port, "GET", "/ui/")
    assert (answer.status, answer.headers["cache-control"]) == (200, "no-cache")
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    again = ask_as_browser(port, "GET", "/ui/", If_None_Match=answer.headers["etag"])
    assert (again.status, again.content) == (304, b"")
    for path in ("/", "/ui"):
        assert ask_as_browser(port, "GET", path).headers["location"] == "/ui/"


def test_a_checkout_that_was_not_built_says_so(port_of_a_checkout: int) -> None:
    answer = ask_as_browser(port_of_a_checkout, "GET", "/ui/")
    assert answer.status == 503
    assert b"make page" in answer.content
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert ask_as_browser(port_of_a_checkout, "GET", "/ui/assets/app.js").status == 404
