"""The short names of runs are distinct."""

from __future__ import annotations

import pytest

from pai_sdk._data.run.watch.names import folder_of, has_explicit_name, is_of_instance, run_names
from pai_sdk._data.run.watch.records import RunBrief


def folder(run_id: str, uri: str) -> RunBrief:
    return RunBrief(run_id, uri, name=run_id.partition("@")[0])


@pytest.mark.parametrize(
    ("runs", "names"),
    [
        ([RunBrief("train1x7k2", name="lr-0.1-3f2a9c"), RunBrief("sweep/3")], ["lr-0.1", "sweep/3"]),
        ([RunBrief("train1x7k2", name="lr"), RunBrief("train9f2a1", name="lr")], ["lr (x7k2)", "lr (f2a1)"]),
        (
            [RunBrief("train1x7k2", name="lr-1f2a9c"), RunBrief("train9f2a1", name="lr-8q3b1c")],
            ["lr (x7k2)", "lr (f2a1)"],
        ),
        ([RunBrief("train1x7k2", name="lr"), RunBrief("train2x7k2", name="lr")], ["lr (1x7k2)", "lr (2x7k2)"]),
        ([RunBrief("t1", name="lr"), RunBrief("t2", name="lr")], ["lr (t1)", "lr (t2)"]),
        ([folder("a", "oss://b/x/a"), folder("a@2", "oss://b/y/a")], ["x/a", "y/a"]),
        (
            [RunBrief(".", "oss://a/x", name="x"), RunBrief(".@2", "oss://b/x", name="x")],
            ["a/x", "b/x"],
        ),
        ([folder("a-3f2a9c", "oss://b/x/a-3f2a9c")], ["a-3f2a9c"]),
        ([folder("lr", "oss://b/lr"), RunBrief("train1x7k2", name="lr")], ["lr (lr)", "lr (x7k2)"]),
    ],
)
def test_names_are_short_and_distinct(runs: list[RunBrief], names: list[str]) -> None:
    assert run_names(runs) == dict(zip([run.id for run in runs], names, strict=True))


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("file:///data/my%20runs/a/tensorboard/", "/data/my runs/a"),
        ("oss://models/runs/a", "oss://models/runs/a"),
    ],
)
def test_the_folder_of_a_uri(uri: str, expected: str) -> None:
    assert folder_of(uri) == expected


@pytest.mark.parametrize(
    ("run", "expected"), [(RunBrief("train1", name="first"), True), (RunBrief("a@2", name="a"), False)]
)
def test_names_of_folders_are_not_explicit(run: RunBrief, expected: bool) -> None:
    assert has_explicit_name(run) is expected


@pytest.mark.parametrize(("tag", "expected"), [("loss (worker-1)", True), ("time (s)", False)])
def test_a_tag_of_another_instance(tag: str, expected: bool) -> None:
    assert is_of_instance(tag, ["loss"]) is expected
