"""Every error a user can meet.

Each message says what happened, to which job or file, and what to do next. The facts are attributes, so that a
script can branch on them. Three attributes of every error control all retries of the package: `retryable` (send
the same request again now), `may_pass` (try again in the next minutes) and `maybe_arrived` (the request may have
been carried out).

    PaiError
    ├── SettingsError              a setting is missing, malformed or conflicts with another
    │   └── CredentialsError       no access key could be found, or the one found cannot be used
    │       └── CredentialsRenewalError  the key cannot be renewed now; a later attempt may succeed
    ├── InvalidInputError          the input is wrong, so nothing was sent; `problems` lists all mistakes
    │   ├── CodeError              the code folder or repository cannot be packed
    │   ├── WrongCallError         unknown or missing keyword arguments; a TypeError too
    │   └── ImageLookupError       no image of the catalogue fits; a RuntimeError too
    ├── NotOfferedError            another SDK offers this and pai_sdk does not; the message names the replacement
    │   └── NotOfferedAttributeError   an attribute of an object; an AttributeError too
    ├── ConnectionFailedError      no response: the endpoint was not reached, or did not respond in time
    ├── InvalidResponseError       a response that is not the service's (HTML, empty, truncated); keeps the status
    ├── ApiError                   the service refused a request; `code`, `status_code`, `request_id`
    │   ├── InvalidRequestError    400: the request itself
    │   │   └── UserQuotaError     the quota of the user does not allow the job
    │   ├── AuthenticationError    the key or the signature was not accepted
    │   │   └── RepeatedRequestError   the request was delivered twice; the first delivery was accepted
    │   ├── PermissionDeniedError  the key is known but may not do this
    │   ├── NotFoundError          404
    │   ├── ConflictError          409
    │   ├── ThrottledError         429 and Throttling.*: too many requests, even after the retries
    │   └── ServerError            5xx, even after the retries
    ├── StorageError               an object or folder in OSS cannot be read or written
    │   ├── UnreachableStorageError  a retry is useless: unknown host, no TLS, a wrong certificate
    │   ├── UntrustedEndpointError   a URI names a host that is neither OSS nor in the settings; nothing was sent
    │   ├── FileChangedError         a file was changed while it was read
    │   ├── ObjectNotFoundError      no such file or object
    │   ├── FileNameError            the key of an object cannot be the name of a file on this disk
    │   ├── PathConflictError        one name would be that of a file and of a folder on this disk
    │   └── TransferError            some files of an upload or download failed; `failures` lists them
    │       └── SyncError                some files of a folder could not be moved to the other store
    ├── MissingExtraError          an optional dependency is not installed; `extra` names what to install
    ├── JobsFailed                 of several jobs, some did not succeed; `failures` has the error of each
    ├── JobError                   about one job; `job_id`
    │   ├── JobFailed              it ended as Failed, CreateFailed or InitializeFailed
    │   ├── JobStopped             it was stopped before it finished
    │   └── WaitTimeoutError       the caller's deadline has passed; the job continues
    ├── TuningFailed               a search has ended without a result, or by too many failures; `failures`
    ├── PipelineFailed             steps of a pipeline have failed; `failures` has the error of each
    ├── PipelineStopped            a run of a pipeline was stopped on request; `run`
    ├── InUseError                 another process works on the same study or pipeline run; `holder`
    ├── RunNotFoundError           there is no such run; `run_id`
    ├── CheckpointError            a checkpoint cannot be saved or read
    ├── TraceError                 rows of a trace are not stored, or cannot be read
    ├── FunctionError              a function ended without a value or a report; `exit_code`
    │   └── FunctionFinished       it has ended already, and is not run a second time
    ├── RemoteTraceback            the cause of an error from another process: its traceback there
    ├── TunnelError                a running job cannot be entered; `code`
    │   ├── TunnelRefusedError     the service or the instance refused the tunnel, or something in it
    │   └── TunnelClosedError      the tunnel has ended; the job may continue
    ├── ServiceStartError          the embedded service did not start
    └── LocalRunError              a job cannot run on this machine
        ├── EngineNotFoundError    no Docker engine responds
        └── ImageError             the image is missing and cannot be pulled, or cannot run a job
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = [
    "ApiError",
    "AuthenticationError",
    "CheckpointError",
    "CodeError",
    "ConflictError",
    "ConnectionFailedError",
    "CredentialsError",
    "CredentialsRenewalError",
    "EngineNotFoundError",
    "FileChangedError",
    "FileNameError",
    "FunctionError",
    "FunctionFinished",
    "ImageError",
    "ImageLookupError",
    "InUseError",
    "InvalidInputError",
    "InvalidRequestError",
    "InvalidResponseError",
    "JobError",
    "JobFailed",
    "JobStopped",
    "JobsFailed",
    "LocalRunError",
    "MissingExtraError",
    "NotFoundError",
    "NotOfferedAttributeError",
    "NotOfferedError",
    "ObjectNotFoundError",
    "PaiError",
    "PathConflictError",
    "PermissionDeniedError",
    "PipelineFailed",
    "PipelineStopped",
    "Problem",
    "RemoteTraceback",
    "RepeatedRequestError",
    "RunNotFoundError",
    "ServerError",
    "ServiceStartError",
    "SettingsError",
    "StorageError",
    "SyncError",
    "ThrottledError",
    "TraceError",
    "TransferError",
    "TuningFailed",
    "TunnelClosedError",
    "TunnelError",
    "TunnelRefusedError",
    "UnreachableStorageError",
    "UntrustedEndpointError",
    "UserQuotaError",
    "WaitTimeoutError",
    "WrongCallError",
]

_PACKAGE = str(Path(__file__).parent)
_MAX_FAILURES_IN_MESSAGE = 20  # a screen
_NOT_SUPPORTED = (501, 505)  # not implemented; HTTP version not supported: later attempts fail in the same way
# Control characters (they move a cursor or set a clipboard) and those that turn the direction of writing.
_NOT_TEXT = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


class PaiError(Exception):
    """The root of all errors raised by pai_sdk.

    Attributes:
        retryable: whether the same request may succeed when it is sent again at once.
        maybe_arrived: whether the request may have been carried out although it failed.
    """

    retryable: bool = False
    maybe_arrived: bool = False

    @property
    def may_pass(self) -> bool:
        """True where the same request may succeed in the next minutes; waits and log following continue then."""
        return self.retryable

    @property
    def message(self) -> str:
        """The text of the error, as `str(error)`."""
        return str(self)

    def __str__(self) -> str:
        # A service or a job wrote parts of the message. Control characters in it must not reach a terminal.
        return _NOT_TEXT.sub(lambda match: match[0].encode("unicode_escape").decode(), super().__str__())

    def _render_traceback_(self) -> list[str]:
        # Called by IPython.
        return notebook_traceback(self)

    def __reduce__(self) -> tuple[Any, ...]:
        # Unpickled with its attributes: the default way calls __init__ with the message only.
        return _as_it_was, (type(self), self.args), vars(self)


def notebook_traceback(error: BaseException) -> list[str]:
    """Returns what IPython prints for an error: without frames of this package, so the message stays visible."""
    import traceback

    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(_PACKAGE) and "/IPython/core/" not in frame.filename
    ]
    last_frames = "".join(traceback.format_list(frames[-3:])).rstrip()
    return [*last_frames.splitlines(), f"{type(error).__name__}: {error}"]


def _as_it_was(kind: type[PaiError], args: tuple[Any, ...]) -> PaiError:
    error = kind.__new__(kind)
    error.args = args
    return error


# ---- before anything is sent ------------------------------------------------------------------------------


class SettingsError(PaiError):
    """A setting is missing, malformed or conflicts with another."""


class CredentialsError(SettingsError):
    """No access key could be found, or the one found cannot be used."""


class CredentialsRenewalError(CredentialsError):
    """The key cannot be renewed now: its source did not respond. A later attempt may succeed."""

    retryable = True


@dataclass(frozen=True)
class Problem:
    """One mistake in the user's input.

    Attributes:
        where: the parameter, as the user wrote it: `inputs['train']`.
        what: what is wrong with it.
        hint: how to correct it; empty when `what` says it already.
    """

    where: str
    what: str
    hint: str = ""

    def __str__(self) -> str:
        return f"{self.where}: {self.what}" + (f" ({self.hint})" if self.hint else "")


class InvalidInputError(PaiError, ValueError):
    """The input is wrong, so nothing was sent.

    Attributes:
        problems: all mistakes, not just the first.

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
    """The code folder or repository cannot be packed."""


