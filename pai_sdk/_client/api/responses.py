"""Reads responses: a JSON object, or the body of an error, which is raised."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timezone
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar

import requests
from pydantic import ValidationError
from pydantic.alias_generators import to_camel, to_pascal

from pai_sdk._core.short_traceback import short_traceback
from pai_sdk._wire.base import wire_names
from pai_sdk._wire.pai.wire import Received, problems_of
from pai_sdk.errors import (
    ApiError,
    AuthenticationError,
    ConflictError,
    InvalidRequestError,
    InvalidResponseError,
    NotFoundError,
    PermissionDeniedError,
    RepeatedRequestError,
    ServerError,
    ThrottledError,
    UserQuotaError,
)

_log = logging.getLogger(__name__)
_Record = TypeVar("_Record", bound=Received)

_CHUNK_BYTES = 1 << 16

_SENTENCES = {
    "InvalidAccessKeyId.Inactive": "{message}",  # it says since when, or that the key is disabled
    "InvalidAccessKeyId": "{host} has no such access key id; check it, and that it is not disabled",
    "SignatureDoesNotMatch": "the access key secret does not belong to the access key id; check both",
    "SignatureNonceUsed": "the request arrived twice; does a proxy before {host} repeat requests?",
    "IncompleteSignature": "the signature was not accepted; check the access key id and its secret",
    "InvalidSecurityToken": "the security token is not valid or has expired; get a new temporary key",
    "MissingSecurityToken": "this access key is a temporary one and needs its security token; give that too",
    "InvalidTimeStamp": "the clock of this machine {skew}; correct it",
    "IllegalTimestamp": "the clock of this machine {skew}; correct it",
    "RequestTimeTooSkewed": "the clock of this machine {skew}; correct it",
}


@dataclass(frozen=True)
class ApiResponse:
    """A response of the service with a status of 2xx, or 304."""

    json: dict[str, Any]  # empty for 204 and 304, which have no body
    status_code: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)  # names in any case
    request_id: str | None = None
    action: str = ""  # that was called

    def invalid(self, reason: str) -> InvalidResponseError:
        """Returns the error of a response of the service itself that is not what the API describes."""
        return InvalidResponseError(
            f"{self.action}: {reason}",
            status_code=self.status_code,
            request_id=self.request_id,
            is_from_service=True,
        )


def read_body(response: requests.Response, *, action: str, host: str, max_bytes: int) -> bytes:
    """Reads and unpacks the body of a response, up to a maximum size."""
    body = bytearray()
    for chunk in response.iter_content(_CHUNK_BYTES):
        body += chunk
        if len(body) > max_bytes:
            raise _invalid(response, b"", action, host, f"more than {max_bytes >> 20} MiB")
    return bytes(body)


def read_response(response: requests.Response, body: bytes, *, action: str, host: str) -> ApiResponse:
    """Reads a response; raises `ApiError` if it is a refusal, `InvalidResponseError` if it is malformed."""
    status = response.status_code
    if status == 429 and not body.lstrip().startswith(b"{"):
        # From a gateway: its 429 has a page of its own, not the JSON of the service.
        raise _throttled(response, action, host)
    if status in (204, 304):
        return ApiResponse({}, status, response.headers, _request_id(response, {}), action)
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        raise _invalid(response, body, action, host, _kind(body)) from None
    if not isinstance(content, dict):
        raise _invalid(response, body, action, host, f"a JSON {type(content).__name__} instead of an object")
    if status >= 400:
        raise _refused(response, content, action, host)
    if status >= 300:
        raise _invalid(response, body, action, host, "a redirection")
    return ApiResponse(content, status, response.headers, _request_id(response, content), action)


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Returns the requested pause: `x-acs-retry-after` (ms), or `Retry-After` (seconds, or a date)."""
    milliseconds = _number(headers.get("x-acs-retry-after"))
    if milliseconds is not None and milliseconds > 0:
        return milliseconds / 1000
    text = headers.get("Retry-After")
    seconds = _number(text)
    if seconds is not None or not text:
        return seconds
    at = _timestamp(text)
    # Relative to the service's clock, if the response has its time: the clock of this machine may be wrong.
    now = _timestamp(headers.get("Date")) or time.time()
    return None if at is None else max(0.0, at - now)


def _refused(response: requests.Response, content: dict[str, Any], action: str, host: str) -> ApiError:
    code = _text(content, "code")
    request_id = _request_id(response, content)
    # These messages replace those of the service, which may quote the signed string and a token in it.
    sentence = _SENTENCES.get(code) or _SENTENCES.get(code.partition(".")[0])
    message = _text(content, "message").strip() or "the service gave no reason"
    if sentence is None:
        sentence = message
    else:
        skew = _skew(response.headers.get("Date"))
        sentence = sentence.format(host=host, skew=skew, message=message)
    return api_error(
        f"{action}: {sentence}",
        code=code,
        status_code=response.status_code,
        request_id=request_id,
        retry_after_s=retry_after_s(response.headers),
    )


def _throttled(response: requests.Response, action: str, host: str) -> ApiError:
    """Returns the error for a gateway's 429 in any format; the action was not carried out."""
    return api_error(
        f"{action}: {host} received too many requests; send fewer at a time",
        code="",
        status_code=429,
        request_id=_request_id(response, {}),
        retry_after_s=retry_after_s(response.headers),
    )


