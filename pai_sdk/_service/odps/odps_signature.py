"""Signatures of MaxCompute requests: the older one, and V4, whose key is derived for a day and a region."""

from __future__ import annotations

import base64
import hashlib
import hmac
import time
from collections.abc import Callable, Mapping, Sequence
from email.utils import parsedate_to_datetime
from typing import Protocol
from urllib.parse import unquote

from pai_sdk._service.odps.table_errors import TableError

_MAX_SKEW_S = 15 * 60
_V4 = "aliyun_v4"


class SecretOf(Protocol):
    """Returns the secret of an access key id, as a dictionary does."""

    def get(self, key_id: str, /) -> str | None:
        """Returns the secret of a key; None for an unknown one."""
        ...


def canonical_text(method: str, path: str, query: Sequence[tuple[str, str]], headers: Mapping[str, str]) -> str:
    """Returns the string that is signed; `path` is below the endpoint, header names are in lower case."""
    signed = {"content-md5": "", "content-type": ""}
    signed.update({k: v for k, v in headers.items() if k in signed or k == "date" or k.startswith("x-odps-")})
    signed.update({name: value for name, value in query if name.startswith("x-odps-")})
    lines = [method, *(f"{k}:{v}" if k.startswith("x-odps-") else v for k, v in sorted(signed.items()))]
    pairs = sorted(dict(query).items())
    text = "&".join(f"{name}={value}" if value else name for name, value in pairs)
    return "\n".join([*lines, f"{path}?{text}" if text else path])


def odps_signature(secret: str, text: str, *, date: str = "", region: str = "") -> str:
    """Returns the signature of a string: V4 with a region and a `YYYYMMDD` (UTC), the older one without."""
    key = secret.encode()
    if region:
        key = (_V4 + secret).encode()
        for part in (date, region, "odps", f"{_V4}_request"):
            key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return base64.b64encode(hmac.new(key, text.encode(), hashlib.sha1).digest()).decode()


class OdpsVerifier:
    """Checks signatures."""

    def __init__(self, keys: SecretOf, *, now: Callable[[], float] = time.time) -> None:
        self._keys = keys
        self._now = now

    def check(self, method: str, path: str, query: Sequence[tuple[str, str]], headers: Mapping[str, str]) -> str:
        """Returns the access key id that signed a request; arguments as for `canonical_text`."""
        scheme, _, authorization = headers.get("authorization", "").partition(" ")
        credential, _, signature = authorization.partition(":")
        if scheme != "ODPS" or not signature:
            raise TableError(401, "ODPS-0410061", "The request is not signed.")
        key_id, *scope = credential.split("/")
        secret = self._keys.get(key_id)
        if secret is None:
            raise TableError(401, "ODPS-0410042", "The access key id does not exist here.")
        if scope and (len(scope) != 4 or scope[2:] != ["odps", f"{_V4}_request"]):
            raise TableError(401, "ODPS-0410051", "The credential's scope is not that of signature V4.")
        self._check_date(headers.get("date", ""))
        date, region = scope[:2] if scope else ("", "")
        expected = odps_signature(secret, canonical_text(method, path, query, headers), date=date, region=region)
        if not hmac.compare_digest(expected.encode(), signature.strip().encode()):
            raise TableError(
                401, "ODPS-0410042", "The signature does not fit the request: check the access key secret."
            )
        return key_id

    def _check_date(self, text: str) -> None:
        try:
            seconds = parsedate_to_datetime(unquote(text)).timestamp()
        except (TypeError, ValueError, IndexError, OverflowError):
            raise TableError(401, "ODPS-0410051", "The header Date is missing or cannot be read.") from None
        if abs(self._now() - seconds) > _MAX_SKEW_S:
            raise TableError(401, "ODPS-0410031", "The header Date is more than 15 minutes off; set the clock.")
