"""Calls to OSS: one key, one retry and one translation of errors for all of them.

Content, the facts about an object and copies go by requests of our own (`BucketRequests`), which need a tenth of
the processor time of oss2's. oss2 makes the other calls: lists, deletions, begin and end of uploads in parts.
"""

from __future__ import annotations

import copy
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeVar
from urllib.parse import urlsplit
from xml.etree.ElementTree import ParseError

import requests
from urllib3.exceptions import HTTPError

from pai_sdk.base.connections import PooledAdapter, stay_on_this_machine
from pai_sdk.base.endpoint import Endpoint, host_of, is_alibaba_oss, is_loopback, region_of, with_scheme
from pai_sdk.base.retry import RetryPolicy
from pai_sdk.config.credentials import Credentials, CredentialsProvider
from pai_sdk.errors import CredentialsError, PaiError, SettingsError, StorageError, UntrustedEndpointError
from pai_sdk.storage.oss2_import import ignore_utcnow, oss2
from pai_sdk.storage.oss_errors import ForeignAnswerError, NotOssError, storage_error
from pai_sdk.storage.oss_requests import BucketRequests, Wires
from pai_sdk.storage.oss_v4 import Signer
from pai_sdk.storage.uri import OssUri

__all__ = ["OssConnection"]

T = TypeVar("T")


class _HasEndpoint(Protocol):
    endpoint: str


B = TypeVar("B", bound=_HasEndpoint)
Piece = TypeVar("Piece", bytes, memoryview)

_FAILURES = (oss2.exceptions.OssError, requests.RequestException, HTTPError, ParseError, RuntimeError)
# A server that is not OSS mostly stays so; the attempts are few.
_MOST_FOREIGN_ANSWERS = 5

_log = logging.getLogger(__name__)

# Below these levels oss2 writes request headers, and with them the security token, into the log.
for _name, _level in (("oss2.http", logging.INFO), ("oss2.auth", logging.INFO), ("oss2.api", logging.WARNING)):
    logging.getLogger(_name).setLevel(_level)


