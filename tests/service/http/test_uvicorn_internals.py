"""The internals of uvicorn that the guarded connections and `HttpServer` build on, and the versions with them."""

from __future__ import annotations

import asyncio
import inspect
import re
from pathlib import Path
from typing import Any

import uvicorn
from packaging.requirements import Requirement
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState

ROOT = Path(__file__).resolve().parents[3]
ADVICE = (
    f"uvicorn {uvicorn.__version__} differs from what pai_sdk/_service/http builds on: adapt"
    " guarded_connections.py, guarded_websockets.py and http_server.py, or narrow its range in pyproject.toml"
)
OVERRIDDEN = {
    HttpToolsProtocol: {
        "connection_lost": ["exc"],
        "connection_made": ["transport"],
        "data_received": ["data"],
        "on_body": ["body"],
        "on_headers_complete": [],
        "on_message_complete": [],
        "send_400_response": ["msg"],
    },
    WebSocketsSansIOProtocol: {
        "data_received": ["data"],
        "handle_cont": ["event"],
        "handle_ping": [],
        "handle_parser_exception": [],
        "receive": [],
        "run_asgi": [],
        "send": ["message"],
        "shutdown": [],
    },
    uvicorn.Server: {"startup": ["sockets"], "shutdown": ["sockets"]},
}
USED = {
    "protocol": (
        *(
            "connections",
            "cycle",
            "flow",
            "headers",
            "logger",
            "parser",
            "pipeline",
            "scheme",
            "scope",
            "transport",
            "url",
        ),
    ),
    "cycle": (
        "body",
        "disconnected",
        "expected_content_length",
        "message_event",
        "more_body",
        "response_complete",
        "response_started",
        "scope",
        "waiting_for_100_continue",
    ),
    "flow": ("read_paused",),
}
USED_OF_WEBSOCKETS = (
    *("close_sent", "conn", "frames", "handle_parser_exception", "handshake_initiated", "logger", "queue"),
    *("read_paused", "scope", "transport", "writable"),
)
OPENING = (
    b"GET /path HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)


class RecordingTransport(asyncio.Transport):
    """A transport that keeps what is written to it."""

    def __init__(self) -> None:
        super().__init__({"sockname": ("127.0.0.1", 1), "peername": ("127.0.0.1", 2)})
        self.written = b""

    def write(self, data: Any) -> None:
        self.written += bytes(data)

    def is_closing(self) -> bool:
        return False

    def close(self) -> None:
        pass


def test_the_methods_that_are_overridden_take_the_same_arguments() -> None:
    found = {
        kind: {name: [*inspect.signature(getattr(kind, name)).parameters][1:] for name in methods}
        for kind, methods in OVERRIDDEN.items()
    }
    assert found == OVERRIDDEN, ADVICE


def test_the_attributes_that_are_used_are_there_during_a_request() -> None:
    missing = asyncio.run(missing_attributes())
    assert missing == [], ADVICE


async def missing_attributes() -> list[str]:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})

    server = uvicorn.Server(uvicorn.Config(app, lifespan="off", log_config=None))
    server.config.load()
    protocol = HttpToolsProtocol(server.config, ServerState(), {})
    transport = RecordingTransport()
    protocol.connection_made(transport)
    protocol.data_received(b"GET /path HTTP/1.1\r\nHost: a\r\n\r\n")
    subjects: dict[str, Any] = {"protocol": protocol, "cycle": protocol.cycle, "flow": protocol.flow}
    missing = [
        f"{name}.{used}" for name, subject in subjects.items() for used in USED[name] if not hasattr(subject, used)
    ]
    missing += [f"server.{used}" for used in ("should_exit",) if not hasattr(server, used)]
    missing += [] if hasattr(ServerState(), "connections") else ["server_state.connections"]
    await asyncio.gather(*protocol.tasks)
    assert transport.written.startswith(b"HTTP/1.1 204"), ADVICE
    return missing


def test_a_websocket_waits_for_its_client_and_has_the_attributes_that_are_used() -> None:
    written, missing = asyncio.run(serve_websocket())
    assert missing == [], ADVICE
    assert written.startswith(b"HTTP/1.1 101"), ADVICE
    assert written.endswith(b"\x82\x04sent"), ADVICE


async def serve_websocket() -> tuple[bytes, list[str]]:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        assert scope["type"] == "websocket"
        assert (await receive())["type"] == "websocket.connect"
        await send({"type": "websocket.accept"})
        protocol.pause_writing()
        sending = asyncio.create_task(send({"type": "websocket.send", "bytes": b"sent"}))
        await asyncio.sleep(0)
        assert not sending.done(), ADVICE
        protocol.resume_writing()
        await sending

    config = uvicorn.Config(app, lifespan="off", log_config=None, ws="websockets-sansio", ws_ping_interval=None)
    config.ws_per_message_deflate = False
    config.load()
    assert config.ws_protocol_class is WebSocketsSansIOProtocol
    protocol = WebSocketsSansIOProtocol(config, ServerState(), {})
    protocol.connection_made(transport := RecordingTransport())
    protocol.data_received(OPENING)
    missing = [name for name in USED_OF_WEBSOCKETS if not hasattr(protocol, name)]
    missing += [name for name in ("close_sent", "fail", "handshake_exc") if not hasattr(protocol.conn, name)]
    await asyncio.gather(*protocol.tasks)
    return transport.written, missing


def test_uvicorn_has_an_upper_bound_and_the_installed_one_is_in_the_range() -> None:
    (text,) = re.findall(r'"(uvicorn[^"]*)"', (ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    required = Requirement(text)
    assert any(bound.operator in ("<", "<=", "==", "~=") for bound in required.specifier), required
    assert required.specifier.contains(uvicorn.__version__), ADVICE
