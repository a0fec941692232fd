"""Diagnoses a missing response: the cause, and whether the request may have been executed."""

from __future__ import annotations

import errno
import re
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import RemoteDisconnected

import requests
from urllib3.exceptions import (
    ConnectTimeoutError,
    HTTPError,
    LocationValueError,
    NewConnectionError,
    ReadTimeoutError,
)

from pai_sdk._core.connections import HandshakeError

# PAI's official client asks another host of this region than all the rest do.
_OTHER_HOSTS = {"https://pai.cn-hangzhou.aliyuncs.com": "pai.cn-hangzhou.data.aliyun.com"}
# What OpenSSL calls a response in plain HTTP; the name changed with 3.2.
_NO_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST")
_BROKEN = (
    requests.exceptions.ConnectionError,
    requests.exceptions.ChunkedEncodingError,
    requests.exceptions.ContentDecodingError,
)


@dataclass(frozen=True)
class MissingResponse:
    """The reason why there was no response."""

    sentence: str  # for a message
    sent: bool  # the request may have arrived
    transient: bool = True  # another attempt may succeed
    refused: bool = False  # nothing listens at the endpoint


def diagnose(error: OSError | HTTPError, endpoint: str) -> MissingResponse:
    """Determines what an error of requests, urllib3 or a socket means."""
    causes = [*_causes(error)]
    certificate = next((c for c in causes if isinstance(c, ssl.SSLCertVerificationError)), None)
    if certificate is not None:
        reason = certificate.verify_message or "not trusted"
        hint = "for a CA of your own, set REQUESTS_CA_BUNDLE to its file"
        sentence = f"the certificate of {endpoint} is not accepted: {reason}; {hint}"
        return MissingResponse(sentence, sent=False, transient=False)
    if any(isinstance(c, HandshakeError) for c in causes):
        hint = "does it speak TLS? If not, write the endpoint with http://"
        speaks_tls = not any(isinstance(c, ssl.SSLError) and getattr(c, "reason", None) in _NO_TLS for c in causes)
        return MissingResponse(f"no secure connection to {endpoint}; {hint}", sent=False, transient=speaks_tls)
    if isinstance(error, requests.exceptions.SSLError | ssl.SSLError):
        return MissingResponse(
            f"the secure connection to {endpoint} broke before the response was complete", sent=True
        )
    if isinstance(error, requests.exceptions.ProxyError):
        return _no_proxy(causes, endpoint)
    unknown_host = next((c for c in causes if isinstance(c, socket.gaierror)), None)
    if unknown_host is not None:
        return _unknown_host(unknown_host, endpoint)
    # First this: before urllib3 2, each NewConnectionError was a ConnectTimeoutError, too.
    if any(isinstance(c, NewConnectionError) for c in causes):
        return _no_connection(causes, endpoint)
    if isinstance(error, requests.exceptions.ConnectTimeout | ConnectTimeoutError):
        return MissingResponse(
            f"{endpoint} cannot be reached in time; check the endpoint and the network{_other_host(endpoint)}",
            sent=False,
        )
    if isinstance(error, requests.exceptions.Timeout | ReadTimeoutError | TimeoutError):
        return MissingResponse(f"{endpoint} did not respond in time", sent=True)
    if isinstance(error, _BROKEN) or not isinstance(error, requests.RequestException | LocationValueError):
        # requests reports a timeout in the middle of a body as a broken connection.
        may_speak_tls = endpoint.startswith("http://") and any(isinstance(c, RemoteDisconnected) for c in causes)
        hint = "; if it speaks TLS, write the endpoint with https://" if may_speak_tls else ""
        return MissingResponse(
            f"the connection to {endpoint} broke off before the response was complete{hint}", sent=True
        )
    # All other errors are about the request itself. Their text may quote a header, and so a token.
    name = type(error).__name__
    return MissingResponse(f"the request to {endpoint} cannot be sent ({name})", sent=False, transient=False)


def _no_proxy(causes: list[BaseException], endpoint: str) -> MissingResponse:
    refused = next(filter(None, (re.search(r"Tunnel connection failed: (\d+)", str(c)) for c in causes)), None)
    did = f"refused the connection to {endpoint} (HTTP {refused[1]})" if refused else f"did not reach {endpoint}"
    transient = refused is None or refused[1].startswith("5")
    # urllib3 before 2.0 reports a connection that broke off while the response was awaited in the same way.
    sent = refused is None and not any(isinstance(c, NewConnectionError | ConnectTimeoutError) for c in causes)
    return MissingResponse(f"the proxy {did}; check HTTPS_PROXY and NO_PROXY", sent=sent, transient=transient)


def _unknown_host(error: socket.gaierror, endpoint: str) -> MissingResponse:
    if error.errno == socket.EAI_AGAIN:
        return MissingResponse(f"no network: the name of {endpoint} cannot be looked up now", sent=False)
    return MissingResponse(
        f"there is no host {endpoint}; check region and endpoint, and whether a VPC host can be reached from here"
        f"{_other_host(endpoint)}",
        sent=False,
        transient=False,
    )


def _no_connection(causes: list[BaseException], endpoint: str) -> MissingResponse:
    numbers = {c.errno for c in causes if isinstance(c, OSError)}
    if errno.ECONNREFUSED in numbers:
        return MissingResponse(
            f"nothing listens at {endpoint}; check the endpoint, or start the service{_other_host(endpoint)}",
            sent=False,
            refused=True,
        )
    if numbers & {errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN}:
        return MissingResponse(f"no network: there is no route to {endpoint}", sent=False)
    return MissingResponse(f"no connection to {endpoint}; check the endpoint and the network", sent=False)


def _other_host(endpoint: str) -> str:
    other = _OTHER_HOSTS.get(endpoint)
    return (
        f"; the region has another host too, which PAI's official client uses: endpoint={other!r}" if other else ""
    )


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yields an error and all nested errors; requests and urllib3 wrap them several times."""
    todo, visited = [error], set[int]()
    while todo:
        current = todo.pop()
        if id(current) in visited:
            continue
        visited.add(id(current))
        yield current
        inner = (current.__cause__, current.__context__, getattr(current, "reason", None), *current.args)
        todo += [each for each in inner if isinstance(each, BaseException)]
