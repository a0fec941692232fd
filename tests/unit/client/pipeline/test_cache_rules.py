"""Which changes make a step run again: the table of docs/pipelines.md, and code that was edited meanwhile."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

from pai_sdk._client.pipeline import Pipeline
from pai_sdk._client.pipeline.contents import content_of
from pai_sdk._client.tune import Tuner, Uniform
from tests.trials.pipeline_cache import CHANGES, Change, outcome, run_trial


@pytest.mark.parametrize("change", CHANGES, ids=[change.part for change in CHANGES])
def test_each_part_counts_as_documented(tmp_path: Path, change: Change) -> None:
    assert outcome(tmp_path, change, 2, 3) == []


@pytest.mark.slow
def test_generated_changes_count_as_documented() -> None:
    run_trial(200)


def test_a_module_that_is_edited_during_a_run_leaves_no_result_of_the_old_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    module = tmp_path / "edited_meanwhile.py"
    old, new = "def step(before):\n    return 'old'\n", "def step(before):\n    return 'new'\n"

    def run(during: str) -> Any:
        monkeypatch.delitem(sys.modules, "edited_meanwhile", raising=False)
        importlib.invalidate_caches()
        pipeline = Pipeline("edited", store=tmp_path / "store")
        function = importlib.import_module("edited_meanwhile").step
        edit = pipeline.step(lambda: module.write_text(during) * 0, name="edit", cache=False)
        pipeline.step(function, name="one", arguments={"before": edit.result})
        return pipeline.run(show=False)["one"]

    module.write_text(old)
    assert run(during=new).result == "old"
    assert run(during=old).result == "new"
    assert (run(during=old).result, run(during=old).status) == ("old", "cached")


def test_literals_beside_an_output_of_another_step_count(tmp_path: Path) -> None:
    def run(rate: int) -> Any:
        pipeline = Pipeline("mixed", store=tmp_path)
        first = pipeline.step(lambda: 1, name="first")
        given = {"of": first.result, "rate": rate}
        pipeline.step(lambda x: x["of"] + x["rate"], name="sum", arguments={"x": given})
        return pipeline.run(show=False)["sum"]

    assert [run(1).result, run(1).status, run(2).result] == [2, "cached", 3]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({1: 2}, {"1": 2}),
        ([1], (1,)),
        (1, True),
        ([{"a": {1: 2}}], [{"a": {"1": 2}}]),
        ([len, max, len], [len, max, max]),
    ],
    ids=["keys", "tuple", "bool", "nested keys", "repeated"],
)
def test_values_that_json_has_alike_are_not_the_same(one: Any, other: Any) -> None:
    assert content_of(one) != content_of(other)


def test_repeated_functions_are_told_apart() -> None:
    def one() -> int:
        return 1

    def two() -> int:
        return 2

    assert content_of([one, two, one]) != content_of([one, two, two])
    assert content_of([one, two, one]) == content_of([one, two, one])


def test_a_search_with_other_earlier_trials_is_another_one(tmp_path: Path) -> None:
    def loss(config: dict[str, float]) -> dict[str, float]:
        return {"loss": config["x"]}

    def search(study: str, trials: int) -> Tuner:
        return Tuner(loss, {"x": Uniform(0, 1)}, trials=trials, seed=1, study=tmp_path / study)

    earlier = search("earlier", 2)
    earlier.run(show=False)

    def run(warm_start: Any) -> Any:
        pipeline = Pipeline("search", store=tmp_path / "store")
        tuner = Tuner(loss, {"x": Uniform(0, 1)}, trials=2, seed=2, warm_start=warm_start)
        pipeline.step(tuner, name="search")
        return pipeline.run(show=False)["search"]

    assert [run(None).status for _ in range(2)] == ["succeeded", "cached"]
    warm = run(str(tmp_path / "earlier"))
    assert (warm.status, warm.reason) == ("succeeded", "warm_start is new")
    assert run(str(tmp_path / "earlier")).status == "cached"
    search("earlier", 3).run(show=False)
    assert run(str(tmp_path / "earlier")).status == "succeeded"
