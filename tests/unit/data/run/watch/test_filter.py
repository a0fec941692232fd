"""The language that filters and sorts runs."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("numpy")

from pai_sdk._data.run.events.series import Point, TagSummary
from pai_sdk._data.run.watch.filter import metric_value, parse_filter, parse_key
from pai_sdk._data.run.watch.records import RunAnnotations, RunBrief
from pai_sdk.errors import InvalidInputError, Problem


def metric(last: float, least: float, most: float, **more: Any) -> TagSummary:
    return TagSummary("", "scalar", count=10, last=Point(0.0, 9, last), min=least, max=most, **more)


NOW = time.time()
BRIEF = RunBrief(
    "group/resnet-7",
    uri="file:///runs/group/resnet-7",
    status="Succeed",
    name="ResNet with warm-up",
    created_at=NOW - 7200,
    updated_at=NOW - 60,
    tags={
        "loss": metric(0.25, 0.2, 1.5),
        "eval/acc": metric(0.8, 0.1, 0.95, nan_count=2),
        "acc.max": metric(7.0, 7.0, 7.0),
        "my loss": metric(3.0, 3.0, 3.0),
        "broken": metric(math.nan, 1.0, 1.0, nan_count=1),
        "note": TagSummary("note", "text", count=1),
    },
    hparams={"lr": 0.1, "batch": "64", "bn": True, "seed": None, "optim.name": "adam", "my lr": 1e-3},
    labels={"team": "nlp"},
    damaged=1,
    owner="mia",
    started_at=NOW - 7000,
    ended_at=NOW - 1600,
    instance_type="ecs.gn7i",
    instance_count=4,
    cause="OutOfMemoryError: CUDA out of memory",
)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "   ",
        "status=Succeed",
        "status=Running,Succeeded",  # as people call it
        "status=succeed",
        "status!=Running",
        "loss<0.3 loss>0.2",
        "loss < 0.3   loss >= 0.25",
        "loss==0.25",
        "metrics.loss<=0.25",
        "metrics.eval/acc.max>=0.9",
        "eval/acc.min<0.2",
        "loss.count=10",
        "eval/acc.nan>0",
        "acc.max=7",  # a tag of this name comes first
        "metrics.broken=nan",
        "metrics.broken!=1",
        "nan=3",
        "inf=0",
        "damaged>0",
        "hparams.lr=0.1",
        "hparams.lr=1e-1",
        "hparams.lr>0.05",
        "hparams.batch=64",
        "hparams.batch=64.0",  # the service keeps numbers as text
        "hparams.batch>32",
        "hparams.bn=true",
        "hparams.bn=True",
        "hparams.seed=None",
        "hparams.seed=null",
        "hparams.optim.name=adam",
        "hparams.optim.name~DA",
        "hparams.missing!=3",
        "hparams.missing!~x",
        "labels.team=nlp",
        "labels.team=vision,nlp",
        "labels.team!=vision",
        "name~res",
        "name~RESNET",
        'name="ResNet with warm-up"',
        "name='ResNet with warm-up'",
        '"my loss"=3',
        'hparams."my lr"<1',
        "resnet",
        "id~group/",
        'error=""',
        "created>-3h",
        "created<-1h",
        "updated>2020-01-01",
        "updated>2020-01-01T00:00:00Z",
        "updated<2100-01-01T09:30",
        "started<-1h",
        "owner=mia",
        "instance_type~GN7 instance_count>=4 instance_count=4",
        "cause~memory",
        'sub_status=""',
        "duration>89m duration<1.51h duration>=5399 duration<2d",
    ],
)
def test_conditions_that_hold(text: str) -> None:
    assert parse_filter(text).matches(BRIEF)


def test_cost_is_that_of_jobs_if_one_has_it_and_otherwise_a_metric() -> None:
    metric_only = RunBrief("a", tags={"cost": metric(0.25, 0.2, 1.5)})
    priced = replace(metric_only, id="b", cost=12.0)
    free = RunBrief("c", cost=0.0)
    matches = partial(_ids_that_match, [metric_only, priced, free])
    assert matches("cost>1") == ["b"]
    assert matches("cost<1") == ["c"]
    assert matches("metrics.cost<1") == ["a", "b"]
    assert _ids_that_match([metric_only], "cost<1") == ["a"]
    with pytest.raises(InvalidInputError):
        matches("cost~1")


def _ids_that_match(briefs: list[RunBrief], text: str) -> list[str]:
    return [brief.id for brief in briefs if parse_filter(text, briefs=briefs).matches(brief)]


@pytest.mark.parametrize(
    "text",
    [
        "status=Running",
        "status!=Succeeded",
        "loss<0.25",
        "loss<0.3 loss>0.5",
        "metrics.missing<1",
        "metrics.note=1",  # text is no metric
        "metrics.broken<5",  # NaN is not less than anything
        "hparams.seed!=null",
        "hparams.missing=None",  # what is missing is not None
        "hparams.missing=x",
        "hparams.missing~x",
        "hparams.seed>0",
        "hparams.bn=1",
        "hparams.optim.name>3",
        "labels.team=NLP",
        "labels.other=nlp",
        "name!~res",
        "bert",
        "ended<2020-01-01",
        "owner=Mia",
        "duration>2h",
        "duration<1h",
    ],
)
def test_conditions_that_do_not_hold(text: str) -> None:
    assert not parse_filter(text).matches(BRIEF)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("loss<much", "filter, character 6: 'much' is not a number"),
        ("  loss<", "filter, character 8: there is no value after <"),
        ("=3", "filter, character 1: there is no name before ="),
        ("stauts=Running", "filter, character 8: 'Running' is not a number (did you mean 'status'?)"),
        ('name="a', 'filter, character 6: the quote " has no end (write " behind it)'),
        ("loss<1,2", "filter, character 1: < takes one value (several are for = and !=)"),
        ("name<b", "filter, character 6: name is a string, which cannot be ordered (use = or ~)"),
        ("loss~3", "filter, character 6: ~ applies to strings, and loss is not a string (use <, > or =)"),
        ("duration>soon", "filter, character 10: 'soon' is not a number"),
        ("created>soon", "filter, character 9: 'soon' is not a time"),
        ("created=2026-11-22", "filter, character 9: a time is compared by <, <=, > or >="),
    ],
)
def test_an_error_says_where(text: str, message: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        parse_filter(text)
    assert str(caught.value).startswith(message)


def test_all_errors_are_said_at_once() -> None:
    with pytest.raises(InvalidInputError) as caught:
        parse_filter("loss<much status=Running created>soon")
    assert [problem.where for problem in caught.value.problems] == ["filter, character 6", "filter, character 34"]


def test_labels_are_further_conditions() -> None:
    assert parse_filter("loss<1", {"team": "nlp"}).matches(BRIEF)
    assert not parse_filter("loss<1", {"team": "vision"}).matches(BRIEF)


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused_with_its_place(text: str) -> None:
    problems: Sequence[Problem] = ()
    try:
        parse_filter(text).matches(BRIEF)
    except InvalidInputError as error:
        problems = error.problems
    assert all(problem.where.startswith("filter, character ") for problem in problems)


@given(st.text(min_size=1, max_size=20), st.text(max_size=20))
def test_any_name_and_value_can_be_written_in_quotes(name: str, value: str) -> None:
    def quoted(text: str) -> str:
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'

    brief = RunBrief("a", labels={name: value})
    assert parse_filter(f"labels.{quoted(name)}={quoted(value)}").matches(brief)
    assert not parse_filter(f"labels.{quoted(name)}!={quoted(value)}").matches(brief)


def test_keys() -> None:
    assert parse_key("updated").group == "time"
    assert parse_key("hparams.optim.lr").name == "optim.lr"
    assert metric_value(BRIEF, "eval/acc.max") == 0.95
    assert metric_value(BRIEF, "acc.max") == 7.0
    assert metric_value(BRIEF, "note") is None
    assert metric_value(BRIEF, "loss.median") is None


def test_annotations_are_compared_tag_by_tag() -> None:
    brief = RunBrief(
        "a", annotations=RunAnnotations(("best of", "paper"), "Line one\nline two", False, ("", "bob"))
    )
    for text, expected in (
        *(("tags=paper", True), ('tags="best of"', True), ("tags=best", False), ("tags~BEST", True)),
        *(("tags!=paper", False), ("tags!=x,y", True), ("tags=x,paper", True), ("tags!~pap", False)),
        *(("note~TWO", True), ("note!~two", False), ("archived=false", True), ("archived=true", False)),
        *(('starred_by=""', True), ("starred_by=bob", True), ("starred_by=bo", False), ("starred_by!=eve", True)),
    ):
        assert parse_filter(text).matches(brief) is expected, text
        assert parse_filter(text).matches(RunBrief("b")) is (text in _OF_NONE), text
    with pytest.raises(InvalidInputError, match="cannot be ordered"):
        parse_filter("tags<x")


_OF_NONE = ("tags!=paper", "tags!=x,y", "tags!~pap", "note!~two", "archived=false", "starred_by!=eve")
