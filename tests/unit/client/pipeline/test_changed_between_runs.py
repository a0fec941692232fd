"""Runs that are resumed by a changed pipeline, and files of runs that are damaged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pai_sdk._client.pipeline import Pipeline, PipelineRun
from pai_sdk.errors import InvalidInputError, PipelineFailed, RunNotFoundError
from tests.support.messages import refused


def make(tmp_path: Path, name: str = "test") -> Pipeline:
    return Pipeline(name, store=tmp_path)


def fail() -> None:
    raise ValueError("on purpose")


def failed_run(pipeline: Pipeline, **settings: Any) -> str:
    with pytest.raises(PipelineFailed) as failed:
        pipeline.run(show=False, **settings)
    return str(failed.value.run)


def test_a_step_that_was_removed_does_not_fail_the_run(tmp_path: Path) -> None:
    first = make(tmp_path)
    first.step(lambda: 1, name="good")
    first.step(fail, name="bad")
    failed_run(first)
    second = make(tmp_path)
    second.step(lambda: 1, name="good")
    second.step(lambda: 2, name="new")
    second.step(lambda how: how["status"], name="end", arguments={"how": second.status}, on_exit=True)
    done = PipelineRun.load(second.resume(show=False).uri)
    assert done.status == "succeeded"
    assert [one["name"] for one in done.record.steps] == ["good", "new", "end"]
    assert (done["bad"].status, done["bad"].reason) == ("skipped", "it is no longer in the pipeline")
    assert done["end"].result == "succeeded"


def test_a_value_that_was_removed_does_not_fail_the_run(tmp_path: Path) -> None:
    first = make(tmp_path)
    first.each([1, 0], lambda x: 1 / x, value="x", name="each")
    failed_run(first)
    second = make(tmp_path)
    second.each([1], lambda x: 1 / x, value="x", name="each")
    done = second.resume(show=False)
    assert (done.status, done["each"].result, done["each[1]"].status) == ("succeeded", [1.0], "skipped")


def test_a_step_that_fails_again_fails_the_run(tmp_path: Path) -> None:
    first = make(tmp_path)
    first.each([1, 0], lambda x: 1 / x, value="x", name="each")
    failed_run(first)
    with refused(PipelineFailed):
        first.resume(show=False)


def test_a_step_that_is_run_again_has_all_its_retries(tmp_path: Path) -> None:
    calls: list[int] = []

    def succeeds_at_the_fourth() -> int:
        calls.append(1)
        if len(calls) < 4:
            fail()
        return len(calls)

    pipeline = make(tmp_path)
    pipeline.step(succeeds_at_the_fourth, name="one", retries=1)
    failed_run(pipeline)
    assert len(calls) == 2
    done = pipeline.resume(show=False)["one"]
    assert (done.status, done.result, done.attempt) == ("succeeded", 4, 4)


def test_a_run_of_another_pipeline_is_not_resumed(tmp_path: Path) -> None:
    first, second = make(tmp_path, "first"), make(tmp_path, "second")
    first.step(fail)
    second.step(lambda: 1, name="other")
    uri = failed_run(first)
    with refused(RunNotFoundError):
        second.resume(show=False)
    with refused(InvalidInputError, "run_id"):
        second.resume(uri.rstrip("/").rpartition("/")[2], show=False)


def test_a_run_without_cache_has_none_when_it_is_resumed(tmp_path: Path) -> None:
    is_broken = True

    def flaky() -> None:
        if is_broken:
            fail()

    pipeline = make(tmp_path)
    before = pipeline.step(flaky, cache=False)
    pipeline.step(lambda: 1, name="after", after=before)
    is_broken = False
    pipeline.run(show=False)
    is_broken = True
    failed_run(pipeline, cache=False)
    is_broken = False
    assert pipeline.resume(show=False)["after"].status == "succeeded"


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"status": "failed"}', b"\xff\xfe"])
def test_a_damaged_file_of_a_step_is_named(tmp_path: Path, content: bytes) -> None:
    pipeline = make(tmp_path)
    pipeline.step(fail)
    uri = failed_run(pipeline)
    file = Path(uri.removeprefix("file://"), "steps", "fail.json")
    (file.parent / "notes.txt").write_text("of another program")
    assert PipelineRun.load(uri)["fail"].status == "failed"
    file.write_bytes(content)
    with pytest.raises(RunNotFoundError, match=r"steps/fail\.json is damaged"):
        PipelineRun.load(uri)
    other = make(tmp_path, "other")
    other.step(lambda: 1, name="one")
    assert [run.id for run in other.runs()] == []
    assert other.run(show=False).status == "succeeded"
    assert len(other.runs()) == 1


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b"\xff\xfe"])
def test_a_damaged_execution_does_not_count(tmp_path: Path, content: bytes) -> None:
    pipeline = make(tmp_path)
    pipeline.step(lambda: 1, name="one")
    pipeline.run(show=False)
    for file in (tmp_path / "executions").rglob("*.json"):
        file.write_bytes(content)
    assert pipeline.run(show=False)["one"].status == "succeeded"
    assert pipeline.run(show=False)["one"].status == "cached"
