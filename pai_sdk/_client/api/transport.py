"""Sends signed JSON requests to one API, with timeouts and retries."""

from __future__ import annotations

import json
import logging
import secrets
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlsplit

import requests
from requests import PreparedRequest
from requests.auth import AuthBase
from requests.utils import select_proxy

from pai_sdk._client.api.responses import ApiResponse, read_body, read_response
from pai_sdk._core.config.credentials import CredentialsProvider
from pai_sdk._core.connections import PooledAdapter, stay_on_this_machine
from pai_sdk._core.endpoint import Endpoint, is_loopback
from pai_sdk._core.missing_response import diagnose
from pai_sdk._core.retry import RetryPolicy
from pai_sdk._core.version import __version__
from pai_sdk._wire.signature import ACS3, acs3_signature, encode, payload_hash
from pai_sdk.errors import (
    ApiError,
    ConnectionFailedError,
    InvalidInputError,
    InvalidResponseError,
    NotFoundError,
    PaiError,
    Problem,
    RepeatedRequestError,
)


class Acs3Auth(AuthBase):
    """Signs a request to an action with ACS3-HMAC-SHA256; temporary keys (STS) and bearer tokens too."""

    def __init__(self, credentials: CredentialsProvider, action: str, version: str) -> None:
        self._credentials = credentials
        self._action = action
        self._version = version

    def __call__(self, request: PreparedRequest) -> PreparedRequest:
        """Adds the signature and the signed headers to a request."""
        key = self._credentials()
        url = urlsplit(str(request.url))
        body = request.body or b""
        digest = payload_hash(body.encode() if isinstance(body, str) else body)
        headers = request.headers
        headers["Host"] = url.netloc
        headers["x-acs-action"] = self._action
        headers["x-acs-version"] = self._version
        headers["x-acs-date"] = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        headers["x-acs-signature-nonce"] = secrets.token_hex(16)
        headers["x-acs-content-sha256"] = digest
        if key.bearer_token:
            headers["x-acs-bearer-token"] = key.bearer_token
            headers["x-acs-signature-type"] = "BEARERTOKEN"
            return request
        if key.security_token:
            headers["x-acs-accesskey-id"] = key.access_key_id
            headers["x-acs-security-token"] = key.security_token
        lower = {name.lower(): value for name, value in headers.items()}
        # Headers that a proxy may rewrite (accept, user-agent, …) are not signed.
        signed = sorted(n for n in lower if n.startswith("x-acs-") or n in ("host", "content-type"))
        signature = acs3_signature(
            key.access_key_secret,
            method=str(request.method),
            path=url.path,
            query=dict(parse_qsl(url.query, keep_blank_values=True)),
            headers=lower,
            signed_headers=signed,
            payload_hash=digest,
        )
        headers["Authorization"] = (
            f"{ACS3} Credential={key.access_key_id},SignedHeaders={';'.join(signed)},Signature={signature}"
        )
        return request


_log = logging.getLogger(__name__)
_USER_AGENT = f"pai-sdk/{__version__}"
# Each followed log uses a few connections, and urllib3 logs warnings when a pool is too small.
_POOL = 256
# A proxy's page or a truncated response may be temporary. A wrong endpoint stays wrong, so the attempts are few.
_MAX_STRANGE_RESPONSES = 5


@dataclass(frozen=True)
class UpgradeRequest:
    """A signed request that opens a WebSocket, and how the service is reached."""

    url: str  # http:// or https://
    headers: Mapping[str, str]
    proxy: str | None  # the URL of a proxy
    verify: bool | str  # the CA bundle, as for requests