class WrongCallError(InvalidInputError, TypeError):
    """A call with unknown keyword arguments, or without required ones; the message suggests the nearest names."""


class ImageLookupError(InvalidInputError, RuntimeError):
    """No image of the catalogue has this framework, version and accelerator; the message lists those there are."""


class NotOfferedError(PaiError, NotImplementedError):
    """Code written for another SDK uses a feature that pai_sdk does not have, such as deploying a model.

    Attributes:
        name: what was used.
        instead: what replaces it.
    """

    def __init__(self, name: str, instead: str) -> None:
        super().__init__(f"{name} is not part of pai_sdk: {instead}")
        self.name = name
        self.instead = instead


class NotOfferedAttributeError(NotOfferedError, AttributeError):  # type: ignore[misc] # both have a `name`
    """Code written for another SDK uses an attribute that an object of pai_sdk does not have.

    It is an `AttributeError` too, so that `hasattr` and `getattr` with a default work as usual.
    """

    def __init__(self, owner: str, name: str, instead: str) -> None:
        super().__init__(f"{owner}.{name}", instead)
        self.args = (f"{owner!r} object has no attribute {name!r}; use instead: {instead}",)


# ---- the wire ---------------------------------------------------------------------------------------------


class ConnectionFailedError(PaiError):
    """No response came: the endpoint was not reached, or did not respond in time.

    Attributes:
        endpoint: the endpoint of the request.
        attempts: how many attempts were made.
        refused: whether nothing listens at the endpoint.
    """

    def __init__(
        self,
        message: str,
        *,
        endpoint: str,
        attempts: int = 1,
        retryable: bool = True,
        maybe_arrived: bool = False,
        refused: bool = False,
    ) -> None:
        super().__init__(message)
        self.endpoint = endpoint
        self.attempts = attempts
        self.retryable = retryable
        self.maybe_arrived = maybe_arrived
        self.refused = refused

    @property
    def may_pass(self) -> bool:
        """True: even an unknown host or a wrong certificate may be caused by a temporary network problem."""
        return True


