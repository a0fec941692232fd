"""Repositories of git, and a host that serves them."""

from __future__ import annotations

import base64
import contextlib
import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.support.waiting import PATIENCE_S


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


class Repository:
    """main: one, two, three; branch `side` leaves after one; tag `v1` is two."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(parents=True)
        git(path, "init", "-q", "-b", "main")
        self.commits: dict[str, str] = {}
        for name in ("one", "two", "three"):
            self._commit(name)
            if name == "two":
                git(path, "tag", "v1")
        git(path, "checkout", "-q", "-b", "side", self.commits["one"])
        (path / "src").mkdir()
        (path / "src" / "side.py").write_text("side")
        (path / "out").symlink_to("/etc")
        self._commit("side")
        git(path, "checkout", "-q", "main")

    def _commit(self, name: str) -> None:
        (self.path / "train.py").write_text(name)
        git(self.path, "add", "-A")
        git(self.path, "commit", "-q", "-m", name)
        self.commits[name] = git(self.path, "rev-parse", "HEAD")

    @property
    def url(self) -> str:
        return self.path.as_uri()


class GitHttp(BaseHTTPRequestHandler):
    """git's own HTTP server program behind basic authentication."""

    server: GitServer

    def log_message(self, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        self.server.seen.append((path, self.headers.get("Authorization")))
        if self.server.hangs:
            self.server.asked.set()
            self.server.released.wait(PATIENCE_S)
            self.close_connection = True
            return
        is_known = self.server.expected in ("", self.headers.get("Authorization"))
        moved_to = self.server.moved(self.path) if is_known or not self.server.asks_first else ""
        if moved_to:
            self._answer(301, {"Location": moved_to})
            return
        if not is_known:
            self._answer(401, {"WWW-Authenticate": 'Basic realm="git"'})
            return
        environment = {
            **os.environ,
            "GIT_PROJECT_ROOT": str(self.server.root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "REQUEST_METHOD": self.command,
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "REMOTE_USER": "me",
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
        }
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        done = subprocess.run(
            ["git", "http-backend"], input=body, env=environment, capture_output=True, check=True
        )
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode().splitlines())
        self._answer(int(headers.pop("Status", "200").split()[0]), headers, content)

    def _answer(self, status: int, headers: dict[str, str], content: bytes = b"") -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_POST = do_GET


class GitServer(ThreadingHTTPServer):
    root: Path
    expected: str
    hangs = False
    asks_first = False
    moved: Callable[[str], str] = staticmethod(lambda path: "")  # from the path that is asked for to another place
    asked: threading.Event
    released: threading.Event
    seen: list[tuple[str, str | None]]


@contextlib.contextmanager
def git_server(root: Path, login: str = "") -> Iterator[GitServer]:
    """Serves the repositories of a folder; with a login, to it only."""
    made = GitServer(("127.0.0.1", 0), GitHttp)
    made.root = root
    made.expected = "Basic " + base64.b64encode(login.encode()).decode() if login else ""
    made.asked, made.released = threading.Event(), threading.Event()
    made.seen = []
    thread = threading.Thread(target=made.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield made
    finally:
        made.released.set()
        made.shutdown()
        made.server_close()
        thread.join()


def url_of(server: GitServer) -> str:
    return f"http://127.0.0.1:{server.server_port}/project.git"