class Transport:
    """Sends requests to one endpoint. Thread-safe."""

    def __init__(
        self,
        endpoint: str | Endpoint,
        credentials: CredentialsProvider,
        *,
        version: str,
        retry: RetryPolicy | None = None,
        timeout_s: tuple[float, float] = (5.0, 30.0),
    ) -> None:
        # A string without `http://` means https.
        self._endpoint = endpoint if isinstance(endpoint, Endpoint) else Endpoint(endpoint)
        self.retry = retry or RetryPolicy()
        # To connect, and between two reads of a response.
        self.timeout_s = timeout_s
        self.max_response_bytes = 256 << 20  # a larger one would fill the memory of this machine
        # Features beyond PAI's API, such as `submission-dedupe`, that the service has announced in a response
        # (`x-pai-offers`). The client uses no others.
        self.offers: frozenset[str] = frozenset()
        # Called before each attempt, so that a renewed key is used at once.
        self._credentials = credentials
        self._version = version
        self._session = requests.Session()
        adapter = PooledAdapter(hosts=2, size=_POOL)
        self._session.mount("https://", adapter)
        self._session.mount("http://", adapter)
        if is_loopback(self.endpoint):
            stay_on_this_machine(self._session)

    @property
    def endpoint(self) -> str:
        """Returns the endpoint as a URL."""
        return self._endpoint.url

    def __repr__(self) -> str:
        return f"<Transport {self.endpoint} {self._version}>"

    def close(self) -> None:
        """Closes the connections."""
        self._session.close()

    def call(
        self,
        action: str,
        method: str,
        path_template: str,
        path_params: Mapping[str, str] | None = None,
        query: Mapping[str, Any] | None = None,
        body: Mapping[str, Any] | None = None,
        *,
        idempotent: bool | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: tuple[float, float] | None = None,
        form: Mapping[str, str | None] | None = None,
        final_codes: Collection[str] = (),
    ) -> ApiResponse:
        """Calls an action, with retries as the policy allows.

        A deletion has succeeded when it receives NotFound after an attempt whose response was lost. A call without
        a response raises `ConnectionFailedError`; `maybe_arrived` is True if the action may have been carried out.

        Args:
            action: name of the action, such as `GetTrainingJob`.
            method: HTTP method.
            path_template: with `{names}` of `path_params`.
            path_params: values of these names, which are encoded.
            query: None is left out; lists and dicts are sent as JSON.
            body: JSON object; fields that are None are left out.
            idempotent: can be sent again although it may have arrived; by default all methods but POST.
            headers: additional headers.
            timeout_s: (connect, read) in place of the transport's.
            form: fields of a form, in place of `body`; None is left out.
            final_codes: codes of errors after which it is not sent again.
        """
        request = requests.Request(
            method,
            headers={"Accept": "application/json", "User-Agent": _USER_AGENT, **(headers or {})},
            auth=Acs3Auth(self._credentials, action, self._version),
        )
        if body is not None:
            request.data = json_of(body)
            request.headers["Content-Type"] = "application/json; charset=utf-8"
        if form is not None:
            request.data = form_of(form)
            request.headers["Content-Type"] = "application/x-www-form-urlencoded"
        repeatable = method.upper() != "POST" if idempotent is None else idempotent
        path = path_of(path_template, path_params or {}) + query_of(query or {})
        limits = timeout_s or self.timeout_s, self.max_response_bytes
        attempt = _Attempt(self._session, action, self._endpoint, path, request, *limits)
        try:
            return self._attempt_until_response(attempt, repeatable, final_codes)
        except NotFoundError as error:
            # An earlier attempt may have deleted it, and its response was lost.
            if method.upper() == "DELETE" and attempt.maybe_arrived:
                return ApiResponse({}, error.status_code, request_id=error.request_id, action=action)
            raise

    def upgrade_request(self, action: str, path_template: str, path_params: Mapping[str, str]) -> UpgradeRequest:
        """Returns a request for a WebSocket, signed now; it can be sent once."""
        url = self.endpoint + path_of(path_template, path_params)
        auth = Acs3Auth(self._credentials, action, self._version)
        headers = {"Accept": "application/json", "User-Agent": _USER_AGENT}
        prepared = self._session.prepare_request(requests.Request("GET", url, headers=headers, auth=auth))
        settings = self._session.merge_environment_settings(url, proxies={}, stream=None, verify=None, cert=None)
        proxy = select_proxy(url, settings["proxies"])
        names = ("connection", "accept-encoding")  # of an ordinary request
        signed = {name: str(value) for name, value in prepared.headers.items() if name.lower() not in names}
        verify = settings["verify"]
        return UpgradeRequest(str(prepared.url), signed, proxy, True if verify is None else verify)

    def exchange(
        self,
        action: str,
        method: str,
        path_template: str,
        path_params: Mapping[str, str],
        query: Mapping[str, Any],
        *,
        data: bytes | None,
        read_timeout_s: float,
    ) -> bytes:
        """Sends bytes and returns those of the response, in one attempt; its errors are those of `call`.

        Only a GET returns bytes; other responses must be JSON.
        """
        request = requests.Request(
            method,
            headers={"Accept": "*/*", "User-Agent": _USER_AGENT},
            auth=Acs3Auth(self._credentials, action, self._version),
            data=data,
        )
        if data is not None:
            request.headers["Content-Type"] = "application/octet-stream"
        path = path_of(path_template, path_params) + query_of(query)
        limits = (self.timeout_s[0], read_timeout_s), self.max_response_bytes
        attempt = _Attempt(self._session, action, self._endpoint, path, request, *limits)
        if method == "GET":
            return attempt.send_bytes()
        attempt()
        return b""

    def revive(self) -> None:
        """Finds a service again at whose endpoint nothing listens."""
        self._endpoint.revive()

    def _attempt_until_response(
        self, attempt: _Attempt, repeatable: bool, final_codes: Collection[str]
    ) -> ApiResponse:
        strange = 0

        def is_transient(error: BaseException) -> bool:
            nonlocal strange
            if not isinstance(error, PaiError) or not error.retryable:
                return False
            if isinstance(error, ApiError) and error.code in final_codes:
                return False
            if isinstance(error, InvalidResponseError):
                strange += error.status_code < 400
                # A proxy has responded, so it is unknown whether the service has received the request.
                return repeatable and strange < _MAX_STRANGE_RESPONSES
            # RepeatedRequestError: this attempt was refused; an earlier one may have been carried out.
            return repeatable or not error.maybe_arrived or isinstance(error, RepeatedRequestError)

        def on_retry(number: int, error: BaseException, pause_s: float) -> None:
            _log.info("%s; attempt %d follows in %.1f s", error, number + 1, pause_s)
            if isinstance(error, ConnectionFailedError) and error.refused:
                self._endpoint.revive()

        try:
            response = self.retry.call(attempt, is_transient=is_transient, on_retry=on_retry)
            if offered := response.headers.get("x-pai-offers"):
                self.offers = frozenset(each.strip() for each in offered.split(","))
            return response
        except ConnectionFailedError as error:
            tries = f" (tried {attempt.count} times)" if attempt.count > 1 else ""
            raise ConnectionFailedError(
                f"{error}{tries}",
                endpoint=error.endpoint,
                attempts=attempt.count,
                retryable=error.retryable,
                maybe_arrived=error.maybe_arrived,
                refused=error.refused,
            ) from error.__cause__


