"""`pai-sdk ui`: who is let in, by which name, and what a browser may do; and that the folder is only read."""

from __future__ import annotations

import gzip
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from typer.testing import CliRunner

from pai_sdk._service.web.browser_guard import cookie_name
from pai_sdk._service.web.ui_app import UiServer, UiSettings
from pai_sdk.cli.root import app
from tests.service.runs.event_files import messages_of, write_points
from tests.service.web.browsing import ask_as_browser, built_page, code_in, headers_of_page, sign_in
from tests.support.messages import refused
from tests.support.waiting import PATIENCE_S, until

TOKEN = "a-token-of-the-tests-0123456789"
HOSTILE = "<b>=1"
PROGRAM = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("logdir")
    write_points(root / "exp" / "one" / "tensorboard", {"loss": [1.0, 0.5, math.nan]})
    write_points(root / "two", {"loss": [2.0, 1.0], "=acc": [0.5]})
    write_points(root / HOSTILE, {"<script>alert(1)</script>": [1.0]})
    logs = root / "exp" / "one" / "logs"
    logs.mkdir()
    (logs / "worker-0.log").write_text("".join(f"step {n}\n" for n in range(100)) + "\x1b[31m<script>\n50%\r60%")
    (logs / "worker-1.log").write_text("other\n")
    (logs / "secret.log").symlink_to("/etc/passwd")
    (root / "exp" / "one" / "checkpoints" / "30").mkdir(parents=True)
    (root / "exp" / "one" / "checkpoints" / "30" / "_COMPLETE").write_text("{}")
    return root


@pytest.fixture(scope="module")
def server(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[UiServer]:
    static = built_page(tmp_path_factory.mktemp("static"))
    settings = UiSettings(folder, names=("train.example",), token=TOKEN, static=static)
    ready, made = threading.Event(), UiServer(settings)
    thread = threading.Thread(target=made.run, args=(ready.set,))
    thread.start()
    assert ready.wait(PATIENCE_S)
    yield made
    made.stop()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()


def ask(
    server: UiServer, method: str, path: str, body: Any = None, **headers: str
) -> tuple[int, Any, dict[str, str]]:
    answer = ask_as_browser(server.port, method, path, body, **headers)
    return answer.status, answer.content, answer.headers


def get(server: UiServer, path: str, **query: Any) -> Any:
    answer = requests.get(
        f"http://127.0.0.1:{server.port}{path}", params=query, headers=PROGRAM, timeout=PATIENCE_S
    )
    assert answer.status_code == 200, answer.text
    return answer.json()


def log_in(server: UiServer) -> dict[str, str]:
    return sign_in(server.port, server.new_link())


def page_headers(server: UiServer, **changes: str) -> dict[str, str]:
    return headers_of_page(server.port, **changes)


# ---- the name ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"])
@pytest.mark.parametrize(
    "path", ["/", "/ui/", "/ui/assets/app-1a2b.js", "/ui/session", "/api/v1/runs", "/api/v1/events", "/nothing"]
)
@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "", "localhost.", "[::2]:80", "127.0.0.1@evil"]
)
def test_a_foreign_name_is_refused_before_anything_else(
    server: UiServer, method: str, path: str, host: str
) -> None:
    status, content, _ = ask(server, method, path, **PROGRAM, Host=host)
    assert status == 403
    assert b"Host" in content or method == "HEAD"


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost:{port}", "LOCALHOST", "[::1]:{port}", "[::1]", "train.example:80"]
)
def test_names_of_this_machine_and_those_of_the_user_are_let_in(server: UiServer, host: str) -> None:
    assert ask(server, "GET", "/api/v1/runs", **PROGRAM, Host=host.format(port=server.port))[0] == 200


# ---- who is let in ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    ["/api/v1/runs", "/api/v1/runs/two", "/api/v1/events", "/ui/about", "/nothing", "/openapi.json"],
)
def test_without_cookie_or_token_there_is_nothing(server: UiServer, path: str) -> None:
    assert ask(server, "GET", path)[0] == 401
    assert ask(server, "GET", path, Authorization="Bearer wrong")[0] == 401
    assert ask(server, "GET", path, Authorization=f"Basic {TOKEN}")[0] == 401
    assert ask(server, "GET", path, Cookie=f"{cookie_name(server.port)}=made-up")[0] == 401


