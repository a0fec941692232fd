"""Every error a user can meet.

Each message says what happened, to which job or file, and what to do next; the facts it was built from are
attributes, so that a script can branch on them.

    PaiError
    ├── SettingsError              a setting is missing, malformed or contradicts another
    │   └── CredentialsError       no access key could be found, or the one found cannot be used
    │       └── CredentialsRenewalError  the key cannot be renewed now; a later attempt may succeed
    ├── InvalidInputError          what was described cannot be submitted; `problems` lists all that is wrong
    │   ├── CodeError              the code folder or repository cannot be taken along
    │   └── WrongCallError         a keyword that there is not, or one that is missing; a TypeError too
    ├── ConnectionFailedError      no answer: the endpoint was not reached, or went silent
    ├── BadAnswerError             an answer that is not the service's (HTML, empty, cut off); the status is kept
    ├── ApiError                   the service refused; `code`, `status_code`, `request_id`
    │   ├── InvalidRequestError    400: the request itself
    │   ├── AuthenticationError    the key or the signature was not accepted
    │   │   └── RepeatedRequestError   the request was delivered twice; the first delivery was accepted
    │   ├── PermissionDeniedError  the key is known but may not do this
    │   ├── NotFoundError          404
    │   ├── ConflictError          409
    │   ├── ThrottledError         429 and Throttling.*: too many requests, even after the retries
    │   └── ServiceFaultError      5xx, even after the retries
    ├── StorageError               an object or folder in OSS cannot be read or written
    │   ├── UnreachableStorageError  nothing to try again: no such host, no TLS, a wrong certificate
    │   ├── UntrustedEndpointError   a URI names a host that is neither OSS nor in the settings; nothing was sent
    │   └── TransferError          some files of an upload or download failed; `failures` lists them
    ├── JobError                   about one job; `job_id`
    │   ├── JobFailed              it ended as Failed, CreateFailed or InitializeFailed
    │   ├── JobStopped             it was stopped before it could end
    │   └── WaitTimeoutError       it goes on, but the caller's deadline has passed
    ├── ServiceStartError          the embedded service did not come up
    └── LocalRunError              a job cannot be run on this machine
        ├── EngineNotFoundError    no Docker engine answers
        └── ImageError             the image is not there and cannot be pulled, or cannot run a job
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = [
    "ApiError", "AuthenticationError", "BadAnswerError", "CodeError", "ConflictError", "ConnectionFailedError",
    "CredentialsError", "CredentialsRenewalError", "EngineNotFoundError", "ImageError", "InvalidInputError",
    "InvalidRequestError", "JobError", "JobFailed", "JobStopped", "LocalRunError", "NotFoundError", "PaiError",
    "PermissionDeniedError", "Problem", "RepeatedRequestError", "ServiceFaultError", "ServiceStartError",
    "SettingsError", "StorageError", "ThrottledError", "TransferError", "UnreachableStorageError",
    "UntrustedEndpointError", "WaitTimeoutError", "WrongCallError",
]  # fmt: skip


_PACKAGE = str(Path(__file__).parent)
# What moves a cursor, sets a clipboard or turns the direction of writing; all but tabs and line ends.
_NOT_TEXT = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


class PaiError(Exception):
    """The root of all errors raised by pai_sdk.

    Attributes:
        maybe_arrived: whether the request may have been carried out all the same.
    """

    maybe_arrived = False

    def __str__(self) -> str:
        # Parts of it were written elsewhere, by a service or a job: they are shown, and no terminal obeys them.
        return _NOT_TEXT.sub(lambda found: found[0].encode("unicode_escape").decode(), super().__str__())

    def _render_traceback_(self) -> list[str]:
        # A notebook asks for this. The message says it all; what lies between the cell and it would bury it.
        import traceback

        frames = [
            frame
            for frame in traceback.extract_tb(self.__traceback__)
            if not frame.filename.startswith(_PACKAGE) and "/IPython/core/" not in frame.filename
        ]
        shown = "".join(traceback.format_list(frames[-3:])).rstrip()
        return [*shown.splitlines(), f"{type(self).__name__}: {self}"]

    def __reduce__(self) -> tuple[Any, ...]:
        # Pickled by a pool of processes: as it is, not made anew of its message, which would lack its facts.
        return _as_it_was, (type(self), self.args), vars(self)


def _as_it_was(kind: type[PaiError], args: tuple[Any, ...]) -> PaiError:
    error = kind.__new__(kind)
    error.args = args
    return error


# ---- before anything is sent ------------------------------------------------------------------------------


class SettingsError(PaiError):
    """A setting is missing, malformed or contradicts another."""


class CredentialsError(SettingsError):
    """No access key could be found, or the one found cannot be used."""


class CredentialsRenewalError(CredentialsError):
    """The key cannot be renewed now: its source did not answer. A later attempt may succeed."""


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with a description.

    Attributes:
        where: the parameter, as the user wrote it: `inputs['train']`.
        what: what is wrong with it.
        hint: what to do about it; empty when the text above says it already.
    """

    where: str
    what: str
    hint: str = ""

    def __str__(self) -> str:
        return f"{self.where}: {self.what}" + (f" ({self.hint})" if self.hint else "")


