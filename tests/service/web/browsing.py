"""Requests as a browser sends them for the page, and a built page for tests."""

from __future__ import annotations

import gzip
import http.client
import json
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

from tests.support.waiting import PATIENCE_S

SCRIPT = b"console.log('the page');\n" * 100
STYLE = b":root { color-scheme: light dark }\n"


class Answer(NamedTuple):
    status: int
    content: bytes
    headers: dict[str, str]

    @property
    def json(self) -> Any:
        return json.loads(self.content)


def ask_as_browser(port: int, method: str, path: str, body: Any = None, **headers: str) -> Answer:
    """A request with exactly these headers; `_` in their names stands for `-`."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    content = None if body is None else json.dumps(body).encode()
    try:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, content, sent)
        answer = connection.getresponse()
        found = {name.lower(): value for name, value in answer.getheaders()}
        is_stream = found.get("content-type", "").startswith("text/event-stream")
        return Answer(answer.status, b"" if is_stream else answer.read(), found)
    finally:
        connection.close()


def headers_of_page(port: int, **changes: str) -> dict[str, str]:
    """What a browser sends for a script of the page; an empty text leaves a header out."""
    own = {
        "Origin": f"http://127.0.0.1:{port}",
        "Sec_Fetch_Site": "same-origin",
        "Content_Type": "application/json",
        "X_PAI_UI": "1",
    }
    return {name: value for name, value in {**own, **changes}.items() if value}


def code_in(link: str) -> str:
    """The code in the fragment of a link."""
    return parse_qs(urlsplit(link).fragment)["code"][0]


def sign_in(port: int, link: str) -> dict[str, str]:
    """The cookie and the key of a page that a browser has opened by a link, as headers."""
    answer = ask_as_browser(port, "POST", "/ui/session", {"code": code_in(link)}, **headers_of_page(port))
    assert answer.status == 200, answer.content
    cookie = answer.headers["set-cookie"]
    assert {"httponly", "samesite=strict", "path=/"} <= {part.strip().lower() for part in cookie.split(";")}
    return {"Cookie": cookie.partition(";")[0], "X_PAI_UI": answer.json["key"]}


def built_page(folder: Path) -> Path:
    """Files with the names that the build gives them."""
    (folder / "assets").mkdir()
    (folder / "index.html").write_text("<!doctype html><title>pai-sdk</title>")
    for name, content in (("app-1a2b.js", SCRIPT), ("app-3c4d.css", STYLE), ("licences.txt", b"MIT")):
        (folder / "assets" / name).write_bytes(content)
        if not name.endswith(".txt"):
            (folder / "assets" / f"{name}.gz").write_bytes(gzip.compress(content, mtime=0))
            (folder / "assets" / f"{name}.br").write_bytes(b"br:" + content)
    (folder / "secret.js").write_text("outside of the assets")
    return folder
