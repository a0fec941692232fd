"""What is wrong with bodies and queries beside those of jobs."""

from __future__ import annotations

from typing import Any

import pytest

from pai_sdk._wire.dlc.jobs import JobQuery
from pai_sdk._wire.dlc.logs import EventQuery
from pai_sdk._wire.dlc.resources import checks
from pai_sdk._wire.dlc.resources.signals import NewSignal
from pai_sdk._wire.dlc.resources.tags import NewTags, UntagQuery
from pai_sdk._wire.dlc.resources.templates import NewTemplate, TemplateUpdate
from pai_sdk._wire.dlc.resources.tensorboards import NewTensorboard


@pytest.mark.parametrize(
    ("page", "where"),
    [
        ((None, None, None), []),
        ((1, 1, "asc"), []),
        ((1000, 100, "DESC"), []),
        ((0, 0, None), ["PageNumber", "PageSize"]),
        ((1001, 101, "up"), ["PageNumber", "PageSize", "Order"]),
        ((1, 200, None), ["PageSize"]),
    ],
)
def test_pages(page: tuple[Any, ...], where: list[str]) -> None:
    assert [problem.where for problem in checks.page_problems(*page)] == where


@pytest.mark.parametrize(
    ("query", "where"),
    [
        ({}, []),
        ({"FromAllWorkspaces": "True", "ShowOwn": "True"}, []),
        ({"FromAllWorkspaces": "True"}, ["FromAllWorkspaces"]),
        ({"SortBy": "Size", "PaymentType": "Free", "PageSize": "101"}, ["PageSize", "SortBy", "PaymentType"]),
    ],
)
def test_queries_of_jobs(query: dict[str, str], where: list[str]) -> None:
    assert [problem.where for problem in checks.job_query_problems(JobQuery.from_query(query))] == where


@pytest.mark.parametrize(
    ("count", "is_wrong"), [(None, False), (1, False), (10_000, False), (0, True), (10_001, True)]
)
def test_numbers_of_events(count: int | None, is_wrong: bool) -> None:
    assert bool(checks.event_query_problems(EventQuery(max_events_num=count))) is is_wrong


TAGS = {"ResourceType": "Job", "ResourceId": ["dlc1"], "Tag": [{"Key": "k", "Value": ""}]}


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({}, []),
        ({"ResourceType": None, "ResourceId": [], "Tag": []}, ["ResourceType", "ResourceId", "Tag"]),
        ({"ResourceId": ["dlc1"] * 51}, ["ResourceId"]),
        ({"Tag": [{"Value": "v"}, {"Key": "acs:k"}]}, ["Tag", "Tag"]),
    ],
)
def test_tags(changes: dict[str, Any], where: list[str]) -> None:
    assert [each.where for each in checks.tagging_problems(NewTags.model_validate({**TAGS, **changes}))] == where


@pytest.mark.parametrize(
    ("query", "where"),
    [
        ({"TagKey": '["k"]'}, []),
        ({"All": "True"}, []),
        ({}, ["TagKey"]),
        ({"TagKey": "k", "ResourceId": "[]"}, ["ResourceId"]),
    ],
)
def test_tags_that_are_removed(query: dict[str, str], where: list[str]) -> None:
    untag = UntagQuery.from_query({"ResourceType": "Job", "ResourceId": "dlc1,dlc2", **query})
    assert [each.where for each in checks.tagging_problems(untag)] == where


@pytest.mark.parametrize(
    ("signal", "where"),
    [
        ({"Signal": "SIGUSR1", "Target": {"Scope": "pods", "PodNames": ["dlc1-master-0"]}}, []),
        ({"Signal": "SIGUSR1", "Target": {"Scope": "roles", "Roles": ["Worker"]}}, []),
        ({"Signal": "SIGUSR1", "Target": {"Scope": "pods"}}, ["Target.PodNames"]),
        ({"Signal": "SIGUSR1", "Target": {"Scope": "roles"}}, ["Target.Roles"]),
        ({"Signal": "SIGUSR1", "Target": {"Scope": "all"}}, ["Target.Scope"]),
        ({}, ["Signal", "Target.Scope"]),
    ],
)
def test_signals(signal: dict[str, Any], where: list[str]) -> None:
    assert [each.where for each in checks.signal_problems(NewSignal.model_validate(signal))] == where


@pytest.mark.parametrize(
    ("template", "where"),
    [
        ({"TemplateName": "t", "Content": "{}", "Constraints": {"$.Priority": "locked"}}, []),
        ({}, ["TemplateName", "Content"]),
        ({"TemplateName": "t", "Content": "[]"}, ["Content"]),
        ({"TemplateName": "t", "Content": "{"}, ["Content"]),
        ({"TemplateName": "t", "Content": "{}", "Constraints": {"$.A": "free"}}, ["Constraints['$.A']"]),
    ],
)
def test_templates(template: dict[str, Any], where: list[str]) -> None:
    assert [each.where for each in checks.template_problems(NewTemplate.model_validate(template))] == where


def test_an_update_of_a_template_needs_nothing() -> None:
    assert checks.template_problems(TemplateUpdate()) == []
    assert [each.where for each in checks.template_problems(TemplateUpdate(content="x"))] == ["Content"]


@pytest.mark.parametrize(
    ("board", "is_wrong"),
    [
        ({"JobId": "dlc1"}, False),
        ({"TensorboardDataSources": [{"Uri": "oss://b/d/"}]}, False),
        ({"JobId": "dlc1", "DataSources": [], "Uri": ""}, False),
        ({"JobId": "dlc1", "Uri": "oss://b/d/"}, True),
        ({}, True),
    ],
)
def test_tensorboards(board: dict[str, Any], is_wrong: bool) -> None:
    assert bool(checks.tensorboard_problems(NewTensorboard.model_validate(board))) is is_wrong
