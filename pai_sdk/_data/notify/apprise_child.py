"""Sends one message by Apprise: a task as JSON on standard input, the outcome on standard output."""

from __future__ import annotations

import json
import logging
import os
import re
import socket
import sys
import threading
from typing import Any
from urllib.parse import urlsplit, urlunsplit
from urllib.request import getproxies

from pai_sdk._data.notify.guard import AddressGuard
from pai_sdk._data.notify.refusals import NotDeliveredError

_SENDING_S = 10.0
_HTTP_STATUS = re.compile(r"\berror[=:\s]+(\d{3})\b")


class _Reasons(logging.Handler):
    """Collects the messages of Apprise's log, which are the only description of an error."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Adds a message."""
        self.lines.append(record.getMessage())


class _Guarded:
    """Refuses connections to addresses that are not allowed, of all libraries in this process."""

    def __init__(self, guard: AddressGuard) -> None:
        self.refusal: NotDeliveredError | None = None
        self._guard = guard
        if not guard.allows_all:
            self._guard = guard.with_hosts_resolved(_proxies())
            # The hook gets the address that is connected to, so that a name cannot change between check and use.
            sys.addaudithook(self._check)

    def _check(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event not in ("socket.connect", "socket.sendto"):
            return
        address = arguments[1]
        text = address[0] if isinstance(address, tuple) and address else None
        # A name is refused unless it is allowed: the call itself would resolve it, after this check.
        if text is not None and (self._guard.is_allowed(text) or text.lower() in self._guard.allowed_hosts):
            return
        refusal = NotDeliveredError(
            f"the address {text or 'of a local socket'} is not a public one; "
            "the operator of the service can allow it: pai-sdk serve --notify-allow",
            code="AddressNotAllowed",
            is_transient=False,
        )
        self.refusal = self.refusal or refusal
        raise PermissionError("the address is not allowed")


def main() -> int:
    """Sends the message; the last line on standard output is the outcome."""
    task = json.loads(sys.stdin.buffer.read())
    output = os.dup(1)
    os.dup2(2, 1)  # whatever a library prints is not the outcome
    outcome = _send(task)
    os.write(output, json.dumps(outcome).encode() + b"\n")
    return 0


def _send(task: dict[str, Any]) -> dict[str, Any]:
    import apprise

    guarded = _Guarded(AddressGuard.from_json(task["guard"]))
    reasons = _Reasons()
    log = logging.getLogger("apprise")
    log.setLevel(logging.INFO)
    log.addHandler(reasons)
    asset = apprise.AppriseAsset(plugin_paths=[], storage_mode="memory")
    socket.setdefaulttimeout(_SENDING_S)
    sender = apprise.Apprise(asset=asset)
    if not sender.add(without_redirects(task["url"])):
        return _outcome("InvalidUrl", "Apprise does not understand the URL")
    results: list[bool] = []

    def send() -> None:
        results.append(bool(sender.notify(body=task["body"], title=task["title"], body_format="text")))

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    thread.join(_SENDING_S)
    if guarded.refusal is not None:
        return _outcome(guarded.refusal.code, str(guarded.refusal))
    if thread.is_alive():
        return _outcome("Timeout", "no response in time")
    if results == [True]:
        return {"delivered": True}
    reason = _public(" ".join(reasons.lines[-3:]), task["url"])
    status = _HTTP_STATUS.search(reason)
    code = f"HTTP{status[1]}" if status else "NotDelivered"
    return _outcome(code, f"Apprise: {reason[:300] or 'the message was not sent'}")


def _outcome(code: str, reason: str) -> dict[str, Any]:
    return {"delivered": False, "code": code, "reason": reason}


def _proxies() -> list[str]:
    """Returns the hosts of the environment's proxies, which belong to the operator."""
    return [host for url in getproxies().values() if (host := urlsplit(url).hostname)]


def without_redirects(url: str) -> str:
    """Returns the URL with Apprise's option against redirects, which could lead to an address that is refused."""
    parts = urlsplit(url)
    if parts.scheme in ("http", "https"):  # a native URL, such as Slack's
        return url
    return urlunsplit(parts._replace(query=f"{parts.query}&redirect=no" if parts.query else "redirect=no"))


def _public(text: str, url: str) -> str:
    """Returns a text without the parts of a URL, which may be secret."""
    for part in sorted(set(re.split(r"[/:@?&=#,%]+", url)), key=len, reverse=True):
        if len(part) >= 4:
            text = text.replace(part, "…")
    return text
