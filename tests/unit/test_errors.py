"""The tree of errors: its picture, its facts, its texts."""

from __future__ import annotations

import copy
import inspect
import pickle
import re

import pytest

import pai_sdk
from pai_sdk import errors
from pai_sdk._client.api.responses import api_error
from pai_sdk.errors import (
    ApiError,
    AuthenticationError,
    ConflictError,
    ConnectionFailedError,
    InvalidInputError,
    InvalidRequestError,
    InvalidResponseError,
    JobError,
    JobFailed,
    JobStopped,
    NotFoundError,
    PaiError,
    PermissionDeniedError,
    Problem,
    ServerError,
    StorageError,
    ThrottledError,
    TransferError,
    WaitTimeoutError,
    WrongCallError,
)

pytestmark = pytest.mark.interpreter


def test_the_picture_is_the_tree() -> None:
    drawn: dict[str, str] = {}
    above: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        found = re.match(r"^ {4}([│├└─ ]*)([A-Z]\w+)", line)
        if found:
            depth = len(found[1]) // 4
            above[depth:] = [found[2]]
            drawn[found[2]] = above[depth - 1] if depth else ""
    classes = [c for _, c in inspect.getmembers(errors, inspect.isclass) if issubclass(c, PaiError)]
    assert drawn == {c.__name__: "" if c is PaiError else c.__mro__[1].__name__ for c in classes}


@pytest.mark.parametrize(
    ("code", "status", "family"),
    [
        ("", 400, InvalidRequestError),
        ("", 401, AuthenticationError),
        ("", 403, PermissionDeniedError),
        ("", 404, NotFoundError),
        ("", 409, ConflictError),
        ("", 429, ThrottledError),
        ("", 500, ServerError),
        ("", 599, ServerError),
        ("", 418, ApiError),
        ("Throttling", 400, ThrottledError),
        ("Throttling.User", 503, ThrottledError),
        ("InvalidAccessKeyId.NotFound", 404, AuthenticationError),
        ("SignatureDoesNotMatch", 400, AuthenticationError),
        ("InvalidTimeStamp.Expired", 400, AuthenticationError),
        ("Forbidden.RAM", 400, PermissionDeniedError),
        ("ServiceUnavailable", 400, ServerError),
        ("ThrottlingOfSomethingElse", 400, InvalidRequestError),
    ],
)
def test_the_code_wins_over_the_status(code: str, status: int, family: type[ApiError]) -> None:
    error = api_error("no", code=code, status_code=status, request_id="r-1", retry_after_s=2.0)
    assert type(error) is family
    assert (error.code, error.status_code, error.request_id, error.retry_after_s) == (code, status, "r-1", 2.0)
    assert f"HTTP {status}, RequestId r-1]" in str(error)


def test_many_problems_in_one_error() -> None:
    error = InvalidInputError([Problem("a", "is wrong"), Problem("b", "too", "try c")])
    assert isinstance(error, ValueError)
    assert str(error) == "2 problems, nothing was sent:\n  - a: is wrong\n  - b: too (try c)"


def test_a_transfer_lists_what_failed_but_not_for_ever() -> None:
    error = TransferError("12 of 20 failed", failures={f"f{n}": OSError("full") for n in range(12)})
    assert str(error).count("full") == 10
    assert str(error).endswith("… and 2 more")


def test_facts_of_the_wire() -> None:
    silent = ConnectionFailedError("no", endpoint="http://x", attempts=3, maybe_arrived=True)
    assert (silent.endpoint, silent.attempts, silent.maybe_arrived) == ("http://x", 3, True)
    bad = InvalidResponseError("no", status_code=502, body="<html>", request_id="r", retry_after_s=1.0)
    assert (bad.status_code, bad.body, bad.request_id, bad.retry_after_s) == (502, "<html>", "r", 1.0)


def test_a_wait_that_is_over_is_a_timeout() -> None:
    error = WaitTimeoutError("late", job_id="t-1", status="Running", timeout_s=3.0)
    assert isinstance(error, TimeoutError)
    assert isinstance(error, JobError)


@pytest.mark.parametrize(
    "error",
    [
        InvalidInputError([Problem("command", "is empty"), Problem("labels", "is a string", "give a dict")]),
        WrongCallError([Problem("instance_typ", "is an unknown keyword argument")]),
        ConnectionFailedError("nothing listens", endpoint="http://127.0.0.1:9", maybe_arrived=True),
        InvalidResponseError("HTML", status_code=502, retry_after_s=3.0),
        NotFoundError("no such job", code="NotFound", status_code=404, request_id="r-1"),
        StorageError("no such bucket", uri="oss://b/k", code="NoSuchBucket"),
        TransferError("1 file failed", failures={"a": OSError("full")}),
        JobFailed("failed", job_id="train1", status="Failed", exit_code=137, log_tail=["a", "b"]),
        JobStopped("stopped", job_id="train1", reason_code="Stopped"),
        WaitTimeoutError("still Running", job_id="train1", status="Running", timeout_s=3.0),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_gets_whole_from_one_process_to_another(error: PaiError) -> None:
    # A pool of processes sends what a worker raised through pickle; one that cannot be read there hangs the pool.
    for same in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(same) is type(error)
        assert str(same) == str(error)
        assert repr(vars(same)) == repr(vars(error))


@pytest.mark.parametrize(
    ("former", "error"),
    [
        ("BadAnswerError", InvalidResponseError),
        ("NameTakenError", errors.PathConflictError),
        ("ServiceFaultError", errors.ServerError),
    ],
)
def test_former_names_are_accepted_with_a_warning(former: str, error: type[PaiError]) -> None:
    with pytest.warns(DeprecationWarning, match=error.__name__):
        assert getattr(errors, former) is error
    vars(pai_sdk).pop(former, None)  # as another test has loaded it
    with pytest.warns(DeprecationWarning, match=error.__name__):
        assert getattr(pai_sdk, former) is error
