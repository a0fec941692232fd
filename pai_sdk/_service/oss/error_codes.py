"""OSS error codes with status and message."""

from __future__ import annotations

from pai_sdk.errors import ObjectNotFoundError, StorageError

_RETRY_AFTER_S = 5.0

ERRORS: dict[str, tuple[int, str]] = {
    "AccessDenied": (403, "The request is not signed, or has expired."),
    "BucketAlreadyExists": (409, "The bucket name is in use; choose another."),
    "BucketNotEmpty": (409, "The bucket contains objects or unfinished uploads; delete them first."),
    "EntityTooLarge": (400, "The body is larger than one request may carry; upload it in parts."),
    "EntityTooSmall": (400, "Each part except the last must have at least 100 KB."),
    "FileAlreadyExists": (409, "The object exists already, and x-oss-forbid-overwrite was set."),
    "IncompleteBody": (400, "The body ended before its Content-Length; nothing was stored."),
    "InsufficientStorage": (
        507,
        "The disk of the object store is full; nothing was stored. Free some space, then try again.",
    ),
    "InternalError": (500, "The object store failed; its log says why. Nothing was stored."),
    "InvalidAccessKeyId": (403, "The access key id does not exist on this service; check it."),
    "InvalidArgument": (400, "An argument of the request is invalid."),
    "InvalidBucketName": (400, "A bucket name has 3 to 63 lower-case letters, digits and inner hyphens."),
    "InvalidDigest": (400, "Content-MD5 is not the MD5 of the bytes that arrived; send them again."),
    "InvalidObjectName": (400, "A key has 1 to 1023 bytes of UTF-8 and does not begin with / or \\."),
    "InvalidPart": (400, "A listed part was not uploaded, or has another ETag."),
    "InvalidPartOrder": (400, "The parts must be listed in ascending order of their numbers."),
    "InvalidRange": (416, "The range is outside the object."),
    "MalformedXML": (400, "The body is not the XML that this request needs."),
    "MethodNotAllowed": (405, "The method is not allowed on this resource."),
    "MissingArgument": (400, "A required argument is missing."),
    "MissingContentLength": (411, "The request needs a Content-Length."),
    "NoSuchBucket": (404, "There is no such bucket; check its name."),
    "NoSuchKey": (404, "There is no such object; check its key."),
    "NoSuchUpload": (404, "There is no such upload; it was completed or aborted, or never started."),
    "NotModified": (304, "The object has not changed."),
    "NotImplemented": (501, "This object store does not support the request."),
    "ObjectDamaged": (410, "The content of the object was lost on the disk of the service; upload it again."),
    "ObjectNotAppendable": (409, "The object was not created by AppendObject, so nothing can be appended to it."),
    "PositionNotEqualToLength": (409, "The position is not the current length of the object."),
    "PreconditionFailed": (412, "A condition of the request is not met."),
    "QpsLimitExceeded": (503, "The access key exceeds the request rate of this service; try again later."),
    "RequestTimeTooSkewed": (403, "The time of the request is more than 15 minutes off; set the clock."),
    "ServiceUnavailable": (503, "The external store of object contents does not respond; try again later."),
    "SignatureDoesNotMatch": (403, "The signature does not match the request; check the access key secret."),
}


def oss_error(code: str, message: str = "", *, bucket: str = "", key: str = "") -> StorageError:
    """Returns an error with code, status and message of OSS; `message` replaces the usual one."""
    status, sentence = ERRORS[code]
    uri = f"oss://{bucket}/{key}" if bucket else ""
    if code == "NoSuchKey":
        return ObjectNotFoundError(message or sentence, uri=uri)
    return StorageError(message or sentence, uri=uri, status_code=status, code=code)


def unavailable(message: str = "") -> StorageError:
    """Returns the error for content that is temporarily unavailable."""
    status, sentence = ERRORS["ServiceUnavailable"]
    return StorageError(
        message or sentence,
        status_code=status,
        code="ServiceUnavailable",
        retryable=True,
        retry_after_s=_RETRY_AFTER_S,
    )


class WrongPositionError(StorageError):
    """Raised when an append is not at the end of the object (`PositionNotEqualToLength`)."""

    def __init__(self, *, bucket: str, key: str, size_bytes: int) -> None:
        status, sentence = ERRORS["PositionNotEqualToLength"]
        super().__init__(
            f"{sentence[:-1]}, {size_bytes} bytes.",
            uri=f"oss://{bucket}/{key}",
            status_code=status,
            code="PositionNotEqualToLength",
        )
        # Of the object: clients continue from there.
        self.size_bytes = size_bytes
