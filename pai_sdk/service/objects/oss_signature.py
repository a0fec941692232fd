"""What a client signs, in both versions of OSS's signature."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote

__all__ = [
    "ALGORITHM_V4",
    "SUBRESOURCES",
    "OssSignedRequest",
    "signature_v1",
    "signature_v4",
    "signatures_v1",
    "signing_key_v4",
]

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
# The query parameters that version 1 signs; it leaves all others out.
SUBRESOURCES = frozenset(_SUBRESOURCES.split())
# What some official clients sign in version 1 and others do not. None of it is offered, so a request with one of
# these is refused as not implemented, whether it was signed or not.
_SIGNED_BY_SOME = frozenset({"cleanRestoredObject", "seal", "x-oss-async-process", "x-oss-process"})
_SIGNED_BY_DEFAULT = ("content-type", "content-md5")


@dataclass(frozen=True)
class OssSignedRequest:
    """The parts of a request that signatures speak of.

    Attributes:
        method: in upper case.
        bucket: empty for the service itself.
        key: decoded; empty for a bucket.
        query: names and values, decoded.
        headers: names in lower case, values as they came.
    """

    method: str
    bucket: str
    key: str
    query: Sequence[tuple[str, str]]
    headers: Mapping[str, bytes]

    def header(self, name: str) -> str:
        """A header as text, byte by byte; empty when it is missing."""
        return self.headers.get(name, b"").decode("latin-1")

    @property
    def resource(self) -> str:
        """`/bucket/key`."""
        return f"/{self.bucket}/{self.key}" if self.bucket else "/"


def signatures_v1(request: OssSignedRequest, secret: str, date: str) -> set[str]:
    """Each of them is right; there are two where official clients disagree on what is to be signed.

    Args:
        request: the request.
        secret: the access key secret.
        date: the time that was signed: a date header, or the `Expires` of a presigned URL.
    """
    return {
        signature_v1(request, secret, date, names)
        for names in (SUBRESOURCES | _SIGNED_BY_SOME, SUBRESOURCES - _SIGNED_BY_SOME)
    }


def signature_v1(
    request: OssSignedRequest, secret: str, date: str, subresources: Collection[str] = SUBRESOURCES
) -> str:
    """Base64 of HMAC-SHA1.

    Args:
        request: the request.
        secret: the access key secret.
        date: the time that was signed: a date header, or the `Expires` of a presigned URL.
        subresources: the parameters of the query that are signed.
    """
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
    """The key of version 4 for a day, a region and a product: `20261121/cn-hangzhou/oss/aliyun_v4_request`."""
    key = f"aliyun_v4{secret}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    return key


def signature_v4(
    request: OssSignedRequest, signing_key: bytes, *, scope: str, date: str, also_signed: Collection[str]
) -> str:
    """Hexadecimal HMAC-SHA256.

    Args:
        request: the request.
        signing_key: that of the secret and the scope.
        scope: `20261121/cn-hangzhou/oss/aliyun_v4_request`.
        date: `20261121T101500Z`.
        also_signed: the additional headers that were signed, in lower case.
    """
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
