"""Signed requests for the objects of one bucket, below oss2: bytes up and down, the facts about an object, copies.

oss2 needs 1.1 ms of processor time for a request: requests and urllib3 below it, a signature that derives its key
each time, texts for a log that is off. A request from here needs 0.1 ms. Errors are those of oss2 and requests, so
that one place translates both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Protocol, cast
from urllib.parse import quote, urlsplit

import requests

from pai_sdk.config.credentials import CredentialsProvider
from pai_sdk.storage.oss2_import import oss2
from pai_sdk.storage.oss_errors import NotOssError
from pai_sdk.storage.oss_http import HttpAnswer, HttpPool, Pieces
from pai_sdk.storage.oss_v4 import Signer, canonical_query

__all__ = ["BucketRequests", "Wire", "Wires", "content_type_of", "quoted"]

_ERROR_BYTES = 4096
_CHUNK_BYTES = 1 << 18


class Wire(Protocol):
    """Sends a request as it is; the headers have names in lower case."""

    def __call__(
        self, method: str, target: str, headers: Mapping[str, str], body: Pieces | None = None, /
    ) -> HttpAnswer:
        """Send it; returns when the headers of the answer are there."""
        ...


class BucketRequests:
    """Requests for the objects of one bucket at one endpoint. Safe to use from many threads.

    Args:
        endpoint: as a URL.
        bucket: its name.
        path_style: whether the bucket goes into the path even where the endpoint is a host name.
        credentials: asked before each request.
        signer: for the region of the endpoint.
        wires: one of them sends the requests.

    Attributes:
        endpoint: as given.
        url: that of an object with an empty key.
    """

    def __init__(
        self,
        endpoint: str,
        bucket: str,
        *,
        path_style: bool,
        credentials: CredentialsProvider,
        signer: Signer,
        wires: Wires,
    ) -> None:
        scheme, _, host = endpoint.partition("://")
        if path_style or oss2.utils.is_ip_or_localhost(host):
            self._host, self._path = host, f"/{bucket}/"
        else:
            self._host, self._path = f"{bucket}.{host}", "/"
        self.endpoint = endpoint
        self.url = f"{scheme}://{self._host}{self._path}"
        self._resource = f"/{bucket}/"
        self._credentials = credentials
        self._signer = signer
        self._wire = wires.to(self.url)
        self._agent = oss2.http.USER_AGENT

    def send(
        self,
        method: str,
        key: str,
        headers: Mapping[str, str] | None = None,
        *,
        body: Pieces | None = None,
        query: Mapping[str, str] | None = None,
    ) -> HttpAnswer:
        """Send a request; returns when the headers of its answer are there.

        Args:
            method: `GET` and so on.
            key: of the object.
            headers: names in lower case.
            body: the pieces of the body.
            query: parameters, not encoded.

        Raises:
            oss2.exceptions.OssError: OSS refused.
            NotOssError: a server that is not OSS answered.
            requests.RequestException: there was no answer.
        """
        path = quoted(key)
        text = canonical_query(query) if query else ""
        sent = {"host": self._host, "user-agent": self._agent, "accept-encoding": "identity", **(headers or {})}
        if method == "PUT":
            sent["content-length"] = str(0 if body is None else len(body))
        # A slash within a key is sent as %2F, so that nothing on the way resolves `..` or `//`.
        self._signer.sign(self._credentials(), method, self._resource + path.replace("%2F", "/"), text, sent)
        target = f"{self._path}{path}?{text}" if text else self._path + path
        answer = self._wire(method, target, sent, body)
        if answer.status // 100 != 2:
            with_body = _Refusal(answer.status, answer.headers, answer)
            error = oss2.exceptions.make_exception(with_body)
            answer.close()
            raise error
        if "x-oss-request-id" not in answer.headers:
            answer.close()
            raise NotOssError("without a request id")
        return answer


@dataclass
class _Refusal:
    """An answer in the form that oss2 makes an exception from."""

    status: int
    headers: Mapping[str, str]
    answer: HttpAnswer

    def read(self, size_bytes: int) -> bytes:
        return self.answer.read(size_bytes)[:size_bytes]


def quoted(key: str) -> str:
    """A key within a path, also its slashes.

    Example:
        >>> quoted("a b/c~")
        'a%20b%2Fc~'
    """
    return quote(key, safe="")


def content_type_of(key: str) -> str:
    """The content type that the name of an object suggests; empty when it suggests none.

    Example:
        >>> content_type_of("src/train.py"), content_type_of("LICENSE")
        ('text/x-python', '')
    """
    first, *suffixes = key.rpartition("/")[2].split(".")
    return _content_type_of(".".join(["x" if first else "", *suffixes[-2:]])) if suffixes else ""


@lru_cache(maxsize=1024)
def _content_type_of(name: str) -> str:
    return oss2.utils.content_type_by_name(name) or ""


class Wires:
    """What sends requests: connections of our own; where there is a proxy, the library requests. Safe for threads.

    Args:
        session: knows the proxies, if it looks into the environment for them; its hooks and rules are kept.
        size: how many connections are kept to each server.
        timeouts_s: for a connection to come up, and for the longest silence.
    """

    def __init__(self, session: requests.Session, *, size: int, timeouts_s: tuple[float, float]) -> None:
        self._session = session
        self._size = size
        self._timeouts_s = timeouts_s
        self._pools: dict[str, HttpPool] = {}

    def to(self, url: str) -> Wire:
        """What sends requests to the server of a URL."""
        server = urlsplit(url)
        root = f"{server.scheme}://{server.netloc}"
        settings = self._session.merge_environment_settings(root, {}, True, None, None)
        if requests.utils.select_proxy(root, settings["proxies"]):
            return partial(self._by_requests, root)
        pool = self._pools.get(root)
        if pool is None:
            pool = self._pools[root] = HttpPool(
                server.scheme,
                server.hostname or "",
                server.port,
                size=self._size,
                timeouts_s=self._timeouts_s,
                verify=settings["verify"] or True,
            )
        return pool.request

    def close(self) -> None:
        """Close the connections."""
        for pool in [*self._pools.values()]:
            pool.close()

    def _by_requests(
        self, root: str, method: str, target: str, headers: Mapping[str, str], body: Pieces | None = None
    ) -> HttpAnswer:
        got = self._session.request(
            method,
            root + target,
            data=cast(Any, body) or None,  # requests would send an empty one in chunks
            # It gives the length itself, and would give it twice.
            headers={name: value for name, value in headers.items() if name != "content-length"},
            stream=True,
            timeout=self._timeouts_s,
            allow_redirects=False,
        )
        pieces = got.raw.stream(_CHUNK_BYTES, decode_content=False)  # an object may be stored as gzip
        given = {name.lower(): value for name, value in got.headers.items()}
        return HttpAnswer(got.status_code, given, pieces, lambda is_whole: None if is_whole else got.close())