class InvalidInputError(PaiError, ValueError):
    """What was described cannot be submitted. Nothing has been sent.

    Attributes:
        problems: everything that is wrong, not just the first.

    Example:
        >>> str(InvalidInputError([Problem("command", "is empty", "give the program to run")]))
        'command: is empty (give the program to run)'
    """

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        if len(self.problems) == 1:
            super().__init__(str(self.problems[0]))
        else:
            lines = "".join(f"\n  - {problem}" for problem in self.problems)
            super().__init__(f"{len(self.problems)} problems, nothing was sent:{lines}")


class CodeError(InvalidInputError):
    """The code folder or repository cannot be taken along."""


class WrongCallError(InvalidInputError, TypeError):
    """A call with keywords that there are not, or without some that must be there; the nearest names are told."""


# ---- the wire ---------------------------------------------------------------------------------------------


class ConnectionFailedError(PaiError):
    """No answer came: the endpoint was not reached, or went silent.

    Attributes:
        endpoint: whom we tried to reach.
        attempts: how often.
        maybe_arrived: whether the request may have been carried out all the same.
    """

    def __init__(self, message: str, *, endpoint: str, attempts: int = 1, maybe_arrived: bool = False) -> None:
        super().__init__(message)
        self.endpoint = endpoint
        self.attempts = attempts
        self.maybe_arrived = maybe_arrived


class BadAnswerError(PaiError):
    """An answer that the service cannot have meant: HTML, empty, cut off, not an object.

    Attributes:
        status_code: the HTTP status.
        body: its first 500 characters.
        request_id: the service's id of the request, when a header bore one.
        retry_after_s: when the answer asked to come back, in seconds.
        is_from_service: it is the service's, of a kind that we cannot read; asking again changes nothing.
    """

    def __init__(
        self,
        message: str,
        *,
        status_code: int,
        body: str = "",
        request_id: str | None = None,
        retry_after_s: float | None = None,
        is_from_service: bool = False,
    ) -> None:
        super().__init__(message)
        self.is_from_service = is_from_service
        self.maybe_arrived = status_code < 300 or status_code >= 500
        self.status_code = status_code
        self.body = body
        self.request_id = request_id
        self.retry_after_s = retry_after_s


