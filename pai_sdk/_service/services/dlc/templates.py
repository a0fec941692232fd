"""Templates of jobs: versions with contents, and jobs that are created from them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from pai_sdk._service.identity.principal import LOCAL_USER, Principal
from pai_sdk._service.services.context import ServiceContext
from pai_sdk._service.services.dlc.problems import refuse_problems
from pai_sdk._service.services.dlc.records import Kind, RecordQuery
from pai_sdk._service.state.dlc_models import RecordRow, RecordVersionRow
from pai_sdk._wire.body import received
from pai_sdk._wire.dlc.jobs import NewJob
from pai_sdk._wire.dlc.names import new_template_id
from pai_sdk._wire.dlc.resources.checks import page_problems, template_problems
from pai_sdk._wire.dlc.resources.templates import (
    CreatedTemplate,
    NewTemplate,
    TemplateDetail,
    TemplateList,
    TemplateQuery,
    TemplateRecord,
    TemplateUpdate,
    TemplateVersion,
    UpdatedTemplate,
)
from pai_sdk._wire.dlc.times import wire_time
from pai_sdk.errors import Problem

_KIND: Kind = "job template"
_PATH_PART = re.compile(r"\.([A-Za-z_]\w*)|\[(\d+)\]")
_ABSENT = object()


def create_template(context: ServiceContext, principal: Principal, template: NewTemplate) -> CreatedTemplate:
    """Registers a template with its first version."""
    refuse_problems(template_problems(template))
    record = TemplateRecord(default_version=1, description=template.description, metadata=template.metadata)
    row = context.records.create(
        _KIND,
        new_template_id(),
        record.to_wire(),
        name=template.template_name or "",
        workspace_id=context.workspace_for(principal, template.workspace_id),
        owner=principal.user,
        versions={"1": _content(template, principal)},
    )
    return received(CreatedTemplate, {**_record(row).to_wire(), **CreatedTemplate(version=1).to_wire()})


def read_template(context: ServiceContext, template_id: str, version: str | None) -> TemplateDetail:
    """Returns a template with one version, or with all."""
    row, versions = context.records.get(_KIND, template_id), context.records.versions(_KIND, template_id)
    if version is not None:
        versions = [context.records.version(_KIND, template_id, version)]
    detail = TemplateDetail(total_count=len(versions), versions=[*map(_version, versions)])
    return received(TemplateDetail, {**_record(row).to_wire(), **detail.to_wire()})


def list_templates(context: ServiceContext, principal: Principal, query: TemplateQuery) -> TemplateList:
    """Returns a page of the templates that a user can see."""
    refuse_problems(page_problems(query.page_number, query.page_size, query.order))
    selection = RecordQuery(
        _KIND,
        principal,
        workspace_id=query.workspace_id,
        name=query.template_name,
        ids=[query.template_id] if query.template_id else None,
        owner=query.user_id,
        sort_by=query.sort_by,
        order=query.order,
        page_number=query.page_number,
        page_size=query.page_size,
    )
    rows, total = context.records.find(selection)
    return TemplateList(
        job_templates=[*map(_record, rows)],
        total_count=total,
        page_number=query.page_number or 1,
        page_size=query.page_size or 10,
    )


def update_template(
    context: ServiceContext, principal: Principal, template_id: str, update: TemplateUpdate
) -> UpdatedTemplate:
    """Changes a template; content or constraints become a new version."""
    refuse_problems(template_problems(update))
    version = None
    if update.content is not None or update.constraints:
        base = context.records.version(_KIND, template_id, _text(update.version)).body
        content = {**base, **_content(update, principal)}
        version = int(context.records.add_version(_KIND, template_id, content).name)
    changes = TemplateRecord(
        description=update.description,
        metadata=update.metadata,
        default_version=version if update.set_as_default else None,
    )
    row = context.records.update(_KIND, template_id, changes.to_wire(), name=update.template_name)
    default_version = _record(row).default_version
    return UpdatedTemplate(
        default_version=default_version,
        gmt_modify_time=wire_time(row.modified_at),
        version=version or default_version,
        version_created=version is not None,
    )


def set_default_version(context: ServiceContext, template_id: str, version: int | None) -> RecordRow:
    """Sets the version that jobs have which name none."""
    if version is None:
        refuse_problems([Problem("Version", "is required")])
    context.records.version(_KIND, template_id, str(version))
    return context.records.update(_KIND, template_id, TemplateRecord(default_version=version).to_wire())


def delete_template(context: ServiceContext, template_id: str) -> None:
    """Deletes a template with its versions; jobs of it stay."""
    context.records.delete(_KIND, template_id)


# ---- jobs of templates --------------------------------------------------------------------------------------


def with_template(context: ServiceContext, principal: Principal, body: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the body of a job with the fields of the template that it names; its own fields replace those."""
    job = received(NewJob, body)
    if not job.template_id:
        return dict(body)
    context.records.require_visible(job.template_id, principal, "read")
    row = context.records.get(_KIND, job.template_id)
    number = job.template_version or _record(row).default_version
    version = _version(context.records.version(_KIND, row.id, str(number)))
    content = json.loads(version.content)
    explicit = {name: value for name, value in body.items() if value not in (None, "", [], {})}
    merged = {**content, **explicit, **NewJob(template_version=version.version).to_wire()}
    refuse_problems(_violations(version.constraints, content, explicit, merged))
    return merged


def _violations(
    constraints: Mapping[str, Any],
    content: Mapping[str, Any],
    explicit: Mapping[str, Any],
    merged: Mapping[str, Any],
) -> Iterator[Problem]:
    for path, kind in constraints.items():
        if kind == "locked" and _at(merged, path) != _at(content, path):
            yield Problem(path, "is locked by the template", "leave it out")
        elif kind == "required" and _at(explicit, path) is _ABSENT:
            yield Problem(path, "is required by the template")


def _at(body: Mapping[str, Any], path: str) -> Any:
    """Returns the value at a path such as `$.JobSpecs[0].PodCount`."""
    value: Any = body
    for name, index in _PATH_PART.findall(path.removeprefix("$")):
        if name and isinstance(value, Mapping) and name in value:
            value = value[name]
        elif index and isinstance(value, list) and int(index) < len(value):
            value = value[int(index)]
        else:
            return _ABSENT
    return value


# ---- fields -------------------------------------------------------------------------------------------------


def _content(template: NewTemplate | TemplateUpdate, principal: Principal) -> dict[str, Any]:
    version = TemplateVersion(
        created_by=principal.user or LOCAL_USER, content=template.content, constraints=template.constraints
    )
    return version.to_wire()


def _text(version: int | None) -> str | None:
    return None if version is None else str(version)


def _record(row: RecordRow) -> TemplateRecord:
    record = TemplateRecord(
        template_id=row.id,
        template_name=row.name,
        workspace_id=row.workspace_id,
        user_id=row.owner or LOCAL_USER,
        tenant_id=LOCAL_USER,
        gmt_create_time=wire_time(row.created_at),
        gmt_modify_time=wire_time(row.modified_at),
    )
    return received(TemplateRecord, {**row.body, **record.to_wire()})


def _version(row: RecordVersionRow) -> TemplateVersion:
    version = TemplateVersion(version=int(row.name), gmt_create_time=wire_time(row.created_at))
    return received(TemplateVersion, {**row.body, **version.to_wire()})
