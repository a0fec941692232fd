"""Response headers: browsers must not run files of users with the origin of the service."""

from __future__ import annotations

from collections.abc import Iterable

from starlette.types import Message, Send

CONTENT_HEADERS = (
    (b"content-security-policy", b"sandbox; default-src 'none'"),
    (b"x-content-type-options", b"nosniff"),
)
"""The headers of every response except those of the page.

A browser gives a document with `sandbox` an opaque origin, without scripts, forms or storage. Programs ignore
both headers.
"""

RESPONSE_STARTS = ("http.response.start", "websocket.http.response.start")
"""The messages that start a response; the second one starts that to a refused WebSocket."""


def with_missing_headers(message: Message, headers: Iterable[tuple[bytes, bytes]]) -> None:
    """Adds headers to the start of a response, except those that the application has set."""
    existing = list(message.get("headers", []))
    names = {name.lower() for name, _ in existing}
    # Two policies would both apply: the one of the application replaces the default.
    message["headers"] = [*existing, *((name, value) for name, value in headers if name not in names)]


def send_with(send: Send, headers: Iterable[tuple[bytes, bytes]]) -> Send:
    """Returns a `send` that adds the missing headers to the response."""

    async def send_with_headers(message: Message) -> None:
        if message["type"] in RESPONSE_STARTS:
            with_missing_headers(message, headers)
        await send(message)

    return send_with_headers
