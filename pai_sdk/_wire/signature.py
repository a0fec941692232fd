"""Signatures: ACS3-HMAC-SHA256, which this package sends, and the older ROA HMAC-SHA1 of other clients.

The functions are pure: the client signs and the service verifies with the same ones. Paths are encoded, as they
are sent; values of the query are decoded; names of headers are in lower case.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Iterable, Mapping
from urllib.parse import quote

ACS3 = "ACS3-HMAC-SHA256"


def encode(text: str) -> str:
    """Returns a string in percent-encoding, as Alibaba Cloud requires it: all but letters, digits and `-_.~`."""
    return quote(text, safe="~")


def payload_hash(body: bytes) -> str:
    """Returns the hash of a body, for the header `x-acs-content-sha256`."""
    return hashlib.sha256(body).hexdigest()


def acs3_signature(
    secret: str,
    *,
    method: str,
    path: str,
    query: Mapping[str, str],
    headers: Mapping[str, str],
    signed_headers: Iterable[str],
    payload_hash: str,
) -> str:
    """Returns the signature, in hexadecimal digits.

    Args:
        secret: the access key secret.
        method: of HTTP.
        path: encoded, as on the wire.
        query: decoded values.
        headers: only the signed ones are used.
        signed_headers: the names that are signed, in any order; a missing header is signed as an empty string.
        payload_hash: SHA-256 of the body, in hexadecimal digits.
    """
    names = sorted(signed_headers)
    canonical = "\n".join(
        [
            method.upper(),
            path or "/",
            # Names of the query are signed as they are, its values encoded.
            "&".join(f"{key}={encode(query[key])}" for key in sorted(query)),
            "".join(f"{name}:{headers.get(name, '').strip()}\n" for name in names),
            ";".join(names),
            payload_hash,
        ]
    )
    text = f"{ACS3}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
    return hmac.new(secret.encode(), text.encode(), hashlib.sha256).hexdigest()


def roa_signature(
    secret: str, *, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str]
) -> str:
    """Returns the signature of the older scheme, in base64; it does not cover the body."""
    acs_headers = sorted(name for name in headers if name.startswith("x-acs-"))
    # A parameter without a value is signed without `=`.
    pairs = [f"{key}={query[key]}" if query[key] else key for key in sorted(query)]
    text = "\n".join(
        [
            method.upper(),
            *(headers.get(name, "") for name in ("accept", "content-md5", "content-type", "date")),
            *(f"{name}:{headers[name].strip()}" for name in acs_headers),
            path + ("?" + "&".join(pairs) if pairs else ""),
        ]
    )
    return base64.b64encode(hmac.new(secret.encode(), text.encode(), hashlib.sha1).digest()).decode()
