"""Executions that an earlier release has recorded, and what of pai_sdk itself counts for the cache: nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pai_sdk import Checkpoint, Estimator, Session, report
from pai_sdk._client.code import job_package
from pai_sdk._client.pipeline.cache import StepCache
from pai_sdk._client.pipeline.contents import content_of, sources_of
from pai_sdk._client.pipeline.fingerprints import parts_of_plan
from pai_sdk.storage import OssUri, open_store

PARTS = {"the code": "1", "hyperparameter lr": "2"}


def session() -> Session:
    return Session("cn-x", "7", oss_bucket_name="models", access_key_id="i", access_key_secret="s")


def record(folder: Path, parts: dict[str, str]) -> StepCache:
    """A cache with one execution, in the form of the release before the modules moved."""
    entry = {
        "execution": "run-1/train/1",
        "job_id": "job1",
        "outputs": {},
        "result": None,
        "parts": parts,
        "files": {},
    }
    (folder / "train").mkdir()
    for name in ("0123456789abcdef", "last"):
        (folder / "train" / f"{name}.json").write_text(json.dumps(entry))
    return StepCache(open_store(folder))


def test_an_execution_with_the_package_of_an_earlier_release_is_valid(tmp_path: Path) -> None:
    cache = record(tmp_path, {**PARTS, "input pai_sdk": "3"})
    execution, reason = cache.find("train", PARTS, None)
    assert execution is not None
    assert (execution["job_id"], "run-1/train/1" in reason) == ("job1", True)


@pytest.mark.parametrize(
    "recorded",
    [{**PARTS, "the code": "0", "input pai_sdk": "3"}, {**PARTS, "input data": "3"}, {"input pai_sdk": "3"}],
)
def test_other_differences_count(tmp_path: Path, recorded: dict[str, str]) -> None:
    assert record(tmp_path, recorded).find("train", PARTS, None)[0] is None


def test_the_package_for_jobs_is_no_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "src"
    source.mkdir()
    (source / "train.py").write_text("from pai_sdk import report")
    estimator = Estimator(
        "python:3.11", "python train.py", source_dir=source, instance_type="ecs.c6.large", session=session()
    )
    this = parts_of_plan(estimator.plan(), {}, estimator.session)
    contents = {**job_package._contents(), "pai_sdk/errors.py": b"# another release"}
    monkeypatch.setattr(job_package, "_contents", lambda: contents)
    assert parts_of_plan(estimator.plan(), {}, estimator.session) == this
    assert "input pai_sdk" not in this


def test_an_input_of_the_user_with_its_name_counts(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("content")
    estimator = Estimator("python:3.11", "python train.py", instance_type="ecs.c6.large", session=session())
    assert "input pai_sdk" in parts_of_plan(estimator.plan({"pai_sdk": tmp_path}), {}, estimator.session)


def test_the_modules_of_pai_sdk_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    values = [OssUri.parse("oss://bucket/key"), Checkpoint, report, [report, OssUri]]
    before = [*map(content_of, values)], sources_of(report)
    for value in (OssUri, Checkpoint, report):
        monkeypatch.setattr(value, "__module__", "pai_sdk.another.module")
    monkeypatch.setitem(report.__globals__, "__name__", "pai_sdk.another.module")
    assert ([*map(content_of, values)], sources_of(report)) == before


def test_the_values_of_their_objects_count() -> None:
    assert content_of(OssUri.parse("oss://bucket/key")) != content_of(OssUri.parse("oss://bucket/other"))
    assert content_of([OssUri]) != content_of([Checkpoint])


def test_code_and_inputs_count_as_before_also_where_their_identity_has_another_hash(tmp_path: Path) -> None:
    for folder in ("src", "data"):
        (tmp_path / folder).mkdir()
    (tmp_path / "src" / "train.py").write_text("print('trained')")
    (tmp_path / "src" / "vocabulary.json").write_bytes(b"w" * 100_000)
    (tmp_path / "data" / "rows").write_bytes(b"r" * 200_000)
    estimator = Estimator(
        "python:3.11", "python train.py", source_dir=tmp_path / "src", instance_type="c6", session=session()
    )
    parts = parts_of_plan(estimator.plan({"rows": tmp_path / "data"}), {}, estimator.session)
    # As the release before BLAKE3 has recorded them.
    assert parts["the code"] == "b73b6cc84d284b9aec3c4f59a10c68ec216dc27b81e79565b24fdea88576c2c9"
    assert parts["input rows"] == "0627c5e7e6a1c6eec569c58461cb3a902aa973a7fe1ae89d91997c2453109ef5"
