"""TensorBoards: views of curves, which the page of the service shows."""

from __future__ import annotations

from pai_sdk._service.identity.principal import LOCAL_USER, OPERATOR, Principal
from pai_sdk._service.services.context import ServiceContext
from pai_sdk._service.services.dlc.problems import missing_error, refuse_problems
from pai_sdk._service.services.dlc.records import Kind, RecordQuery
from pai_sdk._service.services.jobs.snapshot import LinkOf
from pai_sdk._service.state.dlc_models import RecordRow
from pai_sdk._wire.base import wire_names
from pai_sdk._wire.body import received
from pai_sdk._wire.dlc.names import new_tensorboard_id
from pai_sdk._wire.dlc.resources.checks import page_problems, tensorboard_problems
from pai_sdk._wire.dlc.resources.tensorboards import (
    NewTensorboard,
    TensorboardList,
    TensorboardQuery,
    TensorboardRecord,
    TensorboardUpdateQuery,
)
from pai_sdk._wire.dlc.times import seconds_of, wire_time

_KIND: Kind = "TensorBoard"


def create_tensorboard(context: ServiceContext, principal: Principal, board: NewTensorboard) -> RecordRow:
    """Registers a TensorBoard of a job or of data sources."""
    refuse_problems(tensorboard_problems(board))
    workspace_id = board.workspace_id
    if board.job_id is not None:
        context.jobs.require_visible(board.job_id, principal)
        workspace_id = workspace_id or context.jobs.get(board.job_id).workspace_id
    return context.records.create(
        _KIND,
        new_tensorboard_id(),
        {**board.to_wire(), **TensorboardRecord(status="Running").to_wire()},
        name=board.display_name or board.job_id or "",
        workspace_id=context.workspace_for(principal, workspace_id),
        owner=principal.user,
        accessibility=board.accessibility,
    )


def read_tensorboard(context: ServiceContext, tensorboard_id: str, link_of: LinkOf) -> TensorboardRecord:
    """Returns a TensorBoard; its link is that of the page, with the curves of the job."""
    return _record(context.records.get(_KIND, tensorboard_id), link_of)


def list_tensorboards(
    context: ServiceContext, principal: Principal, query: TensorboardQuery, link_of: LinkOf
) -> TensorboardList:
    """Returns a page of the TensorBoards that a user can see."""
    refuse_problems(page_problems(query.page_number, query.page_size, query.order))
    owner = principal.user if query.show_own else query.user_id or query.username
    selection = RecordQuery(
        _KIND,
        principal,
        workspace_id=query.workspace_id,
        name=query.display_name,
        ids=[query.tensorboard_id] if query.tensorboard_id else None,
        owner=OPERATOR if owner == LOCAL_USER else owner,
        accessibility=query.accessibility,
        started_at=seconds_of(query.start_time),
        ended_at=seconds_of(query.end_time),
        values=wire_names(
            job_id=query.job_id and [query.job_id],
            status=query.status and [query.status],
            source_id=query.source_id and [query.source_id],
            source_type=query.source_type and [query.source_type],
            quota_id=query.quota_id and [query.quota_id],
        ),
        sort_by=query.sort_by,
        order=query.order,
        page_number=query.page_number,
        page_size=query.page_size,
    )
    rows, total = context.records.find(selection)
    return TensorboardList(tensorboards=[_record(row, link_of) for row in rows], total_count=total)


def set_status(context: ServiceContext, tensorboard_id: str, status: str) -> RecordRow:
    """Starts or stops a TensorBoard; the page shows the curves all the same."""
    row = context.records.get(_KIND, tensorboard_id)
    ended = wire_time(row.modified_at) if status == "Stopped" else None
    return context.records.update(_KIND, tensorboard_id, wire_names(status=status, gmt_finish_time=ended))


def update_tensorboard(context: ServiceContext, tensorboard_id: str, query: TensorboardUpdateQuery) -> RecordRow:
    """Changes accessibility, priority and running time."""
    changes = query.to_wire("workspace_id")
    return context.records.update(_KIND, tensorboard_id, changes, accessibility=query.accessibility)


def delete_tensorboard(context: ServiceContext, tensorboard_id: str) -> RecordRow:
    """Deletes a TensorBoard; the curves stay."""
    row = context.records.get(_KIND, tensorboard_id)
    context.records.delete(_KIND, tensorboard_id)
    return row


def link_to(context: ServiceContext, tensorboard_id: str, link_of: LinkOf) -> str:
    """Returns the link that is shared; the page asks each of its readers to sign in."""
    link = _link(context.records.get(_KIND, tensorboard_id), link_of)
    if link is None:
        raise missing_error("page", tensorboard_id)
    return link


def _record(row: RecordRow, link_of: LinkOf) -> TensorboardRecord:
    record = TensorboardRecord(
        tensorboard_id=row.id,
        display_name=row.name,
        workspace_id=row.workspace_id,
        user_id=row.owner or LOCAL_USER,
        username=row.owner or LOCAL_USER,
        accessibility=row.accessibility,
        gmt_create_time=wire_time(row.created_at),
        gmt_modify_time=wire_time(row.modified_at),
        tensorboard_url=_link(row, link_of),
    )
    return received(TensorboardRecord, {**row.body, **record.to_wire()})


def _link(row: RecordRow, link_of: LinkOf) -> str | None:
    return link_of(received(NewTensorboard, row.body).job_id or "")
