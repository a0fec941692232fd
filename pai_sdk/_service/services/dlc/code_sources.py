"""Code sources of a workspace: registered repositories."""

from __future__ import annotations

from pai_sdk._service.identity.principal import LOCAL_USER, Principal
from pai_sdk._service.identity.visibility import PUBLIC
from pai_sdk._service.services.context import ServiceContext
from pai_sdk._service.services.dlc.problems import refuse_problems
from pai_sdk._service.services.dlc.records import Kind, RecordQuery
from pai_sdk._service.state.dlc_models import RecordRow
from pai_sdk._wire.body import received
from pai_sdk._wire.dlc.names import new_code_source_id
from pai_sdk._wire.dlc.resources.checks import page_problems
from pai_sdk._wire.dlc.times import wire_time
from pai_sdk._wire.workspace.checks import code_source_problems
from pai_sdk._wire.workspace.code_sources import (
    CodeSourceList,
    CodeSourceQuery,
    CodeSourceRecord,
    CodeSourceUpdate,
    NewCodeSource,
)

_KIND: Kind = "code source"


def create_code_source(context: ServiceContext, principal: Principal, source: NewCodeSource) -> str:
    """Registers a code source; returns its id."""
    refuse_problems(code_source_problems(source))
    row = context.records.create(
        _KIND,
        new_code_source_id(),
        source.to_wire("workspace_id"),
        name=source.display_name or "",
        workspace_id=context.workspace_for(principal, source.workspace_id),
        owner=principal.user,
        accessibility=source.accessibility,
    )
    return row.id


def read_code_source(context: ServiceContext, code_source_id: str) -> CodeSourceRecord:
    """Returns a code source."""
    return _record(context.records.get(_KIND, code_source_id))


def list_code_sources(context: ServiceContext, principal: Principal, query: CodeSourceQuery) -> CodeSourceList:
    """Returns a page of the code sources that a user can see."""
    refuse_problems(page_problems(query.page_number, query.page_size, query.order))
    selection = RecordQuery(
        _KIND,
        principal,
        workspace_id=query.workspace_id,
        name=query.display_name,
        sort_by=query.sort_by,
        order=query.order,
        page_number=query.page_number,
        page_size=query.page_size,
    )
    rows, total = context.records.find(selection)
    return CodeSourceList(code_sources=[_record(row) for row in rows], total_count=total)


def update_code_source(context: ServiceContext, code_source_id: str, update: CodeSourceUpdate) -> None:
    """Changes fields of a code source."""
    refuse_problems(code_source_problems(update))
    changes = {name: value if value != "" else None for name, value in update.to_wire().items()}
    context.records.update(_KIND, code_source_id, changes, name=update.display_name)


def publish_code_source(context: ServiceContext, code_source_id: str) -> None:
    """Lets the members of the workspace see a code source."""
    context.records.update(_KIND, code_source_id, {}, accessibility=PUBLIC)


def delete_code_source(context: ServiceContext, code_source_id: str) -> None:
    """Deletes a code source; the repository stays."""
    context.records.delete(_KIND, code_source_id)


def _record(row: RecordRow) -> CodeSourceRecord:
    record = CodeSourceRecord(
        code_source_id=row.id,
        display_name=row.name,
        workspace_id=row.workspace_id,
        accessibility=row.accessibility,
        user_id=row.owner or LOCAL_USER,
        gmt_create_time=wire_time(row.created_at),
        gmt_modify_time=wire_time(row.modified_at),
    )
    # The token is written and never read again: nobody needs it but the service.
    body = received(NewCodeSource, row.body).to_wire("code_repo_access_token")
    return received(CodeSourceRecord, {**body, **record.to_wire()})
