"""Diagnoses a missing response: why none came, and whether the request may have been carried out."""

from __future__ import annotations

import errno
import re
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass

import requests
from urllib3.exceptions import ConnectTimeoutError, HTTPError, NewConnectionError, ReadTimeoutError

from pai_sdk.base.connections import HandshakeError

__all__ = ["Unanswered", "diagnose"]

# PAI's official client asks another host of this region than all the rest do.
_OTHER_HOSTS = {"https://pai.cn-hangzhou.aliyuncs.com": "pai.cn-hangzhou.data.aliyun.com"}
# What OpenSSL calls an answer in plain HTTP; the name changed with 3.2.
_NO_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST")


@dataclass(frozen=True)
class Unanswered:
    """Why there was no response.

    Attributes:
        sentence: the reason, for a message.
        sent: whether the request may have arrived.
        transient: whether another attempt may succeed.
        refused: whether nothing listens at the endpoint.
    """

    sentence: str
    sent: bool
    transient: bool = True
    refused: bool = False


def diagnose(error: requests.RequestException | HTTPError, endpoint: str) -> Unanswered:
    """Find out what an error of requests means, or one of urllib3, which is raised while a body is read.

    Args:
        error: what was raised.
        endpoint: the endpoint of the request.

    Example:
        >>> diagnose(requests.exceptions.ReadTimeout(), "https://pai.cn-hangzhou.aliyuncs.com").sent
        True
    """
    causes = [*_causes(error)]
    certificate = next((c for c in causes if isinstance(c, ssl.SSLCertVerificationError)), None)
    if certificate is not None:
        why = certificate.verify_message or "not trusted"
        hint = "a CA of your own is named by REQUESTS_CA_BUNDLE"
        sentence = f"the certificate of {endpoint} is not accepted: {why}; {hint}"
        return Unanswered(sentence, sent=False, transient=False)
    if any(isinstance(c, HandshakeError) for c in causes):
        hint = "does it speak TLS? If not, write the endpoint with http://"
        speaks_tls = not any(isinstance(c, ssl.SSLError) and getattr(c, "reason", None) in _NO_TLS for c in causes)
        return Unanswered(f"no secure connection to {endpoint}; {hint}", sent=False, transient=speaks_tls)
    if isinstance(error, requests.exceptions.SSLError):
        return Unanswered(f"the secure connection to {endpoint} broke before the answer was whole", sent=True)
    if isinstance(error, requests.exceptions.ProxyError):
        return _no_proxy(causes, endpoint)
    unknown_host = next((c for c in causes if isinstance(c, socket.gaierror)), None)
    if unknown_host is not None:
        return _unknown_host(unknown_host, endpoint)
    if isinstance(error, requests.exceptions.ConnectTimeout):
        return Unanswered(
            f"{endpoint} cannot be reached in time; check the endpoint and the network{_other_host(endpoint)}",
            sent=False,
        )
    if any(isinstance(c, NewConnectionError) for c in causes):
        return _no_connection(causes, endpoint)
    if isinstance(error, requests.exceptions.Timeout | ReadTimeoutError):
        return Unanswered(f"{endpoint} did not respond in time", sent=True)
    if isinstance(
        error,
        requests.exceptions.ConnectionError
        | requests.exceptions.ChunkedEncodingError
        | requests.exceptions.ContentDecodingError
        | HTTPError,
    ):
        # requests reports a timeout in the middle of a body as a broken connection.
        return Unanswered(f"the connection to {endpoint} broke off before the answer was whole", sent=True)
    # All other errors are about the request itself. Their text may quote a header, and so a token.
    name = type(error).__name__
    return Unanswered(f"the request to {endpoint} cannot be sent ({name})", sent=False, transient=False)


def _no_proxy(causes: list[BaseException], endpoint: str) -> Unanswered:
    refused = next(filter(None, (re.search(r"Tunnel connection failed: (\d+)", str(c)) for c in causes)), None)
    did = f"refused the way to {endpoint} (HTTP {refused[1]})" if refused else f"did not reach {endpoint}"
    transient = refused is None or refused[1].startswith("5")
    # urllib3 before 2.0 reports a connection that broke off while the answer was awaited in the same way.
    sent = refused is None and not any(isinstance(c, NewConnectionError | ConnectTimeoutError) for c in causes)
    return Unanswered(f"the proxy {did}; check HTTPS_PROXY and NO_PROXY", sent=sent, transient=transient)


def _unknown_host(error: socket.gaierror, endpoint: str) -> Unanswered:
    if error.errno == socket.EAI_AGAIN:
        return Unanswered(f"no network: the name of {endpoint} cannot be looked up now", sent=False)
    return Unanswered(
        f"there is no host {endpoint}; check region and endpoint, and whether a VPC host is in reach from here"
        f"{_other_host(endpoint)}",
        sent=False,
        transient=False,
    )


def _no_connection(causes: list[BaseException], endpoint: str) -> Unanswered:
    numbers = {c.errno for c in causes if isinstance(c, OSError)}
    if errno.ECONNREFUSED in numbers:
        return Unanswered(
            f"nothing listens at {endpoint}; check the endpoint, or start the service{_other_host(endpoint)}",
            sent=False,
            refused=True,
        )
    if numbers & {errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN}:
        return Unanswered(f"no network: there is no way to {endpoint} from here", sent=False)
    return Unanswered(f"no connection to {endpoint}; check the endpoint and the network", sent=False)


def _other_host(endpoint: str) -> str:
    other = _OTHER_HOSTS.get(endpoint)
    return (
        f"; the region has another host too, which PAI's official client uses: endpoint={other!r}" if other else ""
    )


def _causes(error: BaseException) -> Iterator[BaseException]:
    """An error and all errors inside it; requests and urllib3 wrap them several times."""
    todo, seen = [error], set[int]()
    while todo:
        current = todo.pop()
        if id(current) in seen:
            continue
        seen.add(id(current))
        yield current
        inner = (current.__cause__, current.__context__, getattr(current, "reason", None), *current.args)
        todo += [each for each in inner if isinstance(each, BaseException)]
