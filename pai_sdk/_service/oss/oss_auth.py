"""Verifies the signature of a request, in its headers or in a presigned URL, versions 1 and 4."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import time
from collections.abc import Callable, Collection, Mapping
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from functools import lru_cache
from urllib.parse import quote

from pai_sdk._service.oss.error_codes import oss_error
from pai_sdk._service.oss.oss_request import OssSignedRequest
from pai_sdk.errors import StorageError

# The secret of an access key id, or None for an unknown one.
Keys = Mapping[str, str] | Callable[[str], str | None]

MAX_SKEW_S = 15 * 60
_TOKENS = ("x-oss-security-token", "security-token")
_MAX_LIFE_S = 7 * 24 * 3600
_MAX_SIGNING_KEYS, _MAX_DATES = 64, 128
_V4_FIELD = re.compile(r"(Credential|AdditionalHeaders|Signature)=([^,\s]+)")

ALGORITHM_V4 = "OSS4-HMAC-SHA256"

_SUBRESOURCES = """
accessPoint accessPointPolicy acl append asyncFetch bucketArchiveDirectRead bucketInfo callback callback-var
cloudboxes cname comp continuation-token cors delete encryption endTime group httpsConfig img inventory
inventoryId lifecycle link live location logging metaQuery objectInfo objectMeta partNumber policy position
publicAccessBlock qos qosInfo qosRequester redundancyTransition referer regionList replication
replicationLocation replicationProgress requestPayment requesterQosInfo resourceGroup resourcePool
resourcePoolBuckets resourcePoolInfo response-cache-control response-content-disposition
response-content-encoding response-content-language response-content-type response-expires restore
security-token sequential startTime stat status style styleName symlink tagging transferAcceleration uploadId
uploads versionId versioning versions vod website worm wormExtend wormId x-oss-ac-forward-allow
x-oss-ac-source-ip x-oss-ac-subnet-mask x-oss-ac-vpc-id x-oss-access-point-name x-oss-async-process
x-oss-process x-oss-redundancy-transition-taskid x-oss-request-payer x-oss-target-redundancy-type
x-oss-traffic-limit x-oss-write-get-object-response
"""
# The query parameters that version 1 signs; all others are left out.
SUBRESOURCES = frozenset(_SUBRESOURCES.split())
# Some official clients sign these in version 1, others do not. No operation here has them, so a request with one
# of them is refused as not implemented, signed or not.
_AMBIGUOUS_SUBRESOURCES = frozenset({"cleanRestoredObject", "seal", "x-oss-async-process", "x-oss-process"})
_SIGNED_BY_DEFAULT = ("content-type", "content-md5")


class Verifier:
    """Checks signatures for one region, by the clock `now`."""

    def __init__(self, keys: Keys, *, region: str, now: Callable[[], float] = time.time) -> None:
        self._secret_of = keys if callable(keys) else keys.get
        self._region = region
        self._now = now
        # Requests of one second share the date, those of one day the signing key.
        self._signing_key = lru_cache(_MAX_SIGNING_KEYS)(signing_key_v4)
        self._http_date = lru_cache(_MAX_DATES)(_parse_http_date)
        self._compact_date = lru_cache(_MAX_DATES)(_parse_compact_date)

    def check(self, request: OssSignedRequest) -> str:
        """Returns the access key id that signed the request; a request with a security token is refused."""
        key_id = self._check_signature(request)
        query = dict(request.query)
        if any(request.header(name) or query.get(name) for name in _TOKENS):
            raise oss_error(
                "InvalidAccessKeyId", "The keys of this object store have no security token; send the key alone."
            )
        return key_id

    def _check_signature(self, request: OssSignedRequest) -> str:
        authorization = request.header("authorization")
        query = dict(request.query)
        if len(query) != len(request.query):
            raise oss_error("InvalidArgument", "A query parameter is given twice.")
        if authorization.startswith(f"{ALGORITHM_V4} "):
            return self._check_v4_header(request, authorization)
        if authorization.startswith("OSS "):
            return self._check_v1_header(request, authorization)
        if authorization:
            raise oss_error(
                "AccessDenied", "Only the signature versions 1 (OSS) and 4 (OSS4-HMAC-SHA256) are accepted."
            )
        if "x-oss-signature-version" in query:
            return self._check_v4_query(request, query)
        if "OSSAccessKeyId" in query:
            return self._check_v1_query(request, query)
        raise oss_error("AccessDenied", "The request is not signed; give an access key.")

    # ---- version 1 ------------------------------------------------------------------------------------------

    def _check_v1_header(self, request: OssSignedRequest, authorization: str) -> str:
        key_id, _, signature = authorization.removeprefix("OSS ").strip().partition(":")
        date = request.header("x-oss-date") or request.header("date")
        secret = self._secret(key_id)
        self._check_skew(self._http_date(date))
        return _accept(key_id, signatures_v1(request, secret, date), signature)

    def _check_v1_query(self, request: OssSignedRequest, query: Mapping[str, str]) -> str:
        key_id, expires, signature = (query.get(name, "") for name in ("OSSAccessKeyId", "Expires", "Signature"))
        secret = self._secret(key_id)
        if not re.fullmatch("[0-9]{1,12}", expires) or not signature:
            raise oss_error("AccessDenied", "A presigned URL needs OSSAccessKeyId, Expires and Signature.")
        _accept(key_id, signatures_v1(request, secret, expires), signature)
        self._check_not_expired(int(expires))
        return key_id

    # ---- version 4 ------------------------------------------------------------------------------------------

    def _check_v4_header(self, request: OssSignedRequest, authorization: str) -> str:
        fields = dict(_V4_FIELD.findall(authorization))
        date = request.header("x-oss-date")
        if not date and request.header("date"):
            date = f"{self._http_date(request.header('date')):%Y%m%dT%H%M%SZ}"
        key_id, scope = self._scope(fields.get("Credential", ""), date)
        secret = self._secret(key_id)
        self._check_skew(self._compact_date(date))
        return self._check_v4(request, key_id, secret, scope, date, fields.get("AdditionalHeaders", ""), fields)

    def _check_v4_query(self, request: OssSignedRequest, query: Mapping[str, str]) -> str:
        date, expires = query.get("x-oss-date", ""), query.get("x-oss-expires", "")
        if query["x-oss-signature-version"] != ALGORITHM_V4 or not re.fullmatch("[0-9]{1,6}", expires):
            raise oss_error("AccessDenied", f"A presigned URL needs {ALGORITHM_V4} and x-oss-expires in seconds.")
        key_id, scope = self._scope(query.get("x-oss-credential", ""), date)
        secret = self._secret(key_id)
        signed_at = self._compact_date(date).timestamp()
        also_signed = query.get("x-oss-additional-headers", "")
        self._check_v4(
            request, key_id, secret, scope, date, also_signed, {"Signature": query.get("x-oss-signature", "")}
        )
        if not 1 <= int(expires) <= _MAX_LIFE_S:
            raise oss_error("AccessDenied", "A presigned URL can live for 1 second to 7 days.")
        if signed_at > self._now() + MAX_SKEW_S:
            raise oss_error("RequestTimeTooSkewed")
        self._check_not_expired(signed_at + int(expires))
        return key_id

    def _check_v4(
        self,
        request: OssSignedRequest,
        key_id: str,
        secret: str,
        scope: str,
        date: str,
        also_signed: str,
        fields: Mapping[str, str],
    ) -> str:
        if request.header("x-oss-content-sha256") not in ("", "UNSIGNED-PAYLOAD"):
            raise oss_error("InvalidArgument", "x-oss-content-sha256 must be UNSIGNED-PAYLOAD.")
        names = [name for name in also_signed.lower().split(";") if name]
        if any(name not in request.headers for name in names):
            raise oss_error("SignatureDoesNotMatch", "A header that was signed is missing.")
        key = self._signing_key(secret, scope)
        expected = signature_v4(request, key, scope=scope, date=date, also_signed=names)
        return _accept(key_id, {expected}, fields.get("Signature", ""))

    def _scope(self, credential: str, date: str) -> tuple[str, str]:
        key_id, _, scope = credential.partition("/")
        day, region, product, suffix = [*scope.split("/"), "", "", "", ""][:4]
        if scope.count("/") != 3 or product != "oss" or suffix != "aliyun_v4_request" or day != date[:8]:
            raise oss_error("InvalidArgument", "The credential must be id/day/region/oss/aliyun_v4_request.")
        if region != self._region:
            raise oss_error(
                "InvalidArgument", f"The request is signed for region {region!r}; this is {self._region!r}."
            )
        return key_id, scope

    # ---- both -----------------------------------------------------------------------------------------------

    def _secret(self, key_id: str) -> str:
        secret = self._secret_of(key_id) if key_id else None
        if not secret:
            raise oss_error("InvalidAccessKeyId")
        return secret

    def _check_skew(self, signed_at: datetime) -> None:
        if abs(signed_at.timestamp() - self._now()) > MAX_SKEW_S:
            raise oss_error("RequestTimeTooSkewed")

    def _check_not_expired(self, end_s: float) -> None:
        if self._now() > end_s:
            raise oss_error("AccessDenied", "Request has expired; make a new presigned URL.")


def _accept(key_id: str, expected: Collection[str], signature: str) -> str:
    if not any(hmac.compare_digest(right.encode(), signature.encode()) for right in expected):
        raise oss_error("SignatureDoesNotMatch")
    return key_id


def _parse_http_date(text: str) -> datetime:
    try:
        parsed = parsedate_to_datetime(text)
    except (TypeError, ValueError, IndexError, OverflowError) as error:
        raise _bad_date() from error
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=timezone.utc)


def _parse_compact_date(text: str) -> datetime:
    try:
        return datetime.strptime(text, "%Y%m%dT%H%M%SZ").replace(tzinfo=timezone.utc)
    except ValueError as error:
        raise _bad_date() from error


def _bad_date() -> StorageError:
    return oss_error("AccessDenied", "The request has no date, or one that cannot be read.")


# ---- what is signed -----------------------------------------------------------------------------------------


def signatures_v1(request: OssSignedRequest, secret: str, date: str) -> set[str]:
    """Returns the valid signatures; there are two where official clients disagree on what to sign."""
    return {
        signature_v1(request, secret, date, names)
        for names in (SUBRESOURCES | _AMBIGUOUS_SUBRESOURCES, SUBRESOURCES - _AMBIGUOUS_SUBRESOURCES)
    }


def signature_v1(
    request: OssSignedRequest, secret: str, date: str, subresources: Collection[str] = SUBRESOURCES
) -> str:
    """Returns the base64 of the HMAC-SHA1; `date` is a date header, or the `Expires` of a presigned URL."""
    signed = sorted((name, value) for name, value in request.query if name in subresources)
    resource = request.resource + ("?" + "&".join(map(_parameter, signed)) if signed else "")
    lines = [
        request.method.encode(),
        request.headers.get("content-md5", b""),
        request.headers.get("content-type", b""),
        date.encode("latin-1"),
        *(name + b":" + value for name, value in _chosen_headers(request, ())),
        resource.encode(),
    ]
    return base64.b64encode(hmac.digest(secret.encode(), b"\n".join(lines), "sha1")).decode()


def signing_key_v4(secret: str, scope: str) -> bytes:
    """Returns the version 4 key for day, region and product: `20261121/cn-hangzhou/oss/aliyun_v4_request`."""
    key = f"aliyun_v4{secret}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    return key


def signature_v4(
    request: OssSignedRequest, signing_key: bytes, *, scope: str, date: str, also_signed: Collection[str]
) -> str:
    """Returns the hexadecimal HMAC-SHA256; `also_signed` are the additional signed headers, in lower case."""
    query = sorted((_encode(name), _encode(value)) for name, value in request.query if name != "x-oss-signature")
    headers = _chosen_headers(request, (*_SIGNED_BY_DEFAULT, *also_signed))
    canonical = b"\n".join(
        [
            request.method.encode(),
            quote(request.resource, safe="/").encode(),
            "&".join(map(_parameter, query)).encode(),
            b"".join(name + b":" + value + b"\n" for name, value in headers),
            ";".join(sorted(also_signed)).encode(),
            request.headers.get("x-oss-content-sha256", b"UNSIGNED-PAYLOAD"),
        ]
    )
    # Such as 20261121T101500Z and 20261121/cn-hangzhou/oss/aliyun_v4_request.
    text = "\n".join([ALGORITHM_V4, date, scope, hashlib.sha256(canonical).hexdigest()])
    return hmac.digest(signing_key, text.encode("latin-1"), "sha256").hex()


def _chosen_headers(request: OssSignedRequest, names: Collection[str]) -> list[tuple[bytes, bytes]]:
    return sorted(
        (name.encode("latin-1"), value.strip())
        for name, value in request.headers.items()
        if name.startswith("x-oss-") or name in names
    )


def _parameter(pair: tuple[str, str]) -> str:
    return "=".join(pair) if pair[1] else pair[0]


def _encode(text: str) -> str:
    return quote(text, safe="")
