"""Results of jobs that run functions: only what the job itself has signed is unpickled."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pai_sdk._client.code.function_package import LABEL, job_key
from pai_sdk._client.job.function_result import function_outcome
from pai_sdk._data.run.functions.calling import error_message, signed
from pai_sdk.errors import FunctionError, InvalidInputError, ObjectNotFoundError
from tests.support.messages import refused


@dataclass
class FinishedJob:
    """A job whose result channel has these files."""

    files: dict[str, bytes]
    labels: dict[str, str] = field(default_factory=lambda: {LABEL: "n1"})
    id: str = "train1"

    def download(self, channel: str, target: str | Path, *, progress: bool = True) -> Path:
        assert channel == "result"
        if not self.files:
            raise ObjectNotFoundError("nothing is there")
        for name, content in self.files.items():
            Path(target, name).write_bytes(content)
        return Path(target)


def result(
    kind: str = "value", payload: bytes = b"", *, nonce: str = "n1", key: bytes | None = None, **more: Any
) -> bytes:
    return signed(key or job_key("n1"), {"kind": kind, "nonce": nonce, **more}, payload)


class Unpickled(BaseException):
    def __reduce__(self) -> Any:
        return pytest.fail, ("it was unpickled",)


BAD = pickle.dumps(Unpickled())


def test_the_value() -> None:
    outcome = function_outcome(FinishedJob({"rank-0": result(payload=pickle.dumps([1, 2]))}))
    assert outcome is not None
    assert (outcome.is_value, outcome.value("train1")) == (True, [1, 2])


@pytest.mark.parametrize(
    "content",
    [
        lambda: result(payload=BAD, key=b"another key"),
        lambda: result(payload=BAD)[:-1],
        lambda: result(payload=BAD, nonce="n2"),
        lambda: result("call", BAD),
        lambda: BAD,
        lambda: b"",
        lambda: b"\n[]\n",
    ],
)
def test_what_the_job_has_not_signed_is_not_unpickled(content: Any) -> None:
    with refused(FunctionError):
        function_outcome(FinishedJob({"rank-0": content()}))


def test_an_error_of_any_instance_comes_before_the_value() -> None:
    header, payload = error_message(ZeroDivisionError("oh"), pickle.dumps)
    kind = header.pop("kind")
    files = {"rank-0": result(payload=pickle.dumps(1)), "rank-1": result(kind, payload, **header)}
    outcome = function_outcome(FinishedJob(files))
    assert outcome is not None
    with pytest.raises(ZeroDivisionError, match="oh"):
        outcome.value("train1")


@pytest.mark.parametrize(
    ("content", "exit_code"),
    [
        (lambda: result("exit", exit_code=3), 3),
        (lambda: result("exit", exit_code=1, message="the function called sys.exit: no data"), 1),
        (lambda: result(payload=b"no pickle"), None),
        (lambda: result("refused", message="another Python"), None),
    ],
)
def test_a_function_that_did_not_return(content: Any, exit_code: int | None) -> None:
    outcome = function_outcome(FinishedJob({"rank-0": content()}))
    assert outcome is not None
    with refused(FunctionError) as caught:
        outcome.value("train1")
    assert caught.value.exit_code == exit_code


def test_without_a_result_or_without_a_function() -> None:
    assert function_outcome(FinishedJob({})) is None
    with refused(InvalidInputError, "job"):
        function_outcome(FinishedJob({}, labels={}))
