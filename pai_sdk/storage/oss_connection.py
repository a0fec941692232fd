"""How OSS is reached: one pool of connections, one signer, one bucket object each, one way to call and to fail."""

from __future__ import annotations

import copy
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar
from urllib.parse import urlsplit
from xml.etree.ElementTree import ParseError

import requests
from urllib3.exceptions import HTTPError

from pai_sdk.base.connections import PooledAdapter, stay_on_this_machine
from pai_sdk.base.endpoint import host_of, is_alibaba_oss, is_loopback, region_of, with_scheme
from pai_sdk.base.retry import RetryPolicy
from pai_sdk.config.credentials import CredentialsProvider
from pai_sdk.errors import CredentialsError, SettingsError, StorageError, UntrustedEndpointError
from pai_sdk.storage.faults import TransientStorageError, is_transient
from pai_sdk.storage.oss2_import import ignore_utcnow, oss2
from pai_sdk.storage.oss_errors import NotOssError, storage_error
from pai_sdk.storage.uri import OssUri

__all__ = ["OssConnection"]

T = TypeVar("T")
Piece = TypeVar("Piece", bytes, memoryview)

_FAILURES = (oss2.exceptions.OssError, requests.RequestException, HTTPError, ParseError, RuntimeError)
# Where something else answers than OSS, it mostly goes on doing so, and nobody wants to wait.
_MOST_STRANGE_ANSWERS = 5

_log = logging.getLogger(__name__)

# Below these levels oss2 writes request headers, and with them the security token, into the log.
for _name, _level in (("oss2.http", logging.INFO), ("oss2.auth", logging.INFO), ("oss2.api", logging.WARNING)):
    logging.getLogger(_name).setLevel(_level)


class OssConnection:
    """Signed calls to the buckets of one endpoint. Safe to use from many threads.

    Args:
        endpoint: where; https unless it says http:// itself.
        credentials: asked before each request.
        region: needed when the endpoint does not name one; otherwise the one of the endpoint is signed for.
        retry: the policy for every call.
        path_style: whether the bucket goes into the path even where the endpoint is a host name.
        pool_size: connections kept open.
        timeouts_s: for a connection to come up, and for the longest silence.
        on_unreachable: called when nothing listens at the endpoint, before each further attempt; gives the new
            endpoint when that is another.
        trusted_endpoints: further endpoints that URIs may name.
    """

    def __init__(
        self,
        endpoint: str,
        credentials: CredentialsProvider,
        *,
        region: str | None,
        retry: RetryPolicy,
        path_style: bool,
        pool_size: int,
        timeouts_s: tuple[float, float],
        on_unreachable: Callable[[], str | None] | None = None,
        trusted_endpoints: Sequence[str] = (),
    ) -> None:
        self.endpoint = with_scheme(endpoint)
        known = region_of(endpoint) or region
        if not known:
            raise SettingsError(f"the OSS endpoint {endpoint} does not tell its region; set the region too")
        self.region = known
        self._retry = retry
        self._path_style = path_style
        self._timeouts_s = timeouts_s
        self._on_unreachable = on_unreachable
        self._own_hosts = {host_of(endpoint)}
        self._trusted = {host_of(each): with_scheme(each) for each in trusted_endpoints}
        self._auth = _HostSigned(_Provider(credentials))
        self._session = _session(pool_size, direct=is_loopback(endpoint))
        self._buckets: dict[tuple[str, str], Any] = {}
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._is_patient: Callable[[], bool] = lambda: True

    def until(self, stopped: threading.Event, is_patient: Callable[[], bool]) -> OssConnection:
        """The same connections for one transfer.

        Args:
            stopped: when it is set, calls end within moments, as failures.
            is_patient: asked after each failed attempt whether there may be another.
        """
        made = copy.copy(self)
        made._stopped = stopped
        made._is_patient = is_patient
        if self._retry.sleep is time.sleep:
            made._retry = replace(self._retry, sleep=made._pause)
        return made

    def go_on(self, pieces: Iterable[Piece]) -> Iterator[Piece]:
        """Hand on what is sent or received, until the event is set.

        Raises:
            StorageError: it is.
        """
        for piece in pieces:
            if self._stopped.is_set():
                raise StorageError("the transfer was stopped")
            yield piece

    def _pause(self, seconds: float) -> None:
        self._stopped.wait(seconds)

    def close(self) -> None:
        """Close the connections."""
        self._session.session.close()

    def call(self, uri: OssUri, action: Callable[[Any], T]) -> T:
        """Do something with the bucket of a URI, again as long as the policy allows.

        Args:
            uri: what it is about.
            action: given the `oss2.Bucket`; it must be safe to repeat.

        Raises:
            StorageError: whatever oss2 or the network had to say.
        """

        def attempt() -> T:
            bucket = self.bucket(uri)
            try:
                return action(bucket)
            except _FAILURES as error:
                made = storage_error(error, uri=uri, endpoint=bucket.endpoint)
                # What could not even be sent may hold a header's value; such an error stands alone.
                raise made from (error if made.status_code or is_transient(made) else None)

        strange = 0

        def is_worth_it(error: BaseException) -> bool:
            nonlocal strange
            strange += isinstance(error, TransientStorageError) and error.strange
            may_go_on = self._is_patient() and not self._stopped.is_set()
            return is_transient(error) and strange < _MOST_STRANGE_ANSWERS and may_go_on

        def tell(number: int, error: BaseException, pause_s: float) -> None:
            _log.info("attempt %d failed, the next follows in %.1f s: %s", number, pause_s, error)
            if self._on_unreachable and isinstance(error, TransientStorageError) and error.refused:
                self.endpoint = with_scheme(self._on_unreachable() or self.endpoint)
                self._own_hosts.add(host_of(self.endpoint))

        return self._retry.call(attempt, is_transient=is_worth_it, on_retry=tell)

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

    def _place_of(self, uri: OssUri) -> tuple[str, str]:
        """Endpoint and region for a URI. Inner and outer endpoint of a region are one place.

        Raises:
            UntrustedEndpointError: somebody else than OSS may answer there.
        """
        # A service of one's own that has moved to another port keeps the files of URIs with the former one.
        if uri.endpoint is None or host_of(uri.endpoint) in self._own_hosts:
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
                f"nor this session's OSS endpoint ({self.endpoint}), because whoever runs that host could use the "
                f"signature and the security token. If you trust it, name it: "
                f"Session(trusted_oss_endpoints={uri.endpoint!r}), or PAI_TRUSTED_OSS_ENDPOINTS={uri.endpoint}",
                uri=str(uri),
            )
        return endpoint, region or self.region