def test_the_page_itself_has_no_data_and_all_safety_headers(server: UiServer) -> None:
    status, content, headers = ask(server, "GET", "/ui/")
    assert (status, b"<title>pai-sdk</title>" in content) == (200, True)
    assert "default-src 'none'" in headers["content-security-policy"]
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert (headers["x-content-type-options"], headers["referrer-policy"]) == ("nosniff", "no-referrer")
    assert ask(server, "GET", "/")[2]["location"] == "/ui/"
    assert ask(server, "GET", "/ui/", If_None_Match=headers["etag"])[0] == 304


def test_the_link_is_exchanged_for_a_cookie_once(server: UiServer) -> None:
    link = server.new_link()
    code = code_in(link)
    assert link.startswith(f"{server.url}/ui/#code=")
    status, content, headers = ask(server, "POST", "/ui/session", {"code": code}, **page_headers(server))
    assert status == 200
    cookie, key = headers["set-cookie"].partition(";")[0], json.loads(content)["key"]
    assert cookie.startswith(f"pai-ui-{server.port}=")
    assert ask(server, "GET", "/api/v1/runs", Cookie=cookie, X_PAI_UI=key)[0] == 200
    assert ask(server, "POST", "/ui/session", {"code": code}, **page_headers(server))[0] == 403
    assert ask(server, "POST", "/ui/session", {"code": "x"}, **page_headers(server))[0] == 403


def test_a_sign_out_ends_copies_and_leaves_programs(server: UiServer) -> None:
    page, other = (page_headers(server, **log_in(server)) for _ in "12")
    assert ask(server, "GET", "/api/v1/runs", **page)[0] == 200
    assert ask(server, "DELETE", "/ui/session", {}, **page)[0] == 200
    assert ask(server, "GET", "/api/v1/runs", **page)[0] == 401
    assert ask(server, "GET", "/api/v1/runs", **other)[0] == 200
    assert ask(server, "DELETE", "/ui/session", {}, **PROGRAM)[0] == 200
    assert get(server, "/api/v1/runs")["runs"]


def test_the_cookie_of_another_port_is_none_here(server: UiServer) -> None:
    page = log_in(server)
    value = page["Cookie"].partition("=")[2]
    assert ask(server, "GET", "/api/v1/runs", **{**page, "Cookie": f"pai-ui-1={value}"})[0] == 401


def test_a_program_that_was_sent_the_cookie_cannot_use_it(server: UiServer) -> None:
    """Browsers send a cookie to every port of a host; the key of the page they send nowhere."""
    page, other = log_in(server), log_in(server)
    assert ask(server, "GET", "/api/v1/runs", **page)[0] == 200
    for key in ("", "1", other["X_PAI_UI"]):
        forged = {**page_headers(server), "Cookie": page["Cookie"], "X_PAI_UI": key}
        assert ask(server, "GET", "/api/v1/runs", **forged)[0] == 401
        body = {"filter": "", "tags": ["loss"]}
        assert ask(server, "POST", "/api/v1/compare", body, **forged)[0] == 401
    assert ask(server, "GET", "/api/v1/runs", X_PAI_UI=page["X_PAI_UI"])[0] == 401


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, 200),
        ({"Origin": ""}, 200),
        ({"Sec_Fetch_Site": ""}, 200),
        ({"Origin": "", "Sec_Fetch_Site": ""}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "http://localhost:3000"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "https://127.0.0.1:{port}"}, 403),
        ({"Origin": "evil://127.0.0.1:{port}"}, 403),
        ({"Origin": "127.0.0.1:{port}"}, 403),
        ({"Origin": "http://127.0.0.1"}, 403),
        ({"Sec_Fetch_Site": "same-site"}, 403),
        ({"Sec_Fetch_Site": "cross-site"}, 403),
        ({"Content_Type": "text/plain"}, 403),
        ({"X_PAI_UI": ""}, 403),
    ],
)
def test_what_a_cookie_lets_in_must_come_from_the_page(
    server: UiServer, changes: dict[str, str], expected: int
) -> None:
    body = {"filter": "", "tags": ["loss"]}
    changes = {name: value.format(port=server.port) for name, value in changes.items()}
    headers = page_headers(server, **{**log_in(server), **changes})
    assert ask(server, "POST", "/api/v1/compare", body, **headers)[0] == expected


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_other_pages_cannot_even_read_with_the_cookie(server: UiServer, site: str) -> None:
    assert ask(server, "GET", "/api/v1/runs", **log_in(server), Sec_Fetch_Site=site)[0] == 403