class InvalidResponseError(PaiError):
    """An unusable response: HTML, empty, truncated, or not a JSON object.

    Attributes:
        status_code: the HTTP status.
        body: its first 500 characters.
        request_id: the service's id of the request, when a header bears one.
        retry_after_s: the pause that the response asks for, in seconds.
        is_from_service: the service itself responded, in a form that this version cannot read.
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
        self.status_code = status_code
        self.is_from_service = is_from_service
        self.maybe_arrived = status_code < 300 or status_code >= 500
        self.retryable = self.may_pass and (self.maybe_arrived or status_code == 408)
        self.body = body
        self.request_id = request_id
        self.retry_after_s = retry_after_s

    @property
    def may_pass(self) -> bool:
        """True where the page of a gateway or a proxy may be gone in a minute: all but "not implemented"."""
        return self.status_code not in _NOT_SUPPORTED


class ApiError(PaiError):
    """The service refused a request.

    Attributes:
        code: the service's code, such as `InvalidParameter`.
        status_code: the HTTP status.
        request_id: the service's id of the request, for its support.
        retry_after_s: the pause that the service asks for, in seconds.
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
        if status_code in _NOT_SUPPORTED:
            self.retryable = False


class InvalidRequestError(ApiError):
    """The service finds the request itself wrong (400)."""


class UserQuotaError(InvalidRequestError):
    """The quota of the user does not allow the job; the message names the quota and what the job asks for."""


class AuthenticationError(ApiError):
    """The key or the signature was not accepted (401, or a 403 that says so)."""

    @property
    def may_pass(self) -> bool:
        """True where a renewed key helps: the key is read for each request, and may be renewed a little late."""
        return self.retryable or self.is_key_expired

    @property
    def is_key_expired(self) -> bool:
        """True where the key was valid before."""
        return self.code.endswith("Expired")


class RepeatedRequestError(AuthenticationError):
    """The request was delivered twice, such as by a proxy; the service accepted the first delivery."""

    retryable = True
    maybe_arrived = True


class PermissionDeniedError(ApiError):
    """The key is known, but may not do this (403)."""


class NotFoundError(ApiError):
    """The service has no such resource (404)."""


class ConflictError(ApiError):
    """The request conflicts with something that exists already (409)."""


