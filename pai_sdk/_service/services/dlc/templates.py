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
    body = {
        "DefaultVersion": 1,
        "Description": template.description,
        "Metadata": template.metadata or None,
    }
    row = context.records.create(
        _KIND,
        new_template_id(),
        {name: value for name, value in body.items() if value is not None},
        name=template.template_name or "",
        workspace_id=context.workspace_for(principal, template.workspace_id),
        owner=principal.user,
        versions={"1": _content(template, principal)},
    )
    return received(CreatedTemplate, {**_record(row), "Version": 1})


def read_template(context: ServiceContext, template_id: str, version: str | None) -> TemplateDetail:
    """Returns a template with one version, or with all."""
    row, versions = context.records.get(_KIND, template_id), context.records.versions(_KIND, template_id)
    if version is not None:
        versions = [context.records.version(_KIND, template_id, version)]
    fields = {**_record(row), "TotalCount": len(versions)}
    return received(TemplateDetail, {**fields, "Versions": [_version(each).to_wire() for each in versions]})


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
        job_templates=[received(TemplateRecord, _record(row)) for row in rows],
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
    changes: dict[str, Any] = {}
    if update.description is not None:
        changes["Description"] = update.description
    if update.metadata:
        changes["Metadata"] = update.metadata
    if version is not None and update.set_as_default:
        changes["DefaultVersion"] = version
    row = context.records.update(_KIND, template_id, changes, name=update.template_name)
    fields = {
        "DefaultVersion": row.body["DefaultVersion"],
        "GmtModifyTime": wire_time(row.modified_at),
        "VersionCreated": version is not None,
    }
    return received(UpdatedTemplate, {**fields, "Version": version or row.body["DefaultVersion"]})


def set_default_version(context: ServiceContext, template_id: str, version: int | None) -> RecordRow:
    """Sets the version that jobs have which name none."""
    if version is None:
        refuse_problems([Problem("Version", "is missing")])
    context.records.version(_KIND, template_id, str(version))
    return context.records.update(_KIND, template_id, {"DefaultVersion": version})


def delete_template(context: ServiceContext, template_id: str) -> None:
    """Deletes a template with its versions; jobs of it stay."""
    context.records.delete(_KIND, template_id)


# ---- jobs of templates --------------------------------------------------------------------------------------


def with_template(context: ServiceContext, principal: Principal, body: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the body of a job with the fields of the template that it names; its own fields replace those."""
    template_id = body.get("TemplateId")
    if not template_id:
        return dict(body)
    context.records.require_visible(str(template_id), principal, "read")
    row = context.records.get(_KIND, str(template_id))
    number = body.get("TemplateVersion") or row.body["DefaultVersion"]
    version = context.records.version(_KIND, row.id, str(number))
    content = json.loads(version.body["Content"])
    explicit = {name: value for name, value in body.items() if value not in (None, "", [], {})}
    merged = {**content, **explicit, "TemplateVersion": int(version.name)}
    refuse_problems(_violations(version.body.get("Constraints", {}), content, explicit, merged))
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
            yield Problem(path, "is missing, and the template requires it")


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
    fields: dict[str, Any] = {"CreatedBy": principal.user or LOCAL_USER}
    if template.content is not None:
        fields["Content"] = template.content
    if template.constraints:
        fields["Constraints"] = template.constraints
    return fields


def _text(version: int | None) -> str | None:
    return None if version is None else str(version)


def _record(row: RecordRow) -> dict[str, Any]:
    return {
        **row.body,
        "TemplateId": row.id,
        "TemplateName": row.name,
        "WorkspaceId": row.workspace_id,
        "UserId": row.owner or LOCAL_USER,
        "TenantId": LOCAL_USER,
        "GmtCreateTime": wire_time(row.created_at),
        "GmtModifyTime": wire_time(row.modified_at),
    }


def _version(version: RecordVersionRow) -> TemplateVersion:
    fields = {**version.body, "Version": int(version.name), "GmtCreateTime": wire_time(version.created_at)}
    return received(TemplateVersion, fields)