@pytest.mark.parametrize(
    "origin", ["http://localhost:3000", "https://127.0.0.1:{port}", "evil://127.0.0.1:{port}", "null"]
)
def test_other_origins_cannot_read_with_the_cookie_and_the_key(server: UiServer, origin: str) -> None:
    page = log_in(server)
    assert ask(server, "GET", "/api/v1/runs", **page, Origin=f"http://127.0.0.1:{server.port}")[0] == 200
    assert ask(server, "GET", "/api/v1/runs", **page, Origin=origin.format(port=server.port))[0] == 403


def test_a_program_needs_the_token_only(server: UiServer) -> None:
    url = f"http://127.0.0.1:{server.port}/api/v1/compare"
    answer = requests.post(url, json={"filter": "", "tags": ["loss"]}, headers=PROGRAM, timeout=PATIENCE_S)
    assert answer.status_code == 200
    large = requests.post(url, data=b"x" * (2 << 20), headers=PROGRAM, timeout=PATIENCE_S)
    assert (large.status_code, large.json()["Code"]) == (413, "RequestTooLarge")


def test_secrets_are_in_no_representation(server: UiServer) -> None:
    assert TOKEN not in repr(UiSettings("x", token=TOKEN))
    assert "#" not in server.url


def test_the_address_of_a_download_works_once_without_a_key(server: UiServer) -> None:
    headers = page_headers(server, **log_in(server))
    top = get(server, "/api/v1/runs/exp/one/files")["entries"]
    (logs,) = [entry["name"] for entry in top if entry["name"].strip("/") == "logs"]
    body = {"path": f"{logs.strip('/')}/worker-1.log"}
    status, content, _ = ask(server, "POST", "/api/v1/runs/exp/one/downloads", body, **headers)
    assert status == 200, content
    url = json.loads(content)["url"]
    path = url[url.index("/ui/download/") :]
    assert ask(server, "GET", path, Host="evil.example")[0] == 403
    status, content, found = ask(server, "GET", path)
    assert (status, content) == (200, b"other\n")
    assert found["content-disposition"].startswith("attachment")
    assert "default-src 'none'" in found["content-security-policy"]
    assert ask(server, "GET", path)[0] == 403


# ---- what is there ----------------------------------------------------------------------------------------------


def test_runs_of_the_folder_by_their_paths(server: UiServer) -> None:
    said = until(lambda: found if (found := get(server, "/api/v1/runs", sort="id"))["total"] == 3 else None)
    assert [run["id"] for run in said["runs"]] == sorted([HOSTILE, "exp/one", "two"])
    one = get(server, "/api/v1/runs/exp/one/scalars", tag="loss")
    assert (one["run"], one["values"], one["nonfinite"]) == ("exp/one", [1.0, 0.5, None], {"nan": [2]})
    assert get(server, f"/api/v1/runs/{HOSTILE}")["tags"][0]["tag"] == "<script>alert(1)</script>"


@pytest.mark.parametrize("run", ["../etc", "..%2f..%2fetc", "%2e%2e/%2e%2e/etc", "/etc", "exp"])
def test_no_id_leads_out_of_the_folder(server: UiServer, run: str) -> None:
    for what in ("", "/log", "/events", "/log/file"):
        assert ask(server, "GET", f"/api/v1/runs/{run}{what}", **PROGRAM)[0] == 404


