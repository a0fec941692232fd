"""AIWorkspace: code sources, and the quotas of resource groups."""

from __future__ import annotations

from fastapi import APIRouter, Request

from pai_sdk._service.http.auditing import record_created_id
from pai_sdk._service.identity.requests import PrincipalOf
from pai_sdk._service.routes.dlc.dlc_route import BodyRoute
from pai_sdk._service.services.budgets import LISTS, within
from pai_sdk._service.services.context import ContextOf
from pai_sdk._service.services.dlc import code_sources
from pai_sdk._wire.workspace.code_sources import (
    CodeSourceList,
    CodeSourceQuery,
    CodeSourceRecord,
    CodeSourceReference,
    CodeSourceUpdate,
    NewCodeSource,
)
from pai_sdk._wire.workspace.quotas import QuotaList

router = APIRouter(prefix="/api/v1", route_class=BodyRoute)


@router.post("/codesources")
def create_code_source(
    request: Request, context: ContextOf, principal: PrincipalOf, source: NewCodeSource
) -> CodeSourceReference:
    """CreateCodeSource."""
    code_source_id = code_sources.create_code_source(context, principal, source)
    record_created_id(request, code_source_id)
    return CodeSourceReference(code_source_id=code_source_id)


@router.get("/codesources")
@within(LISTS)
def list_code_sources(context: ContextOf, principal: PrincipalOf, query: CodeSourceQuery) -> CodeSourceList:
    """ListCodeSources."""
    return code_sources.list_code_sources(context, principal, query)


@router.get("/codesources/{code_source_id}")
def get_code_source(context: ContextOf, code_source_id: str) -> CodeSourceRecord:
    """GetCodeSource, without its token."""
    return code_sources.read_code_source(context, code_source_id)


@router.put("/codesources/{code_source_id}")
def update_code_source(context: ContextOf, code_source_id: str, update: CodeSourceUpdate) -> CodeSourceReference:
    """UpdateCodeSource."""
    code_sources.update_code_source(context, code_source_id, update)
    return CodeSourceReference(code_source_id=code_source_id)


@router.put("/codesources/{code_source_id}/publish")
def publish_code_source(context: ContextOf, code_source_id: str) -> CodeSourceReference:
    """PublishCodeSource: the members of the workspace can see it."""
    code_sources.publish_code_source(context, code_source_id)
    return CodeSourceReference(code_source_id=code_source_id)


@router.delete("/codesources/{code_source_id}")
def delete_code_source(context: ContextOf, code_source_id: str) -> CodeSourceReference:
    """DeleteCodeSource."""
    code_sources.delete_code_source(context, code_source_id)
    return CodeSourceReference(code_source_id=code_source_id)


@router.get("/quotas")
def list_quotas() -> QuotaList:
    """ListQuotas: none. Jobs that name a quota run all the same; GetOwnQuota returns the limits of a user."""
    return QuotaList(quotas=[], total_count=0)