class OssConnection:
    """Signed calls to the buckets of one endpoint. Safe to use from many threads.

    Args:
        endpoint: where.
        credentials: asked before each request.
        region: needed when the endpoint does not name one; otherwise the one of the endpoint is signed for.
        retry: the policy for every call.
        path_style: whether the bucket goes into the path even where the endpoint is a host name.
        pool_size: connections kept open.
        timeouts_s: for a connection to come up, and for the longest silence.
        trusted_endpoints: further endpoints that URIs may name.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        credentials: CredentialsProvider,
        *,
        region: str | None,
        retry: RetryPolicy,
        path_style: bool,
        pool_size: int,
        timeouts_s: tuple[float, float],
        trusted_endpoints: Sequence[str] = (),
    ) -> None:
        self._endpoint = endpoint
        known = region_of(endpoint.url) or region
        if not known:
            raise SettingsError(f"the OSS endpoint {endpoint} does not name its region; set the region too")
        self.region = known
        self._retry = retry
        self._path_style = path_style
        self._timeouts_s = timeouts_s
        self._trusted = {host_of(each): with_scheme(each) for each in trusted_endpoints}
        self._provider = _Provider(credentials)
        self._auth = _HostSigned(self._provider)
        self._session = _session(pool_size, direct=is_loopback(endpoint.url))
        self._wires = Wires(self._session.session, size=pool_size, timeouts_s=timeouts_s)
        self._signers: dict[str, Signer] = {}
        self._buckets: dict[tuple[str, str], Any] = {}
        self._requests: dict[tuple[str, str | None, str], BucketRequests] = {}
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._may_retry: Callable[[], bool] = lambda: True

    @property
    def endpoint(self) -> str:
        """The endpoint as a URL."""
        return self._endpoint.url

    def arguments(self) -> dict[str, Any]:
        """What another process needs for the same connection; with the key that is valid now."""
        return {
            "endpoint": self._endpoint.url,
            "region": self.region,
            "key": list(self._provider.key()),
            "trusted_endpoints": list(self._trusted.values()),
        }

    def place(self, uri: OssUri) -> dict[str, str]:
        """Where a folder is, for a process that has a key of its own.

        Raises:
            UntrustedEndpointError: the URI names a host that is neither OSS nor in the settings.
        """
        endpoint, region = self._place_of(uri)
        url = self.requests(uri).url
        return {
            "bucket": uri.bucket,
            "key": uri.as_dir().key,
            "endpoint": endpoint,
            "region": region,
            "url": url,
        }

    def cancelled_by(self, stopped: threading.Event, may_retry: Callable[[], bool]) -> OssConnection:
        """The same connections for one transfer.

        Args:
            stopped: when it is set, calls fail within moments.
            may_retry: called after each failed attempt: whether another one may follow.
        """
        made = copy.copy(self)
        made._stopped = stopped
        made._may_retry = may_retry
        if self._retry.sleep is time.sleep:
            # A function of the event: a method of `made` would keep its connections until a garbage collection.
            made._retry = replace(self._retry, sleep=lambda seconds: _pause(stopped, seconds))
        return made

    def check_cancelled(self, pieces: Iterable[Piece]) -> Iterator[Piece]:
        """Yield the pieces that are sent or received, as long as the transfer is not cancelled.

        Raises:
            StorageError: it is cancelled.
        """
        for piece in pieces:
            if self._stopped.is_set():
                raise StorageError("the transfer was stopped")
            yield piece

    def close(self) -> None:
        """Close the connections."""
        self._session.session.close()
        self._wires.close()

    def call(self, uri: OssUri, action: Callable[[Any], T]) -> T:
        """Call the bucket of a URI by oss2, with retries as the policy allows.

        Args:
            uri: the object or folder.
            action: called with the `oss2.Bucket`; it must be safe to repeat.

        Raises:
            StorageError: the call failed.
        """
        return self._retried(uri, self.bucket, action)

    def request(self, uri: OssUri, action: Callable[[BucketRequests], T]) -> T:
        """Make requests to the bucket of a URI, with retries as the policy allows.

        Args:
            uri: the object.
            action: called with what sends the requests; it must be safe to repeat.

        Raises:
            StorageError: the request failed.
        """
        return self._retried(uri, self.requests, action)

    def _retried(self, uri: OssUri, find: Callable[[OssUri], B], action: Callable[[B], T]) -> T:
        def attempt() -> T:
            bucket = find(uri)
            try:
                return action(bucket)
            except _FAILURES as error:
                made = storage_error(error, uri=uri, endpoint=bucket.endpoint)
                # An error before sending may quote the value of a header, so it is not chained.
                raise made from (error if made.status_code or made.retryable else None)

        foreign = 0

        def is_transient(error: BaseException) -> bool:
            nonlocal foreign
            foreign += isinstance(error, ForeignAnswerError)
            may_retry = self._may_retry() and not self._stopped.is_set() and foreign < _MOST_FOREIGN_ANSWERS
            return may_retry and isinstance(error, PaiError) and error.retryable

        def on_retry(number: int, error: BaseException, pause_s: float) -> None:
            _log.info("attempt %d failed, the next follows in %.1f s: %s", number, pause_s, error)
            if isinstance(error, StorageError) and error.refused:
                self._endpoint.revive()

        return self._retry.call(attempt, is_transient=is_transient, on_retry=on_retry)

    def bucket(self, uri: OssUri) -> Any:
        """The `oss2.Bucket` for a URI, made once."""
        endpoint, region = self._place_of(uri)
        with self._lock:
            bucket = self._buckets.get((endpoint, uri.bucket))
            if bucket is None:
                bucket = self._buckets[endpoint, uri.bucket] = oss2.Bucket(
                    self._auth,
                    endpoint,
                    uri.bucket,
                    session=self._session,
                    connect_timeout=self._timeouts_s,
                    # oss2 counts CRC64 in Python, at a few MB/s, where crcmod has no C extension; MD5 and SHA-256
                    # take its place.
                    enable_crc=False,
                    region=region,
                    is_path_style=self._path_style and endpoint == self.endpoint,
                )
            return bucket

    def requests(self, uri: OssUri) -> BucketRequests:
        """What sends requests to the bucket of a URI, made once."""
        of = (self.endpoint, uri.endpoint, uri.bucket)
        found = self._requests.get(of)
        if found is None:
            endpoint, region = self._place_of(uri)
            with self._lock:
                found = self._requests[of] = BucketRequests(
                    endpoint,
                    uri.bucket,
                    path_style=self._path_style and endpoint == self.endpoint,
                    credentials=self._provider.key,
                    signer=self._signers.setdefault(region, Signer(region)),
                    wires=self._wires,
                )
        return found

    def _place_of(self, uri: OssUri) -> tuple[str, str]:
        """Endpoint and region for a URI. Inner and outer endpoint of a region are one place.

        Raises:
            UntrustedEndpointError: the server there may be another than OSS.
        """
        # A service that has moved to another port still has the files of URIs with the former one.
        if uri.endpoint is None or host_of(uri.endpoint) in self._endpoint.hosts:
            return self.endpoint, self.region
        region = region_of(uri.endpoint)
        if region and region == region_of(self.endpoint):
            return self.endpoint, self.region
        endpoint = self._trusted.get(host_of(uri.endpoint))
        if endpoint is None and is_alibaba_oss(uri.endpoint):
            endpoint = f"https://{uri.endpoint}"
        if endpoint is None:
            raise UntrustedEndpointError(
                f"{uri}: no request is signed for {uri.endpoint}, which is neither an OSS host of Alibaba Cloud "
                f"nor this session's OSS endpoint ({self.endpoint}), because the owner of that host could use the "
                f"signature and the security token. If you trust it, name it: "
                f"Session(trusted_oss_endpoints={uri.endpoint!r}), or PAI_TRUSTED_OSS_ENDPOINTS={uri.endpoint}",
                uri=str(uri),
            )
        return endpoint, region or self.region


class _HostSigned(oss2.ProviderAuthV4):  # type: ignore[misc] # oss2 has no types
    """Signs the host too, so that no other host can use the request."""

    def _sign_request(self, req: Any, bucket_name: str, key: str, in_additional_headers: Any = None) -> None:
        req.headers["host"] = urlsplit(req.url).netloc
        ignore_utcnow()
        super()._sign_request(req, bucket_name, key, {*(in_additional_headers or ()), "host"})


class _Provider:
    """Our credentials in the form that oss2 asks for, all parts read at one time."""

    def __init__(self, credentials: CredentialsProvider) -> None:
        self._credentials = credentials

    def key(self) -> Credentials:
        key = self._credentials()
        if not key.access_key_id:
            raise CredentialsError("OSS takes no bearer token; give an access key (id and secret) too")
        return key

    def get_credentials(self) -> Any:
        key = self.key()
        return oss2.credentials.Credentials(key.access_key_id, key.access_key_secret, key.security_token or "")


def _must_be_oss(answer: requests.Response, **_: Any) -> None:
    """OSS gives each response an id. A success without it comes from another server, and nothing was done."""
    if answer.status_code < 300 and "x-oss-request-id" not in answer.headers:
        answer.close()  # its body is not read
        raise NotOssError("without a request id")


def _session(pool_size: int, *, direct: bool) -> Any:
    session = oss2.Session(adapter=PooledAdapter(hosts=8, size=pool_size))
    # Without this, requests would replace our signature by the entry of ~/.netrc for the host.
    session.session.auth = lambda request: request
    session.session.hooks["response"].append(_must_be_oss)
    # OSS never redirects. Another server that does would get the security token and the content.
    session.session.get_redirect_target = lambda answer: None
    if direct:
        stay_on_this_machine(session.session)
    return session


def _pause(stopped: threading.Event, seconds: float) -> None:
    stopped.wait(seconds)
