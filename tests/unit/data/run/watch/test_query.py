"""Pages of runs: their order, and the cursor from one to the next."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("numpy")

from pai_sdk._data.run.events.series import Point, TagSummary
from pai_sdk._data.run.watch.query import page_of, select_runs
from pai_sdk._data.run.watch.records import RunAnnotations, RunBrief, RunPage
from pai_sdk._data.run.watch.snapshot import Snapshot
from pai_sdk.errors import InvalidInputError
from tests.support.messages import refused


def snapshot(*briefs: RunBrief) -> Snapshot:
    return Snapshot(7, {brief.id: brief for brief in briefs})


def page(runs: Snapshot, **asked: Any) -> RunPage:
    defaults = {"filter": "", "sort": "id", "limit": 100, "cursor": None, "tags": None, "labels": None}
    return page_of(runs, **{**defaults, **asked})


def ids(runs: Snapshot, **asked: Any) -> list[str]:
    return [run.id for run in page(runs, **asked).runs]


def with_loss(run_id: str, value: float | None, **more: Any) -> RunBrief:
    loss = TagSummary("loss", "scalar", count=1, last=None if value is None else Point(0.0, 1, value), min=value)
    return RunBrief(run_id, tags={"loss": loss, "other": loss}, **more)


RUNS = snapshot(
    with_loss("a", 0.5, status="Running", created_at=3.0, hparams={"lr": "0.01"}, started_at=4.0, owner="x"),
    with_loss("b", None, status="Failed", created_at=1.0, hparams={"lr": 0.1}),
    with_loss("c", math.nan, status="Running", hparams={"lr": "auto"}),
    with_loss("d", 0.25, status="Succeed", created_at=2.0, started_at=2.0, ended_at=9.0, hparams={"lr": True}),
    RunBrief("e", hparams={"lr": None}, name="A name"),
)


@pytest.mark.parametrize(
    ("asked", "counts"),
    [
        ("", {"Running": 2, "Failed": 1, "Succeed": 1, "Unknown": 1}),
        ("status=Failed,Succeed", {"Running": 2, "Failed": 1, "Succeed": 1, "Unknown": 1}),
        ("loss<1 status=Failed", {"Running": 1, "Succeed": 1}),
        ("status!=Running id=a", {"Running": 1}),
        ("Status", {}),
    ],
)
def test_statuses_are_counted_whichever_of_them_the_filter_names(asked: str, counts: dict[str, int]) -> None:
    assert page(RUNS, filter=asked, limit=1).statuses == counts


def test_a_page_has_the_number_of_all_runs_but_archived_ones() -> None:
    archived = with_loss("f", 1.0, annotations=RunAnnotations(archived=True))
    noted = with_loss("g", 1.0, annotations=RunAnnotations(note="x"))
    runs = snapshot(*RUNS.briefs.values(), archived, noted)
    for asked in ("", "loss<0.3", "archived=true", "archived=false"):
        assert page(runs, filter=asked, limit=1).all == 6


def test_a_name_that_no_metric_has_is_that_of_a_hyperparameter_or_a_label() -> None:
    assert ids(RUNS, sort="lr") == ids(RUNS, sort="hparams.lr")
    assert ids(RUNS, filter="lr=auto") == ["c"]
    assert ids(RUNS, filter="lr<0.05") == ["a"]
    named = snapshot(
        with_loss("a", 0.5, hparams={"loss": "1"}, labels={"team": "nlp"}),
        with_loss("b", 1.0, labels={"team": "cv"}),
    )
    assert ids(named, filter="loss=1") == ["b"]  # a metric comes first
    assert ids(named, filter="team=nlp") == ["a"]
    assert [run.id for run in select_runs(named, "team=cv")] == ["b"]


@pytest.mark.parametrize(
    ("sort", "order"),
    [
        ("id", "abcde"),
        ("-id", "edcba"),
        ("created", "bdace"),
        ("-created", "adbce"),  # what is missing is at the end in both directions
        ("metrics.loss", "dabce"),
        ("-metrics.loss", "adbce"),
        ("loss.min", "dabce"),
        ("status", "bacde"),
        ("started", "dabce"),
        ("duration", "dabce"),
        ("-owner", "abcde"),
        ("hparams.lr", "abdce"),  # numbers, also as text, then texts
    ],
)
def test_order(sort: str, order: str) -> None:
    assert "".join(ids(RUNS, sort=sort)) == order


@pytest.mark.parametrize(
    "sort", ["id", "-id", "-created", "metrics.loss", "-metrics.loss", "-hparams.lr", "status"]
)
@pytest.mark.parametrize("limit", [1, 2, 3])
def test_pages_lead_through_all_runs(sort: str, limit: int) -> None:
    found: list[str] = []
    cursor = None
    while True:
        one = page(RUNS, sort=sort, limit=limit, cursor=cursor)
        assert one.total == 5
        assert one.version == 7
        found += [run.id for run in one.runs]
        cursor = one.next
        if cursor is None:
            break
    assert found == ids(RUNS, sort=sort)


VALUES = st.one_of(st.none(), st.floats(), st.text(max_size=3), st.booleans(), st.integers())


@given(st.dictionaries(st.text(min_size=1, max_size=3), VALUES, max_size=12), st.integers(1, 5), st.booleans())
def test_pages_of_any_values_have_each_run_once(values: dict[str, Any], limit: int, is_reversed: bool) -> None:
    runs = snapshot(*(RunBrief(run_id, hparams={"x": value}) for run_id, value in values.items()))
    found: list[str] = []
    cursor = None
    for _ in range(len(values) + 1):
        one = page(runs, sort="-hparams.x" if is_reversed else "hparams.x", limit=limit, cursor=cursor)
        found += [run.id for run in one.runs]
        cursor = one.next
        if cursor is None:
            break
    assert sorted(found) == sorted(values)


def test_a_run_that_comes_or_goes_between_pages_moves_no_other() -> None:
    first = page(RUNS, limit=2)
    changed = snapshot(*(run for run in RUNS.briefs.values() if run.id != "b"), RunBrief("aa"))
    assert ids(changed, limit=2, cursor=first.next) == ["c", "d"]


def test_a_cursor_belongs_to_its_question() -> None:
    cursor = page(RUNS, limit=2).next
    for wrong in (
        {"cursor": cursor, "sort": "-id"},
        {"cursor": cursor, "filter": "status=Running"},
        {"cursor": "nonsense"},
        {"cursor": "ä"},
        {"cursor": "W10"},
        {"cursor": ""},
        {"limit": 0},
        {"limit": True},
        {"sort": ""},
        {"sort": "-"},
    ):
        with pytest.raises(InvalidInputError):
            page(RUNS, **{"limit": 2, **wrong})


def test_only_the_tags_that_are_asked_for() -> None:
    shown = page(RUNS, tags=["loss", "missing"], filter="id=a").runs[0]
    assert list(shown.tags) == ["loss"]
    assert list(RUNS.briefs["a"].tags) == ["loss", "other"]


def test_runs_are_chosen_by_ids_or_a_filter() -> None:
    assert [run.id for run in select_runs(RUNS, ["c", "a", "c"])] == ["c", "a"]
    assert [run.id for run in select_runs(RUNS, "a")] == ["a"]
    assert [run.id for run in select_runs(RUNS, [RUNS.briefs["c"], "a"])] == ["c", "a"]
    assert [run.id for run in select_runs(RUNS, "status=Running")] == ["a", "c"]
    assert len(select_runs(RUNS, "")) == 5
    with refused(InvalidInputError, "runs", "runs") as caught:
        select_runs(RUNS, ["a", "x", "y"])
    assert len(caught.value.problems) == 2
