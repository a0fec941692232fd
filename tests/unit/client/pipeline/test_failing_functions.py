"""Functions that fail in unusual ways, and those that never end."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pai_sdk._client.pipeline import Pipeline
from pai_sdk.errors import PipelineFailed
from tests.support.messages import refused
from tests.support.waiting import PATIENCE_S


class WithoutText(Exception):
    def __str__(self) -> str:
        raise RuntimeError


def raising(error: BaseException) -> Callable[[], None]:
    def step() -> None:
        raise error

    return step


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (SystemExit(0), "SystemExit: 0"),
        (GeneratorExit(), "GeneratorExit"),
        (WithoutText(), "WithoutText: its message raises RuntimeError"),
        (ValueError("\udc80"), "ValueError: ?"),
    ],
)
def test_any_exception_fails_the_step_and_the_run_ends(tmp_path: Path, error: BaseException, text: str) -> None:
    pipeline, at_end = Pipeline("test", store=tmp_path), []
    pipeline.step(raising(error), name="one")
    pipeline.step(lambda: at_end.append(1), name="end", on_exit=True)
    with refused(PipelineFailed):
        pipeline.run(show=False)
    (run,) = pipeline.runs()
    assert (run.status, at_end) == ("failed", [1])
    assert run["one"].error.startswith(text)
    run.svg().encode()


@pytest.mark.parametrize("value", [{1}, (n for n in range(2)), b"x", {(1, 2): 3}, {1: "a", "1": "b"}])
def test_a_result_that_cannot_be_kept_is_named(tmp_path: Path, value: Any) -> None:
    pipeline = Pipeline("test", store=tmp_path)
    pipeline.step(lambda: value, name="one")
    with refused(PipelineFailed):
        pipeline.run(show=False)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.float32(0.5), 0.5),
        ({"n": np.int64(3), "curve": np.arange(2)}, {"n": 3, "curve": [0, 1]}),
        ((np.bool_(True), None), [True, None]),
        ({1: np.float64(2)}, {"1": 2.0}),
    ],
)
def test_a_result_with_numbers_of_numpy_is_kept(tmp_path: Path, value: Any, expected: Any) -> None:
    pipeline = Pipeline("test", store=tmp_path)
    pipeline.step(lambda: value, name="one")
    assert repr(pipeline.run(show=False)["one"].result) == repr(expected)


def test_a_call_that_never_ends_takes_no_place(tmp_path: Path) -> None:
    pipeline, released = Pipeline("test", store=tmp_path, parallel=1), threading.Event()
    pipeline.step(released.wait, name="hangs", timeout=0.1, retries=1)
    pipeline.step(lambda: 1, name="next", timeout=PATIENCE_S)
    with refused(PipelineFailed) as failed:
        pipeline.run(show=False)
    assert "next" not in str(failed.value)
    released.set()


def test_a_call_that_never_ends_does_not_keep_the_process(tmp_path: Path) -> None:
    program = f"""
import time
from pai_sdk._client.pipeline import Pipeline
pipeline = Pipeline("test", store={str(tmp_path)!r})
pipeline.step(lambda: time.sleep(600), name="hangs", timeout=0.1)
pipeline.run(show=False)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert "did not finish within 0.1 s" in done.stderr