def test_the_log_of_a_run_and_its_marks(server: UiServer) -> None:
    page = get(server, "/api/v1/runs/exp/one/log", instance="worker-0", tail=2)
    assert [line["text"] for line in page["lines"]] == ["step 99", "\x1b[31m<script>"]
    both = get(server, "/api/v1/runs/exp/one/log", lines=1000)
    assert both["instances"] == ["worker-0", "worker-1"]  # and not the link
    assert both["lines"][-1]["text"] == "other"
    marks = get(server, "/api/v1/runs/exp/one/events")["events"]
    assert {mark["kind"] for mark in marks} == {"checkpoint", "not_finite"}
    status, content, headers = ask(server, "GET", "/api/v1/runs/exp/one/log/file?instance=worker-1", **PROGRAM)
    assert (status, gzip.decompress(content)) == (200, b"other\n")
    assert headers["content-disposition"] == 'attachment; filename="exp-one-worker-1.log.gz"'
    nothing = get(server, "/api/v1/runs/two/log")
    assert nothing == {"lines": [], "total": 0, "complete": True, "instances": []}
    assert ask(server, "GET", "/api/v1/runs/two/log?instance=w", **PROGRAM)[0] == 404


def test_no_link_leads_out_of_the_folder(server: UiServer, folder: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (outside / "10").mkdir(parents=True)
    (outside / "w.log").write_text("secret\n")
    (outside / "10" / "_COMPLETE").write_text("{}")
    (outside / "w.times").write_text("1000.0 4\n")
    run = folder / "linked"
    write_points(run, {"loss": [1.0]})
    until(lambda: ask(server, "GET", "/api/v1/runs/linked", **PROGRAM)[0] == 200)
    (run / "logs").symlink_to(outside)
    (run / "checkpoints").symlink_to(outside)
    assert get(server, "/api/v1/runs/linked/log")["instances"] == []
    for what in ("log?instance=w", "log/search?q=secret", "log/file"):
        assert ask(server, "GET", f"/api/v1/runs/linked/{what}", **PROGRAM)[0] == 404, what
    assert get(server, "/api/v1/runs/linked/events")["events"] == []
    (run / "logs").unlink()
    (run / "logs").symlink_to(folder / "exp" / "one" / "logs")  # within the folder
    assert get(server, "/api/v1/runs/linked/log")["instances"] == ["worker-0", "worker-1"]
    (run / "logs").unlink()
    (run / "logs").mkdir()
    (run / "logs" / "w.log").write_text("own\n")
    (run / "logs" / "w.times").symlink_to(outside / "w.times")
    assert get(server, "/api/v1/runs/linked/log")["total"] == 0
    shutil.rmtree(run)


def test_the_files_of_a_run_are_those_of_its_folder(server: UiServer, folder: Path) -> None:
    until(lambda: ask(server, "GET", "/api/v1/runs/two", **PROGRAM)[0] == 200)
    names = [entry["name"] for entry in get(server, "/api/v1/runs/two/files")["entries"]]
    assert names == sorted(path.name for path in (folder / "two").iterdir())
    (event_file, *_) = (path.name for path in (folder / "two").iterdir() if path.is_file())
    below = get(server, "/api/v1/runs/exp/one/files?path=checkpoints/30")["entries"]
    assert [entry["name"] for entry in below] == ["_COMPLETE"]
    assert "secret.log" not in str(get(server, "/api/v1/runs/exp/one/files?path=logs"))

    def ticket(path: str) -> tuple[int, Any, dict[str, str]]:
        headers = {**PROGRAM, "Content-Type": "application/json"}
        return ask(server, "POST", "/api/v1/runs/two/downloads", {"path": path}, **headers)

    status, content, _ = ticket(event_file)
    assert status == 200, content
    status, content, _ = ask(server, "GET", json.loads(content)["url"])
    assert (status, content) == (200, (folder / "two" / event_file).read_bytes())
    for path in ("../exp/one/logs/worker-0.log", "/etc/passwd", "a/../../exp", ".", "..", "\0"):
        assert ticket(path)[0] in (400, 404), path


@pytest.mark.parametrize(
    ("method", "what"),
    [
        ("GET", "/job"),
        ("GET", "/usage"),
        ("GET", "/rerun"),
        ("GET", "/diff?with=two"),
        ("DELETE", ""),
        ("POST", "/stop"),
        ("POST", "/rerun"),
    ],
)
def test_a_folder_has_no_jobs(server: UiServer, method: str, what: str) -> None:
    headers = {**PROGRAM, "Content-Type": "application/json"}
    for run, code in (("exp/one", "RUN_HAS_NO_JOB"), ("nothing", "RUN_NOT_FOUND")):
        status, content, _ = ask(server, method, f"/api/v1/runs/{run}{what}", {}, **headers)
        assert (status, json.loads(content)["Code"]) == (404, code)


def test_a_run_may_be_called_job(server: UiServer, folder: Path) -> None:
    write_points(folder / "exp" / "job", {"loss": [1.0]})
    until(lambda: ask(server, "GET", "/api/v1/runs/exp/job", **PROGRAM)[0] == 200)
    shutil.rmtree(folder / "exp" / "job")
    until(lambda: ask(server, "GET", "/api/v1/runs/exp/job", **PROGRAM)[0] == 404)


def test_the_folder_is_only_read(server: UiServer, folder: Path) -> None:
    time.sleep(0)
    assert not [*folder.rglob("*.cuts"), *folder.rglob("*.order")]


def test_a_log_that_was_replaced_is_read_again(server: UiServer, folder: Path) -> None:
    log = folder / "two" / "logs" / "w.log"
    log.parent.mkdir(exist_ok=True)
    for text in ("first\nsecond\nthird\n", "short\n", "a much longer line than before\nand one more\n"):
        log.write_text(text)
        page = get(server, "/api/v1/runs/two/log")
        assert "".join(f"{line['text']}\n" for line in page["lines"]) == text
    log.unlink()


def test_a_log_that_comes_later_is_announced(server: UiServer, folder: Path) -> None:
    url = f"http://127.0.0.1:{server.port}/api/v1/events?topics=log:two"
    with requests.get(url, headers=PROGRAM, stream=True, timeout=PATIENCE_S) as answer:
        messages = messages_of(answer)
        assert next(messages).event == "ready"
        log = folder / "two" / "logs" / "w.log"
        log.parent.mkdir(exist_ok=True)
        log.write_text("first\n")
        assert next(messages).event == "reset"
        log.unlink()


def test_the_stream_names_a_run_that_has_grown(server: UiServer, folder: Path) -> None:
    url = f"http://127.0.0.1:{server.port}/api/v1/events"
    with requests.get(url, headers=PROGRAM, stream=True, timeout=PATIENCE_S) as answer:
        messages = messages_of(answer)
        assert next(messages).event == "ready"
        write_points(folder / "three", {"loss": [1.0]})
        while "three" not in next(messages).data.get("changed", []):
            pass


# ---- the command ------------------------------------------------------------------------------------------------


def test_the_command_refuses_what_is_no_folder(tmp_path: Path) -> None:
    for words in (["--logdir", str(tmp_path / "nothing")], [str(tmp_path / "nothing")]):
        found = CliRunner().invoke(app, ["ui", *words])
        assert found.exit_code == 2
        assert "no folder" in found.output
    found = CliRunner().invoke(app, ["ui", str(tmp_path), "--logdir", str(tmp_path)])
    assert "give the folder once" in found.output


def test_the_command_ends_with_ctrl_c(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "pai_sdk", "ui", str(tmp_path), "--port", "0"]
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(words, text=True, env=os.environ | {"PYTHONUNBUFFERED": "1"}, **pipes) as program:
        try:
            assert program.stdout is not None
            lines = [program.stdout.readline() for _ in range(3)]
            assert lines[0].startswith(f"Runs in {tmp_path} on http://127.0.0.1:")
            assert lines[1] == "Open this link within a minute; it works once:\n"
            assert "/ui/#code=" in lines[2]
            program.send_signal(signal.SIGINT)
            assert program.communicate(timeout=PATIENCE_S) == ("", "")
            assert program.returncode == 0
        finally:
            program.kill()


def test_a_token_file_is_made_for_its_user_only(tmp_path: Path) -> None:
    from pai_sdk.cli.options import token_in
    from pai_sdk.errors import ServiceStartError

    file = tmp_path / "token"
    token = token_in(file)
    assert (len(token) >= 43, file.stat().st_mode & 0o777) == (True, 0o600)
    assert token_in(file) == token
    file.write_text("short")
    with refused(ServiceStartError):
        token_in(file)
    with pytest.raises(ServiceStartError):
        token_in(tmp_path / "nothing" / "token")
    assert os.listdir(tmp_path) == ["token"]  # noqa: PTH208


def test_a_port_that_is_taken_is_said(server: UiServer, folder: Path) -> None:
    from pai_sdk.errors import ServiceStartError

    with refused(ServiceStartError):
        UiServer(UiSettings(folder, port=server.port))