class ThrottledError(ApiError):
    """Too many requests, even after the retries (429, `Throttling.*`)."""

    retryable = True


class ServerError(ApiError):
    """An error of the service, even after the retries (5xx)."""

    retryable = True
    maybe_arrived = True


# ---- storage ----------------------------------------------------------------------------------------------


class StorageError(PaiError):
    """An object or a folder in OSS cannot be read or written.

    Attributes:
        uri: the URI of the object or folder.
        status_code: the HTTP status, 0 when no response came.
        code: the code of OSS, such as `NoSuchBucket`.
        request_id: the id OSS gave the request.
        retry_after_s: the pause that OSS asks for, in seconds.
        refused: whether nothing listens at the endpoint.
    """

    def __init__(
        self,
        message: str,
        *,
        uri: str = "",
        status_code: int = 0,
        code: str = "",
        request_id: str | None = None,
        retryable: bool = False,
        retry_after_s: float | None = None,
        refused: bool = False,
    ) -> None:
        super().__init__(message)
        self.uri = uri
        self.status_code = status_code
        self.code = code
        self.request_id = request_id
        self.retryable = retryable
        self.retry_after_s = retry_after_s
        self.refused = refused


class UnreachableStorageError(StorageError):
    """This endpoint cannot respond: unknown host, no TLS there, a wrong certificate."""


class UntrustedEndpointError(StorageError):
    """A URI names a host that is neither Alibaba Cloud's OSS nor in the settings. Nothing was sent to it."""


class FileChangedError(StorageError):
    """A file was changed while it was read, so that its copy would be half old and half new."""


class ObjectNotFoundError(StorageError):
    """There is no such file or object. Its bucket is there."""

    def __init__(self, message: str, *, uri: str = "", request_id: str | None = None) -> None:
        super().__init__(message, uri=uri, status_code=404, code="NoSuchKey", request_id=request_id)


class FileNameError(StorageError):
    """The key of an object cannot be the name of a file on this disk."""


class PathConflictError(StorageError):
    """One name would be that of a file and of a folder on this disk. OSS can have both."""


class TransferError(StorageError):
    """Some files of an upload or a download failed; the others are complete and in place.

    Attributes:
        failures: the failed files, each with its error.
    """

    def __init__(self, message: str, *, failures: dict[str, Exception]) -> None:
        first_failures = "".join(f"\n  - {name}: {error}" for name, error in list(failures.items())[:10])
        more = f"\n  … and {len(failures) - 10} more" if len(failures) > 10 else ""
        super().__init__(message + first_failures + more)
        self.failures = failures


class SyncError(TransferError):
    """Some files of a folder could not be moved to the other store; the others are complete and in place."""


class MissingExtraError(PaiError):
    """An optional dependency is not installed.

    Attributes:
        extra: what to install: the extra of pai_sdk that has it, or the package itself.
    """

    def __init__(self, message: str, *, extra: str) -> None:
        super().__init__(message)
        self.extra = extra


# ---- jobs -------------------------------------------------------------------------------------------------


class JobError(PaiError):
    """An error of one job.

    Attributes:
        job_id: the job's id.
    """

    def __init__(self, message: str, *, job_id: str) -> None:
        super().__init__(message)
        self.job_id = job_id