class ApiError(PaiError):
    """The service refused a request.

    Attributes:
        code: the service's code, such as `InvalidParameter`.
        status_code: the HTTP status.
        request_id: what the service's support asks for.
        retry_after_s: when the service asked to come back, in seconds.
    """

    def __init__(
        self,
        message: str,
        *,
        code: str = "",
        status_code: int = 0,
        request_id: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.status_code = status_code
        self.request_id = request_id
        self.retry_after_s = retry_after_s


class InvalidRequestError(ApiError):
    """The service finds the request itself wrong (400)."""


class AuthenticationError(ApiError):
    """The key or the signature was not accepted (401, or a 403 that says so)."""


class RepeatedRequestError(AuthenticationError):
    """The service has seen this very request before: something on the way delivered it twice."""

    maybe_arrived = True


class PermissionDeniedError(ApiError):
    """The key is known, but may not do this (403)."""


class NotFoundError(ApiError):
    """The service knows no such thing (404)."""


class ConflictError(ApiError):
    """It clashes with something that is there already (409)."""


class ThrottledError(ApiError):
    """Too many requests, even after the retries (429, `Throttling.*`)."""


class ServiceFaultError(ApiError):
    """A fault of the service, even after the retries (5xx)."""

    maybe_arrived = True


# ---- storage ----------------------------------------------------------------------------------------------


class StorageError(PaiError):
    """An object or a folder in OSS cannot be read or written.

    Attributes:
        uri: which.
        status_code: the HTTP status, 0 when no answer came.
        code: the code of OSS, such as `NoSuchBucket`.
        request_id: the id OSS gave the request.
    """

    def __init__(
        self, message: str, *, uri: str = "", status_code: int = 0, code: str = "", request_id: str | None = None
    ) -> None:
        super().__init__(message)
        self.uri = uri
        self.status_code = status_code
        self.code = code
        self.request_id = request_id


class UnreachableStorageError(StorageError):
    """No answer, and none to be expected from this endpoint: no such host, no TLS there, a wrong certificate."""


class UntrustedEndpointError(StorageError):
    """A URI names a host that is neither Alibaba Cloud's OSS nor in the settings. Nothing was sent to it."""


class TransferError(StorageError):
    """Some files of an upload or a download failed; the others are whole and in place.

    Attributes:
        failures: the failed files, each with its error.
    """

    def __init__(self, message: str, *, failures: dict[str, Exception]) -> None:
        shown = "".join(f"\n  - {name}: {error}" for name, error in list(failures.items())[:10])
        more = f"\n  … and {len(failures) - 10} more" if len(failures) > 10 else ""
        super().__init__(message + shown + more)
        self.failures = failures


# ---- jobs -------------------------------------------------------------------------------------------------


class JobError(PaiError):
    """About one job.

    Attributes:
        job_id: which.
    """

    def __init__(self, message: str, *, job_id: str) -> None:
        super().__init__(message)
        self.job_id = job_id


class JobFailed(JobError):
    """The job ended without success.

    Attributes:
        status: `Failed`, `CreateFailed` or `InitializeFailed`.
        instance: the instance that failed first, when one is known.
        exit_code: its exit code, when it got as far as to have one; 137 is a kill, mostly for memory.
        reason_code: the service's reason.
        reason_message: its sentence.
        log_tail: the last lines of that instance.
        traceback: the Python traceback found in them, or empty.
    """

    def __init__(
        self,
        message: str,
        *,
        job_id: str,
        status: str,
        instance: str | None = None,
        exit_code: int | None = None,
        reason_code: str | None = None,
        reason_message: str | None = None,
        log_tail: Sequence[str] = (),
        traceback: str = "",
    ) -> None:
        super().__init__(message, job_id=job_id)
        self.status = status
        self.instance = instance
        self.exit_code = exit_code
        self.reason_code = reason_code
        self.reason_message = reason_message
        self.log_tail = tuple(log_tail)
        self.traceback = traceback


class JobStopped(JobError):
    """The job was stopped before it could end by itself (status `Terminated`)."""

    def __init__(self, message: str, *, job_id: str, reason_code: str | None = None) -> None:
        super().__init__(message, job_id=job_id)
        self.reason_code = reason_code


class WaitTimeoutError(JobError, TimeoutError):
    """The caller's deadline has passed; the job itself goes on.

    Attributes:
        status: the job's status when we stopped waiting.
        timeout_s: how long we waited.
    """

    def __init__(self, message: str, *, job_id: str, status: str, timeout_s: float) -> None:
        super().__init__(message, job_id=job_id)
        self.status = status
        self.timeout_s = timeout_s


class ServiceStartError(PaiError):
    """The embedded service did not come up; the message has the last lines of its log."""


class LocalRunError(PaiError):
    """A job with `instance_type="local"` cannot be run on this machine."""


class EngineNotFoundError(LocalRunError):
    """No Docker engine answers; the message lists what was tried, and the ways out."""


class ImageError(LocalRunError):
    """The image is not on this machine and cannot be pulled, or it lacks what a job needs."""
