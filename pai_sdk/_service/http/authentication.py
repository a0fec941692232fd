"""Verifies the signatures of API requests, in both schemes of PAI's clients."""

from __future__ import annotations

import hmac
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from functools import partial
from urllib.parse import parse_qsl

from starlette.types import Scope

from pai_sdk._service.http.gate import CLAIMED_KEY, headers_of, throttle
from pai_sdk._service.http.nonces import NonceMemory
from pai_sdk._service.identity.principal import KeyRing, Principal, key_refusal
from pai_sdk._service.identity.rate import KeyRates
from pai_sdk._service.wire_errors import WireError, invalid_parameter
from pai_sdk._wire.signature import ACS3, acs3_signature, payload_hash, roa_signature

MAX_SKEW_S = 15 * 60
_ACS3_FIELDS = re.compile(r"(Credential|SignedHeaders|Signature)=([^,\s]+)")
_CLAIMED_KEY = re.compile(r"Credential=([^,\s]+)|^acs ([^:\s]+):")
_MUST_BE_SIGNED = ("host", "x-acs-date", "x-acs-content-sha256", "x-acs-signature-nonce")
_MISMATCH = (
    "The signature does not fit the request: check the access key secret, and that no proxy changes requests."
)


@dataclass(frozen=True)
class SignedRequest:
    """The signed parts of a request. `path` is encoded, as it was sent; header names are in lower case."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]


class Authenticator:
    """Admits a request, or raises a `WireError`: 401 if it has no readable signature, else 403.

    Alibaba Cloud refuses some requests with 400 and 404; its clients check the codes, which are the same here.
    ACS3-HMAC-SHA256 covers the body; the older HMAC-SHA1 scheme does not.
    """

    def __init__(
        self,
        keys: KeyRing,
        *,
        nonces: NonceMemory | None = None,
        rates: KeyRates | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._keys = keys
        self._now = now
        self._rates = rates or KeyRates(None)
        self._nonces = nonces or NonceMemory(lifetime_s=MAX_SKEW_S)

    def admit(self, scope: Scope) -> Callable[[bytes], None]:
        """Checks a request for a `Gate`; returns the check of the body."""
        request = _signed_request(scope)
        try:
            principal = self.check(request)
        except WireError:
            scope.setdefault("state", {})[CLAIMED_KEY] = self._claimed_key(request)
            raise
        scope.setdefault("state", {})["principal"] = principal
        # After the signature: unsigned requests must not count for the rate limit of the key.
        throttle(self._rates.acquire(principal.key_id))
        if "%00" in request.path or any("\0" in text for pair in request.query.items() for text in pair):
            raise invalid_parameter("A NUL character in the path or the query is not allowed.")
        return partial(self.check_body, request)

    def check(self, request: SignedRequest) -> Principal:
        """Checks all but the body, before the body is read; returns the user."""
        authorization = request.headers.get("authorization", "")
        if authorization.startswith(f"{ACS3} "):
            principal, dated_at = self._check_acs3(request, authorization)
        elif authorization.startswith("acs "):
            principal, dated_at = self._check_roa(request, authorization)
        elif authorization:
            raise WireError(
                401,
                "InvalidAuthorization",
                f"The header Authorization is not of a known kind; sign with {ACS3} or the older `acs` scheme.",
            )
        else:
            raise WireError(401, "MissingAuthorization", f"The request is not signed; sign it with {ACS3}.")
        if request.headers.get("x-acs-security-token") or request.query.get("SecurityToken"):
            raise WireError(
                403,
                "InvalidSecurityToken.MismatchWithAccessKey",
                "The keys of this service have no security token; send the access key alone.",
            )
        nonce = request.headers.get("x-acs-signature-nonce", "")
        # After the signature: an unsigned request must not use up the nonce of a signed one.
        if not nonce or not self._nonces.accept(nonce, dated=dated_at, now=self._now()):
            raise WireError(
                403,
                "SignatureNonceUsed",
                "The header x-acs-signature-nonce is missing or was used before; sign every request anew.",
            )
        return principal

    def _claimed_key(self, request: SignedRequest) -> str:
        """Returns the key id in a refused request, if this service has it: other strings may be secrets."""
        match = _CLAIMED_KEY.search(request.headers.get("authorization", ""))
        key_id = match[1] or match[2] if match else ""
        exists = self._keys.principal(key_id) is not None or self._keys.expired_at(key_id) is not None
        return key_id if exists else ""

    def check_body(self, request: SignedRequest, body: bytes) -> None:
        """Checks that the body is the one that was signed."""
        signed = request.headers.get("x-acs-content-sha256")
        # The older scheme has no such header: it does not cover the body.
        if signed is not None and not hmac.compare_digest(signed.encode(), payload_hash(body).encode()):
            raise WireError(403, "SignatureDoesNotMatch", "The body is not the one that was signed.")

    def _check_acs3(self, request: SignedRequest, authorization: str) -> tuple[Principal, float]:
        fields = dict(_ACS3_FIELDS.findall(authorization))
        if len(fields) != 3:
            raise WireError(
                401,
                "IncompleteSignature",
                "Authorization needs Credential, SignedHeaders and Signature; one is missing.",
            )
        principal, secret = self._check_key(fields["Credential"])
        names = fields["SignedHeaders"].lower().split(";")
        unsigned = [name for name in _MUST_BE_SIGNED if name not in names or name not in request.headers]
        if unsigned:
            raise WireError(
                401, "IncompleteSignature", f"These headers must be there and signed: {', '.join(unsigned)}."
            )
        dated = self._check_date(_acs3_date(request.headers["x-acs-date"]))
        signature = acs3_signature(
            secret,
            method=request.method,
            path=request.path,
            query=request.query,
            headers=request.headers,
            signed_headers=names,
            payload_hash=request.headers["x-acs-content-sha256"],
        )
        _compare(signature, fields["Signature"])
        return principal, dated

    def _check_roa(self, request: SignedRequest, authorization: str) -> tuple[Principal, float]:
        key_id, _, claimed = authorization.removeprefix("acs ").partition(":")
        principal, secret = self._check_key(key_id)
        dated = self._check_date(_roa_date(request.headers.get("date", "")))
        expected = roa_signature(
            secret,
            method=request.method,
            path=request.path,
            query=request.query,
            headers=request.headers,
        )
        _compare(expected, claimed.strip())
        return principal, dated

    def _check_key(self, key_id: str) -> tuple[Principal, str]:
        principal, secret = self._keys.principal(key_id), self._keys.secret(key_id)
        if principal is None or secret is None:
            raise key_refusal(self._keys, key_id)
        return principal, secret

    def _check_date(self, seconds: float | None) -> float:
        if seconds is None:
            raise WireError(
                403, "InvalidTimeStamp.Format", "The date of the request is missing or cannot be read."
            )
        if abs(self._now() - seconds) > MAX_SKEW_S:
            raise WireError(
                403,
                "InvalidTimeStamp.Expired",
                "The request's date is more than 15 minutes away from the service's clock; set the clock.",
            )
        return seconds


def _signed_request(scope: Scope) -> SignedRequest:
    headers = headers_of(scope)
    pairs = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
    query = dict(pairs)
    if len(query) != len(pairs) and "authorization" in headers:
        raise WireError(403, "SignatureDoesNotMatch", "A parameter of the query is defined more than once.")
    return SignedRequest(scope["method"], scope["raw_path"].decode("latin-1"), query, headers)


def _compare(expected: str, claimed: str) -> None:
    if not hmac.compare_digest(expected.encode(), claimed.encode()):
        raise WireError(403, "SignatureDoesNotMatch", _MISMATCH)


def _acs3_date(text: str) -> float | None:
    try:
        return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=timezone.utc).timestamp()
    except ValueError:
        return None


def _roa_date(text: str) -> float | None:
    try:
        return parsedate_to_datetime(text).timestamp()
    except (TypeError, ValueError, IndexError, OverflowError):
        return None
