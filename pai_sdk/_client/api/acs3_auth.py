"""Signs requests; each attempt is signed anew."""

from __future__ import annotations

import secrets
from datetime import datetime, timezone
from urllib.parse import parse_qsl, urlsplit

from requests import PreparedRequest
from requests.auth import AuthBase

from pai_sdk._core.config.credentials import CredentialsProvider
from pai_sdk._wire.signature import ACS3, acs3_signature, payload_hash


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
