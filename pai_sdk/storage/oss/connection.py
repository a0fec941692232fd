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

from pai_sdk.base.endpoint import Endpoint, host_of, is_alibaba_oss, is_loopback, region_of, with_scheme
from pai_sdk.base.retry import RetryPolicy
from pai_sdk.config.credentials import Credentials, CredentialsProvider
from pai_sdk.errors import CredentialsError, PaiError, SettingsError, StorageError, UntrustedEndpointError
from pai_sdk.storage.oss.bucket import HostSigned, OssBucket, Wires
from pai_sdk.storage.oss.errors import ForeignResponseError, storage_error
from pai_sdk.storage.oss2_import import oss2
from pai_sdk.storage.turns import without_turn
from pai_sdk.storage.uri import OssUri

__all__ = ["OssConnection"]

T = TypeVar("T")
Piece = TypeVar("Piece", bytes, memoryview)

_FAILURES = (oss2.exceptions.OssError, requests.RequestException, HTTPError, ParseError, RuntimeError, ValueError)
# A server that is not OSS mostly stays so; the attempts are few.
_MOST_FOREIGN_RESPONSES = 5

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
        # No bound method: buckets keep it, and a dropped connection must close without the garbage collector.
        self._key = partial(_key_of, credentials)
        self._wires = Wires(size=pool_size, timeouts_s=timeouts_s, direct=is_loopback(endpoint.url))
        self._auths: dict[str, HostSigned] = {}
        self._buckets: dict[tuple[str, str | None, str], OssBucket] = {}
        self._stopped = threading.Event()
        self._may_retry: Callable[[], bool] = lambda: True

    @property
    def endpoint(self) -> str:
        """The endpoint as a URL."""
        return self._endpoint.url

    def arguments(self) -> dict[str, Any]:
        """The arguments that another process needs for the same connection; with the key that is valid now."""
        return {
            "endpoint": self._endpoint.url,
            "region": self.region,
            "key": list(self._key()),
            "trusted_endpoints": list(self._trusted.values()),
        }

    def place(self, uri: OssUri) -> dict[str, str]:
        """The place of a folder, for a process that has a key of its own.

        Raises:
            UntrustedEndpointError: the URI names a host that is neither OSS nor in the settings.
        """
        endpoint, region = self._place_of(uri)
        return {
            "bucket": uri.bucket,
            "key": uri.as_dir().key,
            "endpoint": endpoint,
            "region": region,
            "url": self.bucket(uri).url,
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
        self._wires.close()

    def call(self, uri: OssUri, action: Callable[[OssBucket], T]) -> T:
        """Call the bucket of a URI, with retries as the policy allows.

        Args:
            uri: the object or folder.
            action: called with the bucket; it must be safe to repeat.

        Raises:
            StorageError: the call failed.
        """

        def attempt() -> T:
            bucket = self.bucket(uri)
            try:
                return action(bucket)
            except PaiError:
                raise
            except _FAILURES as error:
                made = storage_error(error, uri=uri, endpoint=bucket.endpoint)
                # An error before sending may quote the value of a header, so it is not chained.
                raise made from (error if made.status_code or made.retryable else None)

        foreign = 0

        def is_transient(error: BaseException) -> bool:
            nonlocal foreign
            foreign += isinstance(error, ForeignResponseError)
            may_retry = self._may_retry() and not self._stopped.is_set() and foreign < _MOST_FOREIGN_RESPONSES
            return may_retry and isinstance(error, PaiError) and error.retryable

        def on_retry(number: int, error: BaseException, pause_s: float) -> None:
            _log.info("attempt %d failed, the next follows in %.1f s: %s", number, pause_s, error)
            if isinstance(error, StorageError) and error.refused:
                self._endpoint.revive()

        return self._retry.call(attempt, is_transient=is_transient, on_retry=on_retry)

    def bucket(self, uri: OssUri) -> OssBucket:
        """The bucket of a URI, made once."""
        of = (self.endpoint, uri.endpoint, uri.bucket)
        bucket = self._buckets.get(of)
        if bucket is None:
            made: OssBucket = self._made(partial(OssBucket, wires=self._wires), uri)
            bucket = self._buckets.setdefault(of, made)
        return bucket

    def plain_bucket(self, uri: OssUri) -> Any:
        """The `oss2.Bucket` of a URI, which sends as oss2 itself does: for what a program does with it."""
        return self._made(partial(oss2.Bucket, session=self._wires.plain), uri)

    def _made(self, kind: Callable[..., Any], uri: OssUri) -> Any:
        endpoint, region = self._place_of(uri)
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


def _pause(stopped: threading.Event, seconds: float) -> None:
    with without_turn():
        stopped.wait(seconds)


def _key_of(credentials: CredentialsProvider) -> Credentials:
    """The key that is valid now.

    Raises:
        CredentialsError: it is a bearer token only.
    """
    key = credentials()
    if not key.access_key_id:
        raise CredentialsError("OSS takes no bearer token; give an access key (id and secret) too")
    return key
