"""From what oss2 raises to one clear sentence."""

from __future__ import annotations

from xml.etree.ElementTree import ParseError

import oss2.exceptions
import requests
import urllib3.exceptions

from pai_sdk.errors import StorageError
from pai_sdk.storage.uri import OssUri

__all__ = ["TransientStorageError", "is_transient", "storage_error"]

_KEPT_DETAILS = ("Code", "Message", "Endpoint", "Region", "BucketName", "EC", "HostId")
_BROKEN = (
    requests.exceptions.ConnectionError,
    requests.exceptions.Timeout,
    requests.exceptions.ChunkedEncodingError,
    requests.exceptions.ContentDecodingError,
    urllib3.exceptions.HTTPError,
)
_TRANSIENT_CODES = frozenset(
    {"RequestTimeout", "InvalidDigest", "DownloadTrafficRateLimitExceeded", "QpsLimitExceeded"}
)
_SENTENCES = {
    "NoSuchBucket": "there is no bucket {bucket!r} at {endpoint}; check its name and region",
    "NoSuchKey": "there is nothing at this key",
    "NoSuchUpload": "the upload in parts was ended by somebody else",
    "AccessDenied": "the access key may not do this on bucket {bucket!r}; ask its owner for the permission",
    "SignatureDoesNotMatch": "the access key secret does not belong to the access key id; check both",
    "InvalidAccessKeyId": "the access key id is not known; check it, and that it has not been disabled",
    "SecurityTokenExpired": "the security token has expired; get a new one",
    "InvalidSecurityToken": "the security token is not valid; get a new one",
    "RequestTimeTooSkewed": "the clock of this machine is wrong by more than 15 minutes; set it",
    "InvalidDigest": "the bytes that arrived are not those that were sent",
    "QuotaExceeded": "the bucket is full",
    "UserDisable": "the account is disabled, mostly for unpaid bills",
}


class TransientStorageError(StorageError):
    """A failure that another attempt may mend.

    Attributes:
        retry_after_s: when OSS asked to come back, if it did.
        refused: whether nothing listens at the endpoint.
    """

    retry_after_s: float | None = None
    refused = False


def is_transient(error: BaseException) -> bool:
    """Whether another attempt makes sense."""
    return isinstance(error, TransientStorageError)


def storage_error(error: Exception, *, uri: OssUri, endpoint: str) -> StorageError:
    """Translate an error of oss2 or requests; the original loses whatever could hold a secret.

    Args:
        error: what was raised.
        uri: what was to be read or written.
        endpoint: the endpoint that was asked.
    """
    if isinstance(error, oss2.exceptions.OssError) and error.status > 0:
        return _refused(error, uri, endpoint)
    cause = getattr(error, "exception", error)
    if isinstance(cause, requests.exceptions.SSLError) and "CERTIFICATE_VERIFY" in str(cause):
        return StorageError(f"{uri}: the certificate of {endpoint} is not trusted", uri=str(uri))
    if isinstance(cause, _BROKEN):
        made = TransientStorageError(f"{uri}: {_no_answer(cause, endpoint)}", uri=str(uri))
        made.refused = _is_refused(cause)
        return made
    if isinstance(cause, ParseError):
        return TransientStorageError(f"{uri}: {endpoint} answered with what is not XML", uri=str(uri))
    if isinstance(cause, requests.RequestException):
        # requests quotes the header it does not like, and that may be the security token.
        return StorageError(f"{uri}: the request cannot be sent ({type(cause).__name__})", uri=str(uri))
    return StorageError(f"{uri}: {error}", uri=str(uri))


def _refused(error: oss2.exceptions.OssError, uri: OssUri, endpoint: str) -> StorageError:
    # A refused signature is answered with the text that was signed, and that text holds the security token.
    details = error.details if isinstance(error.details, dict) else {}
    error.details = details = {name: details[name] for name in _KEPT_DETAILS if details.get(name)}
    error.body = b""
    code = details.get("Code") or {404: "NoSuchKey", 403: "AccessDenied"}.get(error.status, "")
    request_id = error.request_id or None
    facts = ", ".join(filter(None, [code, f"HTTP {error.status}", request_id and f"RequestId {request_id}"]))
    transient = error.status in (408, 429) or error.status >= 500 or code in _TRANSIENT_CODES
    family = TransientStorageError if transient else StorageError
    made = family(
        f"{uri}: {_sentence(code, details, uri, endpoint)} [{facts}]",
        uri=str(uri),
        status_code=error.status,
        code=code,
        request_id=request_id,
    )
    if isinstance(made, TransientStorageError):
        made.retry_after_s = _seconds(error.headers.get("Retry-After"))
    return made


def _sentence(code: str, details: dict[str, str], uri: OssUri, endpoint: str) -> str:
    message = details.get("Message", "")
    right_endpoint = details.get("Endpoint")
    if right_endpoint and "endpoint" in message.lower():
        return f"bucket {uri.bucket!r} lies in another region; its endpoint is {right_endpoint}, not {endpoint}"
    if "region" in message.lower() and code in ("InvalidArgument", "AccessDenied", "SignatureDoesNotMatch"):
        return f"the region does not fit the endpoint {endpoint}: {message}"
    sentence = _SENTENCES.get(code)
    if sentence is None:
        return message or f"{endpoint} refused without giving a reason"
    return sentence.format(bucket=uri.bucket, endpoint=endpoint)


def _no_answer(cause: Exception, endpoint: str) -> str:
    if isinstance(cause, requests.exceptions.SSLError):
        return f"no secure connection to {endpoint}; check the certificate, or give the endpoint with http://"
    if isinstance(cause, requests.exceptions.ProxyError):
        return f"the proxy did not reach {endpoint}; check HTTPS_PROXY and NO_PROXY"
    if isinstance(cause, requests.exceptions.ConnectTimeout):
        return f"{endpoint} cannot be reached in time; check the endpoint and the network"
    if isinstance(cause, (requests.exceptions.ReadTimeout, urllib3.exceptions.ReadTimeoutError)):
        return f"{endpoint} went silent"
    if "NameResolution" in str(cause):
        return f"the host name of {endpoint} is not known; check the endpoint, the region and the network"
    if _is_refused(cause):
        return f"nothing listens at {endpoint}; check the endpoint"
    return f"the connection to {endpoint} broke off"


def _is_refused(cause: Exception) -> bool:
    return isinstance(cause, requests.exceptions.ConnectionError) and "refused" in str(cause)


def _seconds(text: str | None) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        return None
