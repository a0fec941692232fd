"""A bucket of oss2 whose requests need a sixth of the processor time.

All operations of `oss2.Bucket` send by one method, `_do`. `OssBucket` replaces it, so operations, models and
errors are those of oss2. A put of 4 KiB by `oss2.Bucket` needs 1.1 ms of processor time: 0.8 ms for requests and
urllib3, 0.15 ms for a signature that derives its key each time, the rest for its own objects and for texts of a
log that is off. By `OssBucket.send` it needs 0.17 ms (`tests/benchmarks/bench_store.py`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote, urlsplit

import requests
import requests.utils

from pai_sdk._core.config.credentials import Credentials
from pai_sdk._core.connections import PooledAdapter, stay_on_this_machine
from pai_sdk._data.storage.oss.errors import NotOssError
from pai_sdk._data.storage.oss.http import HttpPool, HttpResponse, RequestBody
from pai_sdk._data.storage.oss.v4 import Signer, canonical_query
from pai_sdk._data.storage.oss2_import import oss2
from pai_sdk._data.storage.permits import without_permit

_CHUNK_BYTES = 1 << 18
_ERROR_BYTES = 4096


class HostSigned(oss2.ProviderAuthV4):  # type: ignore[misc] # oss2 has no types
    """Signs the host too, so that no other host can use the request. Safe to use from many threads."""

    def __init__(self, key: Callable[[], Credentials], region: str) -> None:
        super().__init__(_Provider(key))
        self._key = key
        self._signer = Signer(region)

    def sign(self, method: str, bucket: str, path: str, query: str, headers: dict[str, str]) -> None:
        """Adds the signature to headers, whose names are in lower case."""
        self._signer.sign(self._key(), method, f"/{bucket}/{path}", query, headers)

    def _sign_request(self, req: Any, bucket_name: str, key: str, in_additional_headers: Any = None) -> None:
        headers = {name.lower(): value for name, value in req.headers.items() if value is not None}
        headers["host"] = urlsplit(req.url).netloc
        self.sign(req.method, bucket_name, quote(key), canonical_query(req.params), headers)
        req.headers = headers


class _Provider:
    """The key in the form that oss2 needs to sign URLs."""

    def __init__(self, key: Callable[[], Credentials]) -> None:
        self._key = key

    def get_credentials(self) -> Any:
        key = self._key()
        return oss2.credentials.Credentials(key.access_key_id, key.access_key_secret, key.security_token or "")


class OssBucket(oss2.Bucket):  # type: ignore[misc] # oss2 has no types
    """One bucket at one endpoint. Safe to use from many threads."""

    def __init__(
        self, auth: HostSigned, endpoint: str, name: str, *, transport: OssTransport, **settings: Any
    ) -> None:
        super().__init__(auth, endpoint, name, session=transport.plain, **settings)
        # Of an object with an empty key.
        self.url: str = self._make_url(name, "")
        scheme, _, self._host, path = self.url.split("/", 3)
        self._root = f"{scheme}//{self._host}"
        self._path = f"/{path}"
        self._transport = transport
        self._agent = oss2.http.USER_AGENT

    def send(
        self,
        method: str,
        key: str,
        headers: Mapping[str, str] | None = None,
        *,
        data: bytes | RequestBody | None = None,
        params: Mapping[str, str] | None = None,
    ) -> HttpResponse:
        """Sends a request; returns after the headers of the response arrived, and except for `GET` its body."""
        sent = {"host": self._host, "user-agent": self._agent, "accept-encoding": "identity"}
        for name, value in (headers or {}).items():
            sent[name.lower()] = value
        if method in ("PUT", "POST"):
            sent["content-length"] = str(0 if data is None else len(data))
        path, query = quote(key), canonical_query(params) if params else ""
        self.auth.sign(method, self.bucket_name, path, query, sent)
        # A slash within a key is sent as %2F, so that nothing on the way resolves `..` or `//`.
        target = self._path + path.replace("/", "%2F")
        response = self._transport.send(self._root, method, f"{target}?{query}" if query else target, sent, data)
        # The error has the start of the body only: another server may send anything.
        if response.status // 100 != 2:
            response.fetch(_ERROR_BYTES)
            raise oss2.exceptions.make_exception(response)
        if not response.request_id:
            response.close()  # its body is not read
            raise NotOssError("without a request id")
        if method != "GET":
            response.fetch()
        return response

    def _do(self, method: str, bucket_name: str, key: str, **request: Any) -> HttpResponse:
        request["data"] = oss2.compat.to_bytes(request.get("data"))
        return self.send(method, key, **request)


class OssTransport:
    """Sends requests over connections of our own; where the environment names a proxy, by the library requests.

    Safe to use from many threads.
    """

    # `size` is the number of idle connections per server, `direct` means without a proxy. `timeouts_s`: to
    # connect, and the maximum silence.
    def __init__(self, *, size: int, timeouts_s: tuple[float, float], direct: bool) -> None:
        self.plain = oss2.Session(adapter=PooledAdapter(hosts=8, size=size))
        self._session: requests.Session = self.plain.session
        # Without this, requests would replace our signature by the entry of ~/.netrc for the host.
        self._session.auth = lambda request: request
        self._session.hooks["response"].append(_must_be_oss)
        # OSS never redirects. Another server that does would get the security token and the content.
        self._session.get_redirect_target = lambda response: None
        if direct:
            stay_on_this_machine(self._session)
        self._size = size
        self._timeouts_s = timeouts_s
        # None for a server behind a proxy: `_send_by_requests` sends to it.
        self._pools: dict[str, HttpPool | None] = {}
        self._pools_lock = threading.Lock()

    def send(
        self, root: str, method: str, target: str, headers: Mapping[str, str], data: bytes | RequestBody | None
    ) -> HttpResponse:
        """Sends a request; returns after the headers of the response arrived."""
        if root not in self._pools:
            # A pool reads the certificates, which takes 20 ms: once, not for each thread that starts.
            with self._pools_lock:
                if root not in self._pools:
                    self._pools[root] = self._create_pool(root)
        pool = self._pools[root]
        if pool is None:
            return self._send_by_requests(method, root + target, headers, data)
        return pool.request(method, target, headers, (data,) if isinstance(data, bytes) else data)

    def close(self) -> None:
        """Closes the connections."""
        self._session.close()
        # A copy: another thread may add a pool meanwhile.
        for pool in [*self._pools.values()]:
            if pool:
                pool.close()

    def _create_pool(self, root: str) -> HttpPool | None:
        settings = self._session.merge_environment_settings(root, {}, True, None, None)
        if requests.utils.select_proxy(root, settings["proxies"]):
            return None
        server = urlsplit(root)
        return HttpPool(
            server.scheme,
            server.hostname or "",
            server.port,
            size=self._size,
            timeouts_s=self._timeouts_s,
            verify=settings["verify"] or True,
        )

    def _send_by_requests(
        self, method: str, url: str, headers: Mapping[str, str], data: bytes | RequestBody | None
    ) -> HttpResponse:
        try:
            with without_permit():
                response = self._session.request(
                    method,
                    url,
                    data=data or None,  # type: ignore[arg-type] # an empty one would be sent in chunks
                    # It gives the length itself, and would give it twice.
                    headers={name: value for name, value in headers.items() if name != "content-length"},
                    stream=True,
                    timeout=self._timeouts_s,
                )
        except requests.RequestException as error:
            raise oss2.exceptions.RequestError(error) from error
        # Not decoded: an object may be stored as gzip.
        chunks = response.raw.stream(_CHUNK_BYTES, decode_content=False)
        response_headers = {name.lower(): value for name, value in response.headers.items()}
        return HttpResponse(
            response.status_code,
            response_headers,
            chunks,
            lambda is_complete: None if is_complete else response.close(),
        )


def _must_be_oss(response: requests.Response, **_: Any) -> None:
    """Raises for a success without a request id, which OSS always sends: another server responded."""
    if response.status_code < 300 and "x-oss-request-id" not in response.headers:
        response.close()  # its body is not read
        raise NotOssError("without a request id")
