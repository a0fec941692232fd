"""Maps the code and status of a refusal to the class of the error."""

from __future__ import annotations

from pai_sdk.errors import (
    ApiError,
    AuthenticationError,
    ConflictError,
    InvalidRequestError,
    NotFoundError,
    PermissionDeniedError,
    RepeatedRequestError,
    ServiceFaultError,
    ThrottledError,
)

_BY_STATUS: dict[int, type[ApiError]] = {
    400: InvalidRequestError,
    401: AuthenticationError,
    403: PermissionDeniedError,
    404: NotFoundError,
    409: ConflictError,
    429: ThrottledError,
}
# Codes win over the status: Alibaba Cloud answers a wrong key with 400, 403 or 404, depending on the service.
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
    "ServiceUnavailable": ServiceFaultError,
    "InternalError": ServiceFaultError,
}


def api_error(
    message: str, *, code: str, status_code: int, request_id: str | None, retry_after_s: float | None = None
) -> ApiError:
    """Build the error that fits the service's code, or else the HTTP status.

    Example:
        >>> type(api_error("slow down", code="Throttling.User", status_code=400, request_id="r")).__name__
        'ThrottledError'
    """
    family = _BY_CODE.get(code) or _BY_CODE.get(code.partition(".")[0]) or _BY_STATUS.get(status_code)
    if family is None:
        family = ServiceFaultError if status_code >= 500 else ApiError
    facts = ", ".join(filter(None, [code, f"HTTP {status_code}", f"RequestId {request_id}" if request_id else ""]))
    return family(
        f"{message} [{facts}]",
        code=code,
        status_code=status_code,
        request_id=request_id,
        retry_after_s=retry_after_s,
    )
