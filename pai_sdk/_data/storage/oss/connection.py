"""Calls to OSS by oss2: one key, one retry and one translation of errors for all of them."""

from __future__ import annotations

import copy
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar
from xml.etree.ElementTree import ParseError

import requests
from urllib3.exceptions import HTTPError

from pai_sdk._core.config.credentials import Credentials, CredentialsProvider
from pai_sdk._core.endpoint import Endpoint, host_of, is_alibaba_oss, is_loopback, region_of, with_scheme
from pai_sdk._core.retry import RetryPolicy
from pai_sdk._data.storage.oss.bucket import HostSigned, OssBucket, OssTransport
from pai_sdk._data.storage.oss.errors import ForeignResponseError, storage_error
from pai_sdk._data.storage.oss2_import import oss2
from pai_sdk._data.storage.permits import without_permit
from pai_sdk._data.storage.uri import OssUri
from pai_sdk.errors import CredentialsError, PaiError, SettingsError, StorageError, UntrustedEndpointError

T = TypeVar("T")
Chunk = TypeVar("Chunk", bound=bytes | memoryview)

_FAILURES = (oss2.exceptions.OssError, requests.RequestException, HTTPError, ParseError, RuntimeError, ValueError)
# A server that is not OSS mostly stays so; the attempts are few.
_MAX_FOREIGN_RESPONSES = 5

_log = logging.getLogger(__name__)

# Below these levels oss2 writes request headers, and with them the security token, into the log.
for _name, _level in (("oss2.http", logging.INFO), ("oss2.auth", logging.INFO), ("oss2.api", logging.WARNING)):
    logging.getLogger(_name).setLevel(_level)


