"""Tokens that give access to one job, or to all jobs, for a limited time (GetToken)."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from typing import Annotated

from fastapi import Depends, Query, Request

from pai_sdk._service.services.context import ContextOf, ServiceContext
from pai_sdk._service.wire_errors import WireError

_CONTEXT = b"pai-sdk token"


def new_token(context: ServiceContext, job_id: str | None, expires_at: float) -> str:
    """Returns a token for one job, or for all of them."""
    claims = json.dumps({"job": job_id, "expires": int(expires_at)}, separators=(",", ":")).encode()
    return f"{_text(claims)}.{_text(_signature(context, claims))}"


async def _checked(
    request: Request, context: ContextOf, token: Annotated[str | None, Query(alias="Token")] = None
) -> None:
    """Checks the token of a request, if there is one; the request must be signed all the same."""
    if not token:
        return
    try:
        claims, signature = (base64.urlsafe_b64decode(part + "==") for part in token.split("."))
        is_valid = hmac.compare_digest(signature, _signature(context, claims))
    except ValueError:
        is_valid = False
    if not is_valid:
        raise WireError(403, "InvalidToken", "The token was not created by this service.")
    token_claims = json.loads(claims)
    if token_claims["expires"] < time.time():
        raise WireError(403, "InvalidToken", "The token has expired; ask for another one with GetToken.")
    if token_claims["job"] not in (None, request.path_params.get("job_id")):
        raise WireError(403, "InvalidToken", f"The token is for job {token_claims['job']} only.")


TokenChecked = Depends(_checked)
"""A dependency of routes: the query's `Token`, if there is one, is valid."""


def _signature(context: ServiceContext, claims: bytes) -> bytes:
    key = hashlib.sha256(_CONTEXT + context.info.access_key_secret.encode()).digest()
    return hmac.digest(key, claims, "sha256")


def _text(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()
