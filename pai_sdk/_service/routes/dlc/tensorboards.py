"""DLC: TensorBoards, which are links to the page of the service."""

from __future__ import annotations

from fastapi import APIRouter, Request

from pai_sdk._service.http.auditing import record_created_id
from pai_sdk._service.identity.requests import PrincipalOf
from pai_sdk._service.routes.dlc.dlc_route import DlcRoute
from pai_sdk._service.services.budgets import LISTS, within
from pai_sdk._service.services.context import ContextOf
from pai_sdk._service.services.dlc import tensorboards
from pai_sdk._service.state.dlc_models import RecordRow
from pai_sdk._wire.body import received
from pai_sdk._wire.dlc.resources.tensorboards import (
    NewTensorboard,
    SharedUrl,
    TensorboardList,
    TensorboardQuery,
    TensorboardRecord,
    TensorboardReference,
    TensorboardUpdateQuery,
)

router = APIRouter(prefix="/api/v1/tensorboards", route_class=DlcRoute)


@router.post("")
def create_tensorboard(
    request: Request, context: ContextOf, principal: PrincipalOf, board: NewTensorboard
) -> TensorboardReference:
    """CreateTensorboard: of a job, or of data sources."""
    row = tensorboards.create_tensorboard(context, principal, board)
    record_created_id(request, row.id)
    return _reference(row)


@router.get("")
@within(LISTS)
def list_tensorboards(
    request: Request, context: ContextOf, principal: PrincipalOf, query: TensorboardQuery
) -> TensorboardList:
    """ListTensorboards."""
    return tensorboards.list_tensorboards(context, principal, query, context.link_to_job(request))


@router.get("/{tensorboard_id}")
def get_tensorboard(request: Request, context: ContextOf, tensorboard_id: str) -> TensorboardRecord:
    """GetTensorboard."""
    return tensorboards.read_tensorboard(context, tensorboard_id, context.link_to_job(request))


@router.put("/{tensorboard_id}")
def update_tensorboard(
    context: ContextOf, tensorboard_id: str, query: TensorboardUpdateQuery
) -> TensorboardReference:
    """UpdateTensorboard."""
    return _reference(tensorboards.update_tensorboard(context, tensorboard_id, query))


@router.put("/{tensorboard_id}/start")
def start_tensorboard(context: ContextOf, tensorboard_id: str) -> TensorboardReference:
    """StartTensorboard."""
    return _reference(tensorboards.set_status(context, tensorboard_id, "Running"))


@router.put("/{tensorboard_id}/stop")
def stop_tensorboard(context: ContextOf, tensorboard_id: str) -> TensorboardReference:
    """StopTensorboard."""
    return _reference(tensorboards.set_status(context, tensorboard_id, "Stopped"))


@router.delete("/{tensorboard_id}")
def delete_tensorboard(context: ContextOf, tensorboard_id: str) -> TensorboardReference:
    """DeleteTensorboard."""
    return _reference(tensorboards.delete_tensorboard(context, tensorboard_id))


@router.get("/{tensorboard_id}/sharedurl")
def get_tensorboard_shared_url(request: Request, context: ContextOf, tensorboard_id: str) -> SharedUrl:
    """GetTensorboardSharedUrl: the link of the page, which asks its readers to sign in."""
    link = tensorboards.link_to(context, tensorboard_id, context.link_to_job(request))
    return SharedUrl(tensorboard_shared_url=link)


def _reference(row: RecordRow) -> TensorboardReference:
    board = received(NewTensorboard, row.body)
    return TensorboardReference(tensorboard_id=row.id, data_source_id=board.data_source_id, job_id=board.job_id)
