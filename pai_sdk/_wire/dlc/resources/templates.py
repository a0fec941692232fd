"""Templates of jobs, with versions."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from pai_sdk._wire.body import AnyMap, Body, Boolean, Integer, Query, String

__all__ = [
    "CreatedTemplate",
    "DefaultVersion",
    "DefaultVersionChanged",
    "NewTemplate",
    "TemplateDetail",
    "TemplateDetailQuery",
    "TemplateList",
    "TemplateQuery",
    "TemplateRecord",
    "TemplateReference",
    "TemplateUpdate",
    "TemplateVersion",
    "UpdatedTemplate",
]


class NewTemplate(Body):
    """The body of CreateJobTemplate. `Content` is the body of CreateJob as JSON text."""

    template_name: String = None
    workspace_id: String = None
    content: String = None
    constraints: AnyMap = Field(default_factory=dict)
    description: String = None
    metadata: AnyMap = Field(default_factory=dict)


class CreatedTemplate(Body):
    """The response of CreateJobTemplate."""

    template_id: String = None
    template_name: String = None
    version: Integer = None
    default_version: Integer = None
    description: String = None
    gmt_create_time: String = None
    gmt_modify_time: String = None
    last_used_time: String = None
    metadata: AnyMap = Field(default_factory=dict)
    request_id: String = None
    tenant_id: String = None
    user_id: String = None
    workspace_id: String = None


class TemplateDetailQuery(Query):
    """The parameters of GetJobTemplate."""

    version: String = None


class TemplateVersion(Body):
    """A version of a template."""

    version: Integer = None
    content: Any = None
    constraints: AnyMap = Field(default_factory=dict)
    created_by: String = None
    gmt_create_time: String = None
    gmt_created: String = None


class TemplateRecord(Body):
    """A template in a list."""

    template_id: String = None
    template_name: String = None
    default_version: Integer = None
    description: String = None
    gmt_create_time: String = None
    gmt_modify_time: String = None
    last_used_time: String = None
    metadata: AnyMap = Field(default_factory=dict)
    modified_by: String = None
    tenant_id: String = None
    user_id: String = None
    workspace_id: String = None


class TemplateDetail(Body):
    """The response of GetJobTemplate."""

    keeps_empty = frozenset({"Versions", "versions"})

    template_id: String = None
    template_name: String = None
    default_version: Integer = None
    versions: list[TemplateVersion] = Field(default_factory=list)
    description: String = None
    gmt_create_time: String = None
    gmt_modify_time: String = None
    last_used_time: String = None
    metadata: AnyMap = Field(default_factory=dict)
    modified_by: String = None
    request_id: String = None
    tenant_id: String = None
    total_count: Integer = None
    user_id: String = None
    workspace_id: String = None


class TemplateUpdate(Body):
    """The body of UpdateJobTemplate: other content creates a version."""

    template_name: String = None
    constraints: AnyMap = Field(default_factory=dict)
    content: String = None
    description: String = None
    metadata: AnyMap = Field(default_factory=dict)
    set_as_default: Boolean = None
    version: Integer = Field(default=None, alias="version")


class UpdatedTemplate(Body):
    """The response of UpdateJobTemplate."""

    default_version: Integer = None
    gmt_modify_time: String = None
    request_id: String = None
    version: Integer = None
    version_created: Boolean = None


class DefaultVersion(Body):
    """The body of SetJobTemplateDefaultVersion."""

    version: Integer = None


class DefaultVersionChanged(Body):
    """The response of SetJobTemplateDefaultVersion."""

    default_version: Integer = None
    gmt_modify_time: String = None
    request_id: String = None


class TemplateReference(Body):
    """The response of DeleteJobTemplate."""

    request_id: String = None
    template_id: String = None


class TemplateQuery(Query):
    """The parameters of ListJobTemplates."""

    description: String = None
    order: String = None
    page_number: Integer = None
    page_size: Integer = None
    sort_by: String = None
    template_id: String = None
    template_name: String = None
    user_id: String = None
    workspace_id: String = None


class TemplateList(Body):
    """A page of ListJobTemplates."""

    keeps_empty = frozenset({"JobTemplates", "job_templates"})

    job_templates: list[TemplateRecord] = Field(default_factory=list)
    total_count: Integer = None
    page_number: Integer = None
    page_size: Integer = None
    request_id: String = None