class _Attempt:
    """One call; each attempt goes to the current URL of the endpoint."""

    def __init__(
        self,
        session: requests.Session,
        action: str,
        endpoint: Endpoint,
        path: str,
        request: requests.Request,
        timeout_s: tuple[float, float],
        max_bytes: int,
    ) -> None:
        self.request = request
        self.count = 0
        # True if an attempt may have been carried out although no valid response arrived.
        self.maybe_arrived = False
        self._session = session
        self._action = action
        self._endpoint = endpoint
        self._path = path
        self._timeout_s = timeout_s
        self._max_bytes = max_bytes

    def __call__(self) -> ApiResponse:
        self.count += 1
        try:
            return self._send()
        except PaiError as error:
            self.maybe_arrived |= error.maybe_arrived
            raise

    def _send(self) -> ApiResponse:
        response, body, host = self._exchange()
        return read_response(response, body, action=self._action, host=host)

    def send_bytes(self) -> bytes:
        """Returns the body of a response that is no JSON; errors are JSON all the same."""
        response, body, host = self._exchange()
        if response.status_code != 200:
            read_response(response, body, action=self._action, host=host)
        return body

    def _exchange(self) -> tuple[requests.Response, bytes, str]:
        """Sends the request; returns the response, its body and the host."""
        started = time.monotonic()
        url = self._endpoint.url
        self.request.url, host = url + self._path, url.partition("://")[2]
        try:
            # Each attempt is prepared and signed anew: the date expires, and a nonce is valid once.
            prepared = self._session.prepare_request(self.request)
            # Streamed, because `read_body` limits the size.
            settings = self._session.merge_environment_settings(
                prepared.url, proxies={}, stream=True, verify=None, cert=None
            )
            response = self._session.send(prepared, timeout=self._timeout_s, allow_redirects=False, **settings)
            with response:
                body = read_body(response, action=self._action, host=host, max_bytes=self._max_bytes)
        except requests.RequestException as error:
            diagnosis = diagnose(error, url)
            raise ConnectionFailedError(
                f"{self._action}: {diagnosis.sentence}",
                endpoint=url,
                retryable=diagnosis.transient,
                maybe_arrived=diagnosis.sent,
                refused=diagnosis.refused,
            ) from error
        # No query, headers or bodies: these may contain secrets.
        _log.debug(
            "%s %s %s: HTTP %d in %.0f ms",
            self._action,
            self.request.method,
            str(self.request.url).partition("?")[0],
            response.status_code,
            (time.monotonic() - started) * 1000,
        )
        return response, body, host


