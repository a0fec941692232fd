"""Fetches the value of a job that runs a function, verifies its signature and unpickles it."""

from __future__ import annotations

import json
import pickle
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from pai_sdk._client.code.function_package import LABEL, job_key
from pai_sdk._data.run.functions.calling import RESULT_CHANNEL, error_of, open_signed
from pai_sdk.errors import FunctionError, InvalidInputError, JobFailed, ObjectNotFoundError, Problem


class _Job(Protocol):
    id: str

    @property
    def labels(self) -> dict[str, str]: ...

    def wait(self, timeout: float | None = None, *, show_logs: bool = True) -> object: ...

    def download(self, channel: str, target: str | Path, *, progress: bool = True) -> Path: ...


class Outcome:
    """The outcome of a function: a value or an error."""

    def __init__(self, header: Mapping[str, Any], payload: bytes) -> None:
        self._header = header
        self._payload = payload

    @property
    def is_value(self) -> bool:
        """Returns whether the function returned."""
        return bool(self._header["kind"] == "value")

    def value(self, job_id: str) -> Any:
        """Returns the value of the function, or raises what it raised, with its traceback as the cause."""
        kind, header = self._header["kind"], self._header
        if kind == "value":
            try:
                return pickle.loads(self._payload)  # noqa: S301 # signed with the key of this job
            except Exception as error:  # a module may be missing here, or have another version
                summary = f"the value of job {job_id} cannot be unpickled here: {type(error).__name__}: {error}"
                raise FunctionError(summary) from error
        if kind == "error":
            raise error_of(dict(header), self._payload)
        code = header.get("exit_code")
        message = header.get("message") or f"the function called sys.exit({code})"
        raise FunctionError(f"job {job_id}: {message}", exit_code=code)


def result_of(job: _Job, timeout: float | None, *, show_logs: bool) -> Any:
    """Waits for a job; returns the value of its function, or raises what the function raised."""
    try:
        job.wait(timeout, show_logs=show_logs)
    except JobFailed:
        outcome = function_outcome(job)
        if outcome is None or outcome.is_value:
            raise
    else:
        outcome = function_outcome(job)
    if outcome is None:
        raise FunctionError(f"job {job.id} has succeeded, but has no result")
    return outcome.value(job.id)


def function_outcome(job: _Job) -> Outcome | None:
    """Returns the outcome of a finished job: the error of any instance, or the value of the first one."""
    nonce = job.labels.get(LABEL)
    if not nonce:
        hint = "those of Estimator.from_function and @remote do"
        raise InvalidInputError([Problem("job", f"job {job.id} runs no function, so it has no result", hint)])
    # Unpickling runs code: nothing is unpickled before its signature is verified with the key of this very job.
    key = job_key(nonce)
    with tempfile.TemporaryDirectory(prefix="pai-result-") as folder:
        try:
            job.download(RESULT_CHANNEL, folder, progress=False)
        except ObjectNotFoundError:
            return None
        outcomes = [_opened(job.id, key, nonce, path) for path in sorted(Path(folder).rglob("rank-*"))]
    return next((each for each in outcomes if not each.is_value), outcomes[0] if outcomes else None)


def _opened(job_id: str, key: bytes, nonce: str, path: Path) -> Outcome:
    try:
        header, payload = open_signed(key, path.read_bytes())
    except (ValueError, json.JSONDecodeError) as error:
        raise FunctionError(
            f"the result of job {job_id} is not used: {error}. If another user or another machine has submitted "
            "the job, read it there: the key is derived from ~/.pai/function-secret"
        ) from error
    if header.get("nonce") != nonce or header.get("kind") not in ("value", "error", "exit", "refused"):
        raise FunctionError(f"the result of job {job_id} is not used: it is not that of this job")
    return Outcome(header, payload)
