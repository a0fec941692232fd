"""Routes of the saved views of the page. A server of a folder has none: there, the browser stores them."""

from __future__ import annotations

from fastapi import APIRouter, Response

from pai_sdk._service.identity.requests import PrincipalOf
from pai_sdk._service.services.budgets import RUNS, BudgetedRoute, WorkOf, within
from pai_sdk._service.services.context import ContextOf
from pai_sdk._service.services.runs import saved_views
from pai_sdk._service.services.runs.responses import LIVE, json_response
from pai_sdk._wire.annotations import NewView, SavedView, SavedViews
from pai_sdk._wire.base import response_body
from pai_sdk._wire.runs import ExtensionBody

router = APIRouter(prefix="/api/v1/views", route_class=BudgetedRoute)


@router.get("", response_model=SavedViews)
@within(RUNS)
def list_saved_views(context: ContextOf, principal: PrincipalOf, work: WorkOf) -> Response:
    """List the saved views of the user, and those that other members of their workspaces share."""
    return json_response(response_body(saved_views.list_views(context.jobs.database, principal)), LIVE, work)


@router.put("/{name}", response_model=SavedView)
@within(RUNS)
def save_view(context: ContextOf, principal: PrincipalOf, name: str, body: NewView) -> Response:
    """Save a view of the page under a name, or replace the user's view of this name."""
    return json_response(response_body(saved_views.save_view(context.jobs.database, principal, name, body)), LIVE)


@router.delete("/{name}", response_model=ExtensionBody)
@within(RUNS)
def delete_view(context: ContextOf, principal: PrincipalOf, name: str) -> Response:
    """Delete a view of the user."""
    saved_views.delete_view(context.jobs.database, principal, name)
    return json_response({}, LIVE)
