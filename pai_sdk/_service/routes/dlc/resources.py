"""DLC: instance types, tags, tokens, counts of jobs."""

from __future__ import annotations

import time

from fastapi import APIRouter

from pai_sdk._service.http.tokens import new_token
from pai_sdk._service.identity.requests import PrincipalOf
from pai_sdk._service.routes.dlc.dlc_route import DlcRoute, SharedPathRoute
from pai_sdk._service.services.budgets import LISTS, within
from pai_sdk._service.services.context import ContextOf
from pai_sdk._service.services.dlc import changes
from pai_sdk._service.services.dlc.ecs_specs import find_specs
from pai_sdk._service.services.dlc.listing import count_by_status
from pai_sdk._service.services.dlc.problems import refuse_problems
from pai_sdk._wire.body import comma_list
from pai_sdk._wire.dlc.limits import DEFAULT_TOKEN_S
from pai_sdk._wire.dlc.resources.access import SharingToken, TokenQuery
from pai_sdk._wire.dlc.resources.ecs_specs import EcsSpecList, EcsSpecQuery
from pai_sdk._wire.dlc.resources.statistics import JobStatistics, StatisticsQuery
from pai_sdk._wire.dlc.resources.tags import NewTags, TagsChanged, UntagQuery
from pai_sdk.errors import Problem

router = APIRouter(prefix="/api/v1", route_class=DlcRoute)
shared_router = APIRouter(prefix="/api/v1", route_class=SharedPathRoute)


@router.get("/ecsspecs")
def list_ecs_specs(context: ContextOf, query: EcsSpecQuery) -> EcsSpecList:
    """ListEcsSpecs: this machine, as the one type. Jobs can name any other."""
    return find_specs(context, query)


@router.get("/batch/statistics/jobs")
@within(LISTS)
def batch_get_jobs_statistics(context: ContextOf, principal: PrincipalOf, query: StatisticsQuery) -> JobStatistics:
    """BatchGetJobsStatistics: how many jobs of workspaces have each status. Older clients have this action."""
    visible = [workspace.id for workspace in context.workspaces.visible(principal)]
    requested = comma_list(query.workspace_ids) or visible
    with context.jobs.database.read() as session:
        counts = count_by_status(session, principal, [each for each in requested if each in visible])
    return JobStatistics(statistics=counts)


@router.post("/tags")
def tag_resources(context: ContextOf, principal: PrincipalOf, tags: NewTags) -> TagsChanged:
    """TagResources: adds tags to jobs, replaces those of the same key, and leaves the others."""
    changes.tag_jobs(context, principal, tags)
    return TagsChanged()


@router.delete("/tags")
def untag_resources(context: ContextOf, principal: PrincipalOf, query: UntagQuery) -> TagsChanged:
    """UntagResources."""
    changes.untag_jobs(context, principal, query)
    return TagsChanged()


# Not in the description: that has one entry for a path, which is the action of training jobs.
@shared_router.get("/tokens", include_in_schema=False)
def get_token(context: ContextOf, principal: PrincipalOf, query: TokenQuery) -> SharingToken:
    """GetToken: for reading one job or TensorBoard."""
    target, seconds = query.target_id or "", query.expire_time or DEFAULT_TOKEN_S
    problems = []
    if query.target_type not in ("job", "tensorboard"):
        problems.append(Problem("TargetType", "is neither job nor tensorboard"))
    if not target:
        problems.append(Problem("TargetId", "is required"))
    if not 1 <= seconds <= DEFAULT_TOKEN_S:
        problems.append(Problem("ExpireTime", f"{seconds} is not between 1 and {DEFAULT_TOKEN_S}"))
    refuse_problems(problems)
    if query.target_type == "job":
        context.jobs.require_visible(target, principal)
        context.jobs.version(target)
    else:
        context.records.require_visible(target, principal, "read")
    return SharingToken(token=new_token(context, target, time.time() + seconds))
