"""What the service refuses, in PAI's form: `{RequestId, Code, Message, HostId}` with the fitting HTTP status."""

from __future__ import annotations

from starlette.responses import JSONResponse

__all__ = ["Fault", "fault_response", "invalid_parameter", "job_not_found"]


class Fault(Exception):
    """A refusal, as the client receives it.

    Attributes:
        status_code: the HTTP status.
        code: the code programs look at.
        message: what happened and what to do, for people.
        retry_after_s: when to try again, if that is known.
    """

    def __init__(self, status_code: int, code: str, message: str, *, retry_after_s: int | None = None) -> None:
        super().__init__(message)
        self.status_code = status_code
        self.code = code
        self.message = message
        self.retry_after_s = retry_after_s


def invalid_parameter(message: str) -> Fault:
    """The request itself is wrong."""
    return Fault(400, "InvalidParameter", message)


def job_not_found(job_id: str) -> Fault:
    """No such job."""
    return Fault(
        404,
        "TRAINING_JOB_NOT_FOUND",
        f"There is no training job {job_id[:100]!r} here; `pai-sdk ps` lists those there are.",
    )


def fault_response(fault: Fault, *, request_id: str, host: str) -> JSONResponse:
    """The error response for a refusal."""
    body = {"RequestId": request_id, "Code": fault.code, "Message": fault.message, "HostId": host}
    headers = None if fault.retry_after_s is None else {"Retry-After": str(fault.retry_after_s)}
    return JSONResponse(body, fault.status_code, headers)
