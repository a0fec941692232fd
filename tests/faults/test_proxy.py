"""The proxy itself: what a seed breaks, it breaks again; and each kind of fault is what it says."""

from __future__ import annotations

import http.server
import socket
import threading
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
import requests

from tests.faults.proxy import EVERY_KIND, FaultProxy, Faults
from tests.support.waiting import PATIENCE_S


class _Echo(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    arrived: list[str]

    def log_message(self, *args: object) -> None: ...

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.arrived.append(f"{self.command} {self.path}")
        said = f"{self.command} {self.path} ".encode() + body
        self.send_response(200)
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(said)

    do_GET = do_POST = do_HEAD = answer


@pytest.fixture
def echo() -> Iterator[tuple[str, list[str]]]:
    arrived: list[str] = []
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), type("Echo", (_Echo,), {"arrived": arrived}))
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}", arrived
    server.shutdown()
    server.server_close()
    thread.join()


def _ask(url: str, method: str = "GET") -> str:
    try:
        answer = requests.request(method, url, data=b"body", timeout=PATIENCE_S)
    except requests.RequestException as error:
        return type(error).__name__
    answer.encoding = "latin-1"
    return f"{answer.status_code} {answer.text}"


def test_what_is_not_broken_passes_untouched(echo):
    with FaultProxy(echo[0], seed=1, faults=Faults(rate=0)) as proxy:
        assert _ask(f"{proxy.url}/a?b=c", "POST") == "200 POST /a?b=c body"
        assert requests.head(f"{proxy.url}/a", timeout=PATIENCE_S).headers["Content-Length"] == "8"
    assert proxy.happened == []
    assert proxy.seen == {"POST /a": 1, "HEAD /a": 1}


@pytest.mark.parametrize(
    ("kind", "seen", "arrives"),
    [
        ("reset", "ConnectionError", 0),
        ("lost", "ConnectionError", 1),
        ("truncated", "ConnectionError|ChunkedEncodingError", 1),
        ("slow", "200 GET /x body", 1),
        ("429", "429 ", 0),
        ("500", '500 {"Code":"InternalError","Message":"x"}', 0),
        ("503", "503 ", 0),
        ("empty", "200 ", 0),
    ],
)
def test_each_kind_is_what_it_says(echo, kind, seen, arrives):
    with FaultProxy(echo[0], seed=1, faults=Faults(rate=1, kinds=(kind,))) as proxy:
        assert _ask(f"{proxy.url}/x") in (seen, *seen.split("|"))
    assert len(echo[1]) == arrives
    assert proxy.happened == [f"{kind}: GET /x"]


@pytest.mark.parametrize(("kind", "arrives"), [("flipped up", 1), ("flipped down", 1), ("cut up", 0)])
def test_each_kind_of_damage_is_what_it_says(echo, kind, arrives):
    with FaultProxy(echo[0], seed=1, faults=Faults(rate=1, kinds=(kind,))) as proxy:
        answer = _ask(f"{proxy.url}/x", "POST")
    if arrives:
        pairs = zip(answer, "200 POST /x body", strict=True)
        assert sum((ord(one) ^ ord(other)).bit_count() for one, other in pairs) == 1
    else:
        assert answer == "ConnectionError"
    assert proxy.happened == [f"{kind}: POST /x"]


def test_a_repeated_answer_is_an_earlier_one_for_the_same_path(echo):
    def second_time(method: str, path: str) -> bool:
        return path.endswith("page=2")

    faults = Faults(rate=1, kinds=("repeated",), only=second_time)
    with FaultProxy(echo[0], seed=1, faults=faults) as proxy:
        _ask(f"{proxy.url}/log?page=1")
        assert _ask(f"{proxy.url}/log?page=2") == "200 GET /log?page=1 body"


def test_a_seed_breaks_the_same_requests_again(echo):
    def run(seed: int) -> list[str]:
        with FaultProxy(echo[0], seed=seed, faults=Faults(rate=0.5, pause_s=0)) as proxy:
            for number in range(20):
                _ask(f"{proxy.url}/{number % 3}")
        return proxy.happened

    assert run(7) == run(7)
    assert run(7) != run(8)


def test_calm_lets_everything_pass(echo):
    with FaultProxy(echo[0], seed=1, faults=Faults(rate=1, kinds=EVERY_KIND)) as proxy:
        proxy.calm = True
        assert _ask(f"{proxy.url}/x") == "200 GET /x body"


def test_a_change_is_made_before_the_proxy_ends_also_when_nobody_waits_for_it(echo):
    begun, may_go_on, awaited = threading.Event(), threading.Event(), []

    class Held(FaultProxy):
        def forward(self, *request):
            begun.set()
            assert may_go_on.wait(PATIENCE_S)
            return super().forward(*request)

        def answered(self, *answer, is_awaited):
            awaited.append(is_awaited)

    with Held(echo[0], seed=1, faults=Faults(rate=0)) as proxy:
        with socket.create_connection(("127.0.0.1", urlsplit(proxy.url).port)) as client:
            client.sendall(b"POST /x HTTP/1.1\r\nContent-Length: 4\r\n\r\nbody")
            assert begun.wait(PATIENCE_S)
        threading.Timer(0.3, may_go_on.set).start()
    assert echo[1] == ["POST /x"]
    assert awaited == [False]
