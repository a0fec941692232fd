"""OSS signature V4 of one region; values that many requests share are computed once.

Standard library only, for Python 3.8 and newer: `_data/run/store/remote_run.py` ships its source to processes
without pai_sdk.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import quote

if TYPE_CHECKING:
    from pai_sdk._core.config.credentials import Credentials

_SCHEME = "OSS4-HMAC-SHA256"
_LAST = "aliyun_v4_request"
_NOT_HASHED = "UNSIGNED-PAYLOAD"
_SIGNED = frozenset({"content-type", "content-md5", "host"})


class Signer:
    """Adds the headers of signature V4 to requests. Safe to use from many threads.

    The host is signed too, so that no other host can use the request. The key that signs is derived from the
    secret, the date and the region; it is computed again when one of them changes.
    """

    def __init__(self, region: str) -> None:
        self._region = region
        # No lock: threads replace each pair atomically, and a thread that reads an older one computes it again.
        self._time: tuple[int, str] = (-1, "")
        self._derived: tuple[tuple[str, str], bytes] = (("", ""), b"")

    def sign(self, key: Credentials, method: str, resource: str, query: str, headers: dict[str, str]) -> None:
        """Signs a request."""
        if key.security_token:
            headers["x-oss-security-token"] = key.security_token
        now = self._now()
        headers["x-oss-date"] = now
        headers["x-oss-content-sha256"] = _NOT_HASHED
        names = [name for name in sorted(headers) if name.startswith("x-oss-") or name in _SIGNED]
        signed = "".join([f"{name}:{headers[name]}\n" for name in names])
        request = f"{method}\n{resource}\n{query}\n{signed}\nhost\n{_NOT_HASHED}"
        scope = f"{now[:8]}/{self._region}/oss/{_LAST}"
        text = f"{_SCHEME}\n{now}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
        signature = hmac.digest(self._signing_key(key.access_key_secret, now[:8]), text.encode(), "sha256").hex()
        headers["authorization"] = (
            f"{_SCHEME} Credential={key.access_key_id}/{scope}, Signature={signature}, AdditionalHeaders=host"
        )

    def _now(self) -> str:
        second = int(time.time())
        at, text = self._time
        if at != second:
            text = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(second))
            self._time = (second, text)
        return text

    def _signing_key(self, secret: str, date: str) -> bytes:
        of, derived = self._derived
        if of != (secret, date):
            derived = f"aliyun_v4{secret}".encode()
            for part in (date, self._region, "oss", _LAST):
                derived = hmac.digest(derived, part.encode(), "sha256")
            self._derived = ((secret, date), derived)
        return derived


def canonical_query(query: Mapping[str, str]) -> str:
    """Returns a query as it is signed and sent: sorted, and percent-encoded including slashes."""
    if not query:
        return ""
    pairs = sorted((quote(name, safe=""), quote(value, safe="")) for name, value in query.items())
    return "&".join(f"{name}={value}" if value else name for name, value in pairs)