_T = TypeVar("_T")


def path_of(template: str, params: Mapping[str, str]) -> str:
    """Returns a path with its encoded parameters; refuses an empty one, `.` and `..`."""
    for name, value in params.items():
        # Clients and proxies resolve such parts: the request would reach another action.
        if not value or value in (".", ".."):
            raise InvalidInputError([Problem(name, f"{value!r} is not an id")])
    return template.format(**{name: _encoded(name, value) for name, value in params.items()})


def query_of(query: Mapping[str, Any]) -> str:
    """Returns the query with its question mark, or "". None is left out; lists and dicts become JSON."""
    pairs = [f"{name}={_encoded(name, _value(value))}" for name, value in _present(query).items()]
    return "?" + "&".join(pairs) if pairs else ""


def json_of(body: Mapping[str, Any]) -> bytes:
    """Returns a JSON body, compact and in UTF-8. Fields that are None are left out."""
    try:
        return json.dumps(_present(body), ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError as error:
        raise InvalidInputError([_lone_surrogate("request", error)]) from error


def form_of(fields: Mapping[str, str | None]) -> bytes:
    """Returns a body as a form. Fields that are None are left out."""
    return "&".join(f"{name}={_encoded(name, value)}" for name, value in _present(fields).items()).encode()


def _present(fields: Mapping[str, _T | None]) -> dict[str, _T]:
    return {name: value for name, value in fields.items() if value is not None}


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping | list | tuple):
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return str(value)


def _encoded(name: str, value: str) -> str:
    try:
        return encode(value)
    except UnicodeEncodeError as error:
        raise InvalidInputError([_lone_surrogate(name, error)]) from error


def _lone_surrogate(where: str, error: UnicodeEncodeError) -> Problem:
    around = str(error.object)[max(0, error.start - 10) : error.end + 10]
    return Problem(where, f"{around!r} contains invalid Unicode (a lone surrogate)", "remove it")