class OssConnection:
    """Signed calls to the buckets of one endpoint. Safe to use from many threads."""

    def __init__(
        self,
        endpoint: Endpoint,
        # Called before each request.
        credentials: CredentialsProvider,
        *,
        # For endpoints that name no region; a region in the endpoint has precedence.
        region: str | None,
        retry: RetryPolicy,
        # True: the bucket is part of the path even if the endpoint is a host name.
        path_style: bool,
        pool_size: int,
        # To connect, and the maximum silence.
        timeouts_s: tuple[float, float],
        # Further endpoints that URIs may name.
        trusted_endpoints: Sequence[str] = (),
    ) -> None:
        self._endpoint = endpoint
        signing_region = region_of(endpoint.url) or region
        if not signing_region:
            raise SettingsError(f"the OSS endpoint {endpoint} does not name its region; set the region too")
        self.region = signing_region
        self._retry = retry
        self._path_style = path_style
        self._timeouts_s = timeouts_s
        self._trusted = {host_of(each): with_scheme(each) for each in trusted_endpoints}
        # No bound method: buckets keep it, and a dropped connection must close without the garbage collector.
        self._key = partial(_key_of, credentials)
        self._transport = OssTransport(size=pool_size, timeouts_s=timeouts_s, direct=is_loopback(endpoint.url))
        self._auths: dict[str, HostSigned] = {}
        self._buckets: dict[tuple[str, str | None, str], OssBucket] = {}
        self._stopped = threading.Event()
        self._may_retry: Callable[[], bool] = lambda: True
        # By the URLs of buckets whose responses have none; copies share it.
        self.without_crc64: dict[str, object] = {}

    @property
    def endpoint(self) -> str:
        """Returns the endpoint as a URL."""
        return self._endpoint.url

    def arguments(self) -> dict[str, Any]:
        """Returns the arguments for an equal connection in another process, with the current key."""
        return {
            "endpoint": self._endpoint.url,
            "region": self.region,
            "key": list(self._key()),
            "trusted_endpoints": list(self._trusted.values()),
        }

    def location(self, uri: OssUri) -> dict[str, str]:
        """Returns the location of a folder, for a process that has its own key."""
        endpoint, region = self._endpoint_and_region(uri)
        return {
            "bucket": uri.bucket,
            "key": uri.as_dir().key,
            "endpoint": endpoint,
            "region": region,
            "url": self.bucket(uri).url,
        }

    def cancelled_by(self, stopped: threading.Event, may_retry: Callable[[], bool]) -> OssConnection:
        """Returns a copy for one transfer, over the same connections: calls fail soon after `stopped` is set."""
        connection = copy.copy(self)
        connection._stopped = stopped
        # Called after each failed attempt.
        connection._may_retry = may_retry
        # A sleep of a test or of the caller stays in use.
        if self._retry.sleep is time.sleep:
            # A function of the event: a method of the copy would keep its connections until a garbage collection.
            connection._retry = replace(self._retry, sleep=lambda seconds: _pause(stopped, seconds))
        return connection

    def check_cancelled(self, chunks: Iterable[Chunk]) -> Iterator[Chunk]:
        """Yields the chunks that are sent or received; raises StorageError when the transfer is cancelled."""
        for chunk in chunks:
            if self._stopped.is_set():
                raise StorageError("the transfer was stopped")
            yield chunk

    def close(self) -> None:
        """Closes the connections."""
        self._transport.close()

    def call(self, uri: OssUri, action: Callable[[OssBucket], T]) -> T:
        """Calls an action that is safe to repeat with the bucket of a URI, with the retries of the policy."""

        def attempt() -> T:
            bucket = self.bucket(uri)
            try:
                return action(bucket)
            except PaiError:
                raise
            except _FAILURES as error:
                translated = storage_error(error, uri=uri, endpoint=bucket.endpoint)
                # An error before sending may quote the value of a header, so it is not chained.
                raise translated from (error if translated.status_code or translated.retryable else None)

        foreign = 0

        def is_transient(error: BaseException) -> bool:
            nonlocal foreign
            foreign += isinstance(error, ForeignResponseError)
            may_retry = self._may_retry() and not self._stopped.is_set() and foreign < _MAX_FOREIGN_RESPONSES
            return may_retry and isinstance(error, PaiError) and error.retryable

        def on_retry(number: int, error: BaseException, pause_s: float) -> None:
            _log.info("attempt %d failed, the next follows in %.1f s: %s", number, pause_s, error)
            if isinstance(error, StorageError) and error.refused:
                # Before the next attempt: the service may listen on another port after its restart.
                self._endpoint.revive()

        return self._retry.call(attempt, is_transient=is_transient, on_retry=on_retry)

    def bucket(self, uri: OssUri) -> OssBucket:
        """Returns the cached bucket of a URI."""
        key = (self.endpoint, uri.endpoint, uri.bucket)
        bucket = self._buckets.get(key)
        if bucket is None:
            created: OssBucket = self._create_bucket(partial(OssBucket, transport=self._transport), uri)
            # Two threads may create the bucket at once; the first one stored is used by both.
            bucket = self._buckets.setdefault(key, created)
        return bucket

    def plain_bucket(self, uri: OssUri) -> Any:
        """Returns the `oss2.Bucket` of a URI, for callers that use oss2 directly; it sends as oss2 does."""
        return self._create_bucket(partial(oss2.Bucket, session=self._transport.plain), uri)

    def _create_bucket(self, kind: Callable[..., Any], uri: OssUri) -> Any:
        endpoint, region = self._endpoint_and_region(uri)
        return kind(
            self._auths.setdefault(region, HostSigned(self._key, region)),
            endpoint,
            uri.bucket,
            connect_timeout=self._timeouts_s,
            # oss2 counts CRC64 in Python, at a few MB/s, where crcmod has no C extension; MD5 and SHA-256
            # take its place.
            enable_crc=False,
            region=region,
            is_path_style=self._path_style and endpoint == self.endpoint,
        )

    def _endpoint_and_region(self, uri: OssUri) -> tuple[str, str]:
        """Returns endpoint and region for a URI. Internal and public endpoint of a region count as equal."""
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


def _pause(stopped: threading.Event, seconds: float) -> None:
    with without_permit():
        stopped.wait(seconds)


def _key_of(credentials: CredentialsProvider) -> Credentials:
    """Returns the current key; refuses a bearer token without one."""
    key = credentials()
    if not key.access_key_id:
        raise CredentialsError("OSS takes no bearer token; give an access key (id and secret) too")
    return key
