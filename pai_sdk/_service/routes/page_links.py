"""Links to the page of the service, which sign a browser in."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body, Request, Response
from pydantic import ConfigDict, Field

from pai_sdk._service.identity.principal import OPERATOR
from pai_sdk._service.identity.requests import PrincipalOf
from pai_sdk._service.routes.json_responses import success
from pai_sdk._service.services.budgets import BudgetedRoute
from pai_sdk._service.services.context import ContextOf
from pai_sdk._service.wire_errors import WireError
from pai_sdk._wire.users import NewPageLink, PageLink

router = APIRouter(prefix="/api/v1", route_class=BudgetedRoute)


class _NewPageLink(NewPageLink):
    model_config = ConfigDict(populate_by_name=False)  # FastAPI would accept `job_id` too

    job_id: str | None = Field(default=None, max_length=200, description="A job; the list without it.")


@router.post("/pagelinks", response_model=PageLink)
def create_page_link(
    request: Request,
    context: ContextOf,
    principal: PrincipalOf,
    body: Annotated[_NewPageLink | None, Body()] = None,
) -> Response:
    """CreatePageLink: a link to the page of this service. It works once, within a minute."""
    if context.page is None:
        raise WireError(404, "InvalidAction.NotFound", "This service has no action CreatePageLink.")
    job_id = body.job_id if body is not None else None
    if job_id is not None:
        context.jobs.require_visible(job_id, principal)
        context.jobs.version(job_id)  # raises for one that is not there
    key_id = "" if principal.user == OPERATOR else principal.key_id
    link = context.page.new_link(request.headers.get("host", ""), job_id, access_key_id=key_id)
    return success(request, PageLink(url=link), headers={"Cache-Control": "no-store"})