def _invalid(
    response: requests.Response, body: bytes, action: str, host: str, content: str
) -> InvalidResponseError:
    status = response.status_code
    return InvalidResponseError(
        f"{action}: {host} sent HTTP {status} with {content}; {_advice(status)}",
        status_code=status,
        body=body[:500].decode("utf-8", errors="replace"),
        request_id=_request_id(response, {}),
        retry_after_s=retry_after_s(response.headers),
    )


def _advice(status: int) -> str:
    if status >= 500:
        return "the service, or a gateway in front of it, failed"
    if status == 407:
        return "the proxy requires a user and a password: HTTPS_PROXY=http://user:password@host:port"
    return "check that the endpoint belongs to PAI, and check the proxy"


def _kind(body: bytes) -> str:
    start = body.lstrip()[:1]
    if not start:
        return "an empty body"
    if start == b"<":
        return "HTML or XML instead of JSON"
    return "truncated or damaged JSON" if start in b"{[" else "a body that is not JSON"


def _request_id(response: requests.Response, content: dict[str, Any]) -> str | None:
    return _text(content, "request_id") or response.headers.get("x-acs-request-id") or None


def _text(content: dict[str, Any], field: str) -> str:
    # A few old actions of PAI spell these fields with a lower-case first letter.
    value = content.get(to_pascal(field)) or content.get(to_camel(field))
    return str(value) if value else ""


def _skew(date: str | None) -> str:
    server_time = _timestamp(date)
    if server_time is None or abs(time.time() - server_time) < 60:
        return "differs from the service's"
    seconds = time.time() - server_time
    return f"is {_span(abs(seconds))} {'ahead of' if seconds > 0 else 'behind'} the service's"


def _span(seconds: float) -> str:
    for unit, length_s in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length_s:
            return f"{seconds / length_s:.0f} {unit}"
    return f"{seconds:.0f} seconds"


def _timestamp(date: str | None) -> float | None:
    try:
        moment = parsedate_to_datetime(date) if date else None
    except ValueError:
        return None
    if moment is None:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).timestamp()


def _number(text: str | None) -> float | None:
    try:
        number = float(text) if text else None
    except ValueError:
        return None
    return number if number is not None and 0 <= number < float("inf") else None


def read_model(model: type[_Record], response: ApiResponse, content: Any = None, **defaults: Any) -> _Record:
    """Reads a response, or `content` of it, as a model; `defaults` are fields that the service may leave out."""
    try:
        return model.model_validate(_completed(response.json if content is None else content, defaults))
    except ValidationError as error:
        fields = ", ".join(sorted({str(e["loc"][0]) for e in error.errors() if e["loc"]}))
        reason = f"unexpected response (in {fields or 'all of it'})"
        # Pydantic quotes values, and those of environments may be secrets.
        raise response.invalid(reason) from None


def _completed(content: Any, defaults: Mapping[str, Any]) -> Any:
    return {**wire_names(**defaults), **content} if defaults and isinstance(content, dict) else content


def read_item(model: type[_Record], content: Any, action: str, **defaults: Any) -> _Record | None:
    """Reads one item of a list in a response; returns None, with a warning, where it cannot be read."""
    try:
        return model.model_validate(_completed(content, defaults))
    except ValidationError as error:
        wrong = "; ".join(str(problem) for problem in problems_of(error, model.__name__))
        _log.warning("%s: skipping an item that cannot be read: %s", action, wrong)
        return None


@short_traceback
def read_items(
    model: type[_Record], pages: Iterable[list[Any]], action: str, **defaults: Any
) -> Iterator[_Record]:
    """Reads all items of the pages of a list that can be read."""
    for page in pages:
        for item in page:
            record = read_item(model, item, action, **defaults)
            if record is not None:
                yield record


_BY_STATUS: dict[int, type[ApiError]] = {
    400: InvalidRequestError,
    401: AuthenticationError,
    403: PermissionDeniedError,
    404: NotFoundError,
    409: ConflictError,
    429: ThrottledError,
}
# Codes win over the status: Alibaba Cloud responds to a wrong key with 400, 403 or 404, depending on the service.
_BY_CODE: dict[str, type[ApiError]] = {
    "SignatureDoesNotMatch": AuthenticationError,
    "IncompleteSignature": AuthenticationError,
    "InvalidTimeStamp": AuthenticationError,
    "IllegalTimestamp": AuthenticationError,
    "RequestTimeTooSkewed": AuthenticationError,
    "SignatureNonceUsed": RepeatedRequestError,
    "InvalidSecurityToken": AuthenticationError,
    "MissingSecurityToken": AuthenticationError,
    "InvalidAccessKeyId": AuthenticationError,
    "InvalidCredentials": AuthenticationError,
    "NoPermission": PermissionDeniedError,
    "Forbidden": PermissionDeniedError,
    "Throttling": ThrottledError,
    "ServiceUnavailable": ServerError,
    "InternalError": ServerError,
    "UserQuotaExceeded": UserQuotaError,
}


def api_error(
    message: str, *, code: str, status_code: int, request_id: str | None, retry_after_s: float | None = None
) -> ApiError:
    """Builds the error for the code of the service, or else for the HTTP status."""
    family = _BY_CODE.get(code) or _BY_CODE.get(code.partition(".")[0]) or _BY_STATUS.get(status_code)
    if family is None:
        family = ServerError if status_code >= 500 else ApiError
    details = ", ".join(
        filter(None, [code, f"HTTP {status_code}", f"RequestId {request_id}" if request_id else ""])
    )
    return family(
        f"{message} [{details}]",
        code=code,
        status_code=status_code,
        request_id=request_id,
        retry_after_s=retry_after_s,
    )
