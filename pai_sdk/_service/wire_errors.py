"""Errors of the service in PAI's format: `{RequestId, Code, Message, HostId}` with an HTTP status."""

from __future__ import annotations

from starlette.responses import JSONResponse

from pai_sdk._wire.base import ErrorBody, response_body


class WireError(Exception):
    """Raised when a request is refused, with the response that the client receives."""

    def __init__(
        self,
        status_code: int,
        code: str,
        message: str,
        *,
        retry_after_s: int | None = None,
        command: str | None = None,
    ) -> None:
        super().__init__(message)
        self.status_code = status_code
        self.code = code
        self.message = message  # with the remedy, for users
        self.retry_after_s = retry_after_s
        self.command = command  # for the user, if one helps; the page offers it for copying


def invalid_parameter(message: str) -> WireError:
    """Returns the error for an invalid request."""
    return WireError(400, "InvalidParameter", message)


def job_not_found(job_id: str) -> WireError:
    """Returns the error for a missing job."""
    return WireError(
        404,
        "TRAINING_JOB_NOT_FOUND",
        f"There is no training job {job_id[:100]!r} here; `pai-sdk ps` lists the jobs.",
    )


def wire_error_response(error: WireError, *, request_id: str, host: str) -> JSONResponse:
    """Returns the error response for a refusal."""
    body = ErrorBody(request_id=request_id, code=error.code, message=error.message, host_id=host)
    if error.command is not None:
        body = body.model_copy(update={"command": error.command})
    headers = None if error.retry_after_s is None else {"Retry-After": str(error.retry_after_s)}
    return JSONResponse(response_body(body), error.status_code, headers)
