"""The short names of runs are distinct."""

from __future__ import annotations

import pytest

from pai_sdk._data.run.watch.names import run_names
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
        ([folder("a-3f2a9c", "oss://b/x/a-3f2a9c")], ["a-3f2a9c"]),
        ([folder("lr", "oss://b/lr"), RunBrief("train1x7k2", name="lr")], ["lr (lr)", "lr (x7k2)"]),
    ],
)
def test_names_are_short_and_distinct(runs: list[RunBrief], names: list[str]) -> None:
    assert run_names(runs) == dict(zip([run.id for run in runs], names, strict=True))
