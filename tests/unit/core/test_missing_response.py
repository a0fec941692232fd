"""Why no answer came, found from what requests raises."""

from __future__ import annotations

import errno
import socket
import ssl
from typing import Any

import pytest
import requests
from urllib3.exceptions import MaxRetryError, NewConnectionError, ProtocolError, ReadTimeoutError

from pai_sdk._core.connections import HandshakeError
from pai_sdk._core.missing_response import diagnose

pytestmark = pytest.mark.interpreter

HOST = "https://pai.example.com"


def wrapped(number: int) -> requests.ConnectionError:
    """As it comes out of urllib3 and requests."""
    try:
        try:
            raise OSError(number, "reason")
        except OSError as error:
            raise NewConnectionError(None, "cannot connect") from error  # type: ignore[arg-type]
    except NewConnectionError as error:
        return requests.ConnectionError(MaxRetryError(None, "/", error))  # type: ignore[arg-type]


def bad_certificate() -> requests.exceptions.SSLError:
    inner = ssl.SSLCertVerificationError(1, "self-signed certificate")
    inner.verify_message = "self-signed certificate"
    return requests.exceptions.SSLError(MaxRetryError(None, "/", inner))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("error", "sentence", "facts"),
    [
        (bad_certificate(), "is not accepted: self-signed certificate", {"sent": False, "transient": False}),
        (requests.exceptions.SSLError(HandshakeError("EOF")), "no secure connection to", {"sent": False}),
        (requests.exceptions.SSLError("bad record mac"), "the secure connection to", {"sent": True}),
        (
            requests.exceptions.ProxyError(OSError("Tunnel connection failed: 503")),
            "the proxy refused",
            {"sent": False},
        ),
        (requests.exceptions.ProxyError("reset"), "the proxy did not reach", {"sent": True}),
        (requests.exceptions.ConnectTimeout("x"), "cannot be reached in time", {"sent": False}),
        (requests.exceptions.ReadTimeout("x"), "did not respond in time", {"sent": True}),
        (wrapped(errno.ECONNREFUSED), "nothing listens at", {"sent": False, "refused": True}),
        (wrapped(errno.ENETUNREACH), "no network: there is no route to", {"sent": False}),
        (wrapped(errno.EMFILE), "no connection to", {"sent": False}),
        (requests.ConnectionError(ProtocolError("reset", OSError(104, "x"))), "broke off", {"sent": True}),
        (requests.exceptions.ChunkedEncodingError("x"), "broke off", {"sent": True}),
        (
            requests.ConnectionError(ReadTimeoutError(None, "/", "x")),  # type: ignore[arg-type]
            "broke off",
            {"sent": True},
        ),
        (
            requests.exceptions.InvalidHeader("token-in-a-header"),
            "cannot be sent (InvalidHeader)",
            {"sent": False, "transient": False},
        ),
    ],
)
def test_one_sentence_each(error: requests.RequestException, sentence: str, facts: dict[str, Any]) -> None:
    why = diagnose(error, HOST)
    assert sentence in why.sentence
    assert HOST in why.sentence
    assert "\n" not in why.sentence
    assert "token" not in why.sentence
    expected = {"transient": True, "refused": False} | facts
    assert {name: getattr(why, name) for name in expected} == expected


@pytest.mark.parametrize(
    "error",
    [
        requests.exceptions.ConnectTimeout("x"),
        requests.ConnectionError(socket.gaierror(socket.EAI_NONAME, "no such host")),
        wrapped(errno.ECONNREFUSED),
    ],
)
def test_hangzhou_has_two_hosts(error: requests.RequestException) -> None:
    ours, other = "https://pai.cn-hangzhou.aliyuncs.com", "pai.cn-hangzhou.data.aliyun.com"
    assert f"endpoint='{other}'" in diagnose(error, ours).sentence
    for elsewhere in (HOST, f"https://{other}", "https://pai.cn-shanghai.aliyuncs.com"):
        assert "endpoint=" not in diagnose(error, elsewhere).sentence
    assert "endpoint=" not in diagnose(requests.exceptions.ReadTimeout("x"), ours).sentence


def test_an_error_that_is_its_own_cause_ends() -> None:
    error = requests.ConnectionError("loop")
    error.__context__ = error
    assert diagnose(error, HOST).sent


@pytest.mark.parametrize("reason", ["WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"])
def test_an_endpoint_without_tls_is_not_retried(reason: str) -> None:
    inner = HandshakeError(1, f"[SSL: {reason}]")
    inner.__cause__ = ssl.SSLError(1, f"[SSL: {reason}]")
    inner.__cause__.reason = reason
    why = diagnose(requests.exceptions.SSLError(MaxRetryError(None, "/", inner)), HOST)  # type: ignore[arg-type]
    assert not why.transient
    assert "http://" in why.sentence
