"""Checks bodies and queries that are not those of CreateJob and UpdateJob."""

from __future__ import annotations

import json
from collections.abc import Iterator

from pai_sdk._wire.dlc.checking.problems import BodyProblem, choice_problem
from pai_sdk._wire.dlc.checking.tags import tag_problems
from pai_sdk._wire.dlc.jobs import JobQuery
from pai_sdk._wire.dlc.limits import EVENT_COUNTS, MAX_TAGGED, PAGE_NUMBERS, PAGE_SIZES
from pai_sdk._wire.dlc.logs import EventQuery
from pai_sdk._wire.dlc.resources.signals import NewSignal
from pai_sdk._wire.dlc.resources.tags import NewTags, UntagQuery
from pai_sdk._wire.dlc.resources.templates import NewTemplate, TemplateUpdate
from pai_sdk._wire.dlc.resources.tensorboards import NewTensorboard

__all__ = [
    "event_query_problems",
    "job_query_problems",
    "page_problems",
    "signal_problems",
    "tagging_problems",
    "template_problems",
    "tensorboard_problems",
]

_SORT_KEYS = ("DisplayName", "JobType", "Status", "GmtCreateTime", "GmtFinishTime")


def page_problems(page_number: int | None, page_size: int | None, order: str | None = None) -> list[BodyProblem]:
    """Returns what is wrong with the page of a list; values that are not set are no problem."""
    problems = []
    for where, value, allowed in (
        ("PageNumber", page_number, PAGE_NUMBERS),
        ("PageSize", page_size, PAGE_SIZES),
    ):
        if value is not None and value not in allowed:
            problems.append(BodyProblem(where, f"{value} is not between {allowed[0]} and {allowed[-1]}"))
    return problems + choice_problem("Order", order.lower() if order else None, ("asc", "desc"))


def job_query_problems(query: JobQuery) -> list[BodyProblem]:
    """Returns what is wrong with a ListJobs."""
    problems = page_problems(query.page_number, query.page_size, query.order)
    problems += choice_problem("SortBy", query.sort_by, _SORT_KEYS)
    problems += choice_problem("PaymentType", query.payment_type, ("PrePaid", "Spot", "PostPaid"))
    if query.from_all_workspaces and not query.show_own:
        problems.append(BodyProblem("FromAllWorkspaces", "is for own jobs only", "give ShowOwn=true too"))
    return problems


def event_query_problems(query: EventQuery) -> list[BodyProblem]:
    """Returns what is wrong with a GetPodEvents or GetJobEvents."""
    count = query.max_events_num
    if count is None or count in EVENT_COUNTS:
        return []
    return [BodyProblem("MaxEventsNum", f"{count} is not between {EVENT_COUNTS[0]} and {EVENT_COUNTS[-1]}")]


def tagging_problems(tags: NewTags | UntagQuery) -> list[BodyProblem]:
    """Returns what is wrong with a TagResources or UntagResources."""
    problems = []
    if not tags.resource_type:
        problems.append(BodyProblem("ResourceType", "is required", "such as Job"))
    if not 1 <= len(tags.resource_id) <= MAX_TAGGED:
        problems.append(
            BodyProblem("ResourceId", f"has {len(tags.resource_id)} ids; 1 to {MAX_TAGGED} are allowed")
        )
    if isinstance(tags, NewTags):
        if not tags.tag:
            problems.append(BodyProblem("Tag", "is required"))
        problems += tag_problems("Tag", tags.tag)
    elif not tags.tag_key and (tags.all or "").lower() != "true":
        problems.append(BodyProblem("TagKey", "is required", "name keys, or give All=true"))
    return problems


def signal_problems(signal: NewSignal) -> list[BodyProblem]:
    """Returns what is wrong with a CreateSignal."""
    problems = [] if signal.signal else [BodyProblem("Signal", "is required")]
    target = signal.target
    if target is None or not target.scope:
        return [*problems, BodyProblem("Target.Scope", "is required", "pods or roles")]
    problems += choice_problem("Target.Scope", target.scope, ("pods", "roles"))
    if target.scope == "pods" and not target.pod_names:
        problems.append(BodyProblem("Target.PodNames", "is required"))
    if target.scope == "roles" and not target.roles:
        problems.append(BodyProblem("Target.Roles", "is required"))
    return problems


def template_problems(template: NewTemplate | TemplateUpdate) -> list[BodyProblem]:
    """Returns what is wrong with a CreateJobTemplate or UpdateJobTemplate; the job in it is not checked."""
    return list(_template_problems(template))


def _template_problems(template: NewTemplate | TemplateUpdate) -> Iterator[BodyProblem]:
    if isinstance(template, NewTemplate):
        for where, value in (("TemplateName", template.template_name), ("Content", template.content)):
            if not value:
                yield BodyProblem(where, "is required")
    if template.content:
        try:
            content = json.loads(template.content)
        except (ValueError, RecursionError):
            content = None
        if not isinstance(content, dict):
            yield BodyProblem("Content", "expected a JSON object as a string", "the body of a CreateJob")
    for path, value in template.constraints.items():
        yield from choice_problem(f"Constraints[{path!r}]", str(value), ("locked", "overridable", "required"))


def tensorboard_problems(board: NewTensorboard) -> list[BodyProblem]:
    """Returns what is wrong with a CreateTensorboard: it reads a job or data sources, not both."""
    has_sources = bool(board.data_sources or board.tensorboard_data_sources or board.data_source_id or board.uri)
    if board.job_id and has_sources:
        return [BodyProblem("JobId", "conflicts with data sources", "give only one of them")]
    if not board.job_id and not has_sources:
        return [BodyProblem("JobId", "is required", "give a job or data sources")]
    return []