class JobFailed(JobError):
    """The job ended without success.

    Attributes:
        status: `Failed`, `CreateFailed` or `InitializeFailed`.
        instance: the instance that failed first, when it is known.
        exit_code: its exit code, when there is one; 137 means SIGKILL, mostly by the out-of-memory killer.
        reason_code: the service's code of the reason.
        reason_message: the service's text of the reason.
        log_tail: the last lines of that instance's log.
        traceback: the Python traceback in these lines, or empty.
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


class JobsFailed(PaiError):
    """Several jobs were waited for, and some of them did not succeed.

    Attributes:
        failures: the error of each, by the job's id (by its name, where it could not be submitted): a `JobFailed`,
            a `JobStopped`, or why nothing is known of the job.
        unfinished: the ids of the jobs that continue, or that were being stopped.
        not_submitted: how many jobs were not submitted because of a failure.

    Example:
        >>> stopped = JobStopped("job digits (train1) was stopped", job_id="train1")
        >>> print(JobsFailed({"train1": stopped}, jobs=3))
        1 of 3 jobs did not succeed:
          - job digits (train1) was stopped
    """

    def __init__(
        self,
        failures: Mapping[str, Exception],
        *,
        jobs: int,
        unfinished: Sequence[str] = (),
        not_submitted: int = 0,
    ) -> None:
        reasons = [f"  - {_in_a_line(error)}" for error in [*failures.values()][:_MAX_FAILURES_IN_MESSAGE]]
        if len(failures) > _MAX_FAILURES_IN_MESSAGE:
            reasons.append(f"  … and {len(failures) - _MAX_FAILURES_IN_MESSAGE} more")
        if unfinished:
            reasons.append(f"{len(unfinished)} have not ended")
        if not_submitted:
            reasons.append(f"{not_submitted} were not submitted")
        super().__init__("\n".join([f"{len(failures)} of {jobs} jobs did not succeed:", *reasons]))
        self.failures = dict(failures)
        self.unfinished = tuple(unfinished)
        self.not_submitted = not_submitted


def _in_a_line(error: Exception) -> str:
    """The first line of an error; that of a failed job has the root cause."""
    return (str(error).splitlines() or [type(error).__name__])[0]


class JobStopped(JobError):
    """The job was stopped before it finished (status `Terminated`)."""

    def __init__(self, message: str, *, job_id: str, reason_code: str | None = None) -> None:
        super().__init__(message, job_id=job_id)
        self.reason_code = reason_code


class WaitTimeoutError(JobError, TimeoutError):
    """The caller's deadline has passed; the job itself continues.

    Attributes:
        status: the job's status at the deadline.
        timeout_s: the caller's timeout in seconds.
    """

    def __init__(self, message: str, *, job_id: str, status: str, timeout_s: float) -> None:
        super().__init__(message, job_id=job_id)
        self.status = status
        self.timeout_s = timeout_s


def _reasons(failures: Mapping[str, str]) -> list[str]:
    """The first line of each reason, by what has failed."""
    reasons = [
        f"  - {name}: {(text.splitlines() or ['no reason is known'])[0]}"
        for name, text in [*failures.items()][:_MAX_FAILURES_IN_MESSAGE]
    ]
    more = len(failures) - len(reasons)
    return [*reasons, f"  … and {more} more"] if more else reasons


# ---- searches ---------------------------------------------------------------------------------------------


class TuningFailed(PaiError):
    """A search for hyperparameters has ended by too many failures, or no trial has succeeded.

    Attributes:
        failures: why each trial failed, by its number.
        study: the URI of the study, which can be continued.
        generation: the generation of a population whose trials have all failed; None otherwise. Such a study
            cannot be continued.

    Example:
        >>> print(TuningFailed({3: "exit code 1"}, study="file:///studies/digits/", trials=4))
        1 of 4 trials failed:
          - trial 3: exit code 1
        the study file:///studies/digits/ can be continued, when the reason is gone
    """

    def __init__(
        self, failures: Mapping[int, str], *, study: str, trials: int, generation: int | None = None
    ) -> None:
        reasons = _reasons({f"trial {number}": text for number, text in failures.items()})
        first = f"{len(failures)} of {trials} trials failed:"
        advice = f"the study {study} can be continued, when the reason is gone"
        if not failures:
            first = f"none of {trials} trials is complete: all of them were pruned"
        if generation is not None:
            first = f"all {len(failures)} trials of generation {generation} failed:"
            advice = f"the study {study} has no trial to go on from; begin a new study when the reason is gone"
        super().__init__("\n".join([first, *reasons, advice]))
        self.failures = dict(failures)
        self.study = study
        self.generation = generation


# ---- pipelines --------------------------------------------------------------------------------------------


class PipelineFailed(PaiError):
    """Steps of a pipeline have failed. Steps that do not depend on them have ended.

    Attributes:
        failures: the reason for each failed step, by its name.
        run: the URI of the run, which can be resumed.

    Example:
        >>> print(PipelineFailed({"train": "exit code 1"}, run="file:///pipelines/demo/runs/1/"))
        1 step failed:
          - train: exit code 1
        file:///pipelines/demo/runs/1/ can be resumed, when the reason is gone
    """

    def __init__(self, failures: Mapping[str, str], *, run: str) -> None:
        reasons = _reasons(failures)
        number = f"{len(failures)} step{'s' if len(failures) > 1 else ''} failed:"
        super().__init__("\n".join([number, *reasons, f"{run} can be resumed, when the reason is gone"]))
        self.failures = dict(failures)
        self.run = run


class PipelineStopped(PaiError):
    """A run of a pipeline was stopped on request, by `PipelineRun.stop` or `pai-sdk pipeline stop`.

    Attributes:
        run: the URI of the run, which can be resumed.
        failures: the reason for each step that had failed before, by its name.
    """

    def __init__(self, run: str, failures: Mapping[str, str] | None = None) -> None:
        failed = [f"{len(failures)} steps had failed before:", *_reasons(failures)] if failures else []
        super().__init__("\n".join([f"the run {run} was stopped; pipeline.resume() continues it", *failed]))
        self.run = run
        self.failures = dict(failures or {})


class InUseError(PaiError):
    """Another process works on the same folder; one at a time can.

    Attributes:
        uri: the folder.
        holder: the process that has it: `user`, `host`, `pid`, `since`; empty when that is not known.
    """

    def __init__(self, message: str, *, uri: str, holder: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.uri = uri
        self.holder = dict(holder or {})


class RunNotFoundError(PaiError, LookupError):
    """There is no such run, or no such metric of it.

    Attributes:
        run_id: the id that was asked for.
    """

    def __init__(self, message: str, *, run_id: str) -> None:
        super().__init__(message)
        self.run_id = run_id


class CheckpointError(PaiError):
    """A checkpoint cannot be saved or read; the message names the file, and what to do."""


class TraceError(PaiError):
    """Rows of a trace are not stored, or cannot be read.

    Attributes:
        rows_fed: rows that the writer has taken; 0 where the error is not about a writer's rows.
        rows_committed: those of them that are visible in the sink.
    """

    def __init__(
        self, message: str, *, rows_fed: int = 0, rows_committed: int = 0, retryable: bool = False
    ) -> None:
        super().__init__(message)
        self.rows_fed = rows_fed
        self.rows_committed = rows_committed
        self.retryable = self.maybe_arrived = retryable


class FunctionError(PaiError):
    """A function that runs as a training or as a job ended without a value or a report.

    Attributes:
        exit_code: of its process, or given to `sys.exit`; None when it did not exit.
    """

    def __init__(self, message: str, *, exit_code: int | None = None) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class FunctionFinished(FunctionError):
    """The function has ended already. It is not run again, unless it is restored first."""


class RemoteTraceback(PaiError):
    """The cause of an error that came from another process: the text of its traceback there."""


class ServiceStartError(PaiError):
    """The embedded service did not start; the message has the last lines of its log."""


class LocalRunError(PaiError):
    """A job with `instance_type="local"` cannot run on this machine."""


class EngineNotFoundError(LocalRunError):
    """No Docker engine responds; the message lists what was tried, and the alternatives."""


class ImageError(LocalRunError):
    """The image is missing and cannot be pulled, or it lacks what a job needs."""


# ---- tunnels ----------------------------------------------------------------------------------------------


class TunnelError(PaiError):
    """A running job cannot be entered.

    Attributes:
        code: the machine-readable reason, such as `JobNotRunning`, `NotFound` or `ConnectionRefused`.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.code, self.message)


class TunnelRefusedError(TunnelError):
    """The service or the instance refused a tunnel, or a program, file or port in it.

    Example:
        >>> raise TunnelRefusedError("ConnectionRefused", "nothing listens on port 6006 of the job")
        Traceback (most recent call last):
        ...
        pai_sdk.errors.TunnelRefusedError: nothing listens on port 6006 of the job
    """


class TunnelClosedError(TunnelError):
    """The tunnel has ended: the job has ended, access was revoked, or the connection was lost for too long."""


# Names before the glossary; they go with 0.2.
_FORMER_NAMES = {
    "BadAnswerError": "InvalidResponseError",
    "NameTakenError": "PathConflictError",
    "ServiceFaultError": "ServerError",
}


def __getattr__(name: str) -> type[PaiError]:
    """Returns an error by its former name, with a warning."""
    if name not in _FORMER_NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warnings.warn(f"{name} is now {_FORMER_NAMES[name]}", DeprecationWarning, stacklevel=2)
    error: type[PaiError] = globals()[_FORMER_NAMES[name]]
    return error
