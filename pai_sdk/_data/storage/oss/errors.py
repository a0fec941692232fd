"""Translates errors of oss2 and requests into a `StorageError` with a clear message."""

from __future__ import annotations

from xml.etree.ElementTree import ParseError

import requests
from urllib3.exceptions import HTTPError

from pai_sdk._core.missing_response import diagnose
from pai_sdk._data.storage.oss2_import import oss2
from pai_sdk._data.storage.uri import OssUri
from pai_sdk.errors import ObjectNotFoundError, StorageError, UnreachableStorageError

_SAFE_DETAILS = ("Code", "Message", "Endpoint", "Region", "BucketName", "EC", "HostId")
_CHECK_HINT = "check the endpoint, and HTTPS_PROXY if there is a proxy"
_TRANSIENT_CODES = frozenset(
    {"RequestTimeout", "InvalidDigest", "DownloadTrafficRateLimitExceeded", "QpsLimitExceeded"}
)
_SENTENCES = {
    "NoSuchBucket": "there is no bucket {bucket!r} at {endpoint}; check its name and region",
    "NoSuchKey": "no object with this key",
    "NoSuchUpload": "another client completed or aborted the multipart upload",
    "AccessDenied": "the access key is not allowed to do this on bucket {bucket!r}; ask its owner for permission",
    "SignatureDoesNotMatch": "the access key secret does not belong to the access key id; check both",
    "InvalidAccessKeyId": "the access key id does not exist; check it, and that it has not been disabled",
    "SecurityTokenExpired": "the security token has expired; get a new one",
    "InvalidSecurityToken": "the security token is not valid; get a new one",
    "RequestTimeTooSkewed": "the clock of this machine is wrong by more than 15 minutes; set it",
    "InvalidDigest": "the bytes that arrived are not those that were sent",
    "QuotaExceeded": "the bucket is full",
    "UserDisable": "the account is disabled, mostly for unpaid bills",
}


class NotOssError(requests.RequestException):
    """Raised when a success does not come from OSS; the message says what is wrong with it."""


class ForeignResponseError(StorageError):
    """Raised when another server than OSS responded with a success, such as a login page of a network."""

    def __init__(self, uri: OssUri, endpoint: str, detail: str) -> None:
        message = f"{uri}: {endpoint} responded {detail}, so it is not OSS; {_CHECK_HINT}"
        super().__init__(message, uri=str(uri), retryable=True)


def storage_error(error: Exception, *, uri: OssUri, endpoint: str) -> StorageError:
    """Translates an error of oss2 or requests; possible secrets are removed from the original."""
    if isinstance(error, oss2.exceptions.OssError) and error.status > 0:
        return _refusal(error, uri, endpoint)
    cause = getattr(error, "exception", error)
    if isinstance(cause, NotOssError):
        return ForeignResponseError(uri, endpoint, str(cause))
    if isinstance(cause, OSError | HTTPError):
        return _no_response(cause, uri, endpoint)
    # oss2 raises RuntimeError when an element is missing, and ValueError when a number or a date is none.
    if isinstance(cause, ParseError | RuntimeError | ValueError):
        return ForeignResponseError(uri, endpoint, "with what is not XML of OSS")
    return StorageError(f"{uri}: {error}", uri=str(uri))


def _no_response(cause: OSError | HTTPError, uri: OssUri, endpoint: str) -> StorageError:
    diagnosis = diagnose(cause, endpoint)
    family = StorageError if diagnosis.transient else UnreachableStorageError
    return family(
        f"{uri}: {diagnosis.sentence}", uri=str(uri), retryable=diagnosis.transient, refused=diagnosis.refused
    )


def _refusal(error: oss2.exceptions.OssError, uri: OssUri, endpoint: str) -> StorageError:
    # The response to a wrong signature quotes the signed text, and with it the security token.
    details = error.details if isinstance(error.details, dict) else {}
    error.details = details = {name: details[name] for name in _SAFE_DETAILS if details.get(name)}
    is_page = error.body.lstrip()[:1] == b"<" and not details
    error.body = b""
    request_id = error.request_id or None
    if not details.get("Code") and not request_id:
        # OSS always sends one of the two.
        content = "a web page" if is_page else "no reason"
        server = f"something that is not OSS, at {endpoint} or on the way to it,"
        message = f"{server} responded with HTTP {error.status} and {content}; {_CHECK_HINT}"
        return _error_response(error, message, uri)
    code = details.get("Code") or {404: "NoSuchKey", 403: "AccessDenied"}.get(error.status, "")
    summary = ", ".join(filter(None, [code, f"HTTP {error.status}", request_id and f"RequestId {request_id}"]))
    sentence = f"{_sentence(code, details, uri, endpoint)} [{summary}]"
    return _error_response(error, sentence, uri, code=code, request_id=request_id)


def _error_response(
    error: oss2.exceptions.OssError, sentence: str, uri: OssUri, *, code: str = "", request_id: str | None = None
) -> StorageError:
    if code == "NoSuchKey":
        return ObjectNotFoundError(f"{uri}: {sentence}", uri=str(uri), request_id=request_id)
    is_transient = error.status in (408, 429) or error.status >= 500 or code in _TRANSIENT_CODES
    return StorageError(
        f"{uri}: {sentence}",
        uri=str(uri),
        status_code=error.status,
        code=code,
        request_id=request_id,
        retryable=is_transient,
        retry_after_s=_seconds(error.headers.get("retry-after")),
    )


def _sentence(code: str, details: dict[str, str], uri: OssUri, endpoint: str) -> str:
    message = details.get("Message", "")
    right_endpoint = details.get("Endpoint")
    if right_endpoint and "endpoint" in message.lower():
        return f"bucket {uri.bucket!r} lies in another region; its endpoint is {right_endpoint}, not {endpoint}"
    if "region" in message.lower() and code in ("InvalidArgument", "AccessDenied", "SignatureDoesNotMatch"):
        return f"the region does not fit the endpoint {endpoint}: {message}"
    sentence = _SENTENCES.get(code)
    is_expired = code == "InvalidAccessKeyId" and " expired at " in message  # by a service of this package
    if sentence is None or is_expired:
        return message or f"{endpoint} refused without giving a reason"
    return sentence.format(bucket=uri.bucket, endpoint=endpoint)


def _seconds(text: str | None) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        return None
