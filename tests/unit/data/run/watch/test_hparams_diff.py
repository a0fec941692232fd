"""In which hyperparameters runs differ."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pytest

pytest.importorskip("numpy")

from pai_sdk._data.run.events.series import Point, TagSummary
from pai_sdk._data.run.watch.entry import flat
from pai_sdk._data.run.watch.hparams_diff import hparams_diff
from pai_sdk._data.run.watch.records import RunBrief


def run(number: int, loss: float | None, hparams: Mapping[str, Any]) -> RunBrief:
    tags = {} if loss is None else {"loss": TagSummary("loss", "scalar", count=1, last=Point(0.0, 1, loss))}
    return RunBrief(f"run-{number}", hparams=hparams, tags=tags)


def test_differing_and_constant_keys() -> None:
    diff = hparams_diff(
        [
            run(0, None, {"lr": 0.1, "seed": 1, "note": None, "layers": [1, 2]}),
            run(1, None, {"lr": 0.2, "seed": 1.0, "layers": [1, 2]}),
            run(2, None, {"lr": 0.1, "seed": 1, "note": None, "layers": [1, 2]}),
        ]
    )
    assert [one.name for one in diff.differing] == ["lr", "note"]
    assert diff.constant == {"seed": 1, "layers": [1, 2]}
    # Missing is not None: run-1 has no note at all.
    assert diff.differing[1].values == {"run-0": None, "run-2": None}
    assert diff.run_ids == ("run-0", "run-1", "run-2")


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        (1, 1.0, True),
        (1, True, False),
        (1, "1", False),
        (None, "None", False),
        (math.nan, math.nan, True),
        ([1], [1], True),
        ({"a": 1}, {"a": 2}, False),
        (10**400, 10**400 + 1, False),
    ],
)
def test_what_is_equal(one: object, other: object, is_same: bool) -> None:
    diff = hparams_diff([run(0, None, {"x": one}), run(1, None, {"x": other})])
    assert (list(diff.constant) == ["x"]) is is_same


def test_keys_are_ranked_by_what_they_explain() -> None:
    runs = [
        run(number, loss, {"lr": lr, "width": width, "optim": optim, "unique": f"u{number}", "batch": str(batch)})
        for number, (loss, lr, width, optim, batch) in enumerate(
            [
                (0.1, 1e-4, 5, "sgd", 8),
                (0.2, 1e-3, 9, "sgd", 8),
                (0.3, 1e-2, 6, "adam", 4),
                (5.0, 1e-1, 7, "adam", 2),
            ]
        )
    ]
    diff = hparams_diff(runs, "loss")
    assert [one.name for one in diff.differing] == ["lr", "batch", "optim", "width", "unique"]
    by_name = {one.name: one for one in diff.differing}
    assert by_name["lr"].correlation == pytest.approx(1.0)  # by ranks: the outlier does not matter
    assert by_name["batch"].kind == "number"
    assert by_name["batch"].correlation == pytest.approx(-0.9487, abs=1e-4)
    assert by_name["optim"].correlation is None
    assert by_name["optim"].explained == pytest.approx(0.8)
    assert by_name["width"].explained == pytest.approx(0.16)
    assert by_name["unique"].explained is None  # a value for each run says nothing
    assert diff.metric_values == {"run-0": 0.1, "run-1": 0.2, "run-2": 0.3, "run-3": 5.0}


def test_a_null_does_not_hide_what_numbers_explain() -> None:
    runs = [run(number, float(number), {"lr": None if number == 0 else number / 10}) for number in range(9)]
    (lr,) = hparams_diff(runs, metric="loss").differing
    assert (lr.kind, lr.correlation, lr.values["run-0"]) == ("number", pytest.approx(1.0), None)


def test_runs_without_the_metric_or_the_key_do_not_count() -> None:
    runs = [
        run(0, 1.0, {"lr": 1}),
        run(1, 2.0, {"lr": 2}),
        run(2, 3.0, {}),
        run(3, math.nan, {"lr": 9}),
        run(4, None, {"lr": 8}),
    ]
    diff = hparams_diff(runs, "loss")
    assert diff.differing[0].correlation is None  # two runs are too few
    assert hparams_diff([*runs, run(5, 0.0, {"lr": 3})], "loss").differing[0].correlation == pytest.approx(-0.5)
    assert hparams_diff([], "loss").differing == ()


def test_nested_hyperparameters_have_dots() -> None:
    values = {"optim": {"lr": 0.1, "betas": [0.9, 0.99]}, "seed": 1}
    assert flat(values) == {"optim.lr": 0.1, "optim.betas": [0.9, 0.99], "seed": 1}
