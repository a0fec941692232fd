"""DLC: templates of jobs."""

from __future__ import annotations

from fastapi import APIRouter, Request

from pai_sdk._service.http.auditing import record_created_id
from pai_sdk._service.identity.requests import PrincipalOf
from pai_sdk._service.routes.dlc.dlc_route import DlcRoute
from pai_sdk._service.services.budgets import LISTS, within
from pai_sdk._service.services.context import ContextOf
from pai_sdk._service.services.dlc import templates
from pai_sdk._wire.dlc.resources.templates import (
    CreatedTemplate,
    DefaultVersion,
    DefaultVersionChanged,
    NewTemplate,
    TemplateDetail,
    TemplateDetailQuery,
    TemplateList,
    TemplateQuery,
    TemplateReference,
    TemplateUpdate,
    UpdatedTemplate,
)
from pai_sdk._wire.dlc.times import wire_time

router = APIRouter(prefix="/api/v1/jobtemplates", route_class=DlcRoute)


@router.post("")
def create_job_template(
    request: Request, context: ContextOf, principal: PrincipalOf, template: NewTemplate
) -> CreatedTemplate:
    """CreateJobTemplate."""
    created = templates.create_template(context, principal, template)
    record_created_id(request, created.template_id or "")
    return created


@router.get("")
@within(LISTS)
def list_job_templates(context: ContextOf, principal: PrincipalOf, query: TemplateQuery) -> TemplateList:
    """ListJobTemplates."""
    return templates.list_templates(context, principal, query)


@router.get("/{template_id}")
def get_job_template(context: ContextOf, template_id: str, query: TemplateDetailQuery) -> TemplateDetail:
    """GetJobTemplate: with one version, or with all."""
    return templates.read_template(context, template_id, query.version)


@router.put("/{template_id}")
def update_job_template(
    context: ContextOf, principal: PrincipalOf, template_id: str, update: TemplateUpdate
) -> UpdatedTemplate:
    """UpdateJobTemplate: other content or constraints become a new version."""
    return templates.update_template(context, principal, template_id, update)


@router.put("/{template_id}/defaultversion")
def set_job_template_default_version(
    context: ContextOf, template_id: str, body: DefaultVersion
) -> DefaultVersionChanged:
    """SetJobTemplateDefaultVersion."""
    row = templates.set_default_version(context, template_id, body.version)
    return DefaultVersionChanged(default_version=body.version, gmt_modify_time=wire_time(row.modified_at))


@router.delete("/{template_id}")
def delete_job_template(context: ContextOf, template_id: str) -> TemplateReference:
    """DeleteJobTemplate."""
    templates.delete_template(context, template_id)
    return TemplateReference(template_id=template_id)