class _HostSigned(oss2.ProviderAuthV4):  # type: ignore[misc] # oss2 has no types
    """Signs the host too, so that a request is of no use at another one."""

    def _sign_request(self, req: Any, bucket_name: str, key: str, in_additional_headers: Any = None) -> None:
        req.headers["host"] = urlsplit(req.url).netloc
        ignore_utcnow()
        super()._sign_request(req, bucket_name, key, {*(in_additional_headers or ()), "host"})


class _Provider:
    """Our credentials in the shape that oss2 asks for: three parts of one moment."""

    def __init__(self, credentials: CredentialsProvider) -> None:
        self._credentials = credentials

    def get_credentials(self) -> Any:
        key = self._credentials()
        if not key.access_key_id:
            raise CredentialsError("OSS takes no bearer token; give an access key (id and secret) too")
        return oss2.credentials.Credentials(key.access_key_id, key.access_key_secret, key.security_token or "")


def _must_be_oss(answer: requests.Response, **_: Any) -> None:
    """OSS gives each answer an id. Without it, a success is that of somebody else: nothing was done."""
    if answer.status_code < 300 and "x-oss-request-id" not in answer.headers:
        answer.close()  # nobody will read its body
        raise NotOssError("without a request id")


def _session(pool_size: int, *, direct: bool) -> Any:
    session = oss2.Session(adapter=PooledAdapter(hosts=8, size=pool_size))
    # Without an auth of its own, requests would replace our signature by what ~/.netrc has for the host.
    session.session.auth = lambda request: request
    session.session.hooks["response"].append(_must_be_oss)
    # OSS redirects nobody. Who does would get the security token and the content, and answer in the place of OSS.
    session.session.get_redirect_target = lambda answer: None
    if direct:
        stay_on_this_machine(session.session)
    return session
